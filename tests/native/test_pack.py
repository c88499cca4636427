"""Packing against big integers, counting against bincount, and the seam's refusals."""

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcore_ext import errors, pack

WIDTHS = range(1, pack.MAX_BITS + 1)
CASES = [
    (dtype, n_bits)
    for dtype in (np.uint8, np.uint16)
    for n_bits in WIDTHS
    if n_bits <= 8 * np.dtype(dtype).itemsize
]
# Around the limits at which counting changes its tables, for wide and for narrow codes.
LENGTHS = [*range(71), 255, 1023, 2047, 2048, 2049, 4095, 4097, 16391, 20000]

often = settings(derandomize=True, max_examples=200, deadline=None)


def random_codes(n, n_bits, dtype, seed=0):
    return np.random.default_rng(seed).integers(0, 1 << n_bits, n, dtype=dtype)


def size_of(n, n_bits):
    return -(-n * n_bits // 8)


def packed(codes, n_bits):
    """The native packing, with a check that nothing around it was touched."""
    size = size_of(len(codes), n_bits)
    room = np.full(size + 32, 0xA5, np.uint8)
    pack.pack(codes, n_bits, room[16 : 16 + size])
    assert (room[:16] == 0xA5).all()
    assert (room[16 + size :] == 0xA5).all()
    return room[16 : 16 + size].copy()


def reference(codes, n_bits):
    total = sum(int(code) << i * n_bits for i, code in enumerate(codes))
    return total.to_bytes(size_of(len(codes), n_bits), "little")


def unpacked(data, n_bits, n, dtype):
    room = np.full(n + 32, 0xA5, dtype)
    pack.unpack(data, n_bits, room[16 : 16 + n])
    assert (room[:16] == 0xA5).all()
    assert (room[16 + n :] == 0xA5).all()
    return room[16 : 16 + n]


def counted(data, n_bits, n):
    counts = np.zeros(1 << n_bits, np.uint64)
    pack.count_packed(data, n_bits, n, counts)
    return counts


@pytest.mark.parametrize(("dtype", "n_bits"), CASES)
def test_pack_is_the_little_endian_integer_and_unpack_its_inverse(dtype, n_bits):
    for n in LENGTHS[:74]:
        codes = random_codes(n, n_bits, dtype, seed=n)
        data = packed(codes, n_bits)
        assert data.tobytes() == reference(codes, n_bits)
        np.testing.assert_array_equal(unpacked(data, n_bits, n, dtype), codes)


@pytest.mark.parametrize(("dtype", "n_bits"), CASES)
def test_counts_are_those_of_bincount(dtype, n_bits):
    for n in LENGTHS:
        codes = random_codes(n, n_bits, dtype, seed=n)
        expected = np.bincount(codes, minlength=1 << n_bits)
        np.testing.assert_array_equal(counted(packed(codes, n_bits), n_bits, n), expected)
        counts = np.zeros(1 << n_bits, np.uint64)
        pack.count(codes, counts)
        np.testing.assert_array_equal(counts, expected)


@given(st.data())
@often
def test_any_codes_survive(data):
    dtype, n_bits = data.draw(st.sampled_from(CASES))
    codes = np.array(data.draw(st.lists(st.integers(0, (1 << n_bits) - 1), max_size=300)), dtype)
    stream = packed(codes, n_bits)
    assert stream.tobytes() == reference(codes, n_bits)
    np.testing.assert_array_equal(unpacked(stream, n_bits, codes.size, dtype), codes)
    expected = np.bincount(codes, minlength=1 << n_bits)
    np.testing.assert_array_equal(counted(stream, n_bits, codes.size), expected)


@given(st.sampled_from(CASES), st.lists(st.integers(0, 40), max_size=6), st.integers(0, 20))
@often
def test_pieces_of_a_multiple_of_8_codes_join_to_the_whole(case, groups, rest):
    dtype, n_bits = case
    lengths = [8 * group for group in groups] + [rest]
    codes = random_codes(sum(lengths), n_bits, dtype)
    whole = packed(codes, n_bits)
    pieces = np.split(codes, np.cumsum(lengths)[:-1])
    streams = [packed(piece, n_bits) for piece in pieces]
    np.testing.assert_array_equal(np.concatenate(streams), whole)
    counts = np.zeros(1 << n_bits, np.uint64)
    for stream, piece in zip(streams, pieces, strict=True):
        np.testing.assert_array_equal(unpacked(stream, n_bits, piece.size, dtype), piece)
        pack.count_packed(stream, n_bits, piece.size, counts)
    np.testing.assert_array_equal(counts, counted(whole, n_bits, codes.size))


@pytest.mark.parametrize("n_bits", WIDTHS)
def test_unpacking_and_counting_ignore_padding_bits(n_bits):
    dtype = np.uint8 if n_bits <= 8 else np.uint16
    for n in (1, 3, 13, 4099):
        codes = random_codes(n, n_bits, dtype)
        data = packed(codes, n_bits)
        if n * n_bits % 8:
            data[-1] |= 0xFF << n * n_bits % 8 & 0xFF
        np.testing.assert_array_equal(unpacked(data, n_bits, n, dtype), codes)
        expected = np.bincount(codes, minlength=1 << n_bits)
        np.testing.assert_array_equal(counted(data, n_bits, n), expected)


@pytest.mark.parametrize("n_bits", WIDTHS)
def test_equal_codes_are_counted_in_one_place(n_bits):
    dtype = np.uint8 if n_bits <= 8 else np.uint16
    for code in {0, 1, (1 << n_bits) - 1}:
        data = packed(np.full(30001, code, dtype), n_bits)
        counts = counted(data, n_bits, 30001)
        assert counts[code] == 30001
        assert counts.sum() == 30001


@pytest.mark.parametrize(
    ("dtype", "n_bits"), [case for case in CASES if case not in ((np.uint8, 8), (np.uint16, 16))]
)
def test_a_code_too_wide_is_refused_wherever_it_stands(dtype, n_bits):
    for n in (1, 8, 71):
        for place in range(n):
            for code in (1 << n_bits, np.iinfo(dtype).max):
                codes = np.zeros(n, dtype)
                codes[place] = code
                with pytest.raises(errors.DataError, match=r"'codes' .* below 2\*\*n_bits"):
                    packed(codes, n_bits)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("n_counts", [0, 1, 5, 200, 255])
def test_count_refuses_codes_without_a_place_and_counts_nothing(dtype, n_counts):
    codes = np.zeros(3000, dtype)
    codes[1234] = n_counts
    counts = np.full(n_counts, 7, np.uint64)
    with pytest.raises(errors.DataError, match="below the length of 'counts'"):
        pack.count(codes, counts)
    assert (counts == 7).all()
    pack.count(codes[:0], counts)
    assert (counts == 7).all()


def test_count_takes_more_places_than_a_dtype_has_codes():
    counts = np.zeros(70000, np.uint64)
    pack.count(np.array([255], np.uint8), counts)
    pack.count(np.array([65535, 255], np.uint16), counts)
    assert counts[255] == 2
    assert counts[65535] == 1
    assert counts.sum() == 3


def test_counts_are_added():
    counts = np.full(4, 10, np.uint64)
    pack.count_packed(packed(np.array([3, 3, 1], np.uint8), 2), 2, 3, counts)
    pack.count(np.array([0], np.uint16), counts)
    assert counts.tolist() == [11, 11, 10, 12]


def test_buffers_may_be_read_only_unaligned_or_not_of_numpy():
    codes = np.frombuffer(bytes([1, 2, 3, 0, 1]), np.uint8)
    assert not codes.flags.writeable
    expected = reference(codes, 2)
    out = bytearray(2)
    for given_codes in (codes, memoryview(codes), codes.tobytes()):
        pack.pack(given_codes, 2, out)
        assert bytes(out) == expected
    for given_data in (expected, memoryview(expected), np.frombuffer(expected, np.uint8)):
        assert unpacked(given_data, 2, 5, np.uint8).tolist() == codes.tolist()
        assert counted(given_data, 2, 5).tolist() == [1, 2, 1, 1]
    codes = random_codes(1001, 13, np.uint16)
    room = np.zeros(size_of(1001, 13) + 8, np.uint8)
    for offset in range(8):
        view = room[offset : offset + size_of(1001, 13)]
        pack.pack(codes, 13, view)
        np.testing.assert_array_equal(unpacked(view, 13, 1001, np.uint16), codes)


def test_a_read_only_result_is_refused():
    out = np.zeros(1, np.uint8)
    out.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        pack.pack(np.zeros(1, np.uint8), 1, out)


@pytest.mark.parametrize("dtype", [np.int8, np.int64, np.float64, ">u2"])
def test_other_dtypes_are_refused(dtype):
    with pytest.raises((TypeError, ValueError)):
        pack.pack(np.zeros(8, dtype), 1, np.zeros(1, np.uint8))
    with pytest.raises((TypeError, ValueError)):
        pack.unpack(np.zeros(1, np.uint8), 1, np.zeros(8, dtype))


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("n_bits", [-1, 0, 17, 1 << 32, (1 << 64) + 1])
def test_widths_are_checked(dtype, n_bits):
    codes, data = np.zeros(8, dtype), np.zeros(1, np.uint8)
    with pytest.raises(errors.ParameterError, match="'n_bits'"):
        pack.pack(codes, n_bits, data)
    with pytest.raises(errors.ParameterError, match="'n_bits'"):
        pack.unpack(data, n_bits, codes)
    with pytest.raises(errors.ParameterError, match="'n_bits'"):
        pack.count_packed(data, n_bits, 8, np.zeros(2, np.uint64))


def test_uint8_holds_8_bits():
    with pytest.raises(errors.ParameterError, match="from 1 to 8"):
        pack.pack(np.zeros(8, np.uint8), 9, np.zeros(9, np.uint8))
    with pytest.raises(errors.ParameterError, match="from 1 to 8"):
        pack.unpack(np.zeros(9, np.uint8), 9, np.zeros(8, np.uint8))


@pytest.mark.parametrize("wrong", [-1, 1, 8])
def test_lengths_are_checked(wrong):
    codes, counts = np.zeros(11, np.uint8), np.zeros(8, np.uint64)
    data = np.zeros(size_of(11, 3) + wrong, np.uint8)
    with pytest.raises(errors.ParameterError, match="'out'"):
        pack.pack(codes, 3, data)
    with pytest.raises(errors.ParameterError, match="'data'"):
        pack.unpack(data, 3, codes)
    with pytest.raises(errors.ParameterError, match="'data'"):
        pack.count_packed(data, 3, 11, counts)
    with pytest.raises(errors.ParameterError, match="'counts'"):
        pack.count_packed(data[:0], 3, 0, np.zeros(8 + wrong, np.uint64))


@pytest.mark.parametrize("n", [1, 1 << 60, 1 << 61, 1 << 63, (1 << 64) - 8, (1 << 64) - 1])
def test_absurd_numbers_of_codes_do_not_wrap(n):
    for n_bits in WIDTHS:
        with pytest.raises(errors.ParameterError, match="'data'"):
            pack.count_packed(b"", n_bits, n, np.zeros(1 << n_bits, np.uint64))
    with pytest.raises(OverflowError):
        pack.count_packed(b"", 1, -1, np.zeros(2, np.uint64))


def test_threads_pack_neighbouring_pieces_of_one_stream():
    n_bits, piece, n_pieces = 3, 8 * 1000, 16
    codes = random_codes(piece * n_pieces, n_bits, np.uint8)
    out = np.zeros(size_of(codes.size, n_bits), np.uint8)
    step = size_of(piece, n_bits)

    def work(i):
        for _ in range(20):
            pack.pack(codes[i * piece : (i + 1) * piece], n_bits, out[i * step : (i + 1) * step])

    threads = [threading.Thread(target=work, args=(i,)) for i in range(n_pieces)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    np.testing.assert_array_equal(out, packed(codes, n_bits))
