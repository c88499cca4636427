#include "dpcore/labeling.h"

#include <math.h>
#include <string.h>

#ifdef __clang__
#pragma STDC FP_CONTRACT OFF /* gcc does not contract in ISO mode: all compilers round alike */
#endif

/* The scratch memory of a search: slopes, then the residual of the means. */
typedef struct {
    const dpc_labeling_t *problem;
    const dpc_target_t *target;
    int32_t *labels;
    double *slope;    /* n_labels * k */
    double *residual; /* n_labels */
    double *current;  /* k: gram[c][c] - slope[labels[c]][c] */
    double error, prior;
    double gain; /* what a move has to lower the objective by */
} state_t;

size_t dpc_label_scratch(size_t k, size_t n_labels)
{
    size_t search = n_labels * k + n_labels + k + 2 * k; /* and the digits of an enumeration */
    size_t monotone = (k + 1) * (k + 1) + 2 * n_labels * (k + 1) + k + 1;
    return search > monotone ? search : monotone;
}

/* Slopes, error and prior of the labels as they stand. */
static void refresh(state_t *s)
{
    const size_t k = s->problem->k, n_labels = s->problem->n_labels;
    const double *cross = s->target->cross, *mean = s->problem->mean;
    for (size_t i = 0; i < n_labels * k; i++) {
        s->slope[i] = -cross[i];
    }
    for (size_t c = 0; c < k; c++) {
        double *slope = s->slope + (size_t)s->labels[c] * k;
        const double *gram = s->problem->gram + c * k;
        for (size_t e = 0; e < k; e++) {
            slope[e] += gram[e];
        }
    }
    double error = s->target->square;
    for (size_t c = 0; c < k; c++) {
        size_t at = (size_t)s->labels[c] * k + c;
        error += s->slope[at] - cross[at];
    }
    s->error = error;
    s->prior = 0.0;
    if (mean != NULL) {
        for (size_t y = 0; y < n_labels; y++) {
            s->residual[y] = -s->target->target_mean[y];
        }
        for (size_t c = 0; c < k; c++) {
            s->residual[s->labels[c]] += mean[c];
        }
        for (size_t y = 0; y < n_labels; y++) {
            s->prior += s->residual[y] * s->residual[y];
        }
    }
}

/* More than rounding can make of a move that changes nothing: otherwise a search takes such a move
 * and its reverse in turn, for ever. Slopes and errors are sums of about k terms, none of them larger
 * than square + trace(gram), and the factor of the means is at most that of their sizes. */
static double least_gain(const dpc_labeling_t *problem, const dpc_target_t *target)
{
    const size_t k = problem->k;
    double size = target->square;
    for (size_t c = 0; c < k; c++) {
        size += problem->gram[c * k + c];
    }
    if (problem->mean != NULL) {
        double mean = 0.0, most = problem->eta;
        for (size_t c = 0; c < k; c++) {
            mean += fabs(problem->mean[c]);
        }
        for (size_t y = 0; y < problem->n_labels; y++) {
            most += target->target_mean[y] * target->target_mean[y];
        }
        size *= problem->scale * (most + mean * mean);
    }
    return DPC_LABEL_GAIN + size * ((double)k + 8.0) * 0x1p-48;
}

static state_t begin(const dpc_labeling_t *problem, const dpc_target_t *target, int32_t *labels,
                     double *scratch)
{
    const size_t k = problem->k, n_labels = problem->n_labels;
    state_t s = {.problem = problem, .target = target, .labels = labels, .slope = scratch,
                 .residual = scratch + n_labels * k, .current = scratch + n_labels * k + n_labels,
                 .gain = least_gain(problem, target)};
    refresh(&s);
    return s;
}

static double objective(const dpc_labeling_t *problem, double error, double prior)
{
    return problem->mean == NULL ? error : error * problem->scale * (problem->eta + prior);
}

static double reassign_error(const state_t *s, size_t c, size_t q)
{
    const size_t k = s->problem->k, p = (size_t)s->labels[c];
    return 2.0 * (s->problem->gram[c * k + c] + s->slope[q * k + c] - s->slope[p * k + c]);
}

static double swap_error(const state_t *s, size_t c, size_t e)
{
    const size_t k = s->problem->k, p = (size_t)s->labels[c] * k, q = (size_t)s->labels[e] * k;
    const double *gram = s->problem->gram;
    return 2.0 * (gram[c * k + c] + gram[e * k + e] - 2.0 * gram[c * k + e]) +
           2.0 * (s->slope[q + c] - s->slope[q + e] - s->slope[p + c] + s->slope[p + e]);
}

/* Change of the squared residual of the means when `weight` goes from label p to label q. */
static double prior_change(const state_t *s, size_t p, size_t q, double weight)
{
    return 2.0 * weight * (weight + s->residual[q] - s->residual[p]);
}

static double change(const state_t *s, double error_change, size_t p, size_t q, double weight)
{
    if (s->problem->mean == NULL) {
        return error_change;
    }
    double prior = s->prior + prior_change(s, p, q, weight);
    return objective(s->problem, s->error + error_change, prior) -
           objective(s->problem, s->error, s->prior);
}

static double weight_of(const state_t *s, size_t c)
{
    return s->problem->mean == NULL ? 0.0 : s->problem->mean[c];
}

/* c takes label q; error and prior are the caller's to change. */
static void relabel(state_t *s, size_t c, size_t q)
{
    const size_t k = s->problem->k, p = (size_t)s->labels[c];
    const double *gram = s->problem->gram + c * k;
    double *from = s->slope + p * k, *to = s->slope + q * k;
    for (size_t e = 0; e < k; e++) {
        from[e] -= gram[e];
        to[e] += gram[e];
    }
    if (s->problem->mean != NULL) {
        double weight = s->problem->mean[c];
        s->prior += prior_change(s, p, q, weight);
        s->residual[p] -= weight;
        s->residual[q] += weight;
    }
    s->labels[c] = (int32_t)q;
}

static int reassign_best(state_t *s)
{
    const size_t k = s->problem->k, n_labels = s->problem->n_labels;
    const double *gram = s->problem->gram;
    double best = -s->gain;
    size_t best_c = k, best_q = 0;
    if (s->problem->mean == NULL) {
        for (size_t c = 0; c < k; c++) {
            s->current[c] = gram[c * k + c] - s->slope[(size_t)s->labels[c] * k + c];
        }
        for (size_t q = 0; q < n_labels; q++) {
            const double *slope = s->slope + q * k;
            for (size_t c = 0; c < k; c++) {
                double delta = 2.0 * (s->current[c] + slope[c]);
                if (delta < best || (delta == best && c < best_c)) {
                    best = delta;
                    best_c = c;
                    best_q = q;
                }
            }
        }
    } else {
        for (size_t c = 0; c < k; c++) {
            size_t p = (size_t)s->labels[c];
            for (size_t q = 0; q < n_labels; q++) {
                double delta = q == p ? 0.0
                                      : change(s, reassign_error(s, c, q), p, q, weight_of(s, c));
                if (delta < best) {
                    best = delta;
                    best_c = c;
                    best_q = q;
                }
            }
        }
    }
    if (best_c == k || best >= -s->gain) {
        return 0;
    }
    double delta = reassign_error(s, best_c, best_q);
    relabel(s, best_c, best_q);
    s->error += delta;
    return 1;
}

static int swap_best(state_t *s)
{
    const size_t k = s->problem->k;
    double best = -s->gain;
    size_t best_c = k, best_e = k;
    for (size_t c = 0; c < k; c++) {
        for (size_t e = c + 1; e < k; e++) {
            size_t p = (size_t)s->labels[c], q = (size_t)s->labels[e];
            if (p == q) {
                continue;
            }
            double delta = change(s, swap_error(s, c, e), p, q, weight_of(s, c) - weight_of(s, e));
            if (delta < best) {
                best = delta;
                best_c = c;
                best_e = e;
            }
        }
    }
    if (best_c == k) {
        return 0;
    }
    size_t p = (size_t)s->labels[best_c], q = (size_t)s->labels[best_e];
    double delta = swap_error(s, best_c, best_e);
    relabel(s, best_c, q);
    relabel(s, best_e, p);
    s->error += delta;
    return 1;
}

double dpc_label_error(const dpc_labeling_t *problem, const dpc_target_t *target,
                       const int32_t *labels, double *scratch)
{
    /* Nothing below begin() writes the labels. */
    return begin(problem, target, (int32_t *)labels, scratch).error;
}

void dpc_label_deltas(const dpc_labeling_t *problem, const dpc_target_t *target,
                      const int32_t *labels, double *scratch, double *delta, double *swap)
{
    const size_t k = problem->k, n_labels = problem->n_labels;
    state_t s = begin(problem, target, (int32_t *)labels, scratch);
    for (size_t c = 0; c < k; c++) {
        for (size_t q = 0; delta != NULL && q < n_labels; q++) {
            delta[c * n_labels + q] = q == (size_t)labels[c] ? 0.0 : reassign_error(&s, c, q);
        }
        for (size_t e = 0; swap != NULL && e < k; e++) {
            swap[c * k + e] = labels[c] == labels[e] ? 0.0 : swap_error(&s, c, e);
        }
    }
}

uint64_t dpc_label_search(const dpc_labeling_t *problem, const dpc_target_t *target,
                          int32_t *starts, size_t n_starts, double *objectives, double *scratch)
{
    uint64_t n_moves = 0;
    for (size_t i = 0; i < n_starts; i++) {
        state_t s = begin(problem, target, starts + i * problem->k, scratch);
        /* A fresh objective is a function of the labels, and there are finitely many labelings:
         * with this the search ends, however the changes between two refreshes were rounded. */
        double last = objective(problem, s.error, s.prior);
        while (reassign_best(&s) || swap_best(&s)) {
            if (++n_moves % DPC_LABEL_REFRESH == 0) {
                refresh(&s);
                double here = objective(problem, s.error, s.prior);
                if (!(here < last)) {
                    break;
                }
                last = here;
            }
        }
        objectives[i] = objective(problem, s.error, s.prior);
    }
    return n_moves;
}

double dpc_label_enumerate(const dpc_labeling_t *problem, const dpc_target_t *target,
                           int32_t *labels, double *scratch)
{
    /* A reflected Gray code: each step changes one label by one. direction[] and the best labels so
     * far use the rest of the scratch memory. */
    const size_t k = problem->k, n_labels = problem->n_labels;
    memset(labels, 0, k * sizeof *labels);
    state_t s = begin(problem, target, labels, scratch);
    double *direction = s.current + k, *best_labels = direction + k;
    double best = objective(problem, s.error, s.prior);
    for (size_t c = 0; c < k; c++) {
        direction[c] = 1.0;
        best_labels[c] = 0.0;
    }
    for (uint64_t step = 1;; step++) {
        size_t c = 0;
        while (c < k) {
            double next = (double)labels[c] + direction[c];
            if (next >= 0.0 && next < (double)n_labels) {
                break;
            }
            direction[c] = -direction[c];
            c++;
        }
        if (c == k) {
            break;
        }
        size_t q = (size_t)((double)labels[c] + direction[c]);
        double delta = reassign_error(&s, c, q);
        relabel(&s, c, q);
        s.error += delta;
        if (step % DPC_LABEL_REFRESH == 0) {
            refresh(&s);
        }
        double here = objective(problem, s.error, s.prior);
        if (here < best - s.gain) {
            best = here;
            for (size_t e = 0; e < k; e++) {
                best_labels[e] = (double)labels[e];
            }
        }
    }
    for (size_t c = 0; c < k; c++) {
        labels[c] = (int32_t)best_labels[c];
    }
    refresh(&s);
    return objective(problem, s.error, s.prior);
}

double dpc_label_monotone(const dpc_labeling_t *problem, const dpc_target_t *target,
                          const int32_t *order, int32_t *labels, double *scratch)
{
    /* Labels take intervals [a, b) of the order, and the error is a sum over labels of
     *   inside[a][b] - 2 (reach[b] - reach[a]) + constant. */
    const size_t k = problem->k, n_labels = problem->n_labels, side = k + 1;
    const double *gram = problem->gram;
    double *inside = scratch, *cost = inside + side * side, *from = cost + n_labels * side;
    double *reach = from + n_labels * side;
    for (size_t b = 0; b < side; b++) {
        inside[b * side + b] = 0.0;
    }
    for (size_t b = 0; b < k; b++) {
        const double *row = gram + (size_t)order[b] * k;
        double added = row[order[b]];
        for (size_t a = b + 1; a-- > 0;) {
            inside[a * side + b + 1] = inside[a * side + b] + added;
            added += a > 0 ? 2.0 * row[order[a - 1]] : 0.0;
        }
    }
    for (size_t y = 0; y < n_labels; y++) {
        const double *cross = target->cross + y * k, *before = y ? cost + (y - 1) * side : NULL;
        reach[0] = 0.0;
        for (size_t c = 0; c < k; c++) {
            reach[c + 1] = reach[c] + cross[order[c]];
        }
        for (size_t b = 0; b < side; b++) {
            double best = INFINITY;
            size_t best_a = 0, last_a = y == 0 ? 0 : b;
            for (size_t a = 0; a <= last_a; a++) {
                double here = (y == 0 ? 0.0 : before[a]) + inside[a * side + b] -
                              2.0 * (reach[b] - reach[a]);
                if (here < best) {
                    best = here;
                    best_a = a;
                }
            }
            cost[y * side + b] = best;
            from[y * side + b] = (double)best_a;
        }
    }
    size_t b = k;
    for (size_t y = n_labels; y-- > 0;) {
        size_t a = (size_t)from[y * side + b];
        for (size_t c = a; c < b; c++) {
            labels[order[c]] = (int32_t)y;
        }
        b = a;
    }
    return dpc_label_error(problem, target, labels, scratch);
}
