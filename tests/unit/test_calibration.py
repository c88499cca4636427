"""The calibration is judged against mpmath with 80 digits and against published figures.

Every function promises the smallest double for which its claim holds, so each property has two
halves: the claim holds for the double returned, and fails for the double just below it.
"""

import math
from collections.abc import Callable
from fractions import Fraction

import mpmath  # type: ignore[import-untyped, unused-ignore]
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcore import calibration
from dpcore.calibration import (
    gaussian_delta,
    gaussian_epsilon,
    gaussian_sigma,
    gdp_delta,
    gdp_epsilon,
)
from dpcore.errors import ParameterError

DIGITS = 80
LEAST_DOUBLE = math.ulp(0.0)

moderately_often = settings(derandomize=True, max_examples=120, deadline=None)


def log_uniform(lowest_power: float, highest_power: float) -> st.SearchStrategy[float]:
    return st.floats(lowest_power, highest_power).map(lambda power: 10.0**power)


epsilons = log_uniform(-6, 3)
sensitivities = log_uniform(-4, 4)
deltas = st.one_of(
    log_uniform(-300, -1),
    log_uniform(-12, -1),
    st.floats(0.1, 0.9),
    log_uniform(-15, -1).map(lambda gap: 1.0 - gap),
)
# Where the first of the two tails begins: delta runs from 1e-300 to 1 as it falls from 37 to -8.
tail_starts = st.floats(-8.5, 37.0)


def mu_with_tail_start(start: float, epsilon: float) -> float:
    root = math.sqrt(start * start + 2 * epsilon)
    return 2 * epsilon / (root + start) if start > 0 else root - start


def exact_delta(sigma: float, epsilon: float, sensitivity: float = 1.0) -> mpmath.mpf:
    mu = mpmath.mpf(sensitivity) / mpmath.mpf(sigma)
    epsilon = mpmath.mpf(epsilon)
    first = mpmath.erfc((epsilon / mu - mu / 2) / mpmath.sqrt(2)) / 2
    second = mpmath.erfc((epsilon / mu + mu / 2) / mpmath.sqrt(2)) / 2
    return first - mpmath.exp(epsilon) * second


def below(value: float) -> float:
    return math.nextafter(value, 0.0)


def classical_sigma(epsilon: float, delta: float) -> float:
    return math.sqrt(2 * math.log(1.25 / delta)) / epsilon


@pytest.mark.parametrize(
    ("epsilon", "delta", "sigma"),
    [
        (1.0, 1e-5, 3.730631634815949),
        (0.5, 1e-5, 7.03182667558255),
        (0.1, 1e-3, 17.404396203031),
    ],
)
def test_sigma_is_the_published_one(epsilon: float, delta: float, sigma: float) -> None:
    assert gaussian_sigma(epsilon, delta) == pytest.approx(sigma, rel=1e-11)
    assert gaussian_sigma(epsilon, delta, sensitivity=8.0) == pytest.approx(8 * sigma, rel=1e-11)


def test_the_classical_sigma_spends_less_than_it_says() -> None:
    sigma = classical_sigma(0.1, 1e-3)
    assert sigma == pytest.approx(37.764795, abs=5e-7)
    assert gaussian_epsilon(sigma, 1e-3) == pytest.approx(0.036938, abs=5e-7)


@pytest.mark.parametrize(
    ("epsilon_per_round", "total"),
    [(0.05, 0.103817), (0.1, 0.242338), (0.5, 1.656823), (1.0, 3.873556)],
)
def test_twenty_classical_rounds_compose(epsilon_per_round: float, total: float) -> None:
    mu = math.sqrt(20) / classical_sigma(epsilon_per_round, 1e-3)
    assert gdp_epsilon(mu, 1e-3) == pytest.approx(total, abs=5e-7)


@pytest.mark.parametrize(("delta", "limit"), [(1e-3, 7.46), (1e-5, 8.42)])
def test_the_classical_sigma_is_too_small_for_large_epsilon(delta: float, limit: float) -> None:
    for epsilon in (0.5, 1.0, 4.0, limit - 0.005):
        assert gaussian_delta(classical_sigma(epsilon, delta), epsilon) <= delta
    for epsilon in (limit + 0.005, limit + 1, 50.0):
        assert gaussian_delta(classical_sigma(epsilon, delta), epsilon) > delta


@moderately_often
@given(epsilons, tail_starts, sensitivities)
def test_delta_is_the_truth_rounded_up(epsilon: float, start: float, sensitivity: float) -> None:
    sigma = sensitivity / mu_with_tail_start(start, epsilon)
    delta = gaussian_delta(sigma, epsilon, sensitivity=sensitivity)
    with mpmath.workdps(DIGITS):
        truth = exact_delta(sigma, epsilon, sensitivity)
        assert below(delta) < truth <= delta


@moderately_often
@given(epsilons, deltas, sensitivities)
def test_sigma_is_the_least_that_suffices(epsilon: float, delta: float, sensitivity: float) -> None:
    sigma = gaussian_sigma(epsilon, delta, sensitivity=sensitivity)
    assert gaussian_delta(sigma, epsilon, sensitivity=sensitivity) <= delta
    with mpmath.workdps(DIGITS):
        assert exact_delta(sigma, epsilon, sensitivity) <= delta
        assert exact_delta(below(sigma), epsilon, sensitivity) > delta


@moderately_often
@given(log_uniform(-2, 6), deltas, sensitivities)
def test_epsilon_is_the_least_that_suffices(
    noise_to_signal: float, delta: float, sensitivity: float
) -> None:
    sigma = noise_to_signal * sensitivity
    epsilon = gaussian_epsilon(sigma, delta, sensitivity=sensitivity)
    with mpmath.workdps(DIGITS):
        assert exact_delta(sigma, epsilon, sensitivity) <= delta
        if epsilon > 0:
            assert exact_delta(sigma, below(epsilon), sensitivity) > delta


@moderately_often
@given(log_uniform(-9, 2), epsilons, deltas)
def test_mu_form_is_the_truth_rounded_up(mu: float, epsilon: float, delta: float) -> None:
    smallest_delta, smallest_epsilon = gdp_delta(mu, epsilon), gdp_epsilon(mu, delta)
    with mpmath.workdps(DIGITS):
        if smallest_delta > LEAST_DOUBLE:
            assert below(smallest_delta) < exact_delta(1.0, epsilon, mu)
        assert exact_delta(1.0, epsilon, mu) <= smallest_delta
        assert exact_delta(1.0, smallest_epsilon, mu) <= delta
        if smallest_epsilon > 0:
            assert exact_delta(1.0, below(smallest_epsilon), mu) > delta


@moderately_often
@given(log_uniform(-3, 3), log_uniform(-30, -1))
def test_sigma_and_epsilon_are_inverse(epsilon: float, delta: float) -> None:
    sigma = gaussian_sigma(epsilon, delta)
    recovered = gaussian_epsilon(sigma, delta)
    assert recovered <= epsilon
    if recovered > 0:
        assert recovered == pytest.approx(epsilon, rel=1e-9)
        assert gaussian_sigma(recovered, delta) <= sigma
        assert gaussian_sigma(recovered, delta) == pytest.approx(sigma, rel=1e-12)


@moderately_often
@given(st.fractions(0, 60, max_denominator=10**6), st.integers(8, 700))
def test_mills_ratio_is_enclosed(x: Fraction, bits: int) -> None:
    low, high = calibration._enclose_mills_ratio(x, bits)
    with mpmath.workdps(250):
        point = mpmath.mpf(x.numerator) / x.denominator
        tail = mpmath.erfc(point / mpmath.sqrt(2)) * mpmath.sqrt(mpmath.pi / 2)
        truth = tail * mpmath.exp(point * point / 2) * mpmath.mpf(2) ** bits
        assert low < truth < high
    assert high - low < 2.0 ** (bits * 0.3 + 8)


def test_mills_ratio_is_enclosed_on_coarse_grids() -> None:
    for bits in range(8, 16):
        for x in (Fraction(step, 97) for step in range(0, 400, 3)):
            low, high = calibration._enclose_mills_ratio(x, bits)
            with mpmath.workdps(30):
                point = mpmath.mpf(x.numerator) / x.denominator
                tail = mpmath.erfc(point / mpmath.sqrt(2)) * mpmath.sqrt(mpmath.pi / 2)
                assert low < tail * mpmath.exp(point * point / 2) * 2**bits < high


def test_the_rest_of_a_sum_is_counted() -> None:
    low, high = calibration._enclose_sum(1 << 64, 1 << 64, lambda k: (1, 2))
    assert low <= 2 << 64 <= high
    assert high - low <= 2


@moderately_often
@given(st.fractions(-38, 38, max_denominator=10**6), st.integers(24, 700))
def test_inverse_density_is_enclosed(x: Fraction, bits: int) -> None:
    low, high = calibration._enclose_inverse_density(x, bits)
    with mpmath.workdps(250):
        point = mpmath.mpf(x.numerator) / x.denominator
        truth = mpmath.sqrt(2 * mpmath.pi) * mpmath.exp(point * point / 2) * mpmath.mpf(2) ** bits
        assert low < truth < high
    assert (high - low) << bits - 20 < low


def test_a_delta_under_every_double_is_the_least_double() -> None:
    assert gaussian_delta(1e300, 1.0) == LEAST_DOUBLE
    assert gdp_delta(0.02, 0.78) == LEAST_DOUBLE


def test_a_delta_next_to_one_is_one() -> None:
    assert gaussian_delta(LEAST_DOUBLE, 1.0) == 1.0
    assert gdp_delta(18.1, 1e-6) == 1.0
    assert gdp_delta(16.0, 1e-6) < 1.0


def test_epsilon_is_zero_where_delta_covers_the_mechanism() -> None:
    assert gaussian_epsilon(1e9, 1e-5) == 0.0
    assert gdp_epsilon(1.0, 0.4) == 0.0


def test_epsilon_is_infinite_where_it_exceeds_every_double() -> None:
    assert gdp_epsilon(1e200, 1e-5) == math.inf
    assert gaussian_epsilon(1e-200, 1e-5) == math.inf


def test_extreme_parameters_stay_exact() -> None:
    assert gaussian_sigma(1e300, 1e-5) == pytest.approx(math.sqrt(0.5) * 1e-150, rel=1e-15)
    assert gaussian_delta(1e300, 1e-310) == pytest.approx(1e-300 / math.sqrt(2 * math.pi))
    assert gaussian_sigma(1.0, 1 - 2.0**-53) > 0
    with pytest.raises(ParameterError, match="'sensitivity' parameter of gaussian_sigma must be"):
        gaussian_sigma(1e-3, 1e-3, sensitivity=1.7e308)


def test_a_large_whole_sensitivity_is_not_rounded() -> None:
    exact, rounded = 2**53 + 1, 2.0**53
    assert gaussian_sigma(1.0, 0.1, sensitivity=exact) > gaussian_sigma(
        1.0, 0.1, sensitivity=rounded
    )


def test_numpy_numbers_are_numbers() -> None:
    expected = gaussian_sigma(1.0, 0.25, sensitivity=2.0)
    assert gaussian_sigma(np.int64(1), np.float32(0.25), sensitivity=np.float64(2)) == expected
    assert gaussian_sigma(1, 0.25, sensitivity=2) == expected
    assert type(gaussian_sigma(np.float64(1), np.float64(0.25))) is float


GOOD_CALLS: list[tuple[Callable[..., float], dict[str, float]]] = [
    (gaussian_delta, {"sigma": 1.0, "epsilon": 1.0, "sensitivity": 1.0}),
    (gaussian_epsilon, {"sigma": 1.0, "delta": 0.1, "sensitivity": 1.0}),
    (gaussian_sigma, {"epsilon": 1.0, "delta": 0.1, "sensitivity": 1.0}),
    (gdp_delta, {"mu": 1.0, "epsilon": 1.0}),
    (gdp_epsilon, {"mu": 1.0, "delta": 0.1}),
]
BAD_VALUES = [
    *(0, 0.0, -0.0, -7.25, math.nan, math.inf, -math.inf, 10**400),
    *("7.25", b"7", True, False, np.True_, None, 7.25j, [7.25], np.array([7.25])),
]


@pytest.mark.parametrize("bad", BAD_VALUES, ids=repr)
@pytest.mark.parametrize(
    ("function", "good", "name"),
    [
        pytest.param(function, good, name, id=f"{function.__name__}-{name}")
        for function, good in GOOD_CALLS
        for name in good
    ],
)
def test_bad_parameters_are_named_and_not_shown(
    function: Callable[..., float], good: dict[str, float], name: str, bad: object
) -> None:
    with pytest.raises(ParameterError) as caught:
        function(**{**good, name: bad})
    limit = " and less than 1" if name == "delta" else ""
    assert str(caught.value) == (
        f"The '{name}' parameter of {function.__name__} must be a finite number "
        f"greater than 0{limit}."
    )
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("delta", [1, 1.0, 1.5, math.nextafter(1.0, 2.0)])
@pytest.mark.parametrize("function", [gaussian_epsilon, gaussian_sigma, gdp_epsilon])
def test_delta_stays_under_one(function: Callable[..., float], delta: float) -> None:
    with pytest.raises(ParameterError, match="greater than 0 and less than 1"):
        function(1.0, delta)
