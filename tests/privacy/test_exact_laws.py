"""The laws that are sampled, as exact rationals, against what they are meant to be.

Three things make a proof together: the thresholds give probabilities close to the intended ones;
neighbouring probabilities differ by no more than e**rate, in exact arithmetic; and the native code
draws from exactly these thresholds, which the twins in `exact_reference` reproduce bit for bit.
"""

import itertools
import random
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from exact_reference import (
    ONE,
    Reading,
    acceptance,
    acceptance_64,
    as_mpf,
    digits_twin,
    discrete_gaussian_pmf,
    discrete_laplace_pmf,
    exp_below,
    exp_neg_native,
    geometric_pmf,
    ideal_acceptance,
    masses,
    rejection_twin,
    rounded_gaussian_pmf,
)

from dpcore import _exact, _laws
from dpcore._laws import Digits, IntegerTable, Rejection
from dpcore_ext.rng import Key
from dpcore_ext.sample import GAUSS_GUARD, exp_neg

RATES = [
    Fraction(1),
    Fraction(1, 10),
    Fraction(1, 17),
    Fraction(1, 1000),
    Fraction(1, 10**9),
    Fraction(3),
    Fraction(1000),
]
LAWS = [_laws.discrete_laplace, _laws.geometric]
PMF = {_laws.discrete_laplace: discrete_laplace_pmf, _laws.geometric: geometric_pmf}
CAP = Fraction(64)
SLACK = 1 - Fraction(1, 1 << 48)
SIGMAS = [Fraction(n, 1000) for n in (1, 100, 500, 1000, 3700, 10000, 32000)]
WIDE_SIGMAS = [Fraction(33), Fraction(367, 10), Fraction(40), Fraction(64)]

over_rates = pytest.mark.parametrize("rate", RATES, ids=str)
over_laws = pytest.mark.parametrize("make", LAWS, ids=lambda make: make.__name__)


@pytest.fixture(autouse=True)
def precision() -> Iterator[None]:
    with mpmath.workprec(420):
        yield


def key_of(number: int) -> Key:
    return Key.from_bytes(number.to_bytes(32, "little"))


def probes(reading: Reading) -> list[int]:
    """Every kind of value: near zero, in all digits, all over the top table and the tail."""
    generator = random.Random(5)
    cells = reading.last + 2 * (len(reading.tail or [0, 0]) - 1)
    magnitudes = [*range(70), *(c << reading.bits for c in range(0, cells, 7))]
    magnitudes += [m + 1 for m in magnitudes]
    magnitudes += [generator.randrange(cells << reading.bits) for _ in range(150)]
    return [*magnitudes, *(-m for m in magnitudes if reading.symmetric)]


# Laplace and geometric


@over_rates
@over_laws
@pytest.mark.parametrize("reach", [4, 128])
def test_stated_probabilities_are_those_of_the_thresholds(make, rate, reach) -> None:
    law = make(rate, reach)
    reading = Reading(law)
    for x in probes(reading)[:: 1 if reach == 4 else 5]:
        assert law.probability(x) == reading.probability(x)


@over_rates
@over_laws
@pytest.mark.parametrize("reach", [4, 128])
def test_the_whole_support_weighs_one(make, rate, reach) -> None:
    assert Reading(make(rate, reach)).total() == 1


@pytest.mark.parametrize("rate", [rate for rate in RATES if rate >= Fraction(1, 1000)], ids=str)
@over_laws
def test_probabilities_add_up_to_one_minus_a_closed_form_tail(make, rate) -> None:
    law = make(rate, 4)
    bits = sum(bits for _, bits in law.digits)
    last = law.top.first + len(law.top.thresholds)
    period, again = len(law.tail.thresholds), Fraction(masses(law.tail)[-1], ONE)
    end = Fraction(masses(law.top)[-1], ONE)
    if law.symmetric:
        largest, end = (last + 2 * period - 1) << bits, end + Fraction(masses(law.top)[0], ONE)
        values = range(-largest, largest + 1)
    else:
        values = range((last + 2 * period) << bits)
    assert sum(map(Reading(law).probability, values)) == 1 - end * again**2
    some = values[:: max(1, len(values) // 100)]
    assert [law.probability(x) for x in some] == [Reading(law).probability(x) for x in some]


@over_rates
@over_laws
def test_probabilities_are_the_intended_ones(make, rate) -> None:
    law = make(rate)
    intended_rate = min(rate, CAP) * SLACK
    # At the cap the last cell weighs e**-128, of which units of 2**-256 show 71 bits.
    accuracy = 90 if rate < CAP else 70
    reading = Reading(law)
    for x in probes(reading):
        intended = PMF[make](intended_rate, x)
        assert abs(as_mpf(reading.probability(x)) / intended - 1) < mpmath.mpf(2) ** -accuracy


@over_rates
def test_the_slack_is_all_that_parts_the_law_from_the_rate_asked_for(rate) -> None:
    reading = Reading(_laws.discrete_laplace(rate))
    for x in (0, 1, -1, 5, 1 << reading.bits, -(9 << reading.bits)):
        ratio = as_mpf(reading.probability(x)) / discrete_laplace_pmf(min(rate, CAP), x)
        allowed = as_mpf((1 + min(rate, CAP) * (abs(x) + 1)) * Fraction(1, 1 << 48))
        assert abs(ratio - 1) <= 2 * allowed


@over_rates
@pytest.mark.parametrize("reach", [4, 128])
def test_laplace_is_symmetric(rate, reach) -> None:
    reading = Reading(_laws.discrete_laplace(rate, reach))
    for x in probes(reading):
        assert abs(reading.probability(x) - reading.probability(-x)) <= Fraction(1, 1 << 200)


@over_rates
@over_laws
@pytest.mark.parametrize("reach", [1, 4, 128])
def test_no_step_exceeds_e_to_the_rate(make, rate, reach) -> None:
    assert Reading(make(rate, reach)).keeps(min(rate, CAP))


@pytest.mark.parametrize("rate", [Fraction(1), Fraction(1, 10), Fraction(1, 17)], ids=str)
@over_laws
def test_no_step_exceeds_e_to_the_rate_on_every_integer(make, rate) -> None:
    reading = Reading(make(rate, 8))
    far = (reading.last + 2 * (len(reading.tail) - 1)) << reading.bits
    assert reading.keeps(rate, iter(range(-far - 3 if reading.symmetric else 0, far)))


def test_the_step_test_itself_sees_a_rate_that_is_too_large() -> None:
    for make, rate in itertools.product(LAWS, RATES[:-1]):
        reading = Reading(make(rate, 4))
        assert not reading.keeps(rate * (1 - Fraction(1, 1 << 40)))


@pytest.mark.parametrize("seed", range(8))
@over_laws
def test_random_rates_pass_both_ratio_tests(make, seed) -> None:
    generator = random.Random(seed)
    rate = Fraction(2 ** generator.uniform(-38, 6.2))
    law = make(rate, 8)
    assert law.check_ratio(rate)
    assert Reading(law).keeps(min(rate, CAP))


# check_ratio can fail


def moved(table: IntegerTable, k: int, by: int) -> IntegerTable:
    thresholds = list(table.thresholds)
    thresholds[k] += by
    assert thresholds == sorted(thresholds)
    return replace(table, thresholds=tuple(thresholds))


def test_check_ratio_sees_one_moved_threshold() -> None:
    rate = Fraction(1)
    law = _laws.discrete_laplace(rate)
    # 2**200 units are a mass of 2**-56: more than the slack of outcomes rarer than 2**-9.
    rare = [k for k, w in enumerate(masses(law.top)) if 1 << 201 < w < 1 << 247]
    assert len(rare) > 40
    for k in rare:
        for by in (1 << 200, -1 << 200):
            mutant = replace(law, top=moved(law.top, k if k < 89 else k - 1, by))
            assert not mutant.check_ratio(rate)
            assert not Reading(mutant).keeps(rate)


def test_check_ratio_agrees_with_the_steps_on_every_moved_threshold() -> None:
    for make, rate in itertools.product(LAWS, (Fraction(1), Fraction(1, 17))):
        law = make(rate, 6)
        verdicts = set()
        for k, share in itertools.product(range(len(law.top.thresholds)), (1 << 30, 1 << 60)):
            mutant = replace(law, top=moved(law.top, k, masses(law.top)[k + 1] // share))
            verdict = mutant.check_ratio(rate)
            assert verdict == Reading(mutant).keeps(rate)
            verdicts.add(verdict)
        assert verdicts == {True, False}


def test_check_ratio_sees_a_wrong_digit_table() -> None:
    rate = Fraction(1, 1000)
    law = _laws.discrete_laplace(rate)
    (table, bits), *_ = law.digits
    steeper = IntegerTable.from_weights(_laws._powers(rate * 2, 1 << bits))
    flat = IntegerTable.from_weights([1] * (1 << bits))
    for wrong in (steeper, flat, moved(table, 20, masses(table)[21] // 50)):
        mutant = replace(law, digits=((wrong, bits),))
        assert not mutant.check_ratio(rate)
        assert not Reading(mutant).keeps(rate)
    assert replace(law, digits=((table, bits),)).check_ratio(rate)


def test_check_ratio_sees_swapped_digits() -> None:
    rate = Fraction(1, 10**9)
    law = _laws.discrete_laplace(rate)
    assert [bits for _, bits in law.digits] == [6, 6, 7, 7]
    for order in ((1, 0, 2, 3), (0, 1, 3, 2)):
        assert not replace(law, digits=tuple(law.digits[d] for d in order)).check_ratio(rate)


@over_laws
@pytest.mark.parametrize("rate", [rate for rate in RATES if rate < 64], ids=str)
def test_check_ratio_sees_a_rate_larger_than_claimed(make, rate) -> None:
    assert not make(rate * Fraction(10001, 10000)).check_ratio(rate)


@over_laws
@pytest.mark.parametrize("rate", [Fraction(1), Fraction(1, 1000)], ids=str)
def test_check_ratio_sees_a_tail_that_lacks_mass(make, rate) -> None:
    law = make(rate, 8)
    last, beyond = len(law.tail.thresholds) - 1, masses(law.tail)[-1]
    for by in (beyond // 2, beyond - 1, -(masses(law.tail)[-2] // 2)):
        mutant = replace(law, tail=moved(law.tail, last, by))
        assert not mutant.check_ratio(rate)
        assert not Reading(mutant).keeps(rate)


@over_laws
def test_check_ratio_sees_a_top_table_whose_end_lacks_mass(make) -> None:
    law = make(Fraction(1), 8)
    end = len(law.top.thresholds) - 1
    mutant = replace(law, top=moved(law.top, end, masses(law.top)[-1] // 2))
    assert not mutant.check_ratio(Fraction(1))


@over_laws
def test_check_ratio_sees_that_the_tail_is_missing(make) -> None:
    rate = Fraction(1)
    mutant = replace(make(rate), tail=None)
    assert not Reading(mutant).keeps(rate)
    assert not mutant.check_ratio(rate)


def test_check_ratio_sees_a_wrong_zero() -> None:
    law = _laws.discrete_laplace(Fraction(1, 10), 8)
    zero = -law.top.first
    for k in (zero - 1, zero):
        assert not replace(
            law, top=moved(law.top, k, masses(law.top)[zero + 1] // 100)
        ).check_ratio(Fraction(1, 10))


# The native code draws from these thresholds


@over_rates
@over_laws
def test_native_draws_are_those_of_the_thresholds(make, rate) -> None:
    for n in (32, 33, 1500):
        law, key, start = make(rate), key_of(n), 12345
        drawn = np.empty(n, np.int64)
        law.native.add_to(key, start, None, drawn)
        assert drawn.tolist() == digits_twin(law, key, start, n)


@pytest.mark.parametrize("rate", [Fraction(1), Fraction(1, 17), Fraction(1, 10**9)], ids=str)
@over_laws
def test_native_tails_are_those_of_the_thresholds(make, rate) -> None:
    """With a top table that ends at 2**-18 and a short tail that goes round many times."""
    law, key = make(rate, 20), key_of(3)
    bits, last = sum(bits for _, bits in law.digits), law.top.first + len(law.top.thresholds)
    law = replace(law, tail=_laws._tail(min(rate, CAP) * SLACK * (1 << bits), 2))
    assert law.check_ratio(rate)
    drawn = np.empty(20_000_000, np.int64)
    law.native.add_to(key, 0, None, drawn)
    far = np.flatnonzero(np.abs(drawn) >= last << bits)
    assert far.size > 10
    assert np.abs(drawn[far]).max() > (last + 1) << bits
    for i in far:
        assert [drawn[i]] == digits_twin(law, key, int(i), 1)


def test_native_draws_go_on_where_the_top_table_ends_early() -> None:
    law, key = _laws.geometric(Fraction(1), 1), key_of(1)
    drawn = np.empty(1000, np.int64)
    law.native.add_to(key, 0, None, drawn)
    assert drawn.tolist() == digits_twin(law, key, 0, 1000)


@pytest.mark.parametrize("sigma", SIGMAS, ids=str)
def test_native_gaussian_draws_are_those_of_the_thresholds(sigma) -> None:
    for law in (_laws.rounded_gaussian(sigma), _laws.discrete_gaussian(sigma)):
        drawn = np.empty(1500, np.int64)
        law.native.add_to(key_of(9), 3, None, drawn)
        assert drawn.tolist() == digits_twin(law, key_of(9), 3, 1500)


@pytest.mark.parametrize("sigma", [*WIDE_SIGMAS, Fraction(2**35 + 1), Fraction(2**36)], ids=str)
@pytest.mark.parametrize("guard", [GAUSS_GUARD, 2**64 - 1])
def test_native_rejection_draws_are_those_of_the_128_bit_evaluation(sigma, guard) -> None:
    for law in (_laws.rounded_gaussian(sigma), _laws.discrete_gaussian(sigma)):
        for n in (32, 1000):
            drawn = np.empty(n, np.int64)
            replace(law, guard=guard).native.add_to(key_of(n), 7, None, drawn)
            assert drawn.tolist() == rejection_twin(law, key_of(n), 7, n)


@pytest.mark.parametrize("p", [0, 1, Fraction(1, 3), Fraction(1, 2), Fraction(1, 10**30)], ids=str)
def test_bernoulli_is_within_one_unit(p) -> None:
    p = Fraction(p)
    law = _laws.bernoulli(p)
    assert 0 <= law.probability(1) - p < Fraction(1, ONE)
    assert law.probability(0) + law.probability(1) == 1


# Gaussian tables


def assert_law(law: Digits, pmf: list[mpmath.mpf]) -> None:
    assert law.tail is None
    assert not law.digits
    reading, reach = Reading(law), len(pmf) - 1
    assert reading.total() == 1
    assert -reach < reading.first
    for x in range(-reach, reach + 1):
        difference = as_mpf(reading.probability(x)) - pmf[abs(x)]
        assert abs(difference) < mpmath.mpf(2) ** -240


@pytest.mark.parametrize("sigma", SIGMAS, ids=str)
def test_discrete_gaussian_tables_are_the_intended_law(sigma) -> None:
    reach = int(20 * sigma) + 3
    assert_law(_laws.discrete_gaussian(sigma), discrete_gaussian_pmf(sigma, reach))


@pytest.mark.parametrize("sigma", SIGMAS, ids=str)
def test_rounded_gaussian_tables_are_the_intended_law(sigma) -> None:
    reach = int(20 * sigma) + 3
    assert_law(_laws.rounded_gaussian(sigma), rounded_gaussian_pmf(sigma, reach))


@pytest.mark.parametrize("make", [_laws.discrete_gaussian, _laws.rounded_gaussian])
def test_stated_gaussian_probabilities_are_those_of_the_thresholds(make) -> None:
    law = make(Fraction(37, 10))
    for x in range(-90, 91):
        assert law.probability(x) == Reading(law).probability(x)


# Gaussians by rejection


def cell_weights(law: Rejection) -> dict[tuple[int, int], int]:
    """(c, sign) -> probability in units of 2**-256."""
    pairs = {}
    for k, weight in enumerate(masses(law.cells)):
        cell = law.cells.first + k
        pairs[(-1 - cell, -1) if cell < 0 else (cell, 1)] = weight
    return pairs


def total_variation(implemented: dict[int, mpmath.mpf], pmf: list[mpmath.mpf]) -> mpmath.mpf:
    total = mpmath.fsum(implemented.values())
    reach = len(pmf) - 1
    assert all(abs(x) <= reach for x in implemented)
    outside = 1 - pmf[0] - 2 * mpmath.fsum(pmf[1:])
    gaps = (
        abs(implemented.get(x, mpmath.mpf(0)) / total - pmf[abs(x)])
        for x in range(-reach, reach + 1)
    )
    return (mpmath.fsum(gaps) + abs(outside)) / 2


@pytest.mark.parametrize("sigma", [*WIDE_SIGMAS, Fraction(300)], ids=str)
def test_discrete_gaussian_by_rejection_is_the_intended_law(sigma) -> None:
    """All cells and all offsets: acceptance counts are the integers of the native evaluation."""
    law = _laws.discrete_gaussian(sigma)
    implemented: dict[int, int] = {}
    worst = 0
    for (c, sign), weight in cell_weights(law).items():
        for j in range(1 << law.shift):
            f = j << 128 - law.shift
            accepted = acceptance(law, c, f)
            worst = max(worst, abs(acceptance_64(law, c, f) - (accepted >> 64)))
            x = (c << law.shift) + j
            if x > 0 or sign > 0:
                implemented[sign * x] = implemented.get(sign * x, 0) + weight * accepted
    # Outside the guard band the 64-bit evaluation must decide as the 128-bit one.
    assert worst < GAUSS_GUARD
    pmf = discrete_gaussian_pmf(sigma, int(21 * sigma) + 2)
    distance = total_variation({x: mpmath.mpf(w) for x, w in implemented.items()}, pmf)
    assert distance < mpmath.mpf(2) ** -118


@pytest.mark.parametrize("sigma", WIDE_SIGMAS[:2], ids=str)
def test_rounded_gaussian_by_rejection_is_the_intended_law(sigma) -> None:
    """Offsets of 128 bits are integrated: the acceptance of the next test, times exact cells.

    With the ideal acceptance probability the part of cell c that rounds to one integer weighs
    w(c) e**(c**2 / 2 s**2) times an integral of the density. The true one differs by at most
    2**-122 (next test) and the sum over 2**128 offsets from the integral by at most 2**-128;
    neither can move the law by more than twice that over the rate of acceptance, above 0.9.
    """
    law = _laws.rounded_gaussian(sigma)
    width, s = 1 << law.shift, as_mpf(sigma)
    half = mpmath.mpf(1) / 2
    implemented: dict[int, mpmath.mpf] = {}
    accepted = mpmath.mpf(0)

    def below(t: mpmath.mpf) -> mpmath.mpf:
        return mpmath.erfc(t / (s * mpmath.sqrt(2)))

    for (c, sign), weight in cell_weights(law).items():
        if sign < 0:
            continue
        begin, end = c * width, (c + 1) * width
        scale = weight * mpmath.exp(begin**2 / (2 * s * s)) * s * mpmath.sqrt(mpmath.pi / 2) / width
        edges = [begin, *(x + half for x in range(begin, end)), end]
        tails = [below(edge) for edge in edges]
        for j in range(len(edges) - 1):
            part = scale * (tails[j] - tails[j + 1])
            accepted += 2 * part / ONE
            for x in {begin + j, -begin - j}:
                implemented[x] = implemented.get(x, mpmath.mpf(0)) + part * (1 + (begin + j == 0))
    assert accepted > 0.9
    distance = total_variation(implemented, rounded_gaussian_pmf(sigma, int(21 * sigma) + 40))
    assert distance < mpmath.mpf(2) ** -200


@pytest.mark.parametrize("sigma", [*WIDE_SIGMAS, Fraction(2**36), Fraction(2**35 + 100)], ids=str)
def test_acceptance_is_evaluated_to_122_bits(sigma) -> None:
    law = _laws.rounded_gaussian(sigma)
    generator = random.Random(1)
    last = len(law.cells.thresholds) // 2
    points = [(c, f) for c in (0, 1, 16, last) for f in (0, 1, 1 << 64, 1 << 127, (1 << 128) - 1)]
    points += [(generator.randint(0, last), generator.getrandbits(128)) for _ in range(2000)]
    for c, f in points:
        ideal = ideal_acceptance(sigma, law.shift, c, Fraction(f, 1 << 128))
        assert abs(mpmath.ldexp(acceptance(law, c, f), -128) - ideal) < mpmath.mpf(2) ** -122
        assert abs(acceptance_64(law, c, f) - mpmath.ldexp(ideal, 64)) <= GAUSS_GUARD / 2


@pytest.mark.parametrize("sigma", [32 * (1 + 2.0**-34), 2.0**35 + 1])
def test_a_sigma_just_above_a_power_of_two_has_a_law(sigma) -> None:
    assert _laws.rounded_gaussian(Fraction(sigma)).shift >= 1


def test_the_64_bit_exponential_is_within_a_quarter_of_the_guard() -> None:
    generator = random.Random(2)
    for exponent in [0, 1, 2**62, 2**64 - 1, *(generator.getrandbits(64) for _ in range(3000))]:
        value = exp_neg(exponent)
        assert value == exp_neg_native(exponent, 64, 13)
        ideal = mpmath.ldexp(mpmath.exp(-mpmath.ldexp(exponent, -62)), 64)
        assert abs(value - ideal) <= GAUSS_GUARD / 4


# Series


def test_exp_enclosure_encloses() -> None:
    generator = random.Random(3)
    numbers = [Fraction(0), Fraction(1, 10**40), Fraction(64), Fraction(-64), Fraction(-448)]
    numbers += [Fraction(generator.uniform(-70, 70)) for _ in range(300)]
    numbers += [Fraction(generator.randint(-(10**6), 10**6), 10 ** generator.randint(4, 60))
                for _ in range(300)]  # fmt: skip
    for x in numbers:
        for bits in (1, 30, 256, 512):
            low, high = _exact.exp_enclosure(x, bits)
            with mpmath.workprec(bits + 200):
                truth = mpmath.ldexp(mpmath.exp(as_mpf(x)), bits)
                assert low <= truth <= high
            assert high - low <= 4


def test_exp_below_is_a_lower_bound() -> None:
    for x in (Fraction(1), Fraction(1, 10**9), Fraction(64), Fraction(1, 17)):
        with mpmath.workprec(700):
            truth = mpmath.ldexp(mpmath.exp(as_mpf(x)), 320)
            assert 0 <= truth - exp_below(x) < 2


def test_exp_negative_is_close() -> None:
    for x in (Fraction(0), Fraction(1, 7), Fraction(40), Fraction(447), Fraction(449)):
        with mpmath.workprec(700):
            truth = mpmath.ldexp(mpmath.exp(-as_mpf(x)), 448)
            assert abs(_exact.exp_negative(x, 448) - truth) <= 4


@pytest.mark.parametrize("sigma", SIGMAS[1:], ids=str)
def test_gaussian_points_are_the_density(sigma) -> None:
    values = _exact.gaussian_points(sigma, int(20 * sigma) + 2, 448)
    with mpmath.workprec(800):
        for k, value in enumerate(values):
            truth = mpmath.ldexp(mpmath.exp(-as_mpf(Fraction(k * k) / (2 * sigma**2))), 448)
            assert abs(value - truth) <= 2


@pytest.mark.parametrize("sigma", SIGMAS, ids=str)
def test_gaussian_cells_are_its_integrals(sigma) -> None:
    values = _exact.gaussian_cells(sigma, int(20 * sigma) + 2, 448)
    with mpmath.workprec(800):
        root = as_mpf(sigma) * mpmath.sqrt(2)
        half = mpmath.mpf(1) / 2
        for k, value in enumerate(values):
            area = mpmath.erfc((k - half) / root) - mpmath.erfc((k + half) / root)
            truth = area * mpmath.sqrt(mpmath.pi / 2)
            # What lies beyond 20 standard deviations is left out: less than 2**-288.
            assert abs(mpmath.ldexp(value, -448) - truth) < mpmath.mpf(2) ** -280
