"""The audit flags mechanisms that break their claim, and passes those that keep it.

Mutants are made of the real kernels and laws. Every audit of an honest mechanism raises a false
alarm with probability 1e-6; seeds are fixed, so a pass stays a pass until streams change.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest

import dpcore
from dpcore import audit, local

SIGMA = dpcore.gaussian_sigma(1.0, 1e-5)
SCHEMA = [
    local.Numeric("a", 0, 1),
    local.Numeric("b", -5, 5),
    local.Categorical("c", 4),
    local.Categorical("d", 40),
]
EPSILONS = (0.5, 1.0, 2.0)


def insecure(seed=7):
    return dpcore.Noise.insecure(seed)


def assert_passes(m, *arguments, **options):
    result = audit.mechanism(m, *arguments, **options)
    assert result.passed, f"{result} A correct mechanism fails with probability 1e-6 per seed."
    return result


def assert_flagged(m, *arguments, **options):
    result = audit.mechanism(m, *arguments, **options)
    assert not result.passed, str(result)
    return result


def release(function, **options):
    """A releasing function with a noise of its own, as a function of the data."""
    return partial(function, noise=insecure(), **options)


# Honest


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("name", local.NAMES)
def test_honest_numbers_pass_and_the_bound_is_close(name, epsilon):
    result = assert_passes(local.make(name, epsilon), trials=100_000, noise=insecure())
    assert result.lower_bound > 0.7 * epsilon


@pytest.mark.parametrize("seed", range(5))
def test_honest_numbers_pass_for_other_seeds(seed):
    assert_passes(local.Duchi(1.0), trials=100_000, noise=insecure(seed), random_state=seed)


@pytest.mark.parametrize(
    "m",
    [
        local.GRR(1.0, 2),
        local.GRR(2.0, 300),
        local.OUE(1.0, 13),
        local.OUE(3.0, 40),
        local.DuchiMulti(1.0, 1),
        local.DuchiMulti(1.0, 5),
        local.Tuple(SCHEMA, 2.0),
        local.Tuple(SCHEMA, 3.0, k=2),
        local.Tuple(SCHEMA[2:], 3.0),
        local.SplitBudget(SCHEMA, 4.0),
    ],
    ids=repr,
)
def test_honest_reports_pass_and_the_bound_is_not_trivial(m):
    result = assert_passes(m, trials=200_000, noise=insecure())
    assert result.lower_bound > 0.4 * m.epsilon


@pytest.mark.parametrize("zero", [0, 0.0])
def test_honest_vectors_pass_and_the_bound_is_close(zero):
    inputs = zero + np.vstack([np.zeros((1, 5), int), np.eye(5, dtype=int)])
    laplace = release(dpcore.laplace, epsilon=1, sensitivity=1)
    result = assert_passes(laplace, inputs, epsilon=1, batch=True, trials=200_000)
    assert result.lower_bound > 0.75
    gaussian = release(dpcore.gaussian, sigma=SIGMA, sensitivity=1)
    claim = {"mu": 1.001 / SIGMA, "delta": 1e-5}
    result = assert_passes(gaussian, inputs, batch=True, trials=200_000, **claim)
    assert result.lower_bound > 0.5


@pytest.mark.parametrize("adjacency", ["replace", "add-remove"])
@pytest.mark.parametrize(
    ("function", "public"),
    [
        (dpcore.histogram, {"n_bins": 2}),
        (dpcore.bounded_sum, {"lower": 0, "upper": 1}),
        (dpcore.bounded_mean, {"lower": 0, "upper": 1}),
    ],
)
def test_honest_aggregates_pass(function, public, adjacency):
    inputs = [[0, 1, 1], [0, 1, 0] if adjacency == "replace" else [0, 1]]
    call = release(function, epsilon=2.0, adjacency=adjacency, **public)
    assert assert_passes(call, inputs, epsilon=2.0, trials=4000).lower_bound > 0.2


# Noise halved


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("name", local.NAMES)
def test_a_table_for_twice_the_epsilon_is_flagged(name, epsilon):
    claimed, real = local.make(name, epsilon), local.make(name, 2 * epsilon)
    claimed.table, claimed._rows = real.table, real._rows
    assert_flagged(claimed, trials=100_000, noise=insecure())


@pytest.mark.parametrize(
    "m",
    [
        local.GRR(2.0, 8),
        local.OUE(2.0, 13),
        local.DuchiMulti(2.0, 4),
        local.Tuple(SCHEMA, 3.0),
        local.SplitBudget(SCHEMA, 4.0),
    ],
    ids=repr,
)
def test_reports_with_half_the_noise_are_flagged(m):
    m.epsilon /= 2
    assert_flagged(m, trials=200_000, noise=insecure())


@pytest.mark.parametrize("zero", [0, 0.0])
def test_half_the_noise_of_a_vector_is_flagged(zero):
    inputs = zero + np.array([[0, 0, 0], [1, 0, 0], [0, 0, 1]])
    laplace = release(dpcore.laplace, epsilon=2, sensitivity=1)
    assert_flagged(laplace, inputs, epsilon=1, batch=True)
    gaussian = release(dpcore.gaussian, sigma=SIGMA / 2, sensitivity=1)
    assert_flagged(gaussian, inputs, mu=1.001 / SIGMA, delta=1e-5, batch=True)
    options = {"epsilon": 1, "delta": 1e-5, "trials": 1_000_000}
    assert_flagged(gaussian, inputs[:2, :1], batch=True, **options)


def test_half_the_noise_of_aggregates_is_flagged():
    inputs = [[0, 1, 1], [0, 1, 0]]
    options = {"epsilon": 2.0, "trials": 5000}
    assert_flagged(release(dpcore.histogram, n_bins=2, epsilon=4.0), inputs, **options)
    bounds = {"lower": 0, "upper": 1, "epsilon": 4.0}
    assert_flagged(release(dpcore.bounded_mean, **bounds), inputs, **options)


# Sensitivity halved


def test_half_the_sensitivity_is_flagged():
    laplace = release(dpcore.laplace, epsilon=1, sensitivity=1)
    assert_flagged(laplace, [[0, 0], [1, 1]], epsilon=1, batch=True)
    gaussian = release(dpcore.gaussian, sigma=SIGMA, sensitivity=1)
    options = {"epsilon": 1, "delta": 1e-5, "trials": 1_000_000}
    assert_flagged(gaussian, [[0], [2]], batch=True, **options)


def test_a_record_that_moves_two_bins_is_flagged_with_the_noise_for_one():
    call = release(dpcore.histogram, n_bins=3, epsilon=2.0, adjacency="add-remove")
    assert_flagged(call, [[0, 1, 1], [0, 1, 2]], epsilon=2.0, trials=10_000)


def test_a_sum_with_the_reach_of_one_sign_is_flagged():
    call = release(dpcore.bounded_sum, lower=-1, upper=1, epsilon=2.0, adjacency="add-remove")
    assert_flagged(call, [[0, -1], [0, 1]], epsilon=2.0, trials=10_000)


# One bit of a report left without noise


class BareBit(local.OUE):
    """Unary encoding that says the truth in one bit."""

    bare = 0

    def encode(self, values, *, noise=None, start=0):
        reports = np.asarray(super().encode(values, noise=noise, start=start))
        bits = np.unpackbits(reports, axis=1, count=self.n_categories, bitorder="little")
        bits[:, self.bare] = np.asarray(values) == self.bare
        return np.packbits(bits, axis=1, bitorder="little")


@pytest.mark.parametrize("bare", [0, 6, 7, 8, 12])
def test_one_bare_bit_of_a_unary_report_is_flagged(bare):
    m = BareBit(1.0, 13)
    m.bare = bare
    result = assert_flagged(m, trials=200_000, noise=insecure())
    assert str(bare) in result.worst


class BareSign(local.DuchiMulti):
    bare = 0

    def encode(self, x, *, noise=None, start=0):
        signs = np.array(super().encode(x, noise=noise, start=start))
        signs[:, self.bare] = np.asarray(x)[:, self.bare] > 0
        return signs


@pytest.mark.parametrize("bare", [0, 3, 4])
def test_one_bare_sign_of_many_is_flagged(bare):
    m = BareSign(1.0, 5)
    m.bare = bare
    result = assert_flagged(m, trials=100_000, noise=insecure())
    assert f"element {bare}" in result.worst


@pytest.mark.parametrize("name", ["a", "b", "c"])
def test_one_bare_attribute_of_a_record_is_flagged(name):
    class Bare(local.Tuple):
        def encode(self, columns, *, noise=None, start=0):
            reports = super().encode(columns, noise=noise, start=start)
            j = [attribute.name for attribute in self.schema].index(name)
            truth = np.asarray(columns[name]) > self.schema[j].centre if j < 2 else columns[name]
            code = np.where(
                np.asarray(reports.index) == j, np.asarray(truth)[:, None], reports.code
            )
            return local.Reports(self, reports.index, code, reports.bits)

    assert_flagged(Bare(SCHEMA, 2.0), trials=200_000, noise=insecure())


def test_one_bare_bit_inside_a_record_is_flagged():
    class BareBits(local.OUE):
        def encode_at(self, noise, where, values):
            out = super().encode_at(noise, where, values)
            out[:, 0] = (out[:, 0] & 0xFE) | (values == 0)
            return out

    m = local.Tuple(SCHEMA, 2.0)
    assert isinstance(m.categorical[3], local.OUE)
    m.categorical[3] = BareBits(m.epsilon_per_report, 40)
    assert_flagged(m, trials=200_000, noise=insecure())


# One element of an array skipped


def skipping(kind, place):
    """A mechanism that sends the likeliest code for one place of every array."""

    class Skipping(kind):
        def encode(self, x, *, noise=None, start=0):
            codes = np.array(super().encode(x, noise=noise, start=start))
            codes[place] = self.pmf(np.asarray(x)[place]).argmax(axis=-1)
            return codes

    return Skipping


@pytest.mark.parametrize("place", [0, -1])
@pytest.mark.parametrize("kind", [local.Duchi, local.HybridJoint, local.Laplace])
def test_a_skipped_end_of_an_array_of_numbers_is_flagged(kind, place):
    result = assert_flagged(skipping(kind, place)(1.0), trials=50_000, noise=insecure())
    assert "last" in result.worst if place else "first" in result.worst


def test_a_skipped_last_report_is_flagged():
    class Skipping(local.GRR):
        def encode(self, values, *, noise=None, start=0):
            codes = np.array(super().encode(values, noise=noise, start=start))
            codes[-1] = values[-1]
            return codes

    assert "last" in assert_flagged(Skipping(1.0, 4), trials=50_000, noise=insecure()).worst


@pytest.mark.parametrize("zero", [0, 0.0])
@pytest.mark.parametrize("place", [0, -1])
def test_a_skipped_end_of_a_release_is_flagged(place, zero):
    noise = insecure()

    def skipping(x):
        out = np.array(dpcore.laplace(x, epsilon=1, sensitivity=1, noise=noise))
        out.reshape(-1)[place] = np.asarray(x).reshape(-1)[place]
        return out

    inputs = zero + np.array([[0], [1]])
    assert_flagged(skipping, inputs, epsilon=1, batch=True, trials=50_000)


@pytest.mark.parametrize("zero", [0, 0.0])
def test_a_skipped_last_element_of_a_vector_is_flagged(zero):
    noise = insecure()

    def skipping(x):
        out = np.array(dpcore.gaussian(x, sigma=SIGMA, sensitivity=1, noise=noise))
        out[:, -1] = x[:, -1]
        return out

    inputs = zero + np.array([[0, 0, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1]])
    result = assert_flagged(skipping, inputs, epsilon=1, delta=1e-5, batch=True, trials=50_000)
    assert "input 2" in result.worst


def test_a_skipped_last_bin_is_flagged():
    noise = insecure()

    def skipping(labels):
        out = np.array(dpcore.histogram(labels, 4, epsilon=1, noise=noise))
        out[-1] = (np.asarray(labels) == 3).sum()
        return out

    assert_flagged(skipping, [[0, 1, 3], [0, 1, 1]], epsilon=1, trials=4000)


# A seed reused


def repeating(kind):
    """A mechanism whose every call draws the same noise."""
    pinned = insecure().stream("always")

    class Repeating(kind):
        def encode(self, x, *, noise=None, start=0):
            return super().encode(x, noise=pinned, start=start)

    return Repeating


@pytest.mark.parametrize(
    ("kind", "parameters"),
    [
        (local.Duchi, ()),
        (local.HybridJoint, ()),
        (local.Laplace, ()),
        (local.GRR, (5,)),
        (local.OUE, (13,)),
        (local.DuchiMulti, (4,)),
    ],
)
def test_calls_that_repeat_their_noise_are_flagged(kind, parameters):
    assert_flagged(repeating(kind)(1.0, *parameters), trials=100_000)


def test_records_that_repeat_their_noise_are_flagged():
    assert_flagged(repeating(local.Tuple)(SCHEMA, 2.0), trials=100_000)


@pytest.mark.parametrize("function", [dpcore.laplace, dpcore.gaussian])
@pytest.mark.parametrize("zero", [0, 0.0])
def test_releases_of_a_batch_that_repeat_their_noise_are_flagged(zero, function):
    settings = {"epsilon": 1} if function is dpcore.laplace else {"sigma": SIGMA}
    pinned = insecure().stream("always")
    calls = partial(function, sensitivity=1, noise=pinned, **settings)
    sized = {} if zero == 0 and isinstance(zero, int) else {"dimension": 1 << 20}
    inputs = zero + np.array([[0, 0], [1, 0]])
    result = assert_flagged(
        partial(calls, **sized), inputs, epsilon=1, delta=1e-5, batch=True, trials=50_000
    )
    assert "two calls" in result.worst or "short" in result.worst


def test_single_releases_that_repeat_their_noise_are_flagged():
    pinned = insecure().stream("always")
    call = partial(dpcore.histogram, n_bins=2, epsilon=1, noise=pinned)
    assert_flagged(call, [[0, 1, 1], [0, 1, 0]], epsilon=1, trials=1000)


@pytest.mark.parametrize("every", [2, 3])
def test_releases_that_repeat_the_noise_of_the_one_before_are_flagged(every):
    """Calls in groups of `every` share one stream."""
    made = 0

    def call(x):
        nonlocal made
        made += 1
        return dpcore.laplace(x, epsilon=1, sensitivity=1, noise=insecure(made // every).stream(0))

    assert_flagged(call, [0, 1], epsilon=1, trials=10_000)


@pytest.mark.parametrize("length", [1, 8, 64, 4096])
def test_chunks_that_begin_anew_are_flagged(length):
    """Every chunk of an array is encoded as if it were the first of the same stream."""
    calls = iter(range(10**6))

    class Chunked(local.Duchi):
        def encode(self, x, *, noise=None, start=0):
            stream = insecure().stream("call", next(calls))
            chunks = np.split(np.asarray(x), range(length, len(x), length))
            parts = [local.Duchi.encode(self, chunk, noise=stream) for chunk in chunks]
            return np.concatenate(parts)

    assert_flagged(Chunked(1.0), trials=20_000)


def test_noise_that_neighbours_share_is_flagged():
    noise = insecure()

    def paired(x):
        drawn = dpcore.laplace(
            np.zeros((len(x) + 1) // 2, int), epsilon=1, sensitivity=1, noise=noise
        )
        return x[:, 0] + np.repeat(np.asarray(drawn), 2)[: len(x)]

    result = assert_flagged(paired, [[0], [1]], epsilon=1, batch=True, trials=50_000)
    assert "1 apart" in result.worst


# The bound itself


def test_the_bound_of_randomised_response_is_near_the_truth():
    result = audit.mechanism(local.GRR(1.0, 2), trials=1_000_000, noise=insecure())
    assert 0.95 < result.lower_bound <= 1


def test_a_claim_of_more_than_the_truth_passes_and_of_less_is_flagged():
    m = local.Duchi(1.0)
    assert audit.mechanism(m, epsilon=1.05, trials=200_000, noise=insecure()).passed
    assert not audit.mechanism(m, epsilon=0.9, trials=400_000, noise=insecure()).passed
    assert math.isclose(audit.mechanism(m, trials=1000).epsilon, 1.0)
