from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

from dpcore_ext._c_simd cimport dpc_kernels_t


cdef extern from "dpcore/mask.h" nogil:
    void dpc_mask_add_u32(const dpc_kernels_t *kernels, const uint8_t *keys,
                          const uint8_t *negative, size_t n_keys, uint64_t counter, uint32_t *acc,
                          size_t n)
    void dpc_mask_add_u64(const dpc_kernels_t *kernels, const uint8_t *keys,
                          const uint8_t *negative, size_t n_keys, uint64_t counter, uint64_t *acc,
                          size_t n)


cdef extern from "dpcore/shamir.h" nogil:
    const int DPC_SHAMIR_BYTES
    void dpc_shamir_split(const uint8_t *coefficients, size_t threshold, size_t n_elements,
                          const uint16_t *points, size_t n_points, uint8_t *shares)
    void dpc_shamir_weights(const uint16_t *points, size_t n_points, uint8_t *weights)
    void dpc_shamir_combine(const uint8_t *weights, const uint8_t *shares, size_t n_points,
                            size_t n_elements, uint8_t *secret)
