"""The tree of exceptions, and what samplers, noise and all that takes a positive number refuse."""

import math
import re
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from errors_support import SECRET, SECRET_DIGITS, check_refusal

import dpcore
import dpcore_ext
from dpcore import Noise, _laws, random
from dpcore.errors import DataError, DPCoreError, EntropyError, InsecureNoiseError, ParameterError
from dpcore_ext.errors import STATUS, raise_status

HEADER = Path(dpcore_ext.__file__).parent / "include/dpcore/status.h"
BUILT_IN = (ValueError, OSError, RuntimeError)


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
