#include "dpcore/encode.h"

#include "dpcore/sample.h"
#include "private/floats.h"
#include "private/memory.h"
#include "private/stack.h"
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

static uint64_t bits_of(double number)
{
    uint64_t bits;
    memcpy(&bits, &number, sizeof bits);
    return bits;
}

/* x on the grid, held between 0 and n_intervals. Doubles without a sign are in the order of their
 * bits. */
static double position(const dpc_rows_t *rows, double x)
{
    const uint64_t last = bits_of(rows->n_intervals);
    uint64_t bits = bits_of((x - rows->lower) * rows->per_unit);
    bits &= (bits >> 63) - 1;
    const uint64_t beyond = 0 - ((last - bits) >> 63);
    bits = (bits & ~beyond) | (last & beyond);
    double p;
    memcpy(&p, &bits, sizeof p);
    return p;
}

/* The code of one element from all of its bits; x is finite. The reading decides neither a branch nor
 * how often memory is read: comparisons are bits of a subtraction, choices are masks, and conversions
 * are those to int32, which machines with floating point have an instruction for. */
static uint16_t settle(const dpc_rows_t *rows, const dpc_cut_t *cut, double x, uint32_t word,
                       const uint64_t block[8])
{
    const uint32_t bits = rows->log2_columns;
    const uint64_t high_half = word >> 16, low_half = word & 0xffff, rest = 0xffffffffffffull;
    const double p = position(rows, x);
    const int32_t cell = (int32_t)p;
    /* floor((p - cell) * 2^64) in three pieces, each of them and what it leaves exact. */
    double left = (p - cell) * 0x1p22;
    const int32_t top = (int32_t)left;
    left = (left - top) * 0x1p21;
    const int32_t middle = (int32_t)left;
    const int32_t bottom = (int32_t)((left - middle) * 0x1p21);
    const uint64_t part = (uint64_t)(uint32_t)top << 42 | (uint64_t)(uint32_t)middle << 21 |
                          (uint32_t)bottom;
    const uint64_t draw = low_half << 48 | (block[2] & rest);
    const u128_t u = {high_half << 48 | (block[0] & rest), block[1]};
    const size_t column = (size_t)(u.high >> (64 - bits));
    const size_t index = ((size_t)cell + (size_t)borrows(draw, part, 0)) << bits | column;
    const u128_t fraction = {u.high << bits | u.low >> (64 - bits), u.low << bits};
    const u128_t limit = {cut[index].high, cut[index].low};
    const uint32_t own = 0 - (uint32_t)less_128(fraction, limit), alias = rows->entry[index];
    return (uint16_t)(((uint32_t)column & own) | (alias & ~own));
}

static int all_finite(const double *x, size_t n)
{
    int finite = 1;
    for (size_t i = 0; i < n; i++) {
        finite &= x[i] - x[i] == 0.0;
    }
    return finite;
}

typedef struct {
    uint32_t keystream[CHUNK + DPC_BLOCK_BYTES / 4];
    uint16_t open[CHUNK];
    uint64_t counter[GROUP];
    uint64_t block[GROUP][8];
} scratch_t;

/* After a call of n elements, from the function that called the OUT_OF_LINE one; of a short call, what
 * it has used. */
static void wipe_all(scratch_t *s, size_t n)
{
    const size_t m = n < CHUNK ? n : CHUNK, words = m + 2 * (DPC_BLOCK_BYTES / 4);
    const size_t most = sizeof s->keystream / sizeof *s->keystream;
    wipe_stack();
    dpc_wipe(s->keystream, (words < most ? words : most) * sizeof *s->keystream);
    dpc_wipe(s->open, m * sizeof s->open[0]);
    dpc_wipe(s->block, sizeof s->block);
}

static OUT_OF_LINE void encode_chunk(const dpc_kernels_t *kernels, const dpc_key_t *key,
                                     const dpc_rows_t *rows, const dpc_cut_t *cut, uint64_t start,
                                     const double *x, void *codes, size_t n, int small,
                                     scratch_t *s, int *finite)
{
    const uint64_t per_block = DPC_BLOCK_BYTES / sizeof *s->keystream;
    uint64_t first = start / per_block, last = (start + n - 1) / per_block;
    kernels->keystream(key, 0, first, (size_t)(last - first + 1), (uint8_t *)s->keystream);
    const uint32_t *words = s->keystream + start % per_block;
    size_t n_open = 0;
    if (small) {
        /* All are settled from all of their bits, and none by the kernel, whose first try would only
         * be overwritten. */
        *finite &= all_finite(x, n);
        for (; n_open < n; n_open++) {
            s->open[n_open] = (uint16_t)n_open;
        }
    } else {
        n_open = kernels->encode(rows, x, words, n, codes, s->open, finite);
    }
    if (!*finite) {
        return;
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
    wipe_all(&s, n);
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
    wipe_all(&s, n);
    dpc_wipe(wide, (n < CHUNK ? n : CHUNK) * sizeof wide[0]);
    return finite ? DPC_OK : DPC_ERR_NOT_FINITE;
}
