/* k-means and labelings on buffers without a byte to spare, for the sanitizers to watch. */
#include <math.h>

#include "dpcore/cluster.h"
#include "dpcore/labeling.h"

#include "check.h"

static uint64_t state = 1;

static double next_uniform(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (double)(state >> 33) / 2147483648.0;
}

static void test_kmeans(const dpc_kernels_t *kernels, size_t n, size_t d, size_t k)
{
    size_t chunk = dpc_kmeans_chunk(n), n_chunks = (n + chunk - 1) / chunk;
    size_t width = dpc_kmeans_partial(k, d);
    double *x = exactly(n * d * sizeof *x), *uniform = exactly(k * sizeof *uniform);
    dpc_kmeans_f64_t run;
    memset(&run, 0, sizeof run);
    run.x = x;
    run.n = n;
    run.d = d;
    run.k = k;
    run.chunk = chunk;
    run.centers = exactly(k * d * sizeof(double));
    run.bias = exactly(k * sizeof(double));
    run.labels = exactly(n * sizeof(int32_t));
    run.distances = exactly(n * sizeof(double));
    run.partial = exactly(n_chunks * width * sizeof(double));
    run.total = exactly(width * sizeof(double));
    for (size_t i = 0; i < n * d; i++) {
        x[i] = next_uniform() - 0.5;
    }
    for (size_t c = 0; c < k; c++) {
        uniform[c] = next_uniform();
    }
    for (size_t i = 0; i < n; i++) {
        run.labels[i] = -1;
    }
    dpc_kmeans_plusplus_f64(kernels, &run, uniform);
    dpc_kmeans_lloyd_f64(kernels, &run, 20, 0.0);
    double inertia = 0.0;
    for (size_t i = 0; i < n; i++) {
        CHECK(run.labels[i] >= 0 && (size_t)run.labels[i] < k);
        inertia += run.distances[i];
    }
    CHECK(fabs(inertia - run.inertia) <= 1e-9 * (1.0 + inertia));
    free(x);
    free(uniform);
    free(run.centers);
    free(run.bias);
    free(run.labels);
    free(run.distances);
    free(run.partial);
    free(run.total);
}

static void test_labeling(size_t k, size_t n_labels)
{
    double *gram = exactly(k * k * sizeof *gram), *cross = exactly(n_labels * k * sizeof *cross);
    double *mean = exactly(k * sizeof *mean), *target_mean = exactly(n_labels * sizeof *target_mean);
    double *scratch = exactly(dpc_label_scratch(k, n_labels) * sizeof *scratch);
    double *delta = exactly(k * n_labels * sizeof *delta), *swap = exactly(k * k * sizeof *swap);
    int32_t *labels = exactly(3 * k * sizeof *labels), *order = exactly(k * sizeof *order);
    double objectives[3];
    /* m with one row per cluster, so that gram = m^T m is known to be symmetric. */
    double *m = exactly(k * k * sizeof *m);
    for (size_t i = 0; i < k * k; i++) {
        m[i] = next_uniform();
    }
    for (size_t a = 0; a < k; a++) {
        for (size_t b = 0; b < k; b++) {
            gram[a * k + b] = 0.0;
            for (size_t i = 0; i < k; i++) {
                gram[a * k + b] += m[i * k + a] * m[i * k + b];
            }
        }
        mean[a] = next_uniform() / (double)k;
        order[a] = (int32_t)(k - 1 - a);
    }
    for (size_t i = 0; i < n_labels * k; i++) {
        cross[i] = next_uniform() * (double)k / 2;
    }
    for (size_t y = 0; y < n_labels; y++) {
        target_mean[y] = next_uniform();
    }
    for (int product = 0; product < 2; product++) {
        dpc_labeling_t problem = {k, n_labels, gram, product ? mean : NULL, 0.01, 1e-6};
        dpc_target_t target = {cross, 100.0, target_mean};
        for (size_t i = 0; i < 3 * k; i++) {
            labels[i] = (int32_t)(next_uniform() * (double)n_labels);
        }
        dpc_label_search(&problem, &target, labels, 3, objectives, scratch);
        dpc_label_deltas(&problem, &target, labels, scratch, delta, swap);
        if (!product) {
            for (size_t i = 0; i < k * n_labels; i++) {
                CHECK(delta[i] > -1e-9);
            }
            double error = dpc_label_error(&problem, &target, labels, scratch);
            CHECK(fabs(error - objectives[0]) < 1e-9);
            double monotone = dpc_label_monotone(&problem, &target, order, labels, scratch);
            for (size_t c = 0; c + 1 < k; c++) {
                CHECK(labels[order[c]] <= labels[order[c + 1]]);
            }
            if (k <= 6) {
                double best = dpc_label_enumerate(&problem, &target, labels, scratch);
                CHECK(best <= monotone + 1e-9);
                CHECK(best <= objectives[0] + 1e-9);
            }
        }
    }
    free(gram);
    free(cross);
    free(mean);
    free(target_mean);
    free(scratch);
    free(delta);
    free(swap);
    free(labels);
    free(order);
    free(m);
}

int main(void)
{
    static const size_t sizes[] = {1, 2, 7, 8, 31, 32, 33, 63, 65, 4097};
    for (int level = 0; level < DPC_LEVEL_END; level++) {
        const dpc_kernels_t *kernels = dpc_kernels_at((enum dpc_level)level);
        for (size_t i = 0; kernels != NULL && i < sizeof sizes / sizeof *sizes; i++) {
            test_kmeans(kernels, sizes[i], 1 + i % 6, 1);
            test_kmeans(kernels, sizes[i], 5, sizes[i] < 9 ? sizes[i] : 9);
        }
    }
    for (size_t k = 1; k <= 20; k++) {
        test_labeling(k, 1 + k % 5);
        test_labeling(k, 5);
    }
    return failures != 0;
}
