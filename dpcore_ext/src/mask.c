#include "dpcore/mask.h"

#include <string.h>

#include "private/stack.h"

/* The vector stays in the first-level cache while the masks of all peers pass over it. */
enum { PIECE_BYTES = 16384 };

#define MASK_ADD(name, kernel, word_t)                                                            \
    static OUT_OF_LINE void kernel##_add(const dpc_kernels_t *kernels, const uint8_t *keys,       \
                                         const uint8_t *negative, size_t n_keys,                  \
                                         uint64_t counter, word_t *acc, size_t n)                 \
    {                                                                                             \
        const size_t piece = PIECE_BYTES / sizeof(word_t);                                        \
        dpc_key_t key;                                                                            \
        while (n > 0) {                                                                           \
            size_t now = n < piece ? n : piece;                                                   \
            for (size_t p = 0; p < n_keys; p++) {                                                 \
                memcpy(key.word, keys + 32 * p, sizeof key.word); /* little-endian, as we are */  \
                kernels->kernel(&key, counter, negative[p] != 0, acc, now);                       \
            }                                                                                     \
            acc += now;                                                                           \
            n -= now;                                                                             \
            counter += PIECE_BYTES / DPC_BLOCK_BYTES;                                             \
        }                                                                                         \
    }                                                                                             \
                                                                                                  \
    void name(const dpc_kernels_t *kernels, const uint8_t *keys, const uint8_t *negative,         \
              size_t n_keys, uint64_t counter, word_t *acc, size_t n)                             \
    {                                                                                             \
        kernel##_add(kernels, keys, negative, n_keys, counter, acc, n);                           \
        wipe_stack();                                                                             \
    }

MASK_ADD(dpc_mask_add_u32, mask_u32, uint32_t)
MASK_ADD(dpc_mask_add_u64, mask_u64, uint64_t)
