r"""Unbiased local mechanisms with few outputs and the least variance that few outputs allow.

An input x of [-1, 1] becomes one of ``n_outputs`` public numbers. Among all laws ``p(output | x)``
that are epsilon-private and unbiased, `solve` looks for the one whose variance is least where it is
largest (or another objective); output positions are chosen too.

The search is small because the law is known once the positions ``y_j`` and the smallest probability
``m_j`` of each output are. Row x then only has to make ``E[y^2]`` small subject to two equations
and ``m_j <= p_j <= e^epsilon m_j``, so it raises the outputs of one interval to their largest
probability and leaves the others at the smallest: a window of fixed mass over the ``m_j``, placed
so that the mean is x. By duality its second moment is the largest, over pairs of outputs l < r, of

.. math:: (y_l + y_r) x - y_l y_r
          + \sum_j m_j (y_j - y_l)(y_j - y_r) (e^\epsilon \text{ if } l < j < r \text{ else } 1),

and a row exists for every x exactly when, for every output l,

.. math:: y_l + \sum_j m_j (y_j - y_l) (e^\epsilon \text{ if } j > l \text{ else } 1) \ge 1.

Linear in m, polynomial in y: with fixed positions one small linear programme finds the best m, and
with free positions a trust-region sequence of them descends. Only this search uses floats and
scipy. The rows come from the two short arrays by exact rational arithmetic at
``epsilon (1 - 1e-6)``, so they are the same on every machine and keep room for one later rounding.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction
from functools import lru_cache
from importlib import resources
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from dpcore._checks import check_choice, exact
from dpcore.errors import ParameterError
from dpcore.local.optimal_search import ROOM, Pieces, search

__all__ = ["Solution", "optimal", "shipped", "solve"]

_Array = npt.NDArray[np.float64]
_Design = tuple[_Array, _Array]

LEAST_EPSILON, MOST_EPSILON = 0.05, 20.0
OBJECTIVES = ("worst", "second_moment", "at_zero")
_TABLES = "optimal_tables.npz"
_DECIMALS = Context(prec=50, rounding=ROUND_HALF_EVEN)
_GRID_LOSS = 1e-3
_MOST_ENTRIES = 1 << 17


@dataclass(frozen=True, eq=False)
class Solution:
    """A finite mechanism: output positions and one row of probabilities per grid input.

    Attributes
    ----------
    outputs : ndarray of float64
        Positions in increasing order, symmetric about 0; no more than were asked for.
    rows : ndarray of float64, shape (n_intervals + 1, len(outputs))
        Row i is the law of the output for the input ``2 i / n_intervals - 1``. An input between two
        grid points is to be rounded to one of them at random, keeping its mean.
    worst_case_variance : float
        Largest variance over all inputs of [-1, 1], the rounding of the input included.
    epsilon : float
        Privacy loss that the rows stay below.
    """

    outputs: _Array
    rows: _Array
    worst_case_variance: float
    epsilon: float


def optimal(
    epsilon: float, n_outputs: int, objective: str = "worst", *, n_intervals: int | None = None
) -> Solution:
    """The mechanism of `shipped` or, for parameters not shipped, of `solve`; kept in memory.

    Parameters
    ----------
    epsilon, n_outputs, objective, n_intervals
        As for `solve`.

    Privacy
    -------
    Each output's largest probability is below ``exp(epsilon)`` times its smallest.

    Cost
    ----
    Milliseconds for shipped parameters, otherwise once as long as `solve`.

    Examples
    --------
    >>> from dpcore.local.optimal import optimal
    >>> round(optimal(1.0, 8).worst_case_variance, 3)
    4.008
    """
    return _optimal(*_check(epsilon, n_outputs, objective, n_intervals))


@lru_cache(maxsize=128)
def _optimal(epsilon: float, n_outputs: int, objective: str, n_intervals: int | None) -> Solution:
    found = shipped(epsilon, n_outputs, objective, n_intervals=n_intervals)
    return found or solve(epsilon, n_outputs, objective=objective, n_intervals=n_intervals)


def shipped(
    epsilon: float, n_outputs: int, objective: str = "worst", *, n_intervals: int | None = None
) -> Solution | None:
    """The mechanism for parameters that dpcore ships, without scipy; None for all others.

    Parameters
    ----------
    epsilon, n_outputs, objective, n_intervals
        As for `solve`.

    Privacy
    -------
    Each output's largest probability is below ``exp(epsilon)`` times its smallest.

    Examples
    --------
    >>> from dpcore.local.optimal import shipped
    >>> shipped(1.0, 4).rows.shape
    (33, 4)
    >>> shipped(1.0, 5) is None
    True
    """
    epsilon, n_outputs, objective, n_intervals = _check(epsilon, n_outputs, objective, n_intervals)
    design = _tables().get((epsilon, n_outputs, objective))
    return None if design is None else _build(design, epsilon, n_outputs, n_intervals)


def solve(
    epsilon: float,
    n_outputs: int,
    *,
    objective: str = "worst",
    n_intervals: int | None = None,
) -> Solution:
    """Find an epsilon-private unbiased mechanism with few outputs and small variance.

    Parameters
    ----------
    epsilon : float
        Privacy loss, between 0.05 and 20.
    n_outputs : int
        Largest number of outputs, between 2 and 256.
    objective : {"worst", "second_moment", "at_zero"}
        What to make small: the largest variance over all inputs, the largest second moment over all
        inputs (what counts when an attribute is reported with a probability below 1), or the
        variance of the input 0. The last two settle ties by the first. There is no objective for
        an average over a public distribution of inputs.
    n_intervals : int, optional
        Intervals of the input grid, from 1 to 65536. By default the smallest power of two from 32
        to 1024 whose rounding costs under 0.1 % of the variance, as far as the table stays small.

    Returns
    -------
    Solution
        The best mechanism found. The best row masses for given positions are found for certain;
        the positions are a local optimum, the best of several starts.

    Raises
    ------
    ImportError
        If scipy is missing.

    Privacy
    -------
    Each output's largest probability is below ``exp(epsilon)`` times its smallest, with a relative
    room of 5e-7 epsilon for a later rounding to integers. Parameters are public.

    Cost
    ----
    About a second up to 16 outputs and a few seconds from 64 outputs on, in one thread.
    """
    epsilon, n_outputs, objective, n_intervals = _check(epsilon, n_outputs, objective, n_intervals)
    design = search(epsilon, n_outputs, objective)
    return _build(design, epsilon, n_outputs, n_intervals)


def _check(
    epsilon: Any, n_outputs: Any, objective: Any, n_intervals: Any
) -> tuple[float, int, str, int | None]:
    loss = float(exact(epsilon, "epsilon"))
    if not LEAST_EPSILON <= loss <= MOST_EPSILON:
        raise ParameterError(
            "The 'epsilon' parameter of optimal mechanisms must lie between 0.05 and 20."
        )
    outputs = _check_count(n_outputs, "n_outputs", 2, 256)
    check_choice(objective, "objective", OBJECTIVES)
    if n_intervals is not None:
        n_intervals = _check_count(n_intervals, "n_intervals", 1, 1 << 16)
    return loss, outputs, objective, n_intervals


def _check_count(value: Any, name: str, least: int, most: int) -> int:
    if (
        isinstance(value, bool | np.bool_)
        or not isinstance(value, int | np.integer)
        or not least <= value <= most
    ):
        raise ParameterError(
            f"The '{name}' parameter must be an integer between {least} and {most}."
        )
    return int(value)


@lru_cache(maxsize=1)
def _tables() -> dict[tuple[float, int, str], _Design]:
    """Designs shipped, written by bench/make_optimal_tables.py."""
    with (resources.files(__package__) / _TABLES).open("rb") as file, np.load(file) as data:
        keys, ends = data["keys"], data["ends"]
        outputs, masses = data["outputs"], data["masses"]
    designs: dict[tuple[float, int, str], _Design] = {}
    begin_y = begin_m = 0
    for (epsilon, n_outputs, objective), (end_y, end_m) in zip(keys, ends, strict=True):
        key = (float(epsilon), int(n_outputs), OBJECTIVES[int(objective)])
        designs[key] = (outputs[begin_y:end_y], masses[begin_m:end_m])
        begin_y, begin_m = int(end_y), int(end_m)
    return designs


# --- From a design to rows, exactly -------------------------------------------------------------
# A design is (y, m): the positive positions in increasing order and the smallest probabilities of
# these outputs, with that of the output 0 in front of them where there is one.


def _build(design: _Design, epsilon: float, n_outputs: int, n_intervals: int | None) -> Solution:
    window = _Window(design, epsilon)
    if n_intervals is not None:
        return window.solution(n_intervals)
    y, m = design
    pieces = Pieces(len(y), len(m) - len(y), epsilon, "worst")
    goal = (1 + _GRID_LOSS) * pieces.value((y, m / pieces.shrink))
    n_intervals = 32
    while True:
        found = window.solution(n_intervals)
        n_intervals *= 2
        last = n_intervals > 1024 or n_intervals * n_outputs > _MOST_ENTRIES
        if found.worst_case_variance <= goal or last:
            return found


class _Window:
    """Rows of a design: a window of fixed mass slides over the outputs as the input grows."""

    def __init__(self, design: _Design, epsilon: float) -> None:
        y, m = ([Fraction(float(v)) for v in array] for array in design)
        odd = len(m) - len(y)
        middle = [Fraction(0)] * odd
        self.epsilon = epsilon
        self.low = m[odd:][::-1] + m
        # In decimals rounded the same way everywhere, so that every machine builds the same rows.
        loss = _DECIMALS.multiply(Decimal(epsilon), _DECIMALS.subtract(1, Decimal(ROOM)))
        self.factor = Fraction(_DECIMALS.exp(loss)) - 1
        self.starts = [Fraction(0), *accumulate(self.low)]
        self.mass = (1 - self.starts[-1]) / self.factor
        self.last = self.starts[-1] - self.mass
        self.lowered = [float(p) for p in self.low]
        self.raised = [float(p * (1 + self.factor)) for p in self.low]
        # The search knows the largest mean as a float; here it must not be below 1 at all.
        for ulps in (0, *(1 << k for k in range(20))):
            half = [Fraction(float(v * (1 + Fraction(ulps, 1 << 52)))) for v in y]
            self.outputs = [-v for v in reversed(half)] + middle + half
            if 0 < self.mass <= self.starts[-1]:
                self._index()
                if self.means[-1] >= 1:
                    return
        raise RuntimeError("The search for an optimal mechanism found none that is unbiased.")

    def _index(self) -> None:
        """Means of the rows at the window positions where an end of the window meets an output."""
        moments = [a * b for a, b in zip(self.low, self.outputs, strict=True)]
        self.moments = [Fraction(0), *accumulate(moments)]
        knots = {s for s in self.starts if s <= self.last}
        knots |= {s - self.mass for s in self.starts if s >= self.mass}
        self.knots = sorted(knots)
        self.means = [
            self.factor * (self._moment(s + self.mass) - self._moment(s)) for s in self.knots
        ]

    def _atom(self, position: Fraction) -> int:
        return min(max(bisect_left(self.starts, position) - 1, 0), len(self.low) - 1)

    def _moment(self, position: Fraction) -> Fraction:
        j = self._atom(position)
        return self.moments[j] + (position - self.starts[j]) * self.outputs[j]

    def row(self, x: Fraction) -> list[float]:
        """Probabilities of the outputs for the input x of [0, 1]."""
        k = bisect_left(self.means, x)
        begin = self.knots[k]
        if self.means[k] != x:
            share = (x - self.means[k - 1]) / (self.means[k] - self.means[k - 1])
            begin = self.knots[k - 1] + share * (begin - self.knots[k - 1])
        end = begin + self.mass
        first, last = self._atom(begin), self._atom(end)
        law = list(self.lowered)
        for j in range(first, last + 1):
            inside = min(end, self.starts[j + 1]) - max(begin, self.starts[j])
            full = first < j < last
            law[j] = self.raised[j] if full else float(self.low[j] + self.factor * inside)
        return law

    def solution(self, n_intervals: int) -> Solution:
        """The rows of all grid inputs."""
        upper = [
            self.row(Fraction(2 * i - n_intervals, n_intervals))
            for i in range((n_intervals + 1) // 2, n_intervals + 1)
        ]
        if n_intervals % 2 == 0:
            # Either window of a tie gives a law of mean 0; their average is symmetric.
            upper[0] = [(a + b) / 2 for a, b in zip(upper[0], reversed(upper[0]), strict=True)]
        lower = [law[::-1] for law in reversed(upper[1 - n_intervals % 2 :])]
        rows = np.array(lower + upper)
        outputs = np.array([float(y) for y in self.outputs])
        for array in (outputs, rows):
            array.setflags(write=False)
        return Solution(outputs, rows, _worst_variance(outputs, rows), self.epsilon)


def _worst_variance(outputs: _Array, rows: _Array) -> float:
    """Largest variance over [-1, 1] when inputs between grid points are rounded at random."""
    second = rows @ outputs**2
    x = np.linspace(-1.0, 1.0, len(rows))
    slope = np.diff(second) / np.diff(x)
    # Between grid points the second moment is a chord, and chord - x^2 peaks where 2 x = slope.
    peak = np.clip(slope / 2, x[:-1], x[1:])
    return float(np.max(second[:-1] + slope * (peak - x[:-1]) - peak**2))
