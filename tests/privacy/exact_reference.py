"""A second reading of compiled laws, from the thresholds alone, as dpcore/sample.h tells it.

Nothing here calls `Digits.probability`, `check_ratio` or `dpcore._exact`; the tests compare them.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from math import prod

import mpmath
import numpy as np

from dpcore._laws import Digits, IntegerTable, Rejection
from dpcore_ext.rng import Key, keystream, keystream_at

ONE = 1 << 256
MASK_64 = (1 << 64) - 1
REFINE_LANE = 16


def as_mpf(value: Fraction | int) -> mpmath.mpf:
    value = Fraction(value)
    return mpmath.mpf(value.numerator) / value.denominator


def exp_below(x: Fraction, bits: int = 320) -> int:
    """An integer not above e**x * 2**bits, by interval arithmetic."""
    context = mpmath.iv
    before, context.prec = context.prec, bits + 160
    try:
        end = context.exp(context.mpf(x.numerator) / context.mpf(x.denominator)).a
        sign, mantissa, exponent, _ = end._mpi_[0]
    finally:
        context.prec = before
    assert sign == 0
    up = exponent + bits
    return int(mantissa) << up if up >= 0 else int(mantissa) >> -up


def masses(table: IntegerTable) -> list[int]:
    """Probabilities of a table's outcomes in units of 2**-256."""
    edges = [0, *table.thresholds, ONE]
    assert edges == sorted(edges)
    return [edges[i + 1] - edges[i] for i in range(len(edges) - 1)]


class Reading:
    """Exact probabilities of a `Digits` law."""

    def __init__(self, law: Digits) -> None:
        self.digits = [(masses(table), bits) for table, bits in law.digits]
        self.bits = sum(bits for _, bits in self.digits)
        self.top = masses(law.top)
        self.first = law.top.first
        self.tail = None if law.tail is None else masses(law.tail)
        self.symmetric = law.symmetric
        self.last = self.first + len(self.top) - 1

    def probability(self, x: int) -> Fraction:
        weight, order = self.weight(x)
        return Fraction(weight, ONE**order)

    def weight(self, x: int) -> tuple[int, int]:
        """Numerator and power of 2**-256 of the probability of x."""
        magnitude = abs(x) if self.symmetric else x
        if self.symmetric and magnitude == 0:
            return self._cell(0, 1)
        rest, digits = magnitude - self.symmetric, 1
        for table, bits in self.digits:
            digits *= table[rest & (1 << bits) - 1]
            rest >>= bits
        weight, order = self._cell(rest + self.symmetric, -1 if self.symmetric and x < 0 else 1)
        return digits * weight, order + len(self.digits)

    def _cell(self, cell: int, sign: int) -> tuple[int, int]:
        """The same for T = sign * cell."""
        if self.tail is None or cell < self.last:
            k = sign * cell - self.first
            return self.top[k] if 0 <= k < len(self.top) else 0, 1
        weight = self.top[0] if sign < 0 else self.top[-1]
        turns, rest = divmod(cell - self.last, len(self.tail) - 1)
        return weight * self.tail[-1] ** turns * self.tail[rest], turns + 2

    def total(self) -> Fraction:
        """Sum over the whole support: the tail is a geometric series, the digits factors."""
        digits = prod(sum(table) for table, _ in self.digits)
        ends = [self.top[-1]] + ([self.top[0]] if self.symmetric else [])
        inner = sum(self.top) - sum(ends)
        tail = Fraction(1)
        if self.tail is not None:
            tail = Fraction(sum(self.tail[:-1]), ONE) / (1 - Fraction(self.tail[-1], ONE))
        return Fraction(digits, ONE ** len(self.digits)) * (inner + sum(ends) * tail) / ONE

    def steps(self, rounds: int = 2) -> Iterator[int]:
        """Integers x such that x -> x + 1 shows every kind of step, on both sides.

        A step adds one to some digit (or to the cell) while all digits below it fall from their
        last value to their first: every value of every digit, every cell of the top table and
        `rounds` turns of the tail occur, besides all integers next to zero.
        """
        yield from range(-40 if self.symmetric else 0, 40)
        shift = 0
        for table, bits in self.digits:
            for base in (0, 5 << self.bits):
                for value in range(1, len(table) + 1):
                    yield from self._both_sides(base + (value << shift))
            shift += bits
        last = self.last + 2 if self.tail is None else self.last + rounds * (len(self.tail) - 1)
        for cell in range(1, last + 1):
            yield from self._both_sides(cell << shift)

    def _both_sides(self, rest: int) -> Iterator[int]:
        """The steps from rest - 1 to rest, where rest counts from the first value with digits."""
        x = rest - 1 + self.symmetric
        yield x
        if self.symmetric:
            yield -x - 1

    def keeps(self, rate: Fraction, steps: Iterator[int] | None = None) -> bool:
        """Whether P(x) and P(x + 1) differ by a factor of at most e**rate at every step."""
        bound = exp_below(rate)
        for x in self.steps() if steps is None else steps:
            (here, order), (there, other) = self.weight(x), self.weight(x + 1)
            here, there = here << 256 * max(other - order, 0), there << 256 * max(order - other, 0)
            if here << 320 > there * bound or there << 320 > here * bound:
                return False
        return True


def discrete_laplace_pmf(rate: Fraction, x: int) -> mpmath.mpf:
    r = as_mpf(rate)
    return mpmath.tanh(r / 2) * mpmath.exp(-r * abs(x))


def geometric_pmf(rate: Fraction, x: int) -> mpmath.mpf:
    r = as_mpf(rate)
    return -mpmath.expm1(-r) * mpmath.exp(-r * x)


def discrete_gaussian_pmf(sigma: Fraction, reach: int) -> list[mpmath.mpf]:
    """P(0), ..., P(reach)."""
    s = as_mpf(sigma)
    n = max(reach, int(30 * sigma) + 2)
    weights = [mpmath.exp(-(k * k) / (2 * s * s)) for k in range(n + 1)]
    total = weights[0] + 2 * mpmath.fsum(weights[1:])
    return [w / total for w in weights[: reach + 1]]


def rounded_gaussian_pmf(sigma: Fraction, reach: int) -> list[mpmath.mpf]:
    """P(0), ..., P(reach)."""
    root = as_mpf(sigma) * mpmath.sqrt(2)
    edges = [mpmath.erfc((k + mpmath.mpf(1) / 2) / root) / 2 for k in range(reach + 1)]
    return [1 - 2 * edges[0]] + [edges[k - 1] - edges[k] for k in range(1, reach + 1)]


# The rejection sampler, operation by operation.


def multiply_high(a: int, b: int, bits: int) -> int:
    return a * b >> bits


def exp_neg_native(exponent: int, bits: int, terms: int) -> int:
    """e**-x in units of 2**-bits, x = exponent / 2**(bits - 2), rounded as the C code rounds."""
    x, top = exponent >> 2, (1 << bits) - 1
    t = top
    for k in range(terms, 0, -1):
        t = top - multiply_high(x, t, bits) // k
    for _ in range(4):
        t = multiply_high(t, t, bits)
    return t


def acceptance(law: Rejection, c: int, f: int) -> int:
    """Number of 128-bit U that accept cell c and offset f / 2**128, by the 128-bit evaluation."""
    span = c << 118 | f >> 11
    area = multiply_high(f, span & (1 << 128) - 1, 128)
    return exp_neg_native(multiply_high(area, law.kappa, 128), 128, 27)


def acceptance_64(law: Rejection, c: int, f: int) -> int:
    """The same in units of 2**-64, by the 64-bit evaluation that decides outside the guard band."""
    span = (c << 54 | f >> 75) & MASK_64
    area = multiply_high(f >> 64, span, 64)
    return exp_neg_native(multiply_high(area, law.kappa >> 64, 64), 64, 13)


def ideal_acceptance(sigma: Fraction, shift: int, c: int, f: Fraction) -> mpmath.mpf:
    cell_sigma = sigma / (1 << shift)
    return mpmath.exp(-as_mpf(f * (2 * c + f) / (2 * cell_sigma**2)))


# The samplers, element by element, from the keystream.


def blocks(key: Key, lane: int, sub_block: int, elements: list[int]) -> list[list[int]]:
    out = np.empty(64 * len(elements), np.uint8)
    keystream_at(key, lane << 32 | sub_block, np.array(elements, np.uint64), out)
    return [[int(word) for word in row] for row in out.view("<u8").reshape(-1, 8)]


def words(key: Key, lane: int, start: int, n: int, dtype: str) -> np.ndarray:
    """The words of elements start, ..., start + n - 1 of a lane."""
    per_block = 64 // np.dtype(dtype).itemsize
    first = start // per_block
    n_blocks = (start + n - 1) // per_block - first + 1
    out = np.empty(64 * n_blocks, np.uint8)
    keystream(key, lane << 32, first, out)
    return out.view(dtype)[start - first * per_block :][:n]


def _draw(table: IntegerTable, u: int) -> int:
    return int(np.searchsorted(np.array(table.thresholds, object), u, side="right"))


def _join(limbs: list[int]) -> int:
    value = 0
    for limb in limbs:
        value = value << 64 | limb
    return value


def _refined(prefix: int, block: list[int], prefix_bits: int = 16) -> int:
    u = _join(block[:4])
    return prefix << 256 - prefix_bits | u & (1 << 256 - prefix_bits) - 1


def digits_twin(law: Digits, key: Key, start: int, n: int) -> list[int]:
    """What `DigitLaw.add_to` draws, always by 256-bit comparison."""
    elements = list(range(start, start + n))
    low, shift = [0] * n, 0
    for d, (table, bits) in enumerate(law.digits):
        prefixes = words(key, d + 1, start, n, "<u2")
        refine = blocks(key, REFINE_LANE + d + 1, 0, elements)
        for i in range(n):
            low[i] += (table.first + _draw(table, _refined(int(prefixes[i]), refine[i]))) << shift
        shift += bits
    prefixes, refine = words(key, 0, start, n, "<u2"), blocks(key, REFINE_LANE, 0, elements)
    result = []
    for i, element in enumerate(elements):
        outcome = _draw(law.top, _refined(int(prefixes[i]), refine[i]))
        top = law.top.first + outcome
        magnitude = abs(top)
        ends = {len(law.top.thresholds)} | ({0} if law.symmetric else set())
        if law.tail is not None and outcome in ends:
            magnitude += _tail_twin(law.tail, key, element)
        if law.symmetric:
            magnitude = 1 + (magnitude - 1 << shift) + low[i] if magnitude else 0
        else:
            magnitude = (magnitude << shift) + low[i]
        result.append(-magnitude if top < 0 else magnitude)
    return result


def _tail_twin(tail: IntegerTable, key: Key, element: int) -> int:
    total, sub_block = 0, 1
    while True:
        outcome = _draw(tail, _join(blocks(key, REFINE_LANE, sub_block, [element])[0][:4]))
        total += outcome
        if outcome < len(tail.thresholds):
            return total
        sub_block += 1


def rejection_twin(law: Rejection, key: Key, start: int, n: int) -> list[int]:
    """What `GaussLaw.add_to` draws, always by the 128-bit evaluation."""
    first_words = words(key, 0, start, n, "<u8")
    return [_rejection_twin(law, key, start + i, int(first_words[i])) for i in range(n)]


def _rejection_twin(law: Rejection, key: Key, element: int, word: int) -> int:
    attempt = 0
    while True:
        block = blocks(key, REFINE_LANE, attempt, [element])[0]
        t, u, f = _join(block[:4]), _join(block[4:6]), _join(block[6:])
        if attempt == 0:
            t = _refined(word & 0xFFFF, block)
            u = (word >> 16 & 0xFFFF) << 112 | u & (1 << 112) - 1
            f = word >> 32 << 96 | f & (1 << 96) - 1
        if law.lattice:
            f = f >> 128 - law.shift << 128 - law.shift
        cell = law.cells.first + _draw(law.cells, t)
        c = -1 - cell if cell < 0 else cell
        magnitude = (c << law.shift) + ((f >> 127 - law.shift) + 1 >> 1)
        wanted = not (law.lattice and cell < 0 and magnitude == 0)
        if wanted and u < acceptance(law, c, f):
            return -magnitude if cell < 0 else magnitude
        attempt += 1
