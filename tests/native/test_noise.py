"""Sources of noise: who repeats whom, across releases, objects, threads, forks and pickles."""

import base64
import copy
import gc
import pickle
import signal
import sys
import threading
import traceback

import numpy as np
import pytest
from native_shims import ENTROPY_PROGRAM, ENTROPY_SHIM, WIPE_PROGRAM, WIPE_SHIM
from native_support import KEY_BYTES, compile_library, in_child, run_python

import dpcore
from dpcore import Noise, NotPrivateArray
from dpcore.errors import InsecureNoiseError, ParameterError
from dpcore.random import ChaCha20
from dpcore_ext.rng import Key

OTHER_KEY = bytes(range(1, 33))

# name: (make, two releases of one object agree, first releases of two objects made alike agree,
# a forked child agrees with its parent: None where it refuses, a pickled copy agrees: None where
# pickling is refused)
MATRIX = {
    "os": (Noise, False, False, False, None),
    "os, pinned": (lambda: Noise().stream("a"), True, False, True, None),
    "key": (lambda: Noise.from_key(KEY_BYTES), False, False, False, False),
    "key, pinned": (lambda: Noise.from_key(KEY_BYTES).stream("a"), True, True, True, True),
    "insecure": (lambda: Noise.insecure(7), False, True, None, None),
    "insecure, pinned": (lambda: Noise.insecure(7).stream("a"), True, True, True, True),
}
KINDS = list(MATRIX)
# The unpinned insecure source has a test of its own.
PICKLED = [name for name in KINDS if name != "insecure"]


def release(noise):
    """256 bits of noise: equal only if the streams are."""
    return np.asarray(dpcore.random.integers(-(2**63), 2**63, 4, noise=noise)).tolist()


def seconds(noise):
    """What a release after the first one gives."""
    release(noise)
    return release(noise)


def correlation(a, b):
    return abs(np.corrcoef(np.asarray(a, float), np.asarray(b, float))[0, 1])


# The randomness matrix


@pytest.mark.parametrize("name", KINDS)
def test_two_releases_of_one_source_agree_only_if_pinned(name):
    make, expected, *_ = MATRIX[name]
    noise = make()
    assert (release(noise) == release(noise)) is expected


@pytest.mark.parametrize("name", KINDS)
def test_sources_made_alike_agree_only_if_key_and_stream_are_given(name):
    make, _, expected, *_ = MATRIX[name]
    assert (release(make()) == release(make())) is expected


@pytest.mark.parametrize("name", KINDS)
def test_children_agree_with_their_parent_only_on_pinned_streams(name):
    make, _, _, expected, _ = MATRIX[name]
    noise = make()
    before = release(noise)
    first, second = (in_child(lambda: seconds(noise)) for _ in range(2))
    if expected is None:
        assert isinstance(first, InsecureNoiseError)
        assert isinstance(second, InsecureNoiseError)
    elif expected:
        assert first == second == before == release(noise)
    else:
        assert not any(a == b for a, b in [(first, second), (first, before), (second, before)])
        assert release(noise) not in (first, second, before)


@pytest.mark.parametrize("name", PICKLED)
def test_pickles_exist_only_for_explicit_keys_and_agree_only_on_pinned_streams(name):
    make, *_, expected = MATRIX[name]
    noise = make()
    if expected is None:
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps(noise)
    else:
        restored = pickle.loads(pickle.dumps(noise))
        assert restored.private == noise.private
        assert (release(restored) == release(noise)) is expected


def test_a_pickled_insecure_source_does_not_repeat_what_was_released():
    """As in a fork: workers that get a copy each would all draw the same noise."""
    noise = Noise.insecure(7)
    released = release(noise)
    try:
        restored = pickle.loads(pickle.dumps(noise))
    except TypeError:
        return
    assert release(restored) != released


@pytest.mark.parametrize("name", KINDS)
def test_copies_share_the_stream_of_their_original(name):
    noise = MATRIX[name][0]()
    drawn = [release(n) for n in (noise, copy.copy(noise), copy.deepcopy(noise))]
    pinned = "pinned" in name
    assert len({tuple(d) for d in drawn}) == (1 if pinned else 3)


@pytest.mark.parametrize("name", KINDS)
def test_only_insecure_sources_are_not_private(name):
    noise = MATRIX[name][0]()
    result = dpcore.laplace([1, 2], epsilon=1, sensitivity=1, noise=noise)
    assert noise.private is ("insecure" not in name)
    assert isinstance(result, NotPrivateArray) is not noise.private


def test_streams_of_other_keys_seeds_and_ids_differ():
    sources = [
        Noise.from_key(KEY_BYTES),
        Noise.from_key(OTHER_KEY),
        Noise.insecure(0),
        Noise.insecure(1),
        Noise.insecure(-1),
    ]
    ids = [("a",), ("b",), ("a", "a"), ("",), (0,), (-1,)]
    drawn = {tuple(release(source.stream(*names))) for source in sources for names in ids}
    assert len(drawn) == len(sources) * len(ids)


# Domain separation


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((1,), ("1",)),
        (("1",), (b"1",)),
        ((1,), (b"1",)),
        ((1,), (b"\x01",)),
        (("ab", "c"), ("a", "bc")),
        (("abc",), ("ab", "c")),
        (("asb",), ("a", "b")),
        (("ai1",), ("a", 1)),
        (("a", "b"), ("b", "a")),
        (("a", 1), ("a1",)),
        ((1, 2), (12,)),
        ((0,), (-0, 0)),
        (("",), (b"",)),
        (("a",), ("a", "")),
        ((2**64,), (0,)),
        ((2**64 + 5,), (5,)),
    ],
)
def test_ids_are_told_apart_by_type_order_and_boundaries(one, other):
    noise = Noise.from_key(KEY_BYTES)
    assert release(noise.stream(*one)) != release(noise.stream(*other))


def test_integers_of_numpy_name_the_same_stream():
    noise = Noise.from_key(KEY_BYTES)
    assert release(noise.stream(np.int32(5))) == release(noise.stream(5))


def test_a_stream_of_a_stream_is_another_stream():
    noise = Noise.from_key(KEY_BYTES)
    assert release(noise.stream("a").stream("b")) != release(noise.stream("a", "b"))
    assert release(noise.stream("a").stream("a")) != release(noise.stream("a"))


@pytest.mark.parametrize("ids", [(), (1.5,), (None,), (True,), (np.True_,), ([1],), ((1,),)])
def test_ids_of_other_types_are_refused(ids):
    with pytest.raises(ParameterError, match="'ids'"):
        Noise.from_key(KEY_BYTES).stream(*ids)


def test_text_that_has_no_utf8_form_is_refused_as_an_id():
    with pytest.raises(ParameterError, match="'ids'"):
        Noise.from_key(KEY_BYTES).stream("\ud800")


def test_kinds_of_release_on_one_pinned_stream_are_uncorrelated():
    """5.5 standard errors: a false alarm has a chance below 1e-6 over all pairs."""
    noise = Noise.from_key(KEY_BYTES).stream("one")
    n = 20_000
    zeros, floats = np.zeros(n, np.int64), np.zeros(n)

    def laplace(x, epsilon, **grid):
        return dpcore.laplace(x, epsilon=epsilon, sensitivity=1, noise=noise, **grid)

    drawn = {
        "laplace": laplace(zeros, 1),
        "laplace, other epsilon": laplace(zeros, 0.5),
        "laplace, epsilon next to it": laplace(zeros, np.nextafter(1.0, 2)),
        "laplace of floats": laplace(floats, 1),
        "laplace of floats, other grid": laplace(floats, 1, resolution=2.0**-3),
        "gaussian": dpcore.gaussian(zeros, sigma=3, sensitivity=1, noise=noise),
        "gaussian, other sigma": dpcore.gaussian(zeros, sigma=40, sensitivity=1, noise=noise),
        "gaussian of floats": dpcore.gaussian(floats, sigma=3, sensitivity=1, noise=noise),
        "histogram": dpcore.histogram([0], n, epsilon=1, noise=noise),
        "discrete_laplace": dpcore.random.discrete_laplace(1, n, noise=noise),
        "discrete_gaussian": dpcore.random.discrete_gaussian(3, n, noise=noise),
        "rounded_gaussian": dpcore.random.rounded_gaussian(3, n, noise=noise),
        "geometric": dpcore.random.geometric(1, n, noise=noise),
        "integers": dpcore.random.integers(0, 100, n, noise=noise),
        "bernoulli": dpcore.random.bernoulli(0.5, n, noise=noise),
    }
    drawn["histogram"] = drawn["histogram"][1:]
    assert correlation(drawn["laplace"], laplace(zeros, 1)) > 0.999
    names = list(drawn)
    for i, one in enumerate(names):
        for other in names[:i]:
            a, b = drawn[one], drawn[other]
            m = min(len(a), len(b))
            assert correlation(a[-m:], b[-m:]) < 5.5 / np.sqrt(n), (one, other)


# Forks


def test_many_children_of_one_source_never_repeat_each_other():
    noise = Noise()
    drawn = [tuple(in_child(lambda: release(noise))) for _ in range(10)]
    grandchildren = [tuple(in_child(lambda: in_child(lambda: release(noise)))) for _ in range(3)]
    assert len({tuple(release(noise)), *drawn, *grandchildren}) == 14


def test_a_source_made_in_a_child_works_there():
    assert len(in_child(lambda: release(Noise.insecure(3)))) == 4
    assert in_child(lambda: release(Noise.insecure(3))) == release(Noise.insecure(3))


def test_children_and_parent_draw_on_after_a_fork_without_repeating():
    noise = Noise.from_key(KEY_BYTES)
    release(noise)
    child = in_child(lambda: [tuple(release(noise)) for _ in range(5)])
    parent = [tuple(release(noise)) for _ in range(5)]
    assert len({*child, *parent}) == 10


@pytest.mark.parametrize("used", [0, 1, 3, 511, 512])
def test_a_bit_generator_keyed_by_the_system_is_keyed_anew_in_a_child(used):
    generator = np.random.Generator(ChaCha20())
    generator.bit_generator.random_raw(used)
    children = [in_child(lambda: generator.bit_generator.random_raw(1024)) for _ in range(2)]
    parent = generator.bit_generator.random_raw(1024)
    words = np.concatenate([parent, *children])
    assert len(np.unique(words)) == len(words)


def halves(generator, n):
    return generator.integers(0, 2**32, n, dtype=np.uint32).tolist()


def test_half_a_word_left_over_is_not_repeated_in_a_child():
    generator = np.random.Generator(ChaCha20())
    halves(generator, 1)
    children = [in_child(lambda: halves(generator, 1)[0]) for _ in range(3)]
    # Chance of a false alarm: 6 pairs of 32-bit numbers, 2**-29.
    assert len({halves(generator, 1)[0], *children}) == 4


def test_a_bit_generator_with_an_explicit_key_goes_on_alike_in_a_child():
    generator = np.random.Generator(ChaCha20(key=KEY_BYTES))
    generator.bit_generator.random_raw(5)
    child = in_child(lambda: generator.bit_generator.random_raw(600).tolist())
    assert child == generator.bit_generator.random_raw(600).tolist()


def test_half_a_word_left_over_is_kept_in_a_child_where_the_key_is_explicit():
    """The documented promise: reproducible, as any NumPy bit generator is, also across a fork."""
    generator = np.random.Generator(ChaCha20(key=KEY_BYTES))
    halves(generator, 1)
    child = in_child(lambda: halves(generator, 5))
    assert child == halves(generator, 5)


def test_spawned_generators_do_not_repeat_themselves_in_a_child_of_a_secure_parent():
    """A generator keyed by the system, and whatever comes from it, is new in a forked process."""
    [spawned] = np.random.Generator(ChaCha20()).spawn(1)
    child = in_child(lambda: spawned.bit_generator.random_raw(4).tolist())
    assert child != spawned.bit_generator.random_raw(4).tolist()


# Threads


def in_threads(n_threads, work):
    results, barrier = [], threading.Barrier(n_threads)

    def run():
        barrier.wait(timeout=30)
        results.extend(work())

    threads = [threading.Thread(target=run) for _ in range(n_threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert not any(thread.is_alive() for thread in threads)
    return results


@pytest.mark.parametrize("name", ["os", "key", "insecure"])
def test_threads_that_share_a_source_never_share_noise(name):
    noise = MATRIX[name][0]()
    drawn = in_threads(8, lambda: [tuple(release(noise)) for _ in range(200)])
    assert len(set(drawn)) == len(drawn) == 1600


def test_threads_on_a_pinned_stream_all_get_its_noise():
    noise = Noise.from_key(KEY_BYTES).stream("t")
    drawn = in_threads(8, lambda: [tuple(release(noise)) for _ in range(50)])
    assert set(drawn) == {tuple(release(noise))}
    assert len(drawn) == 400


def test_threads_of_a_child_never_share_noise():
    noise = Noise.from_key(KEY_BYTES)
    drawn = in_child(lambda: in_threads(8, lambda: [tuple(release(noise)) for _ in range(100)]))
    assert len(set(drawn)) == len(drawn) == 800


# Secrecy of keys


def forms(key):
    """What a key may look like in text."""
    number = int.from_bytes(key, "little")
    return [
        key.hex(),
        key.hex().upper(),
        key.hex(" "),
        repr(key)[2:-1],
        str(list(key))[1:-1],
        base64.b64encode(key).decode(),
        str(number),
        str(int.from_bytes(key, "big")),
        key.decode("latin-1"),
        *(str(word) for word in np.frombuffer(key, "<u4")),
        *(str(word) for word in np.frombuffer(key, "<u8")),
    ]


def texts_of(thing):
    """Whatever an object says about itself."""
    yield from (repr(thing), str(thing), f"{thing}", ascii(thing))
    for name in dir(thing):
        try:
            value = getattr(thing, name)
        except Exception as error:
            yield str(error)
        else:
            if not callable(value):
                yield repr(value)


@pytest.mark.parametrize(
    "key", [KEY_BYTES, bytes(b * 7 % 251 for b in range(3, 35))], ids=["letters", "mixed"]
)
def test_no_object_shows_its_key(key):
    noise = Noise.from_key(key)
    pinned = noise.stream("secret")
    derived = pinned.key_for("laplace", 1)
    shown = [
        *texts_of(noise),
        *texts_of(pinned),
        *texts_of(noise._key),
        *texts_of(derived),
        *texts_of(ChaCha20(key=key)),
        *texts_of(np.random.Generator(ChaCha20(key=key))),
        *texts_of(noise._fresh),
    ]
    secrets = [form for k in (key, pinned._key.export(), derived.export()) for form in forms(k)]
    assert len(shown) > 50
    for text in shown:
        assert not any(secret in text for secret in secrets)


def test_no_object_has_a_dictionary_to_look_into():
    for thing in (Noise(), Noise.from_key(KEY_BYTES), Key.from_os()):
        with pytest.raises(TypeError):
            vars(thing)


def failures(key):
    def of(call):
        try:
            call()
        except Exception as error:
            return "".join(traceback.format_exception(error))
        raise AssertionError("nothing was raised")

    noise = Noise.from_key(key)
    return [
        of(lambda: Noise.from_key(key + b"x")),
        of(lambda: Noise.from_key(key[:-1])),
        of(lambda: Noise.from_key(key.hex())),
        of(lambda: ChaCha20(key=key[:31])),
        of(lambda: noise.stream(1.5)),
        of(lambda: pickle.dumps(Key.from_bytes(key))),
        of(lambda: pickle.dumps(ChaCha20(key=key))),
        of(lambda: ChaCha20(key=key).state),
        of(lambda: dpcore.laplace([1.0, np.nan], epsilon=1, sensitivity=1, noise=noise)),
        of(lambda: dpcore.laplace([1], epsilon=-1, sensitivity=1, noise=noise)),
        of(lambda: dpcore.random.integers(0, 5, noise=key)),
    ]


def test_no_exception_shows_a_key():
    secrets = [form for k in (KEY_BYTES, KEY_BYTES[:31], KEY_BYTES[:-1]) for form in forms_of(k)]
    for text in failures(KEY_BYTES):
        assert not any(secret in text for secret in secrets), text.splitlines()[-1]


def forms_of(key):
    return [key.hex(), repr(key)[2:-1], str(list(key))[1:-1], key.decode("latin-1")]


@pytest.mark.parametrize("make", [Key.from_os, ChaCha20, Noise], ids=["Key", "ChaCha20", "Noise"])
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_keys_of_the_system_cannot_be_pickled(make, protocol):
    with pytest.raises(TypeError):
        pickle.dumps(make(), protocol)


def test_keys_and_bit_generators_cannot_be_pickled_even_if_explicit():
    for thing in (Key.from_bytes(KEY_BYTES), ChaCha20(key=KEY_BYTES)):
        for use in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError):
                use(thing)


def test_a_pickle_of_a_pinned_stream_does_not_contain_the_key_it_was_derived_from():
    noise = Noise.from_key(KEY_BYTES)
    assert KEY_BYTES in pickle.dumps(noise)
    assert KEY_BYTES not in pickle.dumps(noise.stream("a"))


def test_the_memory_of_keys_is_wiped_before_it_is_freed(tmp_path):
    """Under malloc, `free` itself looks into the block; a plain bytes object is the control."""
    result = run_python(
        WIPE_PROGRAM,
        preload=compile_library(WIPE_SHIM, tmp_path),
        env={"PYTHONMALLOC": "malloc"},
    )
    assert result.returncode == 0, result.stderr
    control, *wiped = result.stdout.split()
    assert control == "3"
    assert wiped == ["1"] * 4


def test_a_discarded_source_keeps_no_reference_to_its_key():
    noise = Noise.from_key(KEY_BYTES)
    for _ in range(3):
        release(noise)
        release(noise.stream("a"))
    key = noise._key
    held = sys.getrefcount(key)
    del noise
    gc.collect()
    assert sys.getrefcount(key) == held - 1 == 2


# Entropy


@pytest.fixture(scope="module")
def entropy_shim(tmp_path_factory):
    return compile_library(ENTROPY_SHIM, tmp_path_factory.mktemp("entropy"))


def test_nothing_is_released_without_entropy(entropy_shim):
    result = run_python(ENTROPY_PROGRAM, preload=entropy_shim, env={"ENTROPY_CALLS": "0"})
    assert result.returncode == 0, result.stderr
    names = "Key Noise ChaCha20 from_key laplace gaussian histogram bounded_sum random done"
    assert result.stdout.split() == names.split()


def test_the_same_program_raises_nothing_where_there_is_entropy(entropy_shim):
    program = ENTROPY_PROGRAM.replace("assert out.tolist()", "assert True or out.tolist()")
    result = run_python(program, preload=entropy_shim)
    assert result.stdout.split() == ["done"], result.stderr


def test_interrupted_and_partial_reads_of_entropy_are_completed(entropy_shim):
    program = "from dpcore_ext.rng import Key; print(Key.from_os().export().hex())"
    result = run_python(program, preload=entropy_shim, env={"ENTROPY_DRIP": "1"})
    assert result.stdout.strip() == bytes(range(32)).hex(), result.stderr


def test_a_source_without_entropy_for_its_new_salt_raises_in_a_child(entropy_shim):
    program = """
import os
import dpcore
noise = dpcore.Noise()
dpcore.random.integers(0, 5, noise=noise)
if os.fork() == 0:
    try:
        dpcore.random.integers(0, 5, noise=noise)
    except dpcore.errors.EntropyError:
        os._exit(5)
    os._exit(0)
print(os.waitstatus_to_exitcode(os.wait()[1]))
"""
    result = run_python(program, preload=entropy_shim, env={"ENTROPY_CALLS": "2"})
    assert result.stdout.split() == ["5"], result.stderr


def test_a_bit_generator_without_entropy_for_its_new_key_stops_the_child(entropy_shim):
    program = """
import os, resource
from dpcore.random import ChaCha20
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
generator = ChaCha20()
generator.random_raw()
if os.fork() == 0:
    generator.random_raw()
    os._exit(0)
print(os.waitstatus_to_exitcode(os.wait()[1]))
"""
    result = run_python(program, preload=entropy_shim, env={"ENTROPY_CALLS": "1"})
    assert result.stdout.split() == [str(-signal.SIGABRT)], result.stderr
    assert "no entropy in a forked process" in result.stderr


# Marks of insecure results


def test_results_of_insecure_noise_say_so():
    noise = Noise.insecure(1)
    array = dpcore.laplace([1, 2, 3], epsilon=1, sensitivity=1, noise=noise)
    assert array.private is False
    assert "not private" in repr(array)
    assert "not private" in repr(noise)
    for derived in (array + 1, array * 2.5, array[1:], array.astype(float), array.sum()):
        assert isinstance(derived, NotPrivateArray), type(derived)


@pytest.mark.parametrize("x", [5, 5.5, [5], [5.5]])
def test_insecure_releases_of_every_shape_are_marked(x):
    noise = Noise.insecure(1)
    assert isinstance(dpcore.gaussian(x, sigma=2, sensitivity=1, noise=noise), NotPrivateArray)


@pytest.mark.parametrize("x", [[5, 6], [5.5, 6.5]])
def test_an_insecure_release_into_out_is_marked(x):
    out = np.zeros_like(np.asarray(x))
    result = dpcore.laplace(x, epsilon=1, sensitivity=1, noise=Noise.insecure(1), out=out)
    assert isinstance(result, NotPrivateArray)
    assert np.shares_memory(result, out)
    assert np.array_equal(result, out)


def test_aggregates_and_samples_of_insecure_noise_are_marked():
    noise = Noise.insecure(1)
    results = [
        dpcore.histogram([0, 1], 2, epsilon=1, noise=noise),
        dpcore.bounded_sum([0.5], 0, 1, epsilon=1, noise=noise),
        dpcore.bounded_mean([0.5], 0, 1, epsilon=1, noise=noise),
        dpcore.random.bernoulli(0.5, noise=noise),
        dpcore.random.integers(0, 9, noise=noise),
        dpcore.random.geometric(2, 3, noise=noise),
    ]
    assert all(isinstance(result, NotPrivateArray) for result in results)


def test_the_nth_insecure_release_depends_on_the_seed_and_n():
    one, other = Noise.insecure(5), Noise.insecure(5)
    drawn = [release(one) for _ in range(5)]
    assert drawn == [release(other) for _ in range(5)]
    assert len({tuple(d) for d in drawn}) == 5
