"""Categories: exact laws by enumeration, the rest by simulation.

Statistical bounds are wide enough that a correct sampler fails a test with a probability of 1e-6;
seeds are fixed, so a pass stays a pass.
"""

import copy
import itertools
import math
import pickle
from fractions import Fraction

import numpy as np
import pytest
from tuple_support import N, at_most, pinned

from dpcore import Noise
from dpcore.errors import DataError, ParameterError
from dpcore.local.categorical import GRR, OUE, best_categorical
from dpcore.local.duchi_multi import DuchiMulti

EPSILONS = [0.001, 0.1, 1.0, 1.3, 5.0, 20.0, 20.5, 50.0]


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("v", [2, 3, 10, 65536])
def test_grr_law_is_private_and_close_to_the_ideal(epsilon, v):
    oracle = GRR(epsilon, v)
    assert oracle.p + (v - 1) * oracle.q == 1
    ratio = oracle.p / oracle.q
    assert ratio > 1
    assert at_most(epsilon, ratio)
    assert math.log(ratio) == pytest.approx(epsilon, rel=2e-6)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_oue_law_is_private_by_enumeration(epsilon):
    oracle = OUE(epsilon, 3)
    assert oracle.p == Fraction(1, 2)

    def chance(bits, category):
        chances = (oracle.p if j == category else oracle.q for j in range(3))
        return math.prod(c if bit else 1 - c for bit, c in zip(bits, chances, strict=True))

    ratios = [
        chance(bits, one) / chance(bits, other)
        for bits in itertools.product([0, 1], repeat=3)
        for one, other in itertools.permutations(range(3), 2)
    ]
    assert at_most(epsilon, max(ratios))
    assert math.log(max(ratios)) == pytest.approx(epsilon, rel=2e-6)


def test_published_variances_and_the_choice():
    assert GRR(1.0, 10).variance(0) == pytest.approx(3.6302, abs=1e-4)
    assert OUE(1.0, 10).variance(0) == pytest.approx(3.6827, abs=1e-4)
    e = math.e
    assert GRR(1.0, 11).variance(0) == pytest.approx((9 + e) / (e - 1) ** 2, rel=1e-5)
    assert OUE(1.0, 11).variance(0) == pytest.approx(4 * e / (e - 1) ** 2, rel=1e-5)
    assert isinstance(best_categorical(1.0, 10), GRR)
    assert isinstance(best_categorical(1.0, 11), OUE)
    for epsilon in (0.2, 1.0, 2.0, 4.0):
        for v in range(2, 40):
            grr, oue = GRR(epsilon, v).variance(0), OUE(epsilon, v).variance(0)
            assert isinstance(best_categorical(epsilon, v), GRR) == bool(grr < oue)


@pytest.mark.parametrize(
    "oracle", [GRR(1.0, 8), OUE(1.0, 8), GRR(3.0, 300), OUE(30.0, 13)], ids=repr
)
def test_frequencies_are_unbiased_with_the_stated_variance(oracle):
    v = oracle.n_categories
    n = N if isinstance(oracle, GRR) else 200_000
    shares = np.arange(v, 0, -1) / (v * (v + 1) / 2)
    values = np.repeat(np.arange(v), np.round(shares * n).astype(int))
    truth = np.bincount(values, minlength=v) / values.size
    result = oracle.estimate(oracle.encode(values, noise=pinned(1)))
    assert result.count == values.size
    noise = np.sqrt(oracle.variance(truth) / values.size)
    z = (result.frequencies - truth) / noise
    assert np.abs(z).max() < 6.5  # 300 of them at most: missed with probability 2e-8 in all
    # The stated error covers the drawing of the devices as well.
    expected = np.sqrt((oracle.variance(truth) + truth * (1 - truth)) / values.size)
    np.testing.assert_allclose(result.standard_errors, expected, rtol=0.05)
    # The sum of v squared z-scores is about v; 1e-6 quantiles of chi-square stay below this.
    assert (z**2).sum() < v + 2 * math.sqrt(14 * v) + 28


def test_grr_sends_every_other_code_equally_often():
    codes = np.asarray(GRR(1.0, 5).encode(np.full(N, 2), noise=pinned(4)))
    counts = np.bincount(codes, minlength=5)
    oracle = GRR(1.0, 5)
    chances = np.array([float(oracle.p if c == 2 else oracle.q) for c in range(5)])
    assert ((counts - N * chances) ** 2 / (N * chances)).sum() < 33.4  # chi-square, 4, 1e-6


def test_oue_bits_follow_their_chances_and_are_uncorrelated():
    oracle, n = OUE(1.0, 9), 300_000
    reports = np.asarray(oracle.encode(np.full(n, 4), noise=pinned(5)))
    bits = np.unpackbits(reports, axis=1, count=9, bitorder="little")
    chances = np.array([float(oracle.p if c == 4 else oracle.q) for c in range(9)])
    assert (np.abs(bits.mean(axis=0) - chances) < 5.5 * np.sqrt(chances * (1 - chances) / n)).all()
    assert np.abs(np.corrcoef(bits.T) - np.eye(9)).max() < 5.8 / math.sqrt(n)


@pytest.mark.parametrize("oracle", [GRR(1.0, 7), OUE(1.0, 7), OUE(1.0, 3000)], ids=repr)
def test_categories_in_chunks(oracle):
    values = np.random.default_rng(1).integers(0, 7, 5000)
    noise = Noise.from_key(bytes(range(32))).stream("c")
    whole = oracle.encode(values, noise=noise, start=100)
    cut = [0, 1, 77, 2048, 5000]
    parts = [
        oracle.encode(values[a:b], noise=noise, start=100 + a) for a, b in itertools.pairwise(cut)
    ]
    np.testing.assert_array_equal(whole, np.concatenate(parts))
    other = type(oracle)(1.5, oracle.n_categories).encode(values, noise=noise, start=100)
    assert (whole != other).any()


@pytest.mark.parametrize("v", [20, 3000])
@pytest.mark.parametrize("share", [0.01, 0.3, 0.99])
def test_oue_at_scattered_indices_is_that_of_the_whole(v, share):
    oracle, noise = OUE(1.0, v), pinned(6)
    values = np.random.default_rng(2).integers(0, v, 1500)
    where = np.flatnonzero(np.random.default_rng(3).random(1500) < share)
    whole = oracle.encode(values, noise=noise, start=0)
    np.testing.assert_array_equal(oracle.encode_at(noise, where, values[where]), whole[where])


@pytest.mark.parametrize("oracle", [GRR(1.0, 7), OUE(1.0, 7), DuchiMulti(1.0, 3)], ids=repr)
def test_mechanisms_can_be_copied_and_pickled(oracle):
    restored = pickle.loads(pickle.dumps(oracle))
    assert repr(restored) == repr(copy.deepcopy(oracle)) == repr(oracle)


@pytest.mark.parametrize("make", [GRR, OUE, best_categorical])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 5), "'epsilon'"),
        ((51, 5), "'epsilon' parameter must lie between 0.001 and 50"),
        ((math.nan, 5), "'epsilon'"),
        ((1, 1), "'n_categories' parameter must be an integer from 2 to 65536"),
        ((1, 65537), "'n_categories'"),
        ((1, True), "'n_categories'"),
        ((1, 2.5), "'n_categories'"),
    ],
)
def test_bad_parameters_of_categories(make, arguments, message):
    with pytest.raises(ParameterError, match=message):
        make(*arguments)


@pytest.mark.parametrize("oracle", [GRR(1.0, 7), OUE(1.0, 7)], ids=repr)
@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        ([0.5], ParameterError, "integer dtype"),
        ([[1]], ParameterError, "1 dimension"),
        (np.array([], int), ParameterError, "not be empty"),
        ([7], DataError, "categories below 'n_categories'"),
        ([-1], DataError, "categories below 'n_categories'"),
    ],
)
def test_bad_categories(oracle, values, error, message):
    with pytest.raises(error, match=message) as caught:
        oracle.encode(values)
    assert "7" not in str(caught.value)


def test_bad_reports_of_categories():
    with pytest.raises(DataError):
        GRR(1.0, 7).estimate(np.array([8]))
    with pytest.raises(ParameterError, match="'n_bytes' columns"):
        OUE(1.0, 7).estimate(np.zeros((3, 2), np.uint8))
    with pytest.raises(DataError, match="of this mechanism"):
        OUE(1.0, 7).estimate(np.array([[128]], np.uint8))
    with pytest.raises(ParameterError, match="not be empty"):
        OUE(1.0, 7).estimate(np.zeros((0, 1), np.uint8))
    with pytest.raises(ParameterError, match="'start'"):
        OUE(1.0, 7).encode([1], start=2**61)


def test_single_report_has_no_finite_error():
    oracle = GRR(1.0, 3)
    result = oracle.estimate(oracle.encode([1]))
    assert np.isinf(result.standard_errors).all()
    low, high = GRR(1.0, 3).estimate(np.array([0, 1, 2])).interval(0.9)
    assert (low < high).all()
    with pytest.raises(ParameterError, match="'confidence'"):
        result.interval(1)
