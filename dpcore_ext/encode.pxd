"""C-level face of dpcore_ext.encode: a local randomiser, to be run without the GIL."""

from libc.stdint cimport uint64_t

from dpcore_ext._c_encode cimport dpc_cut_t, dpc_rows_t
from dpcore_ext._c_simd cimport dpc_key_t


cdef class Rows:
    cdef dpc_rows_t rows
    cdef const dpc_cut_t *cut
    cdef object buffers


# See dpcore/encode.h. A status of 0 means success.
cdef int encode_f64(const dpc_key_t *key, const dpc_rows_t *rows, const dpc_cut_t *cut,
                    uint64_t start, const double *x, void *codes, size_t n) noexcept nogil
cdef int encode_f32(const dpc_key_t *key, const dpc_rows_t *rows, const dpc_cut_t *cut,
                    uint64_t start, const float *x, void *codes, size_t n) noexcept nogil
