"""C-level face of dpcore_ext.labeling: a labeling problem in its Gram form."""

from dpcore_ext._c_labeling cimport dpc_labeling_t, dpc_target_t


cdef class GramForm:
    cdef dpc_labeling_t problem
    cdef object buffers
    cdef const double *cross
    cdef const double *square
    cdef const double *target_mean
    cdef readonly size_t n_targets
    cdef dpc_target_t target(self, size_t i) noexcept nogil
