#include "dpcore/cluster.h"

#include <math.h>
#include <string.h>

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
