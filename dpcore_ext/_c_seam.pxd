"""Checks that several bindings share."""

from libc.stdint cimport uint64_t


# Samplers address elements below 2^62; see sample.h and encode.h.
cdef inline bint is_span(uint64_t start, size_t n) noexcept nogil:
    cdef uint64_t limit = <uint64_t>1 << 62
    return start <= limit and n <= limit - start


cdef inline bint is_aligned(const void *p, size_t size) noexcept nogil:
    return <size_t>p % size == 0


cdef inline bint overlap(const void *a, size_t a_bytes, const void *b,
                         size_t b_bytes) noexcept nogil:
    return <size_t>a < <size_t>b + b_bytes and <size_t>b < <size_t>a + a_bytes
