"""Table plans on Dask dataframes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import dask
import dask.dataframe as dd
import pandas as pd
import pyarrow as pa
from dask.base import tokenize

from dpcore._checks import check_choice, check_flag, check_index, check_list
from dpcore._parallel import one_thread
from dpcore.errors import DataError, ParameterError
from dpcore.interop.dask.sealed import Sealed, check_private
from dpcore.noise import Noise
from dpcore.tables import Counts, TablePlan

__all__ = ["estimate", "privatize"]

_SPLIT_EVERY = 16  # counts that one task of the tree adds up


def privatize(
    frame: Any,
    plan: TablePlan,
    *,
    noise: Noise,
    lengths: Sequence[int] | None = None,
    extra: str = "error",
    values: bool = False,
) -> Any:
    _check(frame, plan)
    source = check_private(noise)
    check_choice(extra, "extra", ("error", "drop"))
    check_flag(values, "values")
    for name in plan.names:
        if list(frame.columns).count(name) != 1:
            raise ParameterError(f"The column '{name}' of the plan must be there once.")
    if extra == "error":
        for name in frame.columns:
            if name not in plan.names:
                raise ParameterError(f"The column '{name}' is not in the schema.")
    # As Dask will run them: it may read several files as one partition. Their order stays.
    own = frame[list(plan.names)].to_delayed()
    if lengths is not None:
        lengths = [check_index(length, "lengths") for length in check_list(lengths, "lengths")]
        if len(lengths) != len(own):
            raise ParameterError(
                "The 'lengths' parameter must have one entry per partition of the optimized frame."
            )
    # Before anything runs: whatever does is paid for.
    paid = plan.open(source)
    if lengths is None:
        lengths = list(dask.compute(*map(dask.delayed(len, pure=False), own)))
    sealed = Sealed(source.fingerprint("table", plan.digest), plan, noise=paid)
    name = f"dpcore-privatize-{tokenize([part.key for part in own], sealed, lengths, values)}"
    randomise = dask.delayed(_privatize_part, pure=False)
    starts = list(accumulate(lengths, initial=0))[:-1]
    parts = [
        randomise(part, sealed, start, length, values, dask_key_name=f"{name}-{i}")
        for i, (part, start, length) in enumerate(zip(own, starts, lengths, strict=True))
    ]
    meta = _to_pandas(plan.arrow_schema(values=values).empty_table(), 0)
    return dd.from_delayed(parts, meta=meta, prefix="dpcore-frame", verify_meta=False)


def estimate(
    frame: Any, plan: TablePlan, *, compute: bool = True, values: bool | None = None
) -> Any:
    _check(frame, plan)
    sealed = Sealed(plan.digest, plan)
    count = dask.delayed(_count_part, pure=False)
    level = [count(part, sealed, values) for part in frame.to_delayed()]
    while len(level) > 1:
        add = dask.delayed(_add, pure=False)
        level = [add(level[a : a + _SPLIT_EVERY]) for a in range(0, len(level), _SPLIT_EVERY)]
    result = dask.delayed(_estimate, pure=False)(level[0], sealed)
    return result.compute() if compute else result


def _check(frame: Any, plan: Any) -> None:
    if not isinstance(frame, dd.DataFrame):
        raise ParameterError("The data must be a Dask array or a Dask dataframe.")
    if not isinstance(plan, TablePlan):
        raise ParameterError("The 'plan' parameter must be a dpcore.tables.TablePlan.")


def _to_arrow(part: pd.DataFrame) -> pa.Table:
    try:
        return pa.Table.from_pandas(part, preserve_index=False)
    except pa.ArrowException:
        # Its message contains values.
        raise DataError("The columns of a partition must be of one type each.") from None


def _to_pandas(table: pa.Table, start: int) -> pd.DataFrame:
    # Types of Arrow: those of NumPy have no null for columns that a row does not report.
    frame = table.to_pandas(types_mapper=pd.ArrowDtype)
    frame.index = pd.RangeIndex(start, start + len(frame))
    return frame


def _privatize_part(
    part: pd.DataFrame, sealed: Sealed, start: int, length: int, values: bool
) -> pd.DataFrame:
    # A part of another length would use noise that belongs to the next one.
    if len(part) != length:
        raise DataError("The partitions must have the lengths that they had at submission.")
    plan: TablePlan = sealed.shared
    with one_thread():
        table = plan.privatize(_to_arrow(part), noise=sealed.noise, start=start, values=values)
    return _to_pandas(table, start)


def _count_part(part: pd.DataFrame, sealed: Sealed, values: bool | None) -> Counts:
    plan: TablePlan = sealed.shared
    with one_thread():
        return plan.count(_to_arrow(part), values=values)


def _add(counts: list[Counts]) -> Counts:
    return sum(counts[1:], counts[0])


def _estimate(counts: Counts, sealed: Sealed) -> Any:
    return sealed.shared.estimate(counts)
