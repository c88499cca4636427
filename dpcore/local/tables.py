"""Local randomisers as integers: a public input grid, outputs, and one row of weights per point.

This is the only form in which a mechanism is ever run. `RowTable` turns exact rationals into rows
that sum to 2**64 (2**128 above epsilon 20), proves the privacy and the unbiasedness of those very
integers, and compiles them to alias tables for `dpcore_ext.encode`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from dpcore._checks import round_up
from dpcore._events import PureEvent
from dpcore._exact import exp_enclosure
from dpcore_ext.encode import Rows

__all__ = ["PROVEN", "RowTable", "local_event"]

_BIAS_LIMIT = Fraction(1, 10**12)
# Rows are made a millionth more private than asked for; this much less is proven of the integers.
PROVEN = 1 - Fraction(1, 1 << 40)


@dataclass(frozen=True)
class RowTable:
    """Rows of integer probabilities on an equally spaced grid of [-1, 1].

    Attributes
    ----------
    outputs : tuple of float
        Value of every output code, for inputs in [-1, 1].
    rows : tuple of tuple of int
        ``rows[i][k] / 2**bits`` is the probability of code k at grid point i.
    bits : int
        64 or 128.
    """

    outputs: tuple[float, ...]
    rows: tuple[tuple[int, ...], ...]
    bits: int

    @staticmethod
    def build(
        epsilon: Fraction,
        outputs: Sequence[Fraction | float],
        rows: Sequence[Sequence[Fraction | int]],
    ) -> RowTable:
        """Integers from rows given up to a factor each; raises unless private and unbiased.

        64 bits where they suffice: above epsilon 20, and where tails are long, 128 are used.
        """
        private = False
        for bits in (64, 128) if epsilon <= 20 else (128,):
            table = RowTable(
                tuple(float(value) for value in outputs),
                tuple(_integers(row, bits) for row in rows),
                bits,
            )
            private = table.is_private(epsilon * PROVEN)
            if private and table.largest_bias() <= _BIAS_LIMIT:
                return table
        fault = "biased" if private else "less private than asked for"
        raise ArithmeticError(f"A local randomiser came out {fault}.")

    @property
    def n_intervals(self) -> int:
        return len(self.rows) - 1

    def is_private(self, epsilon: Fraction) -> bool:
        """Whether no output is more than e**epsilon times likelier at one input than at another.

        A value between grid points is sent with a mixture of two rows, whose ratios lie between
        theirs, so the grid points decide.
        """
        bound = exp_enclosure(epsilon, 256)[0]
        columns = zip(*self.rows, strict=True)
        return all(max(column) << 256 <= bound * min(column) for column in columns)

    def largest_bias(self) -> Fraction:
        """Largest distance between the mean of a row and its grid point, exactly."""
        values = [Fraction(value) for value in self.outputs]
        unit = max(value.denominator for value in values)
        scaled = [int(value * unit) for value in values]
        n = self.n_intervals
        return max(
            Fraction(
                abs(
                    n * sum(v * w for v, w in zip(scaled, row, strict=True))
                    - ((2 * i - n) * unit << self.bits)
                ),
                n * unit << self.bits,
            )
            for i, row in enumerate(self.rows)
        )

    @cached_property
    def probabilities(self) -> npt.NDArray[np.float64]:
        """The rows as floats, for reading: shape (n_intervals + 1, n_outputs)."""
        return np.array([[math.ldexp(w, -self.bits) for w in row] for row in self.rows])

    @cached_property
    def second_moments(self) -> npt.NDArray[np.float64]:
        """Mean squared output at every grid point."""
        return np.asarray(self.probabilities @ np.square(self.outputs))

    def mix(self, x: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.intp], npt.NDArray[Any]]:
        """For inputs in [-1, 1]: the grid point below, and the chance of going to the next."""
        position = (x + 1) * (self.n_intervals / 2)
        below = np.clip(position.astype(np.intp), 0, self.n_intervals - 1)
        return below, position - below

    def variance(self, x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Variance of the output at inputs in [-1, 1], the move to the grid included."""
        below, up = self.mix(x)
        moments = self.second_moments
        return np.asarray(moments[below] * (1 - up) + moments[below + 1] * up - x * x)

    def worst_case_variance(self) -> float:
        """Largest variance over all inputs: between grid points it is a concave parabola."""
        points = np.linspace(-1, 1, self.n_intervals + 1)
        slopes = np.diff(self.second_moments) * self.n_intervals / 2
        tops = np.clip(slopes / 2, points[:-1], points[1:])
        return float(self.variance(np.concatenate([points, tops])).max())

    def compile(self, lower: float, upper: float) -> Rows:
        """The kernel's form for inputs in [lower, upper]."""
        log2_columns = max(1, (len(self.outputs) - 1).bit_length())
        tables = [_alias(row, log2_columns, self.bits) for row in self.rows]
        cut = np.array([t[0] for t in tables], dtype=np.uint64)
        alias = np.array([t[1] for t in tables], dtype=np.uint16)
        return Rows(cut, alias, self.n_intervals, lower, upper)


def local_event(mechanism: str, epsilon: Fraction, count: int = 1) -> PureEvent:
    """What reports of one record cost: the loss proven of the tables in use."""
    loss = round_up(epsilon * PROVEN)
    return PureEvent(mechanism=mechanism, epsilon=loss, adjacency="local", count=count)


def _integers(row: Sequence[Fraction | int], bits: int) -> tuple[int, ...]:
    """Weights as integers that sum to 2**bits: rounded down, the rest to the largest."""
    scale = Fraction(1 << bits) / sum(row)
    n, d = scale.numerator, scale.denominator
    weights = [w.numerator * n // (w.denominator * d) for w in row]
    weights[weights.index(max(weights))] += (1 << bits) - sum(weights)
    return tuple(weights)


def _alias(
    row: Sequence[int], log2_columns: int, bits: int
) -> tuple[list[tuple[int, int]], list[int]]:
    """Vose's alias method in integers: 128-bit cuts (high, low) and aliases of every column."""
    n_columns, capacity = 1 << log2_columns, 1 << (bits - log2_columns)
    weights = [*row, *[0] * (n_columns - len(row))]
    cut, alias = [capacity] * n_columns, list(range(n_columns))
    small = [k for k, w in enumerate(weights) if w < capacity]
    large = [k for k, w in enumerate(weights) if w > capacity]
    while small:
        k, donor = small.pop(), large[-1]
        cut[k], alias[k] = weights[k], donor
        weights[donor] -= capacity - weights[k]
        if weights[donor] <= capacity:
            large.pop()
            if weights[donor] < capacity:
                small.append(donor)
    # A full column names itself, whatever its cut: the largest one never leaves a tie to settle.
    shift = 128 - (bits - log2_columns)
    fractions = [min(c << shift, (1 << 128) - 1) for c in cut]
    return [(f >> 64, f & 0xFFFFFFFFFFFFFFFF) for f in fractions], alias
