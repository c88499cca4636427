"""The fixed-point arithmetic of the rejection step, reached by compiling sample.c once more.

Sampling cannot tell whether the last bits of an acceptance probability are right; here the decision
is asked for on either side of it. Both builds, with and without a 128-bit type, must agree.
"""

import ctypes

import mpmath
import numpy as np
import pytest
import twin
from native_support import compile_library

import dpcore_ext
from dpcore_ext.sample import GAUSS_GUARD

SOURCE = """
#include "sample.c"

typedef struct { uint64_t low, high; } wide_t; /* in memory a little-endian 128-bit integer */

static u128_t in(const wide_t *w) { u128_t v = {w->high, w->low}; return v; }
static void out(wide_t *w, u128_t v) { w->high = v.high; w->low = v.low; }

void test_exp(const wide_t *x, wide_t *y) { out(y, exp_neg_128(in(x))); }
void test_mul(const wide_t *a, const wide_t *b, wide_t *y) { out(y, mul_high_128(in(a), in(b))); }
void test_div(const wide_t *a, uint32_t k, wide_t *y) { out(y, div_128(in(a), k)); }
void test_mul_64(uint64_t a, uint64_t b, wide_t *y) { out(y, mul_64(a, b)); }

int test_accepted(const wide_t *kappa, uint64_t guard, uint64_t c, const wide_t *f, const wide_t *u)
{
    dpc_gauss_t law;
    memset(&law, 0, sizeof law);
    law.kappa_high = kappa->high;
    law.kappa_low = kappa->low;
    law.guard = guard;
    return accepted(&law, c, in(f), in(u));
}
"""
M128 = 2**128 - 1
EDGES = [0, 1, 2, 2**32 - 1, 2**32, 2**63, 2**64 - 1, 2**64, 2**64 + 1, 2**127, M128 - 1, M128]


@pytest.fixture(scope="module", params=[[], ["-DDPC_PORTABLE"]], ids=["native", "portable"])
def native(request, tmp_path_factory):
    root = dpcore_ext.__path__[0]
    options = [f"-I{root}/include", f"-I{root}/src", "-std=c11", *request.param]
    library = compile_library(SOURCE, tmp_path_factory.mktemp("wide"), options)
    return ctypes.CDLL(str(library))


def wide(number):
    return number.to_bytes(16, "little")


def call(function, *arguments):
    result = ctypes.create_string_buffer(16)
    function(*arguments, result)
    return int.from_bytes(result.raw, "little")


def random_numbers(seed, n):
    random = np.random.default_rng(seed)
    numbers = [int.from_bytes(random.bytes(16), "little") for _ in range(n)]
    return [number >> (7 * i % 128) if i % 3 == 0 else number for i, number in enumerate(numbers)]


def test_products_and_quotients_are_exact(native):
    numbers = EDGES + random_numbers(1, 200)
    for a, b in zip(numbers, reversed(numbers), strict=True):
        assert call(native.test_mul, wide(a), wide(b)) == a * b >> 128
        low = [ctypes.c_uint64(v & (2**64 - 1)) for v in (a, b)]
        assert call(native.test_mul_64, *low) == low[0].value * low[1].value
        for k in (1, 2, 3, 27, 2**32 - 1):
            assert call(native.test_div, wide(a), ctypes.c_uint32(k)) == a // k
    for a in EDGES:
        for b in EDGES:
            assert call(native.test_mul, wide(a), wide(b)) == a * b >> 128


def test_the_exponential_equals_the_twin_and_is_exact_to_115_bits(native):
    with mpmath.workprec(300):
        for exponent in EDGES + random_numbers(2, 1000):
            value = call(native.test_exp, wide(exponent))
            assert value == twin.exp_negative_128(exponent)
            exact = mpmath.exp(-mpmath.mpf(exponent) / 2**126) * 2**128
            assert abs(value - exact) < 2**13


def candidates(seed):
    """Laws, cells and offsets as they occur: s from 16 to 32 cells, c up to 20 s."""
    random = np.random.default_rng(seed)
    for f in EDGES + random_numbers(seed, 300):
        s = float(random.uniform(16.01, 32))
        c = int(random.integers(0, int(20 * s)))
        kappa = int(2**136 / mpmath.mpf(s) ** 2)
        yield twin.Gauss(twin.Table(()), kappa, 1, False), c, f


def accepted(native, law, guard, c, f, u):
    guard, c = ctypes.c_uint64(guard), ctypes.c_uint64(c)
    return native.test_accepted(wide(law.kappa), guard, c, wide(f), wide(u)) == 1


def test_the_decision_falls_exactly_at_the_probability_of_the_twin(native):
    for law, c, f in candidates(3):
        bound = law.acceptance(c, f)
        for u, expected in ((bound - 1, True), (bound, False), (0, True), (M128, False)):
            for guard in (GAUSS_GUARD, 2**64 - 1):
                assert accepted(native, law, guard, c, f, u) is expected, (c, f, u, guard)


def test_the_64_bit_decision_is_right_wherever_it_is_taken(native):
    """Just outside the band that it leaves to the 128-bit one, and with half that band."""
    for law, c, f in candidates(4):
        bound = law.acceptance(c, f)
        for distance in (GAUSS_GUARD // 2, GAUSS_GUARD, GAUSS_GUARD + 1, 2 * GAUSS_GUARD):
            for u in (bound + (distance << 64), bound - (distance << 64)):
                if 0 <= u <= M128:
                    for guard in (GAUSS_GUARD // 2, GAUSS_GUARD):
                        assert accepted(native, law, guard, c, f, u) is (u < bound)
