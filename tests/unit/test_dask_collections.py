"""Dask arrays and dataframes against the same calls on one machine, and what is refused."""

import os
from concurrent.futures import ThreadPoolExecutor

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from dask_support import KEY, MECHANISM, NOISE, PLAN, part, values

import dpcore
from dpcore import local
from dpcore._parallel import one_thread
from dpcore.cli import main
from dpcore.errors import (
    BudgetExceededError,
    DataError,
    InsecureNoiseError,
    ParameterError,
)
from dpcore.interop import dask as private_dask
from dpcore.learners.forecast import release_counts
from dpcore.series import Bins
from dpcore.tables import TablePlan, table_stream

# Arrays


def grid(*shape):
    return values(0, int(np.prod(shape))).reshape(shape)


@pytest.mark.parametrize("name", local.NAMES)
def test_codes_of_an_array_are_those_of_the_whole(name):
    mechanism = local.make(name, 1.0)
    x = grid(1000, 3)
    array = da.from_array(x, chunks=(130, 3))
    codes = private_dask.encode(array, mechanism, noise=NOISE)
    whole = mechanism.encode(x, noise=NOISE)
    found = codes.compute(scheduler="sync")
    assert found.dtype == codes.dtype == whole.dtype
    assert np.array_equal(found, whole)
    assert private_dask.estimate(codes, mechanism) == mechanism.estimate(whole)
    decoded = private_dask.privatize(array, mechanism, noise=NOISE)
    assert decoded.dtype == np.float64
    assert np.array_equal(decoded.compute(), mechanism.privatize(x, noise=NOISE))


@pytest.mark.parametrize(
    "chunks", [((7, 0, 93),), ((100,),), ((1,) * 100,), ((99, 1),)], ids=["empty", "1", "100", "2"]
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int8, np.uint64])
def test_neither_chunks_nor_dtypes_enter(chunks, dtype):
    x = (values(0, 100) * 3 + 3).astype(dtype)
    mechanism = local.make("pm", 2.0, 0, 6)
    codes = private_dask.encode(da.from_array(x, chunks=chunks), mechanism, noise=NOISE)
    assert codes.chunks == chunks
    assert np.array_equal(codes.compute(), mechanism.encode(x, noise=NOISE))
    assert private_dask.estimate(codes, mechanism) == mechanism.estimate(codes.compute())


@pytest.mark.parametrize("oracle", [local.GRR(1.0, 9), local.GRR(1.0, 300), local.OUE(1.0, 21)])
def test_categories(oracle):
    x = np.arange(1000) % oracle.n_categories
    codes = private_dask.encode(da.from_array(x, chunks=((300, 0, 700),)), oracle, noise=NOISE)
    whole = oracle.encode(x, noise=NOISE)
    found = codes.compute()
    assert found.dtype == codes.dtype == whole.dtype
    assert found.shape == codes.shape
    assert np.array_equal(found, whole)
    lazy, there = private_dask.estimate(codes, oracle, compute=False), oracle.estimate(whole)
    assert lazy.compute().count == there.count == 1000
    assert np.array_equal(lazy.compute().frequencies, there.frequencies)
    assert np.array_equal(lazy.compute().standard_errors, there.standard_errors)


def test_codes_in_any_chunks_are_counted():
    x = grid(40, 6, 5)
    codes = private_dask.encode(da.from_array(x, chunks=(7, 6, 5)), MECHANISM, noise=NOISE)
    other = codes.rechunk((9, 2, 3))
    assert private_dask.estimate(other, MECHANISM) == MECHANISM.estimate(codes.compute())


@pytest.mark.parametrize(
    ("array", "word"),
    [
        (da.zeros((20, 20), chunks=(20, 10)), "first axis"),
        (da.zeros((20, 20), chunks=(10, 10)), "first axis"),
        (da.zeros(20, chunks=5)[da.ones(20, chunks=5) > 0], "known chunk sizes"),
        (da.zeros((), chunks=()), "known chunk sizes"),
        (da.zeros(0, chunks=1), "empty"),
        (da.zeros(4, chunks=2, dtype=complex), "dtype"),
        (da.ma.masked_equal(da.zeros(4, chunks=2), 1), "NumPy"),
        (np.zeros(4), "Dask array"),
    ],
)
def test_arrays_without_an_address_for_every_element_are_refused(array, word, tmp_path):
    with (
        dpcore.Ledger(tmp_path / "l.sqlite", epsilon=5.0) as ledger,
        pytest.raises(ParameterError, match=word),
    ):
        private_dask.encode(array, MECHANISM, noise=NOISE)
    assert ledger.entries == []


def test_wrong_partners_are_refused():
    array = da.zeros(4, chunks=2)
    with pytest.raises(ParameterError, match="'mechanism'"):
        private_dask.encode(array, "hm-j", noise=NOISE)
    with pytest.raises(ParameterError, match="'mechanism'"):
        private_dask.privatize(array.astype(int), local.GRR(1.0, 3), noise=NOISE)
    with pytest.raises(ParameterError, match="1 dimension"):
        private_dask.encode(da.zeros((4, 4), dtype=int), local.GRR(1.0, 3), noise=NOISE)
    with pytest.raises(ParameterError, match="whole reports"):
        private_dask.estimate(da.zeros((4, 4), chunks=2, dtype=np.uint8), local.OUE(1.0, 30))
    with pytest.raises(ParameterError, match="dataframes"):
        private_dask.privatize(array, MECHANISM, noise=NOISE, values=True)
    with pytest.raises(DataError, match="'codes'"):
        private_dask.estimate(da.full(4, 255, chunks=2, dtype=np.uint8), local.make("duchi", 1.0))


def test_a_block_that_is_longer_than_declared_is_refused():
    liar = da.map_blocks(lambda b: np.zeros(7), da.zeros(10, chunks=5), dtype=float)
    codes = private_dask.encode(liar, MECHANISM, noise=NOISE)
    with pytest.raises(DataError, match="sizes"):
        codes.compute(scheduler="sync")


def test_a_task_uses_one_thread_and_leaves_others_alone():
    dpcore.set_num_threads(3)
    try:
        with one_thread():
            assert dpcore.get_num_threads() == 1
            with ThreadPoolExecutor(1) as pool:
                assert pool.submit(dpcore.get_num_threads).result() == 3
        assert dpcore.get_num_threads() == 3
    finally:
        dpcore.set_num_threads(None)


# Noise


@pytest.mark.parametrize(
    "noise",
    [None, dpcore.Noise(), dpcore.Noise().stream("a"), dpcore.Noise.from_key(KEY), "key"],
    ids=["none", "fresh", "unportable", "unpinned", "text"],
)
def test_noise_that_a_retry_would_draw_again_is_refused(noise):
    frame = dd.from_pandas(part(0, 4), npartitions=2)
    counts = np.ones((2, 3, 1, 4), int)
    for call in (
        lambda: private_dask.encode(da.zeros(4), MECHANISM, noise=noise),
        lambda: private_dask.privatize(da.zeros(4), MECHANISM, noise=noise),
        lambda: private_dask.privatize(frame, PLAN, noise=noise),
    ):
        with pytest.raises(ParameterError, match="'noise'"):
            call()
    bins = [Bins((0, 1, 2, 3, 4))]
    with ThreadPoolExecutor(1) as pool, pytest.raises(ParameterError, match="'noise'"):
        release_counts(counts, bins, 2, epsilon=1.0, noise=noise, executor=pool)


def test_insecure_noise_is_refused_where_its_mark_would_be_lost():
    noise = dpcore.Noise.insecure(3).stream("a")
    with pytest.raises(InsecureNoiseError):
        private_dask.encode(da.zeros(4), MECHANISM, noise=noise)
    with pytest.raises(InsecureNoiseError):
        private_dask.privatize(dd.from_pandas(part(0, 4), npartitions=1), PLAN, noise=noise)


# Ledger


def test_a_job_is_charged_once_when_it_is_submitted(tmp_path):
    frame = dd.from_pandas(part(0, 100), npartitions=4)
    array = da.from_array(values(0, 100), chunks=30)
    ledger = dpcore.Ledger(tmp_path / "study.sqlite", epsilon=6.0)
    with ledger:
        codes = private_dask.encode(array, MECHANISM, noise=NOISE)
        assert len(ledger.entries) == 1
        # The same release, decoded, repeated or on one machine, has the same noise.
        private_dask.privatize(array, MECHANISM, noise=NOISE)
        MECHANISM.encode(values(0, 100), noise=NOISE)
        codes.compute(scheduler="threads")
        codes.compute(scheduler="sync")
        assert len(ledger.entries) == 1
        reports = private_dask.privatize(frame, PLAN, noise=NOISE)
        assert len(ledger.entries) == 2
        reports.compute(scheduler="threads")
        PLAN.privatize(pa.Table.from_pandas(part(0, 100)), noise=NOISE)
        private_dask.encode(da.from_array(np.arange(4) % 3), local.GRR(0.5, 3), noise=NOISE)
        assert [entry.event.adjacency for entry in ledger.entries] == ["local"] * 3
        assert ledger.spent[0] == pytest.approx(5.5)
        with pytest.raises(BudgetExceededError):
            private_dask.encode(array, MECHANISM, noise=NOISE.stream("another"))
    assert len(ledger.entries) == 3


@pytest.mark.parametrize("scheduler", ["threads", "sync"])
def test_tasks_charge_no_ledger_that_is_in_force_where_they_run(tmp_path, scheduler):
    codes = private_dask.encode(da.zeros(10, chunks=5), MECHANISM, noise=NOISE)
    reports = private_dask.privatize(
        dd.from_pandas(part(0, 10), npartitions=2), PLAN, noise=NOISE, lengths=[5, 5]
    )
    with dpcore.Ledger(tmp_path / "other.sqlite", epsilon=0.1) as ledger:
        codes.compute(scheduler=scheduler)
        reports.compute(scheduler=scheduler)
    assert ledger.entries == []


# Dataframes


@pytest.mark.parametrize("use_values", [False, True])
@pytest.mark.parametrize("given", [False, True])
def test_reports_of_a_dataframe_are_those_of_the_whole(use_values, given):
    whole = part(0, 500)
    frame = dd.from_pandas(whole, npartitions=4)
    lengths = [len(p) for p in frame.partitions] if given else None
    noise = table_stream(dpcore.Noise.from_key(KEY), "survey")
    reports = private_dask.privatize(frame, PLAN, noise=noise, lengths=lengths, values=use_values)
    found = reports.compute()
    table = PLAN.privatize(whole, noise=noise, values=use_values)
    assert pa.Table.from_pandas(found, preserve_index=False).cast(table.schema).equals(table)
    assert found.index.tolist() == list(range(500))
    assert (reports.dtypes == found.dtypes).all()
    ours = private_dask.estimate(reports, PLAN, values=use_values)
    theirs = PLAN.estimate(table)
    assert ours["x"] == theirs["x"]
    assert np.array_equal(ours["kind"].frequencies, theirs["kind"].frequencies)


@pytest.mark.filterwarnings("ignore:An error occurred", "ignore:The inplace keyword")
def test_a_dataframe_from_parquet_with_an_index_of_its_own_and_more_columns(tmp_path):
    whole = part(0, 300).assign(name="Ann", label=[f"p{i}" for i in range(300)]).set_index("label")
    for i in range(3):
        whole.iloc[100 * i : 100 * i + 100].to_parquet(tmp_path / f"{i}.parquet")
    frame = dd.read_parquet(tmp_path)
    with pytest.raises(ParameterError, match="'name'"):
        private_dask.privatize(frame, PLAN, noise=NOISE)
    with pytest.raises(ParameterError, match="'kind'"):
        private_dask.privatize(frame[["x"]], PLAN, noise=NOISE)
    reports = private_dask.privatize(frame, PLAN, noise=NOISE, extra="drop").compute()
    table = PLAN.privatize(part(0, 300), noise=NOISE)
    assert pa.Table.from_pandas(reports, preserve_index=False).cast(table.schema).equals(table)
    assert list(reports.columns) == ["x", "kind"]
    assert reports.index.tolist() == list(range(300))


def test_the_command_line_gives_the_same_reports(tmp_path, monkeypatch):
    pq.write_table(pa.Table.from_pandas(part(0, 3000)), tmp_path / "rows.parquet", row_group_size=7)
    (tmp_path / "schema.toml").write_text(
        "[columns.x]\nlower = -1\nupper = 1\n[columns.kind]\ncategories = [0, 1, 2]\n"
    )
    (tmp_path / "key").write_bytes(KEY)
    os.chmod(tmp_path / "key", 0o600)
    monkeypatch.chdir(tmp_path)
    given = ["privatize", "rows.parquet", "--schema", "schema.toml", "--epsilon", "4"]
    assert main([*given, "--key", "key", "-o", "out.parquet"]) == 0
    noise = table_stream(dpcore.Noise.from_key(KEY), "rows.parquet")
    frame = dd.read_parquet(tmp_path / "rows.parquet", split_row_groups=100)
    assert frame.npartitions > 1
    reports = private_dask.privatize(frame, PLAN, noise=noise).compute()
    table = pq.read_table(tmp_path / "out.parquet")
    assert pa.Table.from_pandas(reports, preserve_index=False).cast(table.schema).equals(table)


def test_dropped_rows_keep_the_noise_of_the_others():
    whole = part(0, 100)
    whole.loc[whole.index % 5 == 0, "x"] = np.nan
    plan = TablePlan(PLAN.attributes, 4.0, on_null="drop")
    reports = private_dask.privatize(dd.from_pandas(whole, npartitions=3), plan, noise=NOISE)
    table = plan.privatize(whole, noise=NOISE)
    assert table.num_rows == 80
    found = pa.Table.from_pandas(reports.compute(), preserve_index=False)
    assert found.cast(table.schema).equals(table)
    assert private_dask.estimate(reports, plan).count == 80


@pytest.mark.parametrize(
    "call",
    [
        private_dask.estimate,
        lambda frame, plan: private_dask.privatize(frame, plan, noise=NOISE).compute(),
    ],
)
def test_a_column_of_several_types_is_refused_without_its_values(call):
    mixed = pd.DataFrame({"age": pd.Series([1.0, "SECRET-VALUE"], dtype=object)})
    with dask.config.set({"scheduler": "sync", "dataframe.convert-string": False}):
        frame = dd.from_delayed([dask.delayed(mixed)], meta=mixed.iloc[:0], verify_meta=False)
        with pytest.raises(DataError, match="type") as caught:
            call(frame, TablePlan({"age": {"lower": 0, "upper": 100}}, 2.0))
    assert "SECRET" not in str(caught.value)


def test_a_partition_that_changed_its_length_is_refused():
    frame = dd.from_pandas(part(0, 100), npartitions=2)
    reports = private_dask.privatize(frame, PLAN, noise=NOISE, lengths=[40, 60])
    with pytest.raises(DataError, match="lengths"):
        reports.compute(scheduler="sync")
    with pytest.raises(ParameterError, match="'lengths'"):
        private_dask.privatize(frame, PLAN, noise=NOISE, lengths=[100])
    with pytest.raises(ParameterError, match="'lengths'"):
        private_dask.privatize(frame, PLAN, noise=NOISE, lengths=[-1, 101])


def test_other_things_than_plans_and_frames_are_refused():
    frame = dd.from_pandas(part(0, 10), npartitions=1)
    for call in (
        lambda: private_dask.privatize(frame, MECHANISM, noise=NOISE),
        lambda: private_dask.privatize(part(0, 10), PLAN, noise=NOISE),
        lambda: private_dask.estimate(part(0, 10), PLAN),
        lambda: private_dask.estimate(frame, MECHANISM),
    ):
        with pytest.raises(ParameterError):
            call()
