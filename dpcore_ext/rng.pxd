"""C-level face of dpcore_ext.rng: keys, and the dispatch table that other modules sample with."""

from dpcore_ext._c_simd cimport dpc_kernels_t, dpc_key_t


cdef class Key:
    cdef dpc_key_t key


cdef const dpc_kernels_t *kernels() noexcept nogil
