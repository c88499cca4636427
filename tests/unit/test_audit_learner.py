"""Audits of learners: a private gradient descent passes, and its mutants are flagged."""

from __future__ import annotations

import math

import numpy as np
import pytest

import dpcore
from dpcore import audit
from dpcore.errors import ParameterError

STEPS, MULTIPLIER = 4, 2.0
# Rounding to the grid enlarges the sensitivity by at most a thousandth.
MU = 1.001 * math.sqrt(STEPS) / MULTIPLIER


class Descent:
    """Least squares by full-batch gradients, clipped to norm 1, with Gaussian noise on the sum."""

    def __init__(self, noise, multiplier=MULTIPLIER, steps=STEPS, clip=1.0):
        self.noise, self.multiplier, self.steps, self.clip = noise, multiplier, steps, clip

    def fit(self, X, y):
        self.coef_ = np.zeros(X.shape[1])
        for _ in range(self.steps):
            gradients = (X @ self.coef_ - y)[:, None] * X
            norms = np.linalg.norm(gradients, axis=1, keepdims=True)
            total = (gradients * np.minimum(1, self.clip / np.maximum(norms, 1e-12))).sum(axis=0)
            noisy = dpcore.gaussian(total, sigma=self.multiplier, sensitivity=1.0, noise=self.noise)
            self.coef_ = self.coef_ - 0.1 * np.asarray(noisy)
        return self

    def predict(self, X):
        return X @ self.coef_


@pytest.fixture
def data():
    random = np.random.default_rng(0)
    X = np.zeros((20, 3))
    X[:, :2] = random.standard_normal((20, 2))
    return X, X[:, 0] - X[:, 1]


# Far from all others, and with a residual that stays above the clipping norm.
CANARY = np.array([[0.0, 0.0, 1.0]]), np.array([100.0])


def factory(seed=1, **options):
    noise = dpcore.Noise.insecure(seed)
    return lambda: Descent(noise, **options)


def coefficients(fitted, X, y):
    return fitted.coef_


@pytest.mark.parametrize("score", [None, coefficients])
def test_a_private_learner_passes_and_the_bound_is_not_trivial(data, score):
    fit_predict = audit.from_estimator(factory(), score)
    result = audit.learner(fit_predict, *data, CANARY, mu=MU, delta=1e-5, trials=2000)
    assert result.passed, str(result)
    assert result.lower_bound > 0.25 * result.epsilon


@pytest.mark.parametrize("score", [None, coefficients])
def test_half_the_noise_is_flagged(data, score):
    fit_predict = audit.from_estimator(factory(multiplier=MULTIPLIER / 2), score)
    assert not audit.learner(fit_predict, *data, CANARY, mu=MU, delta=1e-5, trials=2000).passed


def test_clipping_at_twice_the_sensitivity_is_flagged(data):
    fit_predict = audit.from_estimator(factory(clip=2.0))
    assert not audit.learner(fit_predict, *data, CANARY, mu=MU, delta=1e-5, trials=2000).passed


def test_replacing_a_record_moves_twice_as_far(data):
    """A guarantee under add-remove is half of one under replace, and the audit can tell."""
    X, y = np.vstack([[0.0, 0.0, 1.0], data[0]]), np.concatenate([[-100.0], data[1]])
    fit_predict = audit.from_estimator(factory())
    claim = {"delta": 1e-5, "trials": 2000, "adjacency": "replace"}
    assert not audit.learner(fit_predict, X, y, CANARY, mu=MU, **claim).passed
    assert audit.learner(fit_predict, X, y, CANARY, mu=2 * MU, **claim).passed


def test_a_repeated_seed_is_flagged(data):
    """Every training draws the noise of the first."""

    def make():
        return Descent(dpcore.Noise.insecure(1))

    fit_predict = audit.from_estimator(make)
    assert not audit.learner(fit_predict, *data, CANARY, mu=MU, delta=1e-5, trials=2000).passed


# One run


M = 2000


def responses(epsilon, seed=3):
    """A learner that keeps the bit of every record, by randomised response."""
    mechanism = dpcore.local.GRR(epsilon, 2)
    noise = dpcore.Noise.insecure(seed)

    def fit_predict(X, y, canary_X, canary_y):
        present = np.isin(canary_X[:, 0], X[:, 0]).astype(np.int64)
        return np.asarray(mechanism.encode(present, noise=noise)).astype(float)

    return fit_predict


EMPTY = np.full((1, 1), -1), np.zeros(1)
MANY = np.arange(M)[:, None], np.zeros(M)


def test_one_run_passes_randomised_response_and_is_close():
    result = audit.learner(responses(1.0), *EMPTY, MANY, epsilon=1.0, method="one-run")
    assert result.passed, str(result)
    assert result.lower_bound > 0.6
    assert result.trials == M


def test_one_run_flags_randomised_response_with_half_the_noise():
    result = audit.learner(responses(2.0), *EMPTY, MANY, epsilon=1.0, method="one-run")
    assert not result.passed
    assert "canaries" in result.worst


def coordinates(fitted, X, y):
    """Orthogonal canaries: each shows in a coefficient of its own."""
    return fitted.coef_


@pytest.mark.parametrize(("multiplier", "kept"), [(2.0, True), (0.1, False)])
def test_one_run_of_a_descent(multiplier, kept):
    """At a confidence of 0.999, since delta counts for every canary; the seed is fixed."""
    make = factory(multiplier=multiplier, steps=1)
    fit_predict = audit.from_estimator(make, coordinates)
    data, canaries = (np.zeros((1, M)), np.zeros(1)), (np.eye(M), np.full(M, 100.0))
    claim = {"mu": 0.501, "delta": 1e-6, "confidence": 0.999}
    result = audit.learner(fit_predict, *data, canaries, method="one-run", **claim)
    assert result.passed == kept, str(result)
    assert result.lower_bound > 0.1


# Scores and refusals


class Classifier:
    classes_ = np.array([3, 5, 9])

    def fit(self, X, y):
        return None


class Probable(Classifier):
    def predict_proba(self, X):
        return np.tile([0.2, 0.3, 0.5], (len(X), 1))


class Margins(Classifier):
    def decision_function(self, X):
        return np.tile([-1.0, 0.0, 2.0], (len(X), 1))


class Margin(Classifier):
    classes_ = np.array([3, 9])

    def decision_function(self, X):
        return np.full(len(X), 0.5)


@pytest.mark.parametrize(
    ("make", "expected"),
    [(Probable, np.log([0.2, 0.5])), (Margins, [-1.0, 2.0]), (Margin, [-0.5, 0.5])],
)
def test_the_score_of_a_classifier_is_for_the_class_of_the_canary(make, expected):
    X, y = np.zeros((2, 1)), np.array([3, 9])
    assert np.allclose(audit.from_estimator(make)(X, y, X, y), expected)


def test_it_works_on_an_estimator_of_scikit_learn():
    """Without noise, a canary that takes part is seen at once."""
    from sklearn.linear_model import Ridge

    X, y = np.random.default_rng(0).standard_normal((20, 2)), np.zeros(20)
    canary = np.array([[1.0, 1.0]]), np.array([5.0])
    result = audit.learner(audit.from_estimator(Ridge), X, y, canary, epsilon=1.0, trials=400)
    assert not result.passed


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"method": "many"}, "method"),
        ({"adjacency": "local"}, "adjacency"),
        ({"method": "one-run", "adjacency": "replace"}, "adjacency"),
        ({"trials": 1}, "trials"),
        ({"canaries": (np.zeros((2, 3)), np.zeros(2))}, "canaries"),
        ({"canaries": (np.zeros((0, 3)), np.zeros(0))}, "canaries"),
        ({"canaries": (np.zeros((1, 3)), np.zeros(2))}, "canaries"),
        ({"epsilon": 1.0}, "mu"),
        ({"method": "one-run", "score": lambda *_: [1, 2]}, "fit_predict"),
    ],
)
def test_refusals_name_the_parameter(data, options, name):
    options = {"canaries": CANARY, "mu": MU, "delta": 1e-5, "trials": 100, "score": None} | options
    fit_predict = audit.from_estimator(factory(), options.pop("score"))
    with pytest.raises(ParameterError, match=f"The '{name}' parameter"):
        audit.learner(fit_predict, *data, **options)
