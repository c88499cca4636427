"""What one record can do to consensus ADMM, the noise against it, and what all rounds cost."""

import doctest
import math
import warnings
from fractions import Fraction

import numpy as np
import pytest
from admm_twin import minimise
from scipy import stats

import dpcore
from dpcore import Noise
from dpcore.errors import BudgetExceededError, ParameterError
from dpcore.federated import LOSSES, Delays, shares
from dpcore.federated.consensus import Consensus, Penalty
from dpcore.federated.devices import Devices
from dpcore.federated.shares import Plan, classical_epsilon, plan, share_distance, stateful_shifts
from dpcore.federated.solvers import LocalProblems
from dpcore.learners import (
    ConsensusADMMClassifier,
    ConsensusADMMRegressor,
    InferredPublicWarning,
)

# Most tests leave classes out where labels do not matter.
pytestmark = pytest.mark.filterwarnings("ignore::dpcore.learners.InferredPublicWarning")

GENERATOR = np.random.default_rng(8)
N, J, D = 10, 30, 6
X = GENERATOR.normal(size=(N * J, D))
X /= np.linalg.norm(X, axis=1)[:, None]
Y = np.where(X @ np.arange(D) > 0, 1.0, -1.0)
USERS = np.repeat(np.arange(N), J)
CLASSICAL = 37.764795  # noise over sensitivity for epsilon 0.1 and delta 1e-3


@pytest.fixture(autouse=True)
def same_data_in_any_order():
    GENERATOR.bit_generator.state = np.random.default_rng(9).bit_generator.state


def random_rows(n, d):
    rows = GENERATOR.normal(size=(n, d))
    return rows / np.linalg.norm(rows, axis=1)[:, None]


def neighbours(n, d):
    """Two data sets that differ in one record, which is often as different as can be."""
    rows, labels = random_rows(n, d), np.sign(GENERATOR.normal(size=n))
    other_rows, other_labels = rows.copy(), labels.copy()
    if GENERATOR.random() < 0.5:
        other_labels[0] = -labels[0]
    else:
        other_rows[0] = random_rows(1, d)[0]
    return (rows, labels), (other_rows, other_labels)


def test_examples():
    assert doctest.testmod(shares).failed == 0


# Sensitivity


@pytest.mark.parametrize("rho", [0.1, 1.0, 30.0])
def test_one_step_moves_by_at_most_two_over_rho(rho):
    largest = 0.0
    for _ in range(60):
        one, other = neighbours(int(GENERATOR.integers(1, 40)), 4)
        z = GENERATOR.normal(size=4)
        distance = np.linalg.norm(minimise(*one, z, rho) - minimise(*other, z, rho))
        assert distance <= 2 / rho * (1 + 1e-9)
        largest = max(largest, distance * rho / 2)
    assert largest > 0.05  # the trials do come near enough to notice a bound that is off


@pytest.mark.parametrize("name", ["logistic", "huber_hinge"])
def test_one_record_moves_a_gradient_by_at_most_two(name):
    loss = LOSSES[name]
    for _ in range(50):
        one, other = neighbours(8, 5)
        w = 3 * GENERATOR.normal(size=5)
        sums = [rows.T @ loss.at(rows @ w, labels)[1] for rows, labels in (one, other)]
        assert np.linalg.norm(sums[0] - sums[1]) <= 2 * (1 + 1e-12)


@pytest.mark.parametrize(
    ("relaxation", "rho"),
    [
        (1.0, [2.0] * 20),
        (1.7, [2.0] * 20),
        (0.6, [2.0] * 20),
        (1.5, list(np.linspace(1.0, 8.0, 20))),
        (1.0, list(np.linspace(8.0, 1.0, 20))),
    ],
)
def test_shifts_with_a_noise_free_state_keep_their_bounds(relaxation, rho):
    """The same released models for both neighbours: states stay apart by no more than computed."""
    n, d = 25, 4
    shifts = stateful_shifts([Fraction(2 / r) for r in rho], rho, n / 4, relaxation)
    tightest = 0.0
    for _ in range(60):
        pair, sent = neighbours(n, d), []
        released = 2 * GENERATOR.normal(size=(20, d))
        for rows, labels in pair:
            problems = LocalProblems(
                rows, labels, Devices.of(n, np.zeros(n)), LOSSES["logistic"], tolerance=1e-12
            )
            engine = Consensus(problems, Penalty(l2=1.0), relaxation)
            messages = []
            for number in range(20):
                engine.round(number, np.array([0]), rho[number])
                messages.append((engine.w[0] + engine.dual[0], engine.w[0].copy()))
                engine.received[0] = released[number]
            sent.append(messages)
        for number, (one, other) in enumerate(zip(*sent, strict=True)):
            bound = float(shifts[number])
            assert np.linalg.norm(one[0] - other[0]) <= bound * (1 + 1e-9)
            assert np.linalg.norm(one[1] - other[1]) <= (bound - 2 / rho[number]) * (1 + 1e-9)
            tightest = max(tightest, np.linalg.norm(one[0] - other[0]) / bound)
    assert tightest > 0.05


@pytest.mark.parametrize(("rho", "expected"), [(1, 142.7), (10, 56.8), (100, 13.1), (1000, 9.16)])
def test_shifts_of_a_long_run(rho, expected):
    steps = [Fraction(2, rho)] * 20
    shifts = stateful_shifts(steps, [rho] * 20, 75.0)
    assert float(sum(s * s for s in shifts) / (20 * steps[0] ** 2)) == pytest.approx(
        expected, rel=1e-3
    )


# Shares


@pytest.mark.parametrize(("deviation", "expected"), [(1.0, 5.5e-4), (1.5, 2.3e-9), (2.0, 7e-17)])
def test_distance_of_a_sum_of_shares(deviation, expected):
    assert share_distance(deviation, 100) == pytest.approx(expected, rel=0.03)


@pytest.mark.parametrize(("deviation", "count"), [(0.6, 2), (0.8, 5), (1.0, 8), (1.2, 20)])
def test_a_sum_of_shares_is_a_discrete_gaussian_up_to_the_distance(deviation, count):
    """Exact convolution against the law that it is taken for."""
    points = np.arange(-400, 401)
    weights = np.exp(-(points**2) / (2 * deviation**2))
    law = weights / weights.sum()
    total = law
    for _ in range(count - 1):
        total = np.convolve(total, law, mode="same")
    wide = np.exp(-(points**2) / (2 * count * deviation**2))
    wide /= wide.sum()
    inside = np.abs(points) < 6 * deviation * math.sqrt(count)
    ratio = np.abs(np.log(total[inside] / wide[inside])).max()
    assert 1e-12 < ratio <= share_distance(deviation, count)


def test_a_discrete_gaussian_is_post_processing_of_a_continuous_one():
    """Continuous noise of deviation t, then an integer drawn around it with deviation r."""
    t, r = 2.0, 0.7
    y = np.linspace(-30, 30, 240_001)
    k = np.arange(-40, 41)
    around = np.exp(-((k[None, :] - y[:, None]) ** 2) / (2 * r * r))
    around /= around.sum(axis=1, keepdims=True)
    density = np.exp(-(y**2) / (2 * t * t)) / (t * math.sqrt(2 * math.pi))
    law = (around * density[:, None]).sum(axis=0) * (y[1] - y[0])
    direct = np.exp(-(k**2) / (2 * (t * t + r * r)))
    direct /= direct.sum()
    inside = np.abs(k) < 10
    distance = np.abs(np.log(law[inside] / direct[inside])).max()
    assert 1e-8 < distance <= 10 * math.exp(-2 * math.pi**2 * r * r)


def make_plan(**options):
    step = Fraction(2, 10)
    values = {
        "d": D, "steps": [step] * 5, "shifts": [step] * 5, "n_shares": N, "in_sum": True,
        "epsilon": 1.0, "delta": 1e-6, "noise_multiplier": None, "mechanism": "test",
        "adjacency": "replace",
    }  # fmt: skip
    return plan(**(values | options))


def test_shares_have_the_variance_that_was_planned():
    made = make_plan()
    drawn = made.draw(Noise.insecure(1).stream("variance"), 0, np.arange(100_000), D)
    variance = float(made.deviations[0]) ** 2
    # 600 000 samples: the estimate is off by 1 % with a probability below 1e-6.
    assert drawn.var() == pytest.approx(variance, rel=0.01)
    total = drawn[: N * 5000].reshape(5000, N, D).sum(axis=1)
    assert total.var() == pytest.approx(N * variance, rel=0.05)
    assert made.sigma(0) == pytest.approx(
        math.sqrt(N * variance) * 2.0**-made.fraction_bits, rel=1e-12
    )


def test_shares_are_addressed_by_round_and_user():
    made, noise = make_plan(), Noise.insecure(1).stream("addressed")
    whole = made.draw(noise, 3, np.arange(N), D)
    np.testing.assert_array_equal(made.draw(noise, 3, np.array([2, 7]), D), whole[[2, 7]])
    assert (made.draw(noise, 4, np.arange(N), D) != whole).any()


def test_the_grid_holds_messages_to_its_resolution_and_clamps_the_rest():
    made = make_plan()
    x = GENERATOR.normal(size=(50, D))
    back = made.dequantize(made.quantize(x, 50))
    assert np.abs(back - x).max() <= 2.0 ** -(made.fraction_bits + 1)
    far = made.quantize(np.full((50, D), 1e300), 50)
    assert (far > 0).all()
    assert 50 * int(far.max()) < 1 << 62


# Totals


@pytest.mark.parametrize(
    ("per_round", "total"),
    [(0.05, 0.103817), (0.1, 0.242338), (0.5, 1.656823), (1.0, 3.873556)],
)
def test_totals_of_gradients_at_the_classical_noise(per_round, total):
    multiplier = math.sqrt(2 * math.log(1.25 / 1e-3)) / per_round
    step = [Fraction(2)] * 20
    made = make_plan(
        steps=step, shifts=step, epsilon=None, noise_multiplier=multiplier, delta=1e-3, n_shares=100
    )
    assert classical_epsilon(multiplier, 1e-3) == pytest.approx(per_round)
    spent = dpcore.accounting.compose([made.event]).epsilon(1e-3)
    assert spent == pytest.approx(total, rel=2e-5)


def test_totals_of_shares_at_the_classical_noise():
    step = [Fraction(2, 10)] * 20
    made = make_plan(
        steps=step, shifts=step, epsilon=None, noise_multiplier=CLASSICAL, delta=1e-3,
        n_shares=100, in_sum=False,
    )  # fmt: skip
    spent = dpcore.accounting.compose([made.event]).epsilon(1e-3)
    assert spent == pytest.approx(3.874, rel=1e-3)


@pytest.mark.parametrize(("rho", "total"), [(1, 4.85), (10, 2.73), (100, 1.125), (1000, 0.909)])
def test_totals_of_noise_free_states_at_the_classical_noise(rho, total):
    steps = [Fraction(2, rho)] * 20
    shifts = stateful_shifts(steps, [rho] * 20, 75.0)
    made = make_plan(
        steps=steps, shifts=shifts, epsilon=None, noise_multiplier=CLASSICAL, delta=1e-3,
        n_shares=100,
    )  # fmt: skip
    spent = dpcore.accounting.compose([made.event]).epsilon(1e-3)
    assert spent == pytest.approx(total, rel=2e-3)


def test_the_event_is_that_of_the_integers_in_use():
    made = make_plan(in_sum=True)
    s, unit = made.deviations[0], Fraction(1, 2**made.fraction_bits)
    distance = Fraction(2, 10) / unit + Fraction(math.isqrt(D << 64) + 1, 1 << 32)
    square = 5 * distance**2 / (N * s * s - 16)
    assert 1 / made.event.noise_multiplier**2 >= float(square)
    assert 1 / made.event.noise_multiplier**2 == pytest.approx(float(square), rel=1e-12)


@pytest.mark.parametrize(
    "options",
    [
        {"accounting": "share"},
        {"accounting": "share", "barrier": 4, "max_delay": 5, "delays": Delays()},
        {"accounting": "stateful", "relaxation": 1.5},
        {"accounting": "stateful", "rho": list(range(1, 11))},
        {"solver": "dp_gd"},
        {"solver": "dp_gd", "adjacency": "add-remove"},
        {"solver": "dp_gd", "epsilon": 0.01, "delta": 1e-9},
        {"accounting": "share", "epsilon": 12.0},
    ],
)
def test_a_fit_meets_its_epsilon_and_wastes_little(options):
    model = ConsensusADMMClassifier(n_rounds=10, random_state=0, **options).fit(X, Y, USERS)
    promise, asked = model.privacy_, model.epsilon
    assert asked * (1 - 1e-4) < promise.epsilon <= asked
    assert promise.delta == model.delta
    assert promise.unit == "record"
    assert promise.adjacency == model.adjacency
    assert promise.private


def test_late_users_pay_for_the_rounds_they_took_part_in():
    options = {"epsilon": None, "noise_multiplier": 20.0, "random_state": 0, "n_rounds": 30}
    full = ConsensusADMMClassifier(**options).fit(X, Y, USERS)
    late = ConsensusADMMClassifier(
        barrier=N // 2, max_delay=20, delays=Delays(spread=0.1), **options
    ).fit(X, Y, USERS)
    assert late.schedule_.most_rounds < 25
    # Half the shares make up the noise, so each is larger, and nobody is in every round.
    assert late.privacy_.epsilon < full.privacy_.epsilon


def test_the_epsilon_of_one_round_stands_beside_the_total():
    model = ConsensusADMMClassifier(epsilon=None, noise_multiplier=CLASSICAL, delta=1e-3)
    model.fit(X, Y, USERS)
    assert model.per_round_epsilon_ == pytest.approx(0.1, rel=1e-6)
    assert model.privacy_.epsilon > 0.24
    shown = dict(model.privacy_.events[0].parameters)
    assert shown["epsilon of one round, classical formula"] == pytest.approx(0.1, rel=1e-6)
    assert shown["rounds"] == 20


# Noise in a run


def test_the_noise_of_a_round_is_that_of_the_plan():
    """One round of exact states: the sum differs from the exact one by n_shares shares."""
    made = make_plan()
    problems = LocalProblems(X, Y, Devices.of(len(X), USERS), LOSSES["logistic"])
    exact = Consensus(problems, Penalty(l2=1.0))
    exact.round(0, np.arange(N), 10.0)
    errors = []
    for seed in range(200):
        noisy = Consensus(
            problems, Penalty(l2=1.0), plan=made, noise_in_state=False,
            noise=Noise.insecure(seed).stream("round"),
        )  # fmt: skip
        noisy.round(0, np.arange(N), 10.0)
        errors.append((noisy.average - exact.average) * N / made.sigma(0))
        np.testing.assert_allclose(noisy.w, exact.w, atol=1e-8)
    square = np.square(errors).sum()
    low, high = stats.chi2(200 * D).ppf([5e-7, 1 - 5e-7])
    assert low < square < high


def test_noise_in_the_state_does_not_accumulate():
    """Users keep noisy models; the server's average stays that of what they hold."""
    made = make_plan(in_sum=False).for_rounds(30)
    problems = LocalProblems(X, Y, Devices.of(len(X), USERS), LOSSES["logistic"])
    noisy = Consensus(problems, Penalty(l2=1.0), plan=made, noise=Noise.insecure(2).stream("state"))
    for number in range(30):
        noisy.round(number, np.arange(N), 10.0)
        held = (noisy.w + noisy.dual).mean(axis=0)
        np.testing.assert_allclose(noisy.average, held, atol=1e-6)
        gradient = -problems.gradients(noisy.w) / 10.0
        assert np.abs(noisy.dual - gradient).max() < 40 * made.sigma(0)


def test_pinned_noise_repeats_and_fresh_noise_does_not():
    pinned = Noise.from_key(bytes(32)).stream("admm")
    options = {"epsilon": 2.0, "random_state": 0}
    one, other = (ConsensusADMMClassifier(noise=pinned, **options).fit(X, Y, USERS) for _ in "ab")
    np.testing.assert_array_equal(one.coef_, other.coef_)
    fresh = [ConsensusADMMClassifier(**options).fit(X, Y, USERS).coef_ for _ in "ab"]
    assert (fresh[0] != fresh[1]).any()


def test_a_fit_is_charged_once_and_refused_before_it_starts(tmp_path):
    with dpcore.Ledger(tmp_path / "a.sqlite", epsilon=1.1, delta=1e-6) as ledger:
        model = ConsensusADMMClassifier(solver="dp_gd").fit(X, Y, USERS)
        assert len(ledger.entries) == 1
        with pytest.raises(BudgetExceededError):
            model.fit(X, Y, USERS)


def test_secure_aggregation_gives_the_same_model():
    noise = Noise.from_key(bytes(32)).stream("secure")
    for options in (
        {"accounting": "stateful"},
        {"accounting": "share", "barrier": 5, "max_delay": 4, "delays": Delays()},
        {"solver": "dp_gd"},
    ):
        fits = [
            ConsensusADMMClassifier(
                n_rounds=4, noise=noise, secure=secure, random_state=0, **options
            ).fit(X, Y, USERS)
            for secure in (False, True)
        ]
        np.testing.assert_array_equal(fits[0].coef_, fits[1].coef_)


def test_what_is_not_covered_is_said():
    def texts(**options):
        return " ".join(ConsensusADMMClassifier(**options).fit(X, Y, USERS).privacy_.not_covered)

    assert "whoever sums" in texts(accounting="stateful")
    assert "whoever sums" in texts(solver="dp_gd")
    assert "whoever sums" not in texts(accounting="share")
    assert "labels" not in texts(classes=[-1, 1])
    nothing = ConsensusADMMClassifier(epsilon=None).fit(X, Y, USERS).privacy_
    assert not nothing.private
    assert math.isinf(nothing.epsilon)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"row_norm": None}, "'row_norm' parameter must be given"),
        ({"noise_multiplier": 3.0}, "'epsilon' parameter must be None"),
        ({"loss": "hinge"}, "without corners"),
        ({"delta": 0}, "'delta'"),
        ({"epsilon": 40.0}, "'delta'"),
        ({"accounting": "stateful", "barrier": 3, "max_delay": 5}, "'accounting'"),
        ({"solver": "dp_gd", "barrier": 3, "max_delay": 5}, "'accounting'"),
        ({"rho": [1.0, 2.0]}, "'rho'"),
        ({"rho": [1.0] * 20, "barrier": 3, "max_delay": 5}, "'rho'"),
        ({"relaxation": 2.0}, "'relaxation'"),
        ({"honest": 0.0}, "'honest'"),
        ({"beta": -1.0}, "'beta'"),
        ({"penalty": "l0"}, "'penalty'"),
        ({"epsilon": None, "secure": True}, "'secure'"),
        ({"n_rounds": 0}, "'n_rounds'"),
    ],
)
def test_bad_parameters_are_named(parameters, message):
    with pytest.raises(ParameterError, match=message):
        ConsensusADMMClassifier(**parameters).fit(X, Y, USERS)


def test_the_squared_loss_has_no_private_fit():
    with pytest.raises(ParameterError, match="bounded slopes"):
        ConsensusADMMRegressor("squared").fit(X, X[:, 0], USERS)
    assert isinstance(make_plan(), Plan)


@pytest.mark.parametrize(
    ("options", "loud"),
    [
        ({"epsilon": 1.0}, True),
        ({"epsilon": None, "noise_multiplier": 5.0}, True),
        ({"epsilon": 1.0, "classes": [-1, 1]}, False),
        ({"epsilon": None}, False),
    ],
)
def test_labels_that_are_read_off_the_data_are_said_aloud(options, loud):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ConsensusADMMClassifier(n_rounds=2, **options).fit(X, Y, USERS)
    assert [each.category for each in caught] == [InferredPublicWarning] * loud
    assert all("'classes' parameter is missing" in str(each.message) for each in caught)
    assert all(each.filename == __file__ for each in caught)
