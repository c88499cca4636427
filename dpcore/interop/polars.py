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

from typing import Any

import polars as pl

from dpcore._checks import check_choice, check_index
from dpcore.errors import ParameterError
from dpcore.local.reports import TupleEstimate
from dpcore.noise import Noise
from dpcore.tables import Counts, TablePlan

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
        """Randomise every row; see `TablePlan.privatize`, which gives the same bytes."""
        table = plan.privatize(
            self._frame, noise=noise, start=start, rows=rows, extra=extra, values=values
        )
        return _frame(table)

    def count(self, plan: TablePlan, *, values: bool = False) -> Counts:
        """Counts of reports; see `TablePlan.count`."""
        return plan.count(self._frame, values=values)

    def estimate(self, plan: TablePlan, *, values: bool = False) -> TupleEstimate:
        """Means and shares from reports; see `TablePlan.estimate`."""
        return plan.estimate(self.count(plan, values=values))


@pl.api.register_lazyframe_namespace("dp")
class PrivateLazyFrame:
    """The namespace ``dp`` of a LazyFrame.

    Privacy
    -------
    `privatize` as of `TablePlan`: epsilon-local-DP of every row by itself. `estimate` is
    post-processing of reports.

    Cost
    ----
    As for `TablePlan`: one pass, batch by batch, whenever the result is collected. `estimate` has
    all reports in memory.
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
        the ledger in force, when this is called; a frame without a pinned stream that is collected
        twice gives the same reports twice.

        Privacy
        -------
        As for `TablePlan.privatize`. What follows in the query sees reports only: nothing is moved
        to the other side of the randomiser.
        """
        check_choice(extra, "extra", ("error", "drop"))
        names, paid = self._frame.collect_schema().names(), plan.open(noise)
        if _ROWS in names:
            raise ParameterError(f"The column name '{_ROWS}' is taken.")
        plan.check_names([name for name in names if name != rows], extra=extra)
        first = check_index(start, "start")
        indexed = self._frame.select([*plan.names, *([] if rows is None else [rows])])
        if rows is None:
            index = pl.col(_ROWS).cast(pl.Int64) + first
            indexed = indexed.with_row_index(_ROWS).with_columns(index)

        def randomise(batch: pl.DataFrame) -> pl.DataFrame:
            return _frame(plan.privatize(batch, noise=paid, rows=rows or _ROWS, values=values))

        schema = _frame(plan.arrow_schema(values=values).empty_table()).schema
        # A filter or a slice that moved in front of the randomiser would look at the data.
        return indexed.map_batches(
            randomise,
            predicate_pushdown=False,
            projection_pushdown=False,
            slice_pushdown=False,
            schema=schema,
            streamable=True,
        )

    def estimate(self, plan: TablePlan, *, values: bool = False) -> TupleEstimate:
        """Means and shares from reports, collected by the streaming engine."""
        frame = self._frame.select(plan.names).collect(engine="streaming")
        return PrivateFrame(frame).estimate(plan, values=values)


def _frame(table: Any) -> pl.DataFrame:
    made = pl.from_arrow(table)
    if not isinstance(made, pl.DataFrame):
        raise TypeError("Polars made a series of a table.")
    return made
