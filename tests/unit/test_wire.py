"""Messages: golden bytes, round trips, and a refusal for everything that is not a message."""

import array
import doctest
import json
import random
import struct
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpcore import errors, wire
from dpcore.errors import DataError, ParameterError, WireFormatError

VECTORS = Path(__file__).parents[1] / "vectors"
GOLDEN = json.loads((VECTORS / "wire.json").read_text())
HEADER = struct.Struct("<4sBBBBQQI")
WIDTHS = range(1, wire.MAX_BITS + 1)

often = settings(derandomize=True, max_examples=200, deadline=None)


def forged(
    payload=b"\x39",
    *,
    magic=b"dpcr",
    version=1,
    kind=1,
    n_bits=2,
    reserved=0,
    count=3,
    n_payload=None,
    parameters=b"ab",
    n_parameters=None,
    tail=b"",
):
    """A message with a right checksum and any contents; by default a valid one."""
    header = HEADER.pack(
        magic,
        version,
        kind,
        n_bits,
        reserved,
        count,
        len(payload) if n_payload is None else n_payload,
        len(parameters) if n_parameters is None else n_parameters,
    )
    body = header + parameters + payload
    return body + zlib.crc32(body).to_bytes(4, "little") + tail


def test_the_golden_messages_are_those_of_their_program(monkeypatch):
    monkeypatch.syspath_prepend(str(VECTORS))
    import make_wire

    assert make_wire.text() == (VECTORS / "wire.json").read_text()
    assert {vector["n_bits"] for vector in GOLDEN} == set(WIDTHS)


@pytest.mark.parametrize("n_bits", WIDTHS)
def test_golden_bytes(n_bits):
    for vector in GOLDEN:
        if vector["n_bits"] == n_bits:
            data, parameters = (bytes.fromhex(vector[key]) for key in ("message", "parameters"))
            codes, kind = vector["codes"], vector["kind"]
            assert wire.pack(codes, kind=kind, n_bits=n_bits, parameters=parameters) == data
            message = wire.unpack(data)
            assert (message.kind, message.n_bits, message.count) == (kind, n_bits, len(codes))
            assert message.parameters == parameters
            assert message.codes().tolist() == codes


@pytest.mark.parametrize("n_bits", WIDTHS)
def test_round_trips(n_bits):
    rng = np.random.default_rng(n_bits)
    for n in [*range(71), 1000, 4099]:
        codes = rng.integers(0, 1 << n_bits, n)
        data = wire.pack(codes, kind=9, n_bits=n_bits, parameters=bytes(n))
        assert type(data) is bytes
        assert len(data) == 32 + n + -(-n * n_bits // 8)
        message = wire.unpack(data)
        assert message.parameters == bytes(n)
        got = message.codes()
        assert got.dtype == (np.uint8 if n_bits <= 8 else np.uint16)
        np.testing.assert_array_equal(got, codes)
        counts = message.counts()
        assert counts.dtype == np.int64
        np.testing.assert_array_equal(counts, np.bincount(codes, minlength=1 << n_bits))


@given(st.data(), st.integers(1, 16), st.integers(0, 255), st.binary(max_size=40))
@often
def test_any_contents_survive(data, n_bits, kind, parameters):
    codes = data.draw(st.lists(st.integers(0, (1 << n_bits) - 1), max_size=100))
    sent = wire.pack(codes, kind=kind, n_bits=n_bits, parameters=parameters)
    message = wire.unpack(sent)
    assert (message.kind, message.n_bits, message.count) == (kind, n_bits, len(codes))
    assert message.parameters == parameters
    assert message.codes().tolist() == codes
    again = wire.pack(message.codes(), kind=kind, n_bits=n_bits, parameters=message.parameters)
    assert again == sent


@pytest.mark.parametrize("n_bits", [1, 8, 9, 16])
@pytest.mark.parametrize("dtype", ["?", "i1", "u1", "<i2", ">i2", "<u2", ">u2", "i4", "i8", "u8"])
def test_integers_of_any_dtype_are_packed_alike(dtype, n_bits):
    codes = [1, 0, 0, 1, 1, 1, 0, 1, 1]
    expected = wire.pack(codes, kind=1, n_bits=n_bits)
    assert wire.pack(np.array(codes, dtype), kind=1, n_bits=n_bits) == expected
    spread = np.zeros(2 * len(codes), dtype)
    spread[::2] = codes
    assert wire.pack(spread[::2], kind=1, n_bits=n_bits) == expected
    spread.flags.writeable = False
    assert wire.pack(spread[::2], kind=1, n_bits=n_bits) == expected


@pytest.mark.parametrize(
    "make",
    [
        bytes,
        bytearray,
        memoryview,
        lambda data: memoryview(bytearray(data)),
        lambda data: np.frombuffer(data, np.uint8),
        lambda data: np.frombuffer(data, np.int8),
        lambda data: array.array("B", data),
        lambda data: memoryview(b"??" + data + b"?")[2:-1],
    ],
)
def test_messages_come_in_any_contiguous_buffer(make):
    data = make(forged())
    message = wire.unpack(data)
    assert message.codes().tolist() == [1, 2, 3]
    assert message.counts().tolist() == [0, 1, 1, 1]
    assert message.payload.readonly
    assert wire.pack([1], kind=1, n_bits=1, parameters=data)[28:-5] == forged()


def test_the_payload_is_not_copied():
    data = bytearray(wire.pack(np.arange(256), kind=1, n_bits=8))
    message = wire.unpack(data)
    assert np.shares_memory(np.frombuffer(message.payload, np.uint8), np.frombuffer(data, np.uint8))
    with pytest.raises(BufferError):
        data.append(0)


def test_counts_add_up_over_messages():
    total = np.array([5, 0, 0, 1])
    message = wire.unpack(forged())
    assert message.counts(out=total) is total
    assert total.tolist() == [5, 1, 1, 2]
    for wrong in (np.zeros(3, np.int64), np.zeros(4), np.zeros(8, np.int64)[::2], [0] * 4):
        with pytest.raises(ParameterError, match="'out'"):
            message.counts(out=wrong)


def test_a_message_made_by_hand_is_still_checked():
    for count, payload in ((9, b"1"), (1 << 62, b""), (1, b"12")):
        message = wire.Message(1, 1, count, b"", memoryview(payload))
        with pytest.raises(ParameterError, match="'data'"):
            message.counts()
    with pytest.raises(ParameterError, match="'data'"):
        wire.Message(1, 1, 9, b"", memoryview(b"1")).codes()


def test_a_message_is_frozen_and_does_not_show_codes():
    message = wire.unpack(wire.pack([201, 202], kind=1, n_bits=8))
    with pytest.raises(AttributeError):
        message.count = 3
    assert "20" not in repr(message).replace(hex(id(message.payload)), "").split("payload")[0]
    assert message == wire.unpack(wire.pack([201, 202], kind=1, n_bits=8))


@pytest.mark.parametrize(
    ("n_outputs", "n_bits"),
    [(1, 1), (2, 1), (3, 2), (4, 2), (5, 3), (256, 8), (257, 9), (65535, 16), (65536, 16)],
)
def test_n_bits_for(n_outputs, n_bits):
    assert wire.n_bits_for(n_outputs) == n_bits
    assert wire.n_bits_for(np.int64(n_outputs)) == n_bits


@pytest.mark.parametrize("n_outputs", [0, -1, 65537, 2.0, "2", None, True])
def test_n_bits_for_refuses(n_outputs):
    with pytest.raises(ParameterError, match=r"'n_outputs' .* integer from 1 to 65536"):
        wire.n_bits_for(n_outputs)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"n_bits": 0}, "'n_bits' .* from 1 to 16"),
        ({"n_bits": 17}, "'n_bits' .* from 1 to 16"),
        ({"n_bits": 2.0}, "'n_bits' .* from 1 to 16"),
        ({"kind": -1}, "'kind' .* from 0 to 255"),
        ({"kind": 256}, "'kind' .* from 0 to 255"),
        ({"kind": "1"}, "'kind' .* from 0 to 255"),
        ({"parameters": "text"}, "'parameters' .* bytes-like"),
        ({"parameters": 5}, "'parameters' .* bytes-like"),
        ({"parameters": np.zeros(8, np.uint8)[::2]}, "'parameters' .* contiguous"),
        ({"codes": [1.0]}, "'codes' .* integer dtype"),
        ({"codes": [None]}, "'codes' .* integer dtype"),
        ({"codes": 1}, r"'codes' .* 1 dimension"),
        ({"codes": [[1]]}, r"'codes' .* 1 dimension"),
        ({"codes": [[1], [1, 2]]}, "'codes' .* array of integers"),
    ],
)
def test_pack_refuses_parameters(arguments, match):
    arguments = {"codes": [1], "kind": 1, "n_bits": 2, **arguments}
    with pytest.raises(ParameterError, match=match):
        wire.pack(arguments.pop("codes"), **arguments)


@pytest.mark.parametrize("dtype", ["i1", "u1", "<u2", ">u2", "i8", "u8"])
@pytest.mark.parametrize("code", [-1, 4, 101])
def test_pack_refuses_codes_that_do_not_fit_without_showing_them(dtype, code):
    if code < 0:
        dtype = dtype.replace("u", "i")
    with pytest.raises(DataError, match=r"'codes' .* below 2\*\*n_bits") as caught:
        wire.pack(np.array([0, 3, code], dtype), kind=1, n_bits=2)
    assert str(code) not in str(caught.value)


def test_the_forger_can_be_honest():
    assert forged() == wire.pack([1, 2, 3], kind=1, n_bits=2, parameters=b"ab")


HUGE = (1 << 64) - 1


@pytest.mark.parametrize(
    ("data", "match"),
    [
        (b"", "truncated"),
        (b"dp", "truncated"),
        (forged()[:31], "truncated: its header"),
        (forged()[:-1], "truncated: it is shorter"),
        (forged(n_payload=2), "truncated: it is shorter"),
        (forged(n_payload=HUGE, count=HUGE, n_bits=16), "truncated: it is shorter"),
        (forged(n_payload=HUGE, count=HUGE // 2, n_bits=16), "truncated: it is shorter"),
        (forged(n_parameters=0xFFFFFFFF), "truncated: it is shorter"),
        (forged(tail=b"\0"), "too long"),
        (forged(tail=forged()), "too long"),
        (forged(n_payload=0), "too long"),
        (forged(n_parameters=0), "too long"),
        (forged(magic=b"dpcs"), "does not begin"),
        (b"GET / HTTP/1.1", "does not begin"),
        (b"x", "does not begin"),
        (forged(version=2), "newer version"),
        (forged(version=255), "newer version"),
        (b"dpcr\x02", "newer version"),
        (forged(version=0), "version that no dpcore writes"),
        (forged()[:-1] + bytes([forged()[-1] ^ 1]), "checksum"),
        (forged(n_bits=0), "1 to 16 bits"),
        (forged(n_bits=0, count=0, payload=b""), "1 to 16 bits"),
        (forged(n_bits=17), "1 to 16 bits"),
        (forged(n_bits=255), "1 to 16 bits"),
        (forged(count=0), "does not fit its number of codes"),
        (forged(count=5), "does not fit its number of codes"),
        (forged(count=HUGE), "does not fit its number of codes"),
        (forged(payload=b"", count=1 << 63, n_bits=16), "does not fit its number of codes"),
        (forged(payload=b"\x39\x00"), "does not fit its number of codes"),
        (forged(payload=b"\x79"), "padding bits"),
        (forged(payload=b"\xb9"), "padding bits"),
        (forged(reserved=1), "reserved bits"),
        (forged(reserved=128), "reserved bits"),
    ],
)
def test_refusals(data, match):
    with pytest.raises(WireFormatError, match=match) as caught:
        wire.unpack(data)
    text = str(caught.value)
    assert text.startswith("The message ")
    assert text.endswith(".")
    assert text.count(".") == 1


@pytest.mark.parametrize(
    "data",
    [
        None,
        5,
        "dpcr",
        [100],
        np.frombuffer(forged(), np.uint8)[::-1],
        np.zeros(3, "S2,i4"),
        np.frombuffer(forged(parameters=b""), np.uint8)[:28].view(np.uint16),
        np.array([object()]),
    ],
)
def test_what_is_not_bytes_is_refused_as_a_parameter(data):
    with pytest.raises(ParameterError, match="'data' parameter must be a contiguous bytes-like"):
        wire.unpack(data)


def test_wire_format_error_is_a_value_error():
    assert issubclass(WireFormatError, ValueError)
    assert issubclass(WireFormatError, errors.DPCoreError)


@pytest.mark.parametrize("n_bits", WIDTHS)
def test_every_flipped_bit_and_every_cut_is_noticed(n_bits):
    data = wire.pack([1, 0, 1, 1, 0], kind=3, n_bits=n_bits, parameters=b"xyz")
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        with pytest.raises(WireFormatError):
            wire.unpack(flipped)
    for length in range(len(data)):
        with pytest.raises(WireFormatError):
            wire.unpack(data[:length])
        with pytest.raises(WireFormatError):
            wire.unpack(data[length + 1 :])


def unpack_or_refuse(data):
    """Whether data is a message; one that is must be what pack writes for its contents."""
    try:
        message = wire.unpack(data)
    except WireFormatError:
        return False
    codes = message.codes()
    assert message.counts().tolist() == np.bincount(codes, minlength=1 << message.n_bits).tolist()
    again = wire.pack(
        codes, kind=message.kind, n_bits=message.n_bits, parameters=message.parameters
    )
    assert again == data
    return True


def test_garbage_is_refused():
    rng = random.Random(20)
    for _ in range(4000):
        assert not unpack_or_refuse(rng.randbytes(rng.randrange(120)))
        start = b"dpcr\x01" + rng.randbytes(rng.randrange(60))
        assert not unpack_or_refuse(start)


def test_mutated_messages_are_refused_unless_they_are_messages():
    rng = random.Random(21)
    golden = [bytes.fromhex(vector["message"]) for vector in GOLDEN]
    for _ in range(6000):
        data = bytearray(rng.choice(golden))
        for _ in range(rng.randint(1, 4)):
            place = rng.randrange(len(data))
            match rng.randrange(4):
                case 0:
                    data[place] = rng.randrange(256)
                case 1:
                    del data[place : place + rng.randint(1, 9)]
                case 2:
                    data[place:place] = rng.randbytes(rng.randint(1, 9))
                case 3:
                    data[place:] = rng.choice(golden)[place:]
            if not data:
                break
        assert unpack_or_refuse(bytes(data)) == (bytes(data) in golden)


def test_mutated_messages_with_a_right_checksum_never_do_harm():
    rng = random.Random(22)
    lengths = [0, 1, 2, 3, 8, 255, 1 << 16, 1 << 31, (1 << 32) - 1]
    accepted = 0
    for _ in range(8000):
        payload, parameters = rng.randbytes(rng.randrange(12)), rng.randbytes(rng.randrange(4))
        n_bits = rng.choice([rng.randrange(256), rng.randint(1, 16), rng.choice([1, 2, 4, 8])])
        fitting = len(payload) * 8 // max(n_bits, 1)
        data = forged(
            payload,
            version=rng.choice([1, 1, 1, rng.randrange(256)]),
            kind=rng.randrange(256),
            n_bits=n_bits,
            reserved=rng.choice([0, 0, 0, rng.randrange(256)]),
            count=rng.choice([fitting, fitting, fitting + 1, rng.choice(lengths), HUGE]),
            n_payload=rng.choice([None, None, None, rng.choice(lengths), HUGE]),
            parameters=parameters,
            n_parameters=rng.choice([None, None, None, rng.choice(lengths)]),
        )
        accepted += unpack_or_refuse(data)
    assert accepted > 300


def test_a_lying_header_allocates_nothing():
    import tracemalloc

    lies = [
        forged(n_payload=1 << 40, count=1 << 40),
        forged(n_parameters=0xFFFFFFFF),
        forged(count=1 << 40),
    ]
    tracemalloc.start()
    try:
        for data in lies:
            with pytest.raises(WireFormatError):
                wire.unpack(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20


def test_the_examples_are_true():
    result = doctest.testmod(sys.modules["dpcore.wire"])
    assert result.failed == 0
    assert result.attempted >= 10
