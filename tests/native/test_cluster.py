"""k-means in the kernel layer: levels and threads agree bit for bit, and with a plain twin."""

import numpy as np
import pytest
from sklearn.cluster import KMeans

import dpcore
from dpcore import cluster
from dpcore.errors import DataError, ParameterError
from dpcore_ext import rng
from dpcore_ext.cluster import KMeansRun

LEVELS = rng.levels()
# Around the block of each level, and beyond one chunk.
SIZES = [*range(1, 18), 31, 32, 33, 63, 64, 65, 127, 129, 4095, 4097, 9000]


@pytest.fixture
def threads():
    yield dpcore.set_num_threads
    dpcore.set_num_threads(None)


def points(n, d, dtype=np.float64, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d)).astype(dtype)


def lloyd_twin(X, centers, n_iter):
    """Plain NumPy: assignments, means, the farthest point for an empty cluster."""
    centers = centers.copy()
    for _ in range(n_iter):
        distances = np.square(X[:, None] - centers[None]).sum(axis=2)
        labels = distances.argmin(axis=1)
        nearest = distances[np.arange(len(X)), labels]
        for c in range(len(centers)):
            if not (labels == c).any():
                counts = np.bincount(labels, minlength=len(centers))
                allowed = np.where(counts[labels] > 1, nearest, 0)
                if allowed.max() > 0:
                    moved = allowed.argmax()
                    labels[moved], nearest[moved] = c, 0
        for c in range(len(centers)):
            if (labels == c).any():
                centers[c] = X[labels == c].mean(axis=0)
    distances = np.square(X[:, None] - centers[None]).sum(axis=2)
    return centers, distances.argmin(axis=1), distances.min(axis=1).sum()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("d", [1, 2, 5, 17])
def test_the_nearest_center_is_nearest_at_every_level_and_length(dtype, d, select_level):
    centers = points(7, d, dtype, seed=1)
    for n in SIZES:
        X = points(n, d, dtype, seed=n)
        exact = np.square(X[:, None].astype(np.float64) - centers[None]).sum(axis=2)
        results = []
        for level in LEVELS:
            select_level(level)
            labels, distances = cluster.nearest_center(X, centers)
            slack = 1e-12 if dtype == np.float64 else 1e-4
            chosen = exact[np.arange(n), labels]
            assert (chosen <= exact.min(axis=1) + slack).all(), (level, n)
            np.testing.assert_allclose(distances, chosen, rtol=slack, atol=slack)
            results.append((labels.tobytes(), distances.tobytes()))
        assert len(set(results)) == 1, n


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_whole_run_is_the_same_at_every_level(dtype, select_level):
    X = points(10_000, 3, dtype)
    found = []
    for level in LEVELS:
        select_level(level)
        result = cluster.kmeans(X, 9, n_init=3, random_state=4)
        assert result.centers.dtype == dtype
        found.append((result.centers.tobytes(), result.labels.tobytes(), result.inertia))
    assert len(set(found)) == 1


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_whole_run_is_the_same_with_any_number_of_threads(dtype, threads, monkeypatch):
    monkeypatch.setattr(cluster, "_WORTH_A_THREAD", 1 << 12)
    X = points(60_000, 4, dtype)
    found = []
    for n_threads in (1, 2, 3, 7):
        threads(n_threads)
        result = cluster.kmeans(X, 12, n_init=2, max_iter=25, random_state=1)
        found.append((result.centers.tobytes(), result.labels.tobytes(), result.inertia))
    monkeypatch.setattr(cluster, "_WORTH_A_THREAD", 1 << 60)  # everything in one native call
    result = cluster.kmeans(X, 12, n_init=2, max_iter=25, random_state=1)
    found.append((result.centers.tobytes(), result.labels.tobytes(), result.inertia))
    assert len(set(found)) == 1


@pytest.mark.parametrize("seed", range(6))
def test_lloyd_equals_a_plain_twin(seed):
    X = points(300, 2, seed=seed)
    init = X[:6]
    expected = lloyd_twin(X, init, 10)
    result = cluster.kmeans(X, 6, init=init, max_iter=10, tol=0)
    np.testing.assert_allclose(result.centers, expected[0], rtol=1e-10)
    assert (result.labels == expected[1]).all()
    assert result.inertia == pytest.approx(expected[2], rel=1e-12)


def test_lloyd_equals_scikit_learn_from_the_same_start():
    X = points(5000, 5)
    init = X[:20]
    ours = cluster.kmeans(X, 20, init=init, max_iter=15, tol=0)
    theirs = KMeans(20, init=init, n_init=1, max_iter=15, tol=0, algorithm="lloyd").fit(X)
    assert (ours.labels == theirs.labels_).mean() > 0.999
    assert ours.inertia == pytest.approx(theirs.inertia_, rel=1e-9)


def test_an_offset_of_the_data_changes_nothing_of_note():
    X = points(2000, 3)
    near = cluster.kmeans(X, 8, init=X[:8], max_iter=5, tol=0)
    far = cluster.kmeans(X + 1e7, 8, init=X[:8] + 1e7, max_iter=5, tol=0)
    assert (near.labels == far.labels).mean() > 0.999


def test_empty_clusters_take_the_farthest_points():
    X = np.array([[0.0], [0.1], [0.2], [9.0], [10.0]])
    init = np.array([[0.1], [500.0], [600.0]])
    run = KMeansRun(np.ascontiguousarray(X.T), 3)
    run.restart(init)
    run.assign(0, run.n_chunks)
    run.reduce()
    run.update()
    assert run.centers[1:, 0].tolist() == [10.0, 9.0]
    assert run.centers[0, 0] == pytest.approx(0.1)
    expected = lloyd_twin(X, init, 1)
    np.testing.assert_allclose(run.centers, expected[0])


def test_fewer_different_points_than_clusters_end_quietly():
    result = cluster.kmeans(np.repeat([[1.0], [2.0]], 5, axis=0), 4, random_state=0)
    assert result.inertia == 0
    assert set(result.centers[result.labels, 0]) == {1.0, 2.0}


def test_seeds_follow_the_squared_distances():
    """k-means++ from 0, 1 and 3: after the first center the others have odds 1 to 4 or 9 to 4."""
    X = np.array([[0.0], [1.0], [3.0]])
    run = KMeansRun(np.ascontiguousarray(X.T), 2)
    n, hits = 20_000, np.zeros((3, 3))
    for uniform in np.random.default_rng(3).random((n, 2)):
        run.plusplus(uniform)
        first, second = (int(np.flatnonzero(X[:, 0] == c)[0]) for c in run.centers[:, 0])
        hits[first, second] += 1
    chances = np.array([[0, 1, 9], [1, 0, 4], [9, 4, 0]]) / np.array([[10], [5], [13]]) / 3
    assert (hits[chances == 0] == 0).all()
    spread = np.sqrt(n * chances * (1 - chances))
    # Six cells, each off by 5.5 standard deviations with probability 4e-8.
    assert (np.abs(hits - n * chances) <= 5.5 * spread).all()


def test_seeding_in_chunks_equals_seeding_in_one_call():
    X = np.ascontiguousarray(points(20_000, 3).T)
    uniform = np.random.default_rng(0).random(10)
    whole, parts = KMeansRun(X, 10), KMeansRun(X, 10)
    whole.plusplus(uniform)
    index = int(uniform[0] * X.shape[1])
    for c in range(10):
        parts.seed(c, index)
        for chunk in reversed(range(parts.n_chunks)):
            parts.spread(c, chunk, chunk + 1)
        if c < 9:
            index = parts.pick(uniform[c + 1])
    assert whole.centers.tobytes() == parts.centers.tobytes()


def test_more_runs_are_never_worse():
    X = points(3000, 5)
    one = cluster.kmeans(X, 16, n_init=1, random_state=2).inertia
    ten = cluster.kmeans(X, 16, n_init=10, random_state=2).inertia
    assert ten <= one


@pytest.mark.parametrize(
    ("arguments", "options", "error"),
    [
        (([[1.0], [2.0]], 3), {}, ParameterError),
        (([[1.0], [2.0]], 0), {}, ParameterError),
        (([1.0, 2.0], 1), {}, ParameterError),
        (([[np.nan], [2.0]], 1), {}, DataError),
        (([[1.0], [2.0]], 1), {"init": [[1.0, 2.0]]}, ParameterError),
        (([[1.0], [2.0]], 1), {"tol": -1}, ParameterError),
        (([[1.0], [2.0]], 1), {"n_init": 0}, ParameterError),
        (([], 1), {}, ParameterError),
    ],
)
def test_bad_arguments_are_refused(arguments, options, error):
    with pytest.raises(error):
        cluster.kmeans(*arguments, **options)


def test_the_seam_refuses_what_would_leave_its_memory():
    run = KMeansRun(np.zeros((2, 5)), 2)
    for call in (
        lambda: run.assign(0, 2),
        lambda: run.spread(2, 0, 1),
        lambda: run.seed(0, 5),
        lambda: run.label(0, 6),
        lambda: run.pick(1.0),
        lambda: run.plusplus(np.array([0.5])),
        lambda: run.plusplus(np.array([0.5, np.nan])),
        lambda: run.restart(np.zeros((3, 2))),
        lambda: KMeansRun(np.zeros((5, 2)).T, 2),
        lambda: KMeansRun(np.zeros((2, 5), np.int64), 2),
    ):
        with pytest.raises(ParameterError):
            call()
