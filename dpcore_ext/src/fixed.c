#include <math.h>

#include "dpcore/sample.h"
#include "private/floats.h"

/* v = x + 2^62 lies in 0, ..., 2^63 for a small x; only above that the top bits of v and v - 1 are
 * both set. No comparison, which old vector units lack for 64 bits. */
int dpc_all_small(const int64_t *x, size_t n)
{
    uint64_t seen = 0;
    for (size_t i = 0; i < n; i++) {
        uint64_t v = (uint64_t)x[i] + ((uint64_t)1 << 62);
        seen |= v & (v - 1);
    }
    return seen >> 63 == 0;
}

/* llrint rounds ties to even in the default rounding mode, in one instruction. */
enum dpc_status dpc_quantize(const double *x, double lower, double upper, int exponent, int64_t *q,
                             size_t n)
{
    const double unit = ldexp(1.0, -exponent), limit = 0x1p62;
    int finite = 1, in_range = 1;
    for (size_t i = 0; i < n; i++) {
        double value = x[i];
        finite &= value - value == 0.0;
        value = value < lower ? lower : value;
        value = value > upper ? upper : value;
        value *= unit;
        in_range &= value > -limit && value < limit;
        q[i] = in_range & finite ? llrint(value) : 0;
    }
    return !finite ? DPC_ERR_NOT_FINITE : !in_range ? DPC_ERR_RANGE : DPC_OK;
}

void dpc_dequantize(const int64_t *q, int exponent, double *y, size_t n)
{
    const double unit = ldexp(1.0, exponent);
    for (size_t i = 0; i < n; i++) {
        int64_t value = q[i];
        y[i] = (double)value * unit;
    }
}
