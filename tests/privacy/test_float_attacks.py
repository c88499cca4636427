"""Attacks on floating-point noise: they succeed on plain NumPy noise and fail on dpcore.

Mironov 2012: which doubles a noisy value can be depends on the value. Haney et al. 2022: so does
their precision. Casacuberta et al. 2022: rounded sums are more sensitive than real ones.
"""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

import dpcore
from dpcore import _laws
from dpcore.aggregates import _GridBounds

ALPHA = 1e-6
N = 200_000


def insecure(seed: int = 1) -> dpcore.Noise:
    return dpcore.Noise.insecure(seed)


def textbook_laplace(x: float, n: int, seed: int) -> np.ndarray:
    """x + scale 1 Laplace noise as in textbooks: sign * ln(u), u a multiple of 2**-53."""
    generator = np.random.default_rng(seed)
    u = generator.integers(1, 2**53 + 1, n) * 2.0**-53
    return x + np.where(generator.integers(0, 2, n) == 0, -1.0, 1.0) * np.log(u)


def is_reachable(y: np.ndarray, x: float, grid: float, scale: float, slack: int) -> np.ndarray:
    """Whether x + scale * (+-ln u) can be y for a u that is a multiple of the grid.

    Rounding makes an interval of u possible, a few grid points wide; all of it and more is tried,
    and logarithms may be wrong by `slack` ulps.
    """
    found = np.zeros(y.shape, bool)
    centre = np.rint(np.exp(-np.abs(y - x) / scale) / grid)
    for offset in range(-8, 9):
        u = (centre + offset) * grid
        valid = (u > 0) & (u <= 1)
        logarithm = np.log(np.where(valid, u, 1.0))
        for ulps in range(-slack, slack + 1):
            moved = scale * (logarithm + ulps * np.spacing(logarithm))
            found |= valid & ((x + moved == y) | (x - moved == y))
    return found


def assert_private_event(hits: tuple[int, int], n: int, epsilon: float, what: str) -> None:
    """The event may not be e**epsilon times as frequent under one input as under the other."""
    for ours, theirs in (hits, hits[::-1]):
        low = stats.beta.ppf(ALPHA / 4, ours, n - ours + 1) if ours else 0.0
        high = stats.beta.ppf(1 - ALPHA / 4, theirs + 1, n - theirs) if theirs < n else 1.0
        assert low <= math.exp(epsilon) * high, (
            f"{what}: {ours} of {n} against {theirs}. A private release fails this test with "
            f"probability {ALPHA:.0e} at most."
        )


# Mironov: the support tells the input

RESOLUTION = 2.0**-30
EPSILON = 0.1


def release(x: float, seed: int) -> np.ndarray:
    """N releases of x, for which 0 and 1 are neighbours."""
    y = dpcore.laplace(
        np.full(N, x),
        epsilon=EPSILON,
        sensitivity=1.0,
        resolution=RESOLUTION,
        noise=insecure(seed),
    )
    return np.asarray(y)


@pytest.mark.parametrize(("x", "other", "least"), [(0.0, 1.0, 0.6), (1.0, 0.0, 0.5)])
def test_textbook_noise_gives_its_input_away(x, other, least) -> None:
    y = textbook_laplace(x, N, seed=1)
    assert is_reachable(y, x, 2.0**-53, 1.0, slack=0).all()
    # So many outputs could not have come from the other input: no epsilon bounds that.
    assert (~is_reachable(y, other, 2.0**-53, 1.0, slack=0)).mean() > least


@pytest.mark.parametrize(("x", "other", "least"), [(0.0, 1.0, 0.4), (1.0, 0.0, 0.1)])
def test_numpy_noise_gives_its_input_away(x, other, least) -> None:
    y = x + np.random.default_rng(2).laplace(size=N)
    assert is_reachable(y, x, 2.0**-53, 1.0, slack=1).all()
    assert (~is_reachable(y, other, 2.0**-53, 1.0, slack=1)).mean() > least


def test_the_support_attack_fails_on_dpcore() -> None:
    released = [release(x, seed) for x, seed in ((0.0, 3), (1.0, 4))]
    for target in (0.0, 1.0):
        hits = tuple(
            int((~is_reachable(y, target, 2.0**-53, 1 / EPSILON, slack=0)).sum()) for y in released
        )
        assert_private_event(hits, N, EPSILON, f"outputs impossible for {target}")


def test_every_output_of_one_input_is_an_output_of_the_other() -> None:
    shift = int(1 / RESOLUTION)
    law = _laws.discrete_laplace(Fraction(EPSILON) / (shift + N))
    bound = Fraction(math.exp(EPSILON))
    for x, seed in ((0.0, 3), (1.0, 4)):
        units = release(x, seed) / RESOLUTION
        assert (units == np.rint(units)).all()
        for unit in units[::1000].astype(int):
            here, there = law.probability(int(unit)), law.probability(int(unit) - shift)
            assert 0 < here <= bound * there
            assert 0 < there <= bound * here


def test_no_threshold_and_no_bit_tells_dpcore_inputs_apart() -> None:
    ours, theirs = release(0.0, 5), release(1.0, 6)
    for t in np.linspace(-40, 40, 41):
        hits = int((ours >= t).sum()), int((theirs >= t).sum())
        assert_private_event(hits, N, EPSILON, f"outputs of at least {t}")
    for bit in range(40):
        hits = tuple(int(((y / RESOLUTION).astype(int) >> bit & 1).sum()) for y in (ours, theirs))
        assert_private_event(hits, N, EPSILON, f"bit {bit} of the output")


def test_the_private_event_test_can_fail() -> None:
    with pytest.raises(AssertionError, match="probability 1e-06"):
        assert_private_event((1000, 0), N, EPSILON, "impossible for one input")
    with pytest.raises(AssertionError, match="probability 1e-06"):
        assert_private_event((90_000, 110_000), N, EPSILON, "too frequent")


# Haney et al.: the precision tells the input

FAR = 2.0**20


def is_finer(y: np.ndarray, grid: float) -> np.ndarray:
    return np.mod(y, grid) != 0


def test_the_precision_of_numpy_noise_gives_its_input_away() -> None:
    generator = np.random.default_rng(7)
    near, far = (x + generator.laplace(scale=FAR, size=N) for x in (0.0, FAR))
    # Below FAR / 4 a sum with FAR has lost the bits that noise alone still has.
    assert is_finer(near, 2.0**-33).mean() > 0.1
    assert not is_finer(far[np.abs(far) < FAR / 4], 2.0**-33).any()
    assert is_finer(near[np.abs(near) < FAR / 4], 2.0**-33).mean() > 0.5


@pytest.mark.parametrize("resolution", [None, 2.0**-12, 16.0])
def test_the_precision_of_dpcore_is_that_of_the_public_grid(resolution) -> None:
    grid = resolution
    if grid is None:  # the largest power of two that costs a thousandth, shared by N elements
        grid = 2.0 ** math.floor(math.log2(FAR / 1024 / N))
    low_bits = []
    for x, seed in ((0.0, 8), (FAR, 9), (math.pi * 1e5, 10)):
        y = dpcore.laplace(
            np.full(N, x),
            epsilon=1.0,
            sensitivity=FAR,
            resolution=resolution,
            noise=insecure(seed),
        )
        y = np.asarray(y)
        assert not is_finer(y, grid).any()
        assert is_finer(y, 2 * grid).any()
        low_bits.append(np.bincount((y / grid).astype(np.int64) & 15, minlength=16))
    p = stats.chi2_contingency(np.array(low_bits)).pvalue
    assert p > ALPHA, f"low bits depend on the input: p = {p:.1e}, by chance {ALPHA:.0e}"


def test_the_precision_of_dpcore_gaussians_is_that_of_the_public_grid() -> None:
    for x, seed in ((0.0, 11), (FAR, 12), (1 / 3, 13)):
        y = dpcore.gaussian(
            np.full(1000, x),
            epsilon=1.0,
            delta=1e-6,
            sensitivity=FAR,
            resolution=2.0**-6,
            noise=insecure(seed),
        )
        assert not is_finer(np.asarray(y), 2.0**-6).any()


# Casacuberta et al.: rounded sums are more sensitive

LOWER, UPPER = 1.0, 1.0 + 2.0**-50
CLAIM = UPPER - LOWER


def neighbouring_rows() -> tuple[np.ndarray, np.ndarray]:
    """Data sets of 1000 records between the bounds that differ in the first one."""
    generator = np.random.default_rng(0)
    rows = 1 + generator.integers(0, 5, (2000, 1000)) * 2.0**-52
    low, high = rows.copy(), rows.copy()
    low[:, 0], high[:, 0] = LOWER, UPPER
    return low, high


def test_float_sums_are_more_sensitive_than_claimed() -> None:
    low, high = neighbouring_rows()
    difference = high.sum(axis=1) - low.sum(axis=1)
    assert difference.max() == 128 * CLAIM


def test_float_sums_depend_on_the_order_of_records() -> None:
    x = np.random.default_rng(1).normal(size=1000)
    sums = {float(np.sum(np.random.default_rng(i).permutation(x))) for i in range(20)}
    assert len(sums) > 1


def test_integer_sums_are_as_sensitive_as_claimed() -> None:
    low, high = neighbouring_rows()
    bounds = _GridBounds(Fraction(LOWER), Fraction(UPPER), -51)
    differences = {bounds.sum(b) - bounds.sum(a) for a, b in zip(low, high, strict=True)}
    assert differences == {bounds.high - bounds.low} == {2}


@pytest.mark.parametrize(("lower", "upper"), [(0.0, 1.0), (-3.0, 5.5), (1e9, 1e9 + 1)])
@pytest.mark.parametrize("adjacency", ["replace", "add-remove"])
def test_neighbouring_sums_differ_by_the_claim_at_most(lower, upper, adjacency) -> None:
    generator = np.random.default_rng(2)
    resolution = Fraction(1, 2**12)
    reach = round(Fraction(upper) / resolution) - round(Fraction(lower) / resolution)
    if adjacency == "add-remove":
        reach = max(abs(round(Fraction(b) / resolution)) for b in (lower, upper))
    claim = reach * resolution

    def private_sum(x: np.ndarray) -> Fraction:
        noise = insecure(1).stream("sums")
        y = dpcore.bounded_sum(
            x,
            lower,
            upper,
            epsilon=1,
            adjacency=adjacency,
            resolution=float(resolution),
            noise=noise,
        )
        return Fraction(float(y))

    worst = Fraction(0)
    for _ in range(200):
        x = generator.uniform(lower - 1, upper + 1, 20)
        if adjacency == "replace":
            neighbour = x.copy()
            neighbour[generator.integers(20)] = generator.choice([-1e300, lower, upper, 1e300])
        else:
            neighbour = np.append(x, generator.choice([-1e300, lower, upper, 1e300]))
        # The noise is pinned, so that it drops out.
        worst = max(worst, abs(private_sum(neighbour) - private_sum(x)))
    assert worst <= claim
    assert worst > claim / 2


@pytest.mark.parametrize("n", [1000, 2**20 + 5])
def test_private_sums_and_means_do_not_depend_on_the_order_of_records(n) -> None:
    x = np.random.default_rng(3).normal(size=n)
    orders = [x, x[::-1], np.sort(x), np.random.default_rng(4).permutation(x)]
    for function in (dpcore.bounded_sum, dpcore.bounded_mean):
        for adjacency in ("replace", "add-remove"):
            results = {
                float(
                    function(
                        order,
                        -1,
                        1,
                        epsilon=1,
                        adjacency=adjacency,
                        noise=insecure(2).stream("order"),
                    )
                )
                for order in orders
            }
            assert len(results) == 1
