"""C-level face of dpcore_ext.cluster: one run of k-means."""

from dpcore_ext._c_cluster cimport dpc_kmeans_f32_t, dpc_kmeans_f64_t


cdef class KMeansRun:
    cdef dpc_kmeans_f64_t f64
    cdef dpc_kmeans_f32_t f32
    cdef bint single
    cdef object buffers
    cdef readonly object centers, labels, distances
    cdef readonly size_t n_chunks
