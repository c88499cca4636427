from libc.stdint cimport int16_t, int64_t, uint32_t, uint64_t

from dpcore_ext._c_simd cimport dpc_gauss_bulk_t, dpc_kernels_t, dpc_key_t, dpc_status


cdef extern from "dpcore/sample.h" nogil:
    const int DPC_GUIDE_SIZE
    const int DPC_MAX_DIGITS
    const int DPC_SMALL
    const uint64_t DPC_GAUSS_GUARD
    cdef enum dpc_ends:
        DPC_NO_END
        DPC_LAST_END
        DPC_BOTH_ENDS
    ctypedef struct dpc_u256_t:
        uint64_t limb[4]
    ctypedef struct dpc_table_t:
        const int16_t *guide
        const dpc_u256_t *cdf
        size_t n_thresholds
        int64_t first
        int open_ends
    ctypedef struct dpc_digits_t:
        const dpc_table_t *top
        const dpc_table_t *tail
        const dpc_table_t *digit[6]
        uint32_t shift[6]
        uint32_t n_digits
        uint32_t top_shift
        int symmetric
    ctypedef struct dpc_gauss_t:
        dpc_table_t cells
        dpc_gauss_bulk_t bulk
        uint64_t kappa_high
        uint64_t kappa_low
        uint64_t guard
        int lattice
    dpc_status dpc_guide_fill(const dpc_table_t *table, int16_t *guide)
    void dpc_sample_digits(const dpc_kernels_t *kernels, const dpc_key_t *key,
                           const dpc_digits_t *law, uint64_t start, const int64_t *x, int64_t *y,
                           size_t n)
    void dpc_sample_gauss(const dpc_kernels_t *kernels, const dpc_key_t *key,
                          const dpc_gauss_t *law, uint64_t start, const int64_t *x, int64_t *y,
                          size_t n)
    void dpc_sample_integers(const dpc_kernels_t *kernels, const dpc_key_t *key, int64_t low,
                             uint64_t bound, uint64_t start, int64_t *y, size_t n)
    uint64_t dpc_exp_neg(uint64_t exponent)
    dpc_status dpc_quantize(const double *x, double lower, double upper, int exponent, int64_t *q,
                            size_t n)
    void dpc_dequantize(const int64_t *q, int exponent, double *y, size_t n)
    int dpc_all_small(const int64_t *x, size_t n)
