"""Many attributes: the choice of those reported, estimates, published facts, and baselines.

Statistical bounds are wide enough that a correct sampler fails a test with a probability of 1e-6;
seeds are fixed, so a pass stays a pass.
"""

import itertools
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from tuple_support import MIXED, N, at_most, mixed_columns, numeric, pinned, same

from dpcore import Noise
from dpcore.local.categorical import GRR, OUE
from dpcore.local.continuous import continuous
from dpcore.local.duchi_multi import DuchiMulti
from dpcore.local.mechanisms import OptimalOutputs
from dpcore.local.reports import Reports
from dpcore.local.schema import Categorical, Numeric
from dpcore.local.tuples import SplitBudget, Tuple, choose, sampled_variance
from dpcore.local.vectors import Vector
from dpcore.noise import NotPrivateArray

REACH = 5.1  # standard errors; a normal number is further out with probability 3.4e-7


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
    [
        ("pm", 2.42),
        ("pm-sub", 2.489),
        ("pm-opt", 2.487),
        ("three-outputs", 2.481),
        ("duchi", 2.177),
    ],
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


def largest(collector, mechanism, objective):
    """What is to be small: of a report, its mean square where it is one of several."""
    x = np.linspace(-1, 1, 201)
    variance = np.array([mechanism.variance(value) for value in x])
    if objective == "at_zero":
        return variance[100]
    return (variance + (x**2 if collector.k < collector.d else 0)).max()


@pytest.mark.parametrize(
    ("d", "epsilon", "objective", "expected"),
    [
        (16, 5.0, "worst", "second_moment"),
        (2, 5.0, "worst", "worst"),
        (94, 4.0, "worst", "second_moment"),
        (1, 1.0, "worst", "worst"),
        (16, 5.0, "at_zero", "at_zero"),
        (2, 5.0, "at_zero", "at_zero"),
    ],
)
def test_optimal_outputs_are_optimal_for_what_counts(d, epsilon, objective, expected):
    collector = Tuple(numeric(d), epsilon, "optimal", n_outputs=8, objective=objective)
    assert collector.numeric.objective == expected
    for other in ("worst", "second_moment", "at_zero"):
        mechanism = OptimalOutputs(collector.epsilon_per_report, n_outputs=8, objective=other)
        least = largest(collector, mechanism, objective)
        assert largest(collector, collector.numeric, objective) <= least * (1 + 1e-6)


def test_bits_of_a_report():
    assert Vector(94, 4.0, "three-outputs").n_bits == 9  # one of 94 * 3 pairs
    assert Tuple(numeric(94), 4.0, "three-outputs").n_bits == 9


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
