"""Histograms of time buckets: counted, released once with exact noise, averaged over neighbours.

Buckets are cut at multiples of their length from the start of the series and do not overlap, so a
reading is counted in one bucket only. A forecast made at time t uses buckets that ended at or
before t.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from dpcore._batches import reserve_batches
from dpcore._checks import (
    check_array,
    check_choice,
    check_executor,
    check_index,
    check_instance,
    check_list,
    check_name,
    check_positive,
    round_down,
)
from dpcore._checks import exact as fraction
from dpcore._release import check_noise, check_portable
from dpcore.accounting import PureEvent
from dpcore.errors import ParameterError
from dpcore.noise import Noise
from dpcore.proportions import label_counts_event, release_label_counts
from dpcore.series import Bins, check_neighbours, check_node_ids

__all__ = [
    "AGED",
    "FRESH",
    "OWN",
    "PARTIAL",
    "UNIFORM",
    "ReleasedCounts",
    "bucket_counts",
    "bucket_index",
    "dearest_events",
    "neighbour_histograms",
    "own_histograms",
    "release_counts",
]

Floats = npt.NDArray[np.float64]

_SHARD = 16  # nodes that an executor is given at a time

# What a histogram was made of, the worst case of what happened: all neighbours' buckets; a bucket
# that was older; a neighbour left out; the node's own bucket, without noise; nothing at all.
FRESH, AGED, PARTIAL, OWN, UNIFORM = range(5)


def bucket_counts(series: npt.ArrayLike, bins: Sequence[Bins], length: int) -> npt.NDArray[Any]:
    """Counts (n_buckets, n_nodes, n_channels, n_bins) of the complete buckets of a series.

    Parameters
    ----------
    series : array_like of shape (n_times, n_nodes, n_channels)
        In raw units; NaN where a reading is missing, which is not counted.
    bins : sequence of Bins
        Public, one for each channel, all with the same number of labels.
    length : int
        Steps of a bucket.

    Privacy
    -------
    None: these are the counts that `release_counts` protects, and they must not leave the node
    before.

    Cost
    ----
    One pass to label and one to count; some 25 bytes per reading while it runs, and 8 per count.

    Examples
    --------
    >>> speed = np.array([3.0, 9.0, 12.0, np.nan, 1.0]).reshape(5, 1, 1)
    >>> bucket_counts(speed, [Bins((0, 10, 20))], 2).tolist()
    [[[[2, 0]]], [[[0, 1]]]]
    """
    x = check_array(series, "series", dimensions=3)
    bins = _check_bins(bins)
    length = check_index(length, "length", least=1)
    if not bins or len(bins) != x.shape[2]:
        raise ParameterError("The 'bins' parameter must have one entry for every channel.")
    n_bins = bins[0].n_labels
    if any(each.n_labels != n_bins for each in bins):
        raise ParameterError("The 'bins' parameter must have the same number of bins throughout.")
    n_buckets = len(x) // length
    x = x[: n_buckets * length]
    labels = np.stack([each.label(x[..., f]) for f, each in enumerate(bins)], axis=2)
    flat = labels.reshape(len(labels), x.shape[1] * x.shape[2])
    n_series = x.shape[1] * x.shape[2]
    bucket = np.arange(n_buckets).repeat(length)[:, None]
    cells = (bucket * n_series + np.arange(n_series)) * n_bins + flat
    counts = np.bincount(cells[flat >= 0], minlength=n_buckets * n_series * n_bins)
    return counts.reshape(n_buckets, *x.shape[1:], n_bins).astype(np.int64, copy=False)


def bucket_index(times: npt.ArrayLike, length: int) -> npt.NDArray[np.int64]:
    """Number of the last bucket that is complete at each time; -1 before the first is.

    >>> bucket_index([0, 10, 11, 12, 23], 12).tolist()
    [-1, -1, 0, 0, 1]
    """
    return (np.asarray(times, dtype=np.int64) + 1) // length - 1


@dataclass(frozen=True)
class ReleasedCounts:
    """What all nodes sent: noisy counts, and how many readings each bucket holds (public).

    Attributes
    ----------
    counts : ndarray of int64, shape (n_buckets, n_nodes, n_channels, n_bins)
        0 where a bucket holds no reading.
    sizes : ndarray of int64, shape (n_buckets, n_nodes, n_channels)
    events : tuple of PureEvent
        What it costs a reading: one event for each channel with readings, in order; none where
        `epsilon` was None.
    private : bool

    Privacy
    -------
    Where `private` is True, what `release_counts` protected: free to be sent and processed further.
    Where it is False the counts are exact or their noise insecure, and must not leave the nodes.

    Cost
    ----
    8 bytes per count and per size; `followed_by` copies both.
    """

    counts: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]
    events: tuple[PureEvent, ...]
    private: bool

    def followed_by(self, later: ReleasedCounts) -> ReleasedCounts:
        """Together with later buckets: other readings, so a channel costs what its dearest does."""
        check_instance(later, "later", ReleasedCounts)
        return ReleasedCounts(
            np.concatenate([self.counts, later.counts]),
            np.concatenate([self.sizes, later.sizes]),
            dearest_events(self.events_by_channel(), later.events_by_channel()),
            self.private and later.private,
        )

    def events_by_channel(self) -> dict[int, PureEvent]:
        """The event of every channel that has one."""
        channels = np.flatnonzero(self.sizes.any(axis=(0, 1))).tolist() if self.events else []
        if len(channels) != len(self.events):
            raise ParameterError(
                "The 'events' parameter must hold an event for each channel with readings."
            )
        return dict(zip(channels, self.events, strict=True))


def dearest_events(*parts: dict[int, PureEvent]) -> tuple[PureEvent, ...]:
    """One event for each channel: the largest of those of parts that share no reading."""
    found: dict[int, PureEvent] = {}
    for channel, event in (item for part in parts for item in part.items()):
        if channel not in found or event.epsilon > found[channel].epsilon:
            found[channel] = event
    return tuple(found[channel] for channel in sorted(found))


def release_counts(
    counts: npt.NDArray[Any],
    bins: Sequence[Bins],
    length: int,
    *,
    epsilon: float | None,
    noise: Noise | None = None,
    node_ids: Sequence[int | str] | None = None,
    first: int = 0,
    period: str = "",
    executor: Any = None,
) -> ReleasedCounts:
    """The counts of all nodes with exact integer noise, ready for any number of neighbours.

    Parameters
    ----------
    counts : ndarray of shape (n_buckets, n_nodes, n_channels, n_bins)
        As `bucket_counts` gives them.
    bins, length
        Public; they name the release.
    epsilon : float or None
        Privacy loss of one reading, that is of all channels of one node at one step; None for no
        noise, which protects nobody.
    noise, node_ids, period
        As for `dpcore.proportions.release_label_counts`.
    first : int
        Number of the first bucket on the time axis.
    executor : object with a method map, optional
        Where to draw, some nodes at a time, such as `dpcore.interop.dask.Workers` or an executor of
        `concurrent.futures`. It changes no bit. The noise must be a named stream of
        `Noise.from_key` then, whose key is sent along; a ledger is charged here, before anything is
        sent.

    Privacy
    -------
    Pure epsilon-DP for one reading that is replaced: it moves 1 from one bin to another in one
    bucket of each channel, so noise has the scale 2 n_channels / epsilon. Which readings are
    missing is public. A ledger in force is charged once per node and period, keeps an entry for
    every bucket and refuses to draw one again.

    Cost
    ----
    One sample per cell.

    Examples
    --------
    >>> exact = np.full((3, 2, 1, 4), 3)
    >>> sent = release_counts(exact, [Bins((0, 1, 2, 3, 4))], 12, epsilon=0.5)
    >>> sent.counts.shape, [event.epsilon <= 0.5 for event in sent.events]
    ((3, 2, 1, 4), [True])
    """
    counts = check_array(counts, "counts", dtype=np.int64, dimensions=4)
    bins, length = _check_bins(bins), check_index(length, "length", least=1)
    first = check_index(first, "first")
    check_name(period, "period", may_be_empty=True)
    check_executor(executor)
    n_nodes, n_channels, n_bins = counts.shape[1:]
    if len(bins) != n_channels or any(each.n_labels != n_bins for each in bins):
        raise ParameterError("The 'bins' parameter must have one entry for every channel.")
    ids = check_node_ids(node_ids, n_nodes)
    sizes = counts.sum(axis=3)
    if epsilon is None:
        return ReleasedCounts(counts, sizes, (), False)
    share = round_down(check_positive(epsilon, "epsilon") / n_channels)
    source = check_noise(noise)
    if executor is not None:
        check_portable(source)
    elif not source.pinned:
        source = source.release("neighbour histograms")
    schemes = [_scheme(bins[f], f, length) for f in range(n_channels)]
    # Everything is paid for before anything is drawn, here or elsewhere.
    event = label_counts_event(share)
    events: dict[int, PureEvent] = {}
    for node, f, slots in _drawn(sizes):
        events[f] = event
        numbers = (slots + first).tolist()
        reserve_batches(source, event, numbers, node=ids[node], scheme=schemes[f], period=period)
    task = partial(_release_nodes, epsilon=share, schemes=schemes, first=first, period=period)
    step = max(1, n_nodes) if executor is None else _SHARD
    shards = [
        _Senders(counts[:, a : a + step], ids[a : a + step], source)
        for a in range(0, n_nodes, step)
    ]
    parts = list(map(task, shards) if executor is None else executor.map(task, shards))
    return ReleasedCounts(
        np.concatenate(parts, axis=1), sizes, dearest_events(events), source.private
    )


@dataclass(frozen=True, repr=False)
class _Senders:
    """Counts of some nodes, their names, and the noise: what a release is a function of."""

    counts: npt.NDArray[Any]
    ids: list[int | str]
    noise: Noise


def _release_nodes(
    nodes: _Senders, *, epsilon: float, schemes: Sequence[str], first: int, period: str
) -> npt.NDArray[np.int64]:
    counts, noise = nodes.counts, nodes.noise.for_ledger(prepaid=True)
    noisy = np.zeros_like(counts)
    for node, f, slots in _drawn(counts.sum(axis=3)):
        message, _ = release_label_counts(
            counts[slots, node, f],
            epsilon=epsilon,
            noise=noise,
            node=nodes.ids[node],
            slots=slots + first,
            scheme=schemes[f],
            period=period,
        )
        noisy[slots, node, f] = message.counts
    return noisy


def _drawn(sizes: npt.NDArray[Any]) -> Iterator[tuple[int, int, npt.NDArray[np.intp]]]:
    """Nodes, channels, and their buckets that hold readings."""
    for node in range(sizes.shape[1]):
        for f in range(sizes.shape[2]):
            slots = np.flatnonzero(sizes[:, node, f])
            if slots.size:
                yield node, f, slots


def _check_bins(bins: Sequence[Bins]) -> list[Bins]:
    return [check_instance(each, "bins", Bins) for each in check_list(bins, "bins")]


def _scheme(bins: Bins, channel: int, length: int) -> str:
    edges = hashlib.sha256(np.array(bins.edges).tobytes()).hexdigest()[:16]
    return f"buckets/{edges}/{channel}/{length}"


def neighbour_histograms(
    sent: ReleasedCounts,
    neighbours: Sequence[npt.NDArray[np.int64]],
    exact: npt.NDArray[Any],
    *,
    average: str = "counts",
    smoothing: float = 1.0,
    max_age: int = 24,
    executor: Any = None,
) -> tuple[Floats, npt.NDArray[np.int8]]:
    """The averaged histogram of every node's neighbours after every bucket.

    Parameters
    ----------
    sent : ReleasedCounts
    neighbours : list of arrays of int
    exact : ndarray of shape (n_buckets, n_nodes, n_channels, n_bins)
        Counts without noise: a node falls back on its own, which do not leave it.
    average : {"counts", "proportions"}
        "counts" adds up the noisy counts of the neighbours, then clips at 0 and normalises.
        "proportions" clips and normalises each neighbour's first, as published: clipping biases.
    smoothing : float in (0, 1]
        Weight of the newest bucket in an exponential moving average over a neighbour's counts; 1
        for the newest alone. Post-processing: it lowers the noise at no cost in privacy.
    max_age : int
        How many buckets old a neighbour's latest may be where newer ones are missing.
    executor : object with a method map, optional
        Where to join them, some nodes at a time; see `release_counts`. It changes no bit.

    Returns
    -------
    histograms : ndarray of shape (n_buckets + 1, n_nodes, n_channels, n_bins)
        Row m + 1 is what is known after bucket m, row 0 before any.
    sources : ndarray of int8, shape (n_buckets + 1, n_nodes, n_channels)
        What each was made of: FRESH, AGED, PARTIAL, OWN or UNIFORM.

    Privacy
    -------
    Post-processing of `sent`, except where a node falls back on its own counts: those histograms
    are not private and must not leave the node.

    Cost
    ----
    A few passes over what was sent, and for every node one over the counts of its neighbours;
    memory for a few copies of what was sent, in float64, and for the result.
    """
    check_choice(average, "average", ("counts", "proportions"))
    if not 0 < fraction(smoothing, "smoothing") <= 1:
        raise ParameterError("The 'smoothing' parameter must lie in (0, 1].")
    max_age = check_index(max_age, "max_age")
    check_executor(executor)
    check_instance(sent, "sent", ReleasedCounts)
    neighbours = check_neighbours(neighbours, sent.counts.shape[1])
    exact = check_array(exact, "exact", dtype=np.int64)
    if exact.shape != sent.counts.shape:
        raise ParameterError("The 'exact' parameter must have the shape of what was sent.")
    task = partial(_join_nodes, average=average, smoothing=smoothing, max_age=max_age)
    step = max(1, len(neighbours)) if executor is None else _SHARD
    shards = [
        _Receivers.among(sent, neighbours[a : a + step], exact[:, a : a + step])
        for a in range(0, len(neighbours), step)
    ]
    parts = list(map(task, shards) if executor is None else executor.map(task, shards))
    histograms, sources = zip(*parts, strict=True)
    return np.concatenate(histograms, axis=1), np.concatenate(sources, axis=1)


@dataclass(frozen=True, repr=False)
class _Receivers:
    """Some nodes: what reached them, from whom each takes it, and their own counts."""

    counts: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]
    neighbours: list[npt.NDArray[np.int64]]
    exact: npt.NDArray[Any]

    @classmethod
    def among(
        cls,
        sent: ReleasedCounts,
        neighbours: Sequence[npt.NDArray[np.int64]],
        exact: npt.NDArray[Any],
    ) -> _Receivers:
        senders = np.unique(np.concatenate([np.asarray(names, np.int64) for names in neighbours]))
        places = [np.searchsorted(senders, names) for names in neighbours]
        return cls(sent.counts[:, senders], sent.sizes[:, senders], places, exact)


def _join_nodes(
    nodes: _Receivers, *, average: str, smoothing: float, max_age: int
) -> tuple[Floats, npt.NDArray[np.int8]]:
    exact = nodes.exact
    counts = _smooth(nodes.counts.astype(np.float64), nodes.sizes, smoothing)
    if average == "proportions":
        counts = _shares(counts)
    latest, age = _latest(nodes.sizes > 0)
    usable = (latest >= 0) & (age <= max_age)
    place = (latest.clip(0), np.arange(latest.shape[1])[:, None], np.arange(latest.shape[2]))
    held = np.where(usable[..., None], counts[place], 0.0) if len(counts) else counts
    histograms = np.full((len(exact) + 1, *exact.shape[1:]), 1.0 / exact.shape[3])
    sources = np.full(histograms.shape[:3], UNIFORM, np.int8)
    own = own_histograms(exact)
    for node, names in enumerate(nodes.neighbours):
        n_usable = usable[:, names].sum(axis=1)
        old = (usable[:, names] & (age[:, names] > 0)).any(axis=1)
        kind = np.where(n_usable < len(names), PARTIAL, np.where(old, AGED, FRESH))
        has_own = exact[:, node].sum(axis=2) > 0
        kind = np.where(n_usable > 0, kind, np.where(has_own, OWN, UNIFORM))
        mean = _shares(held[:, names].sum(axis=1))
        mean = np.where((n_usable > 0)[..., None], mean, histograms[1:, node])
        histograms[1:, node] = np.where((kind == OWN)[..., None], own[1:, node], mean)
        sources[1:, node] = kind
    return histograms, sources


def own_histograms(exact: npt.NDArray[Any]) -> Floats:
    """Each node's own proportions after every bucket, the latest known; uniform before any.

    Not private: for use inside the node.

    >>> own_histograms(np.array([1, 3, 0, 0]).reshape(2, 1, 1, 2))[:, 0, 0].tolist()
    [[0.5, 0.5], [0.25, 0.75], [0.25, 0.75]]
    """
    latest, _ = _latest(exact.sum(axis=3) > 0)
    padded = np.concatenate([np.zeros_like(exact[:1], shape=(1, *exact.shape[1:])), exact])
    start = np.full((1, *latest.shape[1:]), -1)
    place = (
        np.concatenate([start, latest]) + 1,
        np.arange(latest.shape[1])[:, None],
        np.arange(latest.shape[2]),
    )
    return _shares(padded[place].astype(np.float64))


def _latest(present: npt.NDArray[np.bool_]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Number of the latest present bucket up to each, -1 for none, and its age."""
    number = np.arange(len(present)).reshape(-1, 1, 1)
    latest = np.maximum.accumulate(np.where(present, number, -1), axis=0)
    return latest, number - latest


def _shares(counts: Floats) -> Floats:
    """Clipped at 0 and divided by the sum; uniform where nothing is left."""
    clipped = np.maximum(counts, 0.0)
    total = clipped.sum(axis=-1, keepdims=True)
    uniform = 1.0 / counts.shape[-1]
    shares: Floats = np.where(total > 0, clipped / np.where(total > 0, total, 1.0), uniform)
    return shares


def _smooth(counts: Floats, sizes: npt.NDArray[Any], weight: float) -> Floats:
    """Exponential moving average along buckets, over those that hold readings."""
    if weight == 1.0 or len(counts) == 0:
        return counts
    smooth, seen = counts.copy(), sizes[0] > 0
    for m in range(1, len(counts)):
        present = (sizes[m] > 0)[..., None]
        mixed = np.where(
            seen[..., None], smooth[m - 1] * (1 - weight) + counts[m] * weight, counts[m]
        )
        smooth[m] = np.where(present, mixed, smooth[m - 1])
        seen = seen | present[..., 0]
    return smooth
