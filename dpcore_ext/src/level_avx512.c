#include "private/levels.h"

#ifdef DPC_X86_LEVELS
#include <immintrin.h>
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl")
#endif

#define LANES 16
#define LEVEL(name) name##_avx512
#define LEVEL_NAME "avx512"
#include "kernels/level.inc"

#ifdef __clang__
#pragma clang attribute pop
#endif
#else
typedef int dpc_level_not_built;
#endif
