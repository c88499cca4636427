"""Goodness-of-fit tests at one level for all, and the laws to fit, written without dpcore.

Every test here rejects a correct sampler with probability ALPHA; seeds are fixed, so a pass stays a
pass until streams or laws change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import special, stats

ALPHA = 1e-6
LEAST_EXPECTED = 20
MOST_BINS = 1000

Tail = Callable[[npt.ArrayLike], npt.NDArray[np.float64]]


def verdict(p: float, what: str) -> str:
    """The message of a failed test."""
    return (
        f"{what}: p = {p:.1e}. A correct sampler fails this test with probability {ALPHA:.0e} "
        "per seed, so this is a defect unless the seed was chosen anew."
    )


def assert_plausible(p: float, what: str) -> None:
    assert p > ALPHA, verdict(p, what)


@dataclass(frozen=True)
class Law:
    """A law of integers by its two tails, each accurate where it is small."""

    at_most: Tail
    at_least: Tail
    variance: float
    fourth_moment: float  # central

    def quantile(self, probability: float) -> int:
        """The smallest x with P(X <= x) >= probability."""
        low, high = -1, 1
        while float(self.at_most(low)) >= probability:
            low *= 2
        while float(self.at_most(high)) < probability:
            high *= 2
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (
                (low, middle) if float(self.at_most(middle)) >= probability else (middle, high)
            )
        return high

    def upper_quantile(self, probability: float) -> int:
        """The largest x with P(X >= x) >= probability."""
        mirrored = Law(lambda x: self.at_least(-np.asarray(x)), self.at_most, 0, 0)
        return -mirrored.quantile(probability)

    def between(self, begin: npt.ArrayLike, end: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """P(begin <= X < end), from whichever tail is the smaller."""
        begin, end = np.asarray(begin), np.asarray(end)
        left = self.at_most(end - 1) - self.at_most(begin - 1)
        right = self.at_least(begin) - self.at_least(end)
        return np.where(self.at_most(begin) < 0.5, left, right)


def from_tail(at_least: Tail, variance: float, fourth_moment: float) -> Law:
    """A symmetric law from P(X >= x) for x >= 1."""

    def upper(x: npt.ArrayLike) -> npt.NDArray[np.float64]:
        x = np.asarray(x)
        return np.where(x >= 1, at_least(np.maximum(x, 1)), 1 - at_least(np.maximum(1 - x, 1)))

    return Law(lambda x: upper(-np.asarray(x)), upper, variance, fourth_moment)


def discrete_laplace(scale: float) -> Law:
    q = np.exp(-1 / scale)
    variance = 2 * q / np.expm1(-1 / scale) ** 2
    fourth = variance * (1 + 10 * q + q * q) / np.expm1(-1 / scale) ** 2
    return from_tail(lambda x: np.exp(-np.asarray(x) / scale) / (1 + q), variance, fourth)


def geometric(scale: float) -> Law:
    q, p = np.exp(-1 / scale), -np.expm1(-1 / scale)
    variance = q / p**2

    def at_least(x: npt.ArrayLike) -> npt.NDArray[np.float64]:
        return np.exp(-np.maximum(np.asarray(x, float), 0) / scale)

    def at_most(x: npt.ArrayLike) -> npt.NDArray[np.float64]:
        return -np.expm1(-np.maximum(np.asarray(x, float) + 1, 0) / scale)

    return Law(at_most, at_least, variance, variance * (1 + 7 * q + q * q) / p**2)


def rounded_gaussian(sigma: float) -> Law:
    def tail(x: npt.ArrayLike) -> npt.NDArray[np.float64]:
        return special.ndtr(-(np.asarray(x, float) - 0.5) / sigma)

    variance, fourth = sigma**2 + 1 / 12, 3 * sigma**4 + sigma**2 / 2 + 1 / 80
    if sigma < 5:
        variance, fourth = _moments(tail, sigma)
    return from_tail(tail, variance, fourth)


def discrete_gaussian(sigma: float) -> Law:
    if sigma > 2000:  # beyond this the two laws differ by less than one part in 10**7
        return from_tail(rounded_gaussian(sigma).at_least, sigma**2, 3 * sigma**4)
    reach = int(39 * sigma) + 2
    weights = np.exp(-(np.arange(reach + 1) ** 2) / (2 * sigma**2))
    tails = np.append(np.cumsum(weights[::-1])[::-1], 0.0)
    tails /= 2 * tails[0] - weights[0]

    def tail(x: npt.ArrayLike) -> npt.NDArray[np.float64]:
        return tails[np.minimum(np.asarray(x), reach + 1)]

    return from_tail(tail, *_moments(tail, sigma))


def _moments(tail: Tail, sigma: float) -> tuple[float, float]:
    x = np.arange(1, int(39 * sigma) + 3)
    p = tail(x) - tail(x + 1)
    return float(2 * (p * x**2).sum()), float(2 * (p * x.astype(float) ** 4).sum())


def edges_of(law: Law, n: int) -> npt.NDArray[np.int64]:
    """Beginnings of the inner bins: the first bin lies below them, the last is open upwards."""
    share = LEAST_EXPECTED / n
    low, high = law.quantile(share) + 1, law.upper_quantile(share)
    if high - low < MOST_BINS:
        return np.arange(low, high + 1, dtype=np.int64)
    levels = np.arange(1, MOST_BINS) / MOST_BINS
    inner = [law.quantile(level) for level in levels[:: MOST_BINS // 200]]
    spread = np.linspace(low, high, 100).astype(np.int64)
    return np.unique(np.array([low, *inner, *spread, high], np.int64))


def chi_square_parts(observed: npt.ArrayLike, expected: npt.ArrayLike) -> tuple[float, int]:
    """Statistic and number of bins; neighbours are pooled until a bin expects LEAST_EXPECTED."""
    pooled: list[tuple[float, float]] = []
    o = e = 0.0
    for seen, mean in zip(np.ravel(observed), np.ravel(expected), strict=True):
        o, e = o + seen, e + mean
        if e >= LEAST_EXPECTED:
            pooled.append((o, e))
            o = e = 0.0
    if not pooled:
        return 0.0, 1
    pooled[-1] = (pooled[-1][0] + o, pooled[-1][1] + e)
    seen, mean = np.array(pooled).T
    return float(((seen - mean) ** 2 / mean).sum()), len(pooled)


def chi_square(*parts: tuple[npt.ArrayLike, npt.ArrayLike]) -> float:
    """p-value of several independent tables of observed and expected counts together."""
    results = [chi_square_parts(observed, expected) for observed, expected in parts]
    freedom = sum(n_bins - 1 for _, n_bins in results)
    return float(stats.chi2.sf(sum(value for value, _ in results), freedom)) if freedom else 1.0


def fit_p_value(sample: npt.ArrayLike, law: Law) -> float:
    sample = np.asarray(sample)
    edges = edges_of(law, sample.size)
    if edges.size == 0:
        return 1.0
    if edges[-1] - edges[0] < 10 * MOST_BINS:
        inside = np.clip(sample, edges[0] - 1, edges[-1]) - (edges[0] - 1)
        fine = np.bincount(inside, minlength=edges[-1] - edges[0] + 2)
        observed = np.add.reduceat(fine, np.concatenate([[0], edges - (edges[0] - 1)]))
    else:
        bins = np.searchsorted(edges, sample, side="right")
        observed = np.bincount(bins, minlength=edges.size + 1)
    probabilities = np.concatenate(
        [
            [law.at_most(edges[0] - 1)],
            law.between(edges[:-1], edges[1:]),
            [law.at_least(edges[-1])],
        ]
    )
    assert abs(probabilities.sum() - 1) < 1e-9
    return chi_square((observed, sample.size * probabilities))


def least(p_values: Iterable[float]) -> float:
    """p-value of several tests together (Bonferroni)."""
    p_values = list(p_values)
    return min(1.0, len(p_values) * min(p_values))


def tail_p_value(sample: npt.ArrayLike, law: Law) -> float:
    """Binomial tests of what lies far out on either side: 20, 1 and 1e-7 elements expected."""
    sample = np.asarray(sample)
    results = []
    for expected in (LEAST_EXPECTED, 1, 1e-7):
        share = expected / sample.size
        low, high = law.quantile(share) - 1, law.upper_quantile(share) + 1
        for seen, p in (
            (int((sample <= low).sum()), float(law.at_most(low))),
            (int((sample >= high).sum()), float(law.at_least(high))),
        ):
            results.append(float(stats.binomtest(seen, sample.size, p).pvalue))
    return least(results)


def fits(sample: npt.ArrayLike, law: Law) -> bool:
    return min(fit_p_value(sample, law), tail_p_value(sample, law)) > ALPHA


def assert_fits(sample: npt.ArrayLike, law: Law, what: str) -> None:
    assert_plausible(fit_p_value(sample, law), f"{what}, chi-square")
    assert_plausible(tail_p_value(sample, law), f"{what}, number of elements in the tails")


def normal_p_value(z: float) -> float:
    return float(2 * stats.norm.sf(abs(z)))


def moment_p_values(sample: npt.ArrayLike, law: Law, mean: float = 0.0) -> tuple[float, float]:
    """p-values of the mean and of the second moment about the true mean."""
    sample = np.asarray(sample, np.float64) - mean
    n = sample.size
    first = sample.mean() / np.sqrt(law.variance / n)
    spread = np.sqrt((law.fourth_moment - law.variance**2) / n)
    return normal_p_value(first), normal_p_value(((sample**2).mean() - law.variance) / spread)


def serial_p_value(sample: npt.ArrayLike, lag: int) -> float:
    """p-value of the correlation of elements `lag` apart, of values and of magnitudes."""
    results = []
    for values in (np.asarray(sample, np.float64), np.abs(np.asarray(sample, np.float64))):
        values = values - values.mean()
        products = values[lag:] * values[:-lag]
        z = products.sum() / (np.sqrt(products.size) * values.var())
        results.append(normal_p_value(z))
    return least(results)
