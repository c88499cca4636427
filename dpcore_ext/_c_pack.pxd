from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

from dpcore_ext._c_simd cimport dpc_status


cdef extern from "dpcore/status.h" nogil:
    const int DPC_ERR_CODE


cdef extern from "dpcore/pack.h" nogil:
    const uint32_t DPC_MAX_BITS
    size_t dpc_packed_size(size_t n, uint32_t n_bits)
    dpc_status dpc_pack_u8(const uint8_t *codes, size_t n, uint32_t n_bits, uint8_t *out)
    dpc_status dpc_pack_u16(const uint16_t *codes, size_t n, uint32_t n_bits, uint8_t *out)
    void dpc_unpack_u8(const uint8_t *packed, uint32_t n_bits, uint8_t *codes, size_t n)
    void dpc_unpack_u16(const uint8_t *packed, uint32_t n_bits, uint16_t *codes, size_t n)
    void dpc_count_packed(const uint8_t *packed, uint32_t n_bits, size_t n, uint64_t *counts)
    dpc_status dpc_count_u8(const uint8_t *codes, size_t n, uint64_t *counts, size_t n_counts)
    dpc_status dpc_count_u16(const uint16_t *codes, size_t n, uint64_t *counts, size_t n_counts)
