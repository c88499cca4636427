#ifndef DPC_PRIVATE_LEVELS_H
#define DPC_PRIVATE_LEVELS_H

#include "dpcore/simd.h"

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "dpcore needs a little-endian machine"
#endif

/* x86 levels above the baseline need GNU vectors and per-function targets. DPC_PORTABLE leaves
 * them out, to build what a plain C11 compiler would see. */
#if !defined(DPC_PORTABLE) && defined(__GNUC__)
#define DPC_GNU_VECTORS 1
#if defined(__x86_64__)
#define DPC_X86_LEVELS 1
#endif
#endif

extern const dpc_kernels_t dpc_kernels_baseline;
#ifdef DPC_X86_LEVELS
extern const dpc_kernels_t dpc_kernels_avx2;
extern const dpc_kernels_t dpc_kernels_avx512;
#endif

#endif
