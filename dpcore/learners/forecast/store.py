"""What was drawn once and must not be drawn again: released counts, in memory and in files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dpcore.accounting import PureEvent
from dpcore.learners.forecast.exchange import ReleasedCounts, dearest_events, release_counts
from dpcore.noise import Noise
from dpcore.series import Bins

__all__ = ["DrawnCounts", "Scheme", "from_stored", "to_store"]


@dataclass(frozen=True)
class Scheme:
    """How counts are released; parameters as for `release_counts`."""

    epsilon: float | None
    bins: tuple[Bins, ...]
    bucket: int
    period: str


@dataclass(frozen=True, repr=False)
class _Kept:
    ids: list[int | str]
    exact: npt.NDArray[Any]
    sent: ReleasedCounts


class DrawnCounts:
    """The releases of one learner, by which a bucket that comes again is known.

    A series that has grown holds buckets that were sent before: drawn again they would cost again.

    Privacy
    -------
    Holds exact counts, so it must not leave the node.
    """

    def __init__(self) -> None:
        self._kept: dict[Scheme, list[_Kept]] = {}

    def release(
        self,
        scheme: Scheme,
        ids: list[int | str],
        exact: npt.NDArray[Any],
        *,
        noise: Noise | None,
        executor: Any,
    ) -> ReleasedCounts:
        """As `release_counts`, but with the noise of before where a node's counts are the same."""
        options: dict[str, Any] = {
            "epsilon": scheme.epsilon, "noise": noise, "node_ids": ids, "period": scheme.period,
            "executor": executor,
        }  # fmt: skip
        if scheme.epsilon is None:
            return release_counts(exact, scheme.bins, scheme.bucket, **options)
        found = np.zeros_like(exact)
        known = np.zeros(exact.shape[:3], np.bool_)
        parts: list[tuple[dict[int, PureEvent], bool]] = []
        for each in self._kept.get(scheme, []):
            rows, here, there = _shared(each, ids, len(exact))
            same = (exact[rows, here] == each.exact[rows, there]).all(axis=3)
            same &= (each.sent.sizes[rows, there] > 0) & ~known[rows, here]
            found[rows, here] = np.where(
                same[..., None], each.sent.counts[rows, there], found[rows, here]
            )
            known[rows, here] |= same
            if same.any():
                events = each.sent.events_by_channel()
                used = np.flatnonzero(same.any(axis=(0, 1))).tolist()
                parts.append(({f: events[f] for f in used}, each.sent.private))
        sizes = exact.sum(axis=3)
        if not parts or (sizes > 0)[~known].any():
            # Buckets without readings are not drawn: those that are known pass for such.
            unknown = np.where(known[..., None], 0, exact)
            drawn = release_counts(unknown, scheme.bins, scheme.bucket, **options)
            found = np.where(known[..., None], found, drawn.counts)
            parts.append((drawn.events_by_channel(), drawn.private))
        cost = dearest_events(*(events for events, _ in parts))
        sent = ReleasedCounts(found, sizes, cost, all(private for _, private in parts))
        self.keep(scheme, ids, exact, sent)
        return sent

    def keep(
        self, scheme: Scheme, ids: list[int | str], exact: npt.NDArray[Any], sent: ReleasedCounts
    ) -> None:
        """Take note of a release, in place of those that it contains."""
        before = self._kept.get(scheme, [])
        self._kept[scheme] = [each for each in before if not _contains(exact, ids, each)]
        self._kept[scheme].append(_Kept(ids, exact, sent))


def _shared(
    kept: _Kept, ids: list[int | str], n_buckets: int
) -> tuple[slice, npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """The buckets that a release has in common with others, and the places of its nodes in both."""
    places = {name: place for place, name in enumerate(kept.ids)}
    pairs = [(place, places[name]) for place, name in enumerate(ids) if name in places]
    here, there = np.array(pairs, np.intp).reshape(-1, 2).T
    return slice(min(n_buckets, len(kept.exact))), here, there


def _contains(exact: npt.NDArray[Any], ids: list[int | str], kept: _Kept) -> bool:
    rows, here, there = _shared(kept, ids, len(exact))
    if len(here) < len(kept.ids) or len(exact) < len(kept.exact):
        return False
    return np.array_equal(exact[rows, here], kept.exact[rows, there])


def to_store(sent: ReleasedCounts | None) -> dict[str, Any] | None:
    """What a checkpoint keeps of released counts."""
    import torch

    if sent is None:
        return None
    return {
        "counts": torch.from_numpy(np.asarray(sent.counts)),
        "sizes": torch.from_numpy(sent.sizes),
        "events": [(e.mechanism, e.epsilon, e.adjacency, e.unit) for e in sent.events],
        "private": sent.private,
    }


def from_stored(stored: dict[str, Any] | None) -> ReleasedCounts | None:
    """The released counts that a checkpoint kept."""
    if stored is None:
        return None
    events = tuple(
        PureEvent(mechanism=mechanism, epsilon=epsilon, adjacency=adjacency, unit=unit)
        for mechanism, epsilon, adjacency, unit in stored["events"]
    )
    return ReleasedCounts(
        stored["counts"].numpy(), stored["sizes"].numpy(), events, stored["private"]
    )
