/* Packing and counting on buffers without a byte to spare, for the sanitizers to watch. */
#include "dpcore/pack.h"

#include "check.h"

static uint64_t state = 1;

static uint32_t next_random(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33);
}

static uint32_t bit_of(const uint8_t *bytes, size_t i) { return bytes[i / 8] >> i % 8 & 1; }

static void check_packed(const uint8_t *packed, const uint16_t *codes, size_t n, uint32_t n_bits)
{
    size_t bits = n * n_bits;
    int same = 1;
    for (size_t i = 0; i < bits; i++) {
        same &= bit_of(packed, i) == (uint32_t)(codes[i / n_bits] >> i % n_bits & 1);
    }
    for (size_t i = bits; i < 8 * dpc_packed_size(n, n_bits); i++) {
        same &= bit_of(packed, i) == 0;
    }
    CHECK(same);
}

static void test_length(size_t n, uint32_t n_bits)
{
    const size_t size = dpc_packed_size(n, n_bits), n_counts = (size_t)1 << n_bits;
    uint16_t *codes = exactly(n * sizeof *codes), *wide = exactly(n * sizeof *wide);
    uint8_t *small = exactly(n), *narrow = exactly(n), *packed = exactly(size), *twin = exactly(size);
    uint64_t *expected = exactly(n_counts * sizeof *expected);
    uint64_t *counts = exactly(n_counts * sizeof *counts);

    CHECK(size == (n * n_bits + 7) / 8);
    memset(expected, 0, n_counts * sizeof *expected);
    for (size_t i = 0; i < n; i++) {
        codes[i] = (uint16_t)(next_random() & (n_counts - 1));
        small[i] = (uint8_t)codes[i];
        expected[codes[i]]++;
    }

    CHECK(dpc_pack_u16(codes, n, n_bits, packed) == DPC_OK);
    check_packed(packed, codes, n, n_bits);
    dpc_unpack_u16(packed, n_bits, wide, n);
    CHECK(memcmp(wide, codes, n * sizeof *codes) == 0);

    memset(counts, 0, n_counts * sizeof *counts);
    dpc_count_packed(packed, n_bits, n, counts);
    CHECK(memcmp(counts, expected, n_counts * sizeof *counts) == 0);
    memset(counts, 0, n_counts * sizeof *counts);
    CHECK(dpc_count_u16(codes, n, counts, n_counts) == DPC_OK);
    CHECK(memcmp(counts, expected, n_counts * sizeof *counts) == 0);

    if (n_bits <= 8) {
        CHECK(dpc_pack_u8(small, n, n_bits, twin) == DPC_OK);
        CHECK(memcmp(twin, packed, size) == 0);
        dpc_unpack_u8(packed, n_bits, narrow, n);
        CHECK(memcmp(narrow, small, n) == 0);
        memset(counts, 0, n_counts * sizeof *counts);
        CHECK(dpc_count_u8(small, n, counts, n_counts) == DPC_OK);
        CHECK(memcmp(counts, expected, n_counts * sizeof *counts) == 0);
    }

    if (n && n_bits < 16) {
        size_t place = next_random() % n;
        codes[place] = (uint16_t)(n_counts | codes[place]);
        CHECK(dpc_pack_u16(codes, n, n_bits, packed) == DPC_ERR_CODE);
        CHECK(dpc_count_u16(codes, n, counts, n_counts) == DPC_ERR_CODE);
        if (n_bits < 8) {
            small[place] = (uint8_t)codes[place];
            CHECK(dpc_pack_u8(small, n, n_bits, packed) == DPC_ERR_CODE);
            CHECK(dpc_count_u8(small, n, counts, n_counts) == DPC_ERR_CODE);
        }
        CHECK(memcmp(counts, expected, n_counts * sizeof *counts) == 0);
    }

    free(codes);
    free(wide);
    free(small);
    free(narrow);
    free(packed);
    free(twin);
    free(expected);
    free(counts);
}

/* Whatever the bytes are, padding included, counting stays inside its tables. */
static void test_foreign_bytes(size_t n, uint32_t n_bits)
{
    const size_t size = dpc_packed_size(n, n_bits), n_counts = (size_t)1 << n_bits;
    uint8_t *packed = exactly(size);
    uint64_t *counts = exactly(n_counts * sizeof *counts), total = 0;
    memset(packed, 0xff, size);
    memset(counts, 0, n_counts * sizeof *counts);
    dpc_count_packed(packed, n_bits, n, counts);
    for (size_t c = 0; c < n_counts; c++) {
        total += counts[c];
    }
    CHECK(total == n && counts[n_counts - 1] == n);
    free(packed);
    free(counts);
}

static void test_nothing(void)
{
    for (uint32_t n_bits = 1; n_bits <= DPC_MAX_BITS; n_bits++) {
        uint64_t counts[1] = {7};
        CHECK(dpc_packed_size(0, n_bits) == 0);
        CHECK(dpc_pack_u16(NULL, 0, n_bits, NULL) == DPC_OK);
        dpc_unpack_u16(NULL, n_bits, NULL, 0);
        dpc_count_packed(NULL, n_bits, 0, counts);
        CHECK(dpc_count_u8(NULL, 0, NULL, 0) == DPC_OK);
        CHECK(dpc_count_u16(NULL, 0, NULL, 0) == DPC_OK);
        if (n_bits <= 8) {
            CHECK(dpc_pack_u8(NULL, 0, n_bits, NULL) == DPC_OK);
            dpc_unpack_u8(NULL, n_bits, NULL, 0);
        }
        CHECK(counts[0] == 7);
    }
    CHECK(dpc_count_u8((const uint8_t *)"", 1, NULL, 0) == DPC_ERR_CODE);
}

int main(void)
{
    static const size_t lengths[] = {127, 128, 129, 1000, 2047, 2048, 2055, 4096, 5003, 16389};
    for (uint32_t n_bits = 1; n_bits <= DPC_MAX_BITS; n_bits++) {
        for (size_t n = 0; n <= 70; n++) {
            test_length(n, n_bits);
            test_foreign_bytes(n, n_bits);
        }
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            test_length(lengths[i], n_bits);
            test_foreign_bytes(lengths[i], n_bits);
        }
    }
    test_nothing();
    return failures != 0;
}
