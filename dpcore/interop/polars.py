"""Polars: ``df.dp.privatize(plan)`` and ``df.dp.estimate()``, for DataFrame and LazyFrame.

Importing this module registers the namespace ``dp``.

>>> import polars as pl
>>> import dpcore, dpcore.interop.polars
>>> from dpcore.tables import TablePlan, table_stream
>>> plan = TablePlan({"age": {"lower": 0, "upper": 100}}, epsilon=2.0)
>>> frame = pl.DataFrame({"age": [40.0] * 100_000})
>>> noise = table_stream(dpcore.Noise.from_key(bytes(range(32))), "survey")
>>> reports = frame.dp.privatize(plan, noise=noise)
>>> reports.equals(frame.lazy().dp.privatize(plan, noise=noise).collect())
True
>>> low, high = reports.dp.estimate(plan)["age"].interval(0.999999)
>>> bool(low < 40 < high)
True
"""

from __future__ import annotations

import secrets
import threading
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from dpcore._checks import check_choice, check_flag, check_index, check_name
from dpcore.errors import ParameterError, RepeatedReleaseError
from dpcore.interop._secure import check_secure
from dpcore.interop.arrow import batches
from dpcore.local.reports import TupleEstimate
from dpcore.noise import Noise
from dpcore.tables import Counts, TablePlan
from dpcore.tables.plan import check_plan

__all__ = ["PrivateFrame", "PrivateLazyFrame"]

_ROWS = "__dpcore_row"


@pl.api.register_dataframe_namespace("dp")
class PrivateFrame:
    """The namespace ``dp`` of a DataFrame.

    Privacy
    -------
    `privatize` as of `TablePlan`: epsilon-local-DP of every row by itself. `count` and `estimate`
    are post-processing of reports.

    Cost
    ----
    As for `TablePlan`: one pass over the frame.
    """

    def __init__(self, frame: pl.DataFrame) -> None:
        self._frame = frame

    def privatize(
        self,
        plan: TablePlan,
        *,
        noise: Noise | None = None,
        start: int = 0,
        rows: str | None = None,
        extra: str = "error",
        values: bool = False,
    ) -> pl.DataFrame:
        """Randomise every row; see `TablePlan.privatize`, which gives the same bytes.

        Insecure noise is refused: a frame has no metadata that could say so.
        """
        source = check_secure(noise, "a frame of Polars")
        table = check_plan(plan).privatize(
            self._frame, noise=source, start=start, rows=rows, extra=extra, values=values
        )
        return _frame(table)

    def count(self, plan: TablePlan, *, values: bool = False) -> Counts:
        """Counts of reports; see `TablePlan.count`."""
        return check_plan(plan).count(self._frame, values=values)

    def estimate(self, plan: TablePlan, *, values: bool = False) -> TupleEstimate:
        """Means and shares from reports; see `TablePlan.estimate`."""
        return check_plan(plan).estimate(self.count(plan, values=values))


@pl.api.register_lazyframe_namespace("dp")
class PrivateLazyFrame:
    """The namespace ``dp`` of a LazyFrame.

    Privacy
    -------
    `privatize` as of `TablePlan`: epsilon-local-DP of every row by itself. `estimate` is
    post-processing of reports.

    Cost
    ----
    As for `TablePlan`: one pass, batch by batch, whenever the result is collected. Without a pinned
    stream and without `rows`, 8 bytes per row stay in memory as long as the result is there.
    `estimate` has all reports in memory.
    """

    def __init__(self, frame: pl.LazyFrame) -> None:
        self._frame = frame

    def privatize(
        self,
        plan: TablePlan,
        *,
        noise: Noise | None = None,
        start: int = 0,
        rows: str | None = None,
        extra: str = "error",
        values: bool = False,
    ) -> pl.LazyFrame:
        """Randomise every row when collected, with either engine.

        A row is addressed by its index, not by the call it comes in: engines cut a frame as they
        like. Without `rows` the index is that of the row in this frame. The cost is reserved, on
        the ledger in force, when this is called.

        Without a pinned stream, a frame that is collected twice gives the same reports twice. It
        has to have the same rows in the same order then: one that was shuffled in between, as by
        ``unique`` or ``group_by`` without ``maintain_order``, is refused, because the same noise
        for other rows cancels in the difference. With a pinned stream, or with `rows`, that the
        same index means the same row every time is up to the caller.

        Privacy
        -------
        As for `TablePlan.privatize`; insecure noise is refused. What follows in the query sees
        reports only: nothing is moved to the other side of the randomiser.
        """
        check_plan(plan)
        check_choice(extra, "extra", ("error", "drop"))
        check_flag(values, "values")
        source, first = check_secure(noise, "a frame of Polars"), check_index(start, "start")
        schema = self._frame.collect_schema()
        names = schema.names()
        if _ROWS in names:
            raise ParameterError(f"The column name '{_ROWS}' is taken.")
        if rows is not None:
            if check_name(rows, "rows") in plan.names or rows not in names:
                raise ParameterError("The 'rows' parameter must name a column beside the schema.")
            if not schema[rows].is_integer():
                raise ParameterError(f"The column '{rows}' must hold integers, as row indices.")
        plan.check_names([name for name in names if name != rows], extra=extra)
        # Types that the plan does not take show without a row, and before anything is charged.
        [empty] = batches(pl.DataFrame(schema={name: schema[name] for name in plan.names}))
        plan.read(empty)
        indexed = self._frame.select([*plan.names, *([] if rows is None else [rows])])
        if rows is None:
            indexed = indexed.with_row_index(_ROWS)
        seal = _Seal() if rows is None and not source.pinned else None
        paid = plan.open(source)

        def randomise(batch: pl.DataFrame) -> pl.DataFrame:
            if seal is not None:
                seal.check(batch)
            if rows is None:
                batch = batch.with_columns(pl.col(_ROWS).cast(pl.Int64) + first)
            return _frame(plan.privatize(batch, noise=paid, rows=rows or _ROWS, values=values))

        reports = _frame(plan.arrow_schema(values=values).empty_table()).schema
        # A filter or a slice that moved in front of the randomiser would look at the data.
        return indexed.map_batches(
            randomise,
            predicate_pushdown=False,
            projection_pushdown=False,
            slice_pushdown=False,
            schema=reports,
            streamable=True,
        )

    def estimate(self, plan: TablePlan, *, values: bool = False) -> TupleEstimate:
        """Means and shares from reports, collected by the streaming engine."""
        frame = self._frame.select(check_plan(plan).names).collect(engine="streaming")
        return PrivateFrame(frame).estimate(plan, values=values)


class _Seal:
    """What every row held when it was first read, as keyed hashes.

    Batches come in any order and are cut in any way, and a query may stop early, so rows are told
    apart one by one.
    """

    def __init__(self) -> None:
        # Nobody sees the hashes; the key makes a collision a matter of chance.
        self._key = secrets.randbits(64)
        self._lock = threading.Lock()
        self._known: npt.NDArray[np.uint64] = np.zeros(0, np.uint64)

    def check(self, batch: pl.DataFrame) -> None:
        """Refuse a batch with a row whose place held something else before."""
        if batch.is_empty():
            return
        rows = batch[_ROWS].to_numpy()
        # Odd, because 0 is for rows that were not read so far.
        found = batch.hash_rows(self._key).to_numpy() | np.uint64(1)
        end = int(rows.max()) + 1
        with self._lock:
            if end > len(self._known):
                more = max(end, 2 * len(self._known)) - len(self._known)
                self._known = np.pad(self._known, (0, more))
            before = self._known[rows]
            if ((before != found) & (before != 0)).any():
                raise RepeatedReleaseError(
                    "The rows of the frame have changed since it was collected first, and the same "
                    "noise must not be used twice: keep their order, or call privatize again."
                )
            self._known[rows] = found


def _frame(table: Any) -> pl.DataFrame:
    made = pl.from_arrow(table)
    if not isinstance(made, pl.DataFrame):
        raise TypeError("Polars made a series of a table.")
    return made
