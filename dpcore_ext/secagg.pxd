"""C-level face of dpcore_ext.secagg: see dpcore/mask.h."""

from libc.stdint cimport uint8_t, uint32_t, uint64_t


cdef void mask_add_u32(const uint8_t *keys, const uint8_t *negative, size_t n_keys,
                       uint64_t counter, uint32_t *acc, size_t n) noexcept nogil
cdef void mask_add_u64(const uint8_t *keys, const uint8_t *negative, size_t n_keys,
                       uint64_t counter, uint64_t *acc, size_t n) noexcept nogil
