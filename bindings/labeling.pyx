# distutils: language = c
"""Labels for clusters from label proportions: search, enumeration and monotone labelings."""

from libc.stdint cimport int32_t, uint64_t

from dpcore_ext._c_labeling cimport (
    dpc_label_deltas,
    dpc_label_enumerate,
    dpc_label_error,
    dpc_label_monotone,
    dpc_label_scratch,
    dpc_label_search,
    dpc_target_t,
)
from dpcore_ext.rng cimport kernels

import numpy as np

from dpcore_ext.errors import ParameterError


cdef class GramForm:
    """The Gram form of one clustering and several targets; see labeling.h.

    Parameters
    ----------
    gram : float64, shape (k, k)
    cross : float64, shape (n_targets, n_labels, k)
    square : float64, shape (n_targets,)
    mean, target_mean : float64, shapes (k,) and (n_targets, n_labels), optional
        Turn the objective into the product with the squared error of the means.
    scale, eta : float
    """

    def __cinit__(self, const double[:, ::1] gram not None, const double[:, :, ::1] cross not None,
                  const double[::1] square not None, const double[::1] mean=None,
                  const double[:, ::1] target_mean=None, double scale=1.0, double eta=0.0):
        cdef Py_ssize_t k = gram.shape[0], n_labels = cross.shape[1]
        if (not (1 <= k <= 1 << 15 and 1 <= n_labels <= 1 << 15) or gram.shape[1] != k
                or cross.shape[2] != k or cross.shape[0] < 1 or square.shape[0] != cross.shape[0]):
            raise ParameterError("The 'gram', 'cross' and 'square' parameters must agree.")
        if (mean is None) != (target_mean is None) or mean is not None and (
                mean.shape[0] != k or target_mean.shape[0] != cross.shape[0]
                or target_mean.shape[1] != n_labels):
            raise ParameterError("The 'mean' and 'target_mean' parameters must agree.")
        self.buffers = (gram, cross, square, mean, target_mean)
        self.problem.k, self.problem.n_labels, self.problem.gram = k, n_labels, &gram[0, 0]
        self.problem.scale, self.problem.eta = scale, eta
        self.n_targets = cross.shape[0]
        self.cross, self.square = &cross[0, 0, 0], &square[0]
        self.problem.mean, self.target_mean = NULL, NULL
        if mean is not None:
            self.problem.mean, self.target_mean = &mean[0], &target_mean[0, 0]

    cdef dpc_target_t target(self, size_t i) noexcept nogil:
        cdef dpc_target_t target
        target.cross = self.cross + i * self.problem.n_labels * self.problem.k
        target.square = self.square[i]
        target.target_mean = NULL
        if self.target_mean != NULL:
            target.target_mean = self.target_mean + i * self.problem.n_labels
        return target

    def _scratch(self):
        return np.empty(dpc_label_scratch(self.problem.k, self.problem.n_labels))

    def _own_labels(self, labels):
        """A checked copy: without the GIL, others may change what they gave us after the check."""
        array = np.array(labels, dtype=np.int32, order="C")
        if <size_t>array.shape[array.ndim - 1] != self.problem.k:
            raise ParameterError("The 'labels' parameter must have one column for each cluster.")
        if array.size and (array.min() < 0 or array.max() >= <Py_ssize_t>self.problem.n_labels):
            raise ParameterError("The 'labels' parameter must hold numbers below n_labels.")
        return array

    def errors(self, const int32_t[:, ::1] labels not None, double[::1] out not None):
        """out[i] = squared error of labels[i] for target i."""
        cdef dpc_target_t target
        cdef double[::1] scratch = self._scratch()
        cdef size_t i
        cdef const int32_t[:, ::1] own = self._own_labels(labels)
        if <size_t>labels.shape[0] != self.n_targets or <size_t>out.shape[0] != self.n_targets:
            raise ParameterError("The 'labels' and 'out' parameters must have a row per target.")
        with nogil:
            for i in range(self.n_targets):
                target = self.target(i)
                out[i] = dpc_label_error(&self.problem, &target, &own[i, 0], &scratch[0])

    def deltas(self, size_t i, const int32_t[::1] labels not None,
               double[:, ::1] reassign not None, double[:, ::1] swap not None):
        """Error changes of all moves of one labeling for target i."""
        cdef double[::1] scratch = self._scratch()
        cdef Py_ssize_t k = self.problem.k, n_labels = self.problem.n_labels
        cdef const int32_t[::1] own = self._own_labels(labels)
        if (i >= self.n_targets or reassign.shape[0] != k or reassign.shape[1] != n_labels
                or swap.shape[0] != k or swap.shape[1] != k):
            raise ParameterError("The 'reassign' and 'swap' parameters must have room for moves.")
        cdef dpc_target_t target = self.target(i)
        with nogil:
            dpc_label_deltas(&self.problem, &target, &own[0], &scratch[0], &reassign[0, 0],
                             &swap[0, 0])

    def search(self, int32_t[:, :, ::1] starts not None, double[:, ::1] objectives not None):
        """Turn starts (n_targets, n_starts, k) into local optima; returns the moves made."""
        cdef dpc_target_t target
        cdef double[::1] scratch = self._scratch()
        cdef size_t i, n_starts = starts.shape[1]
        cdef uint64_t n_moves = 0
        cdef int32_t[:, :, ::1] own = self._own_labels(starts)
        if (<size_t>starts.shape[0] != self.n_targets or n_starts < 1
                or <size_t>objectives.shape[0] != self.n_targets
                or <size_t>objectives.shape[1] != n_starts):
            raise ParameterError("The 'starts' and 'objectives' parameters must agree.")
        with nogil:
            for i in range(self.n_targets):
                target = self.target(i)
                n_moves += dpc_label_search(&self.problem, &target, &own[i, 0, 0], n_starts,
                                            &objectives[i, 0], &scratch[0])
        starts[...] = own
        return n_moves

    def enumerate(self, int32_t[:, ::1] labels not None, double[::1] objectives not None):
        """The best of all labelings for each target."""
        cdef dpc_target_t target
        cdef double[::1] scratch = self._scratch()
        cdef size_t i
        self._check_room(labels, objectives)
        cdef int32_t[:, ::1] own = np.zeros((labels.shape[0], labels.shape[1]), np.int32)
        with nogil:
            for i in range(self.n_targets):
                target = self.target(i)
                objectives[i] = dpc_label_enumerate(&self.problem, &target, &own[i, 0],
                                                    &scratch[0])
        labels[...] = own

    def monotone(self, const int32_t[::1] order not None, int32_t[:, ::1] labels not None,
                 double[::1] errors not None):
        """The best labeling for each target whose labels do not decrease along the order."""
        cdef dpc_target_t target
        cdef double[::1] scratch = self._scratch()
        cdef size_t i
        self._check_room(labels, errors)
        cdef int32_t[:, ::1] own = np.zeros((labels.shape[0], labels.shape[1]), np.int32)
        cdef const int32_t[::1] own_order = np.array(order, dtype=np.int32)
        if sorted(own_order) != list(range(self.problem.k)):
            raise ParameterError("The 'order' parameter must be a permutation of the clusters.")
        with nogil:
            for i in range(self.n_targets):
                target = self.target(i)
                errors[i] = dpc_label_monotone(&self.problem, &target, &own_order[0], &own[i, 0],
                                               &scratch[0])
        labels[...] = own

    def _check_room(self, int32_t[:, ::1] labels not None, double[::1] values not None):
        if (<size_t>labels.shape[0] != self.n_targets or <size_t>labels.shape[1] != self.problem.k
                or <size_t>values.shape[0] != self.n_targets):
            raise ParameterError("The output parameters must have a row for each target.")


def cross(const double[:, ::1] a not None, const double[:, ::1] b not None,
          double[:, ::1] out not None):
    """out += a.T @ b, summed in the order of rows on this thread."""
    cdef size_t n_rows = a.shape[0], n_a = a.shape[1], n_b = b.shape[1]
    if (<size_t>b.shape[0] != n_rows or <size_t>out.shape[0] != n_a
            or <size_t>out.shape[1] != n_b):
        raise ParameterError("The 'out' parameter must have the shape of a.T @ b.")
    if n_rows and n_a and n_b:
        with nogil:
            kernels().cross(&a[0, 0], &b[0, 0], n_rows, n_a, n_b, &out[0, 0])
