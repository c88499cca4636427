"""Element i of a release depends on the key, the stream and i: not on how the call was cut."""

import functools
import itertools
import multiprocessing

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from native_support import KEY_BYTES, LEVELS

import dpcore
from dpcore import Noise, random
from dpcore.errors import ParameterError

N = 300
NOISE = Noise.from_key(KEY_BYTES).stream("addressing")
INTEGERS = np.random.default_rng(1).integers(-1000, 1000, N)
FLOATS = np.random.default_rng(2).normal(size=N)

laplace = functools.partial(dpcore.laplace, epsilon=0.3, sensitivity=1, noise=NOISE)
gaussian = functools.partial(dpcore.gaussian, sigma=50, sensitivity=1, noise=NOISE)

# name: release(begin, end) of the elements begin to end - 1 of one and the same release.
RELEASES = {
    "laplace of integers": lambda b, e: laplace(INTEGERS[b:e], start=b),
    "laplace of floats": lambda b, e: laplace(FLOATS[b:e], start=b, dimension=N),
    "laplace on a given grid": lambda b, e: laplace(
        FLOATS[b:e], start=b, dimension=N, resolution=2.0**-30
    ),
    "gaussian of integers": lambda b, e: gaussian(INTEGERS[b:e], start=b),
    "gaussian with few units": lambda b, e: dpcore.gaussian(
        INTEGERS[b:e], sigma=2.5, sensitivity=1, noise=NOISE, start=b
    ),
    "gaussian of floats": lambda b, e: gaussian(FLOATS[b:e], start=b, dimension=N),
    "gaussian from epsilon and delta": lambda b, e: dpcore.gaussian(
        FLOATS[b:e],
        epsilon=1,
        delta=1e-6,
        sensitivity=1,
        noise=NOISE,
        start=b,
        dimension=N,
    ),
    "bernoulli": lambda b, e: random.bernoulli(0.3, e - b, noise=NOISE, start=b),
    "integers": lambda b, e: random.integers(-5, 2**62, e - b, noise=NOISE, start=b),
    "geometric": lambda b, e: random.geometric(1e6, e - b, noise=NOISE, start=b),
    "discrete_laplace": lambda b, e: random.discrete_laplace(40, e - b, noise=NOISE, start=b),
    "discrete_gaussian": lambda b, e: random.discrete_gaussian(1e3, e - b, noise=NOISE, start=b),
    "rounded_gaussian": lambda b, e: random.rounded_gaussian(7.5, e - b, noise=NOISE, start=b),
}

cuts = st.lists(st.integers(1, N - 1), unique=True, max_size=40).map(lambda c: [0, *sorted(c), N])


@pytest.fixture
def threads():
    yield dpcore.set_num_threads
    dpcore.set_num_threads(None)


@pytest.mark.parametrize("name", RELEASES)
@settings(derandomize=True, max_examples=12, deadline=None)
@given(edges=cuts)
def test_any_cut_gives_the_same_release(name, edges):
    release = RELEASES[name]
    whole = release(0, N)
    parts = [release(begin, end) for begin, end in itertools.pairwise(edges)]
    assert np.array_equal(np.concatenate(parts), whole)


@pytest.mark.parametrize("name", RELEASES)
def test_repeating_a_release_on_a_pinned_stream_repeats_it(name):
    assert np.array_equal(RELEASES[name](0, N), RELEASES[name](0, N))


@pytest.mark.parametrize("name", RELEASES)
def test_shifted_elements_get_other_noise(name):
    release, n = RELEASES[name], N - 64
    noise = release(0, n).astype(float)
    for shift in (1, 16, 32, 64):
        shifted = release(shift, shift + n).astype(float)
        assert not np.array_equal(noise, shifted)


def test_a_histogram_is_addressed_by_bin():
    options = {"epsilon": 1, "noise": NOISE}
    labels = np.repeat(np.arange(20), np.arange(1, 21))
    whole = dpcore.histogram(labels, 20, **options)
    parts = []
    for begin in range(0, 20, 5):
        inside = labels[(labels >= begin) & (labels < begin + 5)]
        parts.append(dpcore.histogram(inside - begin, 5, start=begin, **options))
    assert np.array_equal(np.concatenate(parts), whole)


@pytest.mark.parametrize("n_threads", [2, 3])
@pytest.mark.parametrize("name", ["laplace", "gaussian", "floats", "integers"])
def test_threads_do_not_change_a_release(name, n_threads, threads):
    n = 3 * 2**18 + 77
    x = np.arange(n)
    release = {
        "laplace": lambda: laplace(x),
        "gaussian": lambda: gaussian(x),
        "floats": lambda: gaussian(x / 7),
        "integers": lambda: random.integers(0, 10**15, n, noise=NOISE),
    }[name]
    threads(1)
    one = release()
    threads(n_threads)
    assert dpcore.get_num_threads() == n_threads
    assert np.array_equal(release(), one)


def test_processes_give_the_parts_of_one_release():
    edges = [0, 101, N]
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        parts = [
            pool.apply_async(laplace, (INTEGERS[b:e],), {"start": b})
            for b, e in itertools.pairwise(edges)
        ]
        result = np.concatenate([part.get(timeout=900) for part in parts])
    assert np.array_equal(result, laplace(INTEGERS))


@pytest.mark.parametrize("release", [laplace, gaussian], ids=["laplace", "gaussian"])
@pytest.mark.parametrize("x", [np.arange(5000), np.arange(5000) / 8], ids=["integers", "floats"])
def test_a_release_in_place_equals_one_into_new_memory(release, x):
    expected = release(x)
    in_place = x.copy()
    assert release(in_place, out=in_place) is in_place
    assert np.array_equal(in_place, expected)
    out = np.zeros_like(x)
    assert release(x, out=out) is out
    assert np.array_equal(out, expected)


@pytest.mark.parametrize("release", [laplace, gaussian], ids=["laplace", "gaussian"])
@pytest.mark.parametrize("dtype", [np.int64, np.float64])
@pytest.mark.parametrize("step", [1, 700])
def test_an_out_that_overlaps_x_elsewhere_is_refused_or_right(release, dtype, step):
    memory = (np.arange(6000) * 10**6).astype(dtype)
    before = memory.copy()
    expected = release(before[:-step])
    try:
        result = release(memory[:-step], out=memory[step:])
    except ParameterError:
        result, expected = memory, before
    assert np.array_equal(result, expected)


def layouts(x):
    read_only = x.copy()
    read_only.flags.writeable = False
    strided = np.zeros((x.size, 3), x.dtype)
    strided[:, 1] = x
    unaligned = np.frombuffer(b"\0" + x.tobytes(), x.dtype, offset=1)
    assert not unaligned.flags.aligned
    return {
        "read-only": read_only,
        "strided": strided[:, 1],
        "reversed": x[::-1].copy()[::-1],
        "of other byte order": x.astype(x.dtype.newbyteorder()),
        "unaligned": unaligned,
        "a list": x.tolist(),
    }


@pytest.mark.parametrize("release", [laplace, gaussian], ids=["laplace", "gaussian"])
@pytest.mark.parametrize("x", [np.arange(400), np.arange(400) / 8], ids=["integers", "floats"])
def test_layout_of_the_input_does_not_matter(release, x, select_level):
    expected = release(x)
    for level in LEVELS:
        select_level(level)
        for name, same in layouts(x).items():
            before = np.array(same)
            assert np.array_equal(release(same), expected), (level, name)
            assert np.array_equal(same, before), name


@pytest.mark.parametrize("release", [laplace, gaussian], ids=["laplace", "gaussian"])
@pytest.mark.parametrize("x", [np.arange(60), np.arange(60) / 8], ids=["integers", "floats"])
def test_elements_of_a_matrix_are_numbered_row_by_row(release, x):
    expected = release(x).reshape(5, 12)
    assert np.array_equal(release(x.reshape(5, 12)), expected)
    assert np.array_equal(release(np.asfortranarray(x.reshape(5, 12))), expected)
    assert np.array_equal(release(x.reshape(3, 4, 5)).reshape(-1), expected.reshape(-1))
    assert np.array_equal(release(x.reshape(12, 5).T), release(x.reshape(12, 5).T.copy()))


@pytest.mark.parametrize(
    "dtype", [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, "u8"]
)
def test_narrow_integers_get_the_noise_of_wide_ones(dtype):
    result = laplace(np.arange(100, dtype=dtype))
    assert result.dtype == np.int64
    assert np.array_equal(result, laplace(np.arange(100)))


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_narrow_floats_get_the_noise_of_wide_ones_and_keep_their_dtype(dtype):
    x = np.arange(100, dtype=dtype) / 8
    result = laplace(x)
    assert result.dtype == dtype
    assert np.array_equal(result, laplace(x.astype(float)).astype(dtype))


@pytest.mark.parametrize(("x", "kind"), [(7, np.int64), (7.5, np.float64)])
def test_a_number_gives_a_number_with_the_noise_of_element_0(x, kind):
    result = laplace(x)
    assert type(result) is kind
    assert result == laplace([x])[0]


@pytest.mark.parametrize("size", [0, (0, 3), (3, 0)])
def test_empty_sizes_give_empty_arrays(size):
    shape = size if isinstance(size, tuple) else (size,)
    assert random.discrete_laplace(3, size, noise=NOISE).shape == shape
    assert random.integers(0, 3, size, noise=NOISE).shape == shape


def test_shape_of_a_sample_does_not_matter():
    flat = random.rounded_gaussian(50, 24, noise=NOISE)
    assert np.array_equal(random.rounded_gaussian(50, (2, 3, 4), noise=NOISE).reshape(-1), flat)


def test_the_last_elements_below_the_limit_can_be_drawn():
    x = np.zeros(40, np.int64)
    whole = laplace(x, start=2**62 - 40)
    assert np.array_equal(laplace(x[:1], start=2**62 - 1), whole[-1:])
