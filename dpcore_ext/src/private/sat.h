/* Saturating arithmetic: what does not fit becomes the nearest value that does. */
#ifndef DPC_PRIVATE_SAT_H
#define DPC_PRIVATE_SAT_H

#include <stdint.h>

static inline uint64_t sat_add(uint64_t a, uint64_t b)
{
    uint64_t sum = a + b;
    return sum < a ? UINT64_MAX : sum;
}

static inline uint64_t sat_shift(uint64_t a, uint32_t shift)
{
    return shift && a >> (64 - shift) ? UINT64_MAX : a << shift;
}

/* x plus or minus a magnitude, held inside int64. */
static inline int64_t sat_offset(int64_t x, uint64_t magnitude, int negative)
{
    uint64_t room = negative ? (uint64_t)x - (uint64_t)INT64_MIN : (uint64_t)INT64_MAX - (uint64_t)x;
    if (magnitude > room) {
        return negative ? INT64_MIN : INT64_MAX;
    }
    return (int64_t)(negative ? (uint64_t)x - magnitude : (uint64_t)x + magnitude);
}

#endif
