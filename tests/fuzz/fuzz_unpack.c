/* A target for libFuzzer: packed codes and shares of secrets as somebody else may send them.
 *
 * The first byte chooses what is done, the second a size, the rest are the bytes received. All
 * buffers are without a byte to spare, for the sanitizers to watch; whatever the bytes are, what is
 * unpacked packs to the same bytes again, and counts add up.
 */
#include "target.h"

#include "dpcore/pack.h"
#include "dpcore/shamir.h"

uint64_t fuzz_state = 1;
const uint32_t fuzz_n_seeds = 3 * 16 * 4;

/* Every action, every size, and four lengths: empty, odd, a page of the small, and a long one. */
size_t fuzz_seed(uint32_t number, uint8_t *out)
{
    static const size_t lengths[4] = {0, 37, 256, 1500};
    const size_t length = lengths[number % 4];
    out[0] = (uint8_t)(number / 64);
    out[1] = (uint8_t)(number / 4 % 16);
    for (size_t i = 0; i < length; i++) {
        out[2 + i] = (uint8_t)next_random();
    }
    return 2 + length;
}

/* The bytes with the padding above the last of n codes cleared: the one encoding of these codes. */
static uint8_t *canonical(const uint8_t *packed, size_t n, uint32_t n_bits)
{
    const size_t size = dpc_packed_size(n, n_bits);
    uint8_t *clean = copy_of(packed, size);
    if (n * n_bits % 8) {
        clean[size - 1] &= (uint8_t)((1u << n * n_bits % 8) - 1);
    }
    return clean;
}

static void check_small(const uint8_t *packed, const uint8_t *clean, const uint16_t *codes,
                        size_t n, uint32_t n_bits)
{
    const size_t size = dpc_packed_size(n, n_bits);
    uint8_t *small = exactly(n), *again = exactly(size);
    dpc_unpack_u8(packed, n_bits, small, n);
    for (size_t i = 0; i < n; i++) {
        REQUIRE(small[i] == codes[i]);
    }
    REQUIRE(dpc_pack_u8(small, n, n_bits, again) == DPC_OK);
    REQUIRE(memcmp(again, clean, size) == 0);
    free(small);
    free(again);
}

static void fuzz_codes(uint32_t n_bits, const uint8_t *data, size_t bytes)
{
    const size_t n = bytes * 8 / n_bits, size = dpc_packed_size(n, n_bits);
    const size_t n_counts = (size_t)1 << n_bits;
    uint8_t *packed = copy_of(data, size), *clean = canonical(packed, n, n_bits);
    uint8_t *again = exactly(size);
    uint16_t *codes = exactly(n * sizeof *codes);
    uint64_t *counts = calloc(n_counts, sizeof *counts), *twin = calloc(n_counts, sizeof *twin);
    REQUIRE(counts != NULL && twin != NULL);

    dpc_unpack_u16(packed, n_bits, codes, n);
    REQUIRE(dpc_pack_u16(codes, n, n_bits, again) == DPC_OK);
    REQUIRE(memcmp(again, clean, size) == 0);
    if (n_bits <= 8) {
        check_small(packed, clean, codes, n, n_bits);
    }
    dpc_count_packed(packed, n_bits, n, counts);
    for (size_t i = 0; i < n; i++) {
        twin[codes[i]]++;
    }
    REQUIRE(memcmp(counts, twin, n_counts * sizeof *counts) == 0);
    memset(counts, 0, n_counts * sizeof *counts);
    REQUIRE(dpc_count_u16(codes, n, counts, n_counts) == DPC_OK);
    REQUIRE(memcmp(counts, twin, n_counts * sizeof *counts) == 0);
    free(packed);
    free(clean);
    free(again);
    free(codes);
    free(counts);
    free(twin);
}

/* Codes as they are, of which some may be too large for the table or for their bits. */
static void fuzz_foreign_codes(uint32_t n_bits, const uint8_t *data, size_t bytes)
{
    const size_t n = bytes / 2, n_counts = ((size_t)1 << n_bits) - 1, size = dpc_packed_size(n, n_bits);
    uint16_t *codes = copy_of(data, n * sizeof *codes);
    uint8_t *packed = exactly(size);
    uint64_t *counts = calloc(n_counts, sizeof *counts);
    int fits = 1, counted = 1;
    REQUIRE(counts != NULL);
    for (size_t i = 0; i < n; i++) {
        fits &= codes[i] <= n_counts;
        counted &= codes[i] < n_counts;
    }
    REQUIRE(dpc_pack_u16(codes, n, n_bits, packed) == (fits ? DPC_OK : DPC_ERR_CODE));
    REQUIRE(dpc_count_u16(codes, n, counts, n_counts) == (counted ? DPC_OK : DPC_ERR_CODE));
    uint64_t total = 0;
    for (size_t i = 0; i < n_counts; i++) {
        total += counts[i];
    }
    REQUIRE(total == (counted ? n : 0));
    free(codes);
    free(packed);
    free(counts);
}

/* A polynomial from the bytes: its value at 0 comes back from as many shares. */
static void fuzz_shares(size_t n_elements, const uint8_t *data, size_t bytes)
{
    const size_t row = n_elements * DPC_SHAMIR_BYTES, threshold = bytes / (row + 2);
    if (threshold == 0 || threshold > 64) {
        return;
    }
    uint16_t *points = copy_of(data, threshold * sizeof *points);
    uint8_t *coefficients = copy_of(data + threshold * sizeof *points, threshold * row);
    uint8_t *shares = exactly(threshold * row), *secret = exactly(row);
    uint8_t *weights = exactly(threshold * DPC_SHAMIR_BYTES);
    int differ = 1;
    for (size_t i = 0; i < threshold; i++) {
        differ &= points[i] != 0;
        for (size_t j = 0; j < i; j++) {
            differ &= points[i] != points[j];
        }
    }
    if (differ) {
        dpc_shamir_split(coefficients, threshold, n_elements, points, threshold, shares);
        dpc_shamir_weights(points, threshold, weights);
        dpc_shamir_combine(weights, shares, threshold, n_elements, secret);
        REQUIRE(memcmp(secret, coefficients + (threshold - 1) * row, row) == 0);
    }
    free(points);
    free(coefficients);
    free(shares);
    free(secret);
    free(weights);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2) {
        return 0;
    }
    const uint32_t n_bits = 1 + data[1] % DPC_MAX_BITS;
    switch (data[0] % 3) {
    case 0:
        fuzz_codes(n_bits, data + 2, size - 2);
        break;
    case 1:
        fuzz_foreign_codes(n_bits, data + 2, size - 2);
        break;
    default:
        fuzz_shares(1 + data[1] % 3, data + 2, size - 2);
    }
    return 0;
}
