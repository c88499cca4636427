"""Why `dpcore.gaussian` rounds a Gaussian instead of drawing a discrete one.

The analytic sigma is exact for the continuous Gaussian. A discrete Gaussian of that sigma exceeds
delta for many parameters, in one dimension and in several; a rounded Gaussian is post-processing of
the continuous one and never does. Both facts are shown by exact sums over the laws' own thresholds:
delta = sum over outputs of max(0, P(y) - e**epsilon Q(y)).
"""

import itertools
import math
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
from exact_reference import (
    Reading,
    as_mpf,
    discrete_gaussian_pmf,
    exp_below,
    rounded_gaussian_pmf,
)

import dpcore
from dpcore import _laws, central

LAW_DISTANCE = Fraction(1, 1 << 118)


def least_delta(law: _laws.Digits, shift: tuple[int, ...], epsilon: float) -> Fraction:
    """A lower bound of the exact delta between outputs that differ by `shift`."""
    return _delta(law, shift, exp_below(Fraction(epsilon)) + 2)


def largest_delta(law: _laws.Digits, shift: tuple[int, ...], epsilon: float) -> Fraction:
    """An upper bound of it; the two are less than 2**-250 apart."""
    return _delta(law, shift, exp_below(Fraction(epsilon)))


def _delta(law: _laws.Digits, shift: tuple[int, ...], factor: int) -> Fraction:
    reading, one = Reading(law), 1 << 256 * len(shift)
    axes = []
    for s in shift:
        ys = range(reading.first - abs(s), reading.last + abs(s) + 1)
        axes.append([(reading.weight(y)[0], reading.weight(y - s)[0]) for y in ys])
    total = 0
    for pairs in itertools.product(*axes):
        gain = (math.prod(p for p, _ in pairs) << 320) - math.prod(q for _, q in pairs) * factor
        total += max(gain, 0)
    return Fraction(total, one << 320)


def law_in_use(
    monkeypatch: pytest.MonkeyPatch, x: Any, **parameters: Any
) -> _laws.Digits | _laws.Rejection:
    """The law that this call of dpcore.gaussian draws from."""
    used = []

    def record(law, key, start, data, out) -> None:
        used.append(law)
        out[...] = 0

    monkeypatch.setattr(central, "add_noise", record)
    dpcore.gaussian(x, noise=dpcore.Noise.insecure(1), **parameters)
    return used[0]


# (epsilon, delta, shift, by how much the discrete Gaussian exceeds delta)
EXCESSES = [
    (1.0, 1e-5, (1,), 1.03),
    (1.0, 1e-8, (1,), 1.04),
    (2.0, 1e-3, (1,), 1.2),
    (2.0, 1e-5, (1,), 1.1),
    (3.0, 1e-3, (1,), 1.4),
    (3.0, 1e-6, (1,), 1.3),
    (5.0, 1e-3, (1,), 1.9),
    (5.0, 1e-6, (2,), 1.2),
    (3.0, 1e-3, (2,), 1.08),
    (3.0, 1e-5, (1, 1), 1.1),
    (5.0, 1e-3, (1, 1), 1.28),
    (8.0, 1e-6, (1, 1), 1.6),
    (8.0, 1e-3, (2, 1), 1.1),
    (8.0, 1e-2, (1, 1, 1), 1.18),
]
over_excesses = pytest.mark.parametrize(("epsilon", "delta", "shift", "excess"), EXCESSES)


def norm_above(shift: tuple[int, ...]) -> float:
    """The l2 norm, rounded up."""
    square = sum(s * s for s in shift)
    norm = math.sqrt(square)
    return norm if Fraction(norm) ** 2 >= square else math.nextafter(norm, math.inf)


@over_excesses
def test_a_discrete_gaussian_of_the_analytic_sigma_exceeds_delta(
    epsilon, delta, shift, excess
) -> None:
    sigma = dpcore.gaussian_sigma(epsilon, delta, sensitivity=norm_above(shift))
    law = _laws.discrete_gaussian(Fraction(sigma))
    assert least_delta(law, shift, epsilon) > Fraction(delta) * Fraction(excess)


@over_excesses
def test_the_gaussian_in_use_keeps_delta_where_the_discrete_one_does_not(
    monkeypatch, epsilon, delta, shift, excess
) -> None:
    law = law_in_use(
        monkeypatch,
        np.zeros(len(shift), np.int64),
        sensitivity=norm_above(shift),
        epsilon=epsilon,
        delta=delta,
    )
    exact = largest_delta(law, shift, epsilon)
    assert exact + 4 * LAW_DISTANCE * Fraction(math.exp(epsilon)) <= Fraction(delta)
    # What rounding gives away is not the noise's fault: delta is used, not merely kept.
    assert exact > Fraction(delta) / 100


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 4.0, 10.0])
@pytest.mark.parametrize("delta", [1e-1, 1e-3, 1e-6, 1e-12])
@pytest.mark.parametrize("sensitivity", [1, 2, 5])
def test_the_gaussian_in_use_keeps_delta(monkeypatch, epsilon, delta, sensitivity) -> None:
    sigma = dpcore.gaussian_sigma(epsilon, delta, sensitivity=sensitivity)
    if sigma > 31:
        sensitivity, sigma = 1, sigma / sensitivity
    law = law_in_use(
        monkeypatch, np.array([3]), sensitivity=sensitivity, epsilon=epsilon, delta=delta
    )
    if isinstance(law, _laws.Digits):
        for shift in range(1, sensitivity + 1):
            assert largest_delta(law, (shift,), epsilon) <= Fraction(delta)
    else:
        assert sigma > 31
        assert ideal_delta(Fraction(sigma), sensitivity, epsilon) <= delta


@pytest.mark.parametrize(("sensitivity", "resolution"), [(1.0, 0.25), (0.7, 0.5), (3.0, 2.0)])
@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-5), (5.0, 1e-3)])
def test_the_gaussian_in_use_keeps_delta_for_floats_after_rounding(
    monkeypatch, sensitivity, resolution, epsilon, delta
) -> None:
    law = law_in_use(
        monkeypatch,
        np.array([1.0]),
        sensitivity=sensitivity,
        epsilon=epsilon,
        delta=delta,
        resolution=resolution,
    )
    # Two floats at this distance can fall on grid points one further apart than they are.
    farthest = math.floor(sensitivity / resolution) + 1
    assert largest_delta(law, (farthest,), epsilon) <= Fraction(delta)


def test_the_gaussian_in_use_keeps_delta_for_float_vectors_after_rounding(monkeypatch) -> None:
    epsilon, delta = 3.0, 1e-3
    law = law_in_use(
        monkeypatch,
        np.zeros(2),
        sensitivity=1.0,
        epsilon=epsilon,
        delta=delta,
        resolution=1.0,
    )
    # (0.49, 0.49) and (0.51, 0.51) are rounded to (0, 0) and (1, 1); all that the enlarged
    # sensitivity of 1 + 2 allows must be covered.
    for shift in ((1, 1), (2, 1), (2, 2), (0, 3)):
        assert largest_delta(law, shift, epsilon) <= Fraction(delta)


def ideal_delta(sigma: Fraction, shift: int, epsilon: float) -> mpmath.mpf:
    """Exact delta of the rounded Gaussian, and what its sampler's distance can add."""
    with mpmath.workprec(300):
        reach = int(16 * sigma)
        pmf = rounded_gaussian_pmf(sigma, reach + shift)
        factor = mpmath.exp(mpmath.mpf(epsilon))
        gains = (pmf[abs(y)] - factor * pmf[abs(y - shift)] for y in range(-reach, reach + 1))
        beyond = mpmath.erfc((reach - mpmath.mpf(1) / 2) / (as_mpf(sigma) * mpmath.sqrt(2)))
        total = mpmath.fsum(max(gain, mpmath.mpf(0)) for gain in gains) + beyond
        return total + (1 + factor) * as_mpf(LAW_DISTANCE)


@pytest.mark.parametrize(("epsilon", "delta", "sensitivity"), [(1.0, 1e-5, 10), (0.2, 1e-6, 3)])
def test_a_rejection_sampled_gaussian_keeps_delta(monkeypatch, epsilon, delta, sensitivity) -> None:
    law = law_in_use(
        monkeypatch, np.array([0]), sensitivity=sensitivity, epsilon=epsilon, delta=delta
    )
    assert isinstance(law, _laws.Rejection)
    sigma = Fraction(dpcore.gaussian_sigma(epsilon, delta)) * sensitivity
    # The law in use has at least this sigma: kappa falls as it grows.
    assert law.kappa <= int((1 << 136) / (sigma / (1 << law.shift)) ** 2)
    assert ideal_delta(sigma, sensitivity, epsilon) <= delta


def test_delta_of_a_discrete_gaussian_agrees_with_its_closed_form() -> None:
    """delta = P(Y > e s**2 - 1/2) - e**e P(Y > e s**2 + 1/2) (Canonne, Kamath, Steinke 2020)."""
    sigma, epsilon = Fraction(7, 4), 2.0
    edge = Fraction(epsilon) * sigma**2
    with mpmath.workprec(300):
        pmf = discrete_gaussian_pmf(sigma, 60)
        first = mpmath.fsum(p for k, p in enumerate(pmf) if k > edge - Fraction(1, 2))
        second = mpmath.fsum(p for k, p in enumerate(pmf) if k > edge + Fraction(1, 2))
        closed = first - mpmath.exp(epsilon) * second
        exact = as_mpf(least_delta(_laws.discrete_gaussian(sigma), (1,), epsilon))
        assert abs(exact - closed) < mpmath.mpf(2) ** -200
