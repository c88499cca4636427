"""Codes of the local mechanisms against their laws, at alpha = 1e-6 per test, and mutants."""

import itertools
import math

import numpy as np
import pytest
from goodness import ALPHA, assert_plausible, chi_square

import dpcore
from dpcore import local

OPTIMAL = {"optimal": {"n_outputs": 16}}
CASES = [
    *((name, 1.0) for name in local.NAMES),
    *((name, 5.0) for name in ("pm-opt", "hm-j", "optimal")),
    ("three-outputs", 2.0),
    ("laplace", 10.0),
    ("duchi", 25.0),
    ("hm-tp", 25.0),
]
# Ends, a grid point of every mechanism, and points that no grid has.
POINTS = [-1.0, 0.0, 1.0, 0.3003, -math.sqrt(0.5), 1 - 2**-12]
N = 200_000


def law(mechanism: local.Mechanism, x: float) -> np.ndarray:
    """Probabilities of the codes at x in [-1, 1] from the integers of the table."""
    table = mechanism.table
    n = len(table.rows) - 1
    position = (x + 1) * n / 2
    below = min(math.floor(position), n - 1)
    up = position - below
    pair = zip(table.rows[below], table.rows[below + 1], strict=True)
    return np.array([(low * (1 - up) + high * up) / 2**table.bits for low, high in pair])


def counts(mechanism: local.Mechanism, codes: np.ndarray) -> np.ndarray:
    return np.bincount(np.asarray(codes).ravel(), minlength=mechanism.n_outputs)


@pytest.fixture(scope="module", params=CASES, ids=lambda case: f"{case[0]}({case[1]})")
def mechanism(request) -> local.Mechanism:
    name, epsilon = request.param
    return local.make(name, epsilon, **OPTIMAL.get(name, {}))


def test_codes_follow_the_law(mechanism):
    x = np.tile(POINTS, N)  # neighbours differ, so that noise of the wrong element would show
    codes = np.asarray(mechanism.encode(x, noise=dpcore.Noise.insecure(1))).reshape(N, -1)
    for column, point in zip(codes.T, POINTS, strict=True):
        p = chi_square((counts(mechanism, column), N * law(mechanism, point)))
        assert_plausible(p, f"{mechanism!r} at {point}")


def test_single_precision_follows_the_law(mechanism):
    x = np.full(N, 0.3003, np.float32)
    codes = mechanism.encode(x, noise=dpcore.Noise.insecure(2))
    p = chi_square((counts(mechanism, codes), N * law(mechanism, float(x[0]))))
    assert_plausible(p, f"{mechanism!r} in single precision")


@pytest.mark.parametrize("n", [1, 32, 33, 100])
@pytest.mark.parametrize("name", ["duchi", "three-outputs", "hm-tp", "optimal"])
def test_first_and_last_codes_of_calls_follow_the_law(name, n):
    """Up to 32 values each is settled from all its bits, beyond only those that need them."""
    mechanism, noise = local.make(name, 1.0), dpcore.Noise.insecure(3)
    x, n_calls = np.full(n, 0.3003), 6000
    codes = np.array([mechanism.encode(x, noise=noise)[[0, -1]] for _ in range(n_calls)])
    expected = n_calls * law(mechanism, 0.3003)
    for which, column in zip(("first", "last"), codes.T, strict=True):
        p = chi_square((counts(mechanism, column), expected))
        assert_plausible(p, f"{name}, {which} of {n}")


def test_neighbouring_codes_are_independent(mechanism):
    """Pairs of neighbours, and of codes half a keystream block and a chunk apart."""
    codes = np.asarray(mechanism.encode(np.full(N, 0.3003), noise=dpcore.Noise.insecure(4)))
    chances, high = law(mechanism, 0.3003), codes >= mechanism.n_outputs // 2
    share = chances[mechanism.n_outputs // 2 :].sum()
    joint = np.outer([1 - share, share], [1 - share, share]).ravel()
    for lag in (1, 8, 16, 2048):
        first, second = high[:-lag:2], high[lag::2]
        m = min(first.size, second.size)
        if lag > 1:  # disjoint pairs only
            keep = (np.arange(m) * 2 // lag) % 2 == 0
            first, second = first[:m][keep], second[:m][keep]
        pairs = np.bincount(2 * first[: second.size] + second[: first.size], minlength=4)
        p = chi_square((pairs, pairs.sum() * joint))
        assert_plausible(p, f"{mechanism!r}, codes {lag} apart")


def rejects(mechanism: local.Mechanism, codes: np.ndarray, x: float) -> bool:
    codes = np.asarray(codes)
    return chi_square((counts(mechanism, codes), codes.size * law(mechanism, x))) < ALPHA


@pytest.mark.parametrize("name", ["duchi", "three-outputs", "hm-tp", "optimal", "pm", "laplace"])
def test_mutants_are_rejected(name):
    """What the tests above would say about encoders that are slightly wrong."""
    mechanism, noise = local.make(name, 1.0), dpcore.Noise.insecure(5)
    right = np.asarray(mechanism.encode(np.full(N, 0.3003), noise=noise))
    assert not rejects(mechanism, right, 0.3003)
    # A neighbouring value, values not clamped, codes in reverse.
    assert rejects(mechanism, mechanism.encode(np.full(N, 0.35), noise=noise), 0.3003)
    assert rejects(mechanism, mechanism.encode(np.full(N, 0.9), noise=noise), 1.0)
    assert rejects(mechanism, mechanism.n_outputs - 1 - right, 0.3003)
    # Less noise than promised.
    other = local.make(name, 1.25)
    assert rejects(mechanism, other.encode(np.ones(N), noise=noise), 1.0)
    # One value in 30 is taken for another.
    stale = right.copy()
    at_end = np.asarray(mechanism.encode(np.full(N, -1.0), noise=noise))
    stale[::30] = at_end[::30]
    assert rejects(mechanism, stale, 0.3003)


@pytest.mark.parametrize("name", ["three-outputs", "optimal"])
def test_rounding_to_the_nearest_grid_point_is_rejected(name):
    """The mutant that forgets to move values between grid points at random."""
    mechanism, noise = local.make(name, 1.0, **OPTIMAL.get(name, {})), dpcore.Noise.insecure(6)
    width = 2 / mechanism.table.n_intervals
    x = (math.floor(0.3 / width) + 0.45) * width
    nearest = np.full(5 * N, round(x / width) * width)
    assert not rejects(mechanism, mechanism.encode(np.full(5 * N, x), noise=noise), x)
    assert rejects(mechanism, mechanism.encode(nearest, noise=noise), x)


@pytest.mark.parametrize("epsilon", [1.0, 2.5])
@pytest.mark.parametrize("name", local.NAMES)
def test_moments_of_a_million_reports(name, epsilon):
    mechanism, n = local.make(name, epsilon, **OPTIMAL.get(name, {})), 1_000_000
    noise = dpcore.Noise.insecure(7)
    for x in (-1.0, 0.0, 0.3003):
        sample = np.asarray(mechanism.privatize(np.full(n, x), noise=noise))
        variance = float(mechanism.variance(x))
        assert abs(sample.mean() - x) <= 5 * math.sqrt(variance / n)
        assert sample.var() == pytest.approx(variance, rel=0.02)
        assert variance <= mechanism.worst_case_variance * (1 + 1e-12)


def population(name: str, n: int) -> tuple[np.ndarray, float]:
    """Values drawn from a population, and its mean."""
    rng = np.random.default_rng(8)
    if name == "one value":
        return np.full(n, 0.3003, np.float32), float(np.float32(0.3003))
    if name == "two values":
        return np.where(rng.random(n, np.float32) < 0.25, 1.0, -0.5).astype(np.float32), -0.125
    return rng.random(n, np.float32) * 2 - 1, 0.0


@pytest.mark.parametrize(
    ("name", "epsilon", "values"),
    [
        ("duchi", 1.0, "one value"),
        ("three-outputs", 2.0, "two values"),
        ("hm-tp", 3.0, "uniform"),
        ("optimal", 1.0, "two values"),
    ],
)
def test_intervals_cover_as_often_as_they_say(name, epsilon, values):
    """20,000 estimates from 2,000 reports each: 1 % is 6.5 standard errors of the coverage."""
    repetitions, n = 20_000, 2_000
    mechanism = local.make(name, epsilon, lower=-1.0, upper=1.0)
    x, mean = population(values, repetitions * n)
    codes = mechanism.encode(x, noise=dpcore.Noise.insecure(9)).reshape(repetitions, n)
    found = [mechanism.estimate(row) for row in codes]
    assert all(estimate.count == n for estimate in found)

    def coverage(confidence: float, at: float) -> float:
        ends = np.array([estimate.interval(confidence) for estimate in found])
        return float(np.mean((ends[:, 0] <= at) & (at <= ends[:, 1])))

    for confidence in (0.95, 0.99):
        assert abs(coverage(confidence, mean) - confidence) < 0.01
    # The mutant: an estimate that is off by half a standard error, which is hard to see otherwise.
    off = mean + 0.5 * found[0].standard_error
    assert abs(coverage(0.95, off) - 0.95) > 0.01


def test_the_interval_of_many_reports():
    """Ten million values on bounds of their own."""
    rng = np.random.default_rng(10)
    ages = rng.random(10_000_000, np.float32) ** 2 * 60 + 20
    mechanism = local.OptimalOutputs(2.0, lower=0.0, upper=100.0)
    message = mechanism.pack(mechanism.encode(ages, noise=dpcore.Noise.insecure(11)))
    estimate = mechanism.estimate(message)
    assert estimate.count == ages.size
    assert abs(estimate.mean - ages.mean(dtype=np.float64)) < 5 * estimate.standard_error
    limit = math.sqrt((mechanism.worst_case_variance + ages.var(dtype=np.float64)) / ages.size)
    assert 0.5 * limit < estimate.standard_error < limit


def test_streams_of_different_mechanisms_are_independent():
    """One pinned stream, many mechanisms: codes of one say nothing about those of another."""
    noise = dpcore.Noise.insecure(12).stream("shared")
    x = np.full(N, 0.1)
    mechanisms = [
        local.Duchi(1.0),
        local.Duchi(1.0 + 2**-20),
        local.Duchi(1.0, -1.0, 1.5),
        local.Hybrid(0.5),  # the same law as Duchi's of that epsilon, by another name
        local.Duchi(0.5),
    ]
    codes = [np.asarray(m.encode(x, noise=noise)) for m in mechanisms]
    for one, other in itertools.combinations(codes, 2):
        p, q = one.mean(), other.mean()
        expected = N * np.outer([1 - p, p], [1 - q, q]).ravel()
        observed = np.bincount(2 * one + other, minlength=4)
        assert_plausible(chi_square((observed, expected)), "codes of two mechanisms")
