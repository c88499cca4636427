"""LDP-FedSGD: the protocol against a slow twin, the promise, and scikit-learn's rules."""

import doctest
import math
import pickle
import warnings

import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

import dpcore
from dpcore import Noise, local
from dpcore.errors import BudgetExceededError, ParameterError, RepeatedReleaseError
from dpcore.federated import LOSSES, History, custom_loss, make_loss
from dpcore.federated.devices import Devices
from dpcore.federated.fedsgd import Server, gradient_at
from dpcore.learners import (
    InferredPublicWarning,
    LDPFedSGDClassifier,
    LDPFedSGDRegressor,
    fedsgd,
)
from dpcore.learners._progress import progress_bar
from dpcore.local import tuples, vectors

# Most tests leave classes out where labels do not matter.
pytestmark = pytest.mark.filterwarnings("ignore::dpcore.learners.InferredPublicWarning")

GENERATOR = np.random.default_rng(11)
N, D = 4000, 6
X = GENERATOR.uniform(-1, 1, (N, D))
Y = (X @ np.arange(D) + GENERATOR.normal(size=N) > 0).astype(int)
TARGET = X @ np.linspace(-0.3, 0.3, D)
USERS = GENERATOR.integers(0, 700, N)


@pytest.fixture(autouse=True)
def same_data_in_any_order():
    GENERATOR.bit_generator.state = np.random.default_rng(12).bit_generator.state


def pinned(name="fedsgd"):
    return Noise.insecure(5).stream(name)


FRESH = (
    "check_fit_idempotent",
    "check_classifier_data_not_an_array",
    "check_regressor_data_not_an_array",
    "check_regressors_int",
    "check_supervised_y_2d",
)


@parametrize_with_checks(
    [
        LDPFedSGDClassifier(),
        LDPFedSGDClassifier("hinge", 4.0, "duchi", noise=pinned("checks")),
        LDPFedSGDRegressor(),
        LDPFedSGDRegressor("huber", 4.0, "hm", noise=pinned("checks")),
    ],
    expected_failed_checks=lambda estimator: (
        {} if estimator.noise else dict.fromkeys(FRESH, "every fit draws fresh noise")
    ),
)
def test_common_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("module", [fedsgd, vectors])
def test_examples(module):
    assert doctest.testmod(module).failed == 0


# Losses


@pytest.mark.parametrize("name", [n for n in LOSSES if n != "hinge"])
def test_derivatives_are_those_of_the_loss(name):
    t = np.array([-30.0, -2.3, -0.61, 0.2, 0.7, 1.21, 4.0, 40.0])
    value, first, second = LOSSES[name].terms(t)
    step = 1e-5
    up, down = LOSSES[name].terms(t + step), LOSSES[name].terms(t - step)
    np.testing.assert_allclose((up[0] - down[0]) / (2 * step), first, atol=1e-7)
    np.testing.assert_allclose((up[1] - down[1]) / (2 * step), second, atol=1e-6)
    assert (value >= 0).all()
    assert (np.abs(first) <= LOSSES[name].derivative_bound).all()
    assert (second <= LOSSES[name].curvature_bound).all()


def test_logistic_loss_has_no_overflow():
    value, first, second = LOSSES["logistic"].terms(np.array([-1e4, 1e4]))
    np.testing.assert_array_equal(value, [1e4, 0.0])
    np.testing.assert_array_equal(first, [-1.0, 0.0])
    np.testing.assert_array_equal(second, 0.0)


def logistic_by_hand(t):
    p = 1.0 / (1.0 + math.exp(t))
    return math.log1p(math.exp(-t)) if t > -30 else -t, -p, p * (1.0 - p)


def test_a_loss_of_ones_own_gives_the_same_model_as_the_built_in_one():
    pytest.importorskip("numba")
    own = custom_loss(logistic_by_hand, derivative_bound=1.0, curvature_bound=0.25)
    models = [
        LDPFedSGDClassifier(loss, noise=pinned(), random_state=0).fit(X, Y)
        for loss in (own, "logistic")
    ]
    np.testing.assert_allclose(models[0].coef_, models[1].coef_, atol=1e-12)


def test_a_loss_of_ones_own_must_keep_its_word():
    pytest.importorskip("numba")
    bounds = {"derivative_bound": 0.9, "curvature_bound": 0.25}
    with pytest.raises(ParameterError, match="'derivative_bound'"):
        custom_loss(logistic_by_hand, **bounds)
    with pytest.raises(ParameterError, match="convex"):
        custom_loss(lambda t: (-t * t, -2 * t, -2.0), **bounds)


def test_a_derivative_beyond_the_bound_is_clamped():
    pytest.importorskip("numba")

    def steep_far_away(t):
        return (abs(t), 1.0 if t > 0 else -1.0, 0.0) if abs(t) < 2000 else (9 * abs(t), 9.0, 0.0)

    loss = custom_loss(steep_far_away, derivative_bound=1.0, curvature_bound=1.0)
    np.testing.assert_array_equal(loss.terms(np.array([1.0, 3000.0]))[1], [1.0, 1.0])


# Protocol


def slow_gradients(theta, loss, y, clip, users=None):
    """User by user, record by record, every coordinate."""
    ids = np.arange(N) if users is None else np.unique(users)
    gradients = []
    for user in ids:
        own = [user] if users is None else np.flatnonzero(users == user)
        total = np.zeros(D + 1)
        for j in own:
            row = np.append(X[j], 1.0)
            slope = loss.at(np.array([row @ theta]), np.array([y[j]]))[1][0]
            total += slope * row
        gradients.append(np.clip(total / len(own), -clip, clip) / clip)
    return np.array(gradients)


@pytest.mark.parametrize("users", [None, USERS], ids=["records", "users"])
@pytest.mark.parametrize("name", LOSSES)
def test_coordinates_drawn_are_those_of_the_whole_gradient(name, users):
    loss, clip = make_loss(name), 0.3
    y = TARGET if loss.kind == "residual" else 2.0 * Y - 1
    theta = np.linspace(-1, 1, D + 1)
    server = Server.start(D + 1, learning_rate=1, alpha=0, clip=clip, intercept=True)
    server.theta = theta
    devices = Devices.of(N, users)
    chosen = GENERATOR.permutation(len(devices))[:500]
    index = GENERATOR.integers(0, D + 1, (500, 3))
    found = gradient_at(server, devices, chosen, X, y, loss)(index)
    expected = slow_gradients(theta, loss, y, clip, users)[chosen[:, None], index]
    np.testing.assert_allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize("mechanism", ["duchi", "pm-sub", "hm-j"])
@pytest.mark.parametrize("k", [1, 3, 8])
def test_a_vector_reports_what_a_tuple_of_numbers_does(mechanism, k):
    x = GENERATOR.uniform(-1.2, 1.2, (3000, 8))
    vector = local.Vector(8, 4.0, mechanism, k=k)
    twin = tuples.Tuple([local.Numeric(f"x{j}", -1, 1) for j in range(8)], 4.0, mechanism, k=k)
    assert vector == twin
    expected = twin.encode(x, noise=pinned("vector"))
    release = vector.open(pinned("vector"))
    rows = np.arange(3000)[:, None]
    whole = vector.report(release, 0, 3000, lambda index: x[rows, index])
    second = vector.report(release, 1000, 2000, lambda index: x[rows[1000:], index])
    np.testing.assert_array_equal(whole.index, expected.index)
    np.testing.assert_array_equal(whole.code, expected.code)
    np.testing.assert_array_equal(second.code, expected.code[1000:])
    means = vector.mean(vector.tally(whole), 3000)
    np.testing.assert_allclose(means, list(twin.estimate(expected).means.values()), atol=1e-12)


def test_the_server_takes_the_steps_of_the_twin():
    """Two rounds by hand: reports of whole gradients, steps 1/sqrt(t), the penalty added after."""
    model = LDPFedSGDClassifier(
        epsilon=3.0, mechanism="pm", group_size=N // 2, shuffle=False, average=False,
        learning_rate=0.7, alpha=0.01, noise=pinned("twin"),
    ).fit(X, Y)  # fmt: skip
    loss, theta = make_loss("logistic"), np.zeros(D + 1)
    collector = local.Vector(D + 1, 3.0, "pm", objective="at_zero")
    release = collector.open(pinned("twin"))
    for t in (1, 2):
        rows = np.arange((t - 1) * N // 2, t * N // 2)
        g = slow_gradients(theta, loss, 2.0 * Y - 1, 1.0)[rows]
        reports = collector.report(
            release, rows[0], N // 2, lambda i, g=g: g[np.arange(N // 2)[:, None], i]
        )
        values = np.zeros((N // 2, D + 1))
        outputs = collector.numeric.outputs * (D + 1) / collector.k
        np.put_along_axis(values, np.array(reports.index, int), outputs[reports.code], axis=1)
        penalty = 0.01 * np.append(theta[:-1], 0.0)
        theta = theta - 0.7 / math.sqrt(t) * (values.mean(axis=0) + penalty)
    np.testing.assert_allclose(np.append(model.coef_, model.intercept_), theta, atol=1e-12)


def test_every_device_takes_part_once():
    model = LDPFedSGDClassifier(group_size=90).fit(X, Y, users=USERS)
    n = len(np.unique(USERS))
    assert model.n_devices_ == sum(model.history_["participants"]) == n
    assert model.n_rounds_ == -(-n // 90)


def test_a_generous_epsilon_finds_the_model():
    options = {"epsilon": 60.0, "group_size": 400, "learning_rate": 2.0, "random_state": 0}
    direct = (((X - X.mean(axis=0)) @ np.arange(D) > 0) == Y).mean()
    for loss in ("logistic", "hinge"):
        model = LDPFedSGDClassifier(loss, noise=pinned(), **options).fit(X, Y)
        assert model.score(X, Y) > direct - 0.03
    for loss in ("squared", "huber"):
        regressor = LDPFedSGDRegressor(loss, noise=pinned(), **options).fit(X, TARGET)
        assert regressor.score(X, TARGET) > 0.8


def test_float32_and_users_by_name():
    names = np.array([f"user {u}" for u in USERS])
    one = LDPFedSGDClassifier(noise=pinned(), random_state=1).fit(X.astype(np.float32), Y, names)
    order = np.unique(names, return_inverse=True)[1]
    other = LDPFedSGDClassifier(noise=pinned(), random_state=1).fit(X, Y, order)
    np.testing.assert_allclose(one.coef_, other.coef_, atol=1e-6)


# partial_fit


def test_partial_fit_by_group_is_fit():
    options = {"noise": pinned("groups"), "average": False}
    whole = LDPFedSGDClassifier(group_size=1000, shuffle=False, **options).fit(X, Y)
    parts = LDPFedSGDClassifier(**options)
    for a in range(0, N, 1000):
        parts.partial_fit(X[a : a + 1000], Y[a : a + 1000], classes=[0, 1])
    np.testing.assert_array_equal(whole.coef_, parts.coef_)
    assert parts.n_devices_ == N
    assert parts.privacy_.epsilon == whole.privacy_.epsilon


def test_partial_fit_refuses_a_user_who_took_part():
    model = LDPFedSGDRegressor().partial_fit(X[:10], TARGET[:10], users=range(10))
    with pytest.raises(ParameterError, match="'users' parameter must not name a user that took"):
        model.partial_fit(X[:2], TARGET[:2], users=[10, 9])
    model.partial_fit(X[:2], TARGET[:2], users=[10, 11])
    assert model.n_devices_ == 12
    model.fit(X[:10], TARGET[:10], users=range(10))
    with pytest.raises(ParameterError, match="took part before"):
        model.partial_fit(X[:2], TARGET[:2], users=[3, 99])
    assert model.partial_fit(X[:2], TARGET[:2], users=[98, 99]).n_devices_ == 12


def test_partial_fit_goes_on_after_a_pickle_with_other_noise():
    model = LDPFedSGDRegressor().partial_fit(X[:500], TARGET[:500])
    copies = [pickle.loads(pickle.dumps(model)) for _ in range(2)]
    for copy in copies:
        copy.partial_fit(X[500:900], TARGET[500:900])
    assert (copies[0].coef_ != copies[1].coef_).any()


# Promise


def test_the_promise_is_that_of_a_user():
    with pytest.warns(InferredPublicWarning, match="'classes' parameter is missing") as caught:
        model = LDPFedSGDClassifier(epsilon=5.0, mechanism="hm-tp").fit(X, Y, users=USERS)
    assert [each.filename for each in caught] == [__file__]
    promise = model.privacy_
    assert (promise.unit, promise.adjacency, promise.delta) == ("user", "local", 0.0)
    assert 5.0 * (1 - 1e-6) < promise.epsilon <= 5.0
    assert promise.events[0].count == model.k_ == 2
    assert any("two labels" in text for text in promise.not_covered)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        named = LDPFedSGDClassifier(classes=[0, 1]).fit(X, Y, users=USERS).privacy_
    assert not any("labels" in text for text in named.not_covered)
    assert not LDPFedSGDClassifier(noise=pinned()).fit(X, Y).privacy_.private


def test_a_fit_is_charged_once_and_refused_before_it_starts(tmp_path):
    with dpcore.Ledger(tmp_path / "a.sqlite", epsilon=1.5) as ledger:
        model = LDPFedSGDClassifier(epsilon=1.0, group_size=100).fit(X, Y)
        assert len(ledger.entries) == 1
        assert ledger.spent[0] == pytest.approx(1.0, rel=1e-6)
        with pytest.raises(BudgetExceededError):
            model.fit(X, Y)


def test_a_keyed_fit_is_one_release(tmp_path):
    with dpcore.Ledger(tmp_path / "a.sqlite", epsilon=3.0) as ledger:
        noise = ledger.keyed("fit")
        model = LDPFedSGDClassifier(epsilon=1.0, group_size=100, noise=noise).fit(X, Y)
        assert [entry.key for entry in ledger.entries] == ['["fit"]']
        with pytest.raises(RepeatedReleaseError):
            ledger.keyed("fit")
        with pytest.raises(RepeatedReleaseError):
            model.set_params(epsilon=0.5).fit(X, Y)
        assert len(ledger.entries) == 1


def test_labels_outside_the_list_are_refused_without_being_shown():
    with pytest.raises(dpcore.errors.DataError) as caught:
        LDPFedSGDClassifier(classes=[0, 1]).fit(X, np.where(Y == 1, 77123, 0))
    assert "77123" not in str(caught.value)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"epsilon": 0}, "'epsilon'"),
        ({"loss": "squared"}, "'loss' parameter must be a loss of the margin"),
        ({"loss": "none"}, "'loss' parameter must be one of"),
        ({"clip": 0}, "'clip'"),
        ({"alpha": -1}, "'alpha'"),
        ({"learning_rate": -1}, "'learning_rate'"),
        ({"group_size": 0}, "'group_size'"),
        ({"classes": [1]}, "'classes'"),
        ({"noise": 3}, "'noise'"),
        ({"k": 99}, "'k'"),
    ],
)
def test_bad_parameters_are_named(parameters, message):
    with pytest.raises(ParameterError, match=message):
        LDPFedSGDClassifier(**parameters).fit(X, Y)


def test_users_and_validation_must_fit():
    with pytest.raises(ParameterError, match="'users'"):
        LDPFedSGDClassifier().fit(X, Y, users=USERS[:-1])
    for validation in (X, (X[:, :2], Y)):
        with pytest.raises(ParameterError, match="'validation'"):
            LDPFedSGDClassifier().fit(X, Y, validation=validation)


# History


def test_history_counts_bytes_and_measures_on_public_data():
    model = LDPFedSGDClassifier(
        mechanism="three-outputs", group_size=1000, noise=pinned(), random_state=0, k=1
    ).fit(X, Y, validation=(X, Y))
    history = model.history_
    assert len(history) == 4
    # 7 coordinates with 3 codes each take 5 bits.
    assert history["bytes_sent"] == [1000 * 5 / 8] * 4
    assert history["accuracy"][-1] == pytest.approx(model.score(X, Y))
    margins = (2 * Y - 1) * model.decision_function(X)
    assert history["objective"][-1] == pytest.approx(np.log1p(np.exp(-margins)).mean())
    quiet = LDPFedSGDRegressor(group_size=1000).fit(X, TARGET)
    assert set(quiet.history_.columns) == {"participants", "bytes_sent", "residual"}


def test_a_late_quantity_is_nan_before():
    history = History()
    history.add(a=1)
    history.add(a=2, b=3)
    assert math.isnan(history["b"][0])
    assert "b" in history
    assert "c" not in history


def test_history_plots(tmp_path):
    pytest.importorskip("matplotlib")
    history = LDPFedSGDClassifier(group_size=500).fit(X, Y, validation=(X, Y)).history_
    axes = history.plot(["accuracy", "residual"])
    np.testing.assert_array_equal(axes[0].lines[0].get_ydata(), history["accuracy"])
    axes[0].figure.savefig(tmp_path / "history.png")
    assert (tmp_path / "history.png").stat().st_size > 1000
    with pytest.raises(ParameterError, match="'names'"):
        history.plot(["loss"])


def test_the_bar_shows_and_changes_nothing(capsys):
    assert list(progress_bar(range(5), "rounds", show=False)) == list(range(5))
    assert capsys.readouterr().err == ""
    assert list(progress_bar(range(5), "rounds", show=True)) == list(range(5))
    assert "5/5 rounds" in capsys.readouterr().err
