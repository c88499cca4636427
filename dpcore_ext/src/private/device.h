/* A table, as dpcore/local/export.py writes it: little-endian, nothing padded.
 *
 *   0  4 bytes  magic, "dpct"
 *   4  u8       version
 *   5  u8       kind: the number of the mechanism in messages
 *   6  u8       n_bits: bits of a code, and log2 of the columns of a row
 *   7  u8       0
 *   8  u32      n_outputs
 *  12  u32      n_intervals: one less than the number of rows
 *  16  f64      epsilon, lower, upper
 *  40  32 bytes digest of the law, which names it in keys and messages
 *  72  u32      entry of every column of every row; see encode.h
 *      u64      cut of every column of every row, high half first
 *      32 bytes SHA-256 of all bytes before it
 */
#ifndef DPC_PRIVATE_DEVICE_H
#define DPC_PRIVATE_DEVICE_H

#include <stddef.h>
#include <stdint.h>

enum { TABLE_HEADER = 72, TABLE_DIGEST = 32, MOST_ENTRIES = 1 << 28 };
enum { AT_EPSILON = 16, AT_LOWER = 24, AT_UPPER = 32, AT_NAME = 40 };

/* Whether two public strings differ, without libc's memcmp. */
static inline int differ(const uint8_t *a, const void *b, size_t n)
{
    uint8_t bits = 0;
    for (size_t i = 0; i < n; i++) {
        bits |= a[i] ^ ((const uint8_t *)b)[i];
    }
    return bits != 0;
}

#endif
