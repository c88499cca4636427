/* 128-bit fixed point on two 64-bit limbs, with and without a compiler's 128-bit type. */
#ifndef DPC_PRIVATE_WIDE_H
#define DPC_PRIVATE_WIDE_H

#include <stdint.h>

typedef struct {
    uint64_t high, low;
} u128_t;

static inline u128_t mul_64(uint64_t a, uint64_t b)
{
    u128_t product;
#if defined(__SIZEOF_INT128__) && !defined(DPC_PORTABLE)
    __extension__ unsigned __int128 p = (unsigned __int128)a * b;
    product.high = (uint64_t)(p >> 64);
    product.low = (uint64_t)p;
#else
    uint64_t a0 = (uint32_t)a, a1 = a >> 32, b0 = (uint32_t)b, b1 = b >> 32;
    uint64_t low = a0 * b0, cross = a1 * b0 + (low >> 32), middle = a0 * b1 + (uint32_t)cross;
    product.high = a1 * b1 + (cross >> 32) + (middle >> 32);
    product.low = (middle << 32) | (uint32_t)low;
#endif
    return product;
}

static inline uint64_t mul_high(uint64_t a, uint64_t b) { return mul_64(a, b).high; }

/* Whether a - b - borrow, borrow being 0 or 1, falls below 0: 0 or 1, by logic alone, since compilers
 * make branches of comparisons, and those would tell the time of secrets apart. */
static inline uint64_t borrows(uint64_t a, uint64_t b, uint64_t borrow)
{
    return ((~a & b) | ((~a | b) & (a - b - borrow))) >> 63;
}

static inline int less_128(u128_t a, u128_t b)
{
    return (int)borrows(a.high, b.high, borrows(a.low, b.low, 0));
}

/* a + b, wrapping. */
static inline u128_t add_128(u128_t a, u128_t b)
{
    u128_t sum = {a.high + b.high, a.low + b.low};
    sum.high += sum.low < a.low;
    return sum;
}

/* floor(a * b / 2^128). */
static inline u128_t mul_high_128(u128_t a, u128_t b)
{
    u128_t low = mul_64(a.low, b.low), ab = mul_64(a.high, b.low), ba = mul_64(a.low, b.high);
    u128_t top = mul_64(a.high, b.high);
    u128_t middle = {0, low.high};
    u128_t part = {0, ab.low};
    middle = add_128(middle, part);
    part.low = ba.low;
    middle = add_128(middle, part);
    u128_t carry = {0, ab.high};
    top = add_128(top, carry);
    carry.low = ba.high;
    top = add_128(top, carry);
    carry.low = middle.high;
    return add_128(top, carry);
}

/* floor(a / k), k < 2^32. */
static inline u128_t div_128(u128_t a, uint32_t k)
{
    uint64_t part[4] = {a.high >> 32, (uint32_t)a.high, a.low >> 32, (uint32_t)a.low};
    uint64_t rest = 0;
    for (int i = 0; i < 4; i++) {
        uint64_t here = rest << 32 | part[i];
        part[i] = here / k;
        rest = here % k;
    }
    u128_t quotient = {part[0] << 32 | part[1], part[2] << 32 | part[3]};
    return quotient;
}

#endif
