"""Rows of the published mechanisms, in exact arithmetic.

Everything is a rational function of E = e**epsilon and of free parameters (t, a, beta), which the
continuous laws supply as floats: whatever rationals are put in, the rows are unbiased, and private
for ln E. E is taken a millionth below e**epsilon, which leaves room for rounding to integers.

Fixed point: integers in units of 2**-_BITS.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from dpcore._exact import exp_enclosure, exp_negative

__all__ = ["Exact", "duchi", "laplace", "mixture", "piecewise", "three_outputs"]

_BITS = 256
_ONE = 1 << _BITS
_SLACK = 1 - Fraction(1, 10**6)

# Intervals of the input grid for laws that are not linear between -1, 0 and 1. Rounding the input
# to it adds at most 2**-16 to the variance.
N_INTERVALS = 256


@dataclass(frozen=True)
class Exact:
    """Outputs and rows (up to a factor each) on a grid of [-1, 1]."""

    outputs: tuple[Fraction, ...]
    rows: tuple[tuple[Fraction | int, ...], ...]

    @staticmethod
    def mirrored(outputs: list[Fraction], upper_half: list[list[Fraction | int]]) -> Exact:
        """From the rows of the inputs 0 to 1: p(-x, -y) = p(x, y)."""
        lower_half = [row[::-1] for row in upper_half[:0:-1]]
        return Exact(tuple(outputs), tuple(tuple(row) for row in lower_half + upper_half))


def growth(epsilon: Fraction) -> Fraction:
    """A rational just below e**(epsilon * (1 - 1e-6))."""
    return Fraction(exp_enclosure(epsilon * _SLACK, 160)[0], 1 << 160)


def duchi(epsilon: Fraction) -> Exact:
    """Two outputs; linear in x, so two grid points give the law at every x."""
    e = growth(epsilon)
    c = (e + 1) / (e - 1)
    return Exact((-c, c), ((e, Fraction(1)), (Fraction(1), e)))


def three_outputs(epsilon: Fraction, a: float) -> Exact:
    """Outputs -C, 0, C; linear on either side of 0, so three grid points suffice."""
    e = growth(epsilon)
    at_zero = min(Fraction(a), e / (e + 2))
    at_end = at_zero / e
    c = (e + 1) / ((e - 1) * (1 - at_end))
    up, down = (1 - at_end + 1 / c) / 2, (1 - at_end - 1 / c) / 2
    side = (1 - at_zero) / 2
    if at_zero == 0:
        return duchi(epsilon)
    return Exact(
        (-c, Fraction(0), c), ((up, at_end, down), (side, at_zero, side), (down, at_end, up))
    )


def piecewise(epsilon: Fraction, t: float, n_levels: int) -> Exact:
    """PM(t), its output moved at random to one of n_levels equally spaced points of [-A, A].

    The probability of a point is the integral of the density times a hat function: the second
    difference of the twice integrated density.
    """
    e, ratio = growth(epsilon), Fraction(t)
    half_width = (e + ratio) / (ratio * (e - 1))
    reach = half_width * (ratio + 1)
    density = ratio * (e - 1) * e / (2 * (ratio + e) ** 2)
    step = 2 * reach / (n_levels - 1)
    low, extra = _fixed(density / e), _fixed(density - density / e)
    points = [_fixed(-reach + step * k) for k in range(-1, n_levels + 1)]
    edge = _fixed(reach)

    def ramp(z: int) -> int:
        return z * z >> (_BITS + 1) if z > 0 else 0

    base = [low * (ramp(y + edge) - ramp(y - edge)) for y in points]
    rows: list[list[Fraction | int]] = []
    for i in range(N_INTERVALS // 2 + 1):
        centre = half_width * ratio * Fraction(2 * i, N_INTERVALS)
        left, right = _fixed(centre - half_width), _fixed(centre + half_width)
        g = [
            b + extra * (ramp(y - left) - ramp(y - right))
            for b, y in zip(base, points, strict=True)
        ]
        rows.append([g[k + 1] - 2 * g[k] + g[k - 1] for k in range(1, n_levels + 1)])
    return Exact.mirrored([-reach + step * k for k in range(n_levels)], rows)


def laplace(epsilon: Fraction, n_levels: int) -> Exact:
    """x + Lap(2 / epsilon), held inside a range that is left with a bias below 1e-12.

    As for `piecewise`; the exponentials of grid points and inputs are computed once each.
    """
    rate = epsilon * _SLACK / 2
    reach = 1 + Fraction(math.log(1e12 / float(rate))) / rate
    step = 2 * reach / (n_levels - 1)
    points = [-reach + step * k for k in range(n_levels)]
    decay = [exp_negative(rate * abs(y), _BITS) for y in points]
    rows: list[list[Fraction | int]] = []
    for i in range(N_INTERVALS // 2 + 1):
        x = Fraction(2 * i, N_INTERVALS)
        shift = exp_negative(rate * x, _BITS)
        # G'' is the density: G(y) = e**(rate (y - x)) / (2 rate), plus y - x beyond x.
        g = []
        for y, d in zip(points, decay, strict=True):
            # e**(-rate |y - x|) from e**(-rate |y|) and e**(-rate x), x >= 0.
            if y <= 0:
                tail = d * shift >> _BITS
            elif y <= x:
                tail = (shift << _BITS) // d
            else:
                tail = (d << _BITS) // shift
            g.append(int(tail / (2 * rate)) + (_fixed(y - x) if y > x else 0))
        slopes = [high - low for low, high in pairwise(g)]
        row: list[Fraction | int] = [slopes[0]]
        row += [after - before for before, after in pairwise(slopes)]
        rows.append([*row, _fixed(step) - slopes[-1]])
    return Exact.mirrored(points, rows)


def mixture(first: Exact, second: Exact, weight: float) -> Exact:
    """`second` with probability weight, else `first`, whose outputs come in between in order."""
    chance = Fraction(weight)
    order = sorted(
        [(y, 0, k) for k, y in enumerate(first.outputs)]
        + [(y, 1, k) for k, y in enumerate(second.outputs)]
    )
    n_intervals = len(second.rows) - 1
    rows = []
    for i, row in enumerate(second.rows):
        parts = (
            _scaled(_row_at(first, Fraction(i, n_intervals)), 1 - chance),
            _scaled(row, chance),
        )
        rows.append(tuple(parts[which][k] for _, which, k in order))
    return Exact(tuple(y for y, _, _ in order), tuple(rows))


def _row_at(law: Exact, position: Fraction) -> tuple[int, ...]:
    """The row of a law that is linear between its grid points, at a position in [0, 1]."""
    place = position * (len(law.rows) - 1)
    below = min(int(place), len(law.rows) - 2)
    up = place - below
    low, high = _scaled(law.rows[below], 1 - up), _scaled(law.rows[below + 1], up)
    return tuple(p + q for p, q in zip(low, high, strict=True))


def _scaled(row: tuple[Fraction | int, ...], total: Fraction) -> tuple[int, ...]:
    """The row in fixed point, summing to total."""
    factor = total * _ONE / sum(row)
    n, d = factor.numerator, factor.denominator
    return tuple(
        w * n // d if isinstance(w, int) else w.numerator * n // (w.denominator * d) for w in row
    )


def _fixed(value: Fraction) -> int:
    return (value.numerator << _BITS) // value.denominator
