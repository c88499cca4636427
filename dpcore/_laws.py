"""Integer probability laws and their compiled form.

A law is built once from exact rationals, in Python integers, as thresholds in units of 2**-256;
`dpcore_ext.sample` draws from these very integers. `probability` therefore states what is sampled,
not what was meant, and `check_ratio` proves the privacy of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise

import numpy as np

from dpcore._exact import exp_enclosure, exp_negative, gaussian_cells, gaussian_points
from dpcore_ext.sample import GAUSS_GUARD, DigitLaw, GaussLaw, Table

__all__ = [
    "MAX_LAPLACE_SCALE",
    "MAX_SIGMA",
    "Digits",
    "Rejection",
    "bernoulli",
    "discrete_gaussian",
    "discrete_laplace",
    "geometric",
    "rounded_gaussian",
]

ONE = 1 << 256
_BITS = 448
_REACH = 128  # a table ends where probabilities fall below 2**-_REACH; its tail goes on
_TOP_SCALE = 16  # widest scale that one table serves without low digits
_MAX_RATE = Fraction(64)  # e**-64 is the smallest ratio of neighbouring probabilities in use
# Rates are lowered by the first factor; the second, which is less, is what is proven of the result.
_SLACK, _PROVEN = 1 - Fraction(1, 1 << 48), 1 - Fraction(1, 1 << 49)
_TOP_SIGMA = 32

MAX_LAPLACE_SCALE = 2.0**44
MAX_SIGMA = _TOP_SIGMA * 2.0**31


@dataclass(frozen=True)
class IntegerTable:
    """Thresholds of the outcomes first, first + 1, ...; see dpcore/sample.h."""

    thresholds: tuple[int, ...]
    first: int = 0
    open_ends: int = 0
    native: Table = field(init=False, repr=False, compare=False)

    @staticmethod
    def from_weights(weights: Sequence[int], first: int = 0, open_ends: int = 0) -> IntegerTable:
        total, running, thresholds = sum(weights), 0, []
        for weight in weights[:-1]:
            running += weight
            thresholds.append(min(ONE * running // total, ONE - 1))
        return IntegerTable(tuple(thresholds), first, open_ends)

    def __post_init__(self) -> None:
        limbs = np.frombuffer(b"".join(t.to_bytes(32, "big") for t in self.thresholds), ">u8")
        native = Table(limbs.astype(np.uint64).reshape(-1, 4), self.first, self.open_ends)
        object.__setattr__(self, "native", native)

    def weights(self) -> list[int]:
        """Probabilities of the outcomes in units of 2**-256."""
        edges = [0, *self.thresholds, ONE]
        return [high - low for low, high in pairwise(edges)]


@dataclass(frozen=True)
class Digits:
    """A law made of one table and, for large scales, low digits and an unbounded tail."""

    top: IntegerTable
    tail: IntegerTable | None = None
    digits: tuple[tuple[IntegerTable, int], ...] = ()
    symmetric: bool = False
    loss: Fraction | None = None  # proven bound on the logarithm of P(x) / P(x + 1), either way
    native: DigitLaw = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        native = DigitLaw(
            self.top.native,
            tail=None if self.tail is None else self.tail.native,
            digits=[(table.native, bits) for table, bits in self.digits],
            symmetric=self.symmetric,
        )
        object.__setattr__(self, "native", native)

    def probability(self, value: int) -> Fraction:
        """Exact probability of a value, as sampled."""
        if value == 0 and self.symmetric:
            return self._top_probability(0)
        if value < 0 and self.digits and not self.symmetric:
            return Fraction(0)
        if not self.digits:
            return self._top_probability(value)
        rest = abs(value) - 1 if self.symmetric else value
        result = Fraction(1)
        for table, bits in self.digits:
            result *= Fraction(table.weights()[rest % (1 << bits)], ONE)
            rest >>= bits
        cell = rest + 1 if self.symmetric else rest
        return result * self._top_probability(-cell if value < 0 else cell)

    def _top_probability(self, cell: int) -> Fraction:
        weights = self.top.weights()
        last = self.top.first + len(weights) - 1
        if self.tail is None or (abs(cell) if self.symmetric else cell) < last:
            inside = 0 <= cell - self.top.first < len(weights)
            return Fraction(weights[cell - self.top.first], ONE) if inside else Fraction(0)
        end = weights[0] if cell < 0 else weights[-1]
        turns, rest = divmod(abs(cell) - last, len(self.tail.thresholds))
        tail = self.tail.weights()
        return Fraction(end * tail[rest], ONE**2) * Fraction(tail[-1], ONE) ** turns

    def check_ratio(self, rate: Fraction) -> bool:
        """Whether P(x) <= e**rate P(x + 1) and P(x + 1) <= e**rate P(x) for every integer x.

        Every step of the (unbounded) support is one of finitely many: inside a digit, inside the
        top table, from its end into the tail, or round the tail; a carry multiplies in the last to
        first ratios of the digits below. All are compared in integers with a lower bound of
        e**rate. A law without a tail ends, where the ratio is infinite.
        """
        if self.tail is None:
            return False
        bound = exp_enclosure(min(rate, _MAX_RATE), 256)[0]

        def within(numerator: int, denominator: int) -> bool:
            return (
                numerator << 256 <= denominator * bound and denominator << 256 <= numerator * bound
            )

        carry_up = carry_down = 1
        for table, _ in self.digits:
            weights = table.weights()
            for w, v in pairwise(weights):
                if not within(carry_up * w, carry_down * v):
                    return False
            carry_up, carry_down = carry_up * weights[-1], carry_down * weights[0]
        return all(
            within(carry_up * w, carry_down * v) for w, v in self._top_steps()
        ) and self._zero_steps(within)

    def _top_steps(self) -> list[tuple[int, int]]:
        weights = [w * ONE for w in self.top.weights()]
        sides = [weights[-self.top.first :], weights[: 1 - self.top.first][::-1]]
        if not self.symmetric:
            sides = [weights]
        steps = []
        for side in sides:
            if self.tail is not None:
                tail = self.tail.weights()
                end = side.pop() // ONE
                side = [*side, *(end * w for w in tail[:-1])]
                steps.append((tail[-2] * ONE, tail[-1] * tail[0]))
            inner = side[1:] if self.symmetric else side
            steps += pairwise(inner)
        return steps

    def _zero_steps(self, within: Callable[[int, int], bool]) -> bool:
        if not self.symmetric:
            return True
        first = math.prod(table.weights()[0] for table, _ in self.digits)
        zero = self.top.weights()[-self.top.first] * ONE ** len(self.digits)
        return all(
            within(zero, self.top.weights()[-self.top.first + step] * first) for step in (-1, 1)
        )


@dataclass(frozen=True)
class Rejection:
    """A Gaussian with more than 32 units per standard deviation; see dpcore/sample.h."""

    cells: IntegerTable
    kappa: int
    shift: int
    lattice: bool
    guard: int = GAUSS_GUARD
    native: GaussLaw = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        native = GaussLaw(
            self.cells.native,
            kappa=self.kappa,
            shift=self.shift,
            lattice=self.lattice,
            guard=self.guard,
        )
        object.__setattr__(self, "native", native)


def bernoulli(p: Fraction) -> Digits:
    """1 with probability p, 0 otherwise."""
    threshold = ONE * (p.denominator - p.numerator) // p.denominator
    return Digits(IntegerTable((threshold,) if threshold < ONE else ()))


def _split(rate: Fraction) -> tuple[int, list[int]]:
    """Number of low bits for a rate, and the sizes of the digits that hold them."""
    bits = 0
    while rate * _TOP_SCALE * (1 << bits) < 1:
        bits += 1
    n_digits = -(-bits // 8)
    return bits, [(bits + i) // n_digits for i in range(n_digits)]


def _powers(rate: Fraction, n: int) -> list[int]:
    """e**(-rate k), k = 0, ..., n - 1, in units of 2**-_BITS."""
    ratio = exp_negative(rate, _BITS + 64)
    value, values = 1 << (_BITS + 64), []
    for _ in range(n):
        values.append(value >> 64)
        value = value * ratio >> (_BITS + 64)
    return values


def _beyond(rate: Fraction, n: int) -> int:
    """Sum of e**(-rate k) over k >= n in units of 2**-_BITS."""
    return (exp_negative(rate * n, _BITS) << _BITS) // ((1 << _BITS) - exp_negative(rate, _BITS))


def _geometric_parts(
    rate: Fraction, reach: int
) -> tuple[Fraction, int, tuple[tuple[IntegerTable, int], ...]]:
    """Rate of the top table, its length, and the low digits."""
    bits, sizes = _split(rate)
    digits, shift = [], 0
    for size in sizes:
        digits.append((IntegerTable.from_weights(_powers(rate * (1 << shift), 1 << size)), size))
        shift += size
    top_rate = rate * (1 << bits)
    length = max(1, int(reach * Fraction(math.log(2)) / top_rate))
    return top_rate, length, tuple(digits)


def _tail(rate: Fraction, length: int) -> IntegerTable:
    return IntegerTable.from_weights([*_powers(rate, length), _beyond(rate, length)])


@lru_cache(maxsize=64)
def discrete_laplace(rate: Fraction, reach: int = _REACH) -> Digits:
    """Proportional to e**(-rate |x|) over the integers; `reach` moves the start of the tail."""
    fine_rate = min(rate, _MAX_RATE) * _SLACK
    top_rate, length, digits = _geometric_parts(fine_rate, reach)
    # T = 0 stands for x = 0 alone, |T| = h >= 1 for the magnitudes of cell h. They begin at
    # 1 + (h - 1) 2**bits and weigh (1 - e**-top_rate) / (1 - e**-fine_rate) times the first.
    one = 1 << _BITS
    ratio = exp_negative(fine_rate, _BITS)
    cell = ratio * (one - exp_negative(top_rate, _BITS)) // (one - ratio)
    side = [w * cell >> _BITS for w in [*_powers(top_rate, length), _beyond(top_rate, length)]]
    top = IntegerTable.from_weights([*side[::-1], one, *side], -len(side), open_ends=2)
    return _checked(Digits(top, _tail(top_rate, length), digits, symmetric=True), rate)


@lru_cache(maxsize=64)
def geometric(rate: Fraction, reach: int = _REACH) -> Digits:
    """Proportional to e**(-rate x) over x = 0, 1, 2, ..."""
    top_rate, length, digits = _geometric_parts(min(rate, _MAX_RATE) * _SLACK, reach)
    weights = [*_powers(top_rate, length), _beyond(top_rate, length)]
    top = IntegerTable.from_weights(weights, open_ends=1)
    return _checked(Digits(top, _tail(top_rate, length), digits), rate)


def _checked(law: Digits, rate: Fraction) -> Digits:
    proven = min(rate, _MAX_RATE) * _PROVEN
    if not law.check_ratio(proven):
        raise ArithmeticError("A law came out less private than asked for; this is a defect.")
    return replace(law, loss=proven)


def _mirrored(side: list[int]) -> IntegerTable:
    """Table of a symmetric law from the weights of 0, 1, 2, ...; weightless ends are left out."""
    reach = len(side)
    while reach > 1 and side[reach - 1] * ONE < 2 * sum(side):
        reach -= 1
    side = side[:reach]
    return IntegerTable.from_weights([*side[:0:-1], *side], 1 - reach)


def _rejection(sigma: Fraction, lattice: bool) -> Rejection:
    shift = 1
    while sigma > _TOP_SIGMA << shift:
        shift += 1
    cell_sigma = sigma / (1 << shift)
    side = gaussian_points(cell_sigma, math.ceil(20 * cell_sigma), _BITS)
    kappa = int((1 << 136) / cell_sigma**2)
    cells = IntegerTable.from_weights([*side[::-1], *side], -len(side))
    return Rejection(cells, kappa, shift, lattice)


@lru_cache(maxsize=64)
def discrete_gaussian(sigma: Fraction) -> Digits | Rejection:
    """Proportional to exp(-x**2 / (2 sigma**2)) over the integers."""
    if sigma > _TOP_SIGMA:
        return _rejection(sigma, lattice=True)
    return Digits(_mirrored(gaussian_points(sigma, math.ceil(20 * sigma) + 1, _BITS)))


@lru_cache(maxsize=64)
def rounded_gaussian(sigma: Fraction) -> Digits | Rejection:
    """A Gaussian real number of standard deviation sigma, rounded to the nearest integer."""
    if sigma > _TOP_SIGMA:
        return _rejection(sigma, lattice=False)
    return Digits(_mirrored(gaussian_cells(sigma, math.ceil(20 * sigma) + 1, _BITS)))
