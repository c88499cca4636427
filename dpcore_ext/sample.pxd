"""C-level face of dpcore_ext.sample: compiled laws, to be drawn from without the GIL."""

from libc.stdint cimport int64_t, uint64_t

from dpcore_ext._c_sample cimport dpc_digits_t, dpc_gauss_t, dpc_table_t
from dpcore_ext._c_simd cimport dpc_key_t


cdef class Table:
    cdef dpc_table_t table
    cdef object cdf, guide_array


cdef class Law:
    cdef void fill(self, const dpc_key_t *key, uint64_t start, const int64_t *x, int64_t *out,
                   size_t n) noexcept nogil


cdef class DigitLaw(Law):
    cdef dpc_digits_t law
    cdef object parts


cdef class GaussLaw(Law):
    cdef dpc_gauss_t law
    cdef Table cells


# out = x + noise of elements start, start + 1, ...; see dpcore/sample.h. x may be out, or NULL for
# the noise alone. Not 0 if an x is further than 2**62 from zero: out is as before then.
cdef int add_digits(const dpc_key_t *key, const dpc_digits_t *law, uint64_t start,
                    const int64_t *x, int64_t *out, size_t n) noexcept nogil
cdef int add_gauss(const dpc_key_t *key, const dpc_gauss_t *law, uint64_t start,
                   const int64_t *x, int64_t *out, size_t n) noexcept nogil
