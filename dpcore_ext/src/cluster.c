#include "dpcore/cluster.h"

#include <math.h>
#include <string.h>

#ifdef __clang__
#pragma STDC FP_CONTRACT OFF /* gcc does not contract in ISO mode: all compilers round alike */
#endif

#define REAL double
#define OF(name) name##_f64
#define RUN dpc_kmeans_f64_t
#include "kernels/lloyd.inc"
#undef REAL
#undef OF
#undef RUN

#define REAL float
#define OF(name) name##_f32
#define RUN dpc_kmeans_f32_t
#include "kernels/lloyd.inc"
