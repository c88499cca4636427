"""k-means on the native core: the same clusters for a seed, whatever the number of threads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dpcore._checks import check_array, check_generator, check_index, check_not_negative
from dpcore._parallel import for_ranges
from dpcore.errors import ParameterError
from dpcore_ext.cluster import KMeansRun

__all__ = ["Clustering", "kmeans", "nearest_center"]

_WORTH_A_THREAD = 1 << 23  # multiplications of one pass over the points


@dataclass(frozen=True)
class Clustering:
    """A clustering made by `kmeans`.

    Attributes
    ----------
    centers : ndarray of shape (n_clusters, n_features)
    labels : ndarray of int32, shape (n_points,)
        Number of the nearest center of every point.
    inertia : float
        Sum of the squared distances of the points to their centers.
    n_iter : int
        Iterations of the run that was kept.

    Privacy
    -------
    None: all of it is computed from the data and must not leave whoever holds them.

    Cost
    ----
    4 bytes for each point, and the centers.
    """

    centers: npt.NDArray[Any]
    labels: npt.NDArray[np.int32]
    inertia: float
    n_iter: int


def kmeans(
    X: npt.ArrayLike,
    n_clusters: int,
    *,
    init: npt.ArrayLike | None = None,
    n_init: int = 10,
    max_iter: int = 300,
    tol: float = 1e-4,
    random_state: Any = None,
) -> Clustering:
    """Lloyd's algorithm from k-means++ seeds; the best of several runs.

    Parameters
    ----------
    X : array_like of shape (n_points, n_features)
        Finite numbers; float32 stays float32, everything else becomes float64.
    n_clusters : int
        At most the number of points.
    init : array_like of shape (n_clusters, n_features), optional
        Centers to start from, in place of k-means++; one run is made then.
    n_init : int
        Number of runs; the one with the least inertia is kept, the first among equals.
    max_iter : int
        Iterations of a run.
    tol : float
        A run ends when the squared moves of all centers sum to at most tol times the mean variance
        of the features, or when no point changes its cluster.
    random_state : None, int, SeedSequence or Generator
        Seeds of the runs: an algorithmic choice, no source of privacy.

    Returns
    -------
    Clustering

    Privacy
    -------
    None: centers are functions of the data and must not leave whoever holds them.

    Cost
    ----
    n_points * n_clusters * n_features multiplications for each iteration and for the seeding of
    each run, on several threads where that is worth it, and one copy of X.

    Notes
    -----
    Points are cut into chunks by their number alone, and sums are added in the order of chunks: the
    result is the same bit for bit with any number of threads and at every SIMD level. An empty
    cluster takes the point farthest from its center; where all points lie on centers it stays so.

    Examples
    --------
    >>> import numpy as np
    >>> from dpcore.cluster import kmeans
    >>> X = np.array([[0.0], [0.2], [5.0], [5.2]])
    >>> found = kmeans(X, 2, random_state=0)
    >>> sorted(found.centers[:, 0].round(3).tolist()), round(found.inertia, 3)
    ([0.1, 5.1], 0.04)
    """
    points = _features_first(X)
    # The native code asks for an origin inside the data.
    origin = points.mean(axis=1, dtype=np.float64).astype(points.dtype)
    points -= origin[:, np.newaxis]
    n_clusters = check_index(n_clusters, "n_clusters", least=1)
    n_init = check_index(n_init, "n_init", least=1)
    max_iter = check_index(max_iter, "max_iter", least=1)
    tol = check_not_negative(tol, "tol")
    generator = check_generator(random_state)
    if n_clusters > points.shape[1]:
        raise ParameterError("The 'n_clusters' parameter must be at most the number of points.")
    run = KMeansRun(points, n_clusters)
    limit = tol * float(points.var(axis=1, dtype=np.float64).mean()) if tol else 0.0
    if init is not None:
        run.restart(_check_centers(init, n_clusters, points) - origin)
        n_iter = _iterate(run, max_iter, limit)
        return Clustering(run.centers + origin, run.labels, run.inertia, n_iter)
    uniforms = generator.random((n_init, n_clusters))
    best: Clustering | None = None
    for uniform in uniforms:
        _seed(run, uniform)
        n_iter = _iterate(run, max_iter, limit)
        if best is None or run.inertia < best.inertia:
            best = Clustering(run.centers + origin, run.labels.copy(), run.inertia, n_iter)
    assert best is not None
    return best


def nearest_center(
    X: npt.ArrayLike, centers: npt.NDArray[Any]
) -> tuple[npt.NDArray[np.int32], npt.NDArray[Any]]:
    """Number of the nearest center of every point, the lowest among equals, and its distance.

    Parameters
    ----------
    X : array_like of shape (n_points, n_features)
    centers : ndarray of shape (n_clusters, n_features)

    Returns
    -------
    labels : ndarray of int32, shape (n_points,)
    distances : ndarray of shape (n_points,)
        Squared Euclidean distances.

    Privacy
    -------
    None: labels and distances are functions of the data and must not leave whoever holds them.

    Cost
    ----
    n_points * n_clusters * n_features multiplications, on several threads where that is worth it,
    and one copy of X.

    Examples
    --------
    >>> labels, distances = nearest_center([[1.0], [9.0]], np.array([[0.0], [10.0]]))
    >>> labels.tolist(), distances.tolist()
    ([0, 1], [1.0, 1.0])
    """
    points = _features_first(X, may_be_empty=True)
    d, n = points.shape
    own = np.ascontiguousarray(
        check_array(centers, "centers", dimensions=2, finite=True), dtype=points.dtype
    )
    if own.shape[1] != d or not own.size:
        raise ParameterError("The 'X' parameter must have the features of the centers.")
    if n == 0:
        return np.empty(0, np.int32), np.empty(0, points.dtype)
    origin = own.mean(axis=0)
    points -= origin[:, np.newaxis]
    run = KMeansRun(points, len(own))
    run.restart(own - origin)
    for_ranges(run.label, n, least=_WORTH_A_THREAD // own.size)
    return run.labels, run.distances


def _features_first(X: npt.ArrayLike, *, may_be_empty: bool = False) -> npt.NDArray[Any]:
    """Points as rows of features, contiguous, checked to be finite."""
    single = getattr(X, "dtype", None) == np.float32
    dtype = np.float32 if single else np.float64
    array = check_array(X, "X", dtype=dtype, dimensions=2, finite=True)
    if array.shape[1] == 0 or (array.shape[0] == 0 and not may_be_empty):
        raise ParameterError("The 'X' parameter must not be empty.")
    return np.array(array.T, order="C")


def _check_centers(init: npt.ArrayLike, k: int, points: npt.NDArray[Any]) -> npt.NDArray[Any]:
    centers = check_array(init, "init", dtype=points.dtype.type, finite=True)
    if centers.shape != (k, points.shape[0]):
        raise ParameterError(
            "The 'init' parameter must be an array of shape (n_clusters, n_features)."
        )
    return centers


def _least_chunks(run: KMeansRun, multiplications: int) -> int:
    """Chunks that are worth a thread when each point costs so many multiplications."""
    per_chunk = max(1, run.labels.size // run.n_chunks) * multiplications
    return -(-_WORTH_A_THREAD // per_chunk)


def _seed(run: KMeansRun, uniform: npt.NDArray[np.float64]) -> None:
    k, d = run.centers.shape
    least = _least_chunks(run, d)
    if run.n_chunks < 2 * least:
        run.plusplus(uniform)
        return
    index = int(uniform[0] * run.labels.size)
    for c in range(k):
        run.seed(c, index)
        if c + 1 < k:

            def spread(first: int, last: int, c: int = c) -> None:
                run.spread(c, first, last)

            for_ranges(spread, run.n_chunks, least)
            index = run.pick(uniform[c + 1])
    run.prepare()


def _iterate(run: KMeansRun, max_iter: int, tol: float) -> int:
    least = _least_chunks(run, run.centers.size)
    if run.n_chunks < 2 * least:
        return run.lloyd(max_iter, tol)
    n_iter = 0
    while True:
        for_ranges(run.assign, run.n_chunks, least)
        run.reduce()
        if run.changed == 0 or n_iter == max_iter or (n_iter > 0 and run.shift <= tol):
            return n_iter
        run.update()
        n_iter += 1
