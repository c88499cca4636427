/* Local randomisers with finitely many outputs: one table-driven kernel for all of them.
 *
 * A mechanism is a grid of n_intervals + 1 equally spaced inputs from lower to upper, and for every
 * grid point a row of output probabilities. A value between two grid points is moved to one of them
 * at random so that its mean is kept; the row then gives the output code.
 *
 * A row is an alias table of 2^log2_columns columns: column j yields code j if the remaining random
 * bits, read as a fraction, lie below cut[j], and alias[j] otherwise. Fractions have 128 bits.
 *
 * Element i uses the 32-bit word i of lane 0: its high half begins the column and the fraction, its
 * low half begins the comparison that moves the value. If one of them is undecided, block i of the
 * refine lane continues both (see sample.h for lanes). Calls of at most DPC_SMALL elements read that
 * block for all of them, and take no branch that depends on a value or on its code.
 */
#ifndef DPCORE_ENCODE_H
#define DPCORE_ENCODE_H

#include "dpcore/simd.h"

#define DPC_MAX_LOG2_COLUMNS 16

typedef struct dpc_cut {
    uint64_t high, low;
} dpc_cut_t;

/* Fills entry[n], all of rows of 2^log2_columns columns: in the high half as many bits of the cut as
 * a word gives to the fraction, from the top, in the low half the alias. */
void dpc_rows_entries(const dpc_cut_t *cut, const uint16_t *alias, size_t n, uint32_t log2_columns,
                      uint32_t *entry);

/* codes[i] = output code of x[i]; values outside the range count as its nearer end. The result type
 * follows the number of columns: uint8 up to 2^8, uint16 above. Returns DPC_ERR_NOT_FINITE if an x
 * is NaN or infinite; codes then holds nothing of use. start + n <= 2^62. */
enum dpc_status dpc_encode_f64(const dpc_kernels_t *kernels, const dpc_key_t *key,
                               const dpc_rows_t *rows, const dpc_cut_t *cut, uint64_t start,
                               const double *x, void *codes, size_t n) DPC_MUST_CHECK;
enum dpc_status dpc_encode_f32(const dpc_kernels_t *kernels, const dpc_key_t *key,
                               const dpc_rows_t *rows, const dpc_cut_t *cut, uint64_t start,
                               const float *x, void *codes, size_t n) DPC_MUST_CHECK;

#endif
