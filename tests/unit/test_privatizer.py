"""The scikit-learn face: common checks, pipelines, and what is promised."""

import pickle
from fractions import Fraction

import numpy as np
import pandas
import pytest
from sklearn.base import clone
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from dpcore import Noise, local
from dpcore.errors import ParameterError
from dpcore.learners.privatizer import LocalPrivatizer
from dpcore.noise import NotPrivateArray

RNG = np.random.default_rng(7)
X = RNG.uniform(-1, 1, (500, 3))


REPEATS = (
    "check_estimators_pickle",
    "check_fit_idempotent",
    "check_methods_sample_order_invariance",
    "check_methods_subset_invariance",
)


def expected_failures(estimator):
    """Fresh noise differs from call to call, which is the point; pinned noise passes everything."""
    return {} if estimator.noise else dict.fromkeys(REPEATS, "every call draws fresh noise")


@parametrize_with_checks(
    [LocalPrivatizer(), LocalPrivatizer("duchi", noise=Noise.insecure(3).stream("checks"))],
    expected_failed_checks=expected_failures,
)
def test_common_checks(estimator, check):
    check(estimator)


def test_every_feature_gets_its_share_of_epsilon():
    fitted = LocalPrivatizer("three-outputs", epsilon=3.0).fit(X)
    assert fitted.mechanism_ == local.ThreeOutputs(1.0)
    assert 3.0 - 1e-9 < fitted.privacy_.epsilon <= 3.0
    assert (fitted.privacy_.delta, fitted.privacy_.adjacency) == (0.0, "local")
    assert fitted.privacy_.events[0].count == 3
    assert fitted.privacy_.private
    assert len(fitted.privacy_.not_covered) > 0


@pytest.mark.parametrize("d", [3, 7, 10])
def test_shares_never_sum_to_more_than_epsilon(d):
    share = LocalPrivatizer("duchi", epsilon=0.7).fit(np.zeros((2, d))).mechanism_.epsilon
    assert Fraction(share) * d <= Fraction(0.7)


def test_fit_learns_nothing_but_the_number_of_features():
    noise = Noise.from_key(bytes(32)).stream("once")
    one = LocalPrivatizer(noise=noise).fit(X)
    other = LocalPrivatizer(noise=noise).fit(1e6 * X[::-1])
    np.testing.assert_array_equal(one.transform(X), other.transform(X))


def test_values_are_those_of_the_mechanism_and_unbiased():
    n, lower, upper = 200_000, np.array([0.0, -5.0]), np.array([10.0, 5.0])
    point = np.array([2.0, 4.0])
    estimator = LocalPrivatizer("hm-j", 4.0, lower, upper, Noise.insecure(1))
    out = np.asarray(estimator.fit_transform(np.tile(point, (n, 1))))
    half, centre = (upper - lower) / 2, (upper + lower) / 2
    support = estimator.mechanism_.outputs
    assert np.isin(np.round((out - centre) / half, 9), np.round(support, 9)).all()
    spread = half * np.sqrt(estimator.mechanism_.variance((point - centre) / half) / n)
    # Each of two means is off by 5 standard errors with probability 6e-7.
    assert (np.abs(out.mean(axis=0) - point) < 5 * spread).all()


def test_equal_columns_get_independent_noise():
    n = 100_000
    estimator = LocalPrivatizer("duchi", 2.0, noise=Noise.insecure(2).stream("columns"))
    out = np.asarray(estimator.fit_transform(np.zeros((n, 2))))
    correlation = np.corrcoef(out.T)[0, 1]
    assert abs(correlation) < 5 / np.sqrt(n)  # missed with probability 6e-7


def test_values_outside_the_bounds_count_as_the_nearer_bound():
    noise = Noise.from_key(bytes(32)).stream("clip")
    inside = LocalPrivatizer(noise=noise).fit_transform(np.array([[1.0], [-1.0]]))
    outside = LocalPrivatizer(noise=noise).fit_transform(np.array([[1e300], [-7.0]]))
    np.testing.assert_array_equal(inside, outside)


def test_fresh_noise_in_every_call_unless_pinned():
    fresh = LocalPrivatizer().fit(X)
    assert (np.asarray(fresh.transform(X)) != np.asarray(fresh.transform(X))).any()
    pinned = LocalPrivatizer(noise=Noise.from_key(bytes(32)).stream("a")).fit(X)
    np.testing.assert_array_equal(pinned.transform(X), pinned.transform(X))


def test_insecure_noise_is_visible():
    estimator = LocalPrivatizer(noise=Noise.insecure(1)).fit(X)
    assert not estimator.privacy_.private
    assert isinstance(estimator.transform(X), NotPrivateArray)
    assert not isinstance(LocalPrivatizer().fit_transform(X), NotPrivateArray)


def test_clone_pickle_and_pipeline():
    noise = Noise.from_key(bytes(32)).stream("pipeline")
    estimator = LocalPrivatizer(epsilon=6.0, lower=[-1, -1, -1], noise=noise)
    assert clone(estimator).get_params()["noise"] is noise
    fitted = estimator.fit(X)
    restored = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(restored.transform(X), fitted.transform(X))
    model = make_pipeline(LocalPrivatizer(epsilon=6.0), Ridge()).fit(X, X.sum(axis=1))
    assert model.predict(X).shape == (500,)


def test_float32_stays_float32():
    assert LocalPrivatizer().fit_transform(X.astype(np.float32)).dtype == np.float32


def test_set_output_and_names():
    frame = pandas.DataFrame(X, columns=["a", "b", "c"])
    out = LocalPrivatizer().set_output(transform="pandas").fit_transform(frame)
    assert list(out.columns) == ["a", "b", "c"]
    assert LocalPrivatizer().fit(frame).get_feature_names_out().tolist() == ["a", "b", "c"]


def test_names_without_pandas():
    assert LocalPrivatizer().fit(X).get_feature_names_out().tolist() == ["x0", "x1", "x2"]


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"epsilon": 0}, "'epsilon'"),
        ({"epsilon": 0.002}, "at least 0.001 for every feature"),
        ({"epsilon": "1"}, "'epsilon'"),
        ({"mechanism": "none"}, "'name'"),
        ({"lower": 1.0}, "'upper' parameter must be greater"),
        ({"lower": [0, 0]}, "'lower' parameter must be a finite number, or one for every feature"),
        ({"upper": np.inf}, "'upper' parameter must be a finite number"),
        ({"upper": "high"}, "'upper' parameter must be a finite number"),
        ({"noise": 7}, "'noise' parameter must be a dpcore.Noise"),
    ],
)
def test_bad_parameters_are_named_at_fit(parameters, message):
    with pytest.raises(ParameterError, match=message):
        LocalPrivatizer(**parameters).fit(X)
