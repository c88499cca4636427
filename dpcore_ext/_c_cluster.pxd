from libc.stdint cimport int32_t

from dpcore_ext._c_simd cimport dpc_kernels_t


cdef extern from "dpcore/cluster.h" nogil:
    ctypedef struct dpc_kmeans_f64_t:
        const double *x
        size_t n, d, k, chunk
        double *centers
        double *bias
        int32_t *labels
        double *distances
        double *partial
        double *total
        double shift, inertia
        size_t changed
    ctypedef struct dpc_kmeans_f32_t:
        const float *x
        size_t n, d, k, chunk
        float *centers
        float *bias
        int32_t *labels
        float *distances
        double *partial
        double *total
        double shift, inertia
        size_t changed
    size_t dpc_kmeans_chunk(size_t n)
    size_t dpc_kmeans_partial(size_t k, size_t d)
    void dpc_kmeans_seed_f64(dpc_kmeans_f64_t *run, size_t c, size_t index)
    void dpc_kmeans_seed_f32(dpc_kmeans_f32_t *run, size_t c, size_t index)
    void dpc_kmeans_spread_f64(const dpc_kernels_t *kernels, const dpc_kmeans_f64_t *run, size_t c,
                               size_t first, size_t last)
    void dpc_kmeans_spread_f32(const dpc_kernels_t *kernels, const dpc_kmeans_f32_t *run, size_t c,
                               size_t first, size_t last)
    size_t dpc_kmeans_pick_f64(const dpc_kmeans_f64_t *run, double uniform)
    size_t dpc_kmeans_pick_f32(const dpc_kmeans_f32_t *run, double uniform)
    void dpc_kmeans_prepare_f64(dpc_kmeans_f64_t *run)
    void dpc_kmeans_prepare_f32(dpc_kmeans_f32_t *run)
    void dpc_kmeans_label_f64(const dpc_kernels_t *kernels, const dpc_kmeans_f64_t *run,
                              size_t begin, size_t end)
    void dpc_kmeans_label_f32(const dpc_kernels_t *kernels, const dpc_kmeans_f32_t *run,
                              size_t begin, size_t end)
    void dpc_kmeans_assign_f64(const dpc_kernels_t *kernels, const dpc_kmeans_f64_t *run,
                               size_t first, size_t last)
    void dpc_kmeans_assign_f32(const dpc_kernels_t *kernels, const dpc_kmeans_f32_t *run,
                               size_t first, size_t last)
    void dpc_kmeans_reduce_f64(dpc_kmeans_f64_t *run)
    void dpc_kmeans_reduce_f32(dpc_kmeans_f32_t *run)
    void dpc_kmeans_update_f64(dpc_kmeans_f64_t *run)
    void dpc_kmeans_update_f32(dpc_kmeans_f32_t *run)
    void dpc_kmeans_plusplus_f64(const dpc_kernels_t *kernels, dpc_kmeans_f64_t *run,
                                 const double *uniform)
    void dpc_kmeans_plusplus_f32(const dpc_kernels_t *kernels, dpc_kmeans_f32_t *run,
                                 const double *uniform)
    size_t dpc_kmeans_lloyd_f64(const dpc_kernels_t *kernels, dpc_kmeans_f64_t *run,
                                size_t max_iter, double tol)
    size_t dpc_kmeans_lloyd_f32(const dpc_kernels_t *kernels, dpc_kmeans_f32_t *run,
                                size_t max_iter, double tol)
