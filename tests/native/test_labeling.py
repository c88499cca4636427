"""The Gram form: moves, search, enumeration and monotone labelings against recomputation."""

import itertools
import subprocess
import sys

import numpy as np
import pytest

from dpcore.errors import ParameterError
from dpcore.labeling import gram_form, label_clusters
from dpcore_ext import labeling as native
from dpcore_ext import rng

LEVELS = rng.levels()


def problem(k, n_labels, n_batches, n_targets=1, seed=0, noise=0.5):
    random = np.random.default_rng(seed)
    shares = random.dirichlet(np.full(k, 0.3), n_batches)
    targets = random.dirichlet(np.full(n_labels, 0.5), (n_targets, n_batches))
    return shares, targets + noise * random.normal(size=targets.shape)


def loss(shares, target, labels):
    implied = shares @ np.eye(target.shape[1])[labels]
    return np.square(implied - target).sum()


def product_loss(shares, target, labels):
    implied = shares @ np.eye(target.shape[1])[labels]
    prior = np.square((implied - target).mean(axis=0)).sum()
    return np.square(implied - target).mean() * (1e-6 + prior)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    ("rows", "left", "right"), [(1, 1, 1), (7, 3, 5), (93, 16, 16), (40, 5, 33)]
)
def test_cross_products_are_the_same_bits_at_every_level(level, rows, left, right, select_level):
    random = np.random.default_rng(rows)
    a, b = random.normal(size=(rows, left)), random.normal(size=(rows, right))
    a[random.random(a.shape) < 0.4] = 0
    expected = np.zeros((left, right))
    for i in range(rows):
        expected += np.multiply.outer(a[i], b[i])
    select_level(level)
    out = np.zeros((left, right))
    native.cross(a, b, out)
    assert out.tobytes() == expected.tobytes()


@pytest.mark.parametrize("seed", range(4))
def test_200_random_moves_change_the_error_as_a_full_recomputation_does(seed):
    k, n_labels, h = 16, 5, 93
    shares, targets = problem(k, n_labels, h, seed=seed)
    form = gram_form(shares, targets)
    random = np.random.default_rng(seed)
    labels = random.integers(0, n_labels, k, dtype=np.int32)
    reassign, swap = np.empty((k, n_labels)), np.empty((k, k))
    total = loss(shares, targets[0], labels)
    for step in range(200):
        form.deltas(0, labels, reassign, swap)
        moved = labels.copy()
        if step % 2:
            c, e = random.choice(k, 2, replace=False)
            delta, moved[c], moved[e] = swap[c, e], labels[e], labels[c]
        else:
            c, q = random.integers(k), random.integers(n_labels)
            delta, moved[c] = reassign[c, q], q
        after = loss(shares, targets[0], moved)
        scale = h * n_labels
        assert delta / scale == pytest.approx((after - loss(shares, targets[0], labels)) / scale,
                                              abs=1e-12)  # fmt: skip
        total += delta
        labels = moved
    assert total / scale == pytest.approx(loss(shares, targets[0], labels) / scale, abs=1e-12)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(("k", "n_labels"), [(16, 5), (64, 5), (8, 2), (5, 9)])
def test_the_search_ends_in_local_optima_and_reports_their_error(k, n_labels, seed):
    shares, targets = problem(k, n_labels, 93, 3, seed)
    form = gram_form(shares, targets)
    starts = np.random.default_rng(seed).integers(0, n_labels, (3, 20, k), dtype=np.int32)
    values = np.empty((3, 20))
    assert form.search(starts, values) > 0
    reassign, swap = np.empty((k, n_labels)), np.empty((k, k))
    for i, j in itertools.product(range(3), range(20)):
        error = loss(shares, targets[i], starts[i, j])
        assert values[i, j] / (93 * n_labels) == pytest.approx(error / (93 * n_labels), abs=1e-12)
        form.deltas(i, starts[i, j], reassign, swap)
        assert reassign.min() > -1e-11
        assert swap.min() > -1e-11


def test_the_first_move_is_the_best_one_and_the_lowest_among_equals():
    shares = np.array([[0.5, 0.5], [0.5, 0.5]])
    targets = np.array([[[0.5, 0.5], [0.5, 0.5]]])
    found = label_clusters(shares, targets, method="search", n_starts=1, random_state=_zeros())
    assert found.labels.tolist() == [[1, 0]]  # both moves gain the same: cluster 0 takes label 1
    assert found.n_moves == 1


class _zeros(np.random.Generator):
    """A generator whose integers are 0."""

    def __init__(self):
        super().__init__(np.random.PCG64(0))

    def integers(self, low, high=None, size=None, dtype=np.int64, endpoint=False):
        return np.zeros(size, dtype)


@pytest.mark.parametrize("seed", range(12))
def test_few_clusters_the_search_attains_the_enumerated_optimum(seed):
    k, n_labels = 4 + seed % 3, 3 + seed % 3
    shares, targets = problem(k, n_labels, 40, 2, seed)
    best = [
        min(
            loss(shares, t, np.array(each)) for each in itertools.product(range(n_labels), repeat=k)
        )
        / (40 * n_labels)
        for t in targets
    ]
    exact = label_clusters(shares, targets, method="exact")
    searched = label_clusters(shares, targets, method="search", n_starts=200, random_state=seed)
    np.testing.assert_allclose(exact.losses, best, atol=1e-12)
    np.testing.assert_allclose(searched.losses, best, atol=1e-12)
    for labels, target, value in zip(exact.labels, targets, best, strict=True):
        assert loss(shares, target, labels) / (40 * n_labels) == pytest.approx(value, abs=1e-12)


@pytest.mark.parametrize("seed", range(10))
def test_a_monotone_labeling_is_the_best_of_all_monotone_ones(seed):
    k, n_labels = 3 + seed % 6, 2 + seed % 4
    shares, targets = problem(k, n_labels, 30, 2, seed)
    order = np.random.default_rng(seed).permutation(k)
    found = label_clusters(shares, targets, method="monotone", order=order)
    for i, target in enumerate(targets):
        best = np.inf
        for ascending in itertools.combinations_with_replacement(range(n_labels), k):
            labels = np.empty(k, int)
            labels[order] = ascending
            best = min(best, loss(shares, target, labels))
        assert found.losses[i] == pytest.approx(best / (30 * n_labels), abs=1e-12)
        assert (np.diff(found.labels[i][order]) >= 0).all()


def test_monotone_with_all_4845_labelings_of_the_usual_size():
    shares, targets = problem(16, 5, 93, seed=3)
    order = np.arange(16)
    found = label_clusters(shares, targets, method="monotone", order=order)
    best = min(
        loss(shares, targets[0], np.array(labels))
        for labels in itertools.combinations_with_replacement(range(5), 16)
    )
    assert found.losses[0] == pytest.approx(best / (93 * 5), abs=1e-12)


@pytest.mark.parametrize("seed", range(6))
def test_the_product_loss_is_what_it_says(seed):
    shares, targets = problem(5, 3, 25, 2, seed)
    values = [
        min(
            product_loss(shares, t, np.array(each))
            for each in itertools.product(range(3), repeat=5)
        )
        for t in targets
    ]
    exact = label_clusters(shares, targets, method="exact", loss="product")
    np.testing.assert_allclose(exact.losses, values, rtol=1e-9, atol=1e-15)
    searched = label_clusters(
        shares, targets, method="search", n_starts=200, loss="product", random_state=0
    )
    for labels, target, value in zip(searched.labels, targets, searched.losses, strict=True):
        assert product_loss(shares, target, labels) == pytest.approx(value, rel=1e-9, abs=1e-15)


def test_weights_enter_as_a_recomputation_says():
    shares, targets = problem(4, 3, 20, seed=2)
    weights = np.random.default_rng(0).uniform(0.5, 1.5, 20)
    weights /= weights.mean()
    found = label_clusters(shares, targets, method="exact", weights=weights)
    root = np.sqrt(weights)[:, None]
    best = min(
        loss(shares * root, targets[0] * root, np.array(each))
        for each in itertools.product(range(3), repeat=4)
    )
    assert found.losses[0] == pytest.approx(best / 60, abs=1e-12)


def test_many_moves_do_not_drift():
    """More than a thousand moves in one search, so that the refresh is reached."""
    shares, targets = problem(300, 4, 400, seed=5, noise=2.0)
    form = gram_form(shares, targets)
    starts = np.random.default_rng(0).integers(0, 4, (1, 10, 300), dtype=np.int32)
    values = np.empty((1, 10))
    assert form.search(starts, values) > 1000
    for labels, value in zip(starts[0], values[0], strict=True):
        assert value == pytest.approx(loss(shares, targets[0], labels), rel=1e-12)


def test_the_seam_refuses_shapes_that_do_not_agree():
    shares, targets = problem(4, 3, 10)
    form = gram_form(shares, targets)
    wrong_label = np.full((1, 4), 3, np.int32)
    for call in (
        lambda: form.errors(wrong_label, np.empty(1)),
        lambda: form.errors(np.zeros((2, 4), np.int32), np.empty(1)),
        lambda: form.search(np.zeros((1, 1, 3), np.int32), np.empty((1, 1))),
        lambda: form.search(-np.ones((1, 1, 4), np.int32), np.empty((1, 1))),
        lambda: form.enumerate(np.zeros((1, 3), np.int32), np.empty(1)),
        lambda: form.monotone(np.zeros(4, np.int32), np.zeros((1, 4), np.int32), np.empty(1)),
        lambda: form.deltas(1, np.zeros(4, np.int32), np.empty((4, 3)), np.empty((4, 4))),
        lambda: native.GramForm(np.zeros((2, 3)), np.zeros((1, 2, 3)), np.zeros(1)),
        lambda: native.cross(np.zeros((3, 2)), np.zeros((4, 2)), np.zeros((2, 2))),
    ):
        with pytest.raises(ParameterError):
            call()


TIES = """
import numpy as np
from dpcore.labeling import label_clusters
r = np.random.default_rng(42)
r.integers(2, 12), r.integers(2, 4)
shares, targets = r.dirichlet(np.ones(2), 20000), np.full((1, 20000, 3), 1 / 3)
for options in {options}:
    label_clusters(shares, targets, method="search", random_state=0, **options)
for scale in 1e3, 1e150:
    label_clusters(scale * shares, scale * targets, method="search", random_state=0)
"""


@pytest.mark.parametrize(
    "options",
    [
        "[dict(n_starts=1), dict(n_starts=20), dict(n_starts=20, loss='product')]",
        "[dict(n_starts=5, loss=lambda g, q: (g - q) ** 2)]",
    ],
)
def test_labelings_that_tie_up_to_rounding_do_not_keep_the_search_busy(options):
    """In a process of its own, to be stopped: such a search did not end, and held no GIL."""
    if "lambda" in options:
        pytest.importorskip("numba")
    code = TIES.format(options=options)
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)
