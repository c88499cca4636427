#include "private/levels.h"

/* One thread may read it while another selects a level. */
#if defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L && !defined(__STDC_NO_ATOMICS__)
static const dpc_kernels_t *_Atomic chosen = &dpc_kernels_baseline;
#else
static const dpc_kernels_t *volatile chosen = &dpc_kernels_baseline;
#endif

const dpc_kernels_t *dpc_kernels(void) { return chosen; }

const dpc_kernels_t *dpc_kernels_at(enum dpc_level level)
{
    switch (level) {
    case DPC_BASELINE:
        return &dpc_kernels_baseline;
#ifdef DPC_X86_LEVELS
    case DPC_AVX2:
        return __builtin_cpu_supports("avx2") ? &dpc_kernels_avx2 : NULL;
    case DPC_AVX512:
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                       __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")
                   ? &dpc_kernels_avx512
                   : NULL;
#endif
    default:
        return NULL;
    }
}

enum dpc_status dpc_select(enum dpc_level level)
{
    const dpc_kernels_t *kernels = dpc_kernels_at(level);
    if (kernels == NULL) {
        return DPC_ERR_LEVEL;
    }
    chosen = kernels;
    return DPC_OK;
}
