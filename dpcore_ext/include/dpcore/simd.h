/* The dispatch table: every kernel that exists once per SIMD level.
 *
 * A level is chosen once, when dpcore_ext.rng is imported; tests may choose another one the CPU
 * has. All levels give the same bytes and the same integers.
 */
#ifndef DPCORE_SIMD_H
#define DPCORE_SIMD_H

#include "dpcore/chacha.h"
#include "dpcore/recurrent.h"

enum dpc_level { DPC_BASELINE = 0, DPC_AVX2, DPC_AVX512, DPC_LEVEL_END };

/* Guide entry of a cell that holds a threshold: the first 16 bits do not settle the outcome. */
#define DPC_OPEN INT16_MIN

/* The part of a rejection-sampled Gaussian that the bulk kernel needs; see sample.h. */
typedef struct dpc_gauss_bulk {
    const int16_t *guide;  /* 2^16 entries: cell number, or DPC_OPEN */
    uint64_t kappa;        /* ceil(2^41 / (2 s^2)), s the standard deviation in cells */
    uint32_t offset_mask;  /* which bits of the 32-bit offset inside a cell are used */
    uint32_t shift;        /* log2 of the cell width, 1 to 31 */
} dpc_gauss_bulk_t;

/* The part of a local randomiser that the bulk kernel needs; see encode.h. */
typedef struct dpc_rows {
    const uint32_t *entry;  /* (n_intervals + 1) rows of 2^log2_columns */
    uint32_t n_intervals;
    uint32_t log2_columns;  /* 1 to 16 */
    double lower;
    double per_unit;        /* n_intervals / (upper - lower) */
} dpc_rows_t;

typedef struct dpc_kernels {
    const char *name;
    dpc_keystream_fn keystream;
    dpc_keystream_at_fn keystream_at;

    /* out[i] = guide[words[i]]; open[] receives the i whose entry is DPC_OPEN; returns how many.
     * n <= 65536. */
    size_t (*lookup)(const int16_t *guide, const uint16_t *words, size_t n, int16_t *out,
                     uint16_t *open);

    /* y[i] = x[i] + noise[i], or noise[i] alone where x is NULL. y may be x. */
    void (*add_i16)(const int64_t *x, const int16_t *noise, int64_t *y, size_t n);

    /* First try at n Gaussian samples, one 64-bit word each; those not settled go to open[].
     * n <= 65536. */
    size_t (*gauss)(const dpc_gauss_bulk_t *law, const uint64_t *words, size_t n, int64_t *out,
                    uint16_t *open);

    /* First try at the codes of n values, one 32-bit word each; those not settled go to open[].
     * codes are uint8 up to 2^8 columns and uint16 above. n <= 65536. Clears *finite if a value is
     * NaN or infinite. */
    size_t (*encode)(const dpc_rows_t *rows, const double *x, const uint32_t *words, size_t n,
                     void *codes, uint16_t *open, int *finite);

    /* For n points whose feature j is x[j * stride + i]: the c, lowest among equals, that makes
     * bias[c] - sum over j of centers[c * d + j] * x_j least. With bias = |center|^2 / 2 that is the
     * nearest center. */
    void (*nearest_f64)(const double *x, size_t stride, size_t n, size_t d, const double *centers,
                        const double *bias, size_t k, int32_t *labels);
    void (*nearest_f32)(const float *x, size_t stride, size_t n, size_t d, const float *centers,
                        const float *bias, size_t k, int32_t *labels);

    /* distances[i] = min(distances[i], squared distance of point i to one center). */
    void (*closer_f64)(const double *x, size_t stride, size_t n, size_t d, const double *center,
                       double *distances);
    void (*closer_f32)(const float *x, size_t stride, size_t n, size_t d, const float *center,
                       float *distances);

    /* out += a^T b for a (n_rows * n_a) and b (n_rows * n_b), summed in the order of rows. */
    void (*cross)(const double *a, const double *b, size_t n_rows, size_t n_a, size_t n_b,
                  double *out);

    /* acc[i] plus or minus word i of the keystream of (key, nonce 0) from block `counter` on,
     * modulo the word size; words are little-endian. Does not depend on the words in time. */
    void (*mask_u32)(const dpc_key_t *key, uint64_t counter, int negative, uint32_t *acc, size_t n);
    void (*mask_u64)(const dpc_key_t *key, uint64_t counter, int negative, uint64_t *acc, size_t n);

    /* All steps of one group of LSTM cells, and the gradients of its weights; see recurrent.h. */
    void (*lstm_forward)(const dpc_lstm_t *group);
    void (*lstm_backward)(const dpc_lstm_t *group);
} dpc_kernels_t;

/* The table in use. */
const dpc_kernels_t *dpc_kernels(void);

/* The table of one level, or NULL where this build or this CPU lacks it. */
const dpc_kernels_t *dpc_kernels_at(enum dpc_level level);

/* Switches to a level for the whole process: for tests and benchmarks. */
enum dpc_status dpc_select(enum dpc_level level) DPC_MUST_CHECK;

#endif
