"""The laws of the ideal local mechanisms are unbiased, private and of the stated variance.

Laws are integrated, compared pair by pair for the privacy ratio, and searched over ``x`` for their
worst case.
"""

import itertools
import math
from fractions import Fraction

import mpmath  # type: ignore[import-untyped, unused-ignore]
import numpy as np
import pytest
from continuous_support import (
    DIGITS,
    EPSILONS,
    LN2,
    exact_a,
    exact_piecewise,
    exact_three,
    piecewise,
    relative,
)

from dpcore.errors import ParameterError
from dpcore.local.continuous import (
    NAMES,
    Duchi,
    Laplace,
    Law,
    Mechanism,
    Mixture,
    Piecewise,
    ThreeOutputs,
    continuous,
    hm_alpha,
    three_outputs_a,
)

INPUTS = (-1.0, -0.999, -0.7, -0.5, -0.1, -1e-9, 0.0, 1e-12, 0.25, 0.5, 0.83, 0.9999, 1.0)


@pytest.fixture(autouse=True)
def many_digits():
    with mpmath.workdps(DIGITS):
        yield


def rounding(mechanism: Mechanism) -> float:
    """Relative error of the mass of the narrow piece, whose ends are doubles near 1."""
    part = mechanism.first if isinstance(mechanism, Mixture) else mechanism
    return 4e-16 * (8 + (part.c if isinstance(part, Piecewise) else 0.0))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_laws_are_normalised_unbiased_and_of_the_stated_variance(name, epsilon):
    mechanism = continuous(name, epsilon)
    error = rounding(mechanism)
    for x in INPUTS:
        law = mechanism.law(x)
        reach = 1.0 if name == "laplace" else mechanism.support
        assert law.total() == pytest.approx(1, abs=error)
        assert law.mean() == pytest.approx(x, abs=4e-15 * reach)
        assert law.variance() == pytest.approx(mechanism.variance(x), rel=10 * error)
        assert all(chance > 0 for _, chance in law.atoms)
        assert all(left < right and density > 0 for left, right, density in law.pieces)
        ends = [abs(value) for value, _ in law.atoms]
        ends += [max(abs(left), abs(right)) for left, right, _ in law.pieces]
        assert not ends or max(ends) == mechanism.support


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("epsilon", [0.001, 0.1, 0.65, 1.0, 1.7, 2.5, 8.0, 20.0, 50.0])
def test_variances_in_exact_arithmetic(name, epsilon):
    """The stable forms agree with the published formulas."""
    mechanism = continuous(name, epsilon)
    for x in (0.0, 1e-9, 0.3, -0.8, 1.0):
        far = abs(mpmath.mpf(x))
        if isinstance(mechanism, Laplace):
            expected = 8 / mpmath.mpf(epsilon) ** 2
        else:
            one, other = mechanism, mechanism
            weight, rest = mpmath.mpf(isinstance(mechanism, Piecewise)), mpmath.mpf(1)
            rest -= weight
            if isinstance(mechanism, Mixture):
                one, other = mechanism.first, mechanism.second
                weight, rest = mpmath.mpf(mechanism.weight), mpmath.mpf(mechanism.complement)
            expected = mpmath.mpf(0)
            if isinstance(one, Piecewise):
                curvature, base = exact_piecewise(epsilon, mpmath.mpf(one.t))
                expected += weight * (curvature * far**2 + base)
            if isinstance(other, ThreeOutputs):
                a = exact_a(epsilon) if other.a else mpmath.mpf(0)
                floor, rise = exact_three(epsilon, a)
                expected += rest * (floor + rise * far - far**2)
        assert relative(mechanism.variance(x), expected) < 4e-15


@pytest.mark.parametrize("name", NAMES)
def test_worst_case_is_the_largest_variance(name):
    for epsilon in EPSILONS:
        mechanism = continuous(name, epsilon)
        inputs = np.linspace(-1, 1, 401).tolist()
        highest = max(mechanism.variance(x) for x in inputs)
        assert mechanism.worst_case_variance >= highest * (1 - 2e-15)
        assert mechanism.worst_case_variance <= highest * (1 + 2e-5)
        assert mechanism.worst_case_variance == mechanism.variance(mechanism.worst_case_input)
        assert 0 <= mechanism.worst_case_input <= 1


def test_hm_has_the_same_variance_everywhere():
    for epsilon in (epsilon for epsilon in EPSILONS if hm_alpha(epsilon)):
        assert continuous("hm", epsilon).worst_case_input == 1  # Not left to rounding.
        found = [continuous("hm", epsilon).variance(x) for x in INPUTS]
        assert max(found) <= min(found) * (1 + 2e-15)


def largest_ratio(first: Law, second: Law) -> float:
    """Largest ratio of the chances of an output under two laws of one mechanism."""
    if first.laplace_scale is not None:
        return math.exp(abs(first.x - second.x) / first.laplace_scale)
    ratios = [0.0]
    chances = dict(second.atoms)
    assert chances.keys() == dict(first.atoms).keys()
    ratios += [chance / chances[value] for value, chance in first.atoms]
    cuts = sorted({end for law in (first, second) for piece in law.pieces for end in piece[:2]})
    for left, right in itertools.pairwise(cuts):
        ratios.append(density_between(first, left, right) / density_between(second, left, right))
    return max(ratios)


def density_between(law: Law, left: float, right: float) -> float:
    (density,) = [c for start, end, c in law.pieces if start <= left and right <= end]
    return density


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "epsilon", [0.001, 0.1, 0.61, LN2, 1.0, 1.5, 2.0, 2.5, 5.0, 20.0, 40.0, 50.0]
)
def test_privacy_ratio(name, epsilon):
    mechanism = continuous(name, epsilon)
    laws = [mechanism.law(x) for x in np.linspace(-1, 1, 33).tolist()]
    ratio = max(largest_ratio(one, other) for one, other in itertools.permutations(laws, 2))
    assert ratio <= math.exp(epsilon) * (1 + 1e-12)
    if not name.startswith("hm"):
        assert ratio == pytest.approx(math.exp(epsilon), rel=1e-12)


@pytest.mark.parametrize("epsilon", [Fraction(1, 10), Fraction(1), Fraction(5, 2), Fraction(10)])
def test_a_above_its_limit_breaks_privacy(epsilon):
    e = mpmath.exp(mpmath.mpf(epsilon.numerator) / epsilon.denominator)

    def ratio(a: mpmath.mpf) -> mpmath.mpf:
        """P[C] at x = 1 over P[C] at x = 0, by the definition of the mechanism."""
        c = (e + 1) / ((e - 1) * (1 - a / e))
        return (1 - a / e + 1 / c) / (1 - a)

    limit, step = e / (e + 2), mpmath.mpf("1e-40")
    assert abs(ratio(limit) / e - 1) < mpmath.mpf("1e-50")
    assert ratio(limit - step) < e < ratio(limit + step)
    three = ThreeOutputs(epsilon, float(limit) - 1e-12)
    assert three.law(1.0).atoms[2][1] / three.law(0.0).atoms[2][1] < math.exp(epsilon)
    with pytest.raises(ParameterError, match="The 'a' parameter must be a number between 0 and E"):
        ThreeOutputs(epsilon, float(limit) + 1e-12)


def test_an_a_that_rounds_to_its_limit_keeps_privacy():
    for epsilon in (30.0, 36.2, 37.0, 50.0):
        given = ThreeOutputs(epsilon, three_outputs_a(epsilon))
        assert given.law(0.0) == ThreeOutputs(epsilon).law(0.0)
        assert given.complement == pytest.approx(2 * math.exp(-epsilon), rel=1e-12)


def test_ends_of_the_piecewise_law():
    for epsilon in EPSILONS:
        for name in ("pm", "pm-sub", "pm-opt"):
            mechanism = piecewise(name, epsilon)
            assert mechanism.interval(1.0)[1] == mechanism.A == -mechanism.interval(-1.0)[0]
            assert len(mechanism.law(1.0).pieces) == len(mechanism.law(-1.0).pieces) == 2
            left, right = mechanism.interval(0.0)
            inside = (right - left) * mechanism.c
            assert inside == pytest.approx(1 / (1 + mechanism.t * mechanism.s), rel=4e-15)


def test_simple_laws():
    assert continuous("laplace", 2.0).law(0.5) == Law(laplace_scale=1.0, x=0.5)
    assert continuous("laplace", 2.0).support == math.inf
    assert [value for value, _ in Duchi(1.0).law(0.5).atoms] == [-Duchi(1.0).C, Duchi(1.0).C]
    assert math.isclose(Duchi(1.0).C, 1 / math.tanh(0.5), rel_tol=1e-15)
    assert continuous("hm", 0.5).law(0.1) == continuous("duchi", 0.5).law(0.1)
    assert continuous("hm", 0.5).support == Duchi(0.5).C
    law = Mixture(piecewise("pm", 1.0), Duchi(1.0), 1.0).law(0.25)
    assert law == continuous("pm", 1.0).law(0.25)
    assert Law(atoms=((0.0, 0.5), (1.0, 0.5))).variance() == 0.25
    assert Law(pieces=((0.0, 1.0, 1.0),)).variance() == pytest.approx(1 / 12)
