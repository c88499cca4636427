"""Histograms, sums and means: the law behind each call, exactness, clamping, refusals."""

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
from dpcore import _laws, aggregates
from dpcore.errors import DataError, ParameterError

ADJACENCIES = ["replace", "add-remove"]
over_adjacencies = pytest.mark.parametrize("adjacency", ADJACENCIES)
over_functions = pytest.mark.parametrize(
    "function", [dpcore.bounded_sum, dpcore.bounded_mean], ids=["sum", "mean"]
)


# Histograms


@pytest.mark.parametrize(("adjacency", "sensitivity"), [("replace", 2), ("add-remove", 1)])
@pytest.mark.parametrize("epsilon", [1.0, 0.1])
def test_histogram_noise_has_the_variance_of_its_sensitivity(
    adjacency, sensitivity, epsilon
) -> None:
    labels = np.random.default_rng(1).integers(0, 10**6, 10**5)
    counts = dpcore.histogram(labels, 10**6, epsilon=epsilon, adjacency=adjacency, noise=insecure())
    variance = laplace_variance(sensitivity / epsilon)
    noise = np.asarray(counts) - np.bincount(labels, minlength=10**6)
    assert_variance(noise, variance, kurtosis=6 + 1 / variance)


@pytest.mark.parametrize(("adjacency", "sensitivity"), [("replace", 2), ("add-remove", 1)])
def test_histograms_count_exactly_before_noise(monkeypatch, adjacency, sensitivity) -> None:
    labels = np.array([0, 2, 2, 5, 2], np.uint8)
    results = []
    (law,) = laws_used(
        monkeypatch,
        aggregates,
        lambda: results.append(dpcore.histogram(labels, 7, epsilon=0.5, adjacency=adjacency)),
    )
    np.testing.assert_array_equal(results[0], [1, 0, 3, 0, 0, 1, 0])
    assert results[0].dtype == np.int64
    assert law == _laws.discrete_laplace(Fraction(1, 2) / sensitivity)


def test_replacing_is_the_default() -> None:
    first, second = (
        dpcore.histogram([1, 2], 5, epsilon=1, noise=pinned(), **option)
        for option in ({}, {"adjacency": "replace"})
    )
    np.testing.assert_array_equal(first, second)


def test_bins_are_those_asked_for_whatever_the_labels() -> None:
    assert dpcore.histogram([0], 1, epsilon=1).shape == (1,)
    assert dpcore.histogram([3, 3], 1000, epsilon=1).shape == (1000,)


def test_histograms_do_not_depend_on_the_order_of_records() -> None:
    labels = np.random.default_rng(2).integers(0, 50, 1000)
    first, second = (
        dpcore.histogram(order, 50, epsilon=1, noise=pinned()) for order in (labels, labels[::-1])
    )
    np.testing.assert_array_equal(first, second)


def test_bins_of_a_larger_release_are_addressed_by_start() -> None:
    whole = dpcore.histogram([0], 3000, epsilon=1, noise=pinned())
    part = dpcore.histogram([0], 1000, epsilon=1, noise=pinned(), start=2000)
    np.testing.assert_array_equal(np.asarray(whole)[2001:], np.asarray(part)[1:])


@pytest.mark.parametrize(
    ("labels", "n_bins", "error"),
    [
        ([0, 3], 3, DataError),
        ([-1, 0], 3, DataError),
        ([0.5], 3, ParameterError),
        ([[0], [1]], 3, ParameterError),
        (["a"], 3, ParameterError),
        ([0], 0, ParameterError),
        ([0], 2.0, ParameterError),
        ([0], None, ParameterError),
    ],
    ids=str,
)
def test_bad_labels_and_bins_are_refused(labels, n_bins, error) -> None:
    with pytest.raises(error):
        dpcore.histogram(labels, n_bins, epsilon=1)


def test_messages_do_not_show_labels() -> None:
    with pytest.raises(DataError) as caught:
        dpcore.histogram([0, 98765], 3, epsilon=1)
    assert "98765" not in str(caught.value)


# Sums and means


BOUNDS = [(0, 1), (-3, 5), (0.1, 0.9), (-1e-6, 1e-6), (1e9, 1e9 + 1), (-7.5, -2.25), (0, 1e12)]


def grid_of(lower: float, upper: float, resolution: Fraction) -> tuple[int, int]:
    return round(Fraction(lower) / resolution), round(Fraction(upper) / resolution)


def default_resolution(lower: float, upper: float, scale: Fraction) -> Fraction:
    """A millionth of the width, or what 2**51 units of the bounds or 2**41 of the noise need."""
    width, size = Fraction(upper) - Fraction(lower), max(abs(lower), abs(upper))
    return max(
        Fraction(floor_power_of_two(width)) / 2**20,
        Fraction(floor_power_of_two(size)) / 2**50,
        Fraction(floor_power_of_two(scale)) / 2**40,
    )


@pytest.mark.parametrize(("lower", "upper"), BOUNDS)
@over_adjacencies
def test_sums_get_the_law_of_their_bounds(monkeypatch, lower, upper, adjacency) -> None:
    results = []
    x = np.random.default_rng(3).uniform(lower - 1, upper + 1, 500)
    (law,) = laws_used(
        monkeypatch,
        aggregates,
        lambda: results.append(
            dpcore.bounded_sum(x, lower, upper, epsilon=0.5, adjacency=adjacency)
        ),
    )
    low, high = Fraction(lower), Fraction(upper)
    reach = high - low if adjacency == "replace" else max(abs(low), abs(high))
    resolution = default_resolution(lower, upper, reach / Fraction(1, 2))
    a, b = grid_of(lower, upper, resolution)
    units = b - a if adjacency == "replace" else max(abs(a), abs(b))
    assert law == _laws.discrete_laplace(Fraction(1, 2) / units)
    clamped = np.clip(x, float(a * resolution), float(b * resolution))
    exact = sum(round(Fraction(value) / resolution) for value in clamped) * resolution
    assert results[0] == float(exact)


@pytest.mark.parametrize(("lower", "upper"), BOUNDS)
@over_adjacencies
def test_means_are_means_before_noise(monkeypatch, lower, upper, adjacency) -> None:
    results = []
    x = np.random.default_rng(4).uniform(lower, upper, 333)
    laws = laws_used(
        monkeypatch,
        aggregates,
        lambda: results.append(
            dpcore.bounded_mean(x, lower, upper, epsilon=0.5, adjacency=adjacency)
        ),
    )
    resolution = default_resolution(lower, upper, 2 * (Fraction(upper) - Fraction(lower)))
    a, b = grid_of(lower, upper, resolution)
    assert results[0] == pytest.approx(x.mean(), rel=1e-15, abs=(upper - lower) * 2e-6)
    if adjacency == "replace":
        assert laws == [_laws.discrete_laplace(Fraction(1, 2) / (b - a))]
    else:
        half = Fraction(1, 4)
        assert laws == [_laws.discrete_laplace(half / (b - a)), _laws.discrete_laplace(half)]


@pytest.mark.parametrize(("lower", "upper"), BOUNDS)
@over_adjacencies
def test_means_of_many_records_are_accurate(lower, upper, adjacency) -> None:
    n, epsilon = 100_000, 1.0
    x = np.random.default_rng(5).uniform(lower, upper, n)
    y = float(
        dpcore.bounded_mean(x, lower, upper, epsilon=epsilon, adjacency=adjacency, noise=insecure())
    )
    # Noise beyond 20 scales: less than once in 10**8. With add-remove there are two, at half each.
    assert abs(y - x.mean()) < (upper - lower) * (80 / (n * epsilon) + 2e-6)


def test_sums_between_offset_bounds_are_accurate() -> None:
    n = 100_000
    x = np.random.default_rng(6).uniform(1e9, 1e9 + 1, n)
    y = float(dpcore.bounded_sum(x, 1e9, 1e9 + 1, epsilon=1, noise=insecure()))
    exact = sum(map(Fraction, x))
    # The noise is that of a width of 1, not of 1e9; the sum itself is rounded to a double.
    assert abs(Fraction(y) - exact) < 25


@over_adjacencies
def test_means_stay_between_the_bounds(adjacency) -> None:
    noise = insecure(8)
    means = {
        float(dpcore.bounded_mean([2.0], 1.5, 2.75, epsilon=1e-3, adjacency=adjacency, noise=noise))
        for _ in range(200)
    }
    assert min(means) == 1.5
    assert max(means) == 2.75


@over_functions
def test_values_outside_the_bounds_count_as_the_bounds(function) -> None:
    inside, outside = (
        float(function(x, 0, 1, epsilon=1, noise=pinned()))
        for x in ([0, 1, 0.5, 1], [-1e300, 7, 0.5, 1.0000001])
    )
    assert inside == outside


@pytest.mark.parametrize("resolution", [0.25, 2.0**-10, 1.0])
@over_adjacencies
def test_sums_are_multiples_of_the_resolution(resolution, adjacency) -> None:
    noise = insecure(9)
    x = np.random.default_rng(7).normal(size=50)
    sums = [
        dpcore.bounded_sum(
            x, -8, 8, epsilon=1, adjacency=adjacency, resolution=resolution, noise=noise
        )
        for _ in range(20)
    ]
    assert multiples(sums, resolution)


@pytest.mark.parametrize(
    ("adjacency", "bounds", "sensitivity"),
    [
        ("replace", (0, 1), 1),
        ("replace", (-2, 1), 3),
        ("add-remove", (-2, 1), 2),
        ("add-remove", (0, 1), 1),
    ],
)
def test_noise_of_sums_has_the_variance_of_their_sensitivity(
    adjacency, bounds, sensitivity
) -> None:
    noise = insecure(10)
    sums = [
        float(
            dpcore.bounded_sum(
                [0.0], *bounds, epsilon=1, adjacency=adjacency, resolution=0.0625, noise=noise
            )
        )
        for _ in range(3000)
    ]
    assert_variance(np.array(sums) * 16, laplace_variance(16 * sensitivity), kurtosis=6)


@over_functions
@pytest.mark.parametrize("dtype", [np.int8, np.uint32, np.int64, np.float32, np.float64])
def test_numbers_of_every_kind_are_summed(function, dtype) -> None:
    x = np.array([1, 2, 3, 100], dtype)
    y = function(x, 0, 50, epsilon=1, noise=pinned())
    assert float(y) == float(function([1.0, 2.0, 3.0, 100.0], 0, 50, epsilon=1, noise=pinned()))


@over_functions
def test_secure_results_are_plain_floats_and_insecure_ones_marked(function) -> None:
    assert type(function([0.5], 0, 1, epsilon=1)) is float
    y = function([0.5], 0, 1, epsilon=1, noise=insecure())
    assert isinstance(y, dpcore.NotPrivateArray)
    assert isinstance(y + 1, dpcore.NotPrivateArray)
    assert isinstance(2.0 * y, dpcore.NotPrivateArray)


def test_histograms_of_insecure_noise_are_marked() -> None:
    counts = dpcore.histogram([0, 1], 3, epsilon=1, noise=insecure())
    assert isinstance(counts, dpcore.NotPrivateArray)
    assert isinstance(counts[1:] / 2, dpcore.NotPrivateArray)
    assert type(dpcore.histogram([0, 1], 3, epsilon=1)) is np.ndarray


@over_functions
def test_sums_of_a_larger_release_are_addressed_by_start(function) -> None:
    def released(start: int) -> float:
        return float(function([0.0], -100, 100, epsilon=0.1, noise=pinned(), start=start))

    assert released(3) == released(3)
    assert len({released(start) for start in range(5)}) > 1


@over_functions
@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"epsilon": 0}, "epsilon"),
        ({"epsilon": math.nan}, "epsilon"),
        ({"lower": 1, "upper": 1}, "upper"),
        ({"lower": 2}, "upper"),
        ({"lower": -math.inf}, "lower"),
        ({"upper": math.nan}, "upper"),
        ({"upper": "1"}, "upper"),
        ({"adjacency": "swap"}, "adjacency"),
        ({"adjacency": None}, "adjacency"),
        ({"resolution": 0.3}, "resolution"),
        ({"resolution": 8.0}, "resolution"),
        ({"resolution": 2.0**-60}, "resolution"),
        ({"x": [[0.5]]}, "x"),
        ({"x": ["a"]}, "x"),
        ({"start": -1}, "start"),
        ({"noise": 3}, "noise"),
    ],
    ids=str,
)
def test_bad_parameters_are_named(function, options, word) -> None:
    call = {"x": [0.5, 0.25], "lower": 0, "upper": 1, "epsilon": 1} | options
    with pytest.raises(ParameterError, match=f"'{word}'"):
        function(**call)


@over_functions
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_refused(function, bad) -> None:
    with pytest.raises(DataError) as caught:
        function([0.125, bad], 0, 1, epsilon=1)
    assert "0.125" not in str(caught.value)


# What neighbours, and releases on one stream, must not show


@pytest.mark.parametrize(
    "release",
    [
        lambda: dpcore.histogram(np.array([], int), 3, epsilon=1, adjacency="add-remove"),
        lambda: dpcore.bounded_sum([], 0, 1, epsilon=1, adjacency="add-remove"),
        lambda: dpcore.bounded_mean([], 0, 1, epsilon=1, adjacency="add-remove"),
    ],
    ids=["histogram", "sum", "mean"],
)
def test_no_records_are_a_data_set_too_where_records_may_be_removed(release) -> None:
    assert np.isfinite(release()).all()


@over_functions
def test_noise_on_one_pinned_stream_does_not_cancel_between_bounds(function) -> None:
    x = np.array([0.25, 5.5, 7.25, 2.0])
    differences = set()
    for seed in range(5):
        noise = insecure(seed).stream("bounds")
        low, high = (
            float(function(x, lower, lower + 4, epsilon=50.0, resolution=2.0**-20, noise=noise))
            for lower in (0, 4)
        )
        differences.add(high - low)
    # Otherwise the difference of the two results is a number about x without any noise.
    assert len(differences) > 1


@pytest.mark.parametrize(
    ("function", "lower", "adjacency"),
    [
        (dpcore.bounded_sum, 1e10, "replace"),
        (dpcore.bounded_mean, 1e10, "replace"),
        (dpcore.bounded_mean, 1e10, "add-remove"),
        (dpcore.bounded_sum, 1e9, "add-remove"),
    ],
)
def test_the_default_resolution_fits_bounds_far_from_zero(function, lower, adjacency) -> None:
    assert np.isfinite(function([lower], lower, lower + 1, epsilon=1, adjacency=adjacency))
