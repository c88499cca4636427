"""Ring, noise, graph and secret sharing on their own."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

import dpcore
from dpcore import _laws
from dpcore.errors import DataError, ParameterError
from dpcore.secure import (
    DistributedGaussian,
    FixedPoint,
    Parameters,
    always_connected,
    choose_degree,
    distributed_gaussian,
    honest_survivors,
    security,
    shamir,
    share_sigma,
)
from dpcore.secure.graph import committee, neighbours, threshold_of
from dpcore.secure.ring import add_masks

# Ring


@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("f", [0, 1, 16, 20])
def test_decoding_undoes_encoding_to_half_a_unit(bits, f):
    point = FixedPoint(8, f, bits)
    x = np.random.default_rng(1).uniform(-8, 8, 10000)
    assert np.abs(point.decode(point.encode(x)) - x).max() <= 2.0 ** -(f + 1)


def test_values_beyond_the_bound_are_clamped():
    point = FixedPoint(1.5, 4, 32)
    assert point.decode(point.encode([100.0, -100.0, 1.5])).tolist() == [1.5, -1.5, 1.5]


def test_4000_maximal_messages_fit_and_4100_overflow():
    point = FixedPoint(8, 16, 32)
    one = point.encode([8.0, -8.0])
    for n, right in ((4000, True), (4100, False)):
        total = (one * np.uint32(n)).astype(np.uint32)
        assert np.array_equal(point.decode(total), [8.0 * n, -8.0 * n]) == right
    assert 4000 <= point.capacity() < 4100


def test_capacity_is_the_largest_that_holds_and_noise_lowers_it():
    point = FixedPoint(8, 16, 32)
    for sigma in (0, 10, 10**5, 10**7):
        n = point.capacity(sigma)
        unit = 8 * 2**16 + 1
        assert n * unit + 12 * math.sqrt(n) * sigma < 2**31
        assert (n + 1) * unit + 12 * math.sqrt(n + 1) * sigma >= 2**31
    assert point.capacity(10**7) < point.capacity(10**5) < point.capacity()


def test_overflow_is_refused_at_set_up():
    make = {"session": b"s", "dimension": 1, "bound": 8, "ring_bits": 32}
    Parameters(**make, max_clients=4095)
    with pytest.raises(ParameterError, match="max_clients"):
        Parameters(**make, max_clients=4096)
    with pytest.raises(ParameterError, match="max_clients"):
        Parameters(**make, max_clients=4095, noise_sigma=1000)


def test_data_that_are_not_numbers_raise():
    for bad in ([np.nan], [np.inf]):
        with pytest.raises(DataError):
            FixedPoint(1).encode(bad)


def test_sensitivity_covers_rounding():
    point, random = FixedPoint(2, 3, 64), np.random.default_rng(3)
    for d in (1, 7, 100):
        for _ in range(50):
            x = random.uniform(-3, 3, d)
            y = x + random.normal(size=d) * 0.3
            moved = np.linalg.norm((point.quantize(x) - point.quantize(y)).astype(float))
            assert moved <= point.sensitivity(float(np.linalg.norm(x - y)), d)


@pytest.mark.parametrize("n_threads", [1, 2, 3, 5])
@pytest.mark.parametrize("dtype", [np.uint32, np.uint64])
def test_threads_do_not_change_masks(n_threads, dtype):
    keys = [bytes([i]) * 32 for i in range(40)]
    negative = [i % 3 == 0 for i in range(40)]
    one, many = np.zeros(50_001, dtype), np.zeros(50_001, dtype)
    dpcore.set_num_threads(1)
    add_masks(keys, negative, one)
    dpcore.set_num_threads(n_threads)
    try:
        add_masks(keys, negative, many)
    finally:
        dpcore.set_num_threads(None)
    assert np.array_equal(one, many)


# Secret sharing


@pytest.mark.parametrize(("threshold", "n"), [(1, 1), (2, 3), (7, 10), (67, 100)])
def test_any_threshold_of_shares_give_the_secret(threshold, n):
    random, secret = np.random.default_rng(4), bytes(range(64))
    shares = shamir.split(secret, threshold, range(1, n + 1))
    for _ in range(5):
        chosen = sorted(int(i) for i in random.permutation(n)[:threshold])
        assert shamir.combine([i + 1 for i in chosen], [shares[i] for i in chosen]) == secret


def test_shares_are_fresh_and_uniform():
    shares = np.array([list(shamir.split(bytes(16), 2, [1, 2])[0]) for _ in range(4096)], np.uint8)
    assert stats.chisquare(np.bincount(shares.ravel(), minlength=256)).pvalue > 1e-6


@pytest.mark.parametrize(
    ("secret", "threshold", "points"),
    [(b"", 1, [1]), (bytes(15), 1, [1]), (bytes(16), 0, [1]), (bytes(16), 3, [1, 2]),
     (bytes(16), 1, [0]), (bytes(16), 1, [65536]), (bytes(16), 1, [])],
)  # fmt: skip
def test_splitting_checks_its_parameters(secret, threshold, points):
    with pytest.raises(ParameterError):
        shamir.split(secret, threshold, points)


# Noise


def pmf(sigma, reach):
    """The exact law of one share, as sampled, over -reach to reach."""
    law = _laws.discrete_gaussian(sigma)
    return [law.probability(k) for k in range(-reach, reach + 1)]


@pytest.mark.parametrize("sigma", [6, 7.3, 10])
@pytest.mark.parametrize(("survivors", "n"), [(3, 6), (5, 7)])
def test_the_noise_of_every_allowed_set_reaches_the_target(sigma, survivors, n):
    """Exact convolution of the laws that are sampled, in rationals, for each number of dropouts."""
    honest = honest_survivors(survivors, 0.7)
    share = share_sigma(sigma, honest)
    reach = math.ceil(20 * share)
    weights = np.array(pmf(share, reach), dtype=object)
    assert sum(weights) == 1
    values = range(-reach, reach + 1)
    one = sum(p * k * k for k, p in zip(values, weights, strict=True))
    corrupt = survivors - honest
    for dropped in range(n - survivors + 1):
        counted = n - dropped - corrupt
        scaled = [int(p * 2**256) for p in weights]
        total = [1]
        for _ in range(counted):
            total = np.convolve(np.array(total, object), np.array(scaled, object))
        middle = counted * reach
        variance = sum(int(w) * (k - middle) ** 2 for k, w in enumerate(total)) / Fraction(
            sum(int(w) for w in total)
        )
        assert variance >= Fraction(sigma) ** 2
        assert abs(variance - counted * one) < Fraction(1, 2**200)
    assert honest * one >= Fraction(sigma) ** 2 > (honest - 1) * one


def test_tau_has_the_published_values():
    for s, expected in ((1.5, 2.3e-9), (2, 7e-17)):
        square = 2 * math.pi**2 * s * s
        exact = 10 * sum(math.exp(-square * j / (j + 1)) for j in range(1, 100))
        assert exact == pytest.approx(expected, rel=0.05)
        if s >= 2:
            found = DistributedGaussian(Fraction(s), 100, Fraction(1), 1).tau
            assert exact <= found <= exact * 1.01


def test_the_bound_is_that_of_the_theorem_and_dimension_enters():
    plan = DistributedGaussian(Fraction(3), 50, Fraction(20), 1000)
    gaussian = 20 / (math.sqrt(50) * 3)
    assert gaussian <= plan.epsilon_of_concentration <= gaussian * (1 + 1e-9)
    assert plan.rho == pytest.approx(gaussian**2 / 2)
    # So wide that the distance from a Gaussian is what counts.
    d, tau = 10**16, 10 * sum(math.exp(-8 * math.pi**2 * j / (j + 1)) for j in range(1, 100))
    r = 2e-7 / (math.sqrt(100) * 2)
    wide = DistributedGaussian(Fraction(2), 100, Fraction(2, 10**7), d)
    assert tau * d / 2 >= r**2
    expected = min(math.sqrt(r**2 + tau * d / 2), r + tau * math.sqrt(d))
    assert wide.epsilon_of_concentration == pytest.approx(expected, rel=1e-9)
    assert wide.epsilon_of_concentration > 1.01 * r


def renyi(weights, shift, alpha):
    """Renyi divergence of a law and its shift."""
    p, q = np.log(weights[shift:]), np.log(weights[:-shift])
    return math.log(np.exp(alpha * p + (1 - alpha) * q).sum()) / (alpha - 1)


@pytest.mark.parametrize("honest", [1, 2, 4])
def test_exact_divergences_stay_below_the_bound(honest):
    share = Fraction(2)
    one = np.array([float(w) for w in pmf(share, 30)])
    total = one
    for _ in range(honest - 1):
        total = np.convolve(total, one)
    plan = DistributedGaussian(share, honest, Fraction(1), 1)
    for alpha in (1.5, 2, 4, 8):
        assert renyi(total, 1, alpha) <= alpha * plan.rho * (1 + 1e-6)


def test_calibration_meets_the_target_tightly():
    point = FixedPoint(1.0, 16, 64)
    options = {"sensitivity": 2.0, "min_survivors": 67, "honest_fraction": 0.9}
    plan = distributed_gaussian(point, 100, epsilon=0.5, delta=1e-6, rounds=3, **options)
    assert plan.epsilon(1e-6, 3) <= 0.5
    thinner = DistributedGaussian(
        plan.share_sigma - Fraction(1, 2**16), plan.honest, plan.sensitivity, 100
    )
    assert thinner.epsilon(1e-6, 3) > 0.5
    with pytest.raises(ParameterError, match="epsilon"):
        distributed_gaussian(point, 100, epsilon=1e-8, delta=1e-12, **options)


def test_small_shares_and_bad_fractions_are_refused():
    with pytest.raises(ParameterError, match="share_sigma"):
        DistributedGaussian(Fraction(19, 10), 10, Fraction(1), 1)
    with pytest.raises(ParameterError, match="sigma"):
        share_sigma(5, 100)
    for bad in (0, 1.5, -1):
        with pytest.raises(ParameterError, match="honest_fraction"):
            honest_survivors(10, bad)


# Graph


@pytest.mark.parametrize(
    ("n", "degree"), [(6, 4), (7, 4), (21, 18), (50, 10), (100, 50), (300, 24)]
)
def test_graphs_are_regular_simple_and_symmetric(n, degree):
    for seed in range(5):
        graph = neighbours(bytes([seed]), n, degree)
        matrix = np.zeros((n, n), int)
        np.put_along_axis(matrix, graph, 1, axis=1)
        assert (matrix == matrix.T).all()
        assert matrix.trace() == 0
        assert (matrix.sum(0) == min(degree, n - 1)).all()
        assert (np.diff(graph, axis=1) > 0).all()


def test_graphs_depend_on_the_seed_and_on_nothing_else():
    first = neighbours(b"a", 60, 8).copy()
    neighbours.cache_clear()
    assert np.array_equal(first, neighbours(b"a", 60, 8))
    assert not np.array_equal(first, neighbours(b"b", 60, 8))


def test_pairs_are_about_equally_likely():
    """Of 12 vertices and degree 4: each of 66 pairs in 4/11 of the graphs, at 1e-6."""
    counts = np.zeros((12, 12))
    for seed in range(2000):
        graph = neighbours(seed.to_bytes(4, "little"), 12, 4)
        counts[np.repeat(np.arange(12), 4), graph.ravel()] += 1
    seen = counts[np.triu_indices(12, 1)]
    deviations = (seen - 2000 * 4 / 11) / math.sqrt(2000 * (4 / 11) * (7 / 11))
    assert 66 * 2 * stats.norm.sf(np.abs(deviations).max()) > 1e-6


def test_thresholds():
    assert [threshold_of(m, "malicious") for m in (3, 6, 7, 100)] == [3, 5, 5, 67]
    assert [threshold_of(m, "curious") for m in (3, 6, 7, 100)] == [2, 4, 4, 51]


def test_the_committee_is_everybody_or_a_sample():
    assert committee(b"s", 5, None).tolist() == [0, 1, 2, 3, 4]
    chosen = committee(b"s", 100, 10)
    assert chosen.size == 11
    assert (np.diff(chosen) > 0).all()


def test_failure_bits_are_those_of_the_hypergeometric_law():
    found = security(200, 40, corrupt=0.1, dropout=0.1)
    tail = stats.hypergeom.sf(found.max_corrupt, 199, 20, 40)
    one = stats.hypergeom.sf(found.max_corrupt, 200, 20, 41)
    assert found.failure_bits == pytest.approx(-math.log2(200 * tail + one), rel=1e-6)
    few = stats.hypergeom.sf(41 - found.threshold, 199, 20, 40)
    signers = stats.hypergeom.sf(41 - found.threshold, 200, 20, 41)
    assert found.abort_bits == pytest.approx(-math.log2(200 * few + signers), rel=1e-6)
    # 2 t > holders + corrupt: the shares of both kinds cannot both reach the threshold.
    assert 2 * found.threshold > 41 + found.max_corrupt


def test_degrees_grow_slowly_with_the_number_of_clients():
    degrees = [choose_degree(n, server="curious", corrupt=0.05) for n in (500, 1000, 4000)]
    assert degrees == sorted(degrees)
    assert degrees[-1] < 1.5 * degrees[0]
    for bad in ({"corrupt": 1}, {"dropout": -0.1}):
        with pytest.raises(ParameterError):
            security(100, 10, **bad)


def reachable(graph, alive):
    """Whether the alive vertices are one component."""
    alive = set(alive)
    seen, waiting = set(), [min(alive)]
    while waiting:
        vertex = waiting.pop()
        if vertex not in seen:
            seen.add(vertex)
            waiting += [int(v) for v in graph[vertex] if int(v) in alive]
    return seen == alive


def test_a_proved_connection_holds_and_two_cliques_are_never_proved():
    graph = neighbours(b"seed", 200, 60)
    assert always_connected(graph, 35)
    random = np.random.default_rng(9)
    for _ in range(20):
        alive = set(random.permutation(200)[:140].tolist())
        while bad := [v for v in alive if len(alive & set(graph[v].tolist())) < 35]:
            alive -= set(bad)
        assert not alive or reachable(graph, alive)
    halves = neighbours(b"x", 50, None)
    cliques = np.concatenate([halves, halves + 50])
    assert not always_connected(cliques, 49)
