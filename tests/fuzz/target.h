/* What a target of libFuzzer tells the driver: seeds of its own, from which mutations are made. */
#ifndef DPC_TESTS_TARGET_H
#define DPC_TESTS_TARGET_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_BYTES = 32768 };

#define REQUIRE(condition) \
    do {                   \
        if (!(condition)) {\
            abort();       \
        }                  \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

extern const uint32_t fuzz_n_seeds;
/* Seed `number` into out[MOST_BYTES]; returns its size, at least 1. */
size_t fuzz_seed(uint32_t number, uint8_t *out);

/* Random numbers, the same at every run: the driver sets the state to number + 1 before each seed. */
extern uint64_t fuzz_state;
static inline uint32_t next_random(void)
{
    fuzz_state = fuzz_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(fuzz_state >> 33);
}

static inline void *exactly(size_t bytes)
{
    void *memory = malloc(bytes > 0 ? bytes : 1);
    REQUIRE(memory != NULL);
    return memory;
}

static inline void *copy_of(const void *data, size_t bytes)
{
    void *memory = exactly(bytes);
    if (bytes > 0) {
        memcpy(memory, data, bytes);
    }
    return memory;
}

#endif
