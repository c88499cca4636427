#include "dpcore/encode.h"

#include "private/wide.h"

enum { CHUNK = 1024, REFINE_LANE = 16 };

void dpc_rows_entries(const dpc_cut_t *cut, const uint16_t *alias, size_t n, uint64_t *entry)
{
    for (size_t i = 0; i < n; i++) {
        entry[i] = (cut[i].high & 0xffffffff00000000ull) | alias[i];
    }
}

/* The code of one element from all of its bits. */
static uint16_t settle(const dpc_rows_t *rows, const dpc_cut_t *cut, double x, uint64_t word,
                       const uint64_t block[8])
{
    const uint32_t bits = rows->log2_columns;
    double p = (x - rows->lower) * rows->per_unit;
    p = p > 0.0 ? p : 0.0;
    p = p < rows->n_intervals ? p : rows->n_intervals;
    uint64_t cell = (uint64_t)p;
    uint64_t part = (uint64_t)((p - (double)cell) * 0x1p64);
    uint64_t draw = word << 48 | (block[2] & 0xffffffffffffull);
    const u128_t u = {(word & ~0xffffull) | (block[0] & 0xffff), block[1]};
    size_t column = (size_t)(u.high >> (64 - bits));
    size_t index = (size_t)(cell + (draw < part)) << bits | column;
    const u128_t fraction = {u.high << bits | u.low >> (64 - bits), u.low << bits};
    const u128_t limit = {cut[index].high, cut[index].low};
    return less_128(fraction, limit) ? (uint16_t)column : (uint16_t)rows->entry[index];
}

typedef struct {
    uint8_t keystream[CHUNK * 8 + DPC_BLOCK_BYTES];
    uint16_t codes[CHUNK];
    uint16_t open[CHUNK];
} scratch_t;

static void encode_chunk(const dpc_kernels_t *kernels, const dpc_key_t *key,
                         const dpc_rows_t *rows, const dpc_cut_t *cut, uint64_t start,
                         const double *x, size_t n, scratch_t *s, int *finite)
{
    uint64_t first = start / 8, last = (start + n - 1) / 8;
    kernels->keystream(key, 0, first, (size_t)(last - first + 1), s->keystream);
    const uint64_t *words = (const uint64_t *)s->keystream + start % 8;
    size_t n_open = kernels->encode(rows, x, words, n, s->codes, s->open, finite);
    for (size_t j = 0; j < n_open; j++) {
        uint16_t i = s->open[j];
        uint64_t element = start + i, block[8];
        kernels->keystream_at(key, (uint64_t)REFINE_LANE << 32, &element, 1, (uint8_t *)block);
        s->codes[i] = settle(rows, cut, x[i], words[i], block);
    }
}

static void store_codes(const dpc_rows_t *rows, const uint16_t *codes, size_t n, size_t at,
                        void *out)
{
    if (rows->log2_columns > 8) {
        uint16_t *to = (uint16_t *)out + at;
        for (size_t i = 0; i < n; i++) {
            to[i] = codes[i];
        }
    } else {
        uint8_t *to = (uint8_t *)out + at;
        for (size_t i = 0; i < n; i++) {
            to[i] = (uint8_t)codes[i];
        }
    }
}

enum dpc_status dpc_encode_f64(const dpc_kernels_t *kernels, const dpc_key_t *key,
                               const dpc_rows_t *rows, const dpc_cut_t *cut, uint64_t start,
                               const double *x, void *codes, size_t n)
{
    scratch_t s;
    int finite = 1;
    for (size_t done = 0; done < n && finite; done += CHUNK) {
        size_t m = n - done < CHUNK ? n - done : CHUNK;
        encode_chunk(kernels, key, rows, cut, start + done, x + done, m, &s, &finite);
        store_codes(rows, s.codes, m, done, codes);
    }
    dpc_wipe(&s, sizeof s);
    return finite ? DPC_OK : DPC_ERR_NOT_FINITE;
}

enum dpc_status dpc_encode_f32(const dpc_kernels_t *kernels, const dpc_key_t *key,
                               const dpc_rows_t *rows, const dpc_cut_t *cut, uint64_t start,
                               const float *x, void *codes, size_t n)
{
    scratch_t s;
    int finite = 1;
    double wide[CHUNK];
    for (size_t done = 0; done < n && finite; done += CHUNK) {
        size_t m = n - done < CHUNK ? n - done : CHUNK;
        for (size_t i = 0; i < m; i++) {
            wide[i] = x[done + i];
        }
        encode_chunk(kernels, key, rows, cut, start + done, wide, m, &s, &finite);
        store_codes(rows, s.codes, m, done, codes);
    }
    dpc_wipe(&s, sizeof s);
    return finite ? DPC_OK : DPC_ERR_NOT_FINITE;
}
