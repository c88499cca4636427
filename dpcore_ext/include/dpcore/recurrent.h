/* LSTM cells with one input, as many separate groups of weights as there are nodes and channels.
 *
 * One call works on one group: all rows (windows) through all steps, from the state zero. Rows are
 * taken in order and sums run in a fixed order, so a result does not depend on the SIMD level or on
 * which thread works on which group. Gates stand in the order input, candidate, forget, output.
 */
#ifndef DPCORE_RECURRENT_H
#define DPCORE_RECURRENT_H

#include <stddef.h>
#include <stdint.h>

/* Memory of one group; all of it belongs to the caller. H is `hidden`, a multiple of 16. */
typedef struct dpc_lstm {
    size_t hidden, n_steps, n_rows;
    const float *x;       /* n_rows * n_steps */
    const float *wx;      /* 4 H */
    const float *wh;      /* H * 4 H: from the state to the gates */
    const float *bias;    /* 4 H */
    float *h;             /* OUT of forward, n_rows * n_steps * H: what the cells put out */
    float *c;             /* OUT of forward, n_rows * n_steps * H: their states */
    float *gates;         /* OUT of forward, n_rows * n_steps * 4 H: after their nonlinearities */
    const float *dh;      /* backward: gradient of max(h, 0), n_rows * n_steps * H */
    float *dwx;           /* OUT of backward, 4 H */
    float *dwh;           /* OUT of backward, H * 4 H */
    float *dbias;         /* OUT of backward, 4 H */
    float *scratch;       /* backward: dpc_lstm_scratch(H) floats */
} dpc_lstm_t;

/* Floats of memory that the backward pass of a group works in. */
static inline size_t dpc_lstm_scratch(size_t hidden)
{
    return 4 * hidden * hidden + 8 * 6 * hidden;
}

#endif
