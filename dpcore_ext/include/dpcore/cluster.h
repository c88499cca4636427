/* k-means: k-means++ seeding and Lloyd iterations, cut into chunks.
 *
 * Points are stored feature by feature: feature j of point i is x[j * n + i]. They are cut into
 * chunks of `chunk` points, a number that must depend on n alone (dpc_kmeans_chunk); sums are taken
 * inside a chunk in the order of points and over the chunks in their order, in double precision. So
 * the result is the same, bit for bit, whichever threads work on which chunks, and at every SIMD
 * level.
 *
 * Distances are squared Euclidean, summed over the features in order in the type of the points. The
 * nearest center is found by |c|^2 / 2 - c x, whose rounding errors are of the size of |c| |x|: move
 * the origin into the data. A point at equal scores belongs to the lowest cluster. Points must be
 * finite.
 */
#ifndef DPCORE_CLUSTER_H
#define DPCORE_CLUSTER_H

#include "dpcore/simd.h"

/* Memory of one run; all of it belongs to the caller. */
#define DPC_KMEANS(name, real)                                                                     \
    typedef struct name {                                                                          \
        const real *x;     /* d * n */                                                             \
        size_t n, d, k;    /* at least 1 each, k < 2^31 */                                         \
        size_t chunk;      /* dpc_kmeans_chunk(n) */                                               \
        real *centers;     /* k * d */                                                             \
        real *bias;        /* k: what dpc_kmeans_prepare makes of the centers */                   \
        int32_t *labels;   /* n, all -1 before the first iteration */                              \
        real *distances;   /* n: to the own center */                                              \
        double *partial;   /* n_chunks * dpc_kmeans_partial(k, d) */                               \
        double *total;     /* dpc_kmeans_partial(k, d) */                                          \
        double shift;      /* OUT: sum of the squared moves of the centers in the last update */   \
        double inertia;    /* OUT: sum of the distances */                                         \
        size_t changed;    /* OUT: points whose label changed in the last assignment */            \
    } name##_t
DPC_KMEANS(dpc_kmeans_f64, double);
DPC_KMEANS(dpc_kmeans_f32, float);

/* Points per chunk: at least 4096, and at most 256 chunks. */
static inline size_t dpc_kmeans_chunk(size_t n)
{
    size_t chunk = (n + 255) / 256;
    return chunk < 4096 ? 4096 : chunk;
}

/* Doubles that one chunk reports: sums, counts, inertia, changed labels. */
static inline size_t dpc_kmeans_partial(size_t k, size_t d) { return k * d + k + 2; }

/* k-means++. dpc_kmeans_seed_f* makes point `index` center number c; dpc_kmeans_spread_f* then
 * brings the distances of the chunks first to last - 1 to the nearest center up to date; and
 * dpc_kmeans_pick_f* names the next point: the one in which `uniform` (in [0, 1)) falls when points
 * are laid out by distance, or by number where all distances are 0. */
void dpc_kmeans_seed_f64(dpc_kmeans_f64_t *run, size_t c, size_t index);
void dpc_kmeans_seed_f32(dpc_kmeans_f32_t *run, size_t c, size_t index);
void dpc_kmeans_spread_f64(const dpc_kernels_t *kernels, const dpc_kmeans_f64_t *run, size_t c,
                           size_t first, size_t last);
void dpc_kmeans_spread_f32(const dpc_kernels_t *kernels, const dpc_kmeans_f32_t *run, size_t c,
                           size_t first, size_t last);
size_t dpc_kmeans_pick_f64(const dpc_kmeans_f64_t *run, double uniform);
size_t dpc_kmeans_pick_f32(const dpc_kmeans_f32_t *run, double uniform);

/* To be called when the centers were changed from outside, before the next assignment. */
void dpc_kmeans_prepare_f64(dpc_kmeans_f64_t *run);
void dpc_kmeans_prepare_f32(dpc_kmeans_f32_t *run);

/* Labels and distances alone of the points begin to end - 1. */
void dpc_kmeans_label_f64(const dpc_kernels_t *kernels, const dpc_kmeans_f64_t *run, size_t begin,
                          size_t end);
void dpc_kmeans_label_f32(const dpc_kernels_t *kernels, const dpc_kmeans_f32_t *run, size_t begin,
                          size_t end);

/* Labels, distances and partial sums of the chunks first to last - 1. */
void dpc_kmeans_assign_f64(const dpc_kernels_t *kernels, const dpc_kmeans_f64_t *run, size_t first,
                           size_t last);
void dpc_kmeans_assign_f32(const dpc_kernels_t *kernels, const dpc_kmeans_f32_t *run, size_t first,
                           size_t last);

/* Adds up what the chunks reported: inertia and changed. */
void dpc_kmeans_reduce_f64(dpc_kmeans_f64_t *run);
void dpc_kmeans_reduce_f32(dpc_kmeans_f32_t *run);

/* Moves the centers to the means of their points, after reduce. A cluster without points takes the
 * farthest point of a cluster that has another; where there is none at a positive distance, the
 * center stays. The distances of points that moved are 0 afterwards. */
void dpc_kmeans_update_f64(dpc_kmeans_f64_t *run);
void dpc_kmeans_update_f32(dpc_kmeans_f32_t *run);

/* Seeding by the k numbers uniform[] in [0, 1), on one thread. */
void dpc_kmeans_plusplus_f64(const dpc_kernels_t *kernels, dpc_kmeans_f64_t *run,
                             const double *uniform);
void dpc_kmeans_plusplus_f32(const dpc_kernels_t *kernels, dpc_kmeans_f32_t *run,
                             const double *uniform);

/* At most max_iter iterations on one thread: until no label changes, or the centers move by at most
 * tol. Labels, distances and inertia are those of the final centers. Returns the iterations done. */
size_t dpc_kmeans_lloyd_f64(const dpc_kernels_t *kernels, dpc_kmeans_f64_t *run, size_t max_iter,
                            double tol);
size_t dpc_kmeans_lloyd_f32(const dpc_kernels_t *kernels, dpc_kmeans_f32_t *run, size_t max_iter,
                            double tol);

#endif
