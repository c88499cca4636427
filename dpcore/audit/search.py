"""The search for a set of outputs that is too likely under one input and too rare under another.

Sets are chosen on one half of the runs and counted on the other, so the counts are binomial and
the choice costs nothing but the number of sets counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dpcore.audit.bounds import quantile
from dpcore.audit.result import Audit, Claim

__all__ = ["Finding", "Statistic", "Views", "predicted", "search", "summarise"]

Array = npt.NDArray[Any]

_MOST_CODES = 1 << 12
_MOST_BINS = 256
_Z = 5.5  # for predictions only


@dataclass(frozen=True)
class Statistic:
    """A number for every run: a function of its output."""

    name: str
    of: Callable[[Array], Array]


@dataclass(frozen=True)
class Views:
    """Outputs under two inputs, one run per row: those to choose on, and those to count on."""

    chosen: tuple[Array, Array]
    held: tuple[Array, Array]

    @staticmethod
    def split(first: Array, second: Array) -> Views:
        a, b = len(first) // 2, len(second) // 2
        return Views((first[:a], second[:b]), (first[a:], second[b:]))

    def __bool__(self) -> bool:
        return all(len(part) for part in (*self.chosen, *self.held))


@dataclass(frozen=True)
class Finding:
    """Hits of one set under the input that it points to, and under the other."""

    text: str
    k: int
    n: int
    other_k: int
    other_n: int

    def estimate(self, claim: Claim) -> float:
        """An upper bound on every lower bound: what the shares themselves say."""
        p, q = self.k / self.n, self.other_k / self.other_n
        if p <= q:
            return -np.inf
        if claim.mu is not None:
            return quantile(p) - quantile(q)
        return float(np.log(p - claim.delta) - np.log(q or 1e-300)) if p > claim.delta else -np.inf


class _Bins:
    """Disjoint ranges that cover all values of a statistic."""

    def __init__(self, values: Array) -> None:
        self.lowest, self.edges = 0, np.empty(0)
        low, high = values.min(), values.max()
        self.whole = values.dtype.kind in "iub" and int(high) - int(low) < _MOST_CODES
        if self.whole:
            self.lowest, self.n = int(low), int(high) - int(low) + 1
            return
        ordered = np.sort(values)
        ranks = np.linspace(0, len(ordered) - 1, _MOST_BINS).astype(np.intp)
        tails = np.unique(np.geomspace(1, max(1, len(ordered) // 2), 24).astype(np.intp))
        ends = ordered[np.concatenate([ranks, tails, len(ordered) - tails])]
        seen, counts = np.unique(ordered, return_counts=True)
        common = seen[np.argsort(counts)[-16:]]
        after = common + 1 if values.dtype.kind in "iub" else np.nextafter(common, np.inf)
        self.edges = np.unique(np.concatenate([ends, common, after]))
        self.n = len(self.edges) + 1

    def of(self, values: Array) -> Array:
        if self.whole:
            return np.clip(values.astype(np.int64) - self.lowest, 0, self.n - 1)
        return np.searchsorted(self.edges, values, side="right")

    def text(self, member: npt.NDArray[np.bool_]) -> str:
        bins = np.flatnonzero(member)
        if len(bins) > 1 and bins[-1] - bins[0] == len(bins) - 1:
            low = self.lowest + bins[0] if self.whole else self.edges[max(bins[0] - 1, 0)]
            high = self.lowest + bins[-1] if self.whole else self.edges[min(bins[-1], self.n - 2)]
            if bins[0] == 0:
                return f"at most {high}" if self.whole else f"below {high:.6g}"
            if bins[-1] == self.n - 1:
                return f"at least {low}" if self.whole else f"at least {low:.6g}"
        if self.whole:
            shown = ", ".join(str(self.lowest + i) for i in bins[:6])
            return f"in {{{shown}{', ...' if len(bins) > 6 else ''}}}"
        if len(bins) == 1 and 0 < bins[0] < self.n - 1:
            return f"from {self.edges[bins[0] - 1]:.6g} to below {self.edges[bins[0]]:.6g}"
        return f"in {len(bins)} of {self.n} ranges"


def predicted(k: Array, n: float, other_k: Array, other_n: float, claim: Claim) -> Array:
    """Roughly the bounds that sets with so many hits will give."""
    likely, unlikely = _wilson(k / n, n, -_Z), _wilson(other_k / other_n, other_n, _Z)
    if claim.mu is not None:
        gaps = [quantile(p) - quantile(q) for p, q in zip(likely, unlikely, strict=True)]
        return np.array(gaps)
    return np.asarray(np.log(np.maximum(likely - claim.delta, 1e-300)) - np.log(unlikely))


def _wilson(share: Array, n: float, z: float) -> Array:
    centre = share + z * z / (2 * n)
    reach = z * np.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return np.asarray(np.clip((centre + reach) / (1 + z * z / n), 1e-15, 1 - 1e-15))


def search(
    views: Views, statistics: Iterable[Statistic], claim: Claim, where: str
) -> Iterator[Finding]:
    """The best sets of every statistic, in either direction, with their hits among the held."""
    for statistic in statistics:
        chosen = [np.asarray(statistic.of(part)) for part in views.chosen]
        held = [np.asarray(statistic.of(part)) for part in views.held]
        bins = _Bins(np.concatenate(chosen))
        counts = [_quarters(bins.of(part), bins.n) for part in chosen]
        hits = [np.bincount(bins.of(part), minlength=bins.n) for part in held]
        for a, b in ((0, 1), (1, 0)):
            for member in _sets(counts[a], counts[b], claim):
                text = f"{statistic.name} {bins.text(member)}; {where}"
                found = int(hits[a][member].sum()), int(hits[b][member].sum())
                yield Finding(text, found[0], len(held[a]), found[1], len(held[b]))


def _quarters(places: Array, size: int) -> Array:
    """Counts of the first and of the second half, as rows."""
    middle = len(places) // 2
    parts = places[:middle], places[middle:]
    return np.array([np.bincount(part, minlength=size) for part in parts])


def _sets(counts: Array, others: Array, claim: Claim) -> list[npt.NDArray[np.bool_]]:
    """The best lower end, upper end, and union of bins by their ratio.

    Many bins look good by chance: where they are ordered on one part of the runs, their number is
    chosen on the other.
    """
    first, other_first = counts[0] + 0.5, others[0] + 0.5
    ratio = (first / first.sum()) / (other_first / other_first.sum())
    rising = np.arange(counts.shape[1])
    found: dict[bytes, npt.NDArray[np.bool_]] = {}
    for order, whole in (
        (rising, True),
        (rising[::-1], True),
        (np.argsort(-ratio, kind="stable"), False),
    ):
        seen, other_seen = (c.sum(axis=0) if whole else c[1] for c in (counts, others))
        k, other_k = np.cumsum(seen[order]), np.cumsum(other_seen[order])
        scores = predicted(k, max(k[-1], 1), other_k, max(other_k[-1], 1), claim)
        member = np.zeros(len(rising), np.bool_)
        member[order[: int(np.argmax(scores)) + 1]] = True
        found[member.tobytes()] = member
    return list(found.values())


def summarise(
    name: str, claim: Claim, findings: Sequence[Finding], confidence: float, trials: int
) -> Audit:
    """The greatest bound of all findings, corrected for their number."""
    alpha = (1 - confidence) / len(findings)
    best, worst = 0.0, "none"
    for finding in sorted(findings, key=lambda f: f.estimate(claim), reverse=True):
        if finding.estimate(claim) <= best:
            break
        bound = claim.bound(finding.k, finding.n, finding.other_k, finding.other_n, alpha)
        if bound > best:
            best, worst = bound, finding.text
    return Audit(
        name,
        claim.epsilon,
        claim.delta,
        claim.as_epsilon(best),
        confidence,
        trials,
        len(findings),
        worst,
    )
