"""Polars and Spark give the bytes of NumPy, however they cut a table."""

import subprocess
import sys

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import dpcore
import dpcore.interop.polars
from dpcore import Noise, local
from dpcore.errors import (
    DataError,
    DPCoreError,
    InsecureNoiseError,
    ParameterError,
    RepeatedReleaseError,
    WireFormatError,
)
from dpcore.interop.spark import COUNTS_DDL, count, counts_of, ddl, randomise
from dpcore.tables import Counts, TablePlan, table_stream

N = 30_000
SCHEMA = {
    "age": {"lower": 0, "upper": 100},
    "fuel": {"categories": ["gas", "oil", "none"]},
    "code": {"categories": 40},
}
PLAN = TablePlan(SCHEMA, 2.0)
ONE = TablePlan({"age": SCHEMA["age"]}, 2.0)
ORDER = list(SCHEMA)
ENGINES = ("in-memory", "streaming")


def noise():
    return table_stream(Noise.from_key(bytes(range(32))), "survey")


@pytest.fixture(scope="module")
def columns():
    rng = np.random.default_rng(0)
    return {
        "age": rng.uniform(20, 60, N),
        "fuel": rng.choice(["gas", "oil", "none"], N),
        "code": rng.integers(0, 40, N),
    }


@pytest.fixture(scope="module")
def frame(columns):
    return pl.DataFrame(columns)


@pytest.fixture(scope="module")
def expected(columns):
    return pl.from_arrow(PLAN.privatize(pa.table(columns), noise=noise()))


# Polars


def test_a_frame_is_as_numpy(columns, frame, expected):
    codes = local.make("hm-j", 2.0, 0, 100).encode(columns["age"], noise=noise(), start=4)
    made = frame.select("age").dp.privatize(ONE, noise=noise(), start=4)
    assert np.array_equal(made["age"].to_numpy(), codes)
    assert frame.dp.privatize(PLAN, noise=noise()).equals(expected)
    shuffled = frame.with_row_index("row").sample(fraction=1.0, shuffle=True, seed=1)
    made = shuffled.dp.privatize(PLAN, noise=noise(), rows="row")
    assert made.equals(expected[shuffled["row"]])


@pytest.mark.parametrize("engine", ENGINES)
def test_a_lazy_frame_is_as_numpy_whatever_the_batches(tmp_path, frame, expected, engine):
    calls = []
    for size in (1000, 7777):
        frame.write_parquet(tmp_path / "in.parquet", row_group_size=size)
        lazy = pl.scan_parquet(tmp_path / "in.parquet").dp.privatize(PLAN, noise=noise())
        watched = lazy.map_batches(lambda part: calls.append(len(part)) or part, streamable=True)
        assert watched.collect(engine=engine).equals(expected)
        later = pl.scan_parquet(tmp_path / "in.parquet").dp.privatize(PLAN, noise=noise(), start=50)
        assert later.collect(engine=engine).equals(
            frame.dp.privatize(PLAN, noise=noise(), start=50)
        )
    assert sum(calls) == 2 * N


@pytest.mark.parametrize("engine", ENGINES)
def test_nothing_moves_in_front_of_the_randomiser(frame, expected, engine):
    reports = frame.lazy().dp.privatize(PLAN, noise=noise())
    for query in (
        lambda f: f.filter(pl.col("age") > 20),
        lambda f: f.filter(pl.col("fuel") == 1).select("fuel"),
        lambda f: f.slice(100, 50),
        lambda f: f.select("age").head(9),
        lambda f: f.select(pl.col("age").mean()),
    ):
        assert query(reports).collect(engine=engine).equals(query(expected.lazy()).collect())


def test_rows_of_a_lazy_frame_may_come_from_a_column(frame, expected):
    chosen = frame.with_row_index("row").filter(pl.col("row") % 7 == 3)
    made = chosen.lazy().dp.privatize(PLAN, noise=noise(), rows="row").collect(engine="streaming")
    assert made.equals(expected[chosen["row"]])


def test_estimates_of_frames(columns, expected):
    direct = PLAN.estimate(PLAN.privatize(pa.table(columns), noise=noise()))
    for found in (expected.dp.estimate(PLAN), expected.lazy().dp.estimate(PLAN)):
        assert found["age"] == direct["age"]
        assert np.array_equal(found["code"].frequencies, direct["code"].frequencies)
    assert expected.dp.count(PLAN).n_rows == N
    values = pl.DataFrame(columns).dp.privatize(PLAN, noise=noise(), values=True)
    assert values.dp.estimate(PLAN, values=True)["age"].mean == pytest.approx(direct["age"].mean)


def test_faults_of_frames_are_named(frame):
    for made in (frame, frame.lazy()):
        with pytest.raises(ParameterError, match="'code'"):
            made.drop("code").dp.privatize(PLAN, noise=noise())
        with pytest.raises(ParameterError, match="'other'"):
            made.with_columns(other=1).dp.privatize(PLAN, noise=noise())
    extra = frame.with_columns(other=1).lazy().dp.privatize(PLAN, noise=noise(), extra="drop")
    assert extra.collect().equals(frame.dp.privatize(PLAN, noise=noise()))
    with pytest.raises(DataError, match="'age'"):
        frame.with_columns(age=pl.lit(None, pl.Float64)).dp.privatize(PLAN, noise=noise())
    with pytest.raises(ParameterError, match="taken"):
        frame.with_columns(__dpcore_row=1).lazy().dp.privatize(PLAN, noise=noise(), extra="drop")


def test_a_lazy_frame_is_charged_once(tmp_path, frame):
    with dpcore.Ledger(tmp_path / "ledger.sqlite", epsilon=10.0) as ledger:
        lazy = frame.lazy().dp.privatize(PLAN)
        first, second = lazy.collect(engine="streaming"), lazy.collect()
        assert len(ledger.entries) == 1
        assert first.equals(second)
        assert not frame.lazy().dp.privatize(PLAN).collect().equals(first)
        assert len(ledger.entries) == 2


def shuffled_between(frame):
    """A query whose rows come in another order each time it is collected."""
    seeds = iter(range(100))
    return frame.lazy().map_batches(
        lambda part: part.sample(fraction=1.0, shuffle=True, seed=next(seeds))
    )


@pytest.mark.parametrize("engine", ENGINES)
def test_other_rows_never_get_the_noise_of_the_first(frame, engine):
    lazy = shuffled_between(frame).dp.privatize(PLAN)
    lazy.collect(engine=engine)
    with pytest.raises(RepeatedReleaseError, match="order"):
        lazy.collect(engine=engine)
    # The caller answers for indices that are named, and for a stream that is.
    named = shuffled_between(frame.with_row_index("row")).dp.privatize(PLAN, rows="row")
    assert named.collect(engine=engine).sort(ORDER).equals(named.collect(engine=engine).sort(ORDER))
    pinned = shuffled_between(frame).dp.privatize(PLAN, noise=noise())
    assert not pinned.collect(engine=engine).equals(pinned.collect(engine=engine))


def test_a_query_that_stopped_early_may_go_on(tmp_path, frame):
    frame.write_parquet(tmp_path / "in.parquet", row_group_size=1000)
    lazy = pl.scan_parquet(tmp_path / "in.parquet").dp.privatize(PLAN)
    begin = lazy.head(9).collect(engine="streaming")
    assert lazy.collect(engine="streaming").head(9).equals(begin)
    assert lazy.collect().head(9).equals(begin)


@pytest.mark.parametrize(
    ("changes", "options", "named"),
    [
        ({}, {"start": -1}, "'start'"),
        ({}, {"rows": "zzz"}, "'rows'"),
        ({}, {"rows": "age"}, "'rows'"),
        ({}, {"rows": 5}, "'rows'"),
        ({"row": 0.5}, {"rows": "row"}, "'row'"),
        ({}, {"extra": "keep"}, "'extra'"),
        ({}, {"values": 1}, "'values'"),
        ({}, {"noise": 5}, "'noise'"),
        ({"other": 1}, {}, "'other'"),
        ({"age": "old"}, {}, "'age'"),
        ({"__dpcore_row": 1}, {"extra": "drop"}, "taken"),
    ],
)
def test_a_refused_lazy_frame_is_not_charged(tmp_path, frame, changes, options, named):
    lazy = frame.lazy().with_columns(**{name: pl.lit(given) for name, given in changes.items()})
    with dpcore.Ledger(tmp_path / "ledger.sqlite", epsilon=10.0) as ledger:
        with pytest.raises(ParameterError, match=named):
            lazy.dp.privatize(PLAN, **options)
        with pytest.raises(ParameterError, match="'code'"):
            frame.lazy().drop("code").dp.privatize(PLAN)
    assert not ledger.entries


def test_a_plan_is_asked_for(frame):
    for made in (frame, frame.lazy()):
        with pytest.raises(ParameterError, match="'plan'"):
            made.dp.privatize(5)
        with pytest.raises(ParameterError, match="'plan'"):
            made.dp.estimate(5)
    with pytest.raises(ParameterError, match="'plan'"):
        frame.dp.count(5)


def test_categories_of_polars_are_read(frame):
    typed = frame.with_columns(pl.col("fuel").cast(pl.Categorical))
    made = typed.lazy().dp.privatize(PLAN, noise=noise()).collect()
    assert made.equals(frame.dp.privatize(PLAN, noise=noise()))


# Spark


def partitions(columns, n_parts=5, seed=2):
    """The table in shuffled parts, as a cluster has it."""
    order = np.random.default_rng(seed).permutation(N)
    table = pa.table({**columns, "id": np.arange(N)})
    for part in np.array_split(order, n_parts):
        yield table.take(pa.array(np.sort(part))).to_batches(max_chunksize=1111), np.sort(part)


def test_the_spark_function_is_as_numpy(columns):
    whole = PLAN.privatize(pa.table(columns), noise=noise())
    work, tally = randomise(PLAN, noise(), rows="id", keep_rows=True), count(PLAN)
    totals = []
    for batches, rows in partitions(columns):
        made = pa.Table.from_batches(work(iter(batches)))
        assert made["id"].to_pylist() == rows.tolist()
        reports = made.drop_columns(["id"])
        again = pa.Table.from_batches(work(iter(batches[::-1])))
        assert again.sort_by("id").equals(made.sort_by("id"))
        for column in PLAN.columns:
            given = whole[column.name].take(pa.array(rows))
            assert reports[column.name].to_pylist() == given.to_pylist()
        [row] = pa.Table.from_batches(tally(iter(reports.to_batches()))).to_pylist()
        totals += counts_of([(row["counts"],)])
    assert sum(totals) == PLAN.count(whole)


def test_schemas_of_spark_functions():
    assert ddl(PLAN) == "`age` smallint, `fuel` smallint, `code` binary"
    assert ddl(PLAN, values=True, rows="id") == (
        "`age` double, `fuel` string, `code` binary, `id` bigint"
    )
    odd = TablePlan({"a`b": {"lower": 0, "upper": 1}}, 1.0, n_levels=1000)
    assert ddl(odd) == "`a``b` int"
    assert COUNTS_DDL == "counts string"


def test_the_spark_function_needs_addresses(columns):
    with pytest.raises(ParameterError, match="'noise'"):
        randomise(PLAN, Noise.from_key(bytes(32)), rows="id")
    with pytest.raises(ParameterError, match="'noise'"):
        randomise(PLAN, None, rows="id")
    for rows in (None, ""):
        with pytest.raises(ParameterError, match="'rows'"):
            randomise(PLAN, noise(), rows=rows)
    with pytest.raises(ParameterError, match="'plan'"):
        randomise("plan", noise(), rows="id")
    dropping = TablePlan(SCHEMA, 2.0, on_null="drop")
    with pytest.raises(ParameterError, match="'keep_rows'"):
        randomise(dropping, noise(), rows="id", keep_rows=True)
    with pytest.raises(DPCoreError, match="'rows'"):
        list(randomise(PLAN, noise(), rows="id")(iter(pa.table(columns).to_batches())))
    for source in (PLAN.open(Noise()), Noise().stream("survey")):
        with pytest.raises(ParameterError, match="'noise'"):
            randomise(PLAN, source, rows="id")


@pytest.mark.parametrize("kind", [pa.int8(), pa.int32(), pa.uint32(), pa.uint64()])
def test_kept_rows_are_of_the_type_that_spark_is_told(kind):
    table = pa.table({"age": [40.0, 50.0], "id": pa.array([3, 1], kind)})
    [made] = randomise(ONE, noise(), rows="id", keep_rows=True)(iter(table.to_batches()))
    assert made.schema.field("id").type == pa.int64()
    assert made.column("id").to_pylist() == [3, 1]


def test_insecure_noise_is_refused_where_its_mark_would_be_lost(frame):
    source = Noise.insecure(1).stream("survey")
    for call in (
        lambda: frame.dp.privatize(PLAN, noise=source),
        lambda: frame.lazy().dp.privatize(PLAN, noise=source),
        lambda: randomise(PLAN, source, rows="id"),
    ):
        with pytest.raises(InsecureNoiseError):
            call()


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"codes": 1}', '{"codes": []}'])
def test_counts_from_foreign_text_are_refused(text):
    with pytest.raises(WireFormatError):
        Counts.from_json(text)


SPARK_PROGRAM = """
import os, sys
os.environ["PYSPARK_PYTHON"] = sys.executable
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
from pyspark.sql import SparkSession
import numpy as np, pandas as pd, pyarrow as pa
from dpcore import Noise
from dpcore.interop.spark import COUNTS_DDL, count, counts_of, ddl, randomise
from dpcore.tables import TablePlan, table_stream

plan = TablePlan({"age": {"lower": 0, "upper": 100}, "fuel": {"categories": ["gas", "oil"]}}, 2.0)
noise = table_stream(Noise.from_key(bytes(range(32))), "survey")
n = 5000
data = {"age": np.random.default_rng(0).uniform(20, 60, n), "fuel": ["gas", "oil"] * (n // 2)}
whole = plan.privatize(pa.table(data), noise=noise)
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
frame = spark.createDataFrame(pd.DataFrame({**data, "id": np.arange(n)})).repartition(5)
work = randomise(plan, noise, rows="id", keep_rows=True)
reports = frame.mapInArrow(work, ddl(plan, rows="id")).cache()
made = sorted((row["id"], row["age"], row["fuel"]) for row in reports.collect())
ages, fuels = whole["age"].to_pylist(), whole["fuel"].to_pylist()
assert made == list(zip(range(n), ages, fuels)), "other bytes"
rows = reports.drop("id").mapInArrow(count(plan), COUNTS_DDL).collect()
assert sum(counts_of(rows)) == plan.count(whole), "other counts"
spark.stop()
print("same bytes")
"""


def test_a_real_spark_session_gives_the_same_bytes(tmp_path):
    pytest.importorskip("pyspark", reason="pyspark is not part of the extra 'test'")
    done = subprocess.run(
        [sys.executable, "-c", SPARK_PROGRAM],
        capture_output=True,
        text=True,
        timeout=900,
        cwd=tmp_path,
        check=False,
    )
    assert done.stdout.strip().endswith("same bytes"), done.stderr[-2000:]
