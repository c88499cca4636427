#include "dpcore/pack.h"

#include "private/memory.h"

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "dpcore needs a little-endian machine"
#endif

/* Words are moved eight bytes at a time although a group of 8 codes fills n_bits bytes only: what
 * a store writes too much, the next group overwrites. Groups too near the end of the packed bytes
 * for that pass through a buffer of this size. */
enum { GROUP = 8, EDGE = 16 };

static inline uint64_t load_64(const void *p)
{
    uint64_t word;
    memcpy(&word, p, sizeof word);
    return word;
}

static inline void store_64(void *p, uint64_t word) { memcpy(p, &word, sizeof word); }

/* The lowest `bits` bits, 1 to 64, of every lane of `lane` bits. */
static uint64_t lane_mask(uint32_t bits, uint32_t lane)
{
    uint64_t mask = UINT64_MAX >> (64 - bits);
    for (uint32_t width = lane; width < 64; width *= 2) {
        mask |= mask << width;
    }
    return mask;
}

/* Halving the number of lanes: the upper of two neighbours moves down by `shift` to meet the lower
 * one, or up to part from it. `keep` covers the lower ones, `move` the upper ones before the move.
 */
typedef struct {
    uint64_t keep, move;
    uint32_t shift;
} step_t;

static inline uint64_t join(uint64_t x, step_t step)
{
    return (x & step.keep) | (x & step.move) >> step.shift;
}

static inline uint64_t part(uint64_t x, step_t step)
{
    return (x & step.keep) | (x & step.move) << step.shift;
}

/* Between lanes of `lane` bits that use `bits` of them and lanes twice as wide that use twice as
 * many. */
static step_t join_step(uint32_t bits, uint32_t lane)
{
    uint64_t keep = lane_mask(bits, 2 * lane);
    step_t step = {keep, keep << lane, lane - bits};
    return step;
}

static step_t part_step(uint32_t bits, uint32_t lane)
{
    uint64_t keep = lane_mask(bits, 2 * lane);
    step_t step = {keep, keep << bits, lane - bits};
    return step;
}

/* Codes 4 to 7 of a group begin at bit 4 * n_bits: in the middle of a byte if n_bits is odd. */
typedef struct {
    size_t byte;
    uint32_t bit, carry_shift;
    uint64_t carry_mask;
} half_t;

static half_t half_of(uint32_t n_bits)
{
    half_t half = {n_bits / 2, n_bits % 2 * 4, 4 * n_bits - 4, n_bits % 2 ? 15 : 0};
    return half;
}

/* How many whole groups can be moved by 8-byte words, the last of which begins `last` bytes into
 * its group. */
static size_t wide_groups(size_t n, uint32_t n_bits, size_t last)
{
    size_t groups = n / GROUP, spare = (last + 8 - 1) / n_bits;
    return groups > spare ? groups - spare : 0;
}

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

enum dpc_status dpc_pack_u8(const uint8_t *codes, size_t n, uint32_t n_bits, uint8_t *out)
{
    const step_t one = join_step(n_bits, 8), two = join_step(2 * n_bits, 16);
    const step_t four = join_step(4 * n_bits, 32);
    const size_t wide = wide_groups(n, n_bits, 0);
    size_t left = dpc_packed_size(n, n_bits);
    uint64_t seen = 0;

    for (size_t g = 0; g < wide; g++, codes += GROUP, out += n_bits) {
        uint64_t word = load_64(codes);
        seen |= word;
        store_64(out, join(join(join(word, one), two), four));
    }
    n -= wide * GROUP;
    left -= wide * n_bits;
    while (n) {
        size_t now = least(n, GROUP), bytes = least(left, n_bits);
        uint64_t word = 0;
        memcpy(&word, codes, now);
        seen |= word;
        word = join(join(join(word, one), two), four);
        memcpy(out, &word, bytes);
        codes += now;
        n -= now;
        out += bytes;
        left -= bytes;
    }
    return seen & ~lane_mask(n_bits, 8) ? DPC_ERR_CODE : DPC_OK;
}

void dpc_unpack_u8(const uint8_t *packed, uint32_t n_bits, uint8_t *codes, size_t n)
{
    const step_t one = part_step(n_bits, 8), two = part_step(2 * n_bits, 16);
    const step_t four = part_step(4 * n_bits, 32);
    const size_t wide = wide_groups(n, n_bits, 0);
    size_t left = dpc_packed_size(n, n_bits);

    for (size_t g = 0; g < wide; g++, codes += GROUP, packed += n_bits) {
        store_64(codes, part(part(part(load_64(packed), four), two), one));
    }
    n -= wide * GROUP;
    left -= wide * n_bits;
    while (n) {
        size_t now = least(n, GROUP), bytes = least(left, n_bits);
        uint64_t word = 0;
        memcpy(&word, packed, bytes);
        word = part(part(part(word, four), two), one);
        memcpy(codes, &word, now);
        codes += now;
        n -= now;
        packed += bytes;
        left -= bytes;
    }
}

static inline uint64_t pack_group_u16(const uint16_t *codes, step_t one, step_t two, half_t half,
                                      uint8_t *out)
{
    uint64_t low = load_64(codes), high = load_64(codes + 4), seen = low | high;
    low = join(join(low, one), two);
    high = join(join(high, one), two);
    store_64(out, low);
    store_64(out + half.byte, high << half.bit | (low >> half.carry_shift & half.carry_mask));
    return seen;
}

enum dpc_status dpc_pack_u16(const uint16_t *codes, size_t n, uint32_t n_bits, uint8_t *out)
{
    const step_t one = join_step(n_bits, 16), two = join_step(2 * n_bits, 32);
    const half_t half = half_of(n_bits);
    const size_t wide = wide_groups(n, n_bits, half.byte);
    size_t left = dpc_packed_size(n, n_bits);
    uint64_t seen = 0;

    for (size_t g = 0; g < wide; g++, codes += GROUP, out += n_bits) {
        seen |= pack_group_u16(codes, one, two, half, out);
    }
    n -= wide * GROUP;
    left -= wide * n_bits;
    while (n) {
        size_t now = least(n, GROUP), bytes = least(left, n_bits);
        uint16_t group[GROUP] = {0};
        uint8_t edge[EDGE];
        memcpy(group, codes, now * sizeof *codes);
        seen |= pack_group_u16(group, one, two, half, edge);
        memcpy(out, edge, bytes);
        codes += now;
        n -= now;
        out += bytes;
        left -= bytes;
    }
    return seen & ~lane_mask(n_bits, 16) ? DPC_ERR_CODE : DPC_OK;
}

static inline void unpack_group_u16(const uint8_t *packed, step_t one, step_t two, half_t half,
                                    uint16_t *codes)
{
    uint64_t low = load_64(packed), high = load_64(packed + half.byte) >> half.bit;
    store_64(codes, part(part(low, two), one));
    store_64(codes + 4, part(part(high, two), one));
}

void dpc_unpack_u16(const uint8_t *packed, uint32_t n_bits, uint16_t *codes, size_t n)
{
    const step_t one = part_step(n_bits, 16), two = part_step(2 * n_bits, 32);
    const half_t half = half_of(n_bits);
    const size_t wide = wide_groups(n, n_bits, half.byte);
    size_t left = dpc_packed_size(n, n_bits);

    for (size_t g = 0; g < wide; g++, codes += GROUP, packed += n_bits) {
        unpack_group_u16(packed, one, two, half, codes);
    }
    n -= wide * GROUP;
    left -= wide * n_bits;
    while (n) {
        size_t now = least(n, GROUP), bytes = least(left, n_bits);
        uint16_t group[GROUP];
        uint8_t edge[EDGE] = {0};
        memcpy(edge, packed, bytes);
        unpack_group_u16(edge, one, two, half, group);
        memcpy(codes, group, now * sizeof *codes);
        codes += now;
        n -= now;
        packed += bytes;
        left -= bytes;
    }
}

/* Counting. An increment that follows another of the same count waits for it, some five cycles, so
 * neighbouring symbols go to different tables, as far as those are small: SPARE counts in all. */
enum { SPARE = 4096, MANY_TABLES = 1024 };

/* counts[s] += number of symbols s among n of `width` bits, of which those in the mask are read.
 * Symbols above `most` are counted as 0; one of the two keeps all inside the counts. */
static inline void count_below(const uint8_t *packed, uint32_t width, size_t n, uint64_t *counts,
                               size_t n_counts, uint64_t mask, size_t most)
{
#define AT(symbol) ((size_t)(symbol) <= most ? (size_t)(symbol) : 0)
    const size_t n_tables = n < 4 * n_counts || n_counts > SPARE ? 1
                            : n_counts > MANY_TABLES             ? 2
                                                                 : 4;
    const half_t half = half_of(width);
    const size_t wide = wide_groups(n, width, half.byte);
    uint64_t spare[SPARE];
    uint64_t *table[4];

    memset(spare, 0, (n_tables - 1) * n_counts * sizeof *spare);
    for (size_t t = 0; t < 4; t++) {
        table[t] = t % n_tables ? spare + (t % n_tables - 1) * n_counts : counts;
    }
    uint64_t *const a = table[0], *const b = table[1], *const c = table[2], *const d = table[3];
    for (size_t g = 0; g < wide; g++, packed += width) {
        uint64_t low = load_64(packed), high = load_64(packed + half.byte) >> half.bit;
        a[AT(low & mask)]++;
        b[AT(low >> width & mask)]++;
        c[AT(low >> 2 * width & mask)]++;
        d[AT(low >> 3 * width & mask)]++;
        a[AT(high & mask)]++;
        b[AT(high >> width & mask)]++;
        c[AT(high >> 2 * width & mask)]++;
        d[AT(high >> 3 * width & mask)]++;
    }
    for (size_t t = 1; t < n_tables; t++) {
        for (size_t s = 0; s < n_counts; s++) {
            counts[s] += table[t][s];
        }
    }
    n -= wide * GROUP;
    while (n) {
        uint16_t group[GROUP];
        size_t now = least(n, GROUP);
        dpc_unpack_u16(packed, width, group, now);
        for (size_t i = 0; i < now; i++) {
            counts[AT(group[i] & mask)]++;
        }
        packed += width;
        n -= now;
    }
#undef AT
}

/* All symbols have a count. */
static void count_symbols(const uint8_t *packed, uint32_t width, size_t n, uint64_t *counts)
{
    count_below(packed, width, n, counts, (size_t)1 << width, lane_mask(width, 64), SIZE_MAX);
}

void dpc_count_packed(const uint8_t *packed, uint32_t n_bits, size_t n, uint64_t *counts)
{
    /* Narrow codes are counted several at a time, as symbols of 8 or 6 bits. */
    static const uint8_t per_symbol[] = {0, 8, 4, 2, 2};
    enum { FEW = 2048 };

    if (n_bits < sizeof per_symbol && n >= FEW) {
        const uint32_t per = per_symbol[n_bits], width = per * n_bits;
        const uint64_t mask = lane_mask(n_bits, 64);
        const size_t whole = n / GROUP * GROUP;
        uint64_t symbols[256] = {0};
        count_symbols(packed, width, whole / per, symbols);
        for (size_t s = 0; s < (size_t)1 << width; s++) {
            for (uint32_t k = 0; k < per; k++) {
                counts[s >> k * n_bits & mask] += symbols[s];
            }
        }
        packed += whole / GROUP * n_bits;
        n -= whole;
    }
    count_symbols(packed, n_bits, n, counts);
}

/* On a little-endian machine an array of codes is its own packing at 8 or 16 bits. Another thread may
 * change the codes meanwhile, so nothing that was seen once is relied on for memory later: codes of 8
 * bits are read once, into a table that has a count for each of them; so large a table of 16 bits is
 * too much for a stack, and there the second reading is held inside the counts. */
enum dpc_status dpc_count_u8(const uint8_t *codes, size_t n, uint64_t *counts, size_t n_counts)
{
    uint64_t all[UINT8_MAX + 1] = {0};
    count_symbols(codes, 8, n, all);
    const size_t used = least(n_counts, UINT8_MAX + 1);
    for (size_t c = used; c <= UINT8_MAX; c++) {
        if (all[c] != 0) {
            return DPC_ERR_CODE;
        }
    }
    for (size_t c = 0; c < used; c++) {
        counts[c] += all[c];
    }
    return DPC_OK;
}

enum dpc_status dpc_count_u16(const uint16_t *codes, size_t n, uint64_t *counts, size_t n_counts)
{
    uint16_t most = 0;
    for (size_t i = 0; i < n; i++) {
        most = codes[i] > most ? codes[i] : most;
    }
    if (n && most >= n_counts) {
        return DPC_ERR_CODE;
    }
    const uint8_t *packed = (const uint8_t *)codes;
    const size_t used = least(n_counts, UINT16_MAX + 1);
    if (n && (used & (used - 1)) == 0) {
        count_below(packed, 16, n, counts, used, used - 1, SIZE_MAX);
    } else if (n) {
        count_below(packed, 16, n, counts, used, UINT16_MAX, used - 1);
    }
    return DPC_OK;
}
