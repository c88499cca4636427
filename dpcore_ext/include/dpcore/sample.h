/* Exact integer samplers, addressed: element i of a stream depends on (key, i) alone.
 *
 * A law is a table of cumulative probabilities in units of 2^-256, so what is sampled is a law of
 * integers that can be written down and checked; no float takes part. 256 bits are as many as the
 * key has: a function of the key cannot have finer probabilities.
 *
 * Element i first reads 16 bits of the lane's keystream at word i. A guide of 2^16 entries gives
 * the outcome unless a threshold falls into that cell; only then the element is `open`, and block i
 * of the refine lane supplies 240 further bits, compared with the whole thresholds. Calls of at
 * most DPC_SMALL elements refine every element, so the time of a single release does not tell
 * whether its cell was open.
 *
 * Lanes (high half of the nonce): 0 to 15 are the digits of a law, 16 to 31 their refinements,
 * whose low half counts further blocks of the same element.
 */
#ifndef DPCORE_SAMPLE_H
#define DPCORE_SAMPLE_H

#include "dpcore/simd.h"

#define DPC_GUIDE_SIZE 65536
#define DPC_MAX_DIGITS 6
#define DPC_SMALL 32

typedef struct dpc_u256 {
    uint64_t limb[4]; /* most significant first */
} dpc_u256_t;

/* Ends of a table that stand for more than one value: a tail continues them. */
enum dpc_ends { DPC_NO_END = 0, DPC_LAST_END = 1, DPC_BOTH_ENDS = 3 };

/* Outcome number k, 0 <= k <= n_thresholds, has probability (cdf[k] - cdf[k-1]) / 2^256, with
 * cdf[-1] = 0 and cdf[n_thresholds] = 2^256; it stands for the value first + k. */
typedef struct dpc_table {
    const int16_t *guide;
    const dpc_u256_t *cdf; /* non-decreasing */
    size_t n_thresholds;
    int64_t first;
    int open_ends; /* enum dpc_ends: outcomes that the guide must leave open */
} dpc_table_t;

/* Fills guide[DPC_GUIDE_SIZE] from the other fields. Values that a guide entry can name must fit
 * 16 bits: returns DPC_ERR_RANGE if one does not. */
enum dpc_status dpc_guide_fill(const dpc_table_t *table, int16_t *guide) DPC_MUST_CHECK;

/* top draws T, digit d draws L_d. With shift s[d] of digit d and s the total number of digit bits:
 *   one-sided:  X = T * 2^s + sum L_d * 2^s[d]
 *   symmetric:  X = sign(T) * (1 + (|T| - 1) * 2^s + sum L_d * 2^s[d]), and 0 where T = 0.
 * tail, if any, continues the open ends of top by a further independent draw, whose own last outcome
 * continues again: the support is unbounded. */
typedef struct dpc_digits {
    const dpc_table_t *top;
    const dpc_table_t *tail;
    const dpc_table_t *digit[DPC_MAX_DIGITS];
    uint32_t shift[DPC_MAX_DIGITS];
    uint32_t n_digits;
    uint32_t top_shift;
    int symmetric;
} dpc_digits_t;

/* Gaussian with many units per standard deviation, by rejection from cells 2^shift wide.
 * Cell c >= 0 of either sign is drawn from `cells` (value c, or -1 - c if negative) with weight
 * exp(-c^2 / (2 s^2)); a uniform offset f in [0, 1) makes the candidate (c + f), accepted with
 * probability exp(-f (2c + f) / (2 s^2)), evaluated in 128-bit fixed point.
 * lattice = 0: the accepted real number is rounded to the nearest integer (rounded Gaussian);
 * lattice = 1: f is a multiple of 2^-shift (discrete Gaussian).
 * guard is the half-width, in units of 2^-64, of the band in which the 64-bit evaluation leaves the
 * decision to the 128-bit one: DPC_GAUSS_GUARD, or UINT64_MAX to test the latter alone. */
#define DPC_GAUSS_GUARD 1024
typedef struct dpc_gauss {
    dpc_table_t cells;
    dpc_gauss_bulk_t bulk;
    uint64_t kappa_high, kappa_low; /* floor(2^137 / (2 s^2)) */
    uint64_t guard;
    int lattice;
} dpc_gauss_t;

/* y[i] = x[i] + noise of element start + i, i < n; x NULL stands for zeros, y may be x. |x| <= 2^62
 * and start + n <= 2^62; noise that would leave int64 saturates. */
void dpc_sample_digits(const dpc_kernels_t *kernels, const dpc_key_t *key,
                       const dpc_digits_t *law, uint64_t start, const int64_t *x, int64_t *y,
                       size_t n);
void dpc_sample_gauss(const dpc_kernels_t *kernels, const dpc_key_t *key, const dpc_gauss_t *law,
                      uint64_t start, const int64_t *x, int64_t *y, size_t n);

/* y[i] uniform on low, ..., low + bound - 1 (bound >= 1; 0 stands for 2^64). */
void dpc_sample_integers(const dpc_kernels_t *kernels, const dpc_key_t *key, int64_t low,
                         uint64_t bound, uint64_t start, int64_t *y, size_t n);

/* e^-x in units of 2^-64 for x = exponent / 2^62 < 4: within DPC_GAUSS_GUARD / 4 units. */
uint64_t dpc_exp_neg(uint64_t exponent);

/* Whether |x[i]| <= 2^62 for all i. */
int dpc_all_small(const int64_t *x, size_t n);

/* Fixed point. q[i] = clamp(x[i], lower, upper) / 2^exponent, rounded to the nearest integer, ties
 * to even; DPC_ERR_NOT_FINITE if an x is NaN or infinite, DPC_ERR_RANGE if |q| would reach 2^62.
 * On an error q holds nothing of use. */
enum dpc_status dpc_quantize(const double *x, double lower, double upper, int exponent, int64_t *q,
                             size_t n) DPC_MUST_CHECK;
/* y[i] = q[i] * 2^exponent, rounded once; y may share the memory of q. */
void dpc_dequantize(const int64_t *q, int exponent, double *y, size_t n);

#endif
