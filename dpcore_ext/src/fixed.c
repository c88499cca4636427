#include <math.h>

#include "dpcore/sample.h"

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
