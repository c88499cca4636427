#include "dpcore/shamir.h"

typedef struct {
    uint64_t high, low;
} element_t;

static element_t load(const uint8_t bytes[DPC_SHAMIR_BYTES])
{
    element_t a = {0, 0};
    for (int i = 0; i < 8; i++) {
        a.high = a.high << 8 | bytes[i];
        a.low = a.low << 8 | bytes[8 + i];
    }
    return a;
}

static void store(element_t a, uint8_t bytes[DPC_SHAMIR_BYTES])
{
    for (int i = 0; i < 8; i++) {
        bytes[i] = (uint8_t)(a.high >> (56 - 8 * i));
        bytes[8 + i] = (uint8_t)(a.low >> (56 - 8 * i));
    }
}

static element_t add(element_t a, element_t b)
{
    a.high ^= b.high;
    a.low ^= b.low;
    return a;
}

/* a * point: the 15 bits that leave the top come back times x^7 + x^2 + x + 1. Branches on the
 * public point only. */
static element_t scale(element_t a, uint32_t point)
{
    element_t product = {0, 0};
    uint64_t top = 0;
    if (point & 1) {
        product = a;
    }
    for (uint32_t bit = 1; point >> bit; bit++) {
        if (point >> bit & 1) {
            product.low ^= a.low << bit;
            product.high ^= a.high << bit | a.low >> (64 - bit);
            top ^= a.high >> (64 - bit);
        }
    }
    product.low ^= top ^ top << 1 ^ top << 2 ^ top << 7;
    return product;
}

/* a * b, one bit of b a time, without a branch on either. */
static element_t multiply(element_t a, element_t b)
{
    element_t product = {0, 0};
    for (int i = 127; i >= 0; i--) {
        uint64_t carry = (uint64_t)0 - (product.high >> 63);
        product.high = product.high << 1 | product.low >> 63;
        product.low = product.low << 1 ^ (carry & 0x87);
        uint64_t take = (uint64_t)0 - ((i < 64 ? b.low >> i : b.high >> (i - 64)) & 1);
        product.high ^= a.high & take;
        product.low ^= a.low & take;
    }
    return product;
}

/* a^(2^128 - 2). */
static element_t invert(element_t a)
{
    element_t result = {0, 1};
    for (int i = 0; i < 127; i++) {
        a = multiply(a, a);
        result = multiply(result, a);
    }
    return result;
}

void dpc_shamir_split(const uint8_t *coefficients, size_t threshold, size_t n_elements,
                      const uint16_t *points, size_t n_points, uint8_t *shares)
{
    const size_t row = n_elements * DPC_SHAMIR_BYTES;
    for (size_t e = 0; e < n_elements; e++) {
        for (size_t p = 0; p < n_points; p++) {
            element_t value = {0, 0};
            for (size_t c = 0; c < threshold; c++) {
                value = add(scale(value, points[p]),
                            load(coefficients + c * row + e * DPC_SHAMIR_BYTES));
            }
            store(value, shares + p * row + e * DPC_SHAMIR_BYTES);
        }
    }
}

/* weight_p = P / (x_p * prod over q != p of (x_p + x_q)) with P the product of all points. The
 * denominators are inverted together: running products forwards, one inversion, and back. */
void dpc_shamir_weights(const uint16_t *points, size_t n_points, uint8_t *weights)
{
    element_t all = {0, 1}, running = {0, 1};
    for (size_t p = 0; p < n_points; p++) {
        all = scale(all, points[p]);
        store(running, weights + p * DPC_SHAMIR_BYTES);
        running = scale(running, points[p]);
        for (size_t q = 0; q < n_points; q++) {
            if (q != p) {
                running = scale(running, (uint32_t)points[p] ^ points[q]);
            }
        }
    }
    element_t inverse = invert(running);
    for (size_t p = n_points; p-- > 0;) {
        element_t before = load(weights + p * DPC_SHAMIR_BYTES);
        store(multiply(all, multiply(inverse, before)), weights + p * DPC_SHAMIR_BYTES);
        inverse = scale(inverse, points[p]);
        for (size_t q = 0; q < n_points; q++) {
            if (q != p) {
                inverse = scale(inverse, (uint32_t)points[p] ^ points[q]);
            }
        }
    }
}

void dpc_shamir_combine(const uint8_t *weights, const uint8_t *shares, size_t n_points,
                        size_t n_elements, uint8_t *secret)
{
    const size_t row = n_elements * DPC_SHAMIR_BYTES;
    for (size_t e = 0; e < n_elements; e++) {
        element_t sum = {0, 0};
        for (size_t p = 0; p < n_points; p++) {
            element_t share = load(shares + p * row + e * DPC_SHAMIR_BYTES);
            sum = add(sum, multiply(load(weights + p * DPC_SHAMIR_BYTES), share));
        }
        store(sum, secret + e * DPC_SHAMIR_BYTES);
    }
}
