/* The C core without Python: run under sanitizers, every buffer exactly as large as it must be. */
#include <math.h>

#include "dpcore/sample.h"

#include "check.h"

enum { N_LENGTHS = 21 };
static const size_t lengths[N_LENGTHS] = {1,  2,  3,  4,   5,   7,   8,    9,    15,   16,  17,
                                          31, 32, 33, 63, 65, 255, 257, 2047, 2049, 4097};

static dpc_key_t test_key(void)
{
    uint8_t bytes[32];
    dpc_key_t key;
    for (int i = 0; i < 32; i++) {
        bytes[i] = (uint8_t)i;
    }
    dpc_key_load(&key, bytes);
    return key;
}

/* Keystream */

static void rfc_8439_block(void)
{
    static const uint8_t expected[64] = {
        0x10, 0xf1, 0xe7, 0xe4, 0xd1, 0x3b, 0x59, 0x15, 0x50, 0x0f, 0xdd, 0x1f, 0xa3, 0x20, 0x71,
        0xc4, 0xc7, 0xd1, 0xf4, 0xc7, 0x33, 0xc0, 0x68, 0x03, 0x04, 0x22, 0xaa, 0x9a, 0xc3, 0xd4,
        0x6c, 0x4e, 0xd2, 0x82, 0x64, 0x46, 0x07, 0x9f, 0xaa, 0x09, 0x14, 0xc2, 0xd7, 0x05, 0xd9,
        0x8b, 0x02, 0xa2, 0xb5, 0x12, 0x9c, 0xd1, 0xde, 0x16, 0x4e, 0xb9, 0xcb, 0xd0, 0x83, 0xe8,
        0xa2, 0x50, 0x3c, 0x4e};
    const dpc_key_t key = test_key();
    /* Section 2.3.2: counter 1, nonce 00000009 0000004a 00000000; the first nonce word is the upper
     * half of the counter here. */
    const uint64_t counter = (uint64_t)0x09000000 << 32 | 1, nonce = 0x4a000000;
    for (int level = 0; level < DPC_LEVEL_END; level++) {
        const dpc_kernels_t *kernels = dpc_kernels_at((enum dpc_level)level);
        if (kernels == NULL) {
            continue;
        }
        uint8_t *out = exactly(64);
        kernels->keystream(&key, nonce, counter, 1, out);
        CHECK(memcmp(out, expected, 64) == 0);
        memset(out, 0, 64);
        kernels->keystream_at(&key, nonce, &counter, 1, out);
        CHECK(memcmp(out, expected, 64) == 0);
        free(out);
    }
}

static void keystream_levels_agree(void)
{
    const dpc_key_t key = test_key();
    const dpc_kernels_t *baseline = dpc_kernels_at(DPC_BASELINE);
    for (int level = 0; level < DPC_LEVEL_END; level++) {
        const dpc_kernels_t *kernels = dpc_kernels_at((enum dpc_level)level);
        for (size_t n = 0; kernels != NULL && n <= 40; n++) {
            const uint64_t start = UINT64_MAX - 11;
            uint8_t *expected = exactly(64 * n), *out = exactly(64 * n);
            uint64_t *counters = exactly(n * sizeof *counters);
            for (size_t i = 0; i < n; i++) {
                counters[i] = start + i;
                baseline->keystream(&key, 5, start + i, 1, expected + 64 * i);
            }
            kernels->keystream(&key, 5, start, n, out);
            CHECK(memcmp(out, expected, 64 * n) == 0);
            memset(out, 0, 64 * n);
            kernels->keystream_at(&key, 5, counters, n, out);
            CHECK(memcmp(out, expected, 64 * n) == 0);
            free(counters);
            free(out);
            free(expected);
        }
    }
}

static void levels_can_be_selected(void)
{
    for (int level = 0; level < DPC_LEVEL_END; level++) {
        const dpc_kernels_t *kernels = dpc_kernels_at((enum dpc_level)level);
        const enum dpc_status status = dpc_select((enum dpc_level)level);
        CHECK(status == (kernels != NULL ? DPC_OK : DPC_ERR_LEVEL));
        CHECK(kernels == NULL || dpc_kernels() == kernels);
    }
    CHECK(dpc_kernels_at(DPC_LEVEL_END) == NULL);
    CHECK(dpc_select(DPC_LEVEL_END) == DPC_ERR_LEVEL);
    CHECK(dpc_kernels() != NULL);
}

/* Keys */

static void keys_are_derived_in_place_as_elsewhere(void)
{
    dpc_key_t key = test_key(), child;
    uint8_t digest[32], before[32], after[32];
    for (int i = 0; i < 32; i++) {
        digest[i] = (uint8_t)(7 * i + 1);
    }
    dpc_key_derive(&child, &key, digest);
    dpc_key_store(&child, before);
    dpc_key_derive(&key, &key, digest);
    dpc_key_store(&key, after);
    CHECK(memcmp(before, after, 32) == 0);
    digest[31] ^= 1;
    key = test_key();
    dpc_key_derive(&key, &key, digest);
    dpc_key_store(&key, after);
    CHECK(memcmp(before, after, 32) != 0);
}

static void keys_load_and_store_the_same_bytes(void)
{
    uint8_t in[32], out[32];
    dpc_key_t key;
    for (int i = 0; i < 32; i++) {
        in[i] = (uint8_t)(200 - 5 * i);
    }
    dpc_key_load(&key, in);
    dpc_key_store(&key, out);
    CHECK(memcmp(in, out, 32) == 0);
    CHECK(key.word[0] == ((uint32_t)185 << 24 | (uint32_t)190 << 16 | (uint32_t)195 << 8 | 200));
}

static void wiping_overwrites_all_and_no_more(void)
{
    for (size_t n = 0; n < 100; n++) {
        uint8_t *memory = exactly(n + 2);
        int ones = 0;
        memset(memory, 1, n + 2);
        dpc_wipe(memory + 1, n);
        for (size_t i = 0; i < n + 2; i++) {
            ones += memory[i] == 1;
        }
        CHECK(ones == 2 && memory[0] == 1 && memory[n + 1] == 1);
        free(memory);
    }
}

static void entropy_fills_any_length(void)
{
    for (size_t n = 0; n < 70; n++) {
        uint8_t *one = exactly(n), *other = exactly(n);
        memset(one, 0, n);
        memset(other, 0, n);
        CHECK(dpc_entropy(one, n) == DPC_OK);
        CHECK(dpc_entropy(other, n) == DPC_OK);
        CHECK(n < 16 || memcmp(one, other, n) != 0);
        /* The last eight bytes are all zero with a chance of 2^-64. */
        CHECK(n < 16 || memcmp(one + n - 8, "\0\0\0\0\0\0\0\0", 8) != 0);
        free(other);
        free(one);
    }
    CHECK(dpc_fork_generation() == 0);
}

/* Samplers */

typedef struct {
    dpc_table_t table;
    int16_t *guide;
    dpc_u256_t *cdf;
} owned_table_t;

/* A table whose n thresholds have these first limbs, and 1 in the last. */
static owned_table_t make_table(const uint64_t *first_limbs, size_t n, int64_t first, int open_ends)
{
    owned_table_t t;
    t.guide = exactly(DPC_GUIDE_SIZE * sizeof *t.guide);
    t.cdf = exactly(n * sizeof *t.cdf);
    for (size_t i = 0; i < n; i++) {
        const dpc_u256_t threshold = {{first_limbs[i], 0, 0, first_limbs[i] > 0}};
        t.cdf[i] = threshold;
    }
    t.table.guide = t.guide;
    t.table.cdf = t.cdf;
    t.table.n_thresholds = n;
    t.table.first = first;
    t.table.open_ends = open_ends;
    CHECK(dpc_guide_fill(&t.table, t.guide) == DPC_OK);
    return t;
}

static void free_table(owned_table_t *t)
{
    free(t->guide);
    free(t->cdf);
}

static void guide_refuses_values_beyond_16_bits(void)
{
    const dpc_u256_t threshold = {{(uint64_t)1 << 63, 0, 0, 0}};
    dpc_table_t table = {NULL, &threshold, 1, INT16_MAX, DPC_NO_END};
    int16_t *guide = exactly(DPC_GUIDE_SIZE * sizeof *guide);
    CHECK(dpc_guide_fill(&table, guide) == DPC_ERR_RANGE);
    table.first = INT16_MIN;
    CHECK(dpc_guide_fill(&table, guide) == DPC_ERR_RANGE);
    table.first = INT16_MIN + 1;
    CHECK(dpc_guide_fill(&table, guide) == DPC_OK);
    CHECK(guide[0] == INT16_MIN + 1 && guide[DPC_GUIDE_SIZE - 1] == INT16_MIN + 2);
    free(guide);
}

typedef void (*fill_fn)(const dpc_kernels_t *kernels, const void *law, uint64_t start,
                        const int64_t *x, int64_t *y, size_t n);

static void fill_digits(const dpc_kernels_t *kernels, const void *law, uint64_t start,
                        const int64_t *x, int64_t *y, size_t n)
{
    const dpc_key_t key = test_key();
    dpc_sample_digits(kernels, &key, law, start, x, y, n);
}

static void fill_gauss(const dpc_kernels_t *kernels, const void *law, uint64_t start,
                       const int64_t *x, int64_t *y, size_t n)
{
    const dpc_key_t key = test_key();
    dpc_sample_gauss(kernels, &key, law, start, x, y, n);
}

static void fill_integers(const dpc_kernels_t *kernels, const void *law, uint64_t start,
                          const int64_t *x, int64_t *y, size_t n)
{
    const dpc_key_t key = test_key();
    int64_t *drawn = exactly(n * sizeof *drawn);
    dpc_sample_integers(kernels, &key, -9, *(const uint64_t *)law, start, drawn, n);
    for (size_t i = 0; i < n; i++) {
        y[i] = drawn[i] + (x != NULL ? x[i] : 0);
    }
    free(drawn);
}

/* Every level, odd lengths and starts, with and without x, in place and not: one and the same
 * noise, which the baseline gives element by element. */
static void sampler_levels_agree(fill_fn fill, const void *law, uint64_t start)
{
    const dpc_kernels_t *baseline = dpc_kernels_at(DPC_BASELINE);
    const size_t longest = lengths[N_LENGTHS - 1];
    int64_t *noise = exactly(longest * sizeof *noise);
    for (size_t i = 0; i < longest; i++) {
        fill(baseline, law, start + i, NULL, noise + i, 1);
    }
    for (int level = 0; level < DPC_LEVEL_END; level++) {
        const dpc_kernels_t *kernels = dpc_kernels_at((enum dpc_level)level);
        for (int k = 0; kernels != NULL && k < N_LENGTHS; k++) {
            const size_t n = lengths[k], offset = longest - n < 3 ? 0 : 3;
            int64_t *x = exactly(n * sizeof *x), *y = exactly(n * sizeof *y);
            int sums = 1, in_place = 1;
            for (size_t i = 0; i < n; i++) {
                x[i] = (int64_t)(1000 * i);
            }
            fill(kernels, law, start + offset, NULL, y, n);
            CHECK(memcmp(y, noise + offset, n * sizeof *y) == 0);
            fill(kernels, law, start + offset, x, y, n);
            fill(kernels, law, start + offset, x, x, n);
            for (size_t i = 0; i < n; i++) {
                sums &= y[i] == (int64_t)(1000 * i) + noise[offset + i];
                in_place &= x[i] == y[i];
            }
            CHECK(sums && in_place);
            free(y);
            free(x);
        }
    }
    free(noise);
}

static void table_sampler_levels_agree(void)
{
    uint64_t limbs[40], uneven[255];
    for (int i = 0; i < 40; i++) {
        limbs[i] = UINT64_MAX / 41 * (uint64_t)(i + 1);
    }
    for (int i = 0; i < 255; i++) {
        uneven[i] = UINT64_MAX / 256 * (uint64_t)(i + 1) + 12345;
    }
    owned_table_t top = make_table(limbs, 40, -20, DPC_NO_END);
    owned_table_t digit = make_table(uneven, 255, 0, DPC_NO_END);
    dpc_digits_t law;
    memset(&law, 0, sizeof law);
    law.top = &top.table;
    sampler_levels_agree(fill_digits, &law, 7);
    law.symmetric = 1;
    for (uint32_t d = 0; d < DPC_MAX_DIGITS; d++) {
        law.digit[d] = &digit.table;
        law.shift[d] = 8 * d;
        law.n_digits = d + 1;
        law.top_shift = 8 * (d + 1);
        sampler_levels_agree(fill_digits, &law, ((uint64_t)1 << 37) - 1001);
    }
    free_table(&top);
    free_table(&digit);
}

/* Weights exp(-c^2 / (2 s^2)) of the cells of both signs, s = 20; doubles will do here. */
static owned_table_t gauss_cells(double s)
{
    enum { SIDE = 100 };
    uint64_t limbs[2 * SIDE - 1];
    double weight[2 * SIDE], total = 0, running = 0;
    for (int i = 0; i < 2 * SIDE; i++) {
        const double c = i < SIDE ? SIDE - 1 - i : i - SIDE;
        weight[i] = exp(-c * c / (2 * s * s));
        total += weight[i];
    }
    for (int i = 0; i < 2 * SIDE - 1; i++) {
        running += weight[i];
        limbs[i] = (uint64_t)(running / total * 0x1p63) << 1;
    }
    return make_table(limbs, 2 * SIDE - 1, -SIDE, DPC_NO_END);
}

static void gaussian_levels_agree(void)
{
    const double s = 20.0;
    owned_table_t cells = gauss_cells(s);
    for (int lattice = 0; lattice < 2; lattice++) {
        for (uint32_t shift = 1; shift <= 31; shift += 10) {
            dpc_gauss_t law;
            memset(&law, 0, sizeof law);
            law.cells = cells.table;
            law.kappa_high = (uint64_t)(0x1p73 / (2 * s * s));
            law.guard = DPC_GAUSS_GUARD;
            law.lattice = lattice;
            law.bulk.guide = cells.guide;
            law.bulk.kappa = (uint32_t)(law.kappa_high >> 32) + 1;
            law.bulk.shift = shift;
            law.bulk.offset_mask =
                lattice ? (uint32_t)((((uint64_t)1 << shift) - 1) << (32 - shift)) : UINT32_MAX;
            sampler_levels_agree(fill_gauss, &law, 3);
            law.guard = UINT64_MAX;
            sampler_levels_agree(fill_gauss, &law, 3);
        }
    }
    free_table(&cells);
}

static void integer_levels_agree(void)
{
    const uint64_t bounds[] = {1, 3, ((uint64_t)1 << 32) + 1, ((uint64_t)1 << 62) + 1};
    for (size_t i = 0; i < sizeof bounds / sizeof bounds[0]; i++) {
        sampler_levels_agree(fill_integers, &bounds[i], ((uint64_t)1 << 62) - 4200);
    }
}

static void integers_stay_within_bounds(void)
{
    const dpc_key_t key = test_key();
    enum { N = 3000 };
    int64_t *y = exactly(N * sizeof *y);
    int seen[3] = {0, 0, 0}, low = 0, high = 0;
    dpc_sample_integers(dpc_kernels(), &key, -1, 3, 0, y, N);
    for (int i = 0; i < N; i++) {
        CHECK(y[i] >= -1 && y[i] <= 1);
        seen[y[i] + 1]++;
    }
    CHECK(seen[0] > 850 && seen[1] > 850 && seen[2] > 850);
    dpc_sample_integers(dpc_kernels(), &key, INT64_MIN, 0, 0, y, N);
    for (int i = 0; i < N; i++) {
        low += y[i] < INT64_MIN / 2;
        high += y[i] > INT64_MAX / 2;
    }
    CHECK(low > 600 && high > 600);
    dpc_sample_integers(dpc_kernels(), &key, INT64_MIN, ((uint64_t)1 << 63) + 1, 0, y, N);
    for (int i = 0; i < N; i++) {
        CHECK(y[i] <= 0);
    }
    free(y);
}

/* Top: -1, 0 or 1 and then a tail whose every turn adds 32767 cells of 2^40 and goes on with a
 * chance of 1 - 2^-9: about half of all magnitudes leave int64. */
static void noise_saturates_at_the_ends_of_int64(void)
{
    enum { N_TAIL = 32767, N_DIGITS = 5, N = DPC_SMALL };
    const uint64_t middle[2] = {((uint64_t)1 << 63) - 9, ((uint64_t)1 << 63) + 9};
    uint64_t *limbs = exactly(N_TAIL * sizeof *limbs);
    memset(limbs, 0, N_TAIL * sizeof *limbs);
    limbs[N_TAIL - 1] = (uint64_t)1 << 55;
    owned_table_t top = make_table(middle, 2, -1, DPC_BOTH_ENDS);
    owned_table_t tail = make_table(limbs, N_TAIL, 0, DPC_LAST_END);
    owned_table_t zero = make_table(NULL, 0, 0, DPC_NO_END);
    dpc_digits_t law;
    memset(&law, 0, sizeof law);
    law.top = &top.table;
    law.tail = &tail.table;
    law.symmetric = 1;
    law.n_digits = N_DIGITS;
    law.top_shift = 8 * N_DIGITS;
    for (uint32_t d = 0; d < N_DIGITS; d++) {
        law.digit[d] = &zero.table;
        law.shift[d] = 8 * d;
    }
    const int64_t ends[] = {-((int64_t)1 << 62), 0, (int64_t)1 << 62};
    int64_t *x = exactly(N * sizeof *x), *y = exactly(N * sizeof *y);
    int64_t *centred = exactly(N * sizeof *centred);
    fill_digits(dpc_kernels(), &law, 0, NULL, centred, N);
    for (int level = 0; level < DPC_LEVEL_END; level++) {
        const dpc_kernels_t *kernels = dpc_kernels_at((enum dpc_level)level);
        for (int e = 0; kernels != NULL && e < 3; e++) {
            int at_low = 0, at_high = 0, inside = 0;
            for (int i = 0; i < N; i++) {
                x[i] = ends[e];
            }
            fill_digits(kernels, &law, 0, x, y, N);
            for (int i = 0; i < N; i++) {
                at_low += y[i] == INT64_MIN;
                at_high += y[i] == INT64_MAX;
                inside += y[i] > INT64_MIN && y[i] < INT64_MAX;
                if (centred[i] == INT64_MAX || centred[i] == INT64_MIN) {
                    /* At least 2^63 away: from 2^62 on its own side that is beyond, too. */
                    const int own_side = (centred[i] > 0) == (ends[e] > 0);
                    CHECK(ends[e] == 0 || !own_side || y[i] == centred[i]);
                    continue;
                }
                const int above = ends[e] > 0 && centred[i] > INT64_MAX - ends[e];
                const int below = ends[e] < 0 && centred[i] < INT64_MIN - ends[e];
                CHECK(y[i] == (above ? INT64_MAX : below ? INT64_MIN : ends[e] + centred[i]));
            }
            CHECK(at_low > 0 && at_high > 0 && inside > 0);
        }
    }
    free(centred);
    free(y);
    free(x);
    free(limbs);
    free_table(&top);
    free_table(&tail);
    free_table(&zero);
}

static void exponential_keeps_its_bound(void)
{
    for (int i = 0; i < 64; i++) {
        const uint64_t exponent = (uint64_t)i << 58;
        const double expected = exp(-ldexp((double)exponent, -62));
        CHECK(fabs(ldexp((double)dpc_exp_neg(exponent), -64) - expected) < 1e-15);
    }
    CHECK(dpc_exp_neg(0) > UINT64_MAX - 256);
}

/* Fixed point */

static enum dpc_status quantize_one(double x, double lower, double upper, int exponent, int64_t *q)
{
    double *in = exactly(sizeof *in);
    int64_t *out = exactly(sizeof *out);
    *in = x;
    enum dpc_status status = dpc_quantize(in, lower, upper, exponent, out, 1);
    *q = *out;
    free(in);
    free(out);
    return status;
}

static void quantizing_rounds_ties_to_even(void)
{
    static const struct {
        double x;
        int exponent;
        int64_t q;
    } cases[] = {
        {0.0, 0, 0},     {-0.0, 0, 0},        {0.5, 0, 0},
        {1.5, 0, 2},     {2.5, 0, 2},         {-0.5, 0, 0},
        {-1.5, 0, -2},   {-2.5, 0, -2},       {0.49999999999999994, 0, 0},
        {3.0, 1, 2},     {5.0, 1, 2},         {0.75, -1, 2},
        {0x1p899, 900, 0}, {0x1p900, 900, 1},   {0x1p-900, -900, 1},
        {5e-324, 0, 0},  {-5e-324, -900, 0},  {0x1.fffffffffffffp61, 0, 0x3ffffffffffffe00},
        {0x1p961, 900, (int64_t)1 << 61}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int64_t q;
        CHECK(quantize_one(cases[i].x, -HUGE_VAL, HUGE_VAL, cases[i].exponent, &q) == DPC_OK);
        CHECK(q == cases[i].q);
        CHECK(quantize_one(-cases[i].x, -HUGE_VAL, HUGE_VAL, cases[i].exponent, &q) == DPC_OK);
        CHECK(q == -cases[i].q);
    }
}

static void quantizing_refuses_what_does_not_fit(void)
{
    int64_t q;
    CHECK(quantize_one(NAN, -HUGE_VAL, HUGE_VAL, 0, &q) == DPC_ERR_NOT_FINITE);
    CHECK(quantize_one(NAN, 0, 1, 0, &q) == DPC_ERR_NOT_FINITE);
    CHECK(quantize_one(HUGE_VAL, -HUGE_VAL, HUGE_VAL, 0, &q) == DPC_ERR_NOT_FINITE);
    CHECK(quantize_one(-HUGE_VAL, 0, 1, 0, &q) == DPC_ERR_NOT_FINITE);
    CHECK(quantize_one(0x1p62, -HUGE_VAL, HUGE_VAL, 0, &q) == DPC_ERR_RANGE);
    CHECK(quantize_one(-0x1p62, -HUGE_VAL, HUGE_VAL, 0, &q) == DPC_ERR_RANGE);
    CHECK(quantize_one(1.7e308, -HUGE_VAL, HUGE_VAL, -900, &q) == DPC_ERR_RANGE);
    CHECK(quantize_one(0x1p62, -1, 1, 0, &q) == DPC_OK && q == 1);
    CHECK(quantize_one(-1e300, -1, 1, -4, &q) == DPC_OK && q == -16);
    for (size_t n = 1; n < 20; n++) {
        double *x = exactly(n * sizeof *x);
        int64_t *out = exactly(n * sizeof *out);
        for (size_t bad = 0; bad < n; bad++) {
            for (size_t i = 0; i < n; i++) {
                x[i] = (double)i;
            }
            x[bad] = NAN;
            CHECK(dpc_quantize(x, -HUGE_VAL, HUGE_VAL, 0, out, n) == DPC_ERR_NOT_FINITE);
            x[(bad + 1) % n] = n > 1 ? 1e300 : NAN;
            CHECK(dpc_quantize(x, -HUGE_VAL, HUGE_VAL, 0, out, n) == DPC_ERR_NOT_FINITE);
        }
        free(x);
        free(out);
    }
}

static void dequantizing_rounds_once_and_works_in_place(void)
{
    union {
        int64_t q[5];
        double y[5];
    } shared = {{0, 3, -3, INT64_MAX, INT64_MIN}};
    double y[5];
    dpc_dequantize(shared.q, -1, y, 5);
    CHECK(y[0] == 0.0 && y[1] == 1.5 && y[2] == -1.5 && y[3] == 0x1p62 && y[4] == -0x1p62);
    dpc_dequantize(shared.q, -1, shared.y, 5);
    CHECK(memcmp(shared.y, y, sizeof y) == 0);
    const int64_t q[3] = {((int64_t)1 << 53) + 1, ((int64_t)1 << 53) + 3, -1};
    dpc_dequantize(q, 0, y, 3);
    CHECK(y[0] == 0x1p53 && y[1] == 0x1p53 + 4 && y[2] == -1.0);
    dpc_dequantize(q, 900, y, 3);
    CHECK(y[0] == 0x1p953 && y[2] == -0x1p900);
    dpc_dequantize(q, -900, y, 3);
    CHECK(y[0] == 0x1p-847 && y[2] == -0x1p-900);
}

static void nothing_is_touched_for_no_elements(void)
{
    const uint64_t bound = 3;
    owned_table_t table = make_table(&bound, 1, 0, DPC_NO_END);
    dpc_digits_t law;
    memset(&law, 0, sizeof law);
    law.top = &table.table;
    fill_digits(dpc_kernels(), &law, 0, NULL, NULL, 0);
    fill_integers(dpc_kernels(), &bound, 0, NULL, NULL, 0);
    CHECK(dpc_quantize(NULL, 0, 1, 0, NULL, 0) == DPC_OK);
    dpc_dequantize(NULL, 0, NULL, 0);
    free_table(&table);
}

int main(void)
{
    rfc_8439_block();
    keystream_levels_agree();
    levels_can_be_selected();
    keys_load_and_store_the_same_bytes();
    keys_are_derived_in_place_as_elsewhere();
    wiping_overwrites_all_and_no_more();
    entropy_fills_any_length();
    guide_refuses_values_beyond_16_bits();
    table_sampler_levels_agree();
    gaussian_levels_agree();
    integer_levels_agree();
    integers_stay_within_bounds();
    noise_saturates_at_the_ends_of_int64();
    exponential_keeps_its_bound();
    quantizing_rounds_ties_to_even();
    quantizing_refuses_what_does_not_fit();
    dequantizing_rounds_once_and_works_in_place();
    nothing_is_touched_for_no_elements();
    if (failures > 0) {
        fprintf(stderr, "%d checks failed\n", failures);
        return 1;
    }
    return 0;
}
