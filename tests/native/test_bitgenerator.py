"""ChaCha20 as a NumPy bit generator."""

import copy
import pickle
import threading

import numpy as np
import pytest
import twin
from native_support import KEY_BYTES, LEVELS

from dpcore.errors import ParameterError
from dpcore.random import ChaCha20

BUFFER = 512  # words that the generator makes at once


def keystream_words(n, nonce=0, key=KEY_BYTES):
    return np.frombuffer(twin.keystream(key, nonce, 0, -(-n // 8)), "<u8")[:n]


def generator(**options):
    return np.random.Generator(ChaCha20(key=KEY_BYTES, **options))


class Raw:
    """The four functions that NumPy's distributions call."""

    def __init__(self, bit_generator):
        self.bit_generator = bit_generator
        self.interface = bit_generator.ctypes

    def u64(self):
        return self.interface.next_uint64(self.interface.state)

    def u32(self):
        return self.interface.next_uint32(self.interface.state)

    def double(self):
        return self.interface.next_double(self.interface.state)


@pytest.mark.parametrize("nonce", [0, 1, 2**63 + 5, 2**64 - 1])
def test_words_are_the_keystream(nonce, select_level):
    expected = keystream_words(2 * BUFFER + 30, nonce)
    for level in LEVELS:
        select_level(level)
        words = ChaCha20(key=KEY_BYTES, nonce=nonce).random_raw(2 * BUFFER + 30)
        assert np.array_equal(words, expected), level


@pytest.mark.parametrize("pieces", [[1, 1, 1], [511, 1, 1], [512, 1], [513, 511], [1000, 30]])
def test_pieces_join_into_the_keystream(pieces):
    made = ChaCha20(key=KEY_BYTES)
    words = np.concatenate([made.random_raw(n) for n in pieces])
    assert np.array_equal(words, keystream_words(sum(pieces)))


def test_half_words_come_low_half_first():
    raw = Raw(ChaCha20(key=KEY_BYTES))
    for word in keystream_words(BUFFER + 5).tolist():
        assert [raw.u32(), raw.u32()] == [word & 0xFFFFFFFF, word >> 32]


def test_a_half_word_left_over_waits_while_whole_words_are_drawn():
    raw = Raw(ChaCha20(key=KEY_BYTES))
    a, b, c = keystream_words(3).tolist()
    assert raw.u32() == a & 0xFFFFFFFF
    assert raw.u64() == b
    assert raw.u32() == a >> 32
    assert raw.u32() == c & 0xFFFFFFFF


def test_doubles_are_the_upper_53_bits_of_words():
    raw = Raw(ChaCha20(key=KEY_BYTES))
    for word in keystream_words(20).tolist():
        assert raw.double() == (word >> 11) / 2**53


def test_the_generator_of_numpy_draws_from_the_keystream():
    expected = (keystream_words(700) >> np.uint64(11)) / 2**53
    assert np.array_equal(generator().random(700), expected)
    halves = keystream_words(50).view("<u4")
    drawn = generator().integers(0, 2**32, 100, dtype=np.uint32)
    assert np.array_equal(drawn, halves)


@pytest.mark.parametrize(
    "draw",
    [
        lambda g: g.random(1000),
        lambda g: g.integers(0, 1000, 1000),
        lambda g: g.integers(0, 200, 1000, dtype=np.uint8),
        lambda g: g.standard_normal(1000),
        lambda g: g.laplace(size=1000),
        lambda g: g.random(1000, dtype=np.float32),
        lambda g: g.permutation(1000),
        lambda g: np.frombuffer(g.bytes(1000), np.uint8),
    ],
    ids=["random", "integers", "bytes8", "normal", "laplace", "float32", "permutation", "bytes"],
)
def test_distributions_of_numpy_are_reproducible_with_a_key_and_fresh_without(draw):
    assert np.array_equal(draw(generator()), draw(generator()))
    assert not np.array_equal(draw(generator()), draw(generator(nonce=1)))
    first, second = (draw(np.random.Generator(ChaCha20())) for _ in range(2))
    assert not np.array_equal(first, second)
    assert np.unique(first).size > 50


def test_normal_samples_have_the_moments_of_the_normal_law():
    drawn = generator().standard_normal(100_000)
    assert abs(drawn.mean()) < 5 / np.sqrt(100_000)
    assert abs(drawn.var() - 1) < 5 * np.sqrt(2 / 100_000)


def test_spawned_generators_are_independent_and_reproducible():
    parents = [generator() for _ in range(2)]
    children = [parent.spawn(3) for parent in parents]
    assert all(isinstance(child.bit_generator, ChaCha20) for child in children[0])
    words = [
        [g.bit_generator.random_raw(1000) for g in (parent, *family)]
        for parent, family in zip(parents, children, strict=True)
    ]
    assert np.array_equal(words[0], words[1])
    assert np.unique(words[0]).size == 4000


def test_spawning_again_gives_new_generators():
    parent = generator()
    drawn = [child.bit_generator.random_raw() for _ in range(3) for child in parent.spawn(2)]
    assert len(set(drawn)) == 6


def test_spawned_keys_are_not_words_that_the_parent_hands_out():
    parent = ChaCha20(key=KEY_BYTES)
    [child] = parent.spawn(1)
    child_key = keystream_words(4).tobytes()
    assert np.array_equal(child.random_raw(20), keystream_words(20, key=child_key))
    assert np.array_equal(parent.random_raw(20), keystream_words(24)[4:])


def test_the_state_can_be_neither_read_nor_set():
    made = ChaCha20(key=KEY_BYTES)
    with pytest.raises(TypeError, match="state"):
        _ = made.state
    with pytest.raises(TypeError, match="state"):
        made.state = {}
    with pytest.raises(TypeError, match="seed"):
        _ = made.seed_seq
    assert np.array_equal(made.random_raw(5), keystream_words(5))


@pytest.mark.parametrize("use", [pickle.dumps, copy.copy, copy.deepcopy])
@pytest.mark.parametrize("key", [None, KEY_BYTES], ids=["system", "explicit"])
def test_it_cannot_be_copied(use, key):
    with pytest.raises(TypeError, match="pickled"):
        use(ChaCha20(key=key))


@pytest.mark.parametrize("use", [pickle.dumps, copy.deepcopy])
def test_a_generator_over_it_cannot_be_copied(use):
    with pytest.raises(TypeError, match="pickled"):
        use(generator())


def test_a_shallow_copy_of_a_generator_goes_on_where_the_original_is():
    original = generator()
    shallow = copy.copy(original)
    words = [g.bit_generator.random_raw() for g in (original, shallow, original, shallow)]
    assert words == keystream_words(4).tolist()


def test_threads_that_share_a_generator_share_out_its_words():
    made, results = ChaCha20(key=KEY_BYTES), []
    barrier = threading.Barrier(8)

    def draw():
        barrier.wait(timeout=30)
        results.extend(made.random_raw(7) for _ in range(100))

    threads = [threading.Thread(target=draw) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    drawn = np.sort(np.concatenate(results))
    assert np.array_equal(drawn, np.sort(keystream_words(5600)))


def test_generators_keyed_by_the_system_differ():
    assert len({ChaCha20().random_raw() for _ in range(50)}) == 50


@pytest.mark.parametrize("key", [b"", bytes(31), bytes(33), bytearray(16)])
def test_keys_of_a_wrong_length_are_refused(key):
    with pytest.raises(ParameterError, match="'key'"):
        ChaCha20(key=key)


@pytest.mark.parametrize("key", [bytearray(KEY_BYTES), memoryview(KEY_BYTES)])
def test_any_buffer_of_32_bytes_is_a_key(key):
    assert np.array_equal(ChaCha20(key=key).random_raw(4), keystream_words(4))


def test_the_key_given_is_copied():
    key = bytearray(KEY_BYTES)
    made = ChaCha20(key=key)
    key[:] = bytes(32)
    assert np.array_equal(made.random_raw(600), keystream_words(600))
