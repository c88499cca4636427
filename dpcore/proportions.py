"""Label counts of time batches: released once with exact integer noise, used as proportions.

The sender adds integer noise to its counts and sends integers; the receiver chooses what to make of
them. Clipping biases proportions, so the default is to leave them as they are: noise without bias
leaves the minimiser of a quadratic loss in place on average.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from dpcore import wire
from dpcore._batches import ReleaseRegister, reserve_batches
from dpcore._charge import open_release
from dpcore._checks import (
    check_array,
    check_choice,
    check_index,
    check_instance,
    check_members,
    check_name,
    check_positive,
)
from dpcore._events import PureEvent
from dpcore._laws import Digits
from dpcore._release import check_noise, label, laplace_event, laplace_law, sample
from dpcore.errors import DataError, ParameterError, WireFormatError
from dpcore.noise import Noise

__all__ = [
    "LabelCounts",
    "ReleaseRegister",
    "label_counts",
    "label_counts_event",
    "paper_proportions",
    "release_label_counts",
]

_ADJACENCY = ("replace", "add-remove")
_POSTPROCESS = ("none", "clip", "simplex")
_LEAST_CELL = 0.001
_KIND = 80  # of messages of dpcore.wire
_HEADER = struct.Struct("<QQqBBd")
_MOST_SLOTS = 1 << 24
_MOST_CELLS = 1 << 32  # of a table of counts
_NOISE_REACH = 60  # scales of noise that no honest count exceeds: e^-60


def label_counts(
    labels: npt.ArrayLike, batches: npt.ArrayLike, n_batches: int, n_labels: int
) -> npt.NDArray[np.int64]:
    """How often each label occurs in each batch, shape (n_batches, n_labels).

    Privacy
    -------
    None: these are the counts that `release_label_counts` protects, and they must not leave the
    node before.

    Cost
    ----
    One pass; some 16 bytes per row while it runs, and 8 per count.

    Examples
    --------
    >>> label_counts([0, 1, 1], [0, 0, 1], 2, 2).tolist()
    [[1, 1], [0, 1]]
    """
    n_batches = check_index(n_batches, "n_batches", least=1, limit=_MOST_CELLS)
    n_labels = check_index(n_labels, "n_labels", least=1, limit=_MOST_CELLS)
    y = check_members(labels, "labels", n_labels)
    batch = check_members(batches, "batches", n_batches)
    if y.shape != batch.shape:
        raise ParameterError("The 'batches' parameter must have one number for every label.")
    if n_batches * n_labels >= _MOST_CELLS:
        raise ParameterError("The 'n_batches' parameter must leave fewer than 2**32 cells.")
    cells = batch * n_labels + y
    counts = np.bincount(cells, minlength=n_batches * n_labels)
    return counts.reshape(n_batches, n_labels).astype(np.int64, copy=False)


@dataclass(frozen=True)
class LabelCounts:
    """Noisy label counts of one node, as they travel.

    Attributes
    ----------
    counts : ndarray of int64, shape (n_batches, n_labels)
        Of any sign.
    sizes : ndarray of int64, shape (n_batches,)
        Records in each batch: public.
    scale : float
        Scale of the discrete Laplace noise; 0 for counts without noise.
    adjacency : {"replace", "add-remove"}
    private : bool
        False without noise or with insecure noise.

    Privacy
    -------
    Where `private` is True, what `release_label_counts` protected: free to be sent and processed
    further. In a message that was received, `scale` and `private` are the word of its sender.

    Cost
    ----
    8 bytes per count and per batch; on the wire as many bits per count as the range of all of them
    needs, in steps of 16 above 16.
    """

    counts: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]
    scale: float
    adjacency: str
    private: bool

    def __post_init__(self) -> None:
        check_choice(self.adjacency, "adjacency", _ADJACENCY)
        shape = self.counts.shape
        if len(shape) != 2 or self.sizes.shape != shape[:1] or 0 in shape:
            raise DataError("The 'counts' parameter must have a row for every batch.")
        if (self.sizes < 1).any() or not 0 <= self.scale < 1 << 44:
            raise DataError("The 'sizes' parameter must be at least 1.")
        # Counts come from others: what no noise can explain is refused.
        reach = int(self.sizes.max()) + _NOISE_REACH * self.scale + 1
        if (np.abs(self.counts) > reach).any():
            raise DataError("The 'counts' parameter must lie within reach of the noise.")

    def proportions(
        self, postprocess: str = "none", *, smoothing: int = 0
    ) -> npt.NDArray[np.float64]:
        """Label proportions of each batch, to be matched by a labeling.

        Parameters
        ----------
        postprocess : {"none", "clip", "simplex"}
            "none": counts over batch sizes: unbiased, of any sign. "clip": every count clipped to
            [0.001, batch size], and then each row divided by its sum. "simplex": the nearest
            proportions in the Euclidean sense.
        smoothing : int
            Replace each row first by the mean over so many batches on each side, which lowers the
            noise and blurs changes over time.

        Returns
        -------
        ndarray of shape (n_batches, n_labels)

        Privacy
        -------
        Post-processing: free.
        """
        check_choice(postprocess, "postprocess", _POSTPROCESS)
        smoothing = check_index(smoothing, "smoothing")
        sizes = self.sizes.astype(np.float64)[:, np.newaxis]
        counts = np.asarray(self.counts, dtype=np.float64)
        if smoothing:
            counts, sizes = _moving_sum(counts, smoothing), _moving_sum(sizes, smoothing)
        if postprocess == "none":
            return counts / sizes
        if postprocess == "simplex":
            return _simplex(counts / sizes)
        upper = sizes if self.adjacency == "replace" else sizes.max()
        clipped = np.clip(counts, _LEAST_CELL, upper)
        shares: npt.NDArray[np.float64] = clipped / clipped.sum(axis=1, keepdims=True)
        return shares

    def to_bytes(self) -> bytes:
        """The message that is sent to neighbours."""
        low = int(self.counts.min())
        offset = (np.asarray(self.counts) - low).astype(np.uint64).ravel()
        n_words = max(1, -(-int(offset.max()).bit_length() // 16))
        bits = 16 if n_words > 1 else wire.n_bits_for(int(offset.max()) + 1)
        size_codes = self.sizes.astype(np.uint64)
        if size_codes.max() >= 1 << 16:
            raise ParameterError("The 'sizes' parameter must be below 2**16 to be sent.")
        codes = [(offset >> np.uint64(16 * word)) & np.uint64(0xFFFF) for word in range(n_words)]
        header = _HEADER.pack(
            *self.counts.shape,
            low,
            n_words,
            _ADJACENCY.index(self.adjacency) | 2 * self.private,
            self.scale,
        )
        sizes = wire.pack(
            size_codes.astype(np.uint16),
            kind=_KIND,
            n_bits=wire.n_bits_for(int(size_codes.max()) + 1),
        )
        body = np.concatenate(codes).astype(np.uint16)
        return wire.pack(body, kind=_KIND, n_bits=bits, parameters=header + sizes)

    @classmethod
    def from_bytes(cls, data: bytes) -> LabelCounts:
        """The contents of a message, checked; raises on anything that no sender would write."""
        message = wire.unpack(data)
        if message.kind != _KIND or len(message.parameters) < _HEADER.size:
            raise WireFormatError("The 'data' parameter must be a message with label counts.")
        fields = _HEADER.unpack_from(message.parameters)
        n_batches, n_labels, low, n_words, flags, scale = fields
        inner = wire.unpack(message.parameters[_HEADER.size :])
        if (
            not 1 <= n_words <= 4
            or n_batches * n_labels == 0
            or flags > 3
            or message.count != n_batches * n_labels * n_words
            or inner.count != n_batches
        ):
            raise WireFormatError("The 'data' parameter must be a message with label counts.")
        words = message.codes().astype(np.uint64).reshape(n_words, n_batches, n_labels)
        offset = np.zeros((n_batches, n_labels), np.uint64)
        for number, word in enumerate(words):
            offset |= word << np.uint64(16 * number)
        if int(offset.max()) + abs(low) >= 1 << 62:
            raise WireFormatError("The 'data' parameter must hold counts below 2**62.")
        return cls(
            offset.astype(np.int64) + low,
            inner.codes().astype(np.int64),
            scale,
            _ADJACENCY[flags & 1],
            bool(flags & 2),
        )


def release_label_counts(
    counts: npt.ArrayLike,
    *,
    epsilon: float,
    adjacency: str = "replace",
    noise: Noise | None = None,
    node: int | str | bytes = 0,
    slots: npt.ArrayLike | None = None,
    sizes: npt.ArrayLike | None = None,
    scheme: str = "labels",
    period: str = "",
    register: ReleaseRegister | None = None,
) -> tuple[LabelCounts, PureEvent]:
    """Label counts with exact discrete Laplace noise, ready to be sent to any number of neighbours.

    Parameters
    ----------
    counts : array_like of int, shape (n_batches, n_labels)
        Exact counts; see `label_counts`.
    epsilon : float
        Privacy loss of one reading.
    adjacency : {"replace", "add-remove"}
        A reading changes its label (l1 sensitivity 2), or exists or not (sensitivity 1).
    noise : Noise, optional
        Source of randomness. On a pinned stream the noise of a cell is fixed by the node, the
        scheme, the period, the batch's number and the label: name the data set in the stream.
    node : int, str or bytes
        Who releases.
    slots : array_like of int, optional
        Numbers of the batches on the time axis; 0, 1, ... by default.
    sizes : array_like of int, shape (n_batches,), optional
        Public sizes of the batches, which travel with the counts. By default the sums of the rows,
        which are public with "replace"; with "add-remove" they must be given.
    scheme : str
        Name of the labels and of how time is cut into batches. Another scheme on the same readings
        is another release: losses add up.
    period : str
        Name of a span of time that has no reading in common with other periods. A ledger adds up
        what is released of a node within a period, and counts periods and nodes in parallel.
    register : ReleaseRegister, optional
        Where a second draw of a batch is refused. A ledger in force refuses it as well, for as long
        as its file lives.

    Returns
    -------
    message : LabelCounts
    event : PureEvent
        What it costs.

    Privacy
    -------
    Pure epsilon-DP for one reading: batches are disjoint, and a reading is the label of one row, so
    all batches together cost epsilon once, and so does sending them to several neighbours. Sizes of
    batches are public: with "add-remove" they must follow from the time axis, not from the records,
    and batches must be cut by time; cut by number, one row more would shift every later batch. A
    vehicle or person behind g readings has g times the loss.

    Cost
    ----
    One sample per cell; a ledger in force adds an entry for the release and for each batch.

    Examples
    --------
    >>> message, event = release_label_counts([[20, 6, 4, 2, 0]], epsilon=0.1)
    >>> message.counts.shape, message.scale, event.epsilon <= 0.1
    ((1, 5), 20.0, True)
    """
    table = _check_table(counts)
    law, rate, event = _law(epsilon, adjacency)
    numbers = np.arange(len(table))
    if slots is not None:
        numbers = check_array(slots, "slots", dtype=np.int64)
    if numbers.shape != table.shape[:1] or np.unique(numbers).size != numbers.size:
        raise ParameterError("The 'slots' parameter must number the batches, each once.")
    if numbers.min() < 0 or numbers.max() - numbers.min() >= _MOST_SLOTS:
        raise ParameterError("The 'slots' parameter must span less than 2**24 numbers from 0.")
    if sizes is None and adjacency == "add-remove":
        raise ParameterError("The 'sizes' parameter must be given for 'add-remove'.")
    public = table.sum(axis=1)
    if sizes is not None:
        public = check_array(sizes, "sizes", dtype=np.int64).copy()
    if public.shape != numbers.shape or (public < 1).any():
        raise ParameterError("The 'sizes' parameter must be at least 1 for every batch.")
    if not isinstance(node, int | str | bytes):
        raise ParameterError("The 'node' parameter must be an integer, a string or bytes.")
    check_name(scheme, "scheme")
    check_name(period, "period", may_be_empty=True)
    if register is not None:
        check_instance(register, "register", ReleaseRegister)
    source = check_noise(noise)
    if register is not None:
        register.claim(node, numbers.tolist(), scheme)
    stream = reserve_batches(
        source, event, numbers.tolist(), node=node, scheme=scheme, period=period
    )
    key = open_release(stream, event, "label counts", *label(rate))
    first = int(numbers.min())
    span = int(numbers.max()) - first + 1
    # Addressed by the place on the time axis: a later release of other batches has other noise.
    drawn = sample(law, key, (span, table.shape[1]), first * table.shape[1])
    noisy = table + drawn[numbers - first]
    return LabelCounts(noisy, public, float(1 / rate), adjacency, source.private), event


def label_counts_event(epsilon: float, adjacency: str = "replace") -> PureEvent:
    """What `release_label_counts` costs a reading.

    Privacy
    -------
    A calculation with public numbers; no data are read.

    Cost
    ----
    Milliseconds where the law of the noise is not in memory yet.
    """
    return _law(epsilon, adjacency)[2]


def _law(epsilon: float, adjacency: str) -> tuple[Digits, Fraction, PureEvent]:
    """The law of the noise, its rate, and what it costs."""
    distance = 2 if check_choice(adjacency, "adjacency", _ADJACENCY) == "replace" else 1
    law, rate = laplace_law(check_positive(epsilon, "epsilon"), distance)
    plain = laplace_event("label counts", law, distance, adjacency)
    event = PureEvent(
        mechanism=plain.mechanism, epsilon=plain.epsilon, adjacency=adjacency, unit="reading"
    )
    return law, rate, event


def paper_proportions(
    counts: npt.ArrayLike,
    *,
    epsilon: float,
    noise: Noise | None = None,
    least_cell: float = _LEAST_CELL,
) -> npt.NDArray[np.float64]:
    """Proportions in the order of published pseudo-code, which clips and normalises in its loop.

    After the first cell the row sums to 1, so noise of scale 1 / epsilon lands on proportions and
    the last label wins whatever the data. For reproduction only: the result is marked as not
    private.

    Parameters
    ----------
    counts : array_like of int, shape (n_batches, n_labels)
    epsilon : float
        The noise has scale 1 / epsilon.
    noise : Noise, optional
    least_cell : float
        Lower end of the clipping.

    Privacy
    -------
    None is claimed: the result is marked as not private, and no ledger is charged.

    Cost
    ----
    One sample per cell, and one pass over the table for every label.

    Examples
    --------
    >>> rows = paper_proportions([[20, 6, 4, 2, 0]] * 2000, epsilon=0.1)
    >>> int(rows.mean(axis=0).argmax())
    4
    """
    values = _check_table(counts).astype(np.float64)
    least_cell = float(check_positive(least_cell, "least_cell"))
    law, rate = laplace_law(check_positive(epsilon, "epsilon"), 1)
    key = check_noise(noise).key_for("published label proportions", *label(rate))
    drawn = sample(law, key, values.shape, 0)
    sizes = values.sum(axis=1)
    for y in range(values.shape[1]):
        values[:, y] = np.clip(values[:, y] + drawn[:, y], least_cell, sizes)
        values /= values.sum(axis=1, keepdims=True)
    return Noise.insecure(0).mark(values)


def _check_table(counts: npt.ArrayLike) -> npt.NDArray[np.int64]:
    table = check_array(counts, "counts", dtype=np.int64, dimensions=2)
    if 0 in table.shape or (table < 0).any():
        raise ParameterError("The 'counts' parameter must be a table of counts, batch by label.")
    return table


def _moving_sum(rows: npt.NDArray[np.float64], reach: int) -> npt.NDArray[np.float64]:
    total = np.vstack([np.zeros_like(rows[:1]), rows.cumsum(axis=0)])
    index = np.arange(len(rows))
    upper, lower = np.minimum(index + reach + 1, len(rows)), np.maximum(index - reach, 0)
    result: npt.NDArray[np.float64] = total[upper] - total[lower]
    return result


def _simplex(rows: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Euclidean projection of each row on the probability simplex."""
    ordered = -np.sort(-rows, axis=1)
    over = (ordered.cumsum(axis=1) - 1) / np.arange(1, rows.shape[1] + 1)
    kept = (ordered > over).sum(axis=1)
    threshold = over[np.arange(len(rows)), kept - 1]
    nearest: npt.NDArray[np.float64] = np.maximum(rows - threshold[:, np.newaxis], 0)
    return nearest
