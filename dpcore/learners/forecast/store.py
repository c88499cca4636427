"""What was drawn once and must not be drawn again: released counts, in memory and in files."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpcore.accounting import PureEvent
from dpcore.learners.forecast.exchange import ReleasedCounts

__all__ = ["from_stored", "to_store"]


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
