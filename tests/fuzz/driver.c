/* Runs a target of libFuzzer without libFuzzer: on seeds, and on mutations of them.
 *
 * fuzz_x [RUNS]         seeds and so many mutations, the same at every run
 * fuzz_x --seeds DIR    writes the seeds to files, as a first corpus for libFuzzer
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { N_SEEDS = 3 * 16 * 4, MOST_BYTES = 4096 };

static uint64_t state = 1;

static uint32_t next_random(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33);
}

/* Every action, every size, and four lengths: empty, odd, a page of the small, and a long one. */
static size_t make_seed(uint32_t number, uint8_t *out)
{
    static const size_t lengths[4] = {0, 37, 256, 1500};
    const size_t length = lengths[number % 4];
    state = number + 1;
    out[0] = (uint8_t)(number / 64);
    out[1] = (uint8_t)(number / 4 % 16);
    for (size_t i = 0; i < length; i++) {
        out[2 + i] = (uint8_t)next_random();
    }
    return 2 + length;
}

static size_t mutate(uint8_t *data, size_t size)
{
    static const uint8_t extremes[4] = {0, 1, 0x7f, 0xff};
    for (uint32_t left = 1 + next_random() % 4; left > 0; left--) {
        const size_t place = next_random() % size;
        switch (next_random() % 4) {
        case 0:
            data[place] ^= (uint8_t)(1u << next_random() % 8);
            break;
        case 1:
            data[place] = extremes[next_random() % 4];
            break;
        case 2:
            size = 1 + next_random() % size;
            break;
        default:
            if (size < MOST_BYTES) {
                memmove(data + place + 1, data + place, size - place);
                size++;
            }
        }
    }
    return size;
}

static int write_seeds(const char *folder)
{
    static uint8_t data[MOST_BYTES];
    char path[1024];
    for (uint32_t number = 0; number < N_SEEDS; number++) {
        const size_t size = make_seed(number, data);
        snprintf(path, sizeof path, "%s/seed-%03u", folder, number);
        FILE *file = fopen(path, "wb");
        if (file == NULL || fwrite(data, 1, size, file) != size || fclose(file) != 0) {
            fprintf(stderr, "cannot write %s\n", path);
            return 1;
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "--seeds") == 0) {
        return write_seeds(argv[2]);
    }
    const unsigned long runs = argc > 1 ? strtoul(argv[1], NULL, 10) : 20000;
    static uint8_t seed[MOST_BYTES], data[MOST_BYTES];
    for (uint32_t number = 0; number < N_SEEDS; number++) {
        const size_t size = make_seed(number, seed);
        LLVMFuzzerTestOneInput(seed, size);
        for (unsigned long run = 0; run < runs / N_SEEDS; run++) {
            memcpy(data, seed, size);
            /* A buffer of the size: the sanitizer sees an access beyond it. */
            const size_t changed = mutate(data, size);
            uint8_t *exact = malloc(changed);
            if (exact == NULL) {
                return 2;
            }
            memcpy(exact, data, changed);
            LLVMFuzzerTestOneInput(exact, changed);
            free(exact);
        }
    }
    printf("%d seeds and %lu mutations\n", N_SEEDS, runs / N_SEEDS * N_SEEDS);
    return 0;
}
