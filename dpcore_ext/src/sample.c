#include "dpcore/sample.h"

#include <string.h>

#include "private/sat.h"
#include "private/stack.h"
#include "private/wide.h"

enum { CHUNK = 2048, GROUP = 16, REFINE_LANE = 16 };

static uint64_t nonce_of(uint32_t lane, uint32_t sub_block) { return (uint64_t)lane << 32 | sub_block; }

static int less_or_equal(const dpc_u256_t *a, const dpc_u256_t *b)
{
    for (int i = 0; i < 4; i++) {
        if (a->limb[i] != b->limb[i]) {
            return a->limb[i] < b->limb[i];
        }
    }
    return 1;
}

/* How many thresholds are <= u: the number of the outcome u falls into. */
static size_t outcome_of(const dpc_table_t *table, const dpc_u256_t *u)
{
    size_t low = 0, high = table->n_thresholds;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (less_or_equal(&table->cdf[middle], u)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static int at_open_end(const dpc_table_t *table, size_t outcome)
{
    return (table->open_ends != DPC_NO_END && outcome == table->n_thresholds) ||
           (table->open_ends == DPC_BOTH_ENDS && outcome == 0);
}

enum dpc_status dpc_guide_fill(const dpc_table_t *table, int16_t *guide)
{
    size_t k = 0;
    for (uint64_t cell = 0; cell < DPC_GUIDE_SIZE; cell++) {
        const dpc_u256_t start = {{cell << 48, 0, 0, 0}};
        while (k < table->n_thresholds && less_or_equal(&table->cdf[k], &start)) {
            k++;
        }
        int open = (k < table->n_thresholds && table->cdf[k].limb[0] >> 48 == cell) ||
                   at_open_end(table, k);
        int64_t value = table->first + (int64_t)k;
        if (!open && (value <= DPC_OPEN || value > INT16_MAX)) {
            return DPC_ERR_RANGE;
        }
        guide[cell] = open ? DPC_OPEN : (int16_t)value;
    }
    return DPC_OK;
}

/* The 16-bit words, or 64-bit ones, of elements start to start + n - 1 of a lane. buffer has room
 * for one block more than n words fill; returns where the first word lies in it. */
static const uint8_t *lane_words(const dpc_kernels_t *kernels, const dpc_key_t *key, uint32_t lane,
                                 uint64_t start, size_t n, size_t word_bytes, uint8_t *buffer)
{
    const uint64_t per_block = DPC_BLOCK_BYTES / word_bytes;
    uint64_t first = start / per_block, last = (start + n - 1) / per_block;
    kernels->keystream(key, nonce_of(lane, 0), first, (size_t)(last - first + 1), buffer);
    return buffer + (start % per_block) * word_bytes;
}

/* The open elements of one chunk, GROUP at a time: their refine blocks come from one SIMD call. */
typedef struct {
    uint64_t counter[GROUP];
    uint64_t block[GROUP][8];
} group_t;

static void refine_group(const dpc_kernels_t *kernels, const dpc_key_t *key, uint64_t nonce,
                         uint64_t start, const uint16_t *open, size_t n, group_t *group)
{
    for (size_t j = 0; j < n; j++) {
        group->counter[j] = start + open[j];
    }
    kernels->keystream_at(key, nonce, group->counter, n, (uint8_t *)group->block);
}

static dpc_u256_t u256_of(const uint64_t block[8])
{
    dpc_u256_t u = {{block[0], block[1], block[2], block[3]}};
    return u;
}

/* 256 random bits whose first 16 are the prefix already read. */
static dpc_u256_t refined(uint16_t prefix, const uint64_t block[8])
{
    dpc_u256_t u = u256_of(block);
    u.limb[0] = (uint64_t)prefix << 48 | (u.limb[0] & 0xffffffffffffull);
    return u;
}

static uint64_t tail_draw(const dpc_kernels_t *kernels, const dpc_key_t *key,
                          const dpc_table_t *tail, uint64_t element)
{
    uint64_t total = 0, block[8];
    for (uint32_t sub_block = 1;; sub_block++) {
        kernels->keystream_at(key, nonce_of(REFINE_LANE, sub_block), &element, 1,
                              (uint8_t *)block);
        dpc_u256_t u = u256_of(block);
        size_t outcome = outcome_of(tail, &u);
        total = sat_add(total, outcome);
        if (outcome < tail->n_thresholds || sub_block == UINT32_MAX) {
            return total;
        }
    }
}

static size_t all_open(size_t n, uint16_t *open)
{
    for (size_t i = 0; i < n; i++) {
        open[i] = (uint16_t)i;
    }
    return n;
}

typedef struct {
    uint8_t keystream[CHUNK * 8 + DPC_BLOCK_BYTES];
    uint16_t open[CHUNK];
    uint16_t low_open[CHUNK];
    int16_t value[CHUNK];
    uint64_t low[CHUNK];
    int64_t settled[CHUNK];
} scratch_t;

/* After a call of n elements, from the function that called the OUT_OF_LINE one. A short call has used
 * the beginning of every array only: all of it takes longer to wipe than to fill. */
static void wipe_all(scratch_t *s, size_t n)
{
    const size_t m = n < CHUNK ? n : CHUNK, bytes = 8 * m + 2 * DPC_BLOCK_BYTES;
    wipe_stack();
    dpc_wipe(s->keystream, bytes < sizeof s->keystream ? bytes : sizeof s->keystream);
    dpc_wipe(s->open, m * sizeof s->open[0]);
    dpc_wipe(s->low_open, m * sizeof s->low_open[0]);
    dpc_wipe(s->value, m * sizeof s->value[0]);
    dpc_wipe(s->low, m * sizeof s->low[0]);
    dpc_wipe(s->settled, m * sizeof s->settled[0]);
}

/* Low digits of every element of a chunk, added up into s->low. */
static void digits_chunk(const dpc_kernels_t *kernels, const dpc_key_t *key,
                         const dpc_digits_t *law, uint64_t start, size_t n, int small,
                         scratch_t *s)
{
    memset(s->low, 0, n * sizeof s->low[0]);
    for (uint32_t d = 0; d < law->n_digits; d++) {
        const dpc_table_t *table = law->digit[d];
        const uint32_t shift = law->shift[d];
        const uint16_t *words = (const uint16_t *)lane_words(kernels, key, d + 1, start, n,
                                                             sizeof *words, s->keystream);
        size_t n_open = kernels->lookup(table->guide, words, n, s->value, s->low_open);
        if (small) {
            n_open = all_open(n, s->low_open);
        }
        for (size_t g = 0; g < n_open; g += GROUP) {
            size_t m = n_open - g < GROUP ? n_open - g : GROUP;
            group_t group;
            refine_group(kernels, key, nonce_of(REFINE_LANE + d + 1, 0), start, s->low_open + g, m,
                         &group);
            for (size_t j = 0; j < m; j++) {
                uint16_t i = s->low_open[g + j];
                dpc_u256_t u = refined(words[i], group.block[j]);
                s->value[i] = (int16_t)(table->first + (int64_t)outcome_of(table, &u));
            }
        }
        for (size_t i = 0; i < n; i++) {
            s->low[i] += (uint64_t)(uint16_t)s->value[i] << shift;
        }
    }
}

/* y = x + noise where top and low digits are in s->value and s->low. Unsigned, because an open
 * element, which is overwritten later, may overflow. */
static void add_digits(const dpc_digits_t *law, const scratch_t *s, const int64_t *x, int64_t *y,
                       size_t n)
{
    const uint32_t shift = law->top_shift;
    const uint64_t symmetric = law->symmetric != 0;
    for (size_t i = 0; i < n; i++) {
        int64_t t = s->value[i];
        uint64_t sign = (uint64_t)(t >> 63), present = 0 - (uint64_t)(t != 0 || !symmetric);
        uint64_t cells = ((uint64_t)t ^ sign) - sign - symmetric;
        uint64_t magnitude = ((cells << shift) + s->low[i] + symmetric) & present;
        y[i] = (int64_t)((x == NULL ? 0 : (uint64_t)x[i]) + ((magnitude ^ sign) - sign));
    }
}

/* |X| of a symmetric law, or X of a one-sided one, from the magnitude of T. */
static uint64_t magnitude_of(const dpc_digits_t *law, uint64_t top, uint64_t low)
{
    if (law->symmetric) {
        return top == 0 ? 0 : sat_add(sat_shift(top - 1, law->top_shift), low + 1);
    }
    return sat_add(sat_shift(top, law->top_shift), low);
}

static int64_t settle_top(const dpc_kernels_t *kernels, const dpc_key_t *key,
                          const dpc_digits_t *law, uint64_t element, const dpc_u256_t *u,
                          uint64_t low, int64_t x)
{
    const dpc_table_t *top = law->top;
    size_t outcome = outcome_of(top, u);
    int64_t value = top->first + (int64_t)outcome;
    uint64_t magnitude = value < 0 ? (uint64_t)-value : (uint64_t)value;
    if (law->tail != NULL && at_open_end(top, outcome)) {
        magnitude = sat_add(magnitude, tail_draw(kernels, key, law->tail, element));
    }
    if (law->n_digits > 0) {
        magnitude = magnitude_of(law, magnitude, low);
    }
    return sat_offset(x, magnitude, value < 0);
}

/* y = x + noise of a chunk whose low digits stand in s->low. Open elements are settled before the
 * bulk addition, which may overwrite x, and written after it. */
static void top_chunk(const dpc_kernels_t *kernels, const dpc_key_t *key, const dpc_digits_t *law,
                      uint64_t start, const int64_t *x, int64_t *y, size_t n, int small,
                      scratch_t *s)
{
    const uint16_t *words =
        (const uint16_t *)lane_words(kernels, key, 0, start, n, sizeof *words, s->keystream);
    size_t n_open = kernels->lookup(law->top->guide, words, n, s->value, s->open);
    if (small) {
        n_open = all_open(n, s->open);
    }
    for (size_t g = 0; g < n_open; g += GROUP) {
        size_t m = n_open - g < GROUP ? n_open - g : GROUP;
        group_t group;
        refine_group(kernels, key, nonce_of(REFINE_LANE, 0), start, s->open + g, m, &group);
        for (size_t j = 0; j < m; j++) {
            uint16_t i = s->open[g + j];
            dpc_u256_t u = refined(words[i], group.block[j]);
            s->settled[g + j] = settle_top(kernels, key, law, start + i, &u,
                                           law->n_digits ? s->low[i] : 0, x == NULL ? 0 : x[i]);
        }
    }
    if (law->n_digits == 0) {
        kernels->add_i16(x, s->value, y, n);
    } else {
        add_digits(law, s, x, y, n);
    }
    for (size_t j = 0; j < n_open; j++) {
        y[s->open[j]] = s->settled[j];
    }
}

static OUT_OF_LINE void sample_digits(const dpc_kernels_t *kernels, const dpc_key_t *key,
                                      const dpc_digits_t *law, uint64_t start, const int64_t *x,
                                      int64_t *y, size_t n, scratch_t *s)
{
    const int small = n <= DPC_SMALL;
    for (size_t done = 0; done < n; done += CHUNK) {
        size_t m = n - done < CHUNK ? n - done : CHUNK;
        if (law->n_digits > 0) {
            digits_chunk(kernels, key, law, start + done, m, small, s);
        }
        top_chunk(kernels, key, law, start + done, x == NULL ? NULL : x + done, y + done, m, small,
                  s);
    }
}

void dpc_sample_digits(const dpc_kernels_t *kernels, const dpc_key_t *key,
                       const dpc_digits_t *law, uint64_t start, const int64_t *x, int64_t *y,
                       size_t n)
{
    scratch_t s;
    sample_digits(kernels, key, law, start, x, y, n, &s);
    wipe_all(&s, n);
}

/* e^-x by Taylor's series at x / 16 < 1/4 and four squarings. */
uint64_t dpc_exp_neg(uint64_t exponent)
{
    const uint64_t x = exponent >> 2;
    uint64_t t = UINT64_MAX;
    for (uint32_t k = 13; k >= 1; k--) {
        t = UINT64_MAX - mul_high(x, t) / k;
    }
    for (int i = 0; i < 4; i++) {
        t = mul_high(t, t);
    }
    return t;
}

/* As above in units of 2^-128, for x = exponent / 2^126. */
static u128_t exp_neg_128(u128_t exponent)
{
    const u128_t x = {exponent.high >> 2, exponent.high << 62 | exponent.low >> 2};
    u128_t t = {UINT64_MAX, UINT64_MAX};
    for (uint32_t k = 27; k >= 1; k--) {
        u128_t step = div_128(mul_high_128(x, t), k);
        t.high = ~step.high;
        t.low = ~step.low;
    }
    for (int i = 0; i < 4; i++) {
        t = mul_high_128(t, t);
    }
    return t;
}

/* Whether U < exp(-f (2c + f) / (2 s^2)), all of f and U known. */
static int accepted(const dpc_gauss_t *law, uint64_t c, u128_t f, u128_t u)
{
    uint64_t span = c << 54 | f.high >> 11;
    uint64_t bound = dpc_exp_neg(mul_high(mul_high(f.high, span), law->kappa_high));
    uint64_t distance = u.high > bound ? u.high - bound : bound - u.high;
    if (distance > law->guard) {
        return u.high < bound;
    }
    const u128_t wide_span = {span, f.high << 53 | f.low >> 11};
    const u128_t kappa = {law->kappa_high, law->kappa_low};
    return less_128(u, exp_neg_128(mul_high_128(mul_high_128(f, wide_span), kappa)));
}

/* Try number `try` of one element from its refine block: T in 256 bits, U and f in 128 each. Try 0
 * keeps the bits that the bulk word fixed. Returns whether it was accepted. */
static int gauss_try(const dpc_gauss_t *law, const uint64_t *bulk_word, const uint64_t block[8],
                     uint64_t *magnitude, int *negative)
{
    dpc_u256_t t = u256_of(block);
    u128_t u = {block[4], block[5]}, f = {block[6], block[7]};
    if (bulk_word != NULL) {
        t = refined((uint16_t)*bulk_word, block);
        u.high = (*bulk_word >> 16) << 48 | (u.high & 0xffffffffffffull);
        f.high = (*bulk_word >> 32) << 32 | (uint32_t)f.high;
    }
    if (law->lattice) {
        f.high &= (uint64_t)law->bulk.offset_mask << 32;
        f.low = 0;
    }
    int64_t cell = law->cells.first + (int64_t)outcome_of(&law->cells, &t);
    uint64_t c = cell < 0 ? (uint64_t)(-1 - cell) : (uint64_t)cell;
    *negative = cell < 0;
    *magnitude = (c << law->bulk.shift) + (((f.high >> (63 - law->bulk.shift)) + 1) >> 1);
    if (law->lattice && *negative && *magnitude == 0) {
        return 0;
    }
    return accepted(law, c, f, u);
}

static OUT_OF_LINE void sample_gauss(const dpc_kernels_t *kernels, const dpc_key_t *key,
                                     const dpc_gauss_t *law, uint64_t start, const int64_t *x,
                                     int64_t *y, size_t n, scratch_t *s)
{
    const int small = n <= DPC_SMALL;
    for (size_t done = 0; done < n; done += CHUNK) {
        const uint64_t base = start + done;
        size_t m = n - done < CHUNK ? n - done : CHUNK;
        const uint64_t *words =
            (const uint64_t *)lane_words(kernels, key, 0, base, m, sizeof *words, s->keystream);
        size_t n_open = kernels->gauss(&law->bulk, words, m, s->settled, s->open);
        if (small) {
            n_open = all_open(m, s->open);
        }
        for (uint32_t attempt = 0; n_open > 0; attempt++) {
            size_t still_open = 0;
            for (size_t g = 0; g < n_open; g += GROUP) {
                size_t in_group = n_open - g < GROUP ? n_open - g : GROUP;
                group_t group;
                refine_group(kernels, key, nonce_of(REFINE_LANE, attempt), base, s->open + g,
                             in_group, &group);
                for (size_t j = 0; j < in_group; j++) {
                    uint16_t i = s->open[g + j];
                    uint64_t magnitude;
                    int negative;
                    if (gauss_try(law, attempt == 0 ? &words[i] : NULL, group.block[j], &magnitude,
                                  &negative)) {
                        s->settled[i] = negative ? -(int64_t)magnitude : (int64_t)magnitude;
                    } else {
                        s->open[still_open++] = i;
                    }
                }
            }
            n_open = still_open;
        }
        for (size_t i = 0; i < m; i++) {
            int64_t noise = s->settled[i];
            y[done + i] = sat_offset(x == NULL ? 0 : x[done + i],
                                     noise < 0 ? (uint64_t)-noise : (uint64_t)noise, noise < 0);
        }
    }
}

void dpc_sample_gauss(const dpc_kernels_t *kernels, const dpc_key_t *key, const dpc_gauss_t *law,
                      uint64_t start, const int64_t *x, int64_t *y, size_t n)
{
    scratch_t s;
    sample_gauss(kernels, key, law, start, x, y, n, &s);
    wipe_all(&s, n);
}

static OUT_OF_LINE void sample_integers(const dpc_kernels_t *kernels, const dpc_key_t *key,
                                        int64_t low, uint64_t bound, uint64_t start, int64_t *y,
                                        size_t n, scratch_t *s)
{
    /* Lemire's method: word * bound / 2^64 is uniform once the words whose low half falls below
     * 2^64 mod bound are refused. */
    const uint64_t refused = bound == 0 ? 0 : (0 - bound) % bound;
    for (size_t done = 0; done < n; done += CHUNK) {
        size_t m = n - done < CHUNK ? n - done : CHUNK;
        const uint64_t *words = (const uint64_t *)lane_words(kernels, key, 0, start + done, m,
                                                             sizeof *words, s->keystream);
        for (size_t i = 0; i < m; i++) {
            u128_t product = mul_64(words[i], bound);
            const uint64_t element = start + done + i;
            for (uint32_t sub_block = 0; product.low < refused; sub_block++) {
                uint64_t block[8];
                kernels->keystream_at(key, nonce_of(REFINE_LANE, sub_block), &element, 1,
                                      (uint8_t *)block);
                for (int j = 0; j < 8 && product.low < refused; j++) {
                    product = mul_64(block[j], bound);
                }
            }
            uint64_t value = bound == 0 ? words[i] : product.high;
            y[done + i] = (int64_t)((uint64_t)low + value);
        }
    }
}

void dpc_sample_integers(const dpc_kernels_t *kernels, const dpc_key_t *key, int64_t low,
                         uint64_t bound, uint64_t start, int64_t *y, size_t n)
{
    scratch_t s;
    sample_integers(kernels, key, low, bound, start, y, n, &s);
    wipe_all(&s, n);
}
