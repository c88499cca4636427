/* Masks and secret sharing on buffers without a byte to spare, for the sanitizers to watch. */
#include "dpcore/mask.h"
#include "dpcore/shamir.h"

#include "check.h"

enum { N_KEYS = 3, MOST = 5000 };

static uint64_t state = 1;

static uint8_t next_byte(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint8_t)(state >> 40);
}

/* The sum of keystreams, one after the other, from the baseline's keystream. */
static void expect_u64(const uint8_t *keys, const uint8_t *negative, uint64_t *acc, size_t n)
{
    size_t n_blocks = (n * 8 + 63) / 64;
    uint8_t *stream = exactly(n_blocks * 64);
    for (int k = 0; k < N_KEYS; k++) {
        dpc_key_t key;
        dpc_key_load(&key, keys + 32 * k);
        dpc_kernels_at(DPC_BASELINE)->keystream(&key, 0, 0, n_blocks, stream);
        for (size_t i = 0; i < n; i++) {
            uint64_t word;
            memcpy(&word, stream + 8 * i, 8);
            acc[i] = negative[k] ? acc[i] - word : acc[i] + word;
        }
    }
    free(stream);
}

static void masks_equal_keystreams_at_every_level(void)
{
    static const size_t lengths[] = {0, 1, 7, 8, 9, 31, 32, 33, 127, 128, 129, 2047, 2049, MOST};
    const uint8_t negative[N_KEYS] = {0, 1, 0};
    uint8_t keys[32 * N_KEYS];
    for (size_t i = 0; i < sizeof keys; i++) {
        keys[i] = next_byte();
    }
    for (size_t l = 0; l < sizeof lengths / sizeof lengths[0]; l++) {
        size_t n = lengths[l];
        uint64_t *expected = exactly(n * 8);
        memset(expected, 0, n * 8);
        expect_u64(keys, negative, expected, n);
        for (int level = 0; level < DPC_LEVEL_END; level++) {
            const dpc_kernels_t *kernels = dpc_kernels_at((enum dpc_level)level);
            if (kernels == NULL) {
                continue;
            }
            uint64_t *acc = exactly(n * 8);
            memset(acc, 0, n * 8);
            dpc_mask_add_u64(kernels, keys, negative, N_KEYS, 0, acc, n);
            CHECK(n == 0 || memcmp(acc, expected, n * 8) == 0);
            free(acc);
            uint32_t *half = exactly(n * 4), *undone = exactly(n * 4);
            const uint8_t opposite[N_KEYS] = {1, 0, 1};
            memset(half, 7, n * 4);
            memset(undone, 7, n * 4);
            dpc_mask_add_u32(kernels, keys, negative, N_KEYS, 5, half, n);
            CHECK(n < 8 || memcmp(half, undone, n * 4) != 0);
            dpc_mask_add_u32(kernels, keys, opposite, N_KEYS, 5, half, n);
            CHECK(n == 0 || memcmp(half, undone, n * 4) == 0);
            free(half);
            free(undone);
        }
        free(expected);
    }
}

static void shares_give_the_secret_back(void)
{
    enum { THRESHOLD = 4, N = 9, ELEMENTS = 3, ROW = ELEMENTS * DPC_SHAMIR_BYTES };
    uint8_t *coefficients = exactly(THRESHOLD * ROW), *shares = exactly(N * ROW);
    uint8_t *weights = exactly(THRESHOLD * DPC_SHAMIR_BYTES), *secret = exactly(ROW);
    uint16_t points[N];
    for (size_t i = 0; i < THRESHOLD * ROW; i++) {
        coefficients[i] = next_byte();
    }
    for (size_t i = 0; i < N; i++) {
        points[i] = (uint16_t)(i == N - 1 ? 65535 : 3 * i + 1);
    }
    dpc_shamir_split(coefficients, THRESHOLD, ELEMENTS, points, N, shares);
    for (size_t first = 0; first + THRESHOLD <= N; first++) {
        dpc_shamir_weights(points + first, THRESHOLD, weights);
        dpc_shamir_combine(weights, shares + first * ROW, THRESHOLD, ELEMENTS, secret);
        CHECK(memcmp(secret, coefficients + (THRESHOLD - 1) * ROW, ROW) == 0);
    }
    dpc_shamir_weights(points, THRESHOLD - 1, weights);
    dpc_shamir_combine(weights, shares, THRESHOLD - 1, ELEMENTS, secret);
    CHECK(memcmp(secret, coefficients + (THRESHOLD - 1) * ROW, ROW) != 0);
    free(coefficients);
    free(shares);
    free(weights);
    free(secret);
}

int main(void)
{
    masks_equal_keystreams_at_every_level();
    shares_give_the_secret_back();
    if (failures > 0) {
        fprintf(stderr, "%d checks failed\n", failures);
        return 1;
    }
    return 0;
}
