"""The search behind `dpcore.local.optimal`: sequential linear programming over designs.

A design is (y, n): the positive output positions in increasing order, and the masses
n = e**epsilon m, which stay of order 1 / n_outputs for every epsilon; m are the smallest
probabilities, that of the output 0 in front where there is one.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["ROOM", "Pieces", "search"]

_Array = npt.NDArray[np.float64]
_Design = tuple[_Array, _Array]

ROOM = "1e-6"  # part of epsilon that is left for roundings
_TIE_WEIGHT = 1e-3


class Pieces:
    """The smooth pieces whose largest is the objective, and the constraints of existence."""

    def __init__(self, half: int, odd: int, epsilon: float, objective: str) -> None:
        self.half, self.odd = half, odd
        self.shrink = math.exp(-epsilon * (1 - float(ROOM)))
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
    pieces: Pieces, design: _Design, scale: float, most: int
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
    pieces: Pieces, design: _Design, *, programmes: int, tolerance: float = 1e-7
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
    pieces = Pieces(half, odd, epsilon, objective)
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


def search(epsilon: float, n_outputs: int, objective: str, *, thorough: bool = False) -> _Design:
    """The best design of several starts, as (y, m)."""
    half, odd = divmod(n_outputs, 2)
    pieces = Pieces(half, odd, epsilon, objective)
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
        pieces = Pieces(len(reduced[0]), len(reduced[1]) - len(reduced[0]), epsilon, objective)
        design = _descend(pieces, reduced, programmes=1 + programmes // 4)[1]
    return design[0], design[1] * pieces.shrink
