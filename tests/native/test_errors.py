"""Every refusal: its class, its wording, and that it changes and reveals nothing."""

import math
import re
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import dpcore
import dpcore_ext
from dpcore import Noise, _laws, random
from dpcore.errors import DataError, DPCoreError, EntropyError, InsecureNoiseError, ParameterError
from dpcore_ext.errors import STATUS, raise_status

HEADER = Path(dpcore_ext.__file__).parent / "include/dpcore/status.h"
BUILT_IN = (ValueError, OSError, RuntimeError)

# Numbers whose digits nothing else has, to be looked for in messages.
SECRET = 7391.4826
SECRET_DIGITS = ("7391", "4826", "73914826")


# Status codes


def status_names():
    body = re.search(r"enum dpc_status \{(.*?)\};", HEADER.read_text(), re.S).group(1)
    body = re.sub(r"/\*.*?\*/", "", body, flags=re.S)
    return [item.split("=")[0].strip() for item in body.split(",") if item.strip()]


def test_the_header_lists_ok_first_and_end_last():
    names = status_names()
    assert names[0] == "DPC_OK"
    assert names[-1] == "DPC_ERR_END"
    assert len(names) >= 6


def test_every_status_code_has_an_exception():
    codes = range(1, len(status_names()) - 1)
    assert list(STATUS) == list(codes)
    for code in codes:
        kind, text = STATUS[code]
        assert issubclass(kind, DPCoreError)
        assert issubclass(kind, BUILT_IN)
        with pytest.raises(kind) as caught:
            raise_status(code, "the_name")
        assert "{" not in str(caught.value)
        assert str(caught.value) == text.format(name="the_name")


def test_status_0_raises_nothing():
    assert raise_status(0) is None


@pytest.mark.parametrize(
    ("kind", "built_in"),
    [
        (ParameterError, ValueError),
        (DataError, ValueError),
        (EntropyError, OSError),
        (InsecureNoiseError, RuntimeError),
    ],
)
def test_every_exception_is_also_a_built_in_one(kind, built_in):
    assert issubclass(kind, DPCoreError)
    assert issubclass(kind, built_in)
    assert not issubclass(DPCoreError, BUILT_IN)


def test_the_tree_of_exceptions_is_the_same_in_both_packages():
    for name in dpcore.errors.__all__:
        assert getattr(dpcore.errors, name) is getattr(dpcore_ext.errors, name)


# Wording


def check_refusal(kind, name, call):
    """The call is refused with one sentence that names the parameter and shows no data."""
    with pytest.raises((ParameterError, DataError)) as caught:
        call()
    message = str(caught.value)
    assert type(caught.value) is kind, message
    assert f"'{name}'" in message
    assert re.fullmatch(r"The '[^\n]*[^.\n]\.", message), message
    assert not re.search(r"[.!?] ", message), "more than one sentence"
    assert not any(digits in message for digits in SECRET_DIGITS)
    assert caught.value.__context__ is None or caught.value.__suppress_context__
    return message


# Parameters that must be positive numbers

NOT_POSITIVE = {
    "zero": 0,
    "zero float": 0.0,
    "negative": -1,
    "negative float": -SECRET,
    "nan": math.nan,
    "inf": math.inf,
    "-inf": -math.inf,
    "text": "1",
    "bytes": b"1",
    "bool": True,
    "numpy bool": np.True_,
    "none": None,
    "complex": 1 + 0j,
    "list": [1.0],
    "array": np.array([1.0, 2.0]),
    "numpy nan": np.float64("nan"),
    "numpy negative": np.float32(-1),
    "numpy zero": np.int64(0),
    "negative fraction": Fraction(-1, 3),
    "object": object(),
}

POSITIVE = {
    "laplace epsilon": ("epsilon", lambda v: dpcore.laplace([1], epsilon=v, sensitivity=1)),
    "laplace sensitivity": ("sensitivity", lambda v: dpcore.laplace([1], epsilon=1, sensitivity=v)),
    "laplace resolution": (
        "resolution",
        lambda v: dpcore.laplace([1.0], epsilon=1, sensitivity=1, resolution=v),
    ),
    "gaussian sensitivity": (
        "sensitivity",
        lambda v: dpcore.gaussian([1], epsilon=1, delta=1e-6, sensitivity=v),
    ),
    "gaussian epsilon": (
        "epsilon",
        lambda v: dpcore.gaussian([1], epsilon=v, delta=1e-6, sensitivity=1),
    ),
    "gaussian sigma": ("sigma", lambda v: dpcore.gaussian([1], sigma=v, sensitivity=1)),
    "histogram epsilon": ("epsilon", lambda v: dpcore.histogram([0], 2, epsilon=v)),
    "bounded_sum epsilon": ("epsilon", lambda v: dpcore.bounded_sum([0.5], 0, 1, epsilon=v)),
    "bounded_mean epsilon": ("epsilon", lambda v: dpcore.bounded_mean([0.5], 0, 1, epsilon=v)),
    "geometric scale": ("scale", random.geometric),
    "discrete_laplace scale": ("scale", random.discrete_laplace),
    "discrete_gaussian sigma": ("sigma", random.discrete_gaussian),
    "rounded_gaussian sigma": ("sigma", random.rounded_gaussian),
}


@pytest.mark.parametrize("where", POSITIVE)
@pytest.mark.parametrize("what", NOT_POSITIVE)
def test_positive_parameters_are_checked(where, what):
    name, call = POSITIVE[where]
    if what == "none" and name == "resolution":
        return  # None is the default
    check_refusal(ParameterError, name, lambda: call(NOT_POSITIVE[what]))


@pytest.fixture
def no_laws_yet():
    """Laws are kept by rate: one made before would hide what a parameter's type does."""
    for make in vars(_laws).values():
        if hasattr(make, "cache_clear"):
            make.cache_clear()


@pytest.mark.usefixtures("no_laws_yet")
@pytest.mark.parametrize("where", POSITIVE)
@pytest.mark.parametrize(
    "value",
    [2, 2.0, Fraction(2), np.float64(2), np.float32(2), np.float16(2), np.int64(2), np.uint8(2)],
    ids=lambda value: type(value).__name__,
)
def test_positive_numbers_of_every_type_are_accepted(where, value):
    _, call = POSITIVE[where]
    assert np.isfinite(call(value)).all()


@pytest.mark.usefixtures("no_laws_yet")
@pytest.mark.parametrize("value", [3, np.int64(3), np.uint8(3), np.float32(3)], ids=repr)
def test_the_type_of_a_parameter_does_not_change_the_noise(value):
    noise = Noise.from_key(bytes(32)).stream("types")

    def release(sensitivity):
        return dpcore.laplace(np.zeros(50, int), epsilon=1, sensitivity=sensitivity, noise=noise)

    assert np.array_equal(release(value), release(3.0))


@pytest.mark.parametrize("where", [name for name in POSITIVE if "resolution" not in name])
@pytest.mark.parametrize(
    "value",
    [10**400, Fraction(1, 10**400), 1e308, 5e-324],
    ids=["beyond floats", "below floats", "greatest float", "least float"],
)
def test_extreme_parameters_are_refused_or_served_but_never_overflow(where, value):
    _, call = POSITIVE[where]
    try:
        result = call(value)
    except (ParameterError, DataError):
        return
    assert np.isfinite(result).all()


@pytest.mark.parametrize("sensitivity", [10**400, 5e-324], ids=["beyond floats", "least float"])
def test_a_default_grid_that_floats_cannot_express_is_not_blamed_on_the_data(sensitivity):
    for release in (
        lambda: dpcore.laplace(np.zeros(100), epsilon=1, sensitivity=sensitivity),
        lambda: dpcore.gaussian(np.zeros(100), epsilon=1, delta=1e-6, sensitivity=sensitivity),
    ):
        try:
            result = release()
        except ParameterError:
            continue
        assert np.isfinite(result).all()


# Other parameters of laplace and gaussian

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


# Samplers


@pytest.mark.parametrize("p", [-0.1, 1.1, 2, math.nan, math.inf, "0.5", None, True, 1j], ids=repr)
def test_p_is_a_probability(p):
    check_refusal(ParameterError, "p", lambda: random.bernoulli(p))


@pytest.mark.usefixtures("no_laws_yet")
@pytest.mark.parametrize("p", [0, 1, 0.0, 1.0, np.float32(1), np.int64(1), np.int64(0)], ids=repr)
def test_certain_events_are_certain(p):
    assert random.bernoulli(p, 50).tolist() == [bool(p)] * 50


@pytest.mark.parametrize(
    ("low", "high"),
    [
        (0, 0),
        (1, 0),
        (0, 2**63 + 1),
        (-(2**63) - 1, 0),
        (0.0, 5),
        (0, 5.0),
        ("0", 5),
        (0, None),
    ],
)
def test_bounds_of_integers_are_checked(low, high):
    message = check_refusal(ParameterError, "low", lambda: random.integers(low, high))
    assert "'high'" in message


@pytest.mark.parametrize("size", [-1, 1.5, "3", (2, -1), (2, 1.5), True, 2**62, [None]], ids=repr)
def test_size_is_checked(size):
    for call in (
        lambda: random.bernoulli(0.5, size),
        lambda: random.integers(0, 5, size),
        lambda: random.geometric(2, size),
        lambda: random.discrete_laplace(2, size),
        lambda: random.discrete_gaussian(2, size),
        lambda: random.rounded_gaussian(2, size),
    ):
        check_refusal(ParameterError, "size", call)


@pytest.mark.parametrize("draw", [random.geometric, random.discrete_laplace])
def test_scales_beyond_the_law_are_refused_and_the_limit_is_served(draw):
    check_refusal(ParameterError, "scale", lambda: draw(2.0**44 * 1.001))
    assert draw(2.0**44, 3).shape == (3,)
    assert draw(1e-3, 20).tolist() == [0] * 20


@pytest.mark.parametrize("draw", [random.discrete_gaussian, random.rounded_gaussian])
def test_sigmas_beyond_the_law_are_refused_and_the_limits_are_served(draw):
    for sigma in (2.0**36 * 1.001, 0.0009):
        check_refusal(ParameterError, "sigma", lambda sigma=sigma: draw(sigma))
    assert draw(2.0**36, 3).shape == (3,)
    assert draw(1e-3, 20).tolist() == [0] * 20


# Noise and threads


@pytest.mark.parametrize("key", [b"", bytes(31), bytes(33), bytearray(5)])
def test_the_length_of_a_key_is_checked(key):
    check_refusal(ParameterError, "key", lambda: Noise.from_key(key))


@pytest.mark.parametrize(
    "key",
    ["7391" * 8, None, 73914826, [7] * 32, np.zeros(32), np.zeros((4, 8), np.uint8)],
    ids=repr,
)
def test_the_type_of_a_key_is_checked(key):
    with pytest.raises((TypeError, ValueError)) as caught:
        Noise.from_key(key)
    assert not any(digits in str(caught.value) for digits in SECRET_DIGITS)


@pytest.mark.parametrize("seed", [1.5, "1", None, b"1", math.nan], ids=repr)
def test_seeds_are_integers(seed):
    check_refusal(ParameterError, "seed", lambda: Noise.insecure(seed))


@pytest.mark.parametrize("n", [0, -1, 1.5, "2", True], ids=repr)
def test_the_number_of_threads_is_checked_and_kept(n):
    before = dpcore.get_num_threads()
    check_refusal(ParameterError, "n", lambda: dpcore.set_num_threads(n))
    assert dpcore.get_num_threads() == before
