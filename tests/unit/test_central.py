"""Laplace and Gaussian releases: the law behind each call, the grid, dtypes, shapes, refusals."""

import math
from fractions import Fraction

import numpy as np
import pytest
from releases import (
    assert_variance,
    floor_power_of_two,
    insecure,
    laplace_variance,
    laws_used,
    multiples,
    pinned,
)

import dpcore
from dpcore import _laws, central
from dpcore.errors import DataError, DPCoreError, ParameterError

SIGMA_ONE = 3.730631634815949  # for epsilon = 1, delta = 1e-5 and sensitivity 1
LAPLACE = {"epsilon": 1.0, "sensitivity": 1}
GAUSSIAN = {"epsilon": 1.0, "delta": 1e-5, "sensitivity": 1}
RELEASES = [(dpcore.laplace, LAPLACE), (dpcore.gaussian, GAUSSIAN)]
over_releases = pytest.mark.parametrize(
    ("release", "parameters"), RELEASES, ids=["laplace", "gaussian"]
)


# The law


@pytest.mark.parametrize(("epsilon", "sensitivity"), [(1, 1), (0.25, 3), (2.0, 0.5), (1e-3, 10)])
def test_integers_get_the_laplace_law_of_epsilon_over_sensitivity(
    monkeypatch, epsilon, sensitivity
) -> None:
    (law,) = laws_used(
        monkeypatch,
        central,
        lambda: dpcore.laplace([1, 2], epsilon=epsilon, sensitivity=sensitivity),
    )
    assert law == _laws.discrete_laplace(Fraction(epsilon) / Fraction(sensitivity))


@pytest.mark.parametrize(("epsilon", "sensitivity"), [(1, 1), (0.1, 2), (0.01, 100)])
def test_laplace_noise_has_the_variance_of_its_scale(epsilon, sensitivity) -> None:
    y = dpcore.laplace(
        np.zeros(1_000_000, int), epsilon=epsilon, sensitivity=sensitivity, noise=insecure()
    )
    variance = laplace_variance(sensitivity / epsilon)
    assert_variance(y, variance, kurtosis=6 + 1 / variance)


@pytest.mark.parametrize("sensitivity", [1, 8, 0.5, 100])
def test_gaussian_noise_has_the_analytic_variance(sensitivity) -> None:
    parameters = GAUSSIAN | {"sensitivity": sensitivity}
    y = dpcore.gaussian(np.zeros(1_000_000, int), noise=insecure(), **parameters)
    assert_variance(y, (SIGMA_ONE * sensitivity) ** 2 + 1 / 12, kurtosis=3)


@pytest.mark.parametrize("sensitivity", [1, 3, Fraction(1, 3), 0.1])
def test_integers_get_the_rounded_gaussian_of_the_analytic_sigma(monkeypatch, sensitivity) -> None:
    parameters = GAUSSIAN | {"sensitivity": sensitivity}
    (law,) = laws_used(monkeypatch, central, lambda: dpcore.gaussian([1], **parameters))
    sigma = Fraction(dpcore.gaussian_sigma(1.0, 1e-5)) * Fraction(sensitivity)
    # What is taken off delta for the sampler's accuracy moves sigma by a few ulps at most.
    above = _laws.rounded_gaussian(sigma * (1 + Fraction(1, 1 << 49)))
    below = _laws.rounded_gaussian(sigma)
    assert float(sigma) == pytest.approx(SIGMA_ONE * float(sensitivity), rel=1e-12)
    assert below.probability(0) >= law.probability(0) >= above.probability(0)


def test_a_rational_epsilon_is_not_rounded_up(monkeypatch) -> None:
    epsilon, delta = Fraction(493, 891), 1e-6
    assert Fraction(float(epsilon)) > epsilon
    (law,) = laws_used(
        monkeypatch,
        central,
        lambda: dpcore.gaussian([1], sensitivity=1, epsilon=epsilon, delta=delta),
    )
    least = _laws.rounded_gaussian(Fraction(dpcore.gaussian_sigma(epsilon, delta)))
    assert law.probability(0) <= least.probability(0)


def test_a_given_sigma_is_taken_as_it_is(monkeypatch) -> None:
    (law,) = laws_used(monkeypatch, central, lambda: dpcore.gaussian([1], sensitivity=7, sigma=2.5))
    assert law == _laws.rounded_gaussian(Fraction(5, 2))
    (law,) = laws_used(
        monkeypatch,
        central,
        lambda: dpcore.gaussian([1.0], sensitivity=7, sigma=2.5, resolution=0.5),
    )
    assert law == _laws.rounded_gaussian(Fraction(5))


@pytest.mark.parametrize("n", [1, 4, 100])
@pytest.mark.parametrize("resolution", [1.0, 0.25, 2.0**-10])
@pytest.mark.parametrize("sensitivity", [1.0, 0.3, 2.75])
def test_rounding_enlarges_the_l1_sensitivity_by_a_unit_per_element(
    monkeypatch, n, resolution, sensitivity
) -> None:
    (law,) = laws_used(
        monkeypatch,
        central,
        lambda: dpcore.laplace(
            np.zeros(n), epsilon=0.5, sensitivity=sensitivity, resolution=resolution
        ),
    )
    units = Fraction(sensitivity) // Fraction(resolution) + n
    assert law == _laws.discrete_laplace(Fraction(1, 2) / units)


@pytest.mark.parametrize(("n", "root"), [(1, 1), (4, 2), (5, 3), (100, 10), (101, 11)])
def test_rounding_enlarges_the_l2_sensitivity_by_the_root_of_the_size(monkeypatch, n, root) -> None:
    parameters = GAUSSIAN | {"epsilon": 4.0, "resolution": 0.5}
    (law,) = laws_used(monkeypatch, central, lambda: dpcore.gaussian(np.zeros(n), **parameters))
    reserved = 1e-5 - 2.0**-78 * (1 + math.exp(4.0))
    sigma = Fraction(dpcore.gaussian_sigma(4.0, math.nextafter(reserved, 0)))
    assert law == _laws.rounded_gaussian(sigma * (2 + root))


def test_a_part_gets_the_law_of_the_whole(monkeypatch) -> None:
    whole, part = laws_used(
        monkeypatch,
        central,
        lambda: [
            dpcore.laplace(np.zeros(10), **LAPLACE),
            dpcore.laplace(np.zeros(3), **LAPLACE, dimension=10, start=4),
        ],
    )
    assert whole == part


# The grid


@pytest.mark.parametrize("n", [50, 1000, 1025])
@pytest.mark.parametrize("sensitivity", [1.0, 3.0, 0.01])
def test_the_default_grid_costs_a_thousandth_of_the_sensitivity(n, sensitivity) -> None:
    y = dpcore.laplace(np.zeros(n), epsilon=1, sensitivity=sensitivity, noise=insecure())
    assert multiples(y, floor_power_of_two(Fraction(sensitivity) / 1024 / n))
    y = dpcore.gaussian(np.zeros(n), sensitivity=sensitivity, epsilon=1, delta=1e-5,
                        noise=insecure())  # fmt: skip
    root = math.isqrt(n - 1) + 1
    assert multiples(y, floor_power_of_two(Fraction(sensitivity) / 1024 / root))


def test_the_default_grid_is_coarser_where_noise_is_large() -> None:
    y = dpcore.laplace(np.zeros(50), epsilon=1e-11, sensitivity=1.0, noise=insecure())
    assert multiples(y, floor_power_of_two(Fraction(1) / Fraction(1e-11) / 2**40))
    y = dpcore.gaussian(np.zeros(50), sigma=1e9, sensitivity=1.0, noise=insecure())
    assert multiples(y, floor_power_of_two(1e9 / 2**34))


@over_releases
@pytest.mark.parametrize("resolution", [2.0**-30, 0.125, 1.0, 64.0])
def test_outputs_are_multiples_of_the_resolution(release, parameters, resolution) -> None:
    x = np.random.default_rng(1).normal(scale=1000, size=500)
    y = release(x, noise=insecure(), resolution=resolution, **parameters)
    assert multiples(y, resolution)
    assert np.asarray(y).dtype == np.float64


@over_releases
def test_rounding_is_to_the_nearest_unit_ties_to_even(monkeypatch, release, parameters) -> None:
    results = []
    x = np.array([0.5, 1.5, -0.5, 2.5, 0.49, -1.51])
    laws_used(
        monkeypatch, central, lambda: results.append(release(x, resolution=1.0, **parameters))
    )
    np.testing.assert_array_equal(results[0], [0, 2, 0, 2, 0, -2])


def test_noise_of_floats_is_centred_on_them() -> None:
    x = np.full(1_000_000, 12345.678)
    y = np.asarray(dpcore.gaussian(x, sigma=3.0, sensitivity=1, noise=insecure()))
    assert_variance(y - x, 9.0, kurtosis=3)
    assert abs(y.mean() - x[0]) < 5 * 3 / 1000


# Dtypes, shapes, outputs


@over_releases
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64",
                                   "uint64"])  # fmt: skip
def test_integers_of_every_kind_become_int64(release, parameters, dtype) -> None:
    x = np.arange(50, dtype=dtype)
    y = np.asarray(release(x, noise=pinned(), **parameters))
    assert y.dtype == np.int64
    np.testing.assert_array_equal(y, release(x.astype(np.int64), noise=pinned(), **parameters))


@over_releases
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_floats_keep_their_dtype(release, parameters, dtype) -> None:
    x = np.linspace(-5, 5, 40).astype(dtype)
    y = np.asarray(release(x, noise=pinned(), **parameters))
    assert y.dtype == dtype
    wide = np.asarray(release(x.astype(np.float64), noise=pinned(), **parameters))
    np.testing.assert_array_equal(y, wide.astype(dtype))


@over_releases
def test_numbers_give_numbers(release, parameters) -> None:
    assert isinstance(release(3, **parameters), np.int64)
    assert type(release(3.5, **parameters)) is np.float64
    assert type(release(np.float32(3.5), **parameters)) is np.float32
    assert np.shape(release(3, noise=insecure(), **parameters)) == ()


@over_releases
@pytest.mark.parametrize("shape", [(1,), (7,), (3, 4), (2, 3, 5), (1, 1)])
@pytest.mark.parametrize("dtype", [int, float])
def test_shape_does_not_matter(release, parameters, shape, dtype) -> None:
    x = np.arange(math.prod(shape)).reshape(shape).astype(dtype)
    y = np.asarray(release(x, noise=pinned(), **parameters))
    assert y.shape == shape
    flat = np.asarray(release(x.ravel(), noise=pinned(), **parameters))
    np.testing.assert_array_equal(y.ravel(), flat)
    turned = release(np.asfortranarray(x), noise=pinned(), **parameters)
    np.testing.assert_array_equal(turned, y)


@over_releases
@pytest.mark.parametrize("dtype", [np.int64, np.float64])
def test_out_receives_the_result_and_may_be_the_data(release, parameters, dtype) -> None:
    x = np.arange(100).astype(dtype)
    expected = np.asarray(release(x, noise=pinned(), **parameters))
    out = np.empty_like(x)
    assert np.shares_memory(release(x, noise=pinned(), out=out, **parameters), out)
    np.testing.assert_array_equal(out, expected)
    release(x, noise=pinned(), out=x, **parameters)
    np.testing.assert_array_equal(x, expected)


@over_releases
@pytest.mark.parametrize("dtype", [np.int64, np.float64])
@pytest.mark.parametrize("shift", [-3, 1, 50])
def test_out_may_overlap_the_data(release, parameters, dtype, shift) -> None:
    buffer = np.arange(3000).astype(dtype)
    begin = max(0, -shift)
    x, out = buffer[begin : begin + 2900], buffer[begin + shift : begin + shift + 2900]
    expected = np.asarray(release(x.copy(), noise=pinned(), **parameters))
    release(x, noise=pinned(), out=out, **parameters)
    np.testing.assert_array_equal(out, expected)


@over_releases
def test_a_refusal_leaves_out_untouched(release, parameters) -> None:
    x = np.array([1.0, 2.0, math.nan])
    with pytest.raises(DataError):
        release(x, out=x, **parameters)
    np.testing.assert_array_equal(x, [1.0, 2.0, math.nan])


@over_releases
@pytest.mark.parametrize("dtype", [np.int64, np.float64])
def test_parts_make_the_whole(release, parameters, dtype) -> None:
    x = (np.arange(5000) * 3).astype(dtype)
    extra = {} if dtype is np.int64 else {"dimension": 5000, "resolution": 2.0**-4}
    whole = np.asarray(release(x, noise=pinned(), **extra, **parameters))
    for begin, end in ((0, 1), (1, 34), (31, 2080), (2048, 5000), (4999, 5000)):
        part = release(x[begin:end], noise=pinned(), start=begin, **extra, **parameters)
        np.testing.assert_array_equal(part, whole[begin:end])


@over_releases
def test_threads_do_not_matter(release, parameters) -> None:
    x = np.arange(1_200_000)
    results = []
    for n_threads in (1, 2, 3):
        dpcore.set_num_threads(n_threads)
        try:
            results.append(np.asarray(release(x, noise=pinned(), **parameters)))
        finally:
            dpcore.set_num_threads(None)
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])


def test_data_are_not_changed() -> None:
    for x in (np.arange(10), np.linspace(0, 1, 10)):
        before = x.copy()
        dpcore.laplace(x, **LAPLACE)
        dpcore.gaussian(x, **GAUSSIAN)
        np.testing.assert_array_equal(x, before)


# Sources of noise


def test_releases_without_a_stream_never_share_noise() -> None:
    x = np.zeros(100, int)
    noise = dpcore.Noise.from_key(bytes(32))
    results = [dpcore.laplace(x, epsilon=0.01, sensitivity=1, noise=noise) for _ in range(3)]
    results += [dpcore.laplace(x, epsilon=0.01, sensitivity=1) for _ in range(3)]
    assert len({tuple(r) for r in results}) == 6


def test_insecure_noise_depends_on_the_seed_and_the_release() -> None:
    def releases(seed: int) -> list[tuple[int, ...]]:
        noise = insecure(seed)
        return [
            tuple(dpcore.laplace(np.zeros(50, int), epsilon=0.1, sensitivity=1, noise=noise))
            for _ in range(2)
        ]

    assert releases(1) == releases(1)
    assert len({*releases(1), *releases(2)}) == 4


def test_kinds_and_levels_of_noise_on_one_pinned_stream_are_unrelated() -> None:
    x = np.zeros(200, int)
    kinds = [
        dpcore.laplace(x, epsilon=0.01, sensitivity=1, noise=pinned()),
        dpcore.laplace(x, epsilon=0.02, sensitivity=1, noise=pinned()),
        dpcore.laplace(x * 1.0, epsilon=0.01, sensitivity=1, resolution=1.0, noise=pinned()),
        dpcore.gaussian(x, sigma=100, sensitivity=1, noise=pinned()),
        dpcore.gaussian(x * 1.0, sigma=100, sensitivity=1, resolution=1.0, noise=pinned()),
        dpcore.gaussian(x, sigma=101, sensitivity=1, noise=pinned()),
        dpcore.histogram([0], 200, epsilon=0.02, noise=pinned()),
        dpcore.random.discrete_laplace(100, 200, noise=pinned()),
    ]
    correlation = np.corrcoef([np.asarray(kind) for kind in kinds])
    np.fill_diagonal(correlation, 0)
    # A correlation of 0.45 among 200 pairs of independent values: once in 10**10.
    assert np.abs(correlation).max() < 0.45


@over_releases
@pytest.mark.parametrize("x", [3, 3.5, [1, 2], np.zeros((2, 3))], ids=str)
def test_results_of_insecure_noise_are_marked(release, parameters, x) -> None:
    y = release(x, noise=insecure(), **parameters)
    assert isinstance(y, dpcore.NotPrivateArray)
    assert y.private is False
    assert "not private" in repr(y)
    assert not isinstance(release(x, **parameters), dpcore.NotPrivateArray)


def test_marks_survive_arithmetic_and_slicing() -> None:
    y = dpcore.laplace(np.arange(12), **LAPLACE, noise=insecure())
    for derived in (y + 1, 2 * y, y[2:5], y[::2], y.reshape(3, 4), y.reshape(3, 4)[0], y.T, -y,
                    y.astype(float), np.sqrt(abs(y)), y > 3, y[[1, 2]], y.copy(), y.sum(),
                    y.mean(), np.maximum(y, 0), y / np.arange(1, 13), np.clip(y, 0, 5),
                    y + np.zeros(12), np.zeros(12) + y):  # fmt: skip
        assert isinstance(derived, dpcore.NotPrivateArray)
        assert derived.private is False
    assert type(np.asarray(y)) is np.ndarray


def test_results_of_insecure_noise_in_out_are_marked() -> None:
    out = np.zeros(3, np.int64)
    y = dpcore.laplace([1, 2, 3], **LAPLACE, noise=insecure(), out=out)
    assert isinstance(y, dpcore.NotPrivateArray)
    assert dpcore.laplace([1, 2, 3], **LAPLACE, out=out) is out


@pytest.mark.parametrize("join", [np.concatenate, np.stack, np.hstack])
def test_marks_survive_joining(join) -> None:
    y = dpcore.laplace([1, 2, 3], **LAPLACE, noise=insecure())
    assert isinstance(join([y, y]), dpcore.NotPrivateArray)


# Refusals


@over_releases
@pytest.mark.parametrize("name", ["epsilon", "sensitivity"])
@pytest.mark.parametrize("bad", [0, -1.25, math.nan, math.inf, "1", None, True, 1j])
def test_bad_losses_and_sensitivities_are_refused(release, parameters, name, bad) -> None:
    with pytest.raises(ParameterError, match=name) as caught:
        release([1, 2], **(parameters | {name: bad}))
    assert "1.25" not in str(caught.value)


@pytest.mark.parametrize("delta", [0, 1, -0.1, 1.5, math.nan, "x", 1e-30])
def test_bad_deltas_are_refused(delta) -> None:
    with pytest.raises(ParameterError, match="delta"):
        dpcore.gaussian([1], sensitivity=1, epsilon=1, delta=delta)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"epsilon": 1.0},
        {"delta": 1e-5},
        {"epsilon": 1.0, "sigma": 2.0},
        {"delta": 1e-5, "sigma": 2.0},
        {"epsilon": 1.0, "delta": 1e-5, "sigma": 2.0},
        {"sigma": 0},
        {"sigma": -1},
        {"sigma": 1e-4},
        {"sigma": 1e11},
    ],
    ids=str,
)
def test_gaussian_takes_epsilon_and_delta_or_sigma(given) -> None:
    with pytest.raises(ParameterError):
        dpcore.gaussian([1], sensitivity=1, **given)


@over_releases
@pytest.mark.parametrize("resolution", [0, -0.5, 3.0, 0.3, math.inf, "1"])
def test_the_resolution_is_a_power_of_two(release, parameters, resolution) -> None:
    with pytest.raises(ParameterError, match="resolution"):
        release([1.0], resolution=resolution, **parameters)


@over_releases
@pytest.mark.parametrize("option", [{"resolution": 1.0}, {"dimension": 5}])
def test_integers_have_no_grid(release, parameters, option) -> None:
    with pytest.raises(ParameterError, match=next(iter(option))):
        release([1, 2], **option, **parameters)


@over_releases
@pytest.mark.parametrize("option", [{"start": 1}, {"dimension": 1}, {"dimension": 2, "start": 1},
                                    {"dimension": 0}, {"dimension": 2.0}], ids=str)  # fmt: skip
def test_the_dimension_covers_the_release(release, parameters, option) -> None:
    with pytest.raises(ParameterError, match="dimension"):
        release([1.0, 2.0], **option, **parameters)


@over_releases
@pytest.mark.parametrize("start", [-1, 1.5, "0", 2**62, True])
def test_bad_starts_are_refused(release, parameters, start) -> None:
    with pytest.raises(ParameterError, match="start"):
        release([1, 2], start=start, **parameters)


@over_releases
@pytest.mark.parametrize("x", [[], ["a"], [1j], [True], [[1], [2, 3]], None], ids=str)
def test_what_is_not_numbers_is_refused(release, parameters, x) -> None:
    with pytest.raises(DPCoreError):
        release(x, **parameters)


@over_releases
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_refused_without_being_shown(release, parameters, bad) -> None:
    with pytest.raises(DataError) as caught:
        release([123.456, bad], **parameters)
    assert not any(text in str(caught.value) for text in ("123", "nan", "inf "))


@over_releases
@pytest.mark.parametrize(
    "out",
    [
        np.empty(3, np.int64),
        np.empty(2, np.int32),
        np.empty(4, np.int64)[::2],
        np.broadcast_to(np.int64(0), 2),
        [0, 0],
    ],
    ids=["shape", "dtype", "strides", "readonly", "list"],
)
def test_bad_outs_are_refused(release, parameters, out) -> None:
    with pytest.raises(ParameterError, match="out"):
        release([1, 2], out=out, **parameters)


@pytest.mark.parametrize("noise", [1, "noise", np.random.default_rng(1), dpcore.Noise])
def test_noise_comes_from_a_noise(noise) -> None:
    with pytest.raises(ParameterError, match="noise"):
        dpcore.laplace([1], **LAPLACE, noise=noise)


def test_a_scale_beyond_the_law_is_refused() -> None:
    with pytest.raises(ParameterError, match="sensitivity"):
        dpcore.laplace([1], epsilon=1, sensitivity=2**45)
    with pytest.raises(ParameterError, match="resolution"):
        dpcore.gaussian([1.0], sigma=1e9, sensitivity=1, resolution=2.0**-30)


@pytest.mark.parametrize(("last", "first_beyond"), [(2**62, 2**62 + 1), (2.0**52 - 1, 2.0**52)])
def test_the_range_is_public_and_what_lies_beyond_is_refused(last, first_beyond) -> None:
    dpcore.laplace([last], epsilon=1, sensitivity=1)
    with pytest.raises(DataError, match="'x'"):
        dpcore.laplace([first_beyond], epsilon=1, sensitivity=1)
    assert "within 2**62 units of 0" in dpcore.laplace.__doc__
