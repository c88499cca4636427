/* Doubles as the kernels and their proofs assume them: 53 bits, rounded at every step, with infinities
 * and NaNs that comparisons see. A compiler that takes liberties would change codes, or accept readings
 * that are not finite. */
#ifndef DPC_PRIVATE_FLOATS_H
#define DPC_PRIVATE_FLOATS_H

#include <float.h>

#if !defined(FLT_EVAL_METHOD) || FLT_EVAL_METHOD != 0
#error "dpcore needs doubles that are rounded at every step: on x86 no x87, that is -msse2 -mfpmath=sse"
#endif
#if defined(__FAST_MATH__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__)
#error "dpcore needs IEEE arithmetic: no -ffast-math, no -ffinite-math-only"
#endif
#if DBL_MANT_DIG != 53
#error "dpcore needs doubles of 53 bits"
#endif

/* An int of 16 bits would cut products of 16-bit words; <limits.h> may be missing on a bare machine. */
typedef char dpc_int_has_32_bits[sizeof(int) >= 4 ? 1 : -1];

#endif
