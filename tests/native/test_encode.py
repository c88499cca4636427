"""The table-driven encoder against a twin in Python's integers, at every SIMD level."""

import math

import numpy as np
import pytest

from dpcore import local
from dpcore.errors import DataError, ParameterError
from dpcore.local.tables import RowTable
from dpcore_ext import rng
from dpcore_ext.encode import Rows
from dpcore_ext.rng import Key, keystream, keystream_at

LANE_EDGES = (1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 97, 2047, 2048, 2049)
KEY = Key.from_bytes(bytes(range(32)))
REFINE = 16 << 32
MECHANISMS = [
    local.Duchi(1.0),
    local.ThreeOutputs(1.0),
    local.OptimalOutputs(1.0, n_outputs=16),
    local.HybridTP(2.0),
    local.Laplace(1.0),
    local.Piecewise(1.0, n_levels=1000),
    local.Duchi(30.0),
]


def twin(table: RowTable, start: int, x: np.ndarray) -> list[int]:
    """Codes from all 128 + 64 bits of every element: no shortcut to agree with."""
    bits = max(1, (len(table.outputs) - 1).bit_length())
    compiled = table.compile(-1.0, 1.0)
    cuts, alias = compiled_rows(table)
    assert compiled.dtype == (np.uint16 if bits > 8 else np.uint8)
    first = start // 16
    stream = np.empty(64 * ((start + len(x)) // 16 - first + 1), np.uint8)
    keystream(KEY, 0, first, stream)
    words = stream.view("<u4")[start % 16 :].tolist()
    counters = np.arange(start, start + len(x), dtype=np.uint64)
    blocks = np.empty(64 * len(x), np.uint8)
    keystream_at(KEY, REFINE, counters, blocks)
    refined = blocks.view("<u8").reshape(-1, 8).tolist()
    codes = []
    for value, word, block in zip(x.tolist(), words, refined, strict=False):
        position = min(max((value + 1.0) * (table.n_intervals / 2.0), 0.0), table.n_intervals)
        cell = math.floor(position)
        part = math.floor((position - cell) * 2**64)
        low = 2**48 - 1
        draw = (word & 0xFFFF) << 48 | block[2] & low
        u = (word >> 16) << 112 | (block[0] & low) << 64 | block[1]
        row, column = cell + (draw < part), u >> (128 - bits)
        fraction = u << bits & (2**128 - 1)
        codes.append(column if fraction < cuts[row][column] else alias[row][column])
    return codes


def compiled_rows(table: RowTable) -> tuple[list[list[int]], list[list[int]]]:
    from dpcore.local.tables import _alias

    bits = max(1, (len(table.outputs) - 1).bit_length())
    made = [_alias(row, bits, table.bits) for row in table.rows]
    return [[high << 64 | low for high, low in cut] for cut, _ in made], [a for _, a in made]


def inputs(n: int) -> np.ndarray:
    """Ends, grid points, values beyond the bounds and everything between."""
    x = np.random.default_rng(n).uniform(-1.2, 1.2, n)
    fixed = np.array([-1.0, 0.0, 1.0, -5.0, 1e308, -1e308, 0.5, np.nextafter(1.0, 0.0)])
    x[: min(n, fixed.size)] = fixed[: min(n, fixed.size)]
    return x


@pytest.mark.parametrize("level", rng.levels())
@pytest.mark.parametrize("mechanism", MECHANISMS, ids=lambda m: f"{m.name}-{m.n_outputs}")
def test_equals_the_twin(mechanism, level, select_level):
    select_level(level)
    x = inputs(5000)
    out = np.empty(x.size, mechanism.table.compile(-1.0, 1.0).dtype)
    mechanism.table.compile(-1.0, 1.0).encode(KEY, 77, x, out)
    assert out.tolist() == twin(mechanism.table, 77, x)


@pytest.mark.parametrize("level", rng.levels())
@pytest.mark.parametrize("n", LANE_EDGES)
def test_lane_edges_and_offsets(n, level, select_level):
    """Short calls, in which every element is refined, give what long calls give."""
    mechanism = local.OptimalOutputs(1.0, n_outputs=8)
    rows, x = mechanism.table.compile(-1.0, 1.0), inputs(4096 + n)
    whole = np.empty(x.size, np.uint8)
    rows.encode(KEY, 3, x, whole)
    select_level(level)
    for begin in (0, 1, 15, 16, 17, 2047, 4095):
        guarded = np.full(n + 2, 255, np.uint8)
        rows.encode(KEY, 3 + begin, x[begin : begin + n], guarded[1:-1])
        assert guarded[1:-1].tolist() == whole[begin : begin + n].tolist()
        assert guarded[0] == guarded[-1] == 255


@pytest.mark.parametrize("level", rng.levels())
def test_float32_is_widened(level, select_level):
    select_level(level)
    mechanism = local.HybridTP(1.0)
    rows, x = mechanism.table.compile(-1.0, 1.0), inputs(5000).clip(-2, 2).astype(np.float32)
    narrow, wide = np.empty(x.size, np.uint8), np.empty(x.size, np.uint8)
    rows.encode(KEY, 0, x, narrow)
    rows.encode(KEY, 0, x.astype(np.float64), wide)
    assert (narrow == wide).all()


@pytest.mark.parametrize("level", rng.levels())
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("at", [0, 7, 8, 15, 16, 100, 4998, 4999])
def test_what_is_not_finite_is_found_everywhere(at, bad, level, select_level):
    select_level(level)
    x = inputs(5000)
    x[at] = bad
    with pytest.raises(DataError, match="'x' parameter must hold finite numbers only"):
        local.HybridTP(1.0).encode(x)


def test_bounds_too_close_for_the_grid_are_refused():
    with pytest.raises(ParameterError, match="'upper'"):
        local.Duchi(1.0, 0.0, 5e-324)


def test_rows_of_different_shapes_are_refused():
    cut, alias = np.zeros((2, 2, 2), np.uint64), np.zeros((2, 2), np.uint16)
    with pytest.raises(ParameterError, match="same rows"):
        Rows(cut, alias, 2, -1.0, 1.0)
    with pytest.raises(ParameterError, match="columns"):
        Rows(np.zeros((2, 3, 2), np.uint64), np.zeros((2, 3), np.uint16), 1, -1.0, 1.0)
