/* What every C test needs: counted failures, and buffers without a byte to spare. */
#ifndef DPC_TESTS_CHECK_H
#define DPC_TESTS_CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures;

#define CHECK(condition)                                                                          \
    do {                                                                                          \
        if (!(condition)) {                                                                       \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                       \
            failures++;                                                                           \
        }                                                                                         \
    } while (0)

/* Exactly so many bytes: the sanitizer sees an access beyond them. */
static inline void *exactly(size_t bytes)
{
    void *memory = malloc(bytes > 0 ? bytes : 1);
    if (memory == NULL) {
        fprintf(stderr, "out of memory\n");
        exit(2);
    }
    return memory;
}

#endif
