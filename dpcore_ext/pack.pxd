"""C-level face of dpcore_ext.pack: see dpcore/pack.h. A status of 0 means success."""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t


cdef size_t packed_size(size_t n, uint32_t n_bits) noexcept nogil
cdef int pack_u8(const uint8_t *codes, size_t n, uint32_t n_bits, uint8_t *out) noexcept nogil
cdef int pack_u16(const uint16_t *codes, size_t n, uint32_t n_bits, uint8_t *out) noexcept nogil
cdef void unpack_u8(const uint8_t *packed, uint32_t n_bits, uint8_t *codes,
                    size_t n) noexcept nogil
cdef void unpack_u16(const uint8_t *packed, uint32_t n_bits, uint16_t *codes,
                     size_t n) noexcept nogil
cdef void count_packed_fill(const uint8_t *packed, uint32_t n_bits, size_t n,
                            uint64_t *counts) noexcept nogil
cdef int count_u8(const uint8_t *codes, size_t n, uint64_t *counts,
                  size_t n_counts) noexcept nogil
cdef int count_u16(const uint16_t *codes, size_t n, uint64_t *counts,
                   size_t n_counts) noexcept nogil
