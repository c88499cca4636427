"""Rows whose indices in the release come from a column, in any order and with gaps."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dpcore._checks import INDEX_LIMIT
from dpcore.errors import DataError, ParameterError
from dpcore.noise import Noise

if TYPE_CHECKING:
    from dpcore.tables.plan import TablePlan

__all__ = ["Seen", "check_rows", "privatize_rows"]

# A call costs as much as this many rows: shorter gaps are encoded and dropped.
_BRIDGE = 1 << 11
_SPAN_BYTES = 1 << 24  # of the rows of a call, those between the ones given included

_Runs = tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]  # begins and ends


class Seen:
    """The row indices of the batches before: a second row with one of them would share its noise.

    Cost
    ----
    16 bytes for every run of indices without a gap, so little for batches that follow each other,
    and 16 bytes per row for rows in no order. An index is looked up in as many lists as the
    number of runs has bits.
    """

    def __init__(self) -> None:
        # Sorted disjoint runs; every list is longer than the next, which bounds what merging costs.
        self._lists: list[_Runs] = []

    def add(self, rows: npt.NDArray[np.int64], name: str) -> None:
        """Refuse ascending indices of the column `name` that were there before."""
        if not len(rows):
            return
        cuts = np.flatnonzero(np.diff(rows) != 1) + 1
        begins, ends = rows[np.append(0, cuts)], rows[np.append(cuts, len(rows)) - 1] + 1
        for known_begins, known_ends in self._lists:
            # Of runs that begin before this one ends, the last is the one that may reach into it.
            last = np.searchsorted(known_begins, ends) - 1
            if ((last >= 0) & (known_ends[last] > begins)).any():
                raise DataError(f"The column '{name}' must not hold a row index twice.")
        merged = begins, ends
        while self._lists and len(self._lists[-1][0]) <= len(merged[0]):
            merged = _merge(self._lists.pop(), merged)
        self._lists.append(merged)


def _merge(a: _Runs, b: _Runs) -> _Runs:
    """Two lists of runs as one, with those that touch joined."""
    begins, ends = np.sort(np.concatenate([a[0], b[0]])), np.sort(np.concatenate([a[1], b[1]]))
    apart = begins[1:] != ends[:-1]
    return begins[np.append(True, apart)], ends[np.append(apart, True)]


def privatize_rows(
    plan: TablePlan, batch: Any, noise: Noise, rows: str, seen: Seen, *, extra: str, values: bool
) -> Any:
    """One record batch with row indices of its own: encoded in order, then put back."""
    import pyarrow as pa

    if rows in plan.names:
        raise ParameterError("The 'rows' parameter must not name a column of the schema.")
    where = check_rows(batch, rows)
    numbers, dropped = plan.read(batch.drop_columns([rows]), extra=extra)
    if not len(where):
        return plan.encode(numbers, dropped, noise, 0, values=values)
    order = np.argsort(where, kind="stable")
    seen.add(where[order], rows)
    parts, span = [], max(_BRIDGE, _SPAN_BYTES // plan.row_bytes)
    for begin, inside, members in _segments(where[order], span):
        # Rows between those given are encoded as copies of the first, and not used.
        at = np.full(inside[-1] + 1, order[members.start])
        at[inside] = order[members]
        whole = plan.encode([column[at] for column in numbers], None, noise, begin, values=values)
        parts.append(whole.take(pa.array(inside)))
    back = np.empty(len(order), np.intp)
    back[order] = np.arange(len(order))
    if dropped is not None:
        back = back[~dropped]
    [joined] = pa.Table.from_batches(parts).combine_chunks().to_batches()
    return joined.take(pa.array(back))


def check_rows(batch: Any, name: str) -> npt.NDArray[np.int64]:
    """The column of row indices: integers, none null, negative or there twice."""
    import pyarrow as pa

    if batch.schema.names.count(name) != 1:
        raise ParameterError("The 'rows' parameter must name a column that is there once.")
    array = batch.column(name)
    if not pa.types.is_integer(array.type) or array.null_count:
        raise ParameterError(f"The column '{name}' must hold integers, as row indices.")
    rows: npt.NDArray[Any] = array.to_numpy(zero_copy_only=True)
    if len(rows) and (int(rows.min()) < 0 or int(rows.max()) >= INDEX_LIMIT):
        raise DataError(f"The column '{name}' must hold row indices from 0 to below 2**62.")
    indices = rows.astype(np.int64, copy=False)
    if len(np.unique(indices)) != len(indices):
        raise DataError(f"The column '{name}' must not hold a row index twice.")
    return indices


def _segments(
    rows: npt.NDArray[np.int64], span: int
) -> Iterator[tuple[int, npt.NDArray[np.int64], slice]]:
    """Ascending rows in groups that lie together, no two of a group `span` or more apart.

    Gives the first row, the rows relative to it, and where in `rows` they are.
    """
    edges = [0, *(np.flatnonzero(np.diff(rows) > _BRIDGE) + 1).tolist(), len(rows)]
    for a, b in pairwise(edges):
        while a < b:
            cut = a + int(np.searchsorted(rows[a:b], rows[a] + span))
            yield int(rows[a]), rows[a:cut] - rows[a], slice(a, cut)
            a = cut
