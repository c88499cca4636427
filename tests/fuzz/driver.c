/* Runs a target of libFuzzer without libFuzzer: on seeds, and on mutations of them.
 *
 * fuzz_x [RUNS]         seeds and so many mutations, the same at every run
 * fuzz_x --seeds DIR    writes the seeds to files, as a first corpus for libFuzzer
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "target.h"

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
    for (uint32_t number = 0; number < fuzz_n_seeds; number++) {
        fuzz_state = number + 1;
        const size_t size = fuzz_seed(number, data);
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
    for (uint32_t number = 0; number < fuzz_n_seeds; number++) {
        fuzz_state = number + 1;
        const size_t size = fuzz_seed(number, seed);
        LLVMFuzzerTestOneInput(seed, size);
        for (unsigned long run = 0; run < runs / fuzz_n_seeds; run++) {
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
    printf("%u seeds and %lu mutations\n", (unsigned)fuzz_n_seeds, runs / fuzz_n_seeds * fuzz_n_seeds);
    return 0;
}
