"""Bytes from anywhere into every parser: the same contents again, or a documented error.

Random bytes, truncations and flipped bits of valid messages, the latter also with their checksums
made right, as somebody would who means harm. No forged length makes a parser take much more memory
than what it was given.
"""

import io
import pickle
import struct
import tracemalloc
import zipfile
import zlib

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dpcore import local, wire
from dpcore.accounting import Event, GaussianEvent, PureEvent, SampledGaussianEvent, ZCDPEvent
from dpcore.data import load_sensors
from dpcore.errors import DataError, ParameterError, WireFormatError
from dpcore.proportions import LabelCounts, release_label_counts
from dpcore.secure import Parameters

FUZZ = settings(
    max_examples=100,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
CHANGES = st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(1, 255)), max_size=3)
HEADER = 28  # bytes of a message of dpcore.wire before its parameters

NUMBERS = local.Tuple([local.Numeric("a", 0, 1), local.Categorical("b", ["x", "y"])], 4.0)
CHOICES = local.Tuple([local.Categorical("c", 40), local.Categorical("d", 3)], 1.0)
LARGE = LabelCounts(np.array([[303, 5], [-4, 4]]), np.array([8, 8]), 99.0, "replace", True)
TABLE = release_label_counts([[3, 5], [4, 4]], epsilon=1.0)[0]


def sealed(message):
    """A message of dpcore.wire with the checksum of its contents."""
    return message[:-4] + struct.pack("<I", zlib.crc32(message[:-4]))


def sealed_table(message):
    """The same for label counts, which hold a message inside."""
    if len(message) < HEADER + 34 + 4:
        return message
    begin = HEADER + struct.calcsize("<QQqBBd")
    end = HEADER + struct.unpack_from("<I", message, HEADER - 4)[0]
    inner = message[begin:end]
    return sealed(message[:begin] + sealed(inner) + message[end:]) if len(inner) > 4 else message


def sealed_reports(message):
    """The same for reports, whose parts stand behind their lengths."""
    parts, at = [], 0
    while at + 8 <= len(message):
        end = at + 8 + struct.unpack_from("<Q", message, at)[0]
        parts.append(message[at : at + 8] + sealed(message[at + 8 : end]))
        at = end
    return b"".join(parts)


def repacked(data):
    message = wire.unpack(data)
    return wire.pack(
        message.codes(), kind=message.kind, n_bits=message.n_bits, parameters=message.parameters
    )


def table_again(data):
    found = LabelCounts.from_bytes(data)
    again = LabelCounts.from_bytes(found.to_bytes())
    same = np.array_equal(found.counts, again.counts) and np.array_equal(found.sizes, again.sizes)
    same &= (found.scale, found.adjacency, found.private) == (
        again.scale, again.adjacency, again.private,
    )  # fmt: skip
    return data if same else b""


def event_again(data):
    text = data.decode("latin1")
    event = Event.from_json(text)
    return data if Event.from_json(event.to_json()) == event else b""


def reports_again(collector):
    return lambda data: local.Reports.from_bytes(data, collector).to_bytes()


GAUSS = {"mechanism": "g", "noise_multiplier": 2.0, "adjacency": "add-remove"}
EVENTS = [
    PureEvent(mechanism="p", epsilon=0.5, parameters=(("bins", 3), ("name", "x"))),
    GaussianEvent(**GAUSS, law_distance=1e-20),
    SampledGaussianEvent(**GAUSS, sampling_rate=0.25, count=10),
    ZCDPEvent(mechanism="z", rho=0.5),
]
# Name: a parser that gives the message of what it read, its errors, how to seal, valid messages.
PARSERS = {
    "wire": (
        repacked,
        (WireFormatError, ParameterError),
        sealed,
        [
            wire.pack(np.arange(16) % 2**bits, kind=1, n_bits=bits, parameters=b"abc" * bits)
            for bits in (1, 3, 8, 12, 16)
        ],
    ),
    "label counts": (
        table_again,
        (WireFormatError, DataError),
        sealed_table,
        [TABLE.to_bytes(), LARGE.to_bytes()],
    ),
    "reports of numbers": (
        reports_again(NUMBERS),
        (WireFormatError,),
        sealed_reports,
        [NUMBERS.encode({"a": np.array([0.5, 0.25]), "b": np.array(["x", "y"])}).to_bytes()],
    ),
    "reports of choices": (
        reports_again(CHOICES),
        (WireFormatError,),
        sealed_reports,
        [CHOICES.encode({"c": np.array([3, 7, 39]), "d": np.array([0, 1, 2])}).to_bytes()],
    ),
    "events": (
        event_again,
        (ParameterError,),
        lambda data: data,
        [event.to_json().encode("latin1") for event in EVENTS],
    ),
    "parameters of secure aggregation": (
        lambda data: Parameters.from_bytes(data).to_bytes(),
        (WireFormatError,),
        lambda data: data,
        [Parameters(b"session", 3, 1.0, max_clients=9, noise_sigma=3).to_bytes()],
    ),
}  # fmt: skip


def changed(message, changes):
    data = bytearray(message)
    for place, bits in changes:
        data[place % len(data)] ^= bits
    return bytes(data)


def room_of(call, *arguments):
    """The most memory that a call held at a time."""
    tracemalloc.start()
    try:
        call(*arguments)
    except Exception:
        pass
    finally:
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return most


def parse(name, data):
    """Parse, and compare what comes of it with what went in."""
    again, errors, _, _ = PARSERS[name]
    try:
        result = again(data)
    except errors:
        return False
    assert result == data
    return True


@pytest.mark.parametrize("name", PARSERS)
def test_valid_messages_are_read(name):
    assert all(parse(name, message) for message in PARSERS[name][3])


@pytest.mark.parametrize("name", PARSERS)
@given(data=st.binary(max_size=300), prefix=st.integers(0, 40))
@FUZZ
def test_random_bytes(name, data, prefix):
    parse(name, data)
    for message in PARSERS[name][3][:1]:
        parse(name, message[:prefix] + data)
        parse(name, PARSERS[name][2](message[:prefix] + data))


@pytest.mark.parametrize("name", PARSERS)
def test_truncations(name):
    for message in PARSERS[name][3]:
        for end in range(len(message)):
            assert not parse(name, message[:end])


@pytest.mark.parametrize("name", PARSERS)
@given(data=st.data(), changes=CHANGES)
@FUZZ
def test_flipped_bits_with_wrong_and_with_right_checksums(name, data, changes):
    message = data.draw(st.sampled_from(PARSERS[name][3]))
    damaged = changed(message, changes)
    parse(name, damaged)
    parse(name, PARSERS[name][2](damaged))


@pytest.mark.parametrize("name", PARSERS)
@pytest.mark.parametrize("width", [1, 2, 4, 8])
def test_forged_lengths_take_no_memory(name, width):
    """Every group of bytes in turn becomes a large number."""
    again, _, seal, messages = PARSERS[name]
    for message in messages:
        room_of(again, message)  # what is loaded at the first call
        for place in range(len(message) - width):
            for number in (b"\xff" * width, b"\xff" * (width - 1) + b"\x3f"):
                forged = message[:place] + number + message[place + width :]
                assert room_of(again, seal(forged)) < 1000 * len(message) + 100_000


# Files


def as_bytes(save, *arrays, **named):
    file = io.BytesIO()
    save(file, *arrays, **named)
    return file.getvalue()


SERIES = np.arange(24.0).reshape(6, 4) + 1
GRAPH = np.eye(4)
FILES = {
    "npy": as_bytes(np.save, SERIES),
    "npz": as_bytes(np.savez, speed=SERIES, adj=GRAPH),
    "csv": b"a,b,c,d\n" + b"\n".join(b"%d,2.5,3,4" % i for i in range(1, 7)),
}
GRAPHS = {
    "npy": as_bytes(np.save, GRAPH),
    "npz": as_bytes(np.savez_compressed, adj=GRAPH),
    "csv": b"\n".join(b",".join(b"%g" % w for w in row) for row in GRAPH),
    "pkl": pickle.dumps((["s"], {"s": 0}, GRAPH), protocol=2),
}
ROLES = [("series", kind) for kind in FILES] + [("adjacency", kind) for kind in GRAPHS]


def load(folder, role, kind, data):
    """The sensors of a file of any content, or None where it is refused."""
    path = folder / f"read.{kind}"
    path.write_bytes(data)
    other = folder / "other.npy"
    if not other.exists():
        np.save(other, SERIES)
    try:
        return load_sensors(path) if role == "series" else load_sensors(other, path)
    except (DataError, ParameterError):
        return None


def content(role, kind):
    return (FILES if role == "series" else GRAPHS)[kind]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("role", "kind"), ROLES)
def test_files_are_read(role, kind, tmp_path):
    found = load(tmp_path, role, kind, content(role, kind))
    assert found.series.shape == (6, 4, 1)
    has_graph = role == "adjacency" or kind == "npz"
    assert np.array_equal(found.adjacency, GRAPH * has_graph)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("role", "kind"), ROLES)
@given(changes=CHANGES, noise=st.binary(max_size=60), end=st.integers(0, 1 << 16))
@settings(FUZZ, max_examples=50)
def test_damaged_files_are_refused_or_read(role, kind, tmp_path, changes, noise, end):
    valid = content(role, kind)
    for data in (changed(valid, changes), valid[: end % len(valid)], noise, valid[:6] + noise):
        found = load(tmp_path, role, kind, data)
        assert found is None or found.series.dtype == found.adjacency.dtype == np.float64


def header(shape):
    text = str({"descr": "<f8", "fortran_order": False, "shape": shape}).encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


def zipped(data, *, claimed=None):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("speed.npy", data)
        archive.writestr("adj.npy", data)
    raw = file.getvalue()
    return raw if claimed is None else raw.replace(struct.pack("<I", len(data)), claimed)


HUGE = (1 << 20, 1 << 14)
FORGED = {
    "npy": header(HUGE),
    "npz": zipped(header(HUGE)),
    "pkl": pickle.dumps(np.zeros(3), protocol=2).replace(b"K\x00\x85", b"J\xff\xff\xff\x7f\x85"),
}


@pytest.mark.parametrize("kind", FORGED)
def test_forged_shapes_take_no_memory(kind, tmp_path):
    role = "adjacency" if kind == "pkl" else "series"
    assert load(tmp_path, role, kind, FORGED[kind]) is None
    assert room_of(load, tmp_path, role, kind, FORGED[kind]) < 1_000_000


@pytest.mark.parametrize(
    "forged",
    [
        b"\x80\x02B\xff\xff\xff\x7fabc.",  # bytes of 2 GB
        b"\x80\x04\x8e" + struct.pack("<Q", 1 << 40) + b"abc.",  # bytes of 1 TB
        b"\x80\x02]r\xff\xff\xff\x7f.",  # a memo of 2**31 entries
        b"\x80\x02cnumpy\nndarray\nJ\xff\xff\xff\x7f\x85R.",  # an array of 16 GB
        b"cos\nsystem\n(S'true'\ntR.",  # a command
    ],
)
def test_pickles_that_mean_harm_are_refused(forged, tmp_path):
    assert load(tmp_path, "adjacency", "pkl", forged) is None
    assert room_of(load, tmp_path, "adjacency", "pkl", forged) < 1_000_000


def test_lengths_of_a_zip_file_may_be_forged_as_well(tmp_path):
    data = header(HUGE)
    forged = zipped(data, claimed=b"\xff\xff\xff\x7f")
    assert load(tmp_path, "series", "npz", forged) is None
    assert room_of(load, tmp_path, "series", "npz", forged) < 1_000_000


def test_deep_json_is_refused():
    with pytest.raises(ParameterError):
        Event.from_json("[" * 100_000)
