/* Masks of many peers, added to one vector in the ring of 32-bit or 64-bit words.
 *
 * Mask p is the ChaCha20 keystream of key p, nonce 0, read as little-endian words from block 0 on;
 * it is added, or subtracted where negative[p] is not 0, modulo 2^32 or 2^64. No mask is ever
 * stored as a whole. The functions work on a piece of the vector that starts at a multiple of 64
 * bytes, at block `counter`: pieces may be done by several threads.
 */
#ifndef DPCORE_MASK_H
#define DPCORE_MASK_H

#include "dpcore/simd.h"

/* keys: n_keys times 32 bytes; negative: n_keys flags; acc: n words, changed in place. */
void dpc_mask_add_u32(const dpc_kernels_t *kernels, const uint8_t *keys, const uint8_t *negative,
                      size_t n_keys, uint64_t counter, uint32_t *acc, size_t n);
void dpc_mask_add_u64(const dpc_kernels_t *kernels, const uint8_t *keys, const uint8_t *negative,
                      size_t n_keys, uint64_t counter, uint64_t *acc, size_t n);

#endif
