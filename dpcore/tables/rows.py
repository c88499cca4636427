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

__all__ = ["privatize_rows"]

# A call costs as much as this many rows: shorter gaps are encoded and dropped.
_BRIDGE = 1 << 11


def privatize_rows(
    plan: TablePlan, batch: Any, noise: Noise, rows: str, *, extra: str, values: bool
) -> Any:
    """One record batch with row indices of its own: encoded in order, then put back."""
    import pyarrow as pa

    if rows in plan.names:
        raise ParameterError("The 'rows' parameter must not name a column of the schema.")
    where = _check_rows(batch, rows)
    numbers, dropped = plan.read(batch.drop_columns([rows]), extra=extra)
    if not len(where):
        return plan.encode(numbers, dropped, noise, 0, values=values)
    order = np.argsort(where, kind="stable")
    parts = []
    for begin, inside, members in _segments(where[order]):
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


def _check_rows(batch: Any, name: str) -> npt.NDArray[np.int64]:
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
    rows: npt.NDArray[np.int64],
) -> Iterator[tuple[int, npt.NDArray[np.int64], slice]]:
    """Ascending rows in groups that lie together.

    Gives the first row, the rows relative to it, and where in `rows` they are.
    """
    edges = [0, *(np.flatnonzero(np.diff(rows) > _BRIDGE) + 1).tolist(), len(rows)]
    for a, b in pairwise(edges):
        yield int(rows[a]), rows[a:b] - rows[a], slice(a, b)
