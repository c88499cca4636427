#include "dpcore/encode.h"

#include "dpcore/sample.h"
#include "private/wide.h"

/* A device has little memory for the stack. */
#ifdef DPC_DEVICE
enum { CHUNK = 16, GROUP = 1, REFINE_LANE = 16 };
#else
enum { CHUNK = 2048, GROUP = 16, REFINE_LANE = 16 };
#endif

void dpc_rows_entries(const dpc_cut_t *cut, const uint16_t *alias, size_t n, uint32_t log2_columns,
                      uint32_t *entry)
{
    const uint32_t prefix = 0xffffu << log2_columns & 0xffffu;
    for (size_t i = 0; i < n; i++) {
        entry[i] = ((uint32_t)(cut[i].high >> 48) & prefix) << 16 | alias[i];
    }
}

/* The code of one element from all of its bits. */
static uint16_t settle(const dpc_rows_t *rows, const dpc_cut_t *cut, double x, uint32_t word,
                       const uint64_t block[8])
{
    const uint32_t bits = rows->log2_columns;
    const uint64_t high_half = word >> 16, low_half = word & 0xffff, rest = 0xffffffffffffull;
    double p = (x - rows->lower) * rows->per_unit;
    p = p > 0.0 ? p : 0.0;
    p = p < rows->n_intervals ? p : rows->n_intervals;
    uint64_t cell = (uint64_t)p;
    uint64_t part = (uint64_t)((p - (double)cell) * 0x1p64);
    uint64_t draw = low_half << 48 | (block[2] & rest);
    const u128_t u = {high_half << 48 | (block[0] & rest), block[1]};
    size_t column = (size_t)(u.high >> (64 - bits));
    size_t index = (size_t)(cell + (draw < part)) << bits | column;
    const u128_t fraction = {u.high << bits | u.low >> (64 - bits), u.low << bits};
    const u128_t limit = {cut[index].high, cut[index].low};
    return less_128(fraction, limit) ? (uint16_t)column : (uint16_t)rows->entry[index];
}

typedef struct {
    uint32_t keystream[CHUNK + DPC_BLOCK_BYTES / 4];
    uint16_t open[CHUNK];
    uint64_t counter[GROUP];
    uint64_t block[GROUP][8];
} scratch_t;

static void encode_chunk(const dpc_kernels_t *kernels, const dpc_key_t *key,
                         const dpc_rows_t *rows, const dpc_cut_t *cut, uint64_t start,
                         const double *x, void *codes, size_t n, int small, scratch_t *s,
                         int *finite)
{
    const uint64_t per_block = DPC_BLOCK_BYTES / sizeof *s->keystream;
    uint64_t first = start / per_block, last = (start + n - 1) / per_block;
    kernels->keystream(key, 0, first, (size_t)(last - first + 1), (uint8_t *)s->keystream);
    const uint32_t *words = s->keystream + start % per_block;
    size_t n_open = kernels->encode(rows, x, words, n, codes, s->open, finite);
    if (small) {
        for (n_open = 0; n_open < n; n_open++) {
            s->open[n_open] = (uint16_t)n_open;
        }
    }
    for (size_t g = 0; g < n_open; g += GROUP) {
        size_t m = n_open - g < GROUP ? n_open - g : GROUP;
        for (size_t j = 0; j < m; j++) {
            s->counter[j] = start + s->open[g + j];
        }
        kernels->keystream_at(key, (uint64_t)REFINE_LANE << 32, s->counter, m,
                              (uint8_t *)s->block);
        for (size_t j = 0; j < m; j++) {
            size_t i = s->open[g + j];
            uint16_t code = settle(rows, cut, x[i], words[i], s->block[j]);
            if (rows->log2_columns > 8) {
                ((uint16_t *)codes)[i] = code;
            } else {
                ((uint8_t *)codes)[i] = (uint8_t)code;
            }
        }
    }
}

static void *codes_at(const dpc_rows_t *rows, void *codes, size_t i)
{
    return (uint8_t *)codes + (rows->log2_columns > 8 ? 2 * i : i);
}

enum dpc_status dpc_encode_f64(const dpc_kernels_t *kernels, const dpc_key_t *key,
                               const dpc_rows_t *rows, const dpc_cut_t *cut, uint64_t start,
                               const double *x, void *codes, size_t n)
{
    scratch_t s;
    int finite = 1;
    for (size_t done = 0; done < n && finite; done += CHUNK) {
        size_t m = n - done < CHUNK ? n - done : CHUNK;
        encode_chunk(kernels, key, rows, cut, start + done, x + done, codes_at(rows, codes, done),
                     m, n <= DPC_SMALL, &s, &finite);
    }
    dpc_wipe(&s, sizeof s);
    return finite ? DPC_OK : DPC_ERR_NOT_FINITE;
}

enum dpc_status dpc_encode_f32(const dpc_kernels_t *kernels, const dpc_key_t *key,
                               const dpc_rows_t *rows, const dpc_cut_t *cut, uint64_t start,
                               const float *x, void *codes, size_t n)
{
    scratch_t s;
    double wide[CHUNK];
    int finite = 1;
    for (size_t done = 0; done < n && finite; done += CHUNK) {
        size_t m = n - done < CHUNK ? n - done : CHUNK;
        for (size_t i = 0; i < m; i++) {
            wide[i] = x[done + i];
        }
        encode_chunk(kernels, key, rows, cut, start + done, wide, codes_at(rows, codes, done), m,
                     n <= DPC_SMALL, &s, &finite);
    }
    dpc_wipe(&s, sizeof s);
    dpc_wipe(wide, sizeof wide);
    return finite ? DPC_OK : DPC_ERR_NOT_FINITE;
}
