"""Compiled code draws the noise of NumPy, in parallel, from a cache that outlives the process."""

import subprocess
import sys

import numpy as np
import pytest
from numba import njit, prange
from numba.core.errors import TypingError

import dpcore
from bench.examples import numba_kernel
from dpcore import local
from dpcore.errors import DataError, InsecureNoiseError, ParameterError
from dpcore.interop.numba import Encoder, Sampler, add_noise, code_at, encode, noise_at

PINNED = dpcore.Noise.from_key(bytes(range(32))).stream("numba")
WIDE = local.Piecewise(1.0, n_levels=600)
SAMPLERS = [
    (
        Sampler.laplace(epsilon=0.01, sensitivity=3, noise=PINNED),
        lambda x, **at: dpcore.laplace(x, epsilon=0.01, sensitivity=3, noise=PINNED, **at),
    ),
    (
        Sampler.gaussian(epsilon=0.5, delta=1e-6, sensitivity=1000, noise=PINNED),
        lambda x, **at: dpcore.gaussian(
            x, epsilon=0.5, delta=1e-6, sensitivity=1000, noise=PINNED, **at
        ),
    ),
    (
        Sampler.discrete_laplace(2.5, noise=PINNED),
        lambda x, **at: x + dpcore.random.discrete_laplace(2.5, len(x), noise=PINNED, **at),
    ),
    (
        Sampler.discrete_gaussian(1e6, noise=PINNED),
        lambda x, **at: x + dpcore.random.discrete_gaussian(1e6, len(x), noise=PINNED, **at),
    ),
]


@njit(parallel=True)
def encode_blocks(encoder, start, x, codes, step):
    failed = 0
    for block in prange((len(x) + step - 1) // step):
        low = block * step
        high = min(len(x), low + step)
        failed += encode(encoder, start + low, x[low:high], codes[low:high])
    return failed


@njit(parallel=True)
def encode_elements(encoder, start, x, codes):
    for i in prange(len(x)):
        codes[i] = code_at(encoder, start + i, x[i])


@njit(parallel=True)
def add_blocks(sampler, start, x, out, step):
    for block in prange((len(x) + step - 1) // step):
        low = block * step
        high = min(len(x), low + step)
        add_noise(sampler, start + low, x[low:high], out[low:high])


@njit(parallel=True)
def add_elements(sampler, start, x, out):
    for i in prange(len(x)):
        out[i] = x[i] + noise_at(sampler, start + i)


@pytest.mark.parametrize("mechanism", [local.Duchi(1.0), WIDE], ids=["u8", "u16"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_codes_are_those_of_numpy(mechanism, dtype):
    x = np.linspace(-1.2, 1.2, 10_001).astype(dtype)
    encoder = Encoder(mechanism, noise=PINNED)
    for start in (0, 12345, 2**61):
        expected = mechanism.encode(x, noise=PINNED, start=start)
        codes = np.full_like(expected, 255)
        assert encode_blocks(encoder, start, x, codes, 997) == 0
        assert np.array_equal(codes, expected)
    if dtype is np.float64:
        codes = np.zeros_like(expected)
        encode_elements(encoder, 2**61, x, codes)
        assert np.array_equal(codes, expected)


@pytest.mark.parametrize(("sampler", "numpy_call"), SAMPLERS)
def test_noise_is_that_of_numpy(sampler, numpy_call):
    x = np.arange(-3000, 3000)
    for start in (0, 2**40 + 7):
        expected, out = numpy_call(x, start=start), np.zeros_like(x)
        add_blocks(sampler, start, x, out, 501)
        assert np.array_equal(out, expected)
        add_elements(sampler, start, x, out)
        assert np.array_equal(out, expected)
    in_place = x.copy()
    assert add_noise(sampler, start, in_place, in_place) == 0
    assert np.array_equal(in_place, expected)


def test_a_release_is_charged_when_it_is_made(tmp_path):
    ledger = dpcore.Ledger(tmp_path / "ledger.sqlite", epsilon=10.0, delta=1e-5)
    with ledger:
        encoder = Encoder(local.Duchi(1.0))
        encode(encoder, 0, np.zeros(5), np.zeros(5, np.uint8))
        Sampler.laplace(epsilon=1, sensitivity=1)
        Sampler.gaussian(sigma=20, sensitivity=1)
    assert [e.event.mechanism for e in ledger.entries] == ["duchi", "laplace", "gaussian"]


def test_releases_without_a_stream_share_no_noise():
    x, out = np.zeros(200, np.int64), np.zeros((2, 200), np.int64)
    for row in out:
        add_noise(Sampler.laplace(epsilon=0.01, sensitivity=1), 0, x, row)
    assert not np.array_equal(out[0], out[1])


@pytest.mark.parametrize(
    ("start", "x"),
    [
        (0, [0.0, np.nan, 1.0]),
        (0, [0.0, 1.0, -np.inf]),
        (0, [0.0, 0.0]),
        (-1, [0.0, 0.0, 0.0]),
        (2**62 - 2, [0.0, 0.0, 0.0]),
        (2**63 - 3, [0.0, 0.0, 0.0]),
        (np.uint64(2**62 - 2), [0.0, 0.0, 0.0]),
        (np.uint64(2**64 - 2), [0.0, 0.0, 0.0]),
    ],
)
def test_values_that_are_refused_leave_no_code(start, x):
    for mechanism, largest in ((local.Duchi(1.0), 255), (WIDE, 65535)):
        codes = np.zeros(3, mechanism.encode([0.0]).dtype)
        assert encode(Encoder(mechanism), start, np.array(x), codes) == 1
        assert (codes == largest).all()
        with pytest.raises(DataError):
            mechanism.estimate(codes)


@pytest.mark.parametrize(
    ("start", "x"),
    [
        (0, [1, 2**62 + 1, 3]),
        (0, [1, 2]),
        (-1, [1, 2, 3]),
        (2**62 - 2, [1, 2, 3]),
        (2**63 - 3, [1, 2, 3]),
        (np.uint64(2**62 - 2), [1, 2, 3]),
        (np.uint64(2**64 - 2), [1, 2, 3]),
    ],
)
@pytest.mark.parametrize("sampler", [SAMPLERS[0][0], SAMPLERS[3][0]])
def test_numbers_that_are_refused_do_not_stay_clear(sampler, start, x):
    data = np.array(x)
    out = data if len(x) == 3 else np.arange(3)
    assert add_noise(sampler, start, data, out) == 1
    assert (out == -(2**63)).all()


def test_single_elements_are_never_refused_but_for_their_value():
    encoder, sampler = Encoder(local.Duchi(1.0), noise=PINNED), SAMPLERS[2][0]
    assert code_at(encoder, 0, np.nan) == code_at(encoder, 0, np.inf) == -1
    assert code_at(encoder, 2**62 + 5, 0.3) == code_at(encoder, 5, 0.3)
    assert [noise_at(sampler, 2**62 + i) for i in range(9)] == [
        noise_at(sampler, i) for i in range(9)
    ]


def test_arrays_of_the_wrong_kind_do_not_compile():
    encoder, sampler = Encoder(local.Duchi(1.0)), SAMPLERS[0][0]
    with pytest.raises(TypingError):
        encode(encoder, 0, np.zeros(3), np.zeros(3, np.uint16))
    with pytest.raises(TypingError):
        encode(encoder, 0, np.zeros(6)[::2], np.zeros(3, np.uint8))
    with pytest.raises(TypingError):
        add_noise(sampler, 0, np.zeros(3), np.zeros(3, np.int64))
    with pytest.raises(TypingError):
        encode(sampler, 0, np.zeros(3), np.zeros(3, np.uint8))


def test_a_refusal_inside_a_parallel_loop_stops_nothing_else():
    x = np.zeros(100)
    expected = local.Duchi(1.0).encode(x, noise=PINNED)
    codes, x[60] = np.zeros(100, np.uint8), np.nan
    failed = encode_blocks(Encoder(local.Duchi(1.0), noise=PINNED), 0, x, codes, 10)
    expected[60:70] = 255
    assert failed == 1
    assert np.array_equal(codes, expected)


def test_parameters_are_checked():
    with pytest.raises(ParameterError, match="mechanism"):
        Encoder("duchi")
    with pytest.raises(InsecureNoiseError):
        Encoder(local.Duchi(1.0), noise=dpcore.Noise.insecure(1))
    with pytest.raises(ParameterError, match="epsilon"):
        Sampler.laplace(epsilon=0, sensitivity=1)
    with pytest.raises(ParameterError, match="sigma"):
        Sampler.discrete_gaussian(0)


CACHED = """
import hashlib
import numpy as np
from numba import njit, prange
import dpcore
from dpcore import local
from dpcore.interop.numba import Encoder, Sampler, add_noise, encode


@njit(parallel=True, cache=True)
def work(encoder, sampler, x, codes, out):
    for i in prange(len(x)):
        encode(encoder, i * x.shape[1], x[i], codes[i])
        add_noise(sampler, i * x.shape[1], codes[i].astype(np.int64), out[i])


if __name__ == "__main__":
    noise = dpcore.Noise.from_key(bytes(range(32))).stream("cache")
    mechanism = local.ThreeOutputs(1.0)
    x = np.random.default_rng(0).uniform(-1, 1, (40, 50))
    codes, out = np.empty(x.shape, np.uint8), np.empty(x.shape, np.int64)
    sampler = Sampler.laplace(epsilon=1.0, sensitivity=1, noise=noise)
    work(Encoder(mechanism, noise=noise), sampler, x, codes, out)
    expected = mechanism.encode(x, noise=noise)
    assert np.array_equal(codes, expected)
    noisy = dpcore.laplace(expected.astype(np.int64), epsilon=1.0, sensitivity=1, noise=noise)
    assert np.array_equal(out, noisy)
    stats = work.stats
    print(sum(stats.cache_hits.values()), sum(stats.cache_misses.values()),
          hashlib.sha256(codes.tobytes() + out.tobytes()).hexdigest())
"""


def test_the_cache_is_hit_in_another_process_with_the_same_result(tmp_path):
    program = tmp_path / "cached.py"
    program.write_text(CACHED)

    def run():
        done = subprocess.run(
            [sys.executable, program], capture_output=True, text=True, timeout=900, check=False
        )
        assert done.returncode == 0, done.stderr
        hits, misses, digest = done.stdout.split()
        return int(hits), int(misses), digest

    first, second = run(), run()
    assert first[:2] == (0, 1)
    assert second[:2] == (1, 0)
    assert first[2] == second[2]


def test_the_example_agrees_with_numpy():
    low, true, high = numba_kernel.main(2000)
    assert low < true < high
