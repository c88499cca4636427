"""Labels from proportions: the Gram form against recomputation, k-means against scikit-learn."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.cluster import KMeans
from threadpoolctl import threadpool_limits

import dpcore
from bench.runner import Bound, Row, seconds
from dpcore.cluster import Clustering, kmeans
from dpcore.labeling import Labeling, cluster_shares, gram_form, label_clusters
from dpcore.learners import LabelProportionNetwork
from dpcore.series import Bins

PACKAGES = ("numpy", "scikit-learn")
K, N_LABELS, BATCH = 64, 5, 32
N_FEW, N_MANY, N_TWIN = 10_000, 1_000_000, 100_000
N_STARTS = 200
KMEANS_SHAPE, KMEANS_ITERATIONS = (1_000_000, 5), 10
N_NODES, N_READINGS, NETWORK_SECONDS = 1000, 3000, 60.0

Ints = npt.NDArray[np.int64]


@cache
def windows(n: int) -> tuple[Ints, Ints, Ints]:
    """Clusters, batches and labels of n windows: clusters last for a while, labels follow them."""
    random = np.random.default_rng(7)
    stays = np.repeat(random.integers(0, K, -(-n // 4)), 4)[:n]
    clusters = np.where(random.random(n) < 0.8, stays, random.integers(0, K, n))
    truth = np.random.default_rng(0).integers(0, N_LABELS, K)
    labels = np.where(random.random(n) < 0.8, truth[clusters], random.integers(0, N_LABELS, n))
    return clusters, np.arange(n) // BATCH, labels


@cache
def tables(n: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Shares of clusters and label proportions of the batches."""
    clusters, batches, labels = windows(n)
    h = int(batches[-1]) + 1
    return cluster_shares(clusters, batches, K, h), cluster_shares(labels, batches, N_LABELS, h)


class RecomputingSearch:
    """The same local search, with the loss counted from the assignments for every move tried."""

    def __init__(self, clusters: Ints, batches: Ints, target: npt.NDArray[np.float64]) -> None:
        self.clusters = clusters
        self.cells = batches * N_LABELS
        self.sizes = np.bincount(batches)[:, np.newaxis]
        self.target = target

    def loss(self, labeling: npt.NDArray[Any]) -> float:
        counts = np.bincount(self.cells + labeling[self.clusters], minlength=self.target.size)
        implied = counts.reshape(self.target.shape) / self.sizes
        return float(np.square(implied - self.target).mean())

    def steps(self, labeling: npt.NDArray[Any], n_steps: int) -> tuple[Any, float]:
        """Best-improvement reassignments, at most n_steps of them."""
        labels, present = labeling.copy(), self.loss(labeling)
        for _ in range(n_steps):
            best, move = present, None
            for c in range(K):
                kept = labels[c]
                for q in range(N_LABELS):
                    if q != kept:
                        labels[c] = q
                        tried = self.loss(labels)
                        if tried < best - 1e-15:
                            best, move = tried, (c, q)
                labels[c] = kept
            if move is None:
                break
            labels[move[0]] = move[1]
            present = best
        return labels, present


def search(n: int, n_starts: int = N_STARTS) -> Callable[[], Labeling]:
    """A search on the Gram form of n windows, which is built beforehand."""
    shares, target = tables(n)
    form = gram_form(shares, target[np.newaxis])
    starts = np.random.default_rng(1).integers(0, N_LABELS, (1, n_starts, K), dtype=np.int32)

    def run() -> Labeling:
        found, values = starts.copy(), np.empty((1, n_starts))
        moves = form.search(found, values)
        best = int(values[0].argmin())
        loss = values[:, best] / target.size
        return Labeling(found[:, best], loss, "search", moves)

    return run


def size_row() -> Row:
    def check(found: Labeling) -> str:
        truth = np.random.default_rng(0).integers(0, N_LABELS, K)
        if (found.labels[0] != truth).any():
            raise AssertionError("the search missed the labels that the data were made from")
        return "64 of 64 labels recovered"

    return Row(
        "label search, Gram form of 10^6 windows / of 10^4 windows",
        search(N_MANY),
        search(N_FEW),
        1.0,
        1.0,
        "searches of 200 starts/s",
        check,
        limit=1 / 1.2,
        repeats=25,
    )


def recompute_row() -> Row:
    """One start to its local optimum, tables built from the assignments included."""
    clusters, batches, labels = windows(N_TWIN)
    h = int(batches[-1]) + 1
    target = cluster_shares(labels, batches, N_LABELS, h)
    twin = RecomputingSearch(clusters, batches, target)
    start = np.random.default_rng(1).integers(0, N_LABELS, (1, K), dtype=np.int32)[0]

    def ours() -> Labeling:
        shares = cluster_shares(clusters, batches, K, h)
        return label_clusters(
            shares, target[np.newaxis], method="search", n_starts=1, random_state=1
        )

    moves = ours().n_moves

    def check(found: Labeling) -> str:
        implied = twin.loss(found.labels[0])
        if abs(implied - found.losses[0]) > 1e-12:
            raise AssertionError("the loss differs from the one counted from the assignments")
        return "loss equals the recomputed one to 1e-12"

    # The twin makes one of the moves of a whole search, and one move stands for all.
    return Row(
        "label search, 10^5 windows, K 64 / loss recomputed from the assignments",
        ours,
        lambda: twin.steps(start, 1),
        moves,
        1.0,
        "moves/s",
        check,
        limit=500,
        stretch=2000,
        repeats=5,
    )


def kmeans_row(n_threads: int) -> Row:
    X = np.random.default_rng(0).normal(size=KMEANS_SHAPE)
    init = X[:K]
    theirs = KMeans(
        K, init=init, n_init=1, max_iter=KMEANS_ITERATIONS, tol=0, algorithm="lloyd", copy_x=False
    )

    def ours() -> Clustering:
        return kmeans(X, K, init=init, max_iter=KMEANS_ITERATIONS, tol=0)

    def peer() -> Any:
        with threadpool_limits(n_threads):
            return theirs.fit(X)

    def check(found: Clustering) -> str:
        fitted = peer()
        if fitted.n_iter_ != found.n_iter or abs(found.inertia / fitted.inertia_ - 1) > 1e-9:
            raise AssertionError("inertia differs from scikit-learn's")
        return "inertia equal to scikit-learn's to 1e-9"

    return Row(
        f"k-means, 10^6 x 5, K 64, {n_threads} thread(s) / scikit-learn KMeans",
        ours,
        peer,
        KMEANS_ITERATIONS,
        KMEANS_ITERATIONS,
        "iterations/s",
        check,
        limit=1.0,
        stretch=2.0,
        repeats=5,
    )


def network_bound() -> Bound:
    """Windows, noise, messages and models of the whole network, two threads."""
    random = np.random.default_rng(0)
    t = np.arange(N_READINGS) * 2 * np.pi / 96
    day = 45 - 30 * np.cos(t) + 15 * np.sin(2 * t)
    series = (day[:, np.newaxis] + random.normal(0, 8, (N_READINGS, N_NODES))).clip(0, 100)
    neighbours = [[(j + step) % N_NODES for step in (1, 2, 3)] for j in range(N_NODES)]

    def fit() -> LabelProportionNetwork:
        dpcore.set_num_threads(2)
        network = LabelProportionNetwork(Bins.relative(100.0), noise=dpcore.Noise.insecure(0))
        network.fit(series, neighbours)
        dpcore.set_num_threads(None)
        return network

    def check() -> str:
        network = fit()
        score = network.score().mean()
        if len(network.models_) != N_NODES or score < 0.5:
            raise AssertionError("the network was not fitted")
        return f"accuracy {score:.2f}, {network.n_bytes_ / 1e6:.1f} MB sent"

    return Bound(
        "network of 1000 nodes x 3000 readings, fitted on two threads",
        lambda: seconds(fit),
        "s",
        check,
        NETWORK_SECONDS,
    )


def single_thread_rows() -> list[Row]:
    return [size_row(), recompute_row(), kmeans_row(1)]


def all_cpu_rows() -> list[Row]:
    return [kmeans_row(2)]


def bounds() -> list[Bound]:
    return [network_bound()]
