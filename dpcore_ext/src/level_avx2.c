#include "private/levels.h"

#ifdef DPC_X86_LEVELS
#include <immintrin.h>
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function)
#else
#pragma GCC target("avx2")
#endif

#define LANES 8
#define LEVEL(name) name##_avx2
#define LEVEL_NAME "avx2"
#include "kernels/level.inc"

#ifdef __clang__
#pragma clang attribute pop
#endif
#else
typedef int dpc_level_not_built;
#endif
