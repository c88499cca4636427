"""Consensus ADMM without noise: the algorithm against its twin, and the facts it must keep."""

import doctest
import pickle

import numpy as np
import pytest
from admm_twin import Twin, logistic_gradient, minimise, update_l2
from scipy.optimize import minimize
from sklearn.utils.estimator_checks import parametrize_with_checks

from dpcore import Noise
from dpcore.errors import ParameterError
from dpcore.federated import LOSSES, Delays, custom_loss, make_loss, schedule, simulate
from dpcore.federated.consensus import Consensus, Penalty
from dpcore.federated.devices import Devices
from dpcore.federated.solvers import LocalProblems
from dpcore.learners import (
    CentralClassifier,
    CentralRegressor,
    ConsensusADMMClassifier,
    ConsensusADMMRegressor,
    LocalOnlyClassifier,
    LocalOnlyRegressor,
    admm,
    baselines,
)

# Most tests leave classes out where labels do not matter.
pytestmark = pytest.mark.filterwarnings("ignore::dpcore.learners.InferredPublicWarning")

GENERATOR = np.random.default_rng(3)
N, J, D = 20, 60, 10
X = GENERATOR.normal(size=(N * J, D))
X /= np.linalg.norm(X, axis=1)[:, None]
TRUTH = 5 * GENERATOR.normal(size=D)
Y = np.where(GENERATOR.random(N * J) < 1 / (1 + np.exp(-X @ TRUTH)), 1.0, -1.0)
USERS = np.repeat(np.arange(N), J)
EXACT = {"epsilon": None, "fit_intercept": False, "row_norm": None}


@pytest.fixture(autouse=True)
def same_data_in_any_order():
    GENERATOR.bit_generator.state = np.random.default_rng(4).bit_generator.state


def pinned():
    return Noise.insecure(5).stream("admm")


@parametrize_with_checks(
    [
        ConsensusADMMClassifier(epsilon=None, row_norm=None),
        ConsensusADMMClassifier(epsilon=2.0, noise=pinned()),
        ConsensusADMMClassifier("huber_hinge", epsilon=2.0, solver="dp_gd", noise=pinned()),
        ConsensusADMMRegressor("squared", epsilon=None, row_norm=None, n_users=3, n_rounds=200),
        ConsensusADMMRegressor(accounting="stateful", noise=pinned()),
        CentralClassifier(row_norm=None),
        CentralRegressor(row_norm=None),
        LocalOnlyClassifier(n_users=2, row_norm=None, random_state=0),
        LocalOnlyRegressor(n_users=2, row_norm=None, random_state=0),
    ]
)
def test_common_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("module", [admm, baselines, schedule])
def test_examples(module):
    assert doctest.testmod(module).failed == 0


# Local solver


@pytest.mark.parametrize("rho", [0.3, 10.0])
@pytest.mark.parametrize("sizes", [[3, 4, 5, 40, 7, 1], [30, 31, 33, 90, 12, 25]])
@pytest.mark.parametrize("name", [name for name in LOSSES if name != "hinge"])
def test_local_minima_are_those_of_a_general_solver(name, sizes, rho):
    d, loss = 12, make_loss(name)
    users = np.repeat(np.arange(len(sizes)), sizes)
    data = GENERATOR.normal(size=(len(users), d)) / np.sqrt(d)
    y = np.sign(GENERATOR.normal(size=len(users))) * 3
    y = y / 3 if loss.kind == "margin" else y
    problems = LocalProblems(data, y, Devices.of(len(users), users), loss)
    for _ in range(2):  # cold, then warm
        z = GENERATOR.normal(size=(len(sizes), d))
        found = problems.solve(np.arange(len(sizes)), z, rho)
        for i in range(len(sizes)):
            own = users == i

            def objective(w, own=own, start=z[i]):
                value, slope, _ = loss.at(data[own] @ w, y[own])
                gradient = data[own].T @ slope + rho * (w - start)
                return value.sum() + rho / 2 * ((w - start) ** 2).sum(), gradient

            best = minimize(objective, z[i], jac=True, method="BFGS", options={"gtol": 1e-9})
            np.testing.assert_allclose(found[i], best.x, atol=2e-6)
            assert np.linalg.norm(objective(found[i])[1]) < 2e-10


def test_some_users_are_solved_without_the_others():
    users = np.repeat(np.arange(50), 8)
    data, y = GENERATOR.normal(size=(400, 20)), np.sign(GENERATOR.normal(size=400))
    problems = LocalProblems(data, y, Devices.of(400, users), LOSSES["logistic"])
    some, z = np.array([41, 3, 17]), GENERATOR.normal(size=(3, 20))
    found = problems.solve(some, z, 2.0)
    for row, user, start in zip(found, some, z, strict=True):
        expected = minimise(data[users == user], y[users == user], start, 2.0)
        np.testing.assert_allclose(row, expected, atol=1e-10)


def test_gradients_and_objective_are_sums_over_records():
    users = np.repeat(np.arange(4), [3, 50, 9, 20])
    data, y = GENERATOR.normal(size=(82, 6)), np.sign(GENERATOR.normal(size=82))
    problems = LocalProblems(data, y, Devices.of(82, users), LOSSES["logistic"])
    w = GENERATOR.normal(size=6)
    expected = [logistic_gradient(w, data[users == i], y[users == i]) for i in range(4)]
    np.testing.assert_allclose(problems.gradients(w), expected, atol=1e-12)
    assert problems.objective(w) == pytest.approx(np.log1p(np.exp(-y * (data @ w))).sum())


def test_a_solver_that_does_not_arrive_says_so():
    problems = LocalProblems(X, Y, Devices.of(len(X), USERS), LOSSES["logistic"], tolerance=1e-30)
    with pytest.raises(ArithmeticError, match="nothing was released"):
        problems.solve(np.arange(N), np.ones((N, D)), 1.0)


# Rounds


def datasets():
    return [(X[i == USERS], Y[i == USERS]) for i in range(N)]


def engine(penalty=None, relaxation=1.0):
    problems = LocalProblems(X, Y, Devices.of(len(X), USERS), LOSSES["logistic"])
    return Consensus(problems, penalty or Penalty(l2=1.0), relaxation)


@pytest.mark.parametrize(
    ("barrier", "max_delay", "delays"),
    [(N, 1, None), (5, 10, Delays(spread=1.0)), (3, 4, Delays(loss=0.1, leave=0.01))],
    ids=["synchronous", "asynchronous", "lossy"],
)
def test_every_round_is_that_of_the_twin(barrier, max_delay, delays):
    """One vector is sent here, two there: models, duals and averages agree in every round."""
    rounds = simulate(
        N, 40, barrier=barrier, max_delay=max_delay, delays=delays,
        generator=np.random.default_rng(1),
    )  # fmt: skip
    ours, twin = engine(), Twin(datasets(), beta=1.0, rho=4.0, update=update_l2)
    for number, users in enumerate(rounds.participants):
        ours.round(number, users, 4.0)
        twin.round(users)
        np.testing.assert_allclose(ours.w0, twin.w0, atol=1e-10)
        np.testing.assert_allclose(ours.w, twin.w, atol=1e-9)
        np.testing.assert_allclose(ours.dual, twin.dual, atol=1e-9)
        np.testing.assert_allclose(twin.wbar, np.mean(twin.w, axis=0), atol=1e-10)
        np.testing.assert_allclose(twin.lbar, np.mean(twin.dual, axis=0), atol=1e-10)
        np.testing.assert_allclose(ours.average, (ours.w + ours.dual).mean(axis=0), atol=1e-10)


def test_the_dual_is_the_gradient_after_every_step():
    rounds = simulate(
        N, 30, barrier=6, max_delay=8, delays=Delays(), generator=np.random.default_rng(0)
    )
    ours = engine()
    for number, users in enumerate(rounds.participants):
        ours.round(number, users, 4.0)
        gradients = ours.problems.gradients(ours.w)[users]
        np.testing.assert_allclose(ours.dual[users], -gradients / 4.0, atol=1e-8)


def direct_minimum(l1=0.0, l2=1.0):
    """All records together, by proximal gradient steps that have nothing to do with ADMM."""
    w, ahead, weight, size = np.zeros(D), np.zeros(D), 1.0, 1 / (0.25 * len(X) / D * 4)
    for _ in range(20_000):
        target = ahead - size * logistic_gradient_fast(ahead)
        soft = np.sign(target) * np.maximum(np.abs(target) - l1 * size, 0)
        new, following = soft / (1 + l2 * size), (1 + np.sqrt(1 + 4 * weight**2)) / 2
        ahead, w, weight = new + (weight - 1) / following * (new - w), new, following
    return w


def logistic_gradient_fast(w):
    return -X.T @ (Y / (1 + np.exp(Y * (X @ w))))


def test_synchronous_rounds_converge_to_the_direct_minimum():
    target = direct_minimum()
    assert np.linalg.norm(logistic_gradient_fast(target) + target) < 1e-8
    errors = {}
    for n_rounds in (50, 100, 200, 400):
        model = ConsensusADMMClassifier(rho=4.0, n_rounds=n_rounds, **EXACT).fit(X, Y, USERS)
        errors[n_rounds] = np.linalg.norm(model.coef_ - target)
    assert errors[50] < 1.0
    assert errors[100] < 0.15
    assert errors[200] < 5e-3
    assert errors[400] < 1e-5
    central = CentralClassifier(fit_intercept=False, row_norm=None).fit(X, Y)
    np.testing.assert_allclose(central.coef_, target, atol=1e-8)


def test_asynchronous_rounds_converge_too():
    target = direct_minimum()
    model = ConsensusADMMClassifier(
        rho=4.0, n_rounds=400, barrier=5, max_delay=10, delays=Delays(), random_state=0, **EXACT
    ).fit(X, Y, USERS)
    assert np.linalg.norm(model.coef_ - target) < 0.5
    longer = model.set_params(n_rounds=1600).fit(X, Y, USERS)
    assert np.linalg.norm(longer.coef_ - target) < 1e-3


@pytest.mark.parametrize(
    ("penalty", "l1", "l2"), [("l1", 3.0, 0.0), ("elasticnet", 1.2, 1.8)], ids=["l1", "elastic"]
)
def test_sparse_penalties_converge_to_the_direct_minimum(penalty, l1, l2):
    model = ConsensusADMMClassifier(
        penalty=penalty, beta=3.0, l1_ratio=0.4, rho=4.0, n_rounds=600, **EXACT
    ).fit(X, Y, USERS)
    np.testing.assert_allclose(model.coef_, direct_minimum(l1, l2), atol=1e-5)


@pytest.mark.parametrize(("l1", "l2"), [(0.0, 2.0), (1.5, 0.0), (1.5, 2.0)])
def test_the_server_model_meets_the_subgradient_condition(l1, l2):
    v, weight = GENERATOR.normal(size=1000), 3.7
    w = Penalty(l1, l2).minimise(v, weight)
    rest = -(l2 * w + weight * (w - v))  # must be a subgradient of l1 * abs
    np.testing.assert_allclose(rest[w != 0], l1 * np.sign(w[w != 0]), atol=1e-12)
    assert (np.abs(rest[w == 0]) <= l1 + 1e-12).all()
    assert (w == 0).any() == (l1 > 0)


def test_over_relaxation_converges_faster_to_the_same():
    target, errors = direct_minimum(), {}
    for relaxation in (1.0, 1.7):
        model = ConsensusADMMClassifier(rho=4.0, n_rounds=60, relaxation=relaxation, **EXACT)
        errors[relaxation] = np.linalg.norm(model.fit(X, Y, USERS).coef_ - target)
    assert errors[1.7] < errors[1.0] / 3


def test_a_changing_rho_converges_to_the_same():
    rho = np.linspace(2.0, 8.0, 300)
    model = ConsensusADMMClassifier(rho=rho, n_rounds=300, **EXACT).fit(X, Y, USERS)
    np.testing.assert_allclose(model.coef_, direct_minimum(), atol=1e-3)


def test_gradient_descent_converges_to_the_same():
    model = ConsensusADMMClassifier(solver="dp_gd", n_rounds=3000, **EXACT).fit(X, Y, USERS)
    np.testing.assert_allclose(model.coef_, direct_minimum(), atol=1e-4)


def test_squared_loss_is_ridge_regression():
    target = X @ TRUTH + GENERATOR.normal(size=len(X))
    expected = np.linalg.solve(2 * X.T @ X + 0.5 * np.eye(D), 2 * X.T @ target)
    model = ConsensusADMMRegressor("squared", beta=0.5, rho=20.0, n_rounds=300, **EXACT)
    np.testing.assert_allclose(model.fit(X, target, USERS).coef_, expected, atol=1e-6)
    central = CentralRegressor(beta=0.5, fit_intercept=False, row_norm=None).fit(X, target)
    np.testing.assert_allclose(central.coef_, expected, atol=1e-8)


def test_a_loss_of_ones_own():
    pytest.importorskip("numba")

    def log_cosh(t):
        value = abs(t) + np.log1p(np.exp(-2 * abs(t))) - np.log(2.0)
        slope = np.tanh(t)
        return value, slope, 1 - slope * slope

    loss = custom_loss(log_cosh, derivative_bound=1.0, curvature_bound=1.0, kind="residual")
    target = X @ TRUTH
    model = ConsensusADMMRegressor(loss, rho=4.0, n_rounds=300, **EXACT).fit(X, target, USERS)
    gradient = X.T @ np.tanh(X @ model.coef_ - target) + model.coef_
    assert np.linalg.norm(gradient) < 1e-3
    assert pickle.loads(pickle.dumps(model.coef_)).shape == (D,)


# Schedule


@pytest.mark.parametrize("seed", range(5))
def test_delays_are_bounded(seed):
    rounds = simulate(
        30, 300, barrier=4, max_delay=6, delays=Delays(spread=1.5, jitter=0.5, loss=0.05),
        generator=np.random.default_rng(seed),
    )  # fmt: skip
    missed, longest = np.zeros(30, int), 0
    for users in rounds.participants:
        assert len(users) >= 4
        missed += 1
        missed[users] = 0
        longest = max(longest, missed.max())
    assert longest == rounds.largest_delay.max() == 5
    assert (np.diff(rounds.times) >= 0).all()
    assert not rounds.is_synchronous


def test_max_delay_1_or_a_full_barrier_is_synchronous():
    slow = Delays(spread=1.0)
    for barrier, max_delay in ((7, 1), (2, 1), (7, 9)):
        rounds = simulate(7, 20, barrier=barrier, max_delay=max_delay, delays=slow)
        assert rounds.is_synchronous
        assert all(len(users) == 7 for users in rounds.participants)
        assert rounds.most_rounds == 20


def test_a_schedule_is_reproducible_and_slow_users_take_part_less():
    options = {"barrier": 5, "max_delay": 50, "delays": Delays(spread=1.0)}
    one, other = (
        simulate(20, 200, generator=np.random.default_rng(4), **options) for _ in range(2)
    )
    assert all(
        np.array_equal(a, b) for a, b in zip(one.participants, other.participants, strict=True)
    )
    counts = np.bincount(np.concatenate(one.participants), minlength=20)
    assert counts.min() < counts.max() / 4
    assert one.most_rounds == counts.max()


def test_users_who_leave_are_given_up_and_a_run_ends_below_the_barrier():
    rounds = simulate(
        10, 500, barrier=6, max_delay=3, delays=Delays(leave=0.05),
        generator=np.random.default_rng(0),
    )  # fmt: skip
    assert len(rounds) < 500
    assert rounds.n_left[-1] >= 4 - 1
    assert all(len(users) >= 6 for users in rounds.participants)


def test_lost_answers_cost_time():
    calm, lossy = (
        simulate(10, 50, barrier=10, max_delay=1, delays=Delays(loss=loss),
                 generator=np.random.default_rng(0))
        for loss in (0.0, 0.2)
    )  # fmt: skip
    assert lossy.times[-1] > calm.times[-1] + 50


@pytest.mark.parametrize(
    "options", [{"loss": 0.5, "leave": 0.5}, {"mean": 0}, {"spread": -1}, {"timeout": -1}]
)
def test_impossible_delays_are_refused(options):
    with pytest.raises(ParameterError):
        Delays(**options)


# Learner


def test_history_and_diagnostics():
    model = ConsensusADMMClassifier(
        epsilon=None, n_rounds=30, rho=4.0, diagnostics=True, delays=Delays(), barrier=5,
        max_delay=5, random_state=0,
    ).fit(X, Y, USERS, validation=(X, Y))  # fmt: skip
    history = model.history_
    assert set(history.columns) == {
        "participants", "time", "bytes_sent", "residual", "objective", "accuracy",
        "training_objective", "primal_residual",
    }  # fmt: skip
    assert history["accuracy"][-1] == pytest.approx(model.score(X, Y))
    assert history["bytes_sent"] == [8 * (D + 1) * n for n in history["participants"]]
    assert history["training_objective"][-1] < history["training_objective"][0]
    assert any("diagnostics" in text for text in model.privacy_.not_covered)
    quiet = ConsensusADMMClassifier(epsilon=None).fit(X, Y, USERS).history_
    assert "training_objective" not in quiet


def test_tol_stops_early():
    model = ConsensusADMMClassifier(epsilon=None, rho=4.0, n_rounds=2000, tol=1e-4).fit(X, Y, USERS)
    assert 20 < model.n_rounds_ < 1000
    assert model.history_["residual"][-1] <= 1e-4 * max(1, np.linalg.norm(model.coef_) + 1)


def test_records_are_dealt_at_random_where_nobody_says_who_holds_them():
    sizes = Devices.parts(103, 10, np.random.default_rng(0)).sizes
    assert sizes.sum() == 103
    assert sizes.max() - sizes.min() <= 1
    assert ConsensusADMMClassifier(epsilon=None, n_users=7).fit(X, Y).n_users_ == 7


def test_local_only_models_are_the_users_own():
    model = LocalOnlyClassifier(beta=0.5, fit_intercept=False, row_norm=None).fit(X, Y, USERS)
    for i in (0, 7, 19):
        expected = minimise(X[i == USERS], Y[i == USERS], np.zeros(D), 0.5)
        np.testing.assert_allclose(model.coef_[i], expected, atol=1e-8)
    single = [np.mean(np.sign(X @ w) == Y) for w in model.coef_]
    assert model.score(X, Y) == pytest.approx(np.mean(single))
    assert model.score(X, Y) < CentralClassifier().fit(X, Y).score(X, Y)


def test_long_rows_are_scaled_in_fit_and_in_prediction():
    model = ConsensusADMMClassifier(epsilon=None, row_norm=0.5).fit(100 * X, Y, USERS)
    same = ConsensusADMMClassifier(epsilon=None, row_norm=0.5).fit(1e4 * X, Y, USERS)
    np.testing.assert_allclose(model.coef_, same.coef_, atol=0.05)
    assert np.abs(model.decision_function(1e6 * X)).max() <= 0.5 * np.linalg.norm(
        np.append(model.coef_, model.intercept_)
    )
