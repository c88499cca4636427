from libc.stdint cimport uint16_t, uint32_t, uint64_t

from dpcore_ext._c_simd cimport dpc_kernels_t, dpc_key_t, dpc_status


cdef extern from "dpcore/encode.h" nogil:
    const int DPC_MAX_LOG2_COLUMNS
    ctypedef struct dpc_rows_t:
        const uint32_t *entry
        uint32_t n_intervals
        uint32_t log2_columns
        double lower
        double per_unit
    ctypedef struct dpc_cut_t:
        uint64_t high
        uint64_t low
    void dpc_rows_entries(const dpc_cut_t *cut, const uint16_t *alias, size_t n,
                          uint32_t log2_columns, uint32_t *entry)
    dpc_status dpc_encode_f64(const dpc_kernels_t *kernels, const dpc_key_t *key,
                              const dpc_rows_t *rows, const dpc_cut_t *cut, uint64_t start,
                              const double *x, void *codes, size_t n)
    dpc_status dpc_encode_f32(const dpc_kernels_t *kernels, const dpc_key_t *key,
                              const dpc_rows_t *rows, const dpc_cut_t *cut, uint64_t start,
                              const float *x, void *codes, size_t n)
