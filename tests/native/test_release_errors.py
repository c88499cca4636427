"""What releases and aggregates refuse: their data are not shown, and `out` is left as it was."""

import math
from fractions import Fraction

import numpy as np
import pytest
from errors_support import SECRET, check_refusal

import dpcore
from dpcore import Noise, random
from dpcore.errors import DataError, ParameterError

# Parameters of laplace and gaussian

INTEGERS = np.arange(6)
FLOATS = np.arange(6) + SECRET


def laplace(x=INTEGERS, **changed):
    return dpcore.laplace(x, **{"epsilon": 1, "sensitivity": 1, **changed})


def gaussian(x=INTEGERS, **changed):
    return dpcore.gaussian(x, **{"sigma": 3, "sensitivity": 1, **changed})


RELEASES = {"laplace": laplace, "gaussian": gaussian}

BAD_DATA = {
    "nan": (DataError, [1.0, math.nan, SECRET]),
    "inf": (DataError, [1.0, math.inf, SECRET]),
    "-inf": (DataError, [-math.inf, SECRET]),
    "float32 nan": (DataError, np.array([SECRET, math.nan], np.float32)),
    "only nan": (DataError, math.nan),
    "beyond 2**62": (DataError, [0, 2**62 + 7391_4826]),
    "below -2**62": (DataError, [0, -(2**62) - 7391_4826]),
    "least int64": (DataError, -(2**63)),
    "greatest uint64": (DataError, np.array([2**64 - 1], np.uint64)),
    "beyond the grid": (DataError, [1.0, SECRET * 1e300]),
    "empty": (ParameterError, []),
    "empty matrix": (ParameterError, np.zeros((3, 0))),
    "complex": (ParameterError, [SECRET + 1j]),
    "text": (ParameterError, [str(SECRET)]),
    "bytes": (ParameterError, [b"73914826"]),
    "object": (ParameterError, np.array([SECRET, None], object)),
    "beyond uint64": (ParameterError, [73914826 * 2**60]),
    "bool": (ParameterError, [True, False]),
    "dates": (ParameterError, np.array(["2026-01-01"], "M8[D]")),
    "durations": (ParameterError, np.array([73914826], "m8[s]")),
    "records": (ParameterError, np.zeros(3, [("a", int)])),
    "long double": (ParameterError, np.array([SECRET], np.longdouble)),
    "ragged": (ParameterError, [[SECRET], [SECRET, 1.0]]),
    "none": (ParameterError, None),
    "dictionary": (ParameterError, {SECRET: 1}),
    "set": (ParameterError, {SECRET}),
}


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("what", BAD_DATA)
def test_bad_data_are_refused_and_out_is_untouched(release, what):
    kind, x = BAD_DATA[what]
    out = np.full(5, 77)
    if kind is DataError:  # an out that would do, were it not for the data
        data = np.asarray(x)
        out = np.full(data.shape, 77, np.float64 if data.dtype.kind == "f" else np.int64)
    check_refusal(kind, "x", lambda: RELEASES[release](x, out=out))
    assert (out == 77).all()
    check_refusal(kind, "x", lambda: RELEASES[release](x))


@pytest.mark.parametrize("release", RELEASES)
def test_refused_data_are_left_as_they_were_in_place(release):
    for x in (np.array([1.0, SECRET, math.nan]), np.array([1, 2, 2**62 + 1])):
        before = x.copy()
        check_refusal(DataError, "x", lambda x=x: RELEASES[release](x, out=x))
        assert np.array_equal(x, before, equal_nan=True)


def test_one_bad_value_far_away_leaves_all_of_out_untouched():
    x = np.full(2**19 + 9, SECRET)
    x[-1] = math.nan
    out = np.full_like(x, 77)
    check_refusal(DataError, "x", lambda: laplace(x, out=out))
    assert (out == 77).all()


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("value", [2**62, -(2**62)])
def test_integers_up_to_2_to_62_are_accepted(release, value):
    assert abs(int(RELEASES[release](value)) - value) < 1000


@pytest.mark.parametrize("resolution", [2.0**-40, 2.0**-10])
def test_floats_beyond_the_grid_are_refused(resolution):
    limit = 2.0**62 * resolution
    out = np.full(2, 77.0)
    for x in ([0.0, limit], [0.0, -limit], [SECRET, 2 * limit]):
        check_refusal(DataError, "x", lambda x=x: laplace(x, resolution=resolution, out=out))
    assert (out == 77).all()
    assert np.isfinite(laplace([0.0, np.nextafter(limit, 0)], resolution=resolution)).all()


BAD_START = [-1, 2**62, 2**64, 1.5, 0.0, "0", None, True, [0], math.nan]


@pytest.mark.parametrize("start", BAD_START, ids=repr)
def test_start_is_checked(start):
    out = np.full(6, 77)
    for call in (
        lambda: laplace(start=start, out=out),
        lambda: gaussian(start=start, out=out),
        lambda: laplace(FLOATS, dimension=100, start=start),
        lambda: dpcore.histogram([0], 2, epsilon=1, start=start),
        lambda: dpcore.bounded_sum([0.5], 0, 1, epsilon=1, start=start),
        lambda: dpcore.bounded_mean([0.5], 0, 1, epsilon=1, start=start),
        lambda: dpcore.bounded_mean([0.5], 0, 1, epsilon=1, adjacency="add-remove", start=start),
        lambda: random.bernoulli(0.5, start=start),
        lambda: random.integers(0, 5, start=start),
        lambda: random.geometric(2, start=start),
        lambda: random.discrete_laplace(2, start=start),
        lambda: random.discrete_gaussian(2, start=start),
        lambda: random.rounded_gaussian(2, start=start),
    ):
        check_refusal(ParameterError, "start", call)
    assert (out == 77).all()


def test_start_must_leave_room_for_all_elements():
    last = 2**62 - 5
    for call in (
        lambda: laplace(start=last),
        lambda: gaussian(start=last),
        lambda: dpcore.histogram([0], 6, epsilon=1, start=last),
        lambda: random.integers(0, 5, 6, start=last),
        lambda: random.geometric(2, (2, 3), start=last),
    ):
        check_refusal(ParameterError, "start", call)
    assert laplace(INTEGERS[:5], start=last).shape == (5,)


def read_only(array):
    array.flags.writeable = False
    return array


BAD_OUT = {
    "other dtype": lambda dtype: np.zeros(6, np.float64 if dtype == np.int64 else np.int64),
    "narrow dtype": lambda dtype: np.zeros(6, np.dtype(dtype).kind + "4"),
    "unsigned": lambda dtype: np.zeros(6, np.uint64),
    "other byte order": lambda dtype: np.zeros(6, np.dtype(dtype).newbyteorder()),
    "too short": lambda dtype: np.zeros(5, dtype),
    "too long": lambda dtype: np.zeros(7, dtype),
    "other shape": lambda dtype: np.zeros((2, 3), dtype),
    "read-only": lambda dtype: read_only(np.zeros(6, dtype)),
    "not contiguous": lambda dtype: np.zeros(12, dtype)[::2],
    "reversed": lambda dtype: np.zeros(6, dtype)[::-1],
    "a list": lambda dtype: [0] * 6,
    "a buffer": lambda dtype: bytearray(48),
    "a number": lambda dtype: 5,
}


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("x", [INTEGERS, FLOATS], ids=["integers", "floats"])
@pytest.mark.parametrize("what", BAD_OUT)
def test_out_is_checked_and_left_alone(release, x, what):
    out = BAD_OUT[what](x.dtype)
    before = np.array(out)
    check_refusal(ParameterError, "out", lambda: RELEASES[release](x, out=out))
    assert np.array_equal(np.array(out), before)


def test_a_matrix_in_column_order_is_refused_as_out():
    out = np.full((2, 3), 77, order="F")
    check_refusal(ParameterError, "out", lambda: laplace(INTEGERS.reshape(2, 3), out=out))
    assert (out == 77).all()


@pytest.mark.parametrize(
    "resolution", [3, 0.1, 0.75, 1 - 2**-53, 2.0**-901, 2.0**901, Fraction(1, 3)]
)
def test_resolution_must_be_a_power_of_two(resolution):
    for call in (
        lambda: laplace(FLOATS, resolution=resolution),
        lambda: gaussian(FLOATS, resolution=resolution),
        lambda: dpcore.bounded_sum([0.5], 0, 1, epsilon=1, resolution=resolution),
        lambda: dpcore.bounded_mean([0.5], 0, 1, epsilon=1, resolution=resolution),
    ):
        check_refusal(ParameterError, "resolution", call)


@pytest.mark.parametrize("release", RELEASES)
def test_integers_take_no_grid(release):
    check_refusal(ParameterError, "resolution", lambda: RELEASES[release](resolution=1.0))
    check_refusal(ParameterError, "dimension", lambda: RELEASES[release](dimension=6))


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("dimension", [0, -1, 5, 1.5, "6", True, 2**62], ids=repr)
def test_dimension_is_checked(release, dimension):
    call = RELEASES[release]
    check_refusal(ParameterError, "dimension", lambda: call(FLOATS, dimension=dimension))


@pytest.mark.parametrize("release", RELEASES)
def test_parts_of_a_release_of_floats_must_say_how_large_it_is(release):
    call = RELEASES[release]
    check_refusal(ParameterError, "dimension", lambda: call(FLOATS, start=1))
    check_refusal(ParameterError, "dimension", lambda: call(FLOATS, start=1, dimension=6))
    assert call(FLOATS, start=1, dimension=7).shape == (6,)


@pytest.mark.parametrize("noise", [0, 42, "secure", bytes(32), np.random.default_rng(0), Noise])
def test_noise_must_be_a_source(noise):
    for call in (
        lambda: laplace(noise=noise),
        lambda: gaussian(FLOATS, noise=noise),
        lambda: dpcore.histogram([0], 2, epsilon=1, noise=noise),
        lambda: dpcore.bounded_sum([0.5], 0, 1, epsilon=1, noise=noise),
        lambda: dpcore.bounded_mean([0.5], 0, 1, epsilon=1, noise=noise),
        lambda: random.integers(0, 5, noise=noise),
        lambda: random.bernoulli(0.5, noise=noise),
        lambda: random.rounded_gaussian(5, noise=noise),
    ):
        check_refusal(ParameterError, "noise", call)


@pytest.mark.parametrize(
    "delta",
    [0, 1, -1e-6, 1.5, math.nan, math.inf, "0.1", True, 1e-40, 10**400],
    ids=lambda d: repr(d)[:9],
)
def test_delta_must_lie_between_0_and_1(delta):
    out = np.full(6, 77)
    call = {"sigma": None, "epsilon": 1, "delta": delta, "out": out}
    check_refusal(ParameterError, "delta", lambda: gaussian(**call))
    assert (out == 77).all()


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"sigma": 3, "epsilon": 1}, "sigma"),
        ({"sigma": 3, "delta": 1e-6}, "sigma"),
        ({"sigma": 3, "epsilon": 1, "delta": 1e-6}, "sigma"),
        ({"epsilon": 1}, "delta"),
        ({"delta": 1e-6}, "epsilon"),
        ({}, "sigma"),
    ],
)
def test_a_gaussian_takes_sigma_or_both_of_epsilon_and_delta(given, name):
    check_refusal(ParameterError, name, lambda: dpcore.gaussian([1], sensitivity=1, **given))


def test_noise_too_large_or_too_small_for_the_law_is_refused():
    check_refusal(ParameterError, "sensitivity", lambda: laplace(sensitivity=2.0**45))
    check_refusal(ParameterError, "sensitivity", lambda: laplace(epsilon=1e-300))
    check_refusal(ParameterError, "sigma", lambda: gaussian(sigma=2.0**37))
    check_refusal(ParameterError, "sigma", lambda: gaussian(sigma=1e-4))
    fine = 2.0**-60
    check_refusal(ParameterError, "sensitivity", lambda: laplace([0.0], resolution=fine))
    check_refusal(ParameterError, "sigma", lambda: gaussian([0.0], resolution=fine))


# Aggregates

BAD_COLUMN = {
    "matrix": (ParameterError, np.zeros((2, 2))),
    "number": (ParameterError, SECRET),
    "empty": (ParameterError, []),
    "nan": (DataError, [0.5, math.nan, SECRET]),
    "inf": (DataError, [0.5, -math.inf, SECRET]),
    "text": (ParameterError, ["73914826"]),
    "bool": (ParameterError, [True]),
    "complex": (ParameterError, [SECRET + 0j]),
    "beyond 2**62": (DataError, [2**62 + 73914826]),
    "none": (ParameterError, None),
}


@pytest.mark.parametrize("aggregate", [dpcore.bounded_sum, dpcore.bounded_mean])
@pytest.mark.parametrize("what", BAD_COLUMN)
def test_bad_columns_are_refused(aggregate, what):
    kind, x = BAD_COLUMN[what]
    check_refusal(kind, "x", lambda: aggregate(x, 0, 1, epsilon=1))


@pytest.mark.parametrize("aggregate", [dpcore.bounded_sum, dpcore.bounded_mean])
@pytest.mark.parametrize("bounds", [(1, 1), (1, 0), (0.5, -0.5)])
def test_lower_must_be_below_upper(aggregate, bounds):
    message = check_refusal(ParameterError, "upper", lambda: aggregate([0.5], *bounds, epsilon=1))
    assert "'lower'" in message


@pytest.mark.parametrize("aggregate", [dpcore.bounded_sum, dpcore.bounded_mean])
@pytest.mark.parametrize(
    "bad", [math.nan, math.inf, -math.inf, "1", None, True, 1j, [0.0]], ids=repr
)
def test_bounds_are_checked(aggregate, bad):
    check_refusal(ParameterError, "lower", lambda: aggregate([0.5], bad, 1, epsilon=1))
    check_refusal(ParameterError, "upper", lambda: aggregate([0.5], 0, bad, epsilon=1))


@pytest.mark.parametrize("aggregate", [dpcore.bounded_sum, dpcore.bounded_mean])
@pytest.mark.parametrize(
    "bounds",
    [(-(10**400), 10**400), (0, 1e-310), (0, 5e-324), (-1.7e308, 1.7e308)],
    ids=["beyond floats", "subnormal", "least float", "greatest floats"],
)
def test_extreme_bounds_are_refused_or_served_but_never_blamed_on_the_data(aggregate, bounds):
    for _ in range(20):
        try:
            result = aggregate([0.0, 0.0], *bounds, epsilon=1)
        except ParameterError:
            return
        assert math.isfinite(result)


@pytest.mark.parametrize("aggregate", [dpcore.bounded_sum, dpcore.bounded_mean])
@pytest.mark.parametrize("resolution", [4.0, 2.0**-60])
def test_resolution_must_fit_the_bounds(aggregate, resolution):
    check_refusal(
        ParameterError,
        "resolution",
        lambda: aggregate([0.5], 0, 1, epsilon=1, resolution=resolution),
    )


@pytest.mark.parametrize("adjacency", ["", "remove", None, 1, ["replace"]], ids=repr)
def test_adjacency_is_one_of_two_words(adjacency):
    for call in (
        lambda: dpcore.histogram([0], 2, epsilon=1, adjacency=adjacency),
        lambda: dpcore.bounded_sum([0.5], 0, 1, epsilon=1, adjacency=adjacency),
        lambda: dpcore.bounded_mean([0.5], 0, 1, epsilon=1, adjacency=adjacency),
    ):
        check_refusal(ParameterError, "adjacency", call)


@pytest.mark.parametrize(
    ("kind", "labels"),
    [
        (DataError, [0, 3]),
        (DataError, [-1, 0]),
        (DataError, [0, 73914826]),
        (DataError, [2**63]),
        (ParameterError, [0.0, 1.0]),
        (ParameterError, [[0, 1]]),
        (ParameterError, 0),
        (ParameterError, []),
        (ParameterError, ["0"]),
        (ParameterError, [False]),
        (ParameterError, [SECRET]),
        (ParameterError, None),
    ],
    ids=repr,
)
def test_labels_are_checked(kind, labels):
    check_refusal(kind, "labels", lambda: dpcore.histogram(labels, 3, epsilon=1))


@pytest.mark.parametrize("n_bins", [0, -1, 1.5, "3", None, True, 2**62], ids=repr)
def test_n_bins_is_checked(n_bins):
    check_refusal(ParameterError, "n_bins", lambda: dpcore.histogram([0], n_bins, epsilon=1))
