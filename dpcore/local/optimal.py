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

import math
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

__all__ = ["Solution", "optimal", "shipped", "solve"]

_Array = npt.NDArray[np.float64]
_Design = tuple[_Array, _Array]

LEAST_EPSILON, MOST_EPSILON = 0.05, 20.0
OBJECTIVES = ("worst", "second_moment", "at_zero")
_TABLES = "optimal_tables.npz"
_ROOM = "1e-6"
_DECIMALS = Context(prec=50, rounding=ROUND_HALF_EVEN)
_TIE_WEIGHT = 1e-3
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
        variance of the input 0. The last two settle ties by the first.
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
    design = _search(epsilon, n_outputs, objective)
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
    pieces = _Pieces(len(y), len(m) - len(y), epsilon, "worst")
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
        loss = _DECIMALS.multiply(Decimal(epsilon), _DECIMALS.subtract(1, Decimal(_ROOM)))
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


# --- The search ---------------------------------------------------------------------------------
# Masses are held as n = e^epsilon m, which stays of order 1 / n_outputs for every epsilon.


class _Pieces:
    """The smooth pieces whose largest is the objective, and the constraints of existence."""

    def __init__(self, half: int, odd: int, epsilon: float, objective: str) -> None:
        self.half, self.odd = half, odd
        self.shrink = math.exp(-epsilon * (1 - float(_ROOM)))
        count = 2 * half + odd
        left, right = np.triu_indices(count, 1)
        # The other pairs are mirror images of these.
        chosen = left + right >= count - 1
        self.left, self.right = left[chosen], right[chosen]
        self.fold_y = np.zeros((count, half))
        self.fold_n = np.zeros((count, half + odd))
        own = np.arange(half)
        self.fold_y[count - half + own, own] = 1
        self.fold_y[half - 1 - own, own] = -1
        self.fold_n[count - half + own, own + odd] = 1
        self.fold_n[half - 1 - own, own + odd] = 1
        if odd:
            self.fold_n[half, 0] = 1
        # (input, weight): the variance where it is largest for None, else a second moment.
        self.terms: tuple[tuple[float | None, float], ...] = {
            "worst": ((None, 1.0),),
            "second_moment": ((1.0, 1.0), (None, _TIE_WEIGHT)),
            "at_zero": ((0.0, 1.0), (None, _TIE_WEIGHT)),
        }[objective]

    def values(self, design: _Design) -> list[tuple[_Array, _Array]]:
        """For each term the values of all pieces and the inputs they belong to."""
        y, n = self.fold_y @ design[0], self.fold_n @ design[1]
        low, high = y[self.left], y[self.right]
        total, product = low + high, low * high
        sums = [np.concatenate([[0.0], np.cumsum(n * y**k)]) for k in range(3)]
        inner = [s[self.right] - s[self.left + 1] for s in sums]
        fixed = (1 - self.shrink) * (inner[2] - total * inner[1] + product * inner[0])
        fixed += self.shrink * (sums[2][-1] + product * sums[0][-1]) - product
        found = []
        for at, _ in self.terms:
            x = np.clip(total / 2, 0.0, 1.0) if at is None else np.full(len(total), at)
            found.append((fixed + total * x - (x**2 if at is None else 0.0), x))
        return found

    def value(self, design: _Design) -> float:
        pairs = zip(self.terms, self.values(design), strict=True)
        return math.fsum(weight * float(found[0].max()) for (_, weight), found in pairs)

    def gradients(
        self, design: _Design, chosen: npt.NDArray[np.intp], x: _Array
    ) -> tuple[_Array, _Array]:
        y, n = self.fold_y @ design[0], self.fold_n @ design[1]
        left, right = self.left[chosen], self.right[chosen]
        j, k = np.arange(len(y)), np.arange(len(chosen))
        raised = np.where((j > left[:, None]) & (j < right[:, None]), 1.0, self.shrink)
        from_left, from_right = y - y[left][:, None], y - y[right][:, None]
        by_n = raised * from_left * from_right
        weights = raised * n
        weights[k, left] = weights[k, right] = 0.0
        by_y = weights * (from_left + from_right)
        by_y[k, left] = x - y[right] - (weights * from_right).sum(1)
        by_y[k, right] = x - y[left] - (weights * from_left).sum(1)
        return by_y @ self.fold_y, by_n @ self.fold_n

    def reach(self, design: _Design) -> tuple[_Array, _Array, _Array]:
        """One number per output, all at least 1 when every row exists, and its derivatives."""
        y, n = self.fold_y @ design[0], self.fold_n @ design[1]
        j = np.arange(len(y))
        raised = np.where(j > j[:, None], 1.0, self.shrink)
        np.fill_diagonal(raised, 0.0)
        by_n = raised * (y - y[:, None])
        by_y = raised * n
        np.fill_diagonal(by_y, 1 - by_y.sum(1))
        return y + by_n @ n, by_y @ self.fold_y, by_n @ self.fold_n

    def settled(self, design: _Design) -> tuple[float, _Design]:
        """The value once the positions are ordered and scaled to reach a mean of just 1."""
        y, n = np.maximum.accumulate(np.maximum(design[0], 0.0)), np.maximum(design[1], 0.0)
        least = float(self.reach((y, n))[0].min())
        if least <= 0:
            return math.inf, design
        return self.value((y / least, n)), (y / least, n)


def _linprog(*args: Any, **keywords: Any) -> Any:
    try:
        from scipy.optimize import linprog
    except ImportError:
        raise ImportError(
            "Solving for an epsilon that is not shipped needs scipy: install dpcore[accounting] "
            "or choose a shipped epsilon."
        ) from None
    return linprog(*args, method="highs-ds", **keywords)


def _programme(
    pieces: _Pieces, design: _Design, scale: float, most: int
) -> tuple[_Array, _Array, _Array]:
    """Costs and inequalities, linear around a design; one column per term bounds its pieces."""
    terms, columns = len(pieces.terms), len(design[0]) + len(design[1])
    cost = np.zeros(columns + terms)
    matrix, bound = [], []
    for term, (values, x) in enumerate(pieces.values(design)):
        cost[columns + term] = pieces.terms[term][1]
        chosen = np.argsort(-values, kind="stable")[:most]
        block = np.zeros((len(chosen), columns + terms))
        block[:, :columns] = np.hstack(pieces.gradients(design, chosen, x[chosen])) / scale
        block[:, columns + term] = -1.0
        matrix.append(block)
        bound.append(-values[chosen] / scale)
    reach, by_y, by_n = pieces.reach(design)
    matrix.append(-np.hstack([by_y, by_n, np.zeros((len(reach), terms))]))
    bound.append(reach - 1)
    return cost, np.vstack(matrix), np.concatenate(bound)


def _descend(
    pieces: _Pieces, design: _Design, *, programmes: int, tolerance: float = 1e-7
) -> tuple[float, _Design]:
    """Sequential linear programming with a trust region, from a design to a local optimum.

    The limit is a number of programmes and not a time, so that a search can be repeated.
    """
    best, design = pieces.settled(design)
    if not math.isfinite(best):
        return math.inf, design
    half, columns = pieces.half, 2 * pieces.half + pieces.odd
    ordered = np.eye(half, k=-1) - np.eye(half)
    radius = 0.3
    while programmes > 0:
        y, n = design
        cost, matrix, bound = _programme(pieces, design, best, max(150, 5 * columns))
        order = np.zeros((half, matrix.shape[1]))
        order[:, :half] = ordered
        matrix = np.vstack([matrix, order])
        bound = np.concatenate([bound, np.diff(y, prepend=0.0)])
        reach_y = np.full(half, y[-1] / half)
        reach_n = np.maximum(n, 0.2 * n.mean())
        while True:
            span = radius * np.concatenate([reach_y, reach_n])
            limits = [
                *zip(np.maximum(-span, -np.concatenate([y, n])), span, strict=True),
                *[(None, None)] * len(pieces.terms),
            ]
            found = _linprog(cost, A_ub=matrix, b_ub=bound, bounds=limits)
            programmes -= 1
            if found.status == 0:
                predicted = 1 - found.fun
                if predicted < tolerance:
                    return best, design
                move = found.x[:columns]
                value, trial = pieces.settled((y + move[:half], n + move[half:]))
                if 1 - value / best >= 0.1 * predicted:
                    break
            radius *= 0.4
            if radius < 1e-7 or programmes <= 0:
                return best, design
        if 1 - value / best > 0.6 * predicted:
            radius = min(2 * radius, 1.0)
        best, design = value, trial
    return best, design


def _from_grid(half: int, odd: int, epsilon: float, objective: str, width: float) -> _Design | None:
    """The best masses for equally spaced positions: one programme, no local optima."""
    pieces = _Pieces(half, odd, epsilon, objective)
    centre = 1 / math.tanh(epsilon / 2)
    # At small epsilon all useful positions crowd around those of the two-output mechanism.
    low, high = max(0.0, 1 - 1.5 * epsilon), min(width, 1 + 1.5 * epsilon)
    spacing = (high - low) / (half - (1 - odd) / 2)
    first = spacing * (1 + odd) / 2 if low == 0 else low
    y = centre * np.linspace(first, high, half)
    # Values at n = 0, where all pieces are known exactly because they are linear in n.
    n = np.zeros(half + odd)
    scale = centre**2 * math.exp(-2 * epsilon / 3) + half**-2.0
    cost, matrix, bound = _programme(pieces, (y, n), scale, len(pieces.left))
    found = _linprog(cost[half:], A_ub=matrix[:, half:], b_ub=bound)
    return (y, found.x[: half + odd]) if found.status == 0 else None


def _resized(design: _Design, half: int, odd: int) -> _Design:
    """A similar design with another number of outputs: near ones merge, heavy ones split."""
    y, n = design
    middle = n[: len(n) - len(y)]
    n = n[len(middle) :]
    used = n > 1e-6 * n.max()
    y, n = y[used], n[used]
    if middle.any() and not odd:
        y, n = np.append(0.1 * y[0], y), np.append(middle / 2, n)
    while len(y) > half:
        weights = n[:-1] * n[1:] / (n[:-1] + n[1:])
        j = int(np.argmin(weights * np.diff(y) ** 2))
        mass = n[j] + n[j + 1]
        y[j] = (n[j] * y[j] + n[j + 1] * y[j + 1]) / mass
        n[j] = mass
        y, n = np.delete(y, j + 1), np.delete(n, j + 1)
    while len(y) < half:
        gaps = np.diff(np.concatenate([[-y[0]], y]))
        heavy = np.argsort(-n * gaps, kind="stable")[: half - len(y)]
        shift = 0.15 * np.minimum(gaps, np.append(gaps[1:], gaps[-1]))[heavy]
        n[heavy] /= 2
        y, n = np.append(y, y[heavy] + shift), np.append(n, n[heavy])
        y[heavy] -= shift
        order = np.argsort(y, kind="stable")
        y, n = y[order], n[order]
    if odd:
        n = np.append(middle if len(middle) else 0.0, n)
    return y, n


def _count(design: _Design) -> int:
    return len(design[0]) + len(design[1])


def _pruned(design: _Design, epsilon: float) -> _Design:
    """The design without outputs that coincide or that are too rare to be worth a code."""
    y, n = design
    middle = n[: len(n) - len(y)]
    n = n[len(middle) :].copy()
    if y[0] < 1e-7 * y[-1]:
        middle = np.array([middle.sum() + 2 * n[0]])
        y, n = y[1:], n[1:]
    same = np.flatnonzero(np.diff(y) < 1e-7 * y[-1])
    for j in same[::-1]:
        n[j] += n[j + 1]
        y, n = np.delete(y, j + 1), np.delete(n, j + 1)
    # Probabilities become multiples of 2^-64 later, which must not use up the room left for it.
    least = max(1e-6 * float(n.max()), 1e8 / epsilon * math.exp(epsilon) / 2**64)
    used = n >= least
    return y[used], np.append(middle[middle >= least], n[used])


def _even_spread(half: int, odd: int, epsilon: float, share: float) -> _Design:
    """Equally spaced outputs of equal mass, of which a row raises the given share."""
    count = 2 * half + odd
    shrink = math.exp(-epsilon)
    mass = 1 / (share + (1 - share) * shrink) / count
    return np.linspace(-1.0, 1.0, count)[count - half :], np.full(half + odd, mass)


def _search(epsilon: float, n_outputs: int, objective: str, *, thorough: bool = False) -> _Design:
    """The best design of several starts, as (y, m)."""
    half, odd = divmod(n_outputs, 2)
    pieces = _Pieces(half, odd, epsilon, objective)
    if n_outputs == 2:
        grids = []
    elif thorough:
        grids = [(k, w) for k in (20, 32, 48, 64) for w in (1.02, 1.1, 1.2, 1.4, 1.6, 1.8, 2.2)]
    else:
        widths = (1.4, 1.8) if epsilon <= 3 else (1.2, 1.5) if epsilon <= 7 else (1.02, 1.1)
        grids = [(24, widths[0]), (48, widths[0]), (48, widths[1])]
    gridded = [_from_grid(size, odd, epsilon, objective, width) for size, width in grids]
    starts = [_resized(start, half, odd) for start in gridded if start is not None]
    shares = (0.5, 0.3, 0.15, 3 / n_outputs, 1 / n_outputs)
    starts += [_even_spread(half, odd, epsilon, share) for share in shares]
    # The work of a programme grows with the cube of the number of outputs.
    programmes = 90 if n_outputs <= 20 else max(3, 160000 // n_outputs**2)
    if thorough:
        programmes = 250
    if n_outputs > 20:
        starts.sort(key=lambda start: pieces.settled(start)[0])
        starts = starts[: 3 if thorough else 1]
    found = [_descend(pieces, start, programmes=programmes) for start in starts]
    design = min(found, key=lambda result: result[0])[1]
    # Outputs that came out unused get a second chance beside those that are used.
    reduced = _pruned(design, epsilon)
    if _count(reduced) < n_outputs and 3 < n_outputs <= 64:
        again = _resized(reduced, half, odd)
        found.append(_descend(pieces, again, programmes=programmes))
        design = min(found, key=lambda result: result[0])[1]
    while _count(reduced := _pruned(design, epsilon)) < _count(design):
        pieces = _Pieces(len(reduced[0]), len(reduced[1]) - len(reduced[0]), epsilon, objective)
        design = _descend(pieces, reduced, programmes=1 + programmes // 4)[1]
    return design[0], design[1] * pieces.shrink
