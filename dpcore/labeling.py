"""Labels for clusters, such that the label proportions they imply match given ones.

Batch i holds a share ``m[i, c]`` of cluster c; a target says which proportion ``q[i, y]`` of its
records has label y. A labeling implies the proportions ``g = m z`` (z one-hot), and its loss is the
mean squared error of g against q. Everything here works on ``m.T m`` and ``q.T m``: after one pass
that builds them, no cost depends on the number of records or batches.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dpcore._checks import (
    check_array,
    check_choice,
    check_generator,
    check_index,
    check_members,
)
from dpcore.errors import ParameterError
from dpcore_ext.labeling import GramForm, cross

__all__ = ["Labeling", "cluster_shares", "label_clusters"]

_METHODS = ("auto", "search", "exact", "monotone")
_EXACT_BY_DEFAULT = 20_000  # labelings: about as much work as 50 starts
EXACT_LIMIT = 1 << 26
_ETA = 1e-6
_MOST_CELLS = 1 << 32  # of a table of shares

Loss = str | Callable[[float, float], float]


@dataclass(frozen=True)
class Labeling:
    """What `label_clusters` found.

    Attributes
    ----------
    labels : ndarray of int32, shape (n_targets, n_clusters)
        The labeling of least loss for each target.
    losses : ndarray of shape (n_targets,)
        Their losses.
    method : str
        How they were found: "search", "exact" or "monotone".
    n_moves : int
        Moves made by the search.

    Privacy
    -------
    Post-processing of the targets, but a function of the shares too, and so of the holder's data.

    Cost
    ----
    n_targets * n_clusters labels, and a loss for each target.
    """

    labels: npt.NDArray[np.int32]
    losses: npt.NDArray[np.float64]
    method: str
    n_moves: int = 0


def cluster_shares(
    clusters: npt.ArrayLike, batches: npt.ArrayLike, n_clusters: int, n_batches: int
) -> npt.NDArray[np.float64]:
    """Share of each cluster in each batch, shape (n_batches, n_clusters).

    Parameters
    ----------
    clusters, batches : array_like of integers, shape (n_records,)
        Cluster and batch of every record.
    n_clusters, n_batches : int

    Privacy
    -------
    None: shares are functions of the holder's data.

    Cost
    ----
    One pass, and memory of O(n_records + n_batches * n_clusters).

    Examples
    --------
    >>> cluster_shares([0, 1, 1, 1], [0, 0, 1, 1], 2, 2).tolist()
    [[0.5, 0.5], [0.0, 1.0]]
    """
    n_clusters = check_index(n_clusters, "n_clusters", least=1, limit=_MOST_CELLS)
    n_batches = check_index(n_batches, "n_batches", least=1, limit=_MOST_CELLS)
    cluster = check_members(clusters, "clusters", n_clusters)
    batch = check_members(batches, "batches", n_batches)
    if cluster.shape != batch.shape:
        raise ParameterError("The 'batches' parameter must have one number for every record.")
    if n_batches * n_clusters >= _MOST_CELLS:
        raise ParameterError("The 'n_batches' parameter must leave fewer than 2**32 cells.")
    cells = batch * n_clusters + cluster
    counts = np.bincount(cells, minlength=n_batches * n_clusters)
    counts = counts.reshape(n_batches, n_clusters)
    shares: npt.NDArray[np.float64] = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    return shares


def gram_form(
    shares: npt.NDArray[np.float64],
    targets: npt.NDArray[np.float64],
    *,
    weights: npt.ArrayLike | None = None,
    product: bool = False,
) -> GramForm:
    """The native problem of shares (n_batches, n_clusters) and targets (n_targets, n_batches, Y).

    Parameters
    ----------
    shares, targets : ndarray of float64
    weights : array_like of shape (n_batches,), optional
        Weights of the batches, of mean 1; all equal by default.
    product : bool
        Multiply the loss by the squared error of the overall proportions, plus 1e-6.

    Cost
    ----
    One pass over both arrays, on one thread and in the order of batches: bit-identical wherever it
    runs.
    """
    n_batches, k = shares.shape
    n_targets, _, n_labels = targets.shape
    left, right = np.ascontiguousarray(shares), np.ascontiguousarray(targets)
    if weights is not None:
        root = np.sqrt(np.asarray(weights, dtype=np.float64))[:, np.newaxis]
        left, right = left * root, right * root
    gram = np.zeros((k, k))
    cross(left, left, gram)
    crossed = np.zeros((n_targets, n_labels, k))
    for target, out in zip(right, crossed, strict=True):
        cross(target, left, out)
    square = np.array([np.square(target).sum() for target in right])
    if not product:
        return GramForm(gram, crossed, square)
    means = np.ascontiguousarray(targets.mean(axis=1))
    scale = 1.0 / (n_batches * n_labels)
    return GramForm(gram, crossed, square, shares.mean(axis=0), means, scale, _ETA)


def label_clusters(
    shares: npt.ArrayLike,
    targets: npt.ArrayLike,
    *,
    method: str = "auto",
    n_starts: int = 50,
    order: npt.ArrayLike | None = None,
    loss: Loss = "squared",
    weights: npt.ArrayLike | None = None,
    random_state: Any = None,
) -> Labeling:
    """The labeling of the clusters that matches each target best.

    Parameters
    ----------
    shares : array_like of shape (n_batches, n_clusters)
        Share of each cluster in each batch; see `cluster_shares`.
    targets : array_like of shape (n_targets, n_batches, n_labels)
        Label proportions to match, of any sign and sum: noise without bias need not be clipped.
    method : {"auto", "search", "exact", "monotone"}
        "search": local search by reassigning and swapping labels, from `n_starts` random
        labelings. "exact": all labelings, for few clusters. "monotone": the exact optimum among
        labelings that do not decrease along `order`, by dynamic programming. "auto": exact up to
        20 000 labelings, search beyond.
    n_starts : int
        Random starts of the search, the same for all targets.
    order : array_like of shape (n_clusters,), for "monotone"
        The clusters in the order along which labels must not decrease.
    loss : {"squared", "product"} or function
        "product" (experimental) also asks for the right overall proportions. A function f(g, q) of
        one implied and one given proportion, compiled by Numba, replaces the squared difference;
        the search then costs one pass over the batches for every move tried.
    weights : array_like of shape (n_batches,), optional
        Weights of the batches, of mean 1.
    random_state : None, int, SeedSequence or Generator
        Starts of the search.

    Returns
    -------
    Labeling

    Privacy
    -------
    Post-processing of the targets; but shares are functions of the holder's data, and so is the
    labeling.

    Cost
    ----
    O(n_batches K^2) to begin with; then O(K Y) for each step of a search over all reassignments,
    O(K^2 Y) for a monotone labeling, O(K Y^K) for all labelings.

    Examples
    --------
    >>> shares = [[0.5, 0.5, 0.0], [0.0, 0.5, 0.5], [1.0, 0.0, 0.0]]
    >>> target = [[0.5, 0.5], [0.0, 1.0], [1.0, 0.0]]
    >>> label_clusters(shares, [target]).labels.tolist()
    [[0, 1, 1]]
    """
    m = check_array(shares, "shares", dimensions=2, finite=True)
    q = check_array(targets, "targets", dimensions=3, finite=True)
    if 0 in m.shape or 0 in q.shape or m.shape[0] != q.shape[1]:
        raise ParameterError(
            "The 'targets' parameter must have the shape (n_targets, n_batches, n_labels)."
        )
    method = check_choice(method, "method", _METHODS)
    n_starts = check_index(n_starts, "n_starts", least=1)
    n_targets, n_batches, n_labels = q.shape
    k = m.shape[1]
    n_labelings = n_labels**k
    generator = check_generator(random_state)
    if weights is not None:
        weights = check_array(weights, "weights", dimensions=1, finite=True)
        if weights.shape != (n_batches,) or (weights < 0).any():
            raise ParameterError(
                "The 'weights' parameter must have a number of at least 0 for every batch."
            )
    if order is not None:
        order = check_members(order, "order", k)
        if np.unique(order).size != k or order.size != k:
            raise ParameterError("The 'order' parameter must name every cluster once.")
    if callable(loss):
        if method not in ("auto", "search"):
            raise ParameterError("The 'method' parameter must be 'search' for a loss of your own.")
        return _search_with(loss, m, q, _starts(n_starts, k, n_labels, generator), weights)
    product = check_choice(loss, "loss", ("squared", "product")) == "product"
    if method == "auto":
        method = "exact" if n_labelings <= _EXACT_BY_DEFAULT else "search"
    form = gram_form(m, q, weights=weights, product=product)
    labels, values = np.zeros((n_targets, k), np.int32), np.zeros(n_targets)
    n_moves = 0
    if method == "exact":
        if n_labelings > EXACT_LIMIT:
            raise ParameterError("The 'method' parameter 'exact' is for at most 2**26 labelings.")
        form.enumerate(labels, values)
    elif method == "monotone":
        if product or order is None:
            raise ParameterError(
                "The 'order' parameter must be given for 'monotone', with the squared loss."
            )
        form.monotone(np.ascontiguousarray(order, dtype=np.int32), labels, values)
    else:
        starts = _starts(n_starts, k, n_labels, generator)
        found = np.tile(starts, (n_targets, 1, 1))
        objectives = np.empty((n_targets, n_starts))
        n_moves = form.search(found, objectives)
        best = objectives.argmin(axis=1)
        rows = np.arange(n_targets)
        labels, values = found[rows, best], objectives[rows, best]
    return Labeling(labels, values if product else values / (n_batches * n_labels), method, n_moves)


def _starts(
    n_starts: int, k: int, n_labels: int, generator: np.random.Generator
) -> npt.NDArray[np.int32]:
    return generator.integers(0, n_labels, (n_starts, k), dtype=np.int32)


def _search_with(
    loss: Callable[[float, float], float],
    shares: npt.NDArray[np.float64],
    targets: npt.NDArray[np.float64],
    starts: npt.NDArray[np.int32],
    weights: npt.ArrayLike | None,
) -> Labeling:
    from dpcore._jit import labeling

    search: Callable[..., Any] = labeling.search

    n_batches, n_labels = targets.shape[1:]
    weight = np.ones(n_batches) if weights is None else np.asarray(weights, dtype=np.float64)
    columns = np.ascontiguousarray(shares.T)
    n_moves = 0
    labels, losses = [], []
    for target in targets:
        rows = np.ascontiguousarray(target.T)
        found, total, moves = search(loss, columns, rows, weight, starts)
        labels.append(found)
        losses.append(total / (n_batches * n_labels))
        n_moves += moves
    return Labeling(np.array(labels, np.int32), np.array(losses), "search", n_moves)
