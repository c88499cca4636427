/* What functions leave on the stack below their caller: keys and keystream in frames of kernels, most of
 * it where the compiler kept registers, which no name reaches. One call at the end overwrites all. */
#ifndef DPC_PRIVATE_STACK_H
#define DPC_PRIVATE_STACK_H

#include "dpcore/chacha.h"

#if defined(__GNUC__)
#define OUT_OF_LINE __attribute__((noinline))
#elif defined(_MSC_VER)
#define OUT_OF_LINE __declspec(noinline)
#else
#define OUT_OF_LINE
#endif

/* More than a kernel and its caller take together: 4 KB at most, on devices 600 bytes. */
#ifdef DPC_DEVICE
enum { STACK_WORDS = 88 };
#else
enum { STACK_WORDS = 640 };
#endif

/* To be called by the caller of the OUT_OF_LINE function that used the secrets. If that has large
 * arrays itself, not as the last thing it does: a call in place of the return would begin above them. */
static OUT_OF_LINE void wipe_stack(void)
{
    uint64_t below[STACK_WORDS];
#if defined(__GNUC__) && !defined(DPC_PORTABLE)
    dpc_wipe(below, sizeof below);
#else
    volatile uint64_t *word = below;
    for (int i = 0; i < STACK_WORDS; i++) {
        word[i] = 0;
    }
#endif
}

#endif
