/* LSTM cells on buffers without a byte to spare, for the sanitizers to watch; gradients against
 * differences. */
#include <math.h>

#include "dpcore/simd.h"

#include "check.h"

static uint64_t state = 1;

static float next_value(float size)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return size * ((float)(state >> 40) / 8388608.0f - 1.0f);
}

static float *values(size_t n, float size)
{
    float *p = exactly(n * sizeof *p);
    for (size_t i = 0; i < n; i++) {
        p[i] = next_value(size);
    }
    return p;
}

/* Weighted sum of max(h, 0), with the signs of h where the slope is taken: no kink nearby. */
static double objective(const dpc_kernels_t *kernels, const dpc_lstm_t *cells, size_t n,
                        const float *start)
{
    double sum = 0;
    kernels->lstm_forward(cells);
    for (size_t i = 0; i < n; i++) {
        sum += start[i] > 0 ? (double)cells->h[i] * (double)cells->dh[i] : 0;
    }
    return sum;
}

static void check_slope(const dpc_kernels_t *kernels, const dpc_lstm_t *cells, size_t n,
                        const float *start, float *weight, float slope)
{
    const float kept = *weight, step = 1e-2f;
    *weight = kept + step;
    double above = objective(kernels, cells, n, start);
    *weight = kept - step;
    double below = objective(kernels, cells, n, start);
    *weight = kept;
    CHECK(fabs((above - below) / (2 * (double)step) - (double)slope) < 2e-2 * (1 + fabs(slope)));
}

static void test_cells(const dpc_kernels_t *kernels, size_t rows, size_t steps, size_t hidden)
{
    const size_t n = rows * steps * hidden, width = 4 * hidden;
    float *x = values(rows * steps, 1.0f), *wx = values(width, 0.5f), *bias = values(width, 0.5f);
    float *wh = values(hidden * width, 0.3f), *dh = values(n, 1.0f);
    float *dwx = values(width, 9.0f), *dwh = values(hidden * width, 9.0f), *dbias = values(width, 9.0f);
    dpc_lstm_t cells = {hidden, steps, rows, x, wx, wh, bias, values(n, 1), values(n, 1),
                        values(4 * n, 1), dh, dwx, dwh, dbias, values(dpc_lstm_scratch(hidden), 1)};
    kernels->lstm_forward(&cells);
    for (size_t i = 0; i < n; i++) {
        CHECK(fabsf(cells.h[i]) < 1);
    }
    float *start = values(n, 1);
    memcpy(start, cells.h, n * sizeof *start);
    kernels->lstm_backward(&cells);
    for (size_t i = 0; i < width; i += 7) {
        check_slope(kernels, &cells, n, start, wx + i, dwx[i]);
        check_slope(kernels, &cells, n, start, bias + i, dbias[i]);
        const size_t place = (i % hidden) * width + i;
        check_slope(kernels, &cells, n, start, wh + place, dwh[place]);
    }
    for (size_t i = 0; i < rows * steps; i++) {
        x[i] *= 1e30f;
    }
    kernels->lstm_forward(&cells);
    for (size_t i = 0; i < n; i++) {
        CHECK(isfinite(cells.h[i]));
    }
    float *all[] = {x, wx, wh, bias, cells.h, cells.c, cells.gates, dh, dwx, dwh, dbias,
                    cells.scratch, start};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        free(all[i]);
    }
}

int main(void)
{
    static const size_t rows[] = {1, 2, 7, 8, 9, 19};
    for (int level = 0; level < DPC_LEVEL_END; level++) {
        const dpc_kernels_t *kernels = dpc_kernels_at((enum dpc_level)level);
        for (size_t i = 0; kernels != NULL && i < sizeof rows / sizeof *rows; i++) {
            test_cells(kernels, rows[i], 1 + i, 16);
            test_cells(kernels, rows[i], 5, 32);
        }
    }
    return failures != 0;
}
