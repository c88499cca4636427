/* Labels for clusters, so that the label proportions they imply match given ones.
 *
 * Batch i has a share m[i][c] of cluster c and a target q[i][y] for label y. A labeling l gives every
 * cluster a label; it implies the proportions g[i][y] = sum of m[i][c] over the clusters c with
 * l[c] = y, and its error is the sum of (g - q)^2 over all i and y. With
 *   gram = m^T m (k * k, symmetric)   and   cross[y] = q^T m (n_labels * k)
 * the error of a labeling, and its change by a move, no longer depend on the number of batches:
 *   slope[y][c] = (sum of gram[c][c'] over c' with label y) - cross[y][c]
 *   reassign c from p to q:   2 (gram[c][c] + slope[q][c] - slope[p][c])
 *   swap c (p) and e (q):     2 (gram[c][c] + gram[e][e] - 2 gram[c][e])
 *                             + 2 (slope[q][c] - slope[q][e] - slope[p][c] + slope[p][e])
 * The error itself has the constant square = sum of q^2 added. Nothing here is random.
 */
#ifndef DPCORE_LABELING_H
#define DPCORE_LABELING_H

#include <stddef.h>
#include <stdint.h>

/* A move must lower the objective by more than this, in units of the error, and by more than what
 * rounding may add up to in a problem of the size. */
#define DPC_LABEL_GAIN 1e-12

/* Moves after which slopes and errors are computed afresh; a search that has not lowered the
 * objective between two such times ends. */
#define DPC_LABEL_REFRESH 1000

/* The objective is the error, or with mean != NULL the product
 *   error * scale * (eta + sum over y of (sum of mean[c] over label y - target_mean[y])^2). */
typedef struct dpc_labeling {
    size_t k, n_labels; /* 1 to 2^15 each */
    const double *gram;
    const double *mean; /* k, or NULL */
    double scale, eta;  /* used with mean only */
} dpc_labeling_t;

typedef struct dpc_target {
    const double *cross;       /* n_labels * k */
    double square;
    const double *target_mean; /* n_labels; used with mean only */
} dpc_target_t;

/* Doubles of scratch memory that each of the functions below needs at most. */
size_t dpc_label_scratch(size_t k, size_t n_labels);

/* The error of a labeling, from scratch. */
double dpc_label_error(const dpc_labeling_t *problem, const dpc_target_t *target,
                       const int32_t *labels, double *scratch);

/* Error changes of all reassignments into delta[k * n_labels]; the entry of the present label is 0.
 * With changes of swaps into swap[k * k], 0 where the labels are equal. Either may be NULL. */
void dpc_label_deltas(const dpc_labeling_t *problem, const dpc_target_t *target,
                      const int32_t *labels, double *scratch, double *delta, double *swap);

/* Local search from each of n_starts labelings starts[n_starts * k], which become the local optima
 * they lead to: the best reassignment, or the best swap where none improves, until neither does;
 * among equals the lowest (c, q). objectives[n_starts] receives their objectives; returns the number
 * of moves made in all. */
uint64_t dpc_label_search(const dpc_labeling_t *problem, const dpc_target_t *target,
                          int32_t *starts, size_t n_starts, double *objectives, double *scratch);

/* The best of all n_labels^k labelings; returns its objective. */
double dpc_label_enumerate(const dpc_labeling_t *problem, const dpc_target_t *target,
                           int32_t *labels, double *scratch);

/* The labeling of least error among those with labels[order[0]] <= labels[order[1]] <= ..., by
 * dynamic programming in O(k^2 n_labels); mean is not used. Returns the error. */
double dpc_label_monotone(const dpc_labeling_t *problem, const dpc_target_t *target,
                          const int32_t *order, int32_t *labels, double *scratch);

#endif
