# distutils: language = c
"""k-means on points stored feature by feature, in chunks that several threads may work on."""

from libc.stdint cimport int32_t

from dpcore_ext._c_cluster cimport (
    dpc_kmeans_assign_f32,
    dpc_kmeans_assign_f64,
    dpc_kmeans_chunk,
    dpc_kmeans_label_f32,
    dpc_kmeans_label_f64,
    dpc_kmeans_lloyd_f32,
    dpc_kmeans_lloyd_f64,
    dpc_kmeans_partial,
    dpc_kmeans_pick_f32,
    dpc_kmeans_pick_f64,
    dpc_kmeans_plusplus_f32,
    dpc_kmeans_plusplus_f64,
    dpc_kmeans_prepare_f32,
    dpc_kmeans_prepare_f64,
    dpc_kmeans_reduce_f32,
    dpc_kmeans_reduce_f64,
    dpc_kmeans_seed_f32,
    dpc_kmeans_seed_f64,
    dpc_kmeans_spread_f32,
    dpc_kmeans_spread_f64,
    dpc_kmeans_update_f32,
    dpc_kmeans_update_f64,
)
from dpcore_ext.rng cimport kernels

import numpy as np

from dpcore_ext.errors import ParameterError


cdef class KMeansRun:
    """The memory of one run: x of shape (d, n), float64 or float32, and k centers; see cluster.h.

    `centers`, `labels` and `distances` are views of what the native code works on. Whatever is
    written to them, the native code stays inside its memory.
    """

    def __cinit__(self, x not None, Py_ssize_t k):
        if (x.ndim != 2 or not (x.flags.c_contiguous and x.flags.aligned)
                or x.dtype not in (np.float64, np.float32)):
            raise ParameterError("The 'x' parameter must be a contiguous float array (d, n).")
        d, n = x.shape
        if not (d >= 1 and n >= 1 and 1 <= k < 2**31):
            raise ParameterError("The 'k' parameter must be at least 1, and 'x' not empty.")
        cdef size_t chunk = dpc_kmeans_chunk(n), width = dpc_kmeans_partial(k, d)
        self.n_chunks = (n + chunk - 1) // chunk
        self.single = x.dtype == np.float32
        self.centers = np.zeros((k, d), x.dtype)
        self.labels = np.full(n, -1, np.int32)
        self.distances = np.zeros(n, x.dtype)
        sums = np.zeros((self.n_chunks + 1, width), np.float64)
        bias = np.zeros(k, x.dtype)
        self.buffers = (x, sums, bias)
        cdef int32_t[::1] labels = self.labels
        cdef double[:, ::1] partial = sums
        if self.single:
            bind_f32(self, x, self.centers, self.distances, bias)
            self.f32.n, self.f32.d, self.f32.k, self.f32.chunk = n, d, k, chunk
            self.f32.labels = &labels[0]
            self.f32.total, self.f32.partial = &partial[0, 0], &partial[1, 0]
        else:
            bind_f64(self, x, self.centers, self.distances, bias)
            self.f64.n, self.f64.d, self.f64.k, self.f64.chunk = n, d, k, chunk
            self.f64.labels = &labels[0]
            self.f64.total, self.f64.partial = &partial[0, 0], &partial[1, 0]

    def restart(self, centers not None):
        """Begin again from other centers of shape (k, d)."""
        if np.shape(centers) != self.centers.shape:
            raise ParameterError("The 'centers' parameter must have the shape (k, d).")
        self.centers[...] = centers
        self.prepare()

    def prepare(self):
        """Begin again from the centers as they stand."""
        self.labels[...] = -1
        if self.single:
            dpc_kmeans_prepare_f32(&self.f32)
        else:
            dpc_kmeans_prepare_f64(&self.f64)

    def _check(self, size_t first, size_t last):
        if not first <= last <= self.n_chunks:
            raise ParameterError("The 'first' and 'last' parameters must name chunks.")

    def seed(self, size_t c, size_t index):
        """Point `index` becomes center c."""
        if c >= <size_t>self.centers.shape[0] or index >= <size_t>self.labels.shape[0]:
            raise ParameterError("The 'c' and 'index' parameters must name a center and a point.")
        if self.single:
            dpc_kmeans_seed_f32(&self.f32, c, index)
        else:
            dpc_kmeans_seed_f64(&self.f64, c, index)

    def spread(self, size_t c, size_t first, size_t last):
        """Distances of some chunks to the nearest of the centers up to c."""
        self._check(first, last)
        if c >= <size_t>self.centers.shape[0]:
            raise ParameterError("The 'c' parameter must name a center.")
        with nogil:
            if self.single:
                dpc_kmeans_spread_f32(kernels(), &self.f32, c, first, last)
            else:
                dpc_kmeans_spread_f64(kernels(), &self.f64, c, first, last)

    def pick(self, double uniform):
        """The point that a number in [0, 1) chooses, in proportion to the distances."""
        if not 0 <= uniform < 1:
            raise ParameterError("The 'uniform' parameter must lie in [0, 1).")
        if self.single:
            return dpc_kmeans_pick_f32(&self.f32, uniform)
        return dpc_kmeans_pick_f64(&self.f64, uniform)

    def plusplus(self, const double[::1] uniform not None):
        """k-means++ from k numbers in [0, 1)."""
        cdef Py_ssize_t i, k = self.centers.shape[0]
        if uniform.shape[0] != k:
            raise ParameterError("The 'uniform' parameter must hold one number for each center.")
        # A copy of our own, which no other thread changes after the check.
        cdef const double[::1] own = np.array(uniform)
        for i in range(k):
            if not 0 <= own[i] < 1:
                raise ParameterError("The 'uniform' parameter must lie in [0, 1).")
        self.labels[...] = -1
        with nogil:
            if self.single:
                dpc_kmeans_plusplus_f32(kernels(), &self.f32, &own[0])
            else:
                dpc_kmeans_plusplus_f64(kernels(), &self.f64, &own[0])

    def label(self, size_t begin, size_t end):
        """Labels and distances alone of the points begin to end - 1."""
        if not begin <= end <= <size_t>self.labels.shape[0]:
            raise ParameterError("The 'begin' and 'end' parameters must name points.")
        with nogil:
            if self.single:
                dpc_kmeans_label_f32(kernels(), &self.f32, begin, end)
            else:
                dpc_kmeans_label_f64(kernels(), &self.f64, begin, end)

    def assign(self, size_t first, size_t last):
        """Labels, distances and sums of some chunks."""
        self._check(first, last)
        with nogil:
            if self.single:
                dpc_kmeans_assign_f32(kernels(), &self.f32, first, last)
            else:
                dpc_kmeans_assign_f64(kernels(), &self.f64, first, last)

    def reduce(self):
        """Add up what all chunks reported."""
        if self.single:
            dpc_kmeans_reduce_f32(&self.f32)
        else:
            dpc_kmeans_reduce_f64(&self.f64)

    def update(self):
        """Centers to the means of their points."""
        with nogil:
            if self.single:
                dpc_kmeans_update_f32(&self.f32)
            else:
                dpc_kmeans_update_f64(&self.f64)

    def lloyd(self, size_t max_iter, double tol):
        """All iterations on this thread; returns how many."""
        cdef size_t done
        with nogil:
            if self.single:
                done = dpc_kmeans_lloyd_f32(kernels(), &self.f32, max_iter, tol)
            else:
                done = dpc_kmeans_lloyd_f64(kernels(), &self.f64, max_iter, tol)
        return done

    @property
    def inertia(self):
        return self.f32.inertia if self.single else self.f64.inertia

    @property
    def shift(self):
        return self.f32.shift if self.single else self.f64.shift

    @property
    def changed(self):
        return self.f32.changed if self.single else self.f64.changed


cdef int bind_f64(KMeansRun run, const double[:, ::1] x, double[:, ::1] centers,
                  double[::1] distances, double[::1] bias) except -1:
    run.f64.bias = &bias[0]
    run.f64.x, run.f64.centers, run.f64.distances = &x[0, 0], &centers[0, 0], &distances[0]
    return 0


cdef int bind_f32(KMeansRun run, const float[:, ::1] x, float[:, ::1] centers,
                  float[::1] distances, float[::1] bias) except -1:
    run.f32.bias = &bias[0]
    run.f32.x, run.f32.centers, run.f32.distances = &x[0, 0], &centers[0, 0], &distances[0]
    return 0
