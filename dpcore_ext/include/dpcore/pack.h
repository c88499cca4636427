/* Codes of n_bits bits each, packed without gaps, and their counts.
 *
 * The packed bytes, read as one little-endian integer, hold code i in bits i * n_bits to
 * (i + 1) * n_bits - 1; the padding bits above the last code are 0. Eight codes fill n_bits bytes,
 * so a stream may be packed, unpacked and counted in pieces that start at multiples of 8 codes, by
 * several threads if need be: no call touches a byte outside its own piece.
 *
 * n_bits is 1 to 8 for the functions on u8, 1 to 16 for the others, and is not checked here.
 * Input and output must not overlap; alignment does not matter, except for arrays of uint16_t and
 * uint64_t. n may be 0, and the pointers are not followed then. The time does not depend on the
 * codes when packing and unpacking; when counting it does, through the caches.
 */
#ifndef DPCORE_PACK_H
#define DPCORE_PACK_H

#include <stddef.h>
#include <stdint.h>

#include "dpcore/status.h"

#define DPC_MAX_BITS 16

/* Bytes that n codes fill: ceil(n * n_bits / 8), for n < 2^60. */
static inline size_t dpc_packed_size(size_t n, uint32_t n_bits)
{
    return n / 8 * n_bits + (n % 8 * n_bits + 7) / 8;
}

/* codes[n] into out[dpc_packed_size(n, n_bits)]. Returns DPC_ERR_CODE if a code is 2^n_bits or
 * more; out then holds nothing of use. */
enum dpc_status dpc_pack_u8(const uint8_t *codes, size_t n, uint32_t n_bits,
                            uint8_t *out) DPC_MUST_CHECK;
enum dpc_status dpc_pack_u16(const uint16_t *codes, size_t n, uint32_t n_bits,
                             uint8_t *out) DPC_MUST_CHECK;

/* packed[dpc_packed_size(n, n_bits)] into codes[n]; padding bits are ignored. */
void dpc_unpack_u8(const uint8_t *packed, uint32_t n_bits, uint8_t *codes, size_t n);
void dpc_unpack_u16(const uint8_t *packed, uint32_t n_bits, uint16_t *codes, size_t n);

/* counts[c] += number of codes equal to c, for counts[2^n_bits], modulo 2^64. Uses up to 34 KB of
 * stack. */
void dpc_count_packed(const uint8_t *packed, uint32_t n_bits, size_t n, uint64_t *counts);

/* The same for codes that are not packed, and for any number of counts, 0 included. Returns
 * DPC_ERR_CODE if a code is n_counts or more; counts are as they were then. Codes that another thread
 * changes meanwhile may be counted wrongly, but nothing outside counts is touched. */
enum dpc_status dpc_count_u8(const uint8_t *codes, size_t n, uint64_t *counts,
                             size_t n_counts) DPC_MUST_CHECK;
enum dpc_status dpc_count_u16(const uint16_t *codes, size_t n, uint64_t *counts,
                              size_t n_counts) DPC_MUST_CHECK;

#endif
