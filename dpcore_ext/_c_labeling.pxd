from libc.stdint cimport int32_t, uint64_t


cdef extern from "dpcore/labeling.h" nogil:
    ctypedef struct dpc_labeling_t:
        size_t k, n_labels
        const double *gram
        const double *mean
        double scale, eta
    ctypedef struct dpc_target_t:
        const double *cross
        double square
        const double *target_mean
    size_t dpc_label_scratch(size_t k, size_t n_labels)
    double dpc_label_error(const dpc_labeling_t *problem, const dpc_target_t *target,
                           const int32_t *labels, double *scratch)
    void dpc_label_deltas(const dpc_labeling_t *problem, const dpc_target_t *target,
                          const int32_t *labels, double *scratch, double *delta, double *swap)
    uint64_t dpc_label_search(const dpc_labeling_t *problem, const dpc_target_t *target,
                              int32_t *starts, size_t n_starts, double *objectives,
                              double *scratch)
    double dpc_label_enumerate(const dpc_labeling_t *problem, const dpc_target_t *target,
                               int32_t *labels, double *scratch)
    double dpc_label_monotone(const dpc_labeling_t *problem, const dpc_target_t *target,
                              const int32_t *order, int32_t *labels, double *scratch)
