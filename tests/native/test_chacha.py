"""The keystream against RFC 8439, OpenSSL and the twin, at every SIMD level."""

import numpy as np
import pytest
import twin
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from native_support import KEY, KEY_BYTES, LEVELS

from dpcore.errors import ParameterError
from dpcore_ext import rng

# Key, 32-bit counter, 96-bit nonce and block: RFC 8439, section 2.3.2 and appendix A.1.
RFC_VECTORS = {
    "2.3.2": (
        bytes(range(32)),
        1,
        "000000090000004a00000000",
        "10f1e7e4d13b5915500fdd1fa32071c4c7d1f4c733c068030422aa9ac3d46c4e"
        "d2826446079faa0914c2d705d98b02a2b5129cd1de164eb9cbd083e8a2503c4e",
    ),
    "A.1 #1": (
        bytes(32),
        0,
        "000000000000000000000000",
        "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
        "da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586",
    ),
    "A.1 #2": (
        bytes(32),
        1,
        "000000000000000000000000",
        "9f07e7be5551387a98ba977c732d080dcb0f29a048e3656912c6533e32ee7aed"
        "29b721769ce64e43d57133b074d839d531ed1f28510afb45ace10a1f4b794d6f",
    ),
    "A.1 #3": (
        bytes(31) + b"\x01",
        1,
        "000000000000000000000000",
        "3aeb5224ecf849929b9d828db1ced4dd832025e8018b8160b82284f3c949aa5a"
        "8eca00bbb4a73bdad192b5c42f73f2fd4e273644c8b36125a64addeb006c13a0",
    ),
    "A.1 #4": (
        b"\x00\xff" + bytes(30),
        2,
        "000000000000000000000000",
        "72d54dfbf12ec44b362692df94137f328fea8da73990265ec1bbbea1ae9af0ca"
        "13b25aa26cb4a648cb9b9d1be65b2c0924a66c54d545ec1b7374f4872e99f096",
    ),
    "A.1 #5": (
        bytes(32),
        0,
        "000000000000000000000002",
        "c2c64d378cd536374ae204b9ef933fcd1a8b2288b3dfa49672ab765b54ee27c7"
        "8a970e0e955c14f3a88e741b97c286f75f8fc299e8148362fa198a39531bed6d",
    ),
}

LENGTHS = sorted({*range(41), 63, 64, 65, 127, 128, 129})
EDGES = [0, 1, 2**32 - 20, 2**32 - 1, 2**40 + 3, 2**63, 2**64 - 1, 2**64 - 20]


def split_rfc(counter, nonce):
    """RFC 8439's 32-bit counter and 96-bit nonce as a 64-bit counter and a 64-bit nonce."""
    raw = bytes.fromhex(nonce)
    return (
        counter | int.from_bytes(raw[:4], "little") << 32,
        int.from_bytes(raw[4:], "little"),
    )


def keystream(counter, n_blocks, *, key=KEY, nonce=0):
    out = np.empty(64 * n_blocks, np.uint8)
    rng.keystream(key, nonce, counter, out)
    return out.tobytes()


def keystream_at(counters, *, key=KEY, nonce=0):
    out = np.empty(64 * len(counters), np.uint8)
    rng.keystream_at(key, nonce, np.array(counters, np.uint64), out)
    return out.tobytes()


def openssl(key, nonce, counter, n_bytes):
    """The keystream of OpenSSL, one block a time: its own idea of a carry does not enter."""
    result = b""
    while len(result) < n_bytes:
        iv = counter.to_bytes(8, "little") + nonce.to_bytes(8, "little")
        result += Cipher(algorithms.ChaCha20(key, iv), None).encryptor().update(bytes(64))
        counter = (counter + 1) % 2**64
    return result[:n_bytes]


@pytest.mark.parametrize("name", RFC_VECTORS)
def test_every_level_gives_the_block_of_the_rfc(name, select_level):
    key, counter, nonce, block = RFC_VECTORS[name]
    counter, nonce = split_rfc(counter, nonce)
    native = rng.Key.from_bytes(key)
    for level in LEVELS:
        select_level(level)
        assert keystream(counter, 1, key=native, nonce=nonce).hex() == block, level
        assert keystream_at([counter], key=native, nonce=nonce).hex() == block, level


@pytest.mark.parametrize("name", RFC_VECTORS)
def test_the_twin_gives_the_block_of_the_rfc(name):
    key, counter, nonce, block = RFC_VECTORS[name]
    counter, nonce = split_rfc(counter, nonce)
    assert twin.block(key, nonce, counter).hex() == block


def test_hchacha20_of_the_twin_gives_the_vector_of_the_xchacha_draft():
    # draft-irtf-cfrg-xchacha-03, section 2.2.1
    data = bytes.fromhex("000000090000004a0000000031415927")
    expected = "82413b4227b27bfed30e42508a877d73a0f9e4d58a74a853c12ec41326d3ecdc"
    assert twin.hchacha20(bytes(range(32)), data).hex() == expected


def test_derived_keys_equal_those_of_the_twin():
    random = np.random.default_rng(1)
    for _ in range(20):
        key, digest = random.bytes(32), random.bytes(32)
        assert rng.Key.from_bytes(key).derive(digest).export() == twin.derive(key, digest)


def test_each_byte_of_a_digest_changes_the_derived_key():
    digests = [bytes(32)] + [bytes(i) + b"\x01" + bytes(31 - i) for i in range(32)]
    assert len({KEY.derive(digest).export() for digest in digests}) == 33


def test_a_key_exports_the_bytes_it_was_made_from():
    assert rng.Key.from_bytes(KEY_BYTES).export() == KEY_BYTES


def test_keys_of_the_operating_system_differ():
    assert len({rng.Key.from_os().export() for _ in range(100)}) == 100


def test_every_level_equals_openssl_at_random_places(select_level):
    random = np.random.default_rng(2)
    for _ in range(30):
        key = random.bytes(32)
        nonce, counter = (int(v) for v in random.integers(0, 2**64, 2, dtype=np.uint64))
        n_blocks = int(random.integers(1, 40))
        expected = openssl(key, nonce, counter, 64 * n_blocks)
        for level in LEVELS:
            select_level(level)
            native = rng.Key.from_bytes(key)
            assert keystream(counter, n_blocks, key=native, nonce=nonce) == expected, level


@pytest.mark.parametrize("before", [1, 3, 7, 8, 15, 16, 17])
def test_the_counter_carries_across_2_to_32_at_every_level(before, select_level):
    expected = openssl(KEY_BYTES, 5, 2**32 - before, 64 * 36)
    for level in LEVELS:
        select_level(level)
        assert keystream(2**32 - before, 36, nonce=5) == expected, level


@pytest.mark.parametrize("before", [1, 3, 7, 8, 15, 16, 17])
def test_the_counter_wraps_at_2_to_64_at_every_level(before, select_level):
    expected = openssl(KEY_BYTES, 5, 2**64 - before, 64 * 36)
    assert expected[64 * before :] == openssl(KEY_BYTES, 5, 0, 64 * (36 - before))
    for level in LEVELS:
        select_level(level)
        assert keystream(2**64 - before, 36, nonce=5) == expected, level


@pytest.mark.parametrize("counter", EDGES)
def test_levels_agree_at_lane_edge_lengths(counter, select_level):
    select_level("baseline")
    longest = keystream(counter, max(LENGTHS), nonce=2**63 + 9)
    for level in LEVELS:
        select_level(level)
        for n_blocks in LENGTHS:
            expected = longest[: 64 * n_blocks]
            assert keystream(counter, n_blocks, nonce=2**63 + 9) == expected, (level, n_blocks)


@pytest.mark.parametrize("counter", EDGES)
def test_addressed_blocks_equal_consecutive_ones(counter, select_level):
    for level in LEVELS:
        select_level(level)
        for n_blocks in LENGTHS:
            counters = [(counter + i) % 2**64 for i in range(n_blocks)]
            assert keystream_at(counters, nonce=3) == keystream(counter, n_blocks, nonce=3), level


def test_addressed_blocks_may_repeat_and_come_in_any_order(select_level):
    counters = [int(c) for c in np.random.default_rng(3).integers(0, 50, 77)]
    expected = b"".join(twin.block(KEY_BYTES, 11, counter) for counter in counters)
    for level in LEVELS:
        select_level(level)
        assert keystream_at(counters, nonce=11) == expected, level


@pytest.mark.parametrize("offset", [1, 3, 4, 31, 33])
def test_unaligned_output_is_filled_and_nothing_beside_it(offset, select_level):
    for level in LEVELS:
        select_level(level)
        for n_blocks in (1, 4, 7, 8, 16, 19):
            end = offset + 64 * n_blocks
            for fill in (
                lambda out: rng.keystream(KEY, 0, 0, out),
                lambda out: rng.keystream_at(KEY, 0, np.arange(len(out) // 64, dtype="u8"), out),
            ):
                buffer = np.full(end + 64, 0xA5, np.uint8)
                fill(buffer[offset:end])
                assert buffer[offset:end].tobytes() == twin.keystream(KEY_BYTES, 0, 0, n_blocks)
                assert (buffer[:offset] == 0xA5).all()
                assert (buffer[end:] == 0xA5).all()


def test_keystreams_of_different_nonces_share_no_block():
    streams = [keystream(0, 16, nonce=nonce) for nonce in (0, 1, 2**32, 2**63)]
    blocks = {stream[i : i + 64] for stream in streams for i in range(0, 1024, 64)}
    assert len(blocks) == 64


@pytest.mark.parametrize("length", [0, 31, 33, 64])
def test_keys_and_digests_of_other_lengths_are_refused(length):
    with pytest.raises(ParameterError, match="'key'"):
        rng.Key.from_bytes(bytes(length))
    with pytest.raises(ParameterError, match="'digest'"):
        KEY.derive(bytes(length))


def test_output_of_a_wrong_length_is_refused():
    with pytest.raises(ParameterError, match="'out'"):
        rng.keystream(KEY, 0, 0, np.empty(63, np.uint8))
    with pytest.raises(ParameterError, match="'out'"):
        rng.keystream_at(KEY, 0, np.zeros(2, np.uint64), np.empty(64, np.uint8))


def test_unknown_levels_are_refused_and_change_nothing():
    before = rng.level()
    with pytest.raises(ParameterError, match="'level'"):
        rng.select("neon9000")
    assert rng.level() == before


def test_the_fastest_level_is_in_use_by_default():
    assert LEVELS[0] == "baseline"
    assert rng.level() == LEVELS[-1]
