"""Masks against OpenSSL's keystream at every level; secret sharing against PyCryptodome."""

import numpy as np
import pytest
from Crypto.Protocol import SecretSharing
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from native_support import LEVELS

from dpcore.errors import ParameterError
from dpcore_ext import secagg

RANDOM = np.random.default_rng(5)
KEYS = RANDOM.integers(0, 256, (7, 32), dtype=np.uint8)
SIGNS = np.array([0, 1, 0, 0, 1, 1, 0], np.uint8)
DTYPES = [np.uint32, np.uint64]
LENGTHS = [1, 2, 7, 8, 15, 16, 17, 63, 64, 65, 127, 128, 129, 255, 256, 257, 2047, 4097, 5000]


@pytest.fixture(autouse=True)
def same_data_in_any_order():
    RANDOM.bit_generator.state = np.random.default_rng(6).bit_generator.state


def openssl_words(key, n, dtype, counter=0):
    """Words of the bare cipher: RFC 8439 bytes, read as little-endian integers.

    Block by block: OpenSSL's counter has 32 bits where ours has 64.
    """
    size = n * np.dtype(dtype).itemsize
    stream = b""
    while len(stream) < size:
        iv = counter.to_bytes(8, "little") + bytes(8)
        length = 64 if counter >> 31 else size
        cipher = Cipher(algorithms.ChaCha20(bytes(key), iv), None).encryptor()
        stream += cipher.update(bytes(length))
        counter += 1
    return np.frombuffer(stream[:size], np.dtype(dtype).newbyteorder("<")).astype(dtype)


def masked(acc, keys=KEYS, signs=SIGNS, counter=0):
    """What mask_add must give, by NumPy's wrapping arithmetic."""
    result = acc.copy()
    for key, negative in zip(keys, signs, strict=True):
        words = openssl_words(key, acc.size, acc.dtype, counter)
        result = result - words if negative else result + words
    return result


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("n", LENGTHS)
def test_masks_are_the_keystream_of_openssl(dtype, level, n, select_level):
    select_level(level)
    acc = RANDOM.integers(0, np.iinfo(dtype).max, n, dtype, endpoint=True)
    expected = masked(acc)
    secagg.mask_add(KEYS, SIGNS, 0, acc)
    assert np.array_equal(acc, expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("level", LEVELS)
def test_pieces_at_multiples_of_64_bytes_join(dtype, level, select_level):
    select_level(level)
    whole = np.zeros(9001, dtype)
    secagg.mask_add(KEYS, SIGNS, 0, whole)
    per_block = 64 // np.dtype(dtype).itemsize
    parts = np.zeros_like(whole)
    for begin, end in ((0, 5), (5, 6), (6, 77), (77, 9001)):
        secagg.mask_add(KEYS, SIGNS, begin, parts[begin * per_block : end * per_block])
    assert np.array_equal(parts, whole)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("level", LEVELS)
def test_the_counter_carries_and_memory_may_be_unaligned(dtype, level, select_level):
    select_level(level)
    room = np.zeros(700, dtype)
    secagg.mask_add(KEYS, SIGNS, 2**32 - 3, room[3:603])
    assert np.array_equal(room[3:603], masked(np.zeros(600, dtype), counter=2**32 - 3))
    assert not room[:3].any()
    assert not room[603:].any()


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_mask_and_its_negative_cancel(dtype):
    acc = RANDOM.integers(0, np.iinfo(dtype).max, 3001, dtype)
    before = acc.copy()
    secagg.mask_add(KEYS, SIGNS, 0, acc)
    assert (acc == before).mean() < 0.01
    secagg.mask_add(KEYS, 1 - SIGNS, 0, acc)
    assert np.array_equal(acc, before)


def test_nothing_to_do_is_done():
    acc = np.ones(5, np.uint64)
    secagg.mask_add(KEYS[:0], SIGNS[:0], 0, acc)
    secagg.mask_add(KEYS, SIGNS, 0, acc[:0])
    assert acc.tolist() == [1] * 5


@pytest.mark.parametrize(
    ("keys", "signs"),
    [(KEYS[:, :31].copy(), SIGNS), (KEYS, SIGNS[:3]), (KEYS[:2], SIGNS)],
)
def test_keys_and_signs_are_checked(keys, signs):
    with pytest.raises(ParameterError, match="parameter"):
        secagg.mask_add(keys, signs, 0, np.zeros(5, np.uint64))


# Secret sharing


def times(a, b):
    """a * b in GF(2**128), a bit a time: the slow twin of the kernel's field."""
    product = 0
    for bit in range(128):
        if b >> bit & 1:
            product ^= a << bit
    for bit in range(254, 127, -1):
        if product >> bit & 1:
            product ^= (1 << 128 | 0x87) << (bit - 128)
    return product


def power(a, exponent):
    result = 1
    while exponent:
        result = times(result, a) if exponent & 1 else result
        a, exponent = times(a, a), exponent >> 1
    return result


def split(coefficients, points):
    shares = np.empty((len(points), coefficients.shape[1]), np.uint8)
    secagg.split(coefficients, np.array(points, np.uint16), shares)
    return shares


def combine(points, shares):
    weights = np.empty((len(points), 16), np.uint8)
    secagg.weights(np.array(points, np.uint16), weights)
    secret = np.empty(shares.shape[1], np.uint8)
    secagg.combine(weights, shares, secret)
    return secret.tobytes()


@pytest.mark.parametrize("points", [[1], [1, 2, 3], [5, 255, 256, 257, 40000, 65535]])
def test_shares_are_the_values_of_the_polynomial(points):
    coefficients = RANDOM.integers(0, 256, (4, 32), dtype=np.uint8)
    shares = split(coefficients, points)
    for row, point in enumerate(points):
        for element in (slice(0, 16), slice(16, 32)):
            value = 0
            for power_of_x, coefficient in enumerate(coefficients[::-1, element]):
                term = int.from_bytes(coefficient.tobytes(), "big")
                value ^= times(term, power(point, power_of_x))
            assert shares[row, element].tobytes() == value.to_bytes(16, "big")


@pytest.mark.parametrize(("threshold", "n"), [(1, 1), (2, 3), (5, 9), (67, 100)])
def test_pycryptodome_combines_our_shares(threshold, n):
    coefficients = RANDOM.integers(0, 256, (threshold, 16), dtype=np.uint8)
    shares = split(coefficients, range(1, n + 1))
    chosen = sorted(RANDOM.permutation(n)[:threshold])
    theirs = SecretSharing.Shamir.combine([(int(i) + 1, shares[i].tobytes()) for i in chosen])
    assert theirs == coefficients[-1].tobytes()


@pytest.mark.parametrize(("threshold", "n"), [(2, 3), (5, 9), (20, 30)])
def test_we_combine_the_shares_of_pycryptodome(threshold, n):
    secret = RANDOM.bytes(16)
    shares = SecretSharing.Shamir.split(threshold, n, secret)
    chosen = sorted(RANDOM.permutation(n)[:threshold])
    points = [shares[i][0] for i in chosen]
    rows = np.array([list(shares[i][1]) for i in chosen], np.uint8)
    assert combine(points, rows) == secret


@pytest.mark.parametrize("points", [[1, 2, 3], [7, 300, 65535]])
def test_too_few_shares_or_a_changed_one_give_another_secret(points):
    coefficients = RANDOM.integers(0, 256, (3, 64), dtype=np.uint8)
    shares = split(coefficients, points)
    assert combine(points, shares) == coefficients[-1].tobytes()
    assert combine(points[:2], shares[:2].copy()) != coefficients[-1].tobytes()
    shares[1, 63] ^= 1
    assert combine(points, shares)[:48] == coefficients[-1].tobytes()[:48]
    assert combine(points, shares)[48:] != coefficients[-1].tobytes()[48:]


def test_shares_below_the_threshold_fit_every_secret():
    """Two of three shares: for each other secret there are coefficients that give the same two."""
    coefficients = RANDOM.integers(0, 256, (3, 16), dtype=np.uint8)
    shares = split(coefficients, [1, 2])
    other = RANDOM.integers(0, 256, 16, dtype=np.uint8)
    rows = np.vstack([shares, other])
    values = [int.from_bytes(row.tobytes(), "big") for row in rows]
    # The polynomial through (1, s1), (2, s2), (0, other) by Lagrange, evaluated again at 1 and 2.
    for point, expected in ((1, values[0]), (2, values[1])):
        total = 0
        for i, (x, y) in enumerate(((1, values[0]), (2, values[1]), (0, values[2]))):
            term = y
            for j, z in enumerate((1, 2, 0)):
                if j != i:
                    term = times(term, times(point ^ z, power(x ^ z, 2**128 - 2)))
            total ^= term
        assert total == expected


@pytest.mark.parametrize("points", [[], [0, 1], [1, 1], [2, 1]])
def test_points_are_checked(points):
    with pytest.raises(ParameterError, match="points"):
        split(np.zeros((2, 16), np.uint8), points)


def test_shapes_are_checked():
    points = np.array([1, 2], np.uint16)
    for rows, shares in (((2, 15), (2, 15)), ((0, 16), (2, 16)), ((2, 16), (3, 16))):
        with pytest.raises(ParameterError):
            secagg.split(np.zeros(rows, np.uint8), points, np.zeros(shares, np.uint8))
    with pytest.raises(ParameterError):
        secagg.weights(points, np.zeros((2, 15), np.uint8))
    with pytest.raises(ParameterError):
        secagg.combine(
            np.zeros((2, 16), np.uint8), np.zeros((3, 16), np.uint8), np.zeros(16, np.uint8)
        )
    with pytest.raises(ParameterError):
        secagg.combine(
            np.zeros((2, 16), np.uint8), np.zeros((2, 16), np.uint8), np.zeros(15, np.uint8)
        )
