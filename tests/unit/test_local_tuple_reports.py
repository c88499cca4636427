"""Reports of many attributes: their bytes, and a refusal for forged ones and for bad input."""

import math

import numpy as np
import pytest
from tuple_support import MIXED, mixed_columns, numeric, same

from dpcore import wire
from dpcore.errors import DPCoreError, ParameterError, WireFormatError
from dpcore.local.categorical import GRR
from dpcore.local.duchi_multi import DuchiMulti
from dpcore.local.reports import Reports
from dpcore.local.schema import Categorical, Numeric
from dpcore.local.tuples import SplitBudget, Tuple

# Bytes


@pytest.mark.parametrize("k", [1, 2, 5])
@pytest.mark.parametrize("n", [1, 2000])
def test_bytes_round_trip(k, n):
    collector = Tuple(MIXED, 3.0 * k, k=k)
    reports = collector.encode(mixed_columns(n))
    message = reports.to_bytes()
    assert message == reports.to_bytes()
    assert same(reports, Reports.from_bytes(message, Tuple(MIXED, 3.0 * k, k=k)))
    assert same(reports, Reports.from_bytes(bytearray(message), collector))
    one, other = collector.estimate(reports), collector.estimate(message)
    assert one.means == other.means
    np.testing.assert_array_equal(one["code"].frequencies, other["code"].frequencies)


def test_bits_on_the_wire():
    assert Tuple(numeric(94), 4.0, "three-outputs").n_bits == 9
    assert Tuple(numeric(94), 4.0, "duchi").n_bits == 8
    assert SplitBudget(numeric(94), 10.0, "three-outputs").n_bits == 1  # it is Duchi's there
    n = 80_000
    collector = Tuple(numeric(94), 4.0, "three-outputs")
    message = collector.encode(np.zeros((n, 94))).to_bytes()
    assert n * 9 / 8 < len(message) < n * 9 / 8 + 100


def test_pairs_that_need_more_than_16_bits():
    schema = [*numeric(2), Categorical("a", 40_000), Categorical("b", 40_000)]
    collector = Tuple(schema, 12.0, "duchi", k=1)
    assert all(isinstance(oracle, GRR) for oracle in collector.categorical.values())
    assert collector.n_bits == 2 + 16
    columns = {"x0": [0.1] * 50, "x1": [0.3] * 50, "a": [39_999] * 50, "b": [5] * 50}
    reports = collector.encode(columns)
    assert same(reports, Reports.from_bytes(reports.to_bytes(), collector))


def test_every_truncation_and_extension_is_refused():
    collector = Tuple(MIXED, 3.0)
    message = collector.encode(mixed_columns(20)).to_bytes()
    for end in range(len(message)):
        with pytest.raises(WireFormatError):
            Reports.from_bytes(message[:end], collector)
    for extra in (b"\0", message, b"\0" * 8):
        with pytest.raises(WireFormatError):
            Reports.from_bytes(message + extra, collector)


def test_every_damaged_byte_is_refused():
    collector = Tuple(MIXED, 3.0)
    message = collector.encode(mixed_columns(20)).to_bytes()
    for place in range(len(message)):
        damaged = bytearray(message)
        damaged[place] ^= 1 << place % 8
        with pytest.raises(WireFormatError):
            Reports.from_bytes(damaged, collector)


@pytest.mark.parametrize(
    "other",
    [
        Tuple(MIXED, 3.5),
        Tuple(MIXED, 3.0, "duchi"),
        Tuple(MIXED[::-1], 3.0),
        Tuple([Numeric("age", 0, 99), *MIXED[1:]], 3.0),
        Tuple(MIXED, 6.0, k=2),
    ],
    ids=repr,
)
def test_messages_of_other_collectors_are_refused(other):
    message = other.encode(mixed_columns(5)).to_bytes()
    collector = Tuple(MIXED, 3.0)
    with pytest.raises(WireFormatError, match=r"another collector|not fit"):
        Reports.from_bytes(message, collector)
    with pytest.raises(ParameterError, match="of this collector"):
        collector.estimate(other.encode(mixed_columns(5)))


def forged(collector, codes, n, part=0, form=1, kind=32):
    """A message with correct sums around chosen contents."""
    from dpcore.local.reports import _PART

    parameters = _PART.pack(form, part, 0, n, collector._digest[:16])
    packed = wire.pack(
        np.array(codes, np.uint16), kind=kind, n_bits=collector.n_bits, parameters=parameters
    )
    return len(packed).to_bytes(8, "little") + packed


def test_contents_that_no_device_sends_are_refused():
    collector = Tuple(numeric(3), 6.0, "three-outputs", k=2)
    good = forged(collector, [0, 3], 1)
    assert Reports.from_bytes(good, collector).index.tolist() == [[0, 1]]
    for codes in ([0, 9], [15, 0], [0, 1], [8, 8]):
        with pytest.raises(WireFormatError, match="no device sends"):
            Reports.from_bytes(forged(collector, codes, 1), collector)
    with pytest.raises(WireFormatError, match="no device sends"):
        Reports.from_bytes(forged(collector, [], 0), collector)
    with pytest.raises(WireFormatError, match="not fit"):
        Reports.from_bytes(forged(collector, [0, 3], 2), collector)
    with pytest.raises(WireFormatError, match="another version"):
        Reports.from_bytes(forged(collector, [0, 3], 1, form=2), collector)
    with pytest.raises(WireFormatError, match="another collector"):
        Reports.from_bytes(forged(collector, [0, 3], 1, kind=2), collector)
    with pytest.raises(ParameterError, match="bytes-like"):
        Reports.from_bytes("text", collector)


# Bad input


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Tuple([], 1.0), "'schema'"),
        (lambda: Tuple(["age"], 1.0), "'schema'"),
        (lambda: Tuple(3, 1.0), "'schema'"),
        (lambda: Tuple([Numeric("a", 0, 1), Categorical("a", 3)], 1.0), "not repeat a name"),
        (lambda: Tuple(numeric(2), 0.0), "'epsilon'"),
        (lambda: Tuple(numeric(2), 1e-4), "'epsilon'"),
        (lambda: Tuple(numeric(2), 1e4), "'epsilon'"),
        (lambda: Tuple(numeric(2), 1.0, "none"), "'name'"),
        (lambda: Tuple(numeric(2), 1.0, k=3), "'k' parameter must be at most"),
        (lambda: Tuple(numeric(2), 1.0, k=0), "'k'"),
        (lambda: Tuple(numeric(2), 1.0, "auto", objective="best"), "'objective'"),
        (lambda: Numeric("a", 1, 1), "'upper'"),
        (lambda: Numeric("a", 0, math.inf), "'upper'"),
        (lambda: Numeric("", 0, 1), "'name'"),
        (lambda: Categorical("a", 1), "'n_categories'"),
        (lambda: Categorical("a", ["x"]), "'n_categories'"),
        (lambda: Categorical("a", "xyz"), "'categories'"),
        (lambda: Categorical("a", ["x", 1]), "'categories'"),
        (lambda: Categorical("a", [1.5, 2]), "'categories'"),
        (lambda: Categorical("a", ["x", "x"]), "not repeat"),
        (lambda: Tuple([Categorical("a", 3)], 1.0).variance(0), "numeric attribute"),
        (lambda: Tuple(numeric(2), 1.0).error_bound(0), "'n'"),
        (lambda: Tuple(numeric(2), 1.0).error_bound(5, 1.0), "'confidence'"),
        (lambda: DuchiMulti(1.0, 0), "'d'"),
        (lambda: DuchiMulti(1.0, 129), "'d'"),
        (lambda: DuchiMulti(0.0, 3), "'epsilon'"),
        (lambda: DuchiMulti(1.0, 3).encode([[0.0, 0.0]]), "d columns"),
        (lambda: DuchiMulti(1.0, 1).encode([["a"]]), "dtype"),
        (lambda: DuchiMulti(1.0, 1).decode([[2]]), "0 and 1"),
        (lambda: DuchiMulti(1.0, 1).encode([[math.nan]]), "finite"),
        (lambda: Reports.join([]), "'parts'"),
    ],
)
def test_bad_parameters_are_named(call, message):
    with pytest.raises(DPCoreError, match=message):
        call()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"age": [math.nan, 1.0]}, "finite"),
        ({"age": [math.inf, 1.0]}, "finite"),
        ({"age": ["1", "2"]}, "number dtype"),
        ({"age": [1.0]}, "one length"),
        ({"age": [[1.0], [2.0]]}, "one length"),
        ({"fuel": ["gas", "coal"]}, "listed categories only"),
        ({"fuel": [1, 2]}, "kind of the list"),
        ({"code": [300, 1]}, "listed categories only"),
        ({"code": [0.5, 1]}, "listed categories only"),
        ({"code": [math.nan, 1]}, "listed categories only"),
        ({"other": [1, 2]}, "names of the schema"),
    ],
)
def test_bad_columns_are_refused_whatever_was_drawn(change, message):
    collector = Tuple(MIXED, 2.5)
    for _ in range(4):
        with pytest.raises(DPCoreError, match=message) as caught:
            collector.encode(mixed_columns(2) | change)
        assert "coal" not in str(caught.value)


def test_bad_shapes():
    collector = Tuple(numeric(3), 1.0)
    for bad in (np.zeros(3), np.zeros((2, 4)), np.zeros((0, 3))):
        with pytest.raises(ParameterError, match="'columns'"):
            collector.encode(bad)
    with pytest.raises(ParameterError, match="'start'"):
        collector.encode(np.zeros((2, 3)), start=2**62)
    with pytest.raises(ParameterError, match="of this collector"):
        collector.estimate(np.zeros((2, 3)))


def test_columns_of_objects_hold_strings_too():
    collector = Tuple([Categorical("a", ["x", "yy"])], 1.0)
    assert len(collector.encode({"a": np.array(["yy", "x"], dtype=object)})) == 2
