"""What the mechanisms for one number send: codes, messages, estimates, bad input."""

import itertools
import math
import subprocess
import sys

import numpy as np
import pytest
from mechanisms_support import every_mechanism, pinned, values

import dpcore
from dpcore import local, wire
from dpcore.errors import DataError, ParameterError, WireFormatError
from dpcore_ext import rng

# Codes


@pytest.mark.parametrize("mechanism", every_mechanism(), ids=lambda m: m.name)
def test_chunks_threads_and_levels_do_not_matter(mechanism, select_level):
    x, noise = values(600_000), pinned("chunks")
    before = dpcore.get_num_threads()
    try:
        dpcore.set_num_threads(1)
        whole = mechanism.encode(x, noise=noise)
        dpcore.set_num_threads(2)
        assert np.array_equal(mechanism.encode(x, noise=noise), whole)
    finally:
        dpcore.set_num_threads(before)
    edges = [0, 1, 2, 17, 49, 50, 2047, 4100, 300_001, x.size]
    parts = [
        mechanism.encode(x[begin:end], noise=noise, start=begin)
        for begin, end in itertools.pairwise(edges)
    ]
    assert np.array_equal(np.concatenate(parts), whole)
    for level in rng.levels():
        select_level(level)
        assert np.array_equal(mechanism.encode(x[:5000], noise=noise), whole[:5000])


def test_fresh_noise_in_every_call_unless_pinned():
    mechanism, x = local.Duchi(1.0), np.zeros(1000)
    assert not np.array_equal(mechanism.encode(x), mechanism.encode(x))
    noise = pinned("same")
    assert np.array_equal(mechanism.encode(x, noise=noise), mechanism.encode(x, noise=noise))


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.astype(np.float32),
        lambda x: x.astype(np.float16),
        lambda x: x.astype(">f4"),
        lambda x: x.astype(">f8"),
        lambda x: x.tolist(),
        lambda x: np.repeat(x, 3)[::3],
        lambda x: x[::-1].copy()[::-1],
        lambda x: np.frombuffer(b"x" + x.tobytes(), np.uint8)[1:].view(np.float64),
        lambda x: np.lib.stride_tricks.as_strided(x, writeable=False),
        lambda x: x.view(np.memmap),
    ],
    ids=[
        "f4",
        "f2",
        ">f4",
        ">f8",
        "list",
        "strided",
        "reversed",
        "unaligned",
        "readonly",
        "memmap",
    ],
)
def test_numbers_come_in_any_form(change):
    x = (np.arange(5000) % 65 - 32) / 32  # numbers that all these types hold
    given, noise = change(x.copy()), pinned("forms")
    for mechanism in (local.ThreeOutputs(1.0), local.HybridTP(1.0)):
        expected = mechanism.encode(x, noise=noise)
        assert np.array_equal(mechanism.encode(given, noise=noise), expected)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64, np.uint64, ">i4"])
def test_integers_are_numbers(dtype):
    mechanism = local.PiecewiseOpt(2.0, 0, 100)
    x = np.arange(0, 120).astype(dtype)
    expected = mechanism.encode(np.arange(0.0, 120.0), noise=pinned("integers"))
    assert np.array_equal(mechanism.encode(x, noise=pinned("integers")), expected)


def test_shapes_are_kept():
    mechanism, noise = local.HybridJoint(1.0), pinned("shapes")
    x = values(24).reshape(2, 3, 4)
    codes = mechanism.encode(x, noise=noise)
    assert codes.shape == mechanism.decode(codes).shape == x.shape
    assert np.array_equal(codes.ravel(), mechanism.encode(x.ravel(), noise=noise))
    assert np.array_equal(mechanism.encode(np.asfortranarray(x), noise=noise), codes)
    single = mechanism.encode(x[0, 0, 0], noise=noise)
    assert single == codes[0, 0, 0]
    assert single.shape == mechanism.decode(single).shape == ()
    assert mechanism.privatize(0.5).shape == ()


@pytest.mark.parametrize("mechanism", every_mechanism(lower=-3.0, upper=7.0), ids=lambda m: m.name)
def test_privatize_is_decode_of_encode(mechanism):
    x, noise = 10 * values(1000), pinned("decode")
    codes = mechanism.encode(x, noise=noise)
    assert np.array_equal(mechanism.privatize(x, noise=noise), mechanism.outputs[codes])
    assert np.array_equal(mechanism.decode(codes), mechanism.outputs[codes])
    clamped = mechanism.encode(np.clip(x, -3.0, 7.0), noise=noise)
    assert np.array_equal(codes, clamped)


def test_insecure_noise_is_marked():
    codes = local.Duchi(1.0).encode([0.1, 0.2], noise=dpcore.Noise.insecure(1))
    assert isinstance(codes, dpcore.NotPrivateArray)
    values = local.Duchi(1.0).privatize([0.1, 0.2], noise=dpcore.Noise.insecure(1))
    assert isinstance(values, dpcore.NotPrivateArray)


SECRET = 0.123456789


@pytest.mark.parametrize(
    ("x", "error"),
    [
        ([], ParameterError),
        (np.zeros((0, 3)), ParameterError),
        ([[SECRET, 1.0], [2.0]], ParameterError),
        (np.array([SECRET], object), ParameterError),
        (np.array([SECRET], np.longdouble), ParameterError),
        ([complex(SECRET)], ParameterError),
        ([True], ParameterError),
        ("0.123456789", ParameterError),
        (None, ParameterError),
        (np.array(["2026-01-01"], "M8[D]"), ParameterError),
        ([SECRET, math.nan], DataError),
        ([SECRET, math.inf], DataError),
        (np.array([SECRET, -math.inf], np.float32), DataError),
        (math.nan, DataError),
    ],
)
def test_bad_numbers_are_refused_without_showing_them(x, error):
    mechanism = local.ThreeOutputs(1.0)
    for method in (mechanism.encode, mechanism.privatize, mechanism.pmf, mechanism.variance):
        with pytest.raises(error, match="'x'") as caught:
            method(x)
        assert "123456789" not in str(caught.value)


@pytest.mark.parametrize("start", [-1, 0.0, True, 1 << 62, (1 << 62) - 1])
def test_start_is_checked(start):
    with pytest.raises(ParameterError, match="'start'"):
        local.Duchi(1.0).encode([0.0, 0.0], start=start)


def test_noise_is_checked():
    with pytest.raises(ParameterError, match="'noise'"):
        local.Duchi(1.0).encode([0.0], noise=np.random.default_rng(1))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["three-outputs", "optimal"])
def test_memory_beyond_input_and_output(name):
    """Encoding 10**8 values, in as many threads as there are CPUs."""
    program = f"""
import resource
import numpy as np
from dpcore import local

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

mechanism = local.make("{name}", 1.0)
mechanism.encode(np.zeros(1_000_000, np.float32))
x = np.zeros(10**8, np.float32)
x += 0.25
before = peak()
codes = mechanism.encode(x)
assert codes.size == x.size
print(peak() - before - codes.nbytes)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, text=True
    )
    assert int(done.stdout) < 16 * 10**6


# Messages and estimates


@pytest.mark.parametrize("mechanism", every_mechanism(lower=-3.0, upper=7.0), ids=lambda m: m.name)
def test_estimates_from_codes_bytes_and_messages_are_equal(mechanism):
    codes = mechanism.encode(10 * values(3001))
    message = mechanism.pack(codes)
    assert np.array_equal(mechanism.unpack(message), codes)
    assert mechanism.unpack(message).dtype == codes.dtype
    # Header, parameters and checksum, then n_bits for each code.
    assert len(message) == 68 + math.ceil(3001 * mechanism.n_bits / 8)
    estimate = mechanism.estimate(codes)
    for form in (
        message,
        bytearray(message),
        memoryview(message),
        wire.unpack(message),
    ):
        assert mechanism.estimate(form) == estimate
    assert mechanism.estimate(codes.astype(np.int64).reshape(-1, 1)) == estimate
    decoded = mechanism.decode(codes)
    assert estimate.count == 3001
    assert estimate.mean == pytest.approx(decoded.mean(), abs=1e-9)
    assert estimate.standard_error == pytest.approx(decoded.std(ddof=1) / math.sqrt(3001), rel=1e-9)
    low, high = estimate.interval()
    assert (low + high) / 2 == pytest.approx(estimate.mean)
    assert (high - low) / 2 == pytest.approx(1.959963984540054 * estimate.standard_error)


def test_one_report_has_no_finite_error():
    estimate = local.Duchi(1.0).estimate([1])
    assert estimate.standard_error == math.inf
    assert estimate.interval() == (-math.inf, math.inf)


@pytest.mark.parametrize("confidence", [0, 1, -0.5, 1.5, math.nan, "0.9", True])
def test_confidence_is_checked(confidence):
    with pytest.raises(ParameterError, match="'confidence'"):
        local.Duchi(1.0).estimate([0, 1]).interval(confidence)


@pytest.mark.parametrize(
    "other",
    [
        local.Duchi(1.0 + 2**-52),
        local.Duchi(1.0, -1.0, 2.0),
        local.Duchi(1.0, -2.0, 1.0),
        local.ThreeOutputs(0.5),
        local.Piecewise(1.0),
        local.OptimalOutputs(1.0, n_outputs=2),
    ],
    ids=repr,
)
def test_messages_of_other_mechanisms_are_refused(other):
    message = other.pack(other.encode(values(100)))
    for method in (local.Duchi(1.0).estimate, local.Duchi(1.0).unpack):
        with pytest.raises(WireFormatError, match="another mechanism"):
            method(message)
    own = local.Duchi(1.0)
    assert own.estimate(own.pack([0, 1, 1])).count == 3


def test_codes_that_a_mechanism_cannot_output_are_refused():
    """Nobody but a forger sends them, so none of the message counts."""
    mechanism = local.ThreeOutputs(1.0)
    parameters = wire.unpack(mechanism.pack([0])).parameters
    forged = wire.pack([0, 1, 3, 2], kind=mechanism.kind, n_bits=2, parameters=parameters)
    for method in (mechanism.estimate, mechanism.unpack):
        with pytest.raises(WireFormatError, match="codes of this mechanism"):
            method(forged)
        with pytest.raises(WireFormatError, match="codes of this mechanism"):
            method(wire.unpack(forged))
    for codes in ([0, 3], [-1], np.array([2**40])):
        for method in (mechanism.estimate, mechanism.decode, mechanism.pack):
            with pytest.raises(DataError, match="codes of this mechanism"):
                method(codes)


@pytest.mark.parametrize("codes", [[0.0, 1.0], [True], "01", [[0], [1, 0]], None])
def test_codes_are_integers(codes):
    mechanism = local.Duchi(1.0)
    for method in (mechanism.estimate, mechanism.decode, mechanism.pack):
        with pytest.raises(ParameterError, match="'codes'"):
            method(codes)


def test_no_codes():
    mechanism = local.Duchi(1.0)
    empty = mechanism.pack([])
    assert mechanism.unpack(empty).size == mechanism.decode([]).size == 0
    for codes in ([], np.zeros(0, np.uint8), empty):
        with pytest.raises(ParameterError, match="must not be empty"):
            mechanism.estimate(codes)
