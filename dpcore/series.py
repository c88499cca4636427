"""Sensor series: windows, public bins, time-aligned batches, folds and neighbours.

Nothing here is private or random. What a function takes as public it says.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from dpcore._checks import (
    check_array,
    check_choice,
    check_index,
    check_instance,
    check_list,
    check_positive,
    exact,
)
from dpcore.errors import DataError, ParameterError

__all__ = [
    "Bins",
    "Fold",
    "TimeBatches",
    "align",
    "nearest_neighbours",
    "neighbours_from_adjacency",
    "purged_folds",
    "windows",
]

_EARTH_RADIUS_KM = 6371.0088


@dataclass(frozen=True)
class Bins:
    """Labels 0, 1, ... for intervals of values with public edges.

    Bin k holds the values of [edges[k], edges[k + 1]); the last one holds its upper edge as well,
    and values below or above all edges belong to the first or the last bin.

    Parameters
    ----------
    edges : tuple of float
        Increasing, at least three. Public: never computed from the values to be protected.

    Privacy
    -------
    None: a label is as private as its value. The edges are public, and so must be what
    `from_history` is given.

    Cost
    ----
    A binary search per value, and 8 bytes per label.

    Examples
    --------
    >>> bins = Bins((0, 5, 30, 60, 150, 260))
    >>> bins.label([-1, 0, 5, 29.9, 260, 1000]).tolist()
    [0, 0, 1, 1, 4, 4]
    """

    edges: tuple[float, ...]

    def __post_init__(self) -> None:
        listed = check_list(self.edges, "edges")
        edges = tuple(float(exact(edge, "edges")) for edge in listed)
        if len(edges) < 3 or not (np.diff(edges) > 0).all():
            raise ParameterError(
                "The 'edges' parameter must hold three or more increasing numbers."
            )
        object.__setattr__(self, "edges", edges)

    @classmethod
    def relative(cls, capacity: float, n_bins: int = 5) -> Bins:
        """Equal parts of a public capacity: bin k begins at capacity * k / n_bins.

        >>> Bins.relative(200.0).edges
        (0.0, 40.0, 80.0, 120.0, 160.0, 200.0)
        """
        n_bins = check_index(n_bins, "n_bins", least=2)
        capacity = float(check_positive(capacity, "capacity"))
        return cls(tuple(capacity * k / n_bins for k in range(n_bins + 1)))

    @classmethod
    def from_history(cls, history: npt.ArrayLike, n_bins: int = 5) -> Bins:
        """Bins that divide a *public* history into parts of equal size.

        Missing values (NaN) are left out. Edges that coincide are moved apart by the least number
        that a float can show, so their bins are empty.

        >>> Bins.from_history(range(101), 4).edges
        (0.0, 25.0, 50.0, 75.0, 100.0)
        """
        n_bins = check_index(n_bins, "n_bins", least=2)
        values = check_array(history, "history").ravel()
        values = values[~np.isnan(values)]
        if values.size == 0:
            raise ParameterError("The 'history' parameter must hold values.")
        edges = np.quantile(values, np.linspace(0, 1, n_bins + 1))
        for k in range(n_bins):
            edges[k + 1] = max(edges[k + 1], np.nextafter(edges[k], np.inf))
        return cls(tuple(edges.tolist()))

    @property
    def n_labels(self) -> int:
        return len(self.edges) - 1

    def label(self, values: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """Number of the bin of each value; -1 for NaN."""
        array = check_array(values, "values")
        labels = np.searchsorted(self.edges[1:-1], array, side="right")
        return np.where(np.isnan(array), -1, labels).astype(np.int64, copy=False)


def windows(
    series: npt.ArrayLike, width: int, horizon: int
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Rows of `width` consecutive values, and the value `horizon` steps after each.

    Parameters
    ----------
    series : array_like of shape (n_times,)
    width, horizon : int
        At least 1 each.

    Returns
    -------
    features : ndarray of shape (n_times - width + 1 - horizon, width)
        A view: row r ends at time r + width - 1.
    following : ndarray of shape (n_times - width + 1 - horizon,)
        A view: the value at time r + width - 1 + horizon.

    Privacy
    -------
    None: the results are views of the raw series and must not leave the node.

    Cost
    ----
    Nothing is copied where the series is a contiguous array of float64.

    Examples
    --------
    >>> features, following = windows([1, 2, 3, 4], 2, 1)
    >>> features.tolist(), following.tolist()
    ([[1.0, 2.0], [2.0, 3.0]], [3.0, 4.0])
    """
    x = np.ascontiguousarray(check_array(series, "series", dimensions=1))
    width = check_index(width, "width", least=1)
    horizon = check_index(horizon, "horizon", least=1)
    if x.size < width + horizon:
        raise ParameterError("The 'series' parameter must hold 'width' + 'horizon' values or more.")
    n_rows = x.size - width + 1 - horizon
    features = np.lib.stride_tricks.sliding_window_view(x, width)[:n_rows]
    return features, x[width - 1 + horizon :]


@dataclass(frozen=True)
class TimeBatches:
    """Rows of several nodes in batches that mean the same time at every node.

    Attributes
    ----------
    rows : ndarray of int64
        Row numbers, in time order, that exist at every node.
    batch : ndarray of int64
        Batch of each of them: 0, 1, ... without gaps.
    slots : ndarray of int64
        Number of each batch on the time axis, from 0; batches without any row are left out.
    sizes : ndarray of int64
        Rows in each batch.
    batch_size : int
        Rows of a batch without missing values.

    Privacy
    -------
    Numbers of rows and batches, which tell what values are missing and nothing else of the series;
    see `align`.

    Cost
    ----
    16 bytes per row and 16 per batch.
    """

    rows: npt.NDArray[np.int64]
    batch: npt.NDArray[np.int64]
    slots: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]
    batch_size: int

    @property
    def n_batches(self) -> int:
        return int(self.sizes.size)


def align(series: npt.ArrayLike, width: int, horizon: int, batch_size: int) -> TimeBatches:
    """Cut the rows of all nodes into batches by time.

    Batches are cut at fixed times, `batch_size` rows each, and a row that lacks a value at any node
    is left out at every node: proportions and cluster counts then describe the same instants.

    Parameters
    ----------
    series : array_like of shape (n_times, n_nodes)
        One column per node, NaN where a value is missing. Which values are missing is taken as
        public: it must not depend on them.
    width, horizon : int
        As for `windows`.
    batch_size : int

    Privacy
    -------
    None: the result tells which values are missing, taken as public, and nothing else of the
    series.

    Cost
    ----
    One pass over the series, and width comparisons for each time; a byte per value while it runs.

    Examples
    --------
    >>> batches = align(np.zeros((2976, 1)), 5, 1, 32)
    >>> batches.rows.size, batches.n_batches, int(batches.sizes[-1])
    (2971, 93, 27)
    """
    x = check_array(series, "series", dimensions=2)
    if x.shape[1] == 0:
        raise ParameterError("The 'series' parameter must have the shape (n_times, n_nodes).")
    batch_size = check_index(batch_size, "batch_size", least=1)
    gap = np.isnan(x).any(axis=1).astype(np.float64)
    features, following = windows(gap, width, horizon)
    rows = np.flatnonzero((features.max(axis=1) == 0) & (following == 0))
    if rows.size == 0:
        raise DataError("The 'series' parameter must leave a row that no node misses.")
    slots, batch, sizes = np.unique(rows // batch_size, return_inverse=True, return_counts=True)
    return TimeBatches(rows, batch, slots, sizes, batch_size)


@dataclass(frozen=True)
class Fold:
    """One fold: whole batches to train on, and rows to test on.

    Attributes
    ----------
    train : ndarray of bool, shape (n_batches,)
    test : ndarray of bool, shape (n_rows,)
        Aligned with `TimeBatches.rows`.

    Privacy
    -------
    Made of the numbers in `TimeBatches`; no values are read.

    Cost
    ----
    A byte per batch and per row.
    """

    train: npt.NDArray[np.bool_]
    test: npt.NDArray[np.bool_]


def purged_folds(batches: TimeBatches, n_folds: int, gap: int) -> Iterator[Fold]:
    """Contiguous folds of whole batches; test rows within `gap` rows of training are purged.

    Windows overlap, so rows next to a border share values with both sides. They are left out of the
    test, not of the training: there they must agree with the proportions that were released.

    Parameters
    ----------
    batches : TimeBatches
    n_folds : int
    gap : int
        width + horizon - 1 separates windows and what they predict.

    Privacy
    -------
    Made of the numbers in `TimeBatches`; no values are read.

    Cost
    ----
    A few passes over the rows for each fold; folds are made one at a time.

    Examples
    --------
    >>> batches = align(np.zeros((30, 1)), 2, 1, 7)
    >>> [(fold.train.tolist(), int(fold.test.sum())) for fold in purged_folds(batches, 2, 2)]
    [([False, False, True, True], 12), ([True, True, False, False], 12)]
    """
    check_instance(batches, "batches", TimeBatches)
    n_folds = check_index(n_folds, "n_folds", least=2)
    gap = check_index(gap, "gap")
    if n_folds > batches.n_batches:
        raise ParameterError("The 'n_folds' parameter must be at most the number of batches.")
    edges = [batches.n_batches * i // n_folds for i in range(n_folds + 1)]
    for first, last in pairwise(edges):
        train = np.ones(batches.n_batches, np.bool_)
        train[first:last] = False
        test = (batches.batch >= first) & (batches.batch < last)
        if first > 0:
            test &= batches.rows >= batches.slots[first] * batches.batch_size + gap
        if last < batches.n_batches:
            test &= batches.rows < (batches.slots[last - 1] + 1) * batches.batch_size - gap
        yield Fold(train, test)


def nearest_neighbours(
    positions: npt.ArrayLike, n_neighbours: int, *, metric: str = "great-circle"
) -> list[npt.NDArray[np.int64]]:
    """The nearest other nodes of every node, nearest first, the lowest number among equals.

    Parameters
    ----------
    positions : array_like of shape (n_nodes, 2) or, for "euclidean", (n_nodes, d)
        Latitude and longitude in degrees, or coordinates.
    n_neighbours : int
    metric : {"great-circle", "euclidean"}

    Privacy
    -------
    Positions are taken as public; no readings are read.

    Cost
    ----
    All pairs: time n_nodes**2 log(n_nodes) and memory n_nodes**2, times d where "euclidean".

    Examples
    --------
    >>> found = nearest_neighbours([(52.0, 4.0), (52.0, 4.1), (52.1, 4.0)], 1)
    >>> [nodes.tolist() for nodes in found]
    [[1], [0], [0]]
    """
    points = check_array(positions, "positions", dimensions=2, finite=True)
    metric = check_choice(metric, "metric", ("great-circle", "euclidean"))
    if metric == "great-circle" and points.shape[1] != 2:
        raise ParameterError("The 'positions' parameter must have the shape (n_nodes, 2).")
    n_neighbours = _check_neighbours(n_neighbours, len(points))
    if metric == "euclidean":
        distance = np.sqrt(np.square(points[:, None] - points[None]).sum(axis=2))
    else:
        latitude, longitude = np.radians(points.T)
        sine = np.square(np.sin((latitude[:, None] - latitude) / 2))
        cosine = np.cos(latitude[:, None]) * np.cos(latitude)
        sine = sine + cosine * np.square(np.sin((longitude[:, None] - longitude) / 2))
        distance = 2 * _EARTH_RADIUS_KM * np.arcsin(np.sqrt(np.clip(sine, 0, 1)))
    np.fill_diagonal(distance, np.inf)
    order = np.argsort(distance, axis=1, kind="stable")
    return list(order[:, :n_neighbours].astype(np.int64))


def neighbours_from_adjacency(
    adjacency: npt.ArrayLike, n_neighbours: int | None = None
) -> list[npt.NDArray[np.int64]]:
    """The nodes joined to every node, those of the greatest weight first.

    Parameters
    ----------
    adjacency : array_like of shape (n_nodes, n_nodes)
        Weights, 0 where there is no edge; row i belongs to node i.
    n_neighbours : int, optional
        At most so many.

    Privacy
    -------
    The weights are taken as public; no readings are read.

    Cost
    ----
    Time n_nodes**2 log(n_nodes), and memory for a copy of the weights and their order.

    Examples
    --------
    >>> [n.tolist() for n in neighbours_from_adjacency([[1, 0.5, 0.9], [0, 1, 0], [1, 1, 1]], 2)]
    [[2, 1], [], [0, 1]]
    """
    weight = check_array(adjacency, "adjacency", dimensions=2, finite=True).copy()
    if weight.shape[0] != weight.shape[1]:
        raise ParameterError("The 'adjacency' parameter must be a square array of finite numbers.")
    limit = len(weight) if n_neighbours is None else _check_neighbours(n_neighbours, len(weight))
    np.fill_diagonal(weight, 0)
    order = np.argsort(-weight, axis=1, kind="stable")
    return [row[weights[row] > 0][:limit] for row, weights in zip(order, weight, strict=True)]


def check_node_ids(node_ids: Sequence[int | str] | None, n_nodes: int) -> list[int | str]:
    """Names of all nodes, 0, 1, ... by default."""
    if node_ids is None:
        return list(range(n_nodes))
    ids = check_list(node_ids, "node_ids")
    ids = [int(each) if isinstance(each, np.integer) else each for each in ids]
    if not all(isinstance(each, int | str) for each in ids):
        raise ParameterError("The 'node_ids' parameter must hold integers and strings.")
    if len(ids) != n_nodes or len(set(ids)) != n_nodes:
        raise ParameterError("The 'node_ids' parameter must name every node, each once.")
    return ids


def check_neighbours(
    neighbours: Sequence[Sequence[int] | npt.NDArray[Any]] | None, n_nodes: int
) -> list[npt.NDArray[np.int64]]:
    """Lists of other nodes, one per node, each without repeats; empty ones by default."""
    if neighbours is None:
        return [np.empty(0, np.int64)] * n_nodes
    lists = [
        check_array(nodes, "neighbours", dtype=np.int64).ravel()
        for nodes in check_list(neighbours, "neighbours")
    ]
    if len(lists) != n_nodes:
        raise ParameterError("The 'neighbours' parameter must have one list for every node.")
    for node, nodes in enumerate(lists):
        if nodes.size and (nodes.min() < 0 or nodes.max() >= n_nodes):
            raise ParameterError("The 'neighbours' parameter must name nodes from 0.")
        if node in nodes or np.unique(nodes).size != nodes.size:
            raise ParameterError("The 'neighbours' parameter must name other nodes, each once.")
    return lists


def _check_neighbours(n_neighbours: int, n_nodes: int) -> int:
    n_neighbours = check_index(n_neighbours, "n_neighbours", least=1)
    if n_neighbours >= n_nodes:
        raise ParameterError("The 'n_neighbours' parameter must be below the number of nodes.")
    return n_neighbours
