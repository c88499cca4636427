/* ChaCha20 keystream, addressed.
 *
 * The block function is that of RFC 8439 with the original split of the last four state words: a
 * 64-bit block counter (words 12 and 13) and a 64-bit nonce (words 14 and 15). Bytes come in the
 * RFC's order at every SIMD level, so byte b of block c under (key, nonce) is one fixed value.
 *
 * dpcore uses a fresh key for every stream, and the nonce to keep the lanes of one stream apart:
 * its high half is a lane, its low half a sub-block number (see sample.h).
 */
#ifndef DPCORE_CHACHA_H
#define DPCORE_CHACHA_H

#include <stddef.h>
#include <stdint.h>
#ifndef DPC_DEVICE
#include <string.h>
#endif

#include "dpcore/status.h"

#define DPC_BLOCK_BYTES 64

typedef struct dpc_key {
    uint32_t word[8];
} dpc_key_t;

/* n_blocks blocks from block number `counter` (mod 2^64) into out[n_blocks * 64]. */
typedef void (*dpc_keystream_fn)(const dpc_key_t *key, uint64_t nonce, uint64_t counter,
                                 size_t n_blocks, uint8_t *out);

/* The n blocks whose numbers stand in counters[n], one after the other, into out[n * 64]. */
typedef void (*dpc_keystream_at_fn)(const dpc_key_t *key, uint64_t nonce, const uint64_t *counters,
                                    size_t n, uint8_t *out);

/* Key of 32 little-endian bytes. */
void dpc_key_load(dpc_key_t *key, const uint8_t bytes[32]);
void dpc_key_store(const dpc_key_t *key, uint8_t bytes[32]);

/* child = PRF(parent, digest): HChaCha20 applied to each half of a 32-byte digest in turn. The
 * digest need not be secret; different digests give independent keys. child may be parent. */
void dpc_key_derive(dpc_key_t *child, const dpc_key_t *parent, const uint8_t digest[32]);

/* Fills out[n] from the operating system's generator, or returns DPC_ERR_ENTROPY. */
enum dpc_status dpc_entropy(uint8_t *out, size_t n) DPC_MUST_CHECK;

/* Overwrites p[n]; never optimised away. Scratch space of a call is tens of kilobytes, which byte by
 * byte take longer to wipe than a short call takes to fill: an empty assembly that may read all memory
 * keeps the stores of memset. */
static inline void dpc_wipe(void *p, size_t n)
{
#if defined(__GNUC__) && !defined(DPC_PORTABLE) && !defined(DPC_DEVICE)
    memset(p, 0, n);
    __asm__ __volatile__("" : : "r"(p) : "memory");
#else
    volatile uint8_t *byte = (volatile uint8_t *)p;
    while (n--) {
        *byte++ = 0;
    }
#endif
}

/* Overwrites what a kernel has left on the stack: keys and keystream, most of it where the compiler kept
 * registers. For callers of dpc_keystream_fn and dpc_keystream_at_fn, once they are done; the functions
 * of the other headers do so themselves. */
void dpc_wipe_stack(void);

/* To be called before the first dpc_fork_generation: 0 if forks would not be seen, so that the noise of a
 * process could come again in its child. */
int dpc_watch_forks(void) DPC_MUST_CHECK;

/* Grows by one in every forked child, so that state made before a fork is recognised after it. */
uint64_t dpc_fork_generation(void);

#endif
