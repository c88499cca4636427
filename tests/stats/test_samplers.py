"""What comes out of the samplers, against the laws it should follow, at alpha = 1e-6 per test."""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import goodness
import numpy as np
import pytest
from goodness import (
    ALPHA,
    Law,
    assert_fits,
    assert_plausible,
    chi_square,
    fit_p_value,
    fits,
    moment_p_values,
    normal_p_value,
    serial_p_value,
)
from scipy import stats

import dpcore
from dpcore import _laws
from dpcore._laws import Digits, IntegerTable
from dpcore_ext.rng import Key, keystream

LAPLACE_SCALES = [0.05, 0.3, 1, 2.5, 10, 17, 1000, 10**6, 10**9, 2**43]
SIGMAS = [0.1, 0.5, 1, 3.7, 10, 32, 33, 100, 1000, 10**6, 10**9, 2**36]
CASES = [
    *(("discrete_laplace", scale) for scale in LAPLACE_SCALES),
    *(("geometric", scale) for scale in LAPLACE_SCALES),
    *(("rounded_gaussian", sigma) for sigma in SIGMAS),
    *(("discrete_gaussian", sigma) for sigma in SIGMAS),
]
MANY = 2_000_000
STREAMS = 10_000


def insecure(seed: int = 1) -> dpcore.Noise:
    return dpcore.Noise.insecure(seed)


def draw(name: str, parameter: float, n: int, noise: dpcore.Noise | None = None) -> np.ndarray:
    sampler = getattr(dpcore.random, name)
    return np.asarray(sampler(parameter, n, noise=insecure() if noise is None else noise))


def intended(name: str, parameter: float) -> Law:
    return getattr(goodness, name)(float(parameter))


def compiled(name: str, parameter: float) -> _laws.Digits | _laws.Rejection:
    exact = Fraction(parameter)
    return getattr(_laws, name)(1 / exact if name in ("discrete_laplace", "geometric") else exact)


def key_of(number: int) -> Key:
    return Key.from_bytes(number.to_bytes(32, "little"))


# All elements


@pytest.fixture(scope="module", params=CASES, ids=lambda case: f"{case[0]}({case[1]})")
def case(request: pytest.FixtureRequest) -> tuple[str, float, np.ndarray]:
    """A sampler, its parameter and what it draws: one sample for the tests that follow."""
    name, parameter = request.param
    return name, parameter, draw(name, parameter, MANY)


def test_all_elements_follow_the_law(case) -> None:
    name, parameter, sample = case
    assert_fits(sample, intended(name, parameter), f"{name}({parameter})")


def test_moments_are_those_of_the_law(case) -> None:
    name, parameter, sample = case
    law = intended(name, parameter)
    mean = 1 / np.expm1(1 / parameter) if name == "geometric" else 0.0
    if sample.size * law.variance < 100:
        assert np.count_nonzero(sample) < 200
        return
    p_mean, p_variance = moment_p_values(sample, law, mean)
    assert_plausible(p_mean, f"{name}({parameter}), mean")
    assert_plausible(p_variance, f"{name}({parameter}), variance")


def test_both_signs_are_alike_or_there_is_one(case) -> None:
    name, parameter, sample = case
    what = f"{name}({parameter})"
    if name == "geometric":
        assert sample.min() >= 0
        return
    positive, negative = sample[sample > 0], -sample[sample < 0]
    p = stats.binomtest(positive.size, max(1, positive.size + negative.size), 0.5).pvalue
    assert_plausible(p if positive.size or negative.size else 1.0, f"{what}, positive elements")
    edges = goodness.edges_of(intended(name, parameter), sample.size)[::7]
    counts = [np.bincount(np.searchsorted(edges, side, "right"), minlength=edges.size + 1)
              for side in (positive, negative)]  # fmt: skip
    table = np.array(counts)[:, np.sum(counts, axis=0) >= 50]
    if table.shape[1] > 1:
        assert_plausible(stats.chi2_contingency(table).pvalue, f"{what}, magnitude by sign")


@pytest.mark.parametrize("name", ["discrete_laplace", "geometric"])
def test_the_largest_scale_follows_the_law(name) -> None:
    assert_fits(draw(name, 2**44, 100_000), intended(name, 2**44), f"{name}(2**44)")


@pytest.mark.parametrize(
    ("name", "parameter"),
    [
        ("discrete_laplace", 1),
        ("discrete_laplace", 10**9),
        ("geometric", 17),
        ("rounded_gaussian", 3.7),
        ("rounded_gaussian", 1000),
        ("discrete_gaussian", 33),
    ],
)
@pytest.mark.parametrize("lag", [1, 2, 16, 31, 32, 2048])
def test_elements_of_one_stream_are_uncorrelated(name, parameter, lag) -> None:
    p = serial_p_value(draw(name, parameter, 2_000_000), lag)
    assert_plausible(p, f"{name}({parameter}), correlation at lag {lag}")


def test_neighbours_are_jointly_independent() -> None:
    sample = np.clip(draw("discrete_laplace", 1, MANY), -3, 3) + 3
    pairs = np.bincount(sample[0::2] * 7 + sample[1::2], minlength=49).reshape(7, 7)
    assert_plausible(stats.chi2_contingency(pairs).pvalue, "discrete_laplace(1), neighbours")


def test_streams_are_uncorrelated() -> None:
    noise = insecure(3)
    rows = [draw("discrete_laplace", 10, 500_000, noise.stream("row", i)) for i in range(6)]
    matrix = np.corrcoef(rows)
    for i, j in zip(*np.triu_indices(6, 1), strict=True):
        p = normal_p_value(matrix[i, j] * np.sqrt(500_000))
        assert_plausible(p, f"correlation of pinned streams {i} and {j}")


# First and last elements of many calls

SHORT_CASES = [
    ("discrete_laplace", 1),
    ("discrete_laplace", 10**9),
    ("geometric", 17),
    ("rounded_gaussian", 3.7),
    ("rounded_gaussian", 40),
    ("discrete_gaussian", 1000),
]


def ends_of_calls(
    law: _laws.Digits | _laws.Rejection, n: int, streams: int = STREAMS
) -> tuple[np.ndarray, np.ndarray]:
    """First and last elements of many calls of n elements, each with a key of its own."""
    first, last = np.empty(streams, np.int64), np.empty(streams, np.int64)
    buffer = np.empty(n, np.int64)
    for i in range(streams):
        law.native.add_to(key_of(i), 0, None, buffer)
        first[i], last[i] = buffer[0], buffer[-1]
    return first, last


@pytest.mark.parametrize(("name", "parameter"), SHORT_CASES)
@pytest.mark.parametrize("n", [1, 33, 2049])
def test_first_and_last_elements_follow_the_law(name, parameter, n) -> None:
    first, last = ends_of_calls(compiled(name, parameter), n)
    law = intended(name, parameter)
    assert_fits(first, law, f"{name}({parameter}), first of {n}")
    assert_fits(last, law, f"{name}({parameter}), last of {n}")


@pytest.mark.parametrize("n", [1, 33])
def test_first_and_last_elements_of_pinned_streams_follow_the_law(n) -> None:
    noise = insecure(4)
    ends = [
        np.asarray(dpcore.random.discrete_laplace(2.5, n, noise=noise.stream(i)))[[0, -1]]
        for i in range(5000)
    ]
    first, last = np.array(ends).T
    assert_fits(first, goodness.discrete_laplace(2.5), f"pinned streams, first of {n}")
    assert_fits(last, goodness.discrete_laplace(2.5), f"pinned streams, last of {n}")


@pytest.mark.parametrize(("name", "parameter"), SHORT_CASES)
def test_every_element_is_the_same_in_whatever_call_it_is_drawn(name, parameter) -> None:
    law, key = compiled(name, parameter), key_of(8)
    whole = np.empty(70_000, np.int64)
    law.native.add_to(key, 0, None, whole)
    for size, start in ((1, 2048), (31, 65_000), (32, 32), (33, 2047), (2049, 1), (4097, 60_001)):
        part = np.empty(size, np.int64)
        law.native.add_to(key, start, None, part)
        np.testing.assert_array_equal(part, whole[start : start + size])


# The two paths of a table: settled by 16 bits, or refined to 256


def outcomes_of(table: IntegerTable, cell: int) -> tuple[int, list[float]]:
    """First outcome possible with this 16-bit prefix, and the probabilities of those from there."""
    begin, end = cell << 240, (cell + 1) << 240
    inside = [t for t in table.thresholds if begin < t < end]
    first = sum(t <= begin for t in table.thresholds)
    edges = [begin, *inside, end]
    return first, [(edges[i + 1] - edges[i]) / 2**240 for i in range(len(edges) - 1)]


@pytest.mark.parametrize(
    ("name", "parameter"),
    [
        ("discrete_laplace", 1),
        ("discrete_laplace", 10),
        ("geometric", 2.5),
        ("rounded_gaussian", 3.7),
    ],
)
def test_refined_elements_follow_their_part_of_the_law(name, parameter) -> None:
    law, key, n = compiled(name, parameter), key_of(11), 10_000_000
    assert isinstance(law, Digits)
    drawn, stream = np.empty(n, np.int64), np.empty(2 * n, np.uint8)
    law.native.add_to(key, 0, None, drawn)
    keystream(key, 0, 0, stream)
    prefixes = stream.view("<u2")
    guide = law.top.native.guide[prefixes]
    is_open = guide == np.iinfo(np.int16).min
    # The guide settles an element without further bits.
    np.testing.assert_array_equal(drawn[~is_open], guide[~is_open])
    refined, their_prefixes = drawn[is_open], prefixes[is_open]
    parts = []
    for cell in np.unique(their_prefixes):
        first, probabilities = outcomes_of(law.top, int(cell))
        outcome = refined[their_prefixes == cell] - law.top.first - first
        # Only a tail can lead beyond the outcomes of a cell.
        seen = np.bincount(
            np.clip(outcome, 0, len(probabilities) - 1), minlength=len(probabilities)
        )
        parts.append((seen, outcome.size * np.array(probabilities)))
    assert sum(len(observed) > 1 for observed, _ in parts) > 10
    assert_plausible(chi_square(*parts), f"{name}({parameter}), refined elements")


def test_open_cells_are_as_rare_as_thresholds() -> None:
    law = _laws.discrete_laplace(Fraction(1, 10))
    is_open = law.top.native.guide == np.iinfo(np.int16).min
    cells = {t >> 240 for t in law.top.thresholds if t % (1 << 240)}
    assert is_open.sum() == len(cells)


# Large scales


def test_low_bytes_of_large_scales_are_uniform() -> None:
    for name in ("discrete_laplace", "geometric", "rounded_gaussian", "discrete_gaussian"):
        sample = draw(name, 10**9, MANY)
        for shift in (0, 8):
            counts = np.bincount(sample >> shift & 255, minlength=256)
            p = chi_square((counts, np.full(256, MANY / 256)))
            assert_plausible(p, f"{name}(1e9), bits {shift} to {shift + 7}")


def digit_values(magnitudes: np.ndarray, law: Digits) -> list[np.ndarray]:
    values, shift = [], 0
    for _, bits in law.digits:
        values.append(magnitudes >> shift & (1 << bits) - 1)
        shift += bits
    return values


@pytest.mark.parametrize("scale", [1000, 10**6, 10**9])
def test_digits_follow_their_laws_and_are_independent(scale) -> None:
    law = compiled("geometric", scale)
    sample = draw("geometric", scale, 2 * MANY)
    values, expected, shift = digit_values(sample, law), [], 0
    for d, (_, bits) in enumerate(law.digits):
        weights = np.exp(-np.arange(1 << bits) * 2.0**shift / scale)
        expected.append(weights / weights.sum())
        shift += bits
        counts = np.bincount(values[d], minlength=1 << bits)
        p = chi_square((counts, sample.size * expected[d]))
        assert_plausible(p, f"geometric({scale}), digit {d}")
    top = np.minimum(sample >> shift, 63)
    weights = -np.expm1(-(2.0**shift) / scale) * np.exp(-np.arange(64) * 2.0**shift / scale)
    weights[63] = np.exp(-63 * 2.0**shift / scale)
    values, expected = [*values, top], [*expected, weights]
    for i in range(len(values)):
        for j in range(i):
            joint = values[i] * expected[j].size + values[j]
            counts = np.bincount(joint, minlength=expected[i].size * expected[j].size)
            p = chi_square((counts, sample.size * np.outer(expected[i], expected[j])))
            assert_plausible(p, f"geometric({scale}), digits {i} and {j} together")


def test_sign_is_independent_of_low_digits() -> None:
    sample = draw("discrete_laplace", 10**9, MANY)
    low = np.abs(sample) - 1 & 63
    table = np.array([np.bincount(low[side], minlength=64) for side in (sample > 0, sample < 0)])
    assert_plausible(stats.chi2_contingency(table).pvalue, "discrete_laplace(1e9), sign and digit")


@pytest.mark.parametrize("scale", [10**6, 10**9, 2**36])
def test_large_scales_are_continuous_laws(scale) -> None:
    for name, law in (("rounded_gaussian", "norm"), ("discrete_gaussian", "norm"),
                      ("discrete_laplace", "laplace"), ("geometric", "expon")):  # fmt: skip
        sample = draw(name, scale, 500_000, insecure(6)) / scale
        p = stats.kstest(sample, law).pvalue
        assert_plausible(p, f"{name}({scale}), Kolmogorov-Smirnov against {law}")


# Uniform integers and coins


@pytest.mark.parametrize("p", [Fraction(1, 3), 0.5, 0.001, Fraction(65535, 65536), 1e-6])
def test_bernoulli_has_its_probability(p) -> None:
    seen = int(np.asarray(dpcore.random.bernoulli(p, MANY, noise=insecure())).sum())
    result = stats.binomtest(seen, MANY, float(p)).pvalue
    assert_plausible(result, f"bernoulli({p})")


@pytest.mark.parametrize("p", [0, 1])
def test_a_certain_coin_is_certain(p) -> None:
    assert (np.asarray(dpcore.random.bernoulli(p, 100_000)) == p).all()


@pytest.mark.parametrize("bound", [2, 3, 7, 256, 1000])
@pytest.mark.parametrize("low", [0, -5])
def test_small_ranges_are_uniform(bound, low) -> None:
    sample = np.asarray(dpcore.random.integers(low, low + bound, MANY, noise=insecure())) - low
    assert sample.min() == 0
    assert sample.max() == bound - 1
    p = chi_square((np.bincount(sample, minlength=bound), np.full(bound, MANY / bound)))
    assert_plausible(p, f"integers of {bound} values")
    assert_plausible(serial_p_value(sample, 1), f"integers of {bound} values, neighbours")


@pytest.mark.parametrize("bound", [2**63 + 1, 3 * 2**62, 2**64 - 1, 2**64, 2**62 + 2**61])
def test_wide_ranges_are_uniform(bound) -> None:
    """A remainder, or Lemire's product without its refusals, would favour some thirds or halves."""
    low = -(2**63)
    sample = np.asarray(dpcore.random.integers(low, low + bound, 1_000_000, noise=insecure()))
    offsets = sample.astype(np.uint64) + np.uint64(2**63)
    assert int(offsets.max()) < bound
    edges = np.array([bound * k // 12 for k in range(1, 12)], np.uint64)
    counts = np.bincount(np.searchsorted(edges, offsets, "right"), minlength=12)
    assert_plausible(chi_square((counts, np.full(12, 1e6 / 12))), f"integers below {bound}")
    for shift in (0, 8, 32):
        low_bits = (offsets >> np.uint64(shift) & np.uint64(255)).astype(np.int64)
        p = chi_square((np.bincount(low_bits, minlength=256), np.full(256, 1e6 / 256)))
        assert_plausible(p, f"integers below {bound}, bits from {shift}")


def test_a_range_of_one_value_has_it() -> None:
    assert (np.asarray(dpcore.random.integers(7, 8, 1000)) == 7).all()


# Releases


def test_noise_of_integer_laplace_follows_the_law() -> None:
    x = np.random.default_rng(1).integers(-(10**9), 10**9, MANY)
    y = np.asarray(dpcore.laplace(x, epsilon=0.5, sensitivity=3, noise=insecure()))
    assert_fits(y - x, goodness.discrete_laplace(6), "dpcore.laplace of integers")
    p = normal_p_value(np.corrcoef(x, y - x)[0, 1] * np.sqrt(MANY))
    assert_plausible(p, "dpcore.laplace, correlation of data and noise")


def test_noise_of_float_laplace_follows_the_law() -> None:
    x = np.random.default_rng(2).normal(size=1_000_000)
    resolution = 2.0**-3
    y = dpcore.laplace(x, epsilon=1, sensitivity=10**6, resolution=resolution, noise=insecure())
    units = (np.asarray(y) - np.rint(x / resolution) * resolution) / resolution
    law = goodness.discrete_laplace(10**6 / resolution + 10**6)
    assert_fits(units.astype(np.int64), law, "dpcore.laplace of floats")


@pytest.mark.parametrize("sensitivity", [1, 50])
def test_noise_of_integer_gaussian_follows_the_law(sensitivity) -> None:
    x = np.random.default_rng(3).integers(-(10**9), 10**9, MANY)
    y = dpcore.gaussian(x, epsilon=1, delta=1e-5, sensitivity=sensitivity, noise=insecure())
    law = goodness.rounded_gaussian(3.730631634815949 * sensitivity)
    assert_fits(np.asarray(y) - x, law, f"dpcore.gaussian of integers, sensitivity {sensitivity}")


def test_noise_of_float_gaussian_follows_the_law() -> None:
    x = np.random.default_rng(4).normal(size=MANY)
    y = dpcore.gaussian(x, sigma=2, sensitivity=1, resolution=0.25, noise=insecure())
    units = (np.asarray(y) - np.rint(x * 4) / 4) * 4
    assert_fits(units.astype(np.int64), goodness.rounded_gaussian(8), "dpcore.gaussian of floats")


@pytest.mark.parametrize(("adjacency", "scale"), [("replace", 2.0), ("add-remove", 1.0)])
def test_noise_of_a_histogram_follows_the_law(adjacency, scale) -> None:
    labels = np.random.default_rng(5).integers(0, 1_000_000, 300_000)
    counts = dpcore.histogram(labels, 1_000_000, epsilon=1.0, adjacency=adjacency, noise=insecure())
    noise = np.asarray(counts) - np.bincount(labels, minlength=1_000_000)
    assert_fits(noise, goodness.discrete_laplace(scale), f"dpcore.histogram, {adjacency}")


def test_noise_of_many_sums_and_means_follows_the_law() -> None:
    noise, n = insecure(7), 4000
    x = np.full(10, 0.5)
    sums = [
        float(dpcore.bounded_sum(x, 0, 1, epsilon=1, resolution=0.25, noise=noise))
        for _ in range(n)
    ]
    assert_fits(
        ((np.array(sums) - 5) * 4).astype(np.int64), goodness.discrete_laplace(4), "bounded_sum"
    )
    means = [
        float(dpcore.bounded_mean(x, -100, 100, epsilon=500, resolution=0.25, noise=noise))
        for _ in range(n)
    ]
    units = np.rint((np.array(means) - 0.5) * 40).astype(np.int64)
    assert_fits(units, goodness.discrete_laplace(800 / 500), "bounded_mean")


# The tests above can fail


def laplace_with(top: IntegerTable, scale: float) -> np.ndarray:
    law = compiled("discrete_laplace", scale)
    sample = np.empty(MANY, np.int64)
    Digits(top, law.tail, law.digits, symmetric=True).native.add_to(key_of(1), 0, None, sample)
    return sample


@pytest.mark.parametrize("scale", [1, 17])
@pytest.mark.parametrize("offset", [-3, -1, 0, 1])
def test_one_threshold_wrong_by_a_hundredth_of_the_mass_is_seen(scale, offset) -> None:
    right = compiled("discrete_laplace", scale).top
    thresholds = list(right.thresholds)
    thresholds[-right.first + offset] += (1 << 256) // 100
    assert thresholds == sorted(thresholds)
    wrong = replace(right, thresholds=tuple(thresholds))
    assert fits(laplace_with(right, scale), goodness.discrete_laplace(scale))
    assert not fits(laplace_with(wrong, scale), goodness.discrete_laplace(scale))


@pytest.mark.parametrize("scale", [1, 10])
def test_a_sign_that_is_off_by_one_is_seen(scale) -> None:
    right = draw("discrete_laplace", scale, MANY)
    law = goodness.discrete_laplace(scale)
    assert fits(right, law)
    magnitude, sign = draw("geometric", scale, MANY), draw("rounded_gaussian", 1, MANY) < 0
    negative_towards_zero = right + (right < 0)
    zero_twice = np.where(sign, -magnitude, magnitude)
    complement_for_minus = np.where(sign, ~magnitude, magnitude)
    for wrong in (negative_towards_zero, zero_twice, complement_for_minus):
        assert not fits(wrong, law)


def test_a_last_element_without_noise_is_seen() -> None:
    def without_last(law: Digits) -> Callable[[Key, int, None, np.ndarray], None]:
        def add_to(key: Key, start: int, x: None, out: np.ndarray) -> None:
            law.native.add_to(key, start, x, out)
            out[-1] = 0

        return add_to

    law = compiled("discrete_laplace", 2.5)
    mutant = type(
        "Mutant", (), {"native": type("N", (), {"add_to": staticmethod(without_last(law))})}
    )
    first, last = ends_of_calls(mutant, 33, 2000)
    assert fits(first, goodness.discrete_laplace(2.5))
    assert not fits(last, goodness.discrete_laplace(2.5))


def test_a_scale_wrong_by_a_hundredth_is_seen() -> None:
    for name, parameter in (("discrete_laplace", 1), ("geometric", 1000), ("rounded_gaussian", 40)):
        assert not fits(draw(name, parameter, MANY), intended(name, parameter * 1.01))


def test_a_discrete_gaussian_is_told_from_a_rounded_one() -> None:
    assert fit_p_value(draw("discrete_gaussian", 1, MANY), goodness.rounded_gaussian(1)) < ALPHA
    assert fit_p_value(draw("rounded_gaussian", 1, MANY), goodness.discrete_gaussian(1)) < ALPHA


def test_a_cut_tail_is_seen() -> None:
    sample = draw("discrete_laplace", 1, MANY)
    assert not fits(np.clip(sample, -9, 9), goodness.discrete_laplace(1))
    assert not fits(np.append(sample[:-1], 60), goodness.discrete_laplace(1))


def test_repeated_noise_is_seen() -> None:
    sample = draw("discrete_laplace", 10, 1_000_000)
    repeated = np.repeat(sample[:500_000], 2)
    assert serial_p_value(repeated, 1) < ALPHA
    assert serial_p_value(np.where(np.arange(10**6) % 2, repeated, -repeated), 1) < ALPHA


def test_a_remainder_is_told_from_a_uniform_integer() -> None:
    words = np.random.default_rng(9).integers(0, 2**64, 1_000_000, dtype=np.uint64)
    biased = words % np.uint64(3 * 2**62)
    counts = np.bincount((biased >> np.uint64(62)).astype(np.int64), minlength=3)
    assert chi_square((counts, np.full(3, 1e6 / 3))) < ALPHA
