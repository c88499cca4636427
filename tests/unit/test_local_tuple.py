"""Categories and many attributes: exact laws by enumeration, the rest by simulation.

Statistical bounds are wide enough that a correct sampler fails a test with a probability of 1e-6;
seeds are fixed, so a pass stays a pass.
"""

import copy
import itertools
import math
import pickle
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from dpcore import Noise, wire
from dpcore._exact import exp_enclosure
from dpcore.errors import DataError, DPCoreError, ParameterError, WireFormatError
from dpcore.local.categorical import GRR, OUE, best_categorical
from dpcore.local.continuous import continuous
from dpcore.local.duchi_multi import DuchiMulti
from dpcore.local.reports import Reports
from dpcore.local.schema import Categorical, Numeric
from dpcore.local.tuples import SplitBudget, Tuple, choose, sampled_variance
from dpcore.noise import NotPrivateArray

N = 1_000_000
EPSILONS = [0.001, 0.1, 1.0, 1.3, 5.0, 20.0, 20.5, 50.0]
REACH = 5.1  # standard errors; a normal number is further out with probability 3.4e-7


def at_most(epsilon, ratio):
    """Whether ratio <= e**epsilon, proven."""
    return ratio * (1 << 256) <= exp_enclosure(Fraction(epsilon), 256)[0]


def numeric(d, lower=-1.0, upper=1.0):
    return [Numeric(f"x{j}", lower, upper) for j in range(d)]


def pinned(seed):
    return Noise.insecure(seed).stream("test")


MIXED = [
    Numeric("age", 0, 100),
    Categorical("fuel", ["gas", "oil", "none"]),
    Numeric("speed", -10, 30),
    Categorical("code", 300),
    Categorical("zone", [5, 3, 9]),
]


def mixed_columns(n, seed=0):
    rng = np.random.default_rng(seed)
    return {
        "age": rng.uniform(20, 60, n),
        "fuel": rng.choice(["gas", "oil", "none"], n, p=[0.5, 0.3, 0.2]),
        "speed": rng.integers(-10, 31, n),
        "code": rng.integers(0, 300, n),
        "zone": rng.choice([3, 5, 9], n, p=[0.7, 0.2, 0.1]),
    }


# Categories


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


# The choice of attributes


@pytest.mark.parametrize(
    ("d", "epsilon", "k"),
    [(16, 5.0, 2), (94, 4.0, 1), (16, 1.0, 1), (3, 50.0, 3), (16, 7.5, 3), (16, 7.4999, 2)],
)
def test_number_of_attributes_reported(d, epsilon, k):
    collector = Tuple(numeric(d), epsilon, "duchi")
    assert collector.k == k
    assert Fraction(collector.epsilon_per_report) * k <= Fraction(epsilon)
    assert collector.epsilon_per_report == pytest.approx(epsilon / k)


def test_all_ordered_choices_are_equally_likely():
    d, k, n = 5, 3, 600_000
    index = choose(pinned(7), 0, n, d, k)
    counts = Counter(map(tuple, index.tolist()))
    assert set(counts) == set(itertools.permutations(range(d), k))
    expected = n / 60
    assert sum((c - expected) ** 2 / expected for c in counts.values()) < 124  # 59 degrees, 1e-6


def test_single_choices_are_equally_likely():
    counts = np.bincount(choose(pinned(8), 0, N, 7, 1)[:, 0], minlength=7)
    assert ((counts - N / 7) ** 2 / (N / 7)).sum() < 38.3  # 6 degrees, 1e-6


# Published facts


@pytest.mark.parametrize(
    ("name", "published"),
    [("duchi", 74.92311), ("three-outputs", 82.735596), ("pm-sub", 96.317421), ("pm", 98.577559)],
)
def test_worst_variance_of_algorithm_6(name, published):
    law = continuous(name, 1.0)
    x = np.linspace(0, 1, 2001)
    worst = sampled_variance([law.variance(v) for v in x], x, 16, 1).max()
    assert worst == pytest.approx(published, rel=1e-7)
    collector = Tuple(numeric(16), 1.0, name)
    # The tables spend a millionth less, and levels add h**2 / 4 at most, times d / k.
    assert published * (1 - 1e-6) < collector.worst_case_variance < published * 1.01
    grid = np.linspace(-1, 1, 4001)
    assert collector.variance(grid).max() == pytest.approx(collector.worst_case_variance, rel=1e-6)


@pytest.mark.parametrize(
    ("name", "worst", "at_zero"),
    [
        ("duchi", 1.3897, 1.3897),
        ("three-outputs", 1.4951, 0.2268),
        ("pm-opt", 1.6289, 0.3649),
        ("pm-sub", 1.6390, 0.3438),
        ("pm", 1.7504, 0.3488),
    ],
)
def test_second_moments_at_the_best_loss(name, worst, at_zero):
    law = continuous(name, 2.5)
    moments = [law.variance(x) + x * x for x in np.linspace(0, 1, 101)]
    assert max(moments) < moments[-1] + 1e-12
    assert min(moments) > moments[0] - 1e-12
    assert moments[-1] == pytest.approx(worst, abs=1e-4)
    assert moments[0] == pytest.approx(at_zero, abs=1e-4)


@pytest.mark.parametrize(
    ("name", "minimiser"),
    [("pm", 2.42), ("pm-sub", 2.489), ("three-outputs", 2.481), ("duchi", 2.177)],
)
def test_the_best_loss_per_report(name, minimiser):
    losses = np.arange(1.5, 3.5, 0.001)
    scores = [loss * (continuous(name, loss).variance(1.0) + 1) for loss in losses]
    assert losses[int(np.argmin(scores))] == pytest.approx(minimiser, abs=0.006)


def test_auto_minimises_what_counts():
    partial, whole = Tuple(numeric(16), 5.0, "auto"), Tuple(numeric(2), 5.0, "auto")
    assert partial.numeric.name == "duchi"
    assert whole.numeric.name == "hm-j"
    at_zero = Tuple(numeric(16), 5.0, "auto", objective="at_zero")
    assert at_zero.numeric.name == "three-outputs"
    assert at_zero.variance(0) < partial.variance(0)
    assert partial.worst_case_variance < Tuple(numeric(16), 5.0, "hm-j").worst_case_variance


def test_error_bound_is_bernsteins():
    collector, n, b = Tuple(numeric(16), 5.0, "duchi"), 10_000, 0.05
    log = math.log(2 * 16 / b)
    big = 8 / math.tanh(1.25) + 1
    v = collector.worst_case_variance
    expected = (big * log / 3 + math.sqrt(big**2 * log**2 / 9 + 2 * n * v * log)) / n
    assert collector.error_bound(n, 1 - b) == pytest.approx(expected, rel=1e-5)
    assert collector.error_bound(100 * n) < collector.error_bound(n) / 9


def test_error_bound_holds():
    collector, n = Tuple(numeric(8), 1.0, "three-outputs"), 20_000
    x = np.random.default_rng(4).uniform(-1, 1, (n, 8))
    bound, truth = collector.error_bound(n, 0.99), x.mean(axis=0)
    means = [
        list(collector.estimate(collector.encode(x, noise=pinned(seed))).means.values())
        for seed in range(20)
    ]
    # The bound is about 1.3 times what is needed: 20 repetitions do not come near it.
    assert np.abs(means - truth).max() < bound


# Tuples


@pytest.mark.parametrize("name", ["duchi", "hm-j"])
@pytest.mark.parametrize(("d", "k"), [(6, 1), (5, 3), (3, 3)])
def test_means_are_unbiased_with_the_stated_variance(name, d, k):
    n = N // k
    collector = Tuple(numeric(d, -3, 1), 2.0 * k, name, k=k)
    point = np.linspace(-1, 0.9, d)
    reports = collector.encode(np.tile(point * 2 - 1, (n, 1)), noise=pinned(9))
    result = collector.estimate(reports)
    variance = collector.variance(point) * 4
    for j in range(d):
        estimate = result[f"x{j}"]
        assert estimate.count == n
        assert abs(estimate.mean - (point[j] * 2 - 1)) < REACH * math.sqrt(variance[j] / n)
        assert estimate.standard_error**2 * n == pytest.approx(variance[j], rel=0.02)
        low, high = estimate.interval()
        assert low < estimate.mean < high


@pytest.mark.parametrize("k", [1, 2, 5])
def test_mixed_tuples_are_unbiased(k):
    n = 300_000
    collector = Tuple(MIXED, 2.5 * k, k=k)
    columns = mixed_columns(n)
    result = collector.estimate(collector.encode(columns, noise=pinned(10)))
    for name in ("age", "speed"):
        estimate = result[name]
        # The stated error includes the drawing of devices, so it is a little too wide here.
        assert abs(estimate.mean - columns[name].mean()) < REACH * estimate.standard_error
    for attribute in (MIXED[1], MIXED[3], MIXED[4]):
        truth = [(columns[attribute.name] == label).mean() for label in attribute.labels]
        shares = result[attribute.name]
        z = (shares.frequencies - truth) / shares.standard_errors
        assert np.abs(z).max() < 6.5
        oracle = collector.categorical[MIXED.index(attribute)]
        # A debiased report of mean f has the mean square Var + f (1 - f) + f ** 2.
        f, scale = np.array(truth), 5 / k
        variance = scale * (oracle.variance(f) + f) - f**2
        np.testing.assert_allclose(shares.standard_errors**2 * n, variance, rtol=0.08)
    assert set(result.means) == {"age", "speed"}


def test_kinds_of_reports():
    collector = Tuple(MIXED, 2.5)
    kinds = {j: type(oracle) for j, oracle in collector.categorical.items()}
    assert kinds == {1: GRR, 3: OUE, 4: GRR}
    reports = collector.encode(mixed_columns(1000))
    assert reports.index.shape == reports.code.shape == (1000, 1)
    assert list(reports.bits) == [3]
    assert len(reports.bits[3]) == (reports.index == 3).sum()
    assert not isinstance(reports.code, NotPrivateArray)
    assert isinstance(collector.encode(mixed_columns(10), noise=pinned(1)).code, NotPrivateArray)


def test_arrays_and_mappings_give_the_same_reports():
    schema = [Numeric("a", 0, 1), Categorical("b", 4), Categorical("c", [10, 30, 20])]
    collector, noise = Tuple(schema, 6.0), pinned(11)
    rng = np.random.default_rng(5)
    a, b, c = rng.random(100), rng.integers(0, 4, 100), rng.choice([10, 20, 30], 100)
    one = collector.encode({"c": c, "a": a, "b": b}, noise=noise)
    other = collector.encode(np.column_stack([a, b, c]), noise=noise)
    np.testing.assert_array_equal(one.code, other.code)
    np.testing.assert_array_equal(one.index, other.index)


def same(one, other):
    return (
        np.array_equal(one.index, other.index)
        and np.array_equal(one.code, other.code)
        and one.bits.keys() == other.bits.keys()
        and all(np.array_equal(one.bits[j], other.bits[j]) for j in one.bits)
    )


@pytest.mark.parametrize("k", [1, 2, 5])
def test_tuples_in_chunks(k, monkeypatch):
    collector, columns = Tuple(MIXED, 3.0 * k, k=k), mixed_columns(3000)
    noise = Noise.from_key(bytes(range(32))).stream("t")
    whole = collector.encode(columns, noise=noise, start=50)
    cut = [0, 1, 700, 2999, 3000]
    parts = [
        collector.encode({n: c[a:b] for n, c in columns.items()}, noise=noise, start=50 + a)
        for a, b in itertools.pairwise(cut)
    ]
    assert same(whole, Reports.join(parts))
    monkeypatch.setattr("dpcore.local.tuples._BLOCK", 600)
    assert same(whole, collector.encode(columns, noise=noise, start=50))


def test_releases_do_not_share_noise():
    columns, noise = mixed_columns(500), Noise()
    collector = Tuple(MIXED, 2.5)
    one, other = collector.encode(columns, noise=noise), collector.encode(columns, noise=noise)
    assert (one.index != other.index).any()
    # On a pinned stream a tuple of one number is not the mechanism itself.
    pin = Noise.from_key(bytes(32)).stream("p")
    alone = Tuple(numeric(1), 1.0, "duchi")
    x = np.zeros(200)
    codes = alone.encode({"x0": x}, noise=pin).code[:, 0]
    assert (codes != alone.numeric.encode(x, noise=pin)).any()
    again = Tuple(numeric(1), 2.0, "duchi").encode({"x0": x}, noise=pin).code[:, 0]
    assert (codes != again).any()


def test_slots_have_independent_noise():
    n = 200_000
    collector = Tuple(numeric(2), 2.0, "duchi", k=2)
    code = np.asarray(collector.encode(np.zeros((n, 2)), noise=pinned(12)).code)
    assert abs(np.corrcoef(code.T)[0, 1]) < REACH / math.sqrt(n)


def test_values_outside_the_bounds_count_as_the_nearer_bound():
    collector, noise = Tuple([Numeric("a", 0, 1)], 1.0), pinned(13)
    one = collector.encode({"a": [5.0, -1e308, 0.0]}, noise=noise)
    other = collector.encode({"a": [1.0, 0.0, 0.0]}, noise=noise)
    np.testing.assert_array_equal(one.code, other.code)


def test_extreme_bounds():
    collector = Tuple([Numeric("a", -8e307, 8e307)], 20.0)
    assert math.isfinite(collector.estimate(collector.encode({"a": [1e300] * 10})).means["a"])


# Bytes


@pytest.mark.parametrize("k", [1, 2, 5])
@pytest.mark.parametrize("n", [1, 2000])
def test_bytes_round_trip(k, n):
    collector = Tuple(MIXED, 3.0 * k, k=k)
    reports = collector.encode(mixed_columns(n))
    message = reports.to_bytes()
    assert message == reports.to_bytes()
    assert same(reports, Reports.from_bytes(message, Tuple(MIXED, 3.0 * k, k=k)))
    assert same(reports, Reports.from_bytes(bytearray(message), collector))
    one, other = collector.estimate(reports), collector.estimate(message)
    assert one.means == other.means
    np.testing.assert_array_equal(one["code"].frequencies, other["code"].frequencies)


def test_bits_on_the_wire():
    assert Tuple(numeric(94), 4.0, "three-outputs").n_bits == 9
    assert Tuple(numeric(94), 4.0, "duchi").n_bits == 8
    assert SplitBudget(numeric(94), 10.0, "three-outputs").n_bits == 1  # it is Duchi's there
    n = 80_000
    collector = Tuple(numeric(94), 4.0, "three-outputs")
    message = collector.encode(np.zeros((n, 94))).to_bytes()
    assert n * 9 / 8 < len(message) < n * 9 / 8 + 100


def test_pairs_that_need_more_than_16_bits():
    schema = [*numeric(2), Categorical("a", 40_000), Categorical("b", 40_000)]
    collector = Tuple(schema, 12.0, "duchi", k=1)
    assert all(isinstance(oracle, GRR) for oracle in collector.categorical.values())
    assert collector.n_bits == 2 + 16
    columns = {"x0": [0.1] * 50, "x1": [0.3] * 50, "a": [39_999] * 50, "b": [5] * 50}
    reports = collector.encode(columns)
    assert same(reports, Reports.from_bytes(reports.to_bytes(), collector))


def test_every_truncation_and_extension_is_refused():
    collector = Tuple(MIXED, 3.0)
    message = collector.encode(mixed_columns(20)).to_bytes()
    for end in range(len(message)):
        with pytest.raises(WireFormatError):
            Reports.from_bytes(message[:end], collector)
    for extra in (b"\0", message, b"\0" * 8):
        with pytest.raises(WireFormatError):
            Reports.from_bytes(message + extra, collector)


def test_every_damaged_byte_is_refused():
    collector = Tuple(MIXED, 3.0)
    message = collector.encode(mixed_columns(20)).to_bytes()
    for place in range(len(message)):
        damaged = bytearray(message)
        damaged[place] ^= 1 << place % 8
        with pytest.raises(WireFormatError):
            Reports.from_bytes(damaged, collector)


@pytest.mark.parametrize(
    "other",
    [
        Tuple(MIXED, 3.5),
        Tuple(MIXED, 3.0, "duchi"),
        Tuple(MIXED[::-1], 3.0),
        Tuple([Numeric("age", 0, 99), *MIXED[1:]], 3.0),
        Tuple(MIXED, 6.0, k=2),
    ],
    ids=repr,
)
def test_messages_of_other_collectors_are_refused(other):
    message = other.encode(mixed_columns(5)).to_bytes()
    collector = Tuple(MIXED, 3.0)
    with pytest.raises(WireFormatError, match=r"another collector|not fit"):
        Reports.from_bytes(message, collector)
    with pytest.raises(ParameterError, match="of this collector"):
        collector.estimate(other.encode(mixed_columns(5)))


def forged(collector, codes, n, part=0, form=1, kind=32):
    """A message with correct sums around chosen contents."""
    from dpcore.local.reports import _PART

    parameters = _PART.pack(form, part, 0, n, collector._digest[:16])
    packed = wire.pack(
        np.array(codes, np.uint16), kind=kind, n_bits=collector.n_bits, parameters=parameters
    )
    return len(packed).to_bytes(8, "little") + packed


def test_contents_that_no_device_sends_are_refused():
    collector = Tuple(numeric(3), 6.0, "three-outputs", k=2)
    good = forged(collector, [0, 3], 1)
    assert Reports.from_bytes(good, collector).index.tolist() == [[0, 1]]
    for codes in ([0, 9], [15, 0], [0, 1], [8, 8]):
        with pytest.raises(WireFormatError, match="no device sends"):
            Reports.from_bytes(forged(collector, codes, 1), collector)
    with pytest.raises(WireFormatError, match="no device sends"):
        Reports.from_bytes(forged(collector, [], 0), collector)
    with pytest.raises(WireFormatError, match="not fit"):
        Reports.from_bytes(forged(collector, [0, 3], 2), collector)
    with pytest.raises(WireFormatError, match="another version"):
        Reports.from_bytes(forged(collector, [0, 3], 1, form=2), collector)
    with pytest.raises(WireFormatError, match="another collector"):
        Reports.from_bytes(forged(collector, [0, 3], 1, kind=2), collector)
    with pytest.raises(ParameterError, match="bytes-like"):
        Reports.from_bytes("text", collector)


# Bad input


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Tuple([], 1.0), "'schema'"),
        (lambda: Tuple(["age"], 1.0), "'schema'"),
        (lambda: Tuple(3, 1.0), "'schema'"),
        (lambda: Tuple([Numeric("a", 0, 1), Categorical("a", 3)], 1.0), "not repeat a name"),
        (lambda: Tuple(numeric(2), 0.0), "'epsilon'"),
        (lambda: Tuple(numeric(2), 1e-4), "'epsilon'"),
        (lambda: Tuple(numeric(2), 1e4), "'epsilon'"),
        (lambda: Tuple(numeric(2), 1.0, "none"), "'name'"),
        (lambda: Tuple(numeric(2), 1.0, k=3), "'k' parameter must be at most"),
        (lambda: Tuple(numeric(2), 1.0, k=0), "'k'"),
        (lambda: Tuple(numeric(2), 1.0, "auto", objective="best"), "'objective'"),
        (lambda: Numeric("a", 1, 1), "'upper'"),
        (lambda: Numeric("a", 0, math.inf), "'upper'"),
        (lambda: Numeric("", 0, 1), "'name'"),
        (lambda: Categorical("a", 1), "'n_categories'"),
        (lambda: Categorical("a", ["x"]), "'n_categories'"),
        (lambda: Categorical("a", "xyz"), "'categories'"),
        (lambda: Categorical("a", ["x", 1]), "'categories'"),
        (lambda: Categorical("a", [1.5, 2]), "'categories'"),
        (lambda: Categorical("a", ["x", "x"]), "not repeat"),
        (lambda: Tuple([Categorical("a", 3)], 1.0).variance(0), "numeric attribute"),
        (lambda: Tuple(numeric(2), 1.0).error_bound(0), "'n'"),
        (lambda: Tuple(numeric(2), 1.0).error_bound(5, 1.0), "'confidence'"),
        (lambda: DuchiMulti(1.0, 0), "'d'"),
        (lambda: DuchiMulti(1.0, 129), "'d'"),
        (lambda: DuchiMulti(0.0, 3), "'epsilon'"),
        (lambda: DuchiMulti(1.0, 3).encode([[0.0, 0.0]]), "d columns"),
        (lambda: DuchiMulti(1.0, 1).encode([["a"]]), "dtype"),
        (lambda: DuchiMulti(1.0, 1).decode([[2]]), "0 and 1"),
        (lambda: DuchiMulti(1.0, 1).encode([[math.nan]]), "finite"),
        (lambda: Reports.join([]), "'parts'"),
    ],
)
def test_bad_parameters_are_named(call, message):
    with pytest.raises(DPCoreError, match=message):
        call()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"age": [math.nan, 1.0]}, "finite"),
        ({"age": [math.inf, 1.0]}, "finite"),
        ({"age": ["1", "2"]}, "number dtype"),
        ({"age": [1.0]}, "one length"),
        ({"age": [[1.0], [2.0]]}, "one length"),
        ({"fuel": ["gas", "coal"]}, "listed categories only"),
        ({"fuel": [1, 2]}, "kind of the list"),
        ({"code": [300, 1]}, "listed categories only"),
        ({"code": [0.5, 1]}, "listed categories only"),
        ({"code": [math.nan, 1]}, "listed categories only"),
        ({"other": [1, 2]}, "names of the schema"),
    ],
)
def test_bad_columns_are_refused_whatever_was_drawn(change, message):
    collector = Tuple(MIXED, 2.5)
    for _ in range(4):
        with pytest.raises(DPCoreError, match=message) as caught:
            collector.encode(mixed_columns(2) | change)
        assert "coal" not in str(caught.value)


def test_bad_shapes():
    collector = Tuple(numeric(3), 1.0)
    for bad in (np.zeros(3), np.zeros((2, 4)), np.zeros((0, 3))):
        with pytest.raises(ParameterError, match="'columns'"):
            collector.encode(bad)
    with pytest.raises(ParameterError, match="'start'"):
        collector.encode(np.zeros((2, 3)), start=2**62)
    with pytest.raises(ParameterError, match="of this collector"):
        collector.estimate(np.zeros((2, 3)))


def test_columns_of_objects_hold_strings_too():
    collector = Tuple([Categorical("a", ["x", "yy"])], 1.0)
    assert len(collector.encode({"a": np.array(["yy", "x"], dtype=object)})) == 2


# Baselines


def test_split_budget_reports_everything():
    collector = SplitBudget(MIXED, 2.0)
    assert (collector.k, collector.d) == (5, 5)
    assert collector.epsilon_per_report == math.nextafter(0.4, 0)  # 5 * 0.4 is above 2
    assert collector.numeric.name == "laplace"
    x = np.linspace(-1, 1, 5)
    np.testing.assert_array_equal(collector.variance(x), collector.numeric.variance(x))
    assert (np.asarray(collector.encode(mixed_columns(3)).index) == np.arange(5)).all()


def test_sampling_beats_splitting():
    assert (
        Tuple(numeric(16), 1.0, "duchi").worst_case_variance
        < SplitBudget(numeric(16), 1.0, "duchi").worst_case_variance / 10
    )


def published_reach(epsilon, d):
    """B as published."""
    e = math.exp(epsilon)
    half = 2 ** (d - 1) - (math.comb(d, d // 2) // 2 if d % 2 == 0 else 0)
    s = math.comb(d - 1, (d - 1) // 2 if d % 2 else d // 2)
    return (2**d + half * (e - 1)) / ((e - 1) * s)


def test_published_reach_of_duchis_mechanism():
    published = [1.749261041, 2.498522082, 3.498522082, 3.664696109, 4.664696109, 4.597635331]
    for d, b in enumerate(published, 1):
        assert published_reach(1.3, d) == pytest.approx(b, rel=1e-9)
        assert pytest.approx(b, rel=3e-6) == DuchiMulti(1.3, d).B
    assert published_reach(1.0, 16) == pytest.approx(10.01918033588, rel=1e-12)
    assert pytest.approx(10.01918033588, rel=3e-6) == DuchiMulti(1.0, 16).B
    assert DuchiMulti(1.0, 16).variance(0) == pytest.approx(100.383975, rel=5e-6)
    assert pytest.approx(published_reach(1.0, 128), rel=3e-6) == DuchiMulti(1.0, 128).B


@pytest.mark.parametrize("epsilon", [0.001, 1.3, 20.0, 50.0])
@pytest.mark.parametrize("d", [1, 2, 3, 4, 5, 6])
def test_duchis_mechanism_by_enumeration(epsilon, d):
    mechanism = DuchiMulti(epsilon, d)
    signs = list(itertools.product([-1, 1], repeat=d))

    def law(v):
        agreements = (sum(a == b for a, b in zip(t, v, strict=True)) for t in signs)
        return [mechanism.chances[m] for m in agreements]

    laws = {v: law(v) for v in signs}
    assert all(sum(row) == 1 for row in laws.values())
    ratio = max(max(column) / min(column) for column in zip(*laws.values(), strict=True))
    assert at_most(epsilon, ratio)
    assert math.log(ratio) == pytest.approx(epsilon, rel=2e-6)
    for v, row in laws.items():
        for j in range(d):
            mean = sum(p * t[j] for p, t in zip(row, signs, strict=True))
            assert float(mean) * mechanism.B == pytest.approx(v[j], rel=1e-12)


@pytest.mark.parametrize("d", [2, 4, 6])
def test_the_copied_variant_is_refused_for_a_reason(d):
    """Half-spaces that both hold the reports with d / 2 agreements: the ratio is E + 1."""
    e = Fraction(math.e)
    products = [sum(t) for t in itertools.product([-1, 1], repeat=d)]  # with v = (1, ..., 1)
    half_space = sum(product >= 0 for product in products)

    def chance(product):
        return ((product >= 0) * e / (e + 1) + (product <= 0) / (e + 1)) / half_space

    chances = [chance(product) for product in products]
    assert sum(chances) == 1
    assert max(chances) / min(chances) == e + 1
    ours = DuchiMulti(1.0, d).chances
    assert max(ours) / min(ours) < e


@pytest.mark.parametrize("d", [1, 2, 5, 6])
def test_duchis_mechanism_is_unbiased_with_the_stated_variance(d):
    n = N // d
    mechanism, x = DuchiMulti(1.3, d), np.linspace(-1, 0.8, d)
    codes = mechanism.encode(np.tile(x, (n, 1)), noise=pinned(14))
    decoded = mechanism.decode(codes)
    np.testing.assert_allclose(np.abs(decoded), mechanism.B)
    error = np.sqrt(mechanism.variance(x) / n)
    assert (np.abs(decoded.mean(axis=0) - x) < 5.3 * error).all()
    for estimate, mean, e in zip(
        mechanism.estimate(codes), decoded.mean(axis=0), error, strict=True
    ):
        assert estimate.mean == pytest.approx(mean, abs=1e-9)
        assert estimate.standard_error == pytest.approx(e, rel=0.01)


@pytest.mark.parametrize("d", [3, 4])
def test_duchis_mechanism_samples_its_law(d):
    mechanism, n = DuchiMulti(1.0, d), 400_000
    v = np.array([1, -1, 1, -1])[:d]
    codes = np.asarray(mechanism.encode(np.tile(v, (n, 1)), noise=pinned(15)))
    counts = np.bincount(codes @ (1 << np.arange(d)), minlength=1 << d)
    expected = [
        n * float(mechanism.chances[sum((t >> j & 1) == (v[j] > 0) for j in range(d))])
        for t in range(1 << d)
    ]
    limit = {3: 40.5, 4: 56.5}[d]  # chi-square of 7 and 15 degrees, 1e-6
    assert ((counts - expected) ** 2 / expected).sum() < limit


def test_duchis_mechanism_in_chunks():
    mechanism, noise = DuchiMulti(1.0, 5), Noise.from_key(bytes(32)).stream("d")
    x = np.random.default_rng(6).uniform(-1, 1, (1000, 5))
    whole = mechanism.encode(x, noise=noise, start=3)
    parts = [mechanism.encode(x[a:b], noise=noise, start=3 + a) for a, b in [(0, 9), (9, 1000)]]
    np.testing.assert_array_equal(whole, np.concatenate(parts))
