from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t


cdef extern from "dpcore/status.h" nogil:
    cdef enum dpc_status:
        DPC_OK
        DPC_ERR_RANGE
        DPC_ERR_END


cdef extern from "dpcore/chacha.h" nogil:
    ctypedef struct dpc_key_t:
        uint32_t word[8]
    void dpc_key_load(dpc_key_t *key, const uint8_t *data)
    void dpc_key_store(const dpc_key_t *key, uint8_t *data)
    void dpc_key_derive(dpc_key_t *child, const dpc_key_t *parent, const uint8_t *digest)
    dpc_status dpc_entropy(uint8_t *out, size_t n)
    void dpc_wipe(void *p, size_t n)
    void dpc_wipe_stack()
    int dpc_watch_forks()
    uint64_t dpc_fork_generation()


cdef extern from "dpcore/recurrent.h" nogil:
    ctypedef struct dpc_lstm_t:
        size_t hidden, n_steps, n_rows
        const float *x
        const float *wx
        const float *wh
        const float *bias
        float *h
        float *c
        float *gates
        const float *dh
        float *dwx
        float *dwh
        float *dbias
        float *scratch
    size_t dpc_lstm_scratch(size_t hidden)


cdef extern from "dpcore/simd.h" nogil:
    cdef enum dpc_level:
        DPC_BASELINE
        DPC_LEVEL_END
    ctypedef struct dpc_gauss_bulk_t:
        const int16_t *guide
        uint64_t kappa
        uint32_t offset_mask
        uint32_t shift
    ctypedef struct dpc_kernels_t:
        const char *name
        void (*keystream)(const dpc_key_t *key, uint64_t nonce, uint64_t counter, size_t n_blocks,
                          uint8_t *out) noexcept nogil
        void (*keystream_at)(const dpc_key_t *key, uint64_t nonce, const uint64_t *counters,
                             size_t n, uint8_t *out) noexcept nogil
        void (*cross)(const double *a, const double *b, size_t n_rows, size_t n_a, size_t n_b,
                      double *out) noexcept nogil
        void (*lstm_forward)(const dpc_lstm_t *group) noexcept nogil
        void (*lstm_backward)(const dpc_lstm_t *group) noexcept nogil
    const dpc_kernels_t *dpc_kernels()
    const dpc_kernels_t *dpc_kernels_at(dpc_level level)
    dpc_status dpc_select(dpc_level level)
