"""Consensus ADMM: the noise that users send is the noise that was charged, anew in every round."""

import math

import numpy as np
import pytest
from admm_twin import logistic_gradient, minimise
from scipy import stats

from dpcore import Noise
from dpcore.learners import ConsensusADMMClassifier, _consensus

N, J, D = 3, 8, 10
SEEDS = 120
RHO = (4.0, 8.0)
GENERATOR = np.random.default_rng(11)
X = GENERATOR.normal(size=(N * J, D))
X /= 1.001 * np.linalg.norm(X, axis=1)[:, None]
Y = GENERATOR.choice([-1, 1], N * J)
USERS = np.repeat(np.arange(N), J)
PARTS = [(X[i == USERS], Y[i == USERS]) for i in range(N)]


class Spied:
    """A fit of two rounds, and what its users sent."""

    def __init__(self, monkeypatch, seed, **options):
        self.sent, self.plans = [], []
        real = _consensus.plan

        def add(units, users):
            self.sent.append(units.copy())
            return units.sum(axis=0)

        def plan(**given):
            self.plans.append(real(**given))
            return self.plans[-1]

        with monkeypatch.context() as patch:
            patch.setattr(_consensus, "plain_sum", add)
            patch.setattr(_consensus, "plan", plan)
            model = ConsensusADMMClassifier(
                epsilon=None, noise_multiplier=5.0, n_rounds=2, fit_intercept=False, beta=1.0,
                classes=[-1, 1], noise=Noise.insecure(seed).stream("rounds"), **options,
            ).fit(X, Y, USERS)  # fmt: skip
        self.charged = model.privacy_.events[0].noise_multiplier
        self.unit = 2.0 ** -self.plans[0].fraction_bits
        self.messages = [units * self.unit for units in self.sent]


def gradients_noise(run):
    """Gradients at 0, and at the server's first model, which it made of the first sum."""
    first = np.array([logistic_gradient(np.zeros(D), *part) for part in PARTS])
    smoothness = len(X) / 4
    model = -run.messages[0].sum(axis=0) / (smoothness + 1)  # beta is 1
    second = np.array([logistic_gradient(model, *part) for part in PARTS])
    return run.messages[0] - first, run.messages[1] - second


def server_model(average, rho):
    return N * rho * average / (1 + N * rho)


def stateful_noise(run):
    """Users send w + dual; the second round starts from the server's noisy model."""
    one, two = RHO
    w = np.array([minimise(*part, np.zeros(D), one) for part in PARTS])
    received = server_model(run.messages[0].mean(axis=0), one)
    dual = w * one / two
    following = np.array(
        [minimise(*part, received - own, two) for part, own in zip(PARTS, dual, strict=True)]
    )
    dual = dual + following - received
    return run.messages[0] - 2 * w, run.messages[1] - following - dual


def share_noise(run):
    """Users keep the noise in w, and send how w + dual changed."""
    rho = RHO[0]
    exact = np.array([minimise(*part, np.zeros(D), rho) for part in PARTS])
    w = run.messages[0] / 2  # the dual is w as well
    received = server_model(run.messages[0].mean(axis=0), rho)
    following = (run.messages[1] + w + received) / 2
    best = [minimise(*part, received - own, rho) for part, own in zip(PARTS, w, strict=True)]
    return w - exact, following - np.array(best)


def stateful_shifts_by_hand():
    """Two rounds: 2 steps; then how far the states are apart, and 2 steps of the new rho."""
    one, two = 2 / RHO[0], 2 / RHO[1]
    # z = w0 - dual, and the dual is scaled by the quotient of the rhos: e_1 = one * RHO / RHO.
    return [2 * one, one * RHO[0] / RHO[1] + 2 * two]


CASES = {
    # options, who takes the noise off, steps, shifts, shares that count
    "gradients": ({"solver": "dp_gd"}, gradients_noise, [2.0, 2.0], [2.0, 2.0], N),
    "stateful": (
        {"accounting": "stateful", "rho": RHO},
        stateful_noise,
        [2 / RHO[0], 2 / RHO[1]],
        stateful_shifts_by_hand(),
        N,
    ),
    "share": ({"rho": RHO[0]}, share_noise, [2 / RHO[0]] * 2, [2 / RHO[0]] * 2, 1),
}


@pytest.mark.parametrize("kind", CASES)
def test_users_send_the_noise_that_is_charged_and_anew_in_every_round(kind, monkeypatch):
    options, noise_of, steps, shifts, counted = CASES[kind]
    drawn = []
    for seed in range(SEEDS):
        run = Spied(monkeypatch, seed, **options)
        drawn.append(noise_of(run))
    noise = np.array(drawn).swapaxes(0, 1).reshape(2, -1)
    # A Gaussian mechanism of so many rounds, whose deviations are in proportion to the steps.
    per_step = run.charged * math.sqrt(
        sum((b / a) ** 2 for a, b in zip(steps, shifts, strict=True))
    )
    low, high = stats.chi2(noise.shape[1]).ppf([2.5e-7, 1 - 2.5e-7])
    for number in range(2):
        deviation = per_step * steps[number] / math.sqrt(counted)
        planned = float(run.plans[0].deviations[number]) * run.unit
        assert planned == pytest.approx(deviation, rel=1e-4)
        assert low < np.square(noise[number] / deviation).sum() < high
    # Unit variance and independent: the mean product is normal.
    standard = noise / noise.std(axis=1, keepdims=True)
    limit = stats.norm.ppf(1 - 5e-7) / math.sqrt(noise.shape[1])
    assert abs((standard[0] * standard[1]).mean()) < limit
