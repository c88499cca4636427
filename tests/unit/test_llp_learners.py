"""The classifier of one node: common checks, recovery of labels, votes, losses and baselines."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from dpcore import Noise
from dpcore.errors import DataError, ParameterError
from dpcore.labeling import cluster_shares, label_clusters
from dpcore.learners import LabelProportionClassifier, make_baseline, suggest_parameters
from dpcore.learners.label_baselines import BASELINES
from dpcore.learners.label_proportions import vote_table
from dpcore.proportions import release_label_counts
from dpcore.series import Bins

SIGNATURE = {"check_fit_score_takes_y": "fit takes proportions and batches in place of y"}


@parametrize_with_checks(
    [
        LabelProportionClassifier(random_state=0),
        LabelProportionClassifier(8, labeling="search", batch_weight=True, random_state=0),
    ],
    expected_failed_checks=lambda estimator: SIGNATURE,
)
def test_common_checks(estimator, check):
    check(estimator)


def toy(seed=0, k=16, n_batches=93, batch_size=32, purity=0.8):
    """Clusters far apart, in random order over time, each with mostly one label."""
    random = np.random.default_rng(seed)
    true = random.integers(0, 5, k)
    n = n_batches * batch_size
    cluster = random.integers(0, k, n)
    # Neighbours in time share clusters, as real series do.
    cluster = np.where(random.random(n) < 0.7, np.repeat(cluster[::8], 8)[:n], cluster)
    y = np.where(random.random(n) < purity, true[cluster], random.integers(0, 5, n))
    X = 10.0 * cluster[:, None] + random.normal(size=(n, 1))
    return X, y, np.arange(n) // batch_size, true


@pytest.mark.parametrize("seed", range(5))
def test_without_noise_20_starts_recover_16_of_16_labels(seed):
    X, y, batches, true = toy(seed)
    cluster = (X[:, 0] / 10).round().clip(0, 15).astype(int)
    shares = cluster_shares(cluster, batches, 16, 93)
    targets = np.stack([np.bincount(y[batches == i], minlength=5) / 32 for i in range(93)])[None]
    found = label_clusters(shares, targets, method="search", n_starts=20, random_state=seed)
    assert (found.labels[0] == true).sum() == 16


def test_a_fit_learns_the_labels_from_proportions_alone():
    X, y, batches, _ = toy(3, purity=1.0)
    shares = np.stack([np.bincount(y[batches == i], minlength=5) / 32 for i in range(93)])
    model = LabelProportionClassifier(16, labeling="search", random_state=0).fit(X, shares, batches)
    assert model.score(X, y) > 0.97
    assert model.labelings_.shape == (1, 16)
    assert model.predict_proba(X[:3]).sum(axis=1) == pytest.approx([1, 1, 1])


def test_labels_are_counted_as_their_proportions():
    X, y, batches, _ = toy(4)
    counted = np.stack([np.bincount(y[batches == i], minlength=5) / 32 for i in range(93)])
    given = LabelProportionClassifier(random_state=1).fit(X, counted, batches)
    own = LabelProportionClassifier(classes=range(5), random_state=1).fit(X, y, batches)
    assert (given.labelings_ == own.labelings_).all()
    assert given.losses_ == pytest.approx(own.losses_)


def test_rows_as_batches_give_each_cluster_its_commonest_label():
    X, y, _, _ = toy(5)
    model = make_baseline("supervised", Bins.relative(5.0)).fit(X, y)
    cluster = model._nearest(X)
    for c in range(16):
        commonest = np.bincount(y[cluster == c], minlength=5)
        assert commonest[model.labelings_[0, c]] == commonest.max()


def test_noisy_counts_are_accepted_as_they_travel():
    X, y, batches, _ = toy(6, purity=1.0)
    counts = np.stack([np.bincount(y[batches == i], minlength=5) for i in range(93)])
    message, _ = release_label_counts(counts, epsilon=5.0, noise=Noise.insecure(0))
    model = LabelProportionClassifier(16, n_starts=20, random_state=0)
    assert model.fit(X, [message, message], batches).score(X, y) > 0.9
    assert model.labelings_.shape == (2, 16)


def test_votes_ties_and_medians():
    labelings = np.array([[0, 0, 2, 1], [1, 3, 2, 0], [1, 3, 4, 3], [0, 0, 4, 4]], np.int32)
    votes, majority = vote_table(labelings, 5, 0)
    assert majority.tolist() == [0, 0, 2, 1]
    assert votes[0].tolist() == [0.5, 0.5, 0, 0, 0]
    assert vote_table(labelings, 5, 1)[1].tolist() == [1, 3, 2, 0]
    assert vote_table(labelings, 5, None)[1].tolist() == [0, 0, 2, 0]
    assert vote_table(labelings[:3], 5, None, "median")[1].tolist() == [1, 3, 2, 1]
    assert vote_table(labelings, 5, 2, "median")[1].tolist() == [1, 3, 4, 3]
    assert vote_table(labelings, 5, None, "median")[1].tolist() == [0, 0, 2, 1]


def test_joint_tables_are_averaged_before_they_are_fitted():
    X, _, batches, _ = toy(6)
    random = np.random.default_rng(0)
    tables = random.dirichlet(np.ones(5), (3, 93))
    joint = LabelProportionClassifier(vote="joint", random_state=0).fit(X, tables, batches)
    mean = LabelProportionClassifier(random_state=0).fit(X, tables.mean(axis=0), batches)
    assert (joint.labelings_ == mean.labelings_).all()
    assert (joint.predict(X) == mean.predict(X)).all()


def test_monotone_labels_do_not_decrease_with_the_ordering_feature():
    X, y, batches, _ = toy(7)
    counts = np.stack([np.bincount(y[batches == i], minlength=5) / 32 for i in range(93)])
    model = LabelProportionClassifier(16, labeling="monotone", random_state=0)
    model.fit(X, counts, batches)
    order = np.argsort(model.cluster_centers_[:, 0])
    assert (np.diff(model.labelings_[0][order]) >= 0).all()


@pytest.mark.parametrize(("feature", "falls"), [(0, False), (1, True), (-1, True), (-2, False)])
def test_clusters_are_ordered_by_the_feature_that_is_named(feature, falls):
    """The second feature falls where labels rise: by it they can only be constant."""
    y = np.repeat([0, 1, 2], 200)
    X = np.column_stack([y, -y]) * 10.0 + np.random.default_rng(0).normal(size=(600, 2))
    model = LabelProportionClassifier(
        3, labeling="monotone", order_feature=feature, random_state=0
    ).fit(X, y, np.arange(600) // 20)
    order = np.argsort(model.cluster_centers_[:, feature])
    assert (np.diff(model.labelings_[0][order]) >= 0).all()
    assert model.score(X, y) == pytest.approx(1 / 3 if falls else 1.0)


def test_features_count_alike_whatever_their_units():
    random = np.random.default_rng(1)
    y = random.integers(0, 2, 800)
    X = np.column_stack([4.0 * y + 0.5 * random.normal(size=800), 1e4 * random.normal(size=800)])
    batches = np.arange(800) // 20
    options = {"n_clusters": 2, "random_state": 0}
    model = LabelProportionClassifier(**options).fit(X, y, batches)
    assert model.score(X, y) > 0.99
    raw = LabelProportionClassifier(standardize=False, **options).fit(X, y, batches)
    assert raw.score(X, y) < 0.7
    other = LabelProportionClassifier(**options).fit(X * [1.0, 2.0**-20] + [3.0, 0.0], y, batches)
    assert (other.predict(X * [1.0, 2.0**-20] + [3.0, 0.0]) == model.predict(X)).all()


@pytest.mark.parametrize(("weight", "label"), [(False, 1), (True, 0)])
def test_batches_count_once_or_by_their_size(weight, label):
    """One batch of 40 rows says 0, three batches of 2 rows say 1; there is one cluster."""
    batches = np.repeat([0, 1, 2, 3], [40, 2, 2, 2])
    X = np.random.default_rng(0).normal(size=(46, 1))
    shares = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [0.0, 1.0]])
    model = LabelProportionClassifier(1, batch_weight=weight, random_state=0)
    assert model.fit(X, shares, batches).labelings_.tolist() == [[label]]


def test_a_fit_is_a_function_of_data_and_seed():
    X, y, batches, _ = toy(8)
    fits = [clone(LabelProportionClassifier(random_state=5)).fit(X, y, batches) for _ in range(2)]
    assert fits[0].cluster_centers_.tobytes() == fits[1].cluster_centers_.tobytes()
    assert (fits[0].labelings_ == fits[1].labelings_).all()


def test_the_model_says_that_it_must_not_be_published():
    X, y, batches, _ = toy(9)
    privacy = LabelProportionClassifier(random_state=0).fit(X, y, batches).privacy_
    assert privacy.epsilon == np.inf
    assert not privacy.private
    assert any("must stay" in line for line in privacy.not_covered)


@pytest.mark.parametrize(
    ("options", "proportions", "batches", "error"),
    [
        ({}, np.full((2, 5), 0.2), np.arange(8), ParameterError),
        ({}, np.full((8, 5), 0.2), np.arange(7), ParameterError),
        ({}, np.full((8, 5), 0.2), np.arange(8.0), ParameterError),
        ({}, np.full((8, 5), np.nan), np.arange(8), DataError),
        ({"own": 1}, np.full((8, 5), 0.2), np.arange(8), ParameterError),
        ({"classes": [1, 2]}, np.full((8, 5), 0.2), np.arange(8), ParameterError),
        ({"classes": [1, 2]}, np.arange(8), None, DataError),
        ({"labeling": "guess"}, np.full((8, 5), 0.2), np.arange(8), ParameterError),
        ({"vote": "loudest"}, np.full((8, 5), 0.2), np.arange(8), ParameterError),
        ({"loss": "cubic"}, np.full((8, 5), 0.2), np.arange(8), ParameterError),
        ({"n_clusters": 0}, np.full((8, 5), 0.2), np.arange(8), ParameterError),
    ],
)
def test_bad_arguments_are_refused(options, proportions, batches, error):
    X = np.arange(8.0)[:, None]
    with pytest.raises(error):
        LabelProportionClassifier(**options).fit(X, proportions, batches)


# A loss of the user's own


def test_a_user_loss_of_squares_finds_what_the_native_search_finds():
    pytest.importorskip("numba")
    random = np.random.default_rng(0)
    shares = random.dirichlet(np.full(8, 0.5), 40)
    targets = random.dirichlet(np.ones(3), (2, 40))
    native = label_clusters(shares, targets, method="search", n_starts=30, random_state=1)
    custom = label_clusters(
        shares, targets, n_starts=30, random_state=1, loss=lambda g, q: (g - q) ** 2
    )
    assert (native.labels == custom.labels).all()
    np.testing.assert_allclose(native.losses, custom.losses, atol=1e-12)
    assert custom.n_moves == native.n_moves


def test_a_user_loss_is_minimised_as_written():
    pytest.importorskip("numba")
    random = np.random.default_rng(1)
    shares = random.dirichlet(np.full(4, 0.5), 30)
    targets = random.dirichlet(np.ones(3), (1, 30))
    found = label_clusters(shares, targets, n_starts=60, random_state=0, loss=_absolute)
    best = min(
        np.abs(shares @ np.eye(3)[list(each)] - targets[0]).mean()
        for each in np.ndindex(3, 3, 3, 3)
    )
    assert found.losses[0] == pytest.approx(best, abs=1e-12)


def _absolute(g, q):
    return abs(g - q)


# Baselines and rules


def test_baselines_share_one_interface():
    random = np.random.default_rng(2)
    series = random.normal(50, 20, 600).clip(0, 100)
    X = np.lib.stride_tricks.sliding_window_view(series, 5)[:-1]
    bins = Bins.relative(100.0)
    y = bins.label(series[5:])
    predicted = {name: make_baseline(name, bins).fit(X, y).predict(X) for name in BASELINES}
    assert all(labels.shape == y.shape for labels in predicted.values())
    assert (predicted["persistence"] == bins.label(X[:, -1])).all()
    assert len(set(predicted["majority"])) == 1
    commonest = np.bincount(y).max() / len(y)
    assert (predicted["supervised"] == y).mean() >= commonest
    assert (predicted["knn"] == y).mean() >= commonest


def test_16_neighbours_vote():
    """Of the nearest 15 and 17 rows most say 1; of 16, half, and the lower label wins."""
    X = np.concatenate([np.arange(1, 18), np.arange(100, 160)])[:, None] * 1.0
    y = np.repeat([1, 0, 1], [8, 8, 61])
    model = make_baseline("knn", Bins.relative(100.0)).fit(X, y)
    assert model.predict([[0.0], [200.0]]).tolist() == [0, 1]


def test_the_rule_for_sizes_grows_batches_with_the_noise():
    sizes = [suggest_parameters(2971, 5, epsilon)[0] for epsilon in (None, 1.0, 0.1, 0.02)]
    assert sizes == sorted(sizes)
    assert sizes[0] == 8
    assert suggest_parameters(2971, 5, 1e-309) == suggest_parameters(2971, 5, 1e-9)
    half = suggest_parameters(2971, 5, 0.1, "add-remove")
    assert half[0] <= suggest_parameters(2971, 5, 0.1)[0]
