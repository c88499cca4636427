#include "private/levels.h"

#ifdef DPC_GNU_VECTORS
#define LANES 4
#else
#define LANES 1
#endif
#define LEVEL(name) name##_baseline
#define LEVEL_NAME "baseline"
#include "kernels/level.inc"
