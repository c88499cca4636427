"""Private counts, sums and means, accumulated in integers: the order of records does not matter."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from dpcore._charge import open_release, prepay
from dpcore._checks import (
    check_choice,
    check_data,
    check_index,
    check_positive,
    check_resolution,
    default_exponent,
    exact,
)
from dpcore._events import PureEvent
from dpcore._exact import floor_log2
from dpcore._release import (
    add_noise,
    check_noise,
    check_start,
    finish,
    label,
    laplace_event,
    laplace_law,
    sample,
)
from dpcore.errors import DataError, ParameterError
from dpcore.noise import Noise
from dpcore_ext.sample import quantize

__all__ = ["bounded_mean", "bounded_sum", "histogram"]

_ADJACENCY = ("replace", "add-remove")
_BLOCK = 1 << 20


def histogram(
    labels: npt.ArrayLike,
    n_bins: int,
    *,
    epsilon: float,
    adjacency: str = "replace",
    noise: Noise | None = None,
    start: int = 0,
) -> npt.NDArray[np.int64]:
    """Counts of the labels 0, ..., n_bins - 1 with exact discrete Laplace noise.

    Parameters
    ----------
    labels : array_like of integers, one dimension
        One label per record.
    n_bins : int
        Number of bins: public, never inferred from the labels.
    epsilon : float
        Privacy loss.
    adjacency : {"replace", "add-remove"}
        Neighbouring data sets differ by changing one record (sensitivity 2) or by adding or
        removing one (sensitivity 1).
    noise, start
        Source of randomness, and index of the first bin in the release.

    Returns
    -------
    ndarray of int64, shape (n_bins,)
        Unbiased counts, which may be negative.

    Privacy
    -------
    Pure epsilon-DP for one record. With "replace" the number of records is public; with
    "add-remove" it is protected.

    Cost
    ----
    One pass over the labels; one sample per bin.

    Examples
    --------
    >>> import dpcore
    >>> dpcore.histogram([0, 2, 2, 1], 3, epsilon=1.0).shape
    (3,)
    """
    n_bins = check_index(n_bins, "n_bins", least=1)
    epsilon_exact = check_positive(epsilon, "epsilon")
    distance = 2 if check_choice(adjacency, "adjacency", _ADJACENCY) == "replace" else 1
    data = check_data(labels, "labels", dimensions=1, may_be_empty=distance == 1)
    if data.size == 0:
        data = data.astype(np.int64)
    if data.dtype != np.int64:
        raise ParameterError("The 'labels' parameter must be of an integer dtype.")
    source = check_noise(noise)
    start = check_start(start, n_bins)
    if data.size and (data.min() < 0 or data.max() >= n_bins):
        raise DataError("The 'labels' parameter must hold integers from 0 to n_bins - 1.")
    counts = np.bincount(data, minlength=n_bins).astype(np.int64, copy=False)
    law, rate = laplace_law(epsilon_exact, distance)
    event = laplace_event("histogram", law, distance, adjacency)
    key = open_release(source, event, "histogram", *label(rate))
    add_noise(law, key, start, counts, counts)
    return finish(counts, source)  # type: ignore[no-any-return]


def bounded_sum(
    x: npt.ArrayLike,
    lower: float,
    upper: float,
    *,
    epsilon: float,
    adjacency: str = "replace",
    resolution: float | None = None,
    noise: Noise | None = None,
    start: int = 0,
) -> float:
    """Sum of x, each value clamped to [lower, upper], with Laplace noise.

    Parameters
    ----------
    x : array_like of numbers, one dimension
        One value per record.
    lower, upper : float
        Public bounds.
    epsilon : float
        Privacy loss.
    adjacency : {"replace", "add-remove"}
        As for `histogram`.
    resolution : float, optional
        Grid of the sum, a power of two; by default about a millionth of the bounds' size.
    noise, start
        Source of randomness, and index of this sum in the release.

    Privacy
    -------
    Pure epsilon-DP for one record. Values are clamped and rounded to the grid one by one and added
    as integers, so the sensitivity is exact and the result does not depend on their order.
    Whether x is finite is taken as public, and with "replace" the number of records is.

    Cost
    ----
    One pass, eight bytes of scratch memory per record of a block of a million.

    Examples
    --------
    >>> import dpcore
    >>> isinstance(dpcore.bounded_sum([0.2, 0.9], 0, 1, epsilon=1.0), float)
    True
    """
    epsilon_exact = check_positive(epsilon, "epsilon")
    replace = check_choice(adjacency, "adjacency", _ADJACENCY) == "replace"
    data, low, high = _bounded(x, lower, upper, may_be_empty=not replace)
    source = check_noise(noise)
    reach = high - low if replace else max(abs(low), abs(high))
    exponent = _sum_exponent(resolution, low, high, reach / epsilon_exact)
    units = _GridBounds(low, high, exponent)
    distance = units.high - units.low if replace else max(abs(units.low), abs(units.high))
    total = units.sum(data)
    unit = _UnitNoise(epsilon_exact, distance, "bounded_sum", units)
    first = check_start(start, 1)
    drawn = unit.draw(prepay(source, unit.event(adjacency), *unit.name), first)
    return _as_float((total + drawn) * Fraction(2) ** exponent, source)


def bounded_mean(
    x: npt.ArrayLike,
    lower: float,
    upper: float,
    *,
    epsilon: float,
    adjacency: str = "replace",
    resolution: float | None = None,
    noise: Noise | None = None,
    start: int = 0,
) -> float:
    """Mean of x, each value clamped to [lower, upper], with Laplace noise.

    Parameters
    ----------
    x, lower, upper, epsilon, adjacency, resolution, noise, start
        As for `bounded_sum`.

    Returns
    -------
    float
        Between lower and upper.

    Privacy
    -------
    Pure epsilon-DP for one record. With "replace" the number of records is public and all of
    epsilon goes to the sum. With "add-remove" half goes to the sum of the distances from the middle
    of the bounds and half to the number of records.

    Cost
    ----
    As for `bounded_sum`.

    Examples
    --------
    >>> import dpcore
    >>> 0 <= dpcore.bounded_mean([0.2, 0.9], 0, 1, epsilon=1.0) <= 1
    True
    """
    epsilon_exact = check_positive(epsilon, "epsilon")
    replace = check_choice(adjacency, "adjacency", _ADJACENCY) == "replace"
    data, low, high = _bounded(x, lower, upper, may_be_empty=not replace)
    source = check_noise(noise)
    exponent = _sum_exponent(resolution, low, high, (high - low) / epsilon_exact)
    units = _GridBounds(low, high, exponent)
    distance, first, total = units.high - units.low, check_start(start, 1), units.sum(data)
    if replace:
        unit = _UnitNoise(epsilon_exact, distance, "bounded_mean", units)
        drawn = unit.draw(prepay(source, unit.event(adjacency), *unit.name), first)
        mean = Fraction(total + drawn, data.size)
    else:
        # Twice the distance from the middle is an integer, at most high - low in size.
        doubled = 2 * total - data.size * (units.low + units.high)
        of_sum = _UnitNoise(epsilon_exact / 2, distance, "bounded_mean/sum", units)
        of_count = _UnitNoise(epsilon_exact / 2, 1, "bounded_mean/count", units)
        both = of_sum.event(adjacency).epsilon + of_count.event(adjacency).epsilon
        event = PureEvent(
            mechanism="bounded_mean", epsilon=math.nextafter(both, math.inf), adjacency=adjacency
        )
        paid = prepay(source, event, *of_sum.name)
        doubled += of_sum.draw(paid, first)
        count = data.size + of_count.draw(paid, first)
        mean = (Fraction(doubled, max(count, 1)) + units.low + units.high) / 2
    return _as_float(min(max(mean * Fraction(2) ** exponent, low), high), source)


class _GridBounds:
    """Bounds in units of the grid, and exact sums of values clamped to them."""

    def __init__(self, low: Fraction, high: Fraction, exponent: int) -> None:
        unit = Fraction(2) ** exponent
        self.exponent = exponent
        self.low, self.high = round(low / unit), round(high / unit)
        if self.low == self.high or max(abs(self.low), abs(self.high)) >= 1 << 52:
            raise ParameterError(
                "The 'resolution' parameter must divide the bounds into 1 to 2**52 units."
            )
        self._ends = float(self.low * unit), float(self.high * unit)

    def sum(self, data: npt.NDArray[Any]) -> int:
        total, offset = 0, self.low
        values = data.astype(np.float64, copy=False)
        buffer = np.empty(min(_BLOCK, values.size), np.int64)
        block = max(1, min(_BLOCK, (1 << 62) // (self.high - self.low)))
        for begin in range(0, values.size, block):
            part = values[begin : begin + block]
            into = buffer[: part.size]
            quantize(part, *self._ends, self.exponent, into)
            total += int((into - offset).sum()) + part.size * offset
        return total


def _bounded(
    x: npt.ArrayLike, lower: float, upper: float, *, may_be_empty: bool
) -> tuple[npt.NDArray[Any], Fraction, Fraction]:
    low, high = exact(lower, "lower"), exact(upper, "upper")
    if low >= high:
        raise ParameterError("The 'upper' parameter must be greater than 'lower'.")
    return check_data(x, "x", dimensions=1, may_be_empty=may_be_empty), low, high


def _sum_exponent(resolution: float | None, low: Fraction, high: Fraction, scale: Fraction) -> int:
    """A millionth of the width; coarser only where bounds or noise would take too many units."""
    size = floor_log2(max(abs(low), abs(high)))
    default_exponent(size, "upper")
    if resolution is not None:
        return check_resolution(resolution)
    return default_exponent(
        max(floor_log2(high - low) - 20, size - 50, floor_log2(scale) - 40), "upper"
    )


class _UnitNoise:
    """Laplace noise for one number in units of the grid."""

    def __init__(
        self, epsilon: Fraction, distance: int | Fraction, name: str, units: _GridBounds
    ) -> None:
        self._law, rate = laplace_law(epsilon, distance)
        self._distance = distance
        self.name = (name, *label(rate), units.exponent, units.low, units.high)

    def event(self, adjacency: str) -> PureEvent:
        return laplace_event(str(self.name[0]), self._law, self._distance, adjacency)

    def draw(self, source: Noise, start: int) -> int:
        return int(sample(self._law, source.key_for(*self.name), (1,), start)[0])


def _as_float(value: Fraction, source: Noise) -> float:
    return float(value) if source.private else source.mark(np.array(float(value)))  # type: ignore
