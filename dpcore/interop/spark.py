"""Spark: functions for ``DataFrame.mapInArrow`` and for the counts of its results.

A partition has no place of its own among the others, and is run again when an executor is lost. So
the index of every row must be a column that the table has, or got before it was cut:

    plan = TablePlan.from_toml("schema.toml", epsilon=2.0)
    noise = plan.open(table_stream(Noise.from_key(key), "survey"))
    reports = frame.mapInArrow(randomise(plan, noise, rows="id"), ddl(plan))
    counts = sum(counts_of(reports.mapInArrow(count(plan), COUNTS_DDL).collect()))
    print(plan.estimate(counts)["age"])

Columns of Spark have no metadata that survive, so the server needs the plan. A column of row
indices must stay the same when a partition is computed again: `monotonically_increasing_id` does
for files, and does not after a shuffle.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa

from dpcore._checks import check_choice, check_flag, check_list, check_name
from dpcore._release import check_portable
from dpcore.errors import ParameterError
from dpcore.interop._secure import check_secure
from dpcore.noise import Noise
from dpcore.tables import Counts, TablePlan
from dpcore.tables.plan import check_plan

__all__ = ["COUNTS_DDL", "count", "counts_of", "ddl", "randomise"]

Batches = Iterator[pa.RecordBatch]
COUNTS_DDL = "counts string"
_WIDER = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32()}
_NAMES = {
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
}


def randomise(
    plan: TablePlan,
    noise: Noise,
    *,
    rows: str,
    keep_rows: bool = False,
    extra: str = "error",
    values: bool = False,
) -> Callable[[Batches], Batches]:
    """A function for mapInArrow that randomises every row.

    Parameters
    ----------
    plan : TablePlan
    noise : Noise
        A named stream of `dpcore.Noise.from_key`, whose key is sent to the workers: keep what they
        log, and where they swap, as secret as the data. Reserve the cost by `TablePlan.open`
        first: a worker has no ledger.
    rows : str
        Column of row indices: integers, unique in the whole data set.
    keep_rows : bool
        Whether the column of row indices is part of the result.
    extra, values
        As for `TablePlan.privatize`, which gives the same codes.

    Privacy
    -------
    As for `TablePlan.privatize`: a partition that is run again gives the same reports again.

    Cost
    ----
    As for `TablePlan.privatize`, where indices lie close together; a native call for each
    otherwise.
    """
    check_plan(plan)
    source = check_secure(check_portable(noise), "a frame of Spark")
    if not isinstance(rows, str) or not rows:
        raise ParameterError("The 'rows' parameter must name the column of row indices.")
    check_flag(keep_rows, "keep_rows")
    check_flag(values, "values")
    check_choice(extra, "extra", ("error", "drop"))
    if keep_rows and plan.on_null == "drop":
        raise ParameterError("The 'keep_rows' parameter must be False where rows are dropped.")
    shipped = pickle.dumps((plan, source))

    def work(batches: Batches) -> Batches:
        own_plan, own_noise = pickle.loads(shipped)
        schema = _schema(own_plan, values)
        for batch in batches:
            made = own_plan.privatize(batch, noise=own_noise, rows=rows, extra=extra, values=values)
            for part in made.cast(schema).to_batches():
                if keep_rows:
                    # Of the type that `ddl` gives it.
                    part = part.append_column(rows, batch.column(rows).cast(pa.int64()))
                yield part

    return work


def ddl(plan: TablePlan, *, values: bool = False, rows: str | None = None) -> str:
    """The schema of what `randomise` gives, as mapInArrow wants it; `rows` if it is kept.

    Privacy
    -------
    It reads the plan, which is public, and no data.

    Cost
    ----
    In proportion to the number of columns.

    Examples
    --------
    >>> ddl(TablePlan({"age": {"lower": 0, "upper": 100}}, 2.0))
    '`age` smallint'
    """
    check_flag(values, "values")
    if rows is not None:
        check_name(rows, "rows")
    fields = [(field.name, _NAMES[field.type]) for field in _schema(check_plan(plan), values)]
    fields += [] if rows is None else [(rows, "bigint")]
    return ", ".join(f"`{name.replace('`', '``')}` {kind}" for name, kind in fields)


def _schema(plan: TablePlan, values: bool) -> pa.Schema:
    """Spark has neither unsigned numbers nor binaries of a fixed size."""
    made = []
    for field in plan.arrow_schema(values=values):
        fixed = pa.types.is_fixed_size_binary(field.type)
        kind = pa.binary() if fixed else _WIDER.get(field.type, field.type)
        made.append(pa.field(field.name, kind, field.nullable))
    return pa.schema(made)


def count(plan: TablePlan, *, values: bool = False) -> Callable[[Batches], Batches]:
    """A function for mapInArrow, with the schema `COUNTS_DDL`, that counts a partition.

    Privacy
    -------
    Post-processing of the reports.

    Cost
    ----
    One pass over a partition, a batch at a time, and one row with its counts.
    """
    shipped = pickle.dumps(check_plan(plan))
    check_flag(values, "values")

    def work(batches: Batches) -> Batches:
        own = pickle.loads(shipped)
        total = own.count()
        for batch in batches:
            total += own.count(batch, values=values)
        yield pa.record_batch({"counts": pa.array([total.to_json()], pa.string())})

    return work


def counts_of(collected: Iterable[Any]) -> list[Counts]:
    """The counts in collected rows of `count`: add them up.

    Privacy
    -------
    Post-processing of the reports.

    Cost
    ----
    In proportion to the number of partitions, not of rows.
    """
    try:
        texts = [row[0] for row in check_list(collected, "collected")]
    except (TypeError, LookupError):
        raise ParameterError("The 'collected' parameter must hold rows of counts.") from None
    return [Counts.from_json(text) for text in texts]
