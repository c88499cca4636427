"""What one record can move, as the learners of consensus ADMM tell it to the planner of noise."""

import sys

import numpy as np
import pytest

from dpcore.federated import LOSSES, Delays, Loss, simulate
from dpcore.learners import ConsensusADMMClassifier, _consensus

N, J, D, ROUNDS = 4, 5, 3, 4
GENERATOR = np.random.default_rng(2)
X = GENERATOR.uniform(-1, 1, (N * J, D))
Y = GENERATOR.choice([-1, 1], N * J)
USERS = np.repeat(np.arange(N), J)
UNEQUAL = np.repeat(np.arange(N), [2, 3, 11, 4])
INEXACT = 2e-10  # twice the tolerance of local minima, over the largest slope


class PlannedError(Exception):
    """Stops a fit where its noise is planned."""


def sensitivities(monkeypatch, users=USERS, **options):
    """What a fit tells the planner; nothing is drawn."""
    asked = {}

    def plan(**given):
        asked.update(given)
        raise PlannedError

    monkeypatch.setattr(_consensus, "plan", plan)
    model = ConsensusADMMClassifier(n_rounds=ROUNDS, classes=[-1, 1], **options)
    with pytest.raises(PlannedError):
        model.fit(X, Y, users)
    return asked


def tripled(values):
    return tuple(3 * each for each in LOSSES["logistic"].terms(values))


STEEP = Loss("steep", "margin", 3.0, 0.75, tripled)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"solver": "dp_gd"}, 2.0),
        ({"solver": "dp_gd", "adjacency": "add-remove"}, 1.0),
        ({"solver": "dp_gd", "row_norm": 0.5}, 1.0),
        ({"solver": "dp_gd", "rho": 4.0}, 2.0),
        ({"solver": "dp_gd", "loss": STEEP}, 6.0),
        ({}, 2 + INEXACT),
        ({"adjacency": "add-remove"}, 1 + INEXACT),
        ({"rho": 4.0}, (2 + INEXACT) / 4),
        ({"rho": 4.0, "row_norm": 0.5}, (2 + INEXACT) / 8),
        ({"rho": 4.0, "loss": STEEP}, 3 * (2 + INEXACT) / 4),
        ({"rho": 4.0, "adjacency": "add-remove"}, (1 + INEXACT) / 4),
    ],
)
def test_one_step_moves_by_the_slope_over_rho(options, expected, monkeypatch):
    asked = sensitivities(monkeypatch, **options)
    for name in ("steps", "shifts"):
        assert len(asked[name]) == ROUNDS
        assert [float(each) for each in asked[name]] == pytest.approx(
            [expected] * ROUNDS, rel=1e-14
        )
    assert asked["in_sum"] == ("solver" in options)
    assert asked["adjacency"] == options.get("adjacency", "replace")
    assert asked["d"] == D + 1


@pytest.mark.parametrize("relaxation", [1.0, 1.5])
@pytest.mark.parametrize("adjacency", ["replace", "add-remove"])
@pytest.mark.parametrize("row_norm", [1.0, 0.5])
def test_shifts_of_exact_states_are_those_of_the_largest_user(
    relaxation, adjacency, row_norm, monkeypatch
):
    """kappa = L / (L + rho); the states move apart as w and the dual do, see `stateful_shifts`."""
    rho, factor = 4.0, 2 if adjacency == "replace" else 1
    asked = sensitivities(
        monkeypatch, UNEQUAL, accounting="stateful", rho=rho, relaxation=relaxation,
        adjacency=adjacency, row_norm=row_norm,
    )  # fmt: skip
    largest = 11 + (adjacency == "add-remove")
    smoothness = largest / 4 * row_norm**2
    kappa = smoothness / (smoothness + rho)
    step = (factor + INEXACT) * row_norm / rho
    apart, shifts = 0.0, []
    for _ in range(ROUNDS):
        shifts.append(apart + 2 * step)
        steepest = max(abs(1 - relaxation), abs(1 - relaxation * (1 - kappa)))
        apart = steepest * apart + relaxation * step
    assert [float(each) for each in asked["steps"]] == pytest.approx([step] * ROUNDS, rel=1e-14)
    assert [float(each) for each in asked["shifts"]] == pytest.approx(shifts, rel=1e-13)
    assert asked["in_sum"]


@pytest.mark.parametrize("relaxation", [1.0, 1.5])
def test_a_step_of_a_steep_loss_is_steeper_and_more_curved(relaxation, monkeypatch):
    asked = sensitivities(
        monkeypatch, accounting="stateful", rho=2.0, relaxation=relaxation, loss=STEEP
    )
    step, kappa = 3 * (2 + INEXACT) / 2, 0.75 * J / (0.75 * J + 2)
    steepest = max(abs(1 - relaxation), abs(1 - relaxation * (1 - kappa)))
    assert float(asked["shifts"][0]) == pytest.approx(2 * step, rel=1e-13)
    assert float(asked["shifts"][1]) == pytest.approx((2 + relaxation) * step, rel=1e-13)
    third = (2 + relaxation + steepest * relaxation) * step
    assert float(asked["shifts"][2]) == pytest.approx(third, rel=1e-13)


@pytest.mark.parametrize(
    ("options", "expected"),
    [({}, 4), ({"honest": 0.7}, 3), ({"honest": 0.5}, 2), ({"honest": 0.4, "barrier": 3}, 2)],
)
def test_only_honest_shares_count(options, expected, monkeypatch):
    assert sensitivities(monkeypatch, **options)["n_shares"] == expected


def test_late_users_count_the_rounds_of_the_busiest(monkeypatch):
    asked = sensitivities(monkeypatch, barrier=2, max_delay=9, delays=Delays(), random_state=0)
    participants = simulate(
        N, ROUNDS, barrier=2, max_delay=9, delays=Delays(),
        generator=np.random.default_rng(np.random.RandomState(0).randint(1 << 31)),
    )  # fmt: skip
    assert participants.most_rounds < ROUNDS
    assert len(asked["steps"]) == len(asked["shifts"]) == participants.most_rounds
    assert not asked["in_sum"]
    assert asked["n_shares"] == 2


@pytest.mark.skipif(sys.version_info < (3, 11), reason="the extra 'flower' needs Python 3.11")
@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        ({}, 2 + INEXACT),
        ({"adjacency": "add-remove"}, 1 + INEXACT),
        ({"rho": 4.0}, (2 + INEXACT) / 4),
        ({"rho": 4.0, "row_norm": 0.5}, (2 + INEXACT) / 8),
    ],
)
def test_a_federation_counts_each_noisy_model_as_published(terms, expected, monkeypatch):
    from dpcore.interop.flower import agreement

    asked, real = {}, agreement.plan

    def plan(**given):
        asked.update(given)
        return real(**given)

    monkeypatch.setattr(agreement, "plan", plan)
    made = agreement.Agreement(
        session="plans", task="admm", features=("a", "b"), bounds=((0, 1), (0, 1)),
        clients={i: bytes([i]) * 32 for i in range(5)}, epsilon=4.0, rounds=ROUNDS,
        terms=agreement.ConsensusTerms(**terms), classes=(0, 1), barrier=4,
    )  # fmt: skip
    for name in ("steps", "shifts"):
        assert [float(each) for each in asked[name]] == pytest.approx(
            [expected] * ROUNDS, rel=1e-14
        )
    assert not asked["in_sum"]
    assert (asked["n_shares"], asked["d"], asked["epsilon"]) == (4, 3, 4.0)
    assert asked["noise_multiplier"] is None
    assert asked["adjacency"] == made.consensus.adjacency
    # A single share must hide a model alone: sqrt(rounds) steps of a Gaussian mechanism.
    share = float(made.plan.deviations[0]) * 2.0**-made.plan.fraction_bits
    ratio = share / (expected * ROUNDS**0.5)
    assert made.plan.event.noise_multiplier == pytest.approx(ratio, rel=1e-4)


@pytest.mark.parametrize(("honest", "barrier"), [(1.0, 4), (0.7, 4), (0.5, 3)])
def test_no_sum_of_fewer_users_than_the_noise_is_planned_for_is_disclosed(
    honest, barrier, monkeypatch
):
    """Of fewer survivors than `barrier` the honest ones might be fewer than planned."""
    from dpcore.secure import simulate as cohorts

    made, real = [], cohorts.Cohort

    def cohort(parameters, n):
        made.append(parameters)
        return real(parameters, n)

    monkeypatch.setattr(cohorts, "Cohort", cohort)
    ConsensusADMMClassifier(
        secure=True, honest=honest, barrier=barrier, max_delay=5, delays=Delays(), n_rounds=2,
        random_state=0, classes=[-1, 1],
    ).fit(X, Y, USERS)  # fmt: skip
    assert [(each.min_clients, each.min_survivors) for each in made] == [(barrier, barrier)]
