"""Tables: the bytes of dpcore.local from every engine, in any batches, charged once."""

import hashlib
import tracemalloc

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from tables_support import PLANS, N, columns, noise, same

import dpcore
from dpcore import Noise, local
from dpcore.errors import DataError, DPCoreError, ParameterError
from dpcore.interop import arrow
from dpcore.tables import TablePlan
from dpcore.tables.rows import Seen


@pytest.fixture(params=PLANS)
def plan(request):
    return PLANS[request.param]


# The same bytes


def test_codes_are_those_of_the_mechanism():
    plan, data = PLANS["one"], columns(PLANS["one"])
    result = plan.privatize(pa.table(data), noise=noise(), start=5)
    expected = local.make("hm-j", 2.0, 0, 100).encode(data["age"], noise=noise(), start=5)
    assert result["age"].type == pa.uint8()
    assert np.array_equal(result["age"].to_numpy(), expected)
    assert PLANS["one, 16 bits"].arrow_schema().field("age").type == pa.uint16()


@pytest.mark.parametrize("name", ["one of five", "two of five", "all", "numbers", "bits"])
def test_codes_are_those_of_the_tuple(name):
    plan, data = PLANS[name], columns(PLANS[name])
    reports = local.Tuple(
        plan.attributes, plan.epsilon, plan.description["mechanism"], k=plan.k
    ).encode(data, noise=noise(), start=9)
    result = plan.privatize(pa.table(data), noise=noise(), start=9)
    for j, column in enumerate(plan.columns):
        drawn = reports.index == j
        rows = drawn.any(axis=1)
        own = result[column.name].combine_chunks()
        assert np.array_equal(own.is_valid().to_numpy(zero_copy_only=False), rows)
        if column.n_bytes:
            given = np.frombuffer(b"".join(own.drop_null().to_pylist()), np.uint8)
            assert np.array_equal(given.reshape(-1, column.n_bytes), reports.bits[j])
        else:
            assert np.array_equal(own.drop_null().to_numpy(), reports.code[drawn])


def test_batches_do_not_matter(plan):
    table = pa.table(columns(plan))
    whole = plan.privatize(table, noise=noise())
    for step in (1777, 8192):
        parts = pa.Table.from_batches(table.to_batches(max_chunksize=step))
        assert same(plan.privatize(parts, noise=noise()), whole)
        cut = [
            plan.privatize(table.slice(a, step), noise=noise(), start=a) for a in range(0, N, step)
        ]
        assert same(pa.concat_tables(cut), whole)


def test_every_engine_gives_the_same_bytes(plan):
    data = columns(plan)
    whole = plan.privatize(pa.table(data), noise=noise())
    table = pa.table(data)
    for given in (
        table.to_batches()[0],
        pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=999)),
        pl.DataFrame(data),
        pd.DataFrame(data),
        duckdb.from_arrow(table),
    ):
        assert same(plan.privatize(given, noise=noise()), whole), type(given)


class OnlyACapsule:
    """What a package that is not pyarrow hands over."""

    def __init__(self, batch):
        self.batch = batch

    def __arrow_c_array__(self, requested_schema=None):
        return self.batch.__arrow_c_array__(requested_schema)


def test_a_single_array_capsule_is_taken():
    plan = PLANS["two of five"]
    [batch] = pa.table(columns(plan)).to_batches()
    assert same(
        plan.privatize(OnlyACapsule(batch), noise=noise()), plan.privatize(batch, noise=noise())
    )


def test_rows_with_indices_of_their_own(plan):
    table = pa.table(columns(plan))
    whole = plan.privatize(table, noise=noise())
    rng = np.random.default_rng(3)
    for chosen in (
        rng.permutation(N),
        rng.permutation(N)[:40],
        np.arange(0, N, 5000),
        np.arange(0),
    ):
        index = pa.array(chosen)
        part = table.append_column("row", pa.array(np.arange(N))).take(index)
        result = plan.privatize(part, noise=noise(), rows="row")
        assert same(result, whole.take(index))


@pytest.mark.parametrize("rows", [[0, 0], [-1, 2], [0.5, 1.0], [None, 1], [2**62, 1], ["a", "b"]])
def test_row_indices_must_be_good(rows):
    table = pa.table({"age": [1.0, 2.0], "row": pa.array(rows)})
    with pytest.raises(DPCoreError, match="'row'"):
        PLANS["one"].privatize(table, noise=noise(), rows="row")
    with pytest.raises(ParameterError, match="'rows'"):
        PLANS["one"].privatize(table, noise=noise(), rows="elsewhere")
    with pytest.raises(ParameterError, match="'rows'"):
        PLANS["one"].privatize(table, noise=noise(), rows="age")


def test_a_row_index_of_another_batch_is_refused():
    rng = np.random.default_rng(0)
    index = rng.permutation(3 * N)[:N]
    table = pa.table({"age": columns(PLANS["one"])["age"], "row": index})
    cut = pa.Table.from_batches(table.to_batches(max_chunksize=700))
    whole = PLANS["one"].privatize(table, noise=noise(), rows="row")
    assert same(PLANS["one"].privatize(cut, noise=noise(), rows="row"), whole)
    for place in (5, 3333, N - 1):
        twice = pa.concat_tables([cut, table.slice(place, 1)])
        with pytest.raises(DataError, match=r"'row'.*twice"):
            PLANS["one"].privatize(twice, noise=noise(), rows="row")


def test_indices_seen_are_few_numbers_where_batches_follow_each_other():
    seen = Seen()
    for a in (3000, 0, 1000, 2000, *range(4000, 90_000, 1000)):
        seen.add(np.arange(a, a + 1000), "row")
    assert [len(begins) for begins, _ in seen._lists] == [1]
    for a, b in ((89_999, 90_500), (0, 1), (500, 100_000)):
        with pytest.raises(DataError):
            seen.add(np.arange(a, b), "row")
    seen.add(np.arange(90_000, 90_001), "row")


@pytest.mark.parametrize("name", ["one", "bits"])
def test_sparse_row_indices_take_little_memory(name):
    plan, n = PLANS[name], 5000
    table = pa.table({**columns(plan, n), "row": np.arange(n) * 2000})
    tracemalloc.start()
    try:
        result = plan.privatize(table, noise=noise(), rows="row")
        assert tracemalloc.get_traced_memory()[1] < 120e6
    finally:
        tracemalloc.stop()
    part = plan.privatize(table.slice(4321, 1), noise=noise(), rows="row")
    assert same(part, result.slice(4321, 1))


@pytest.mark.parametrize("kind", ["float32", "int8", "uint64", "int32", "float16"])
def test_number_types(kind):
    plan = PLANS["one"]
    data = np.arange(100).astype(kind)
    result = plan.privatize(pa.table({"age": data}), noise=noise())
    wide = data.astype(np.float32) if kind == "float16" else data
    assert np.array_equal(result["age"], plan.collector.encode(wide, noise=noise()))


@pytest.mark.parametrize(
    "kind",
    [pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())],
)
def test_text_types(kind):
    plan, labels = PLANS["category"], ["gas", "oil", "none", "oil"] * 50
    text = pa.array(labels).cast(kind)
    expected = plan.privatize(pa.table({"fuel": labels}), noise=noise())
    assert same(plan.privatize(pa.table({"fuel": text}), noise=noise()), expected)


def test_categories_of_engines_are_text():
    plan, labels = PLANS["category"], ["gas", "oil", "none", "oil"] * 50
    expected = plan.privatize(pa.table({"fuel": labels}), noise=noise())
    for column in (
        pl.Series(labels, dtype=pl.Categorical),
        pl.Series(labels, dtype=pl.Enum(["unused", "oil", "none", "gas"])),
    ):
        assert same(plan.privatize(pl.DataFrame({"fuel": column}), noise=noise()), expected)
    for column in (pd.Categorical(labels), pd.Series(labels, dtype="string")):
        assert same(plan.privatize(pd.DataFrame({"fuel": column}), noise=noise()), expected)


@pytest.mark.parametrize("kind", ["int8", "uint64", "int64"])
def test_integer_categories(kind):
    plan = TablePlan({"zone": {"categories": [5, -3, 9]}}, 1.0)
    data = np.array([5, 9, 9, 5], kind)
    expected = plan.collector.encode({"zone": data.astype(np.int64)}, noise=noise())
    result = plan.privatize(pa.table({"zone": data}), noise=noise())
    assert np.array_equal(result["zone"], expected.code[:, 0])


def test_booleans_are_categories_0_and_1():
    plan = TablePlan({"yes": {"categories": 2}}, 1.0)
    flags = np.array([True, False, True])
    expected = plan.privatize(pa.table({"yes": flags.astype(int)}), noise=noise())
    assert same(plan.privatize(pa.table({"yes": flags}), noise=noise()), expected)


def test_the_randomiser_reads_the_arrow_buffer_itself():
    data = np.random.default_rng(0).uniform(0, 100, N)
    array = pa.array(data)
    [numbers], _ = PLANS["one"].read(pa.record_batch({"age": array}))
    assert numbers.__array_interface__["data"][0] == array.buffers()[1].address


# The ledger


@pytest.mark.parametrize("name", ["one", "two of five"])
def test_a_table_is_charged_once_however_it_is_cut(tmp_path, name):
    plan, table = PLANS[name], pa.table(columns(PLANS[name]))
    with dpcore.Ledger(tmp_path / "ledger.sqlite", epsilon=20.0) as ledger:
        for step in (500, N):
            plan.privatize(
                pa.Table.from_batches(table.to_batches(max_chunksize=step)), noise=noise()
            )
            assert len(ledger.entries) == 1
        plan.collector.encode(
            columns(plan)["age"] if name == "one" else columns(plan), noise=noise()
        )
        assert len(ledger.entries) == 1
        assert ledger.spent[0] == pytest.approx(plan.epsilon, rel=1e-6)
        # Without a pinned stream, every table is a release of its own, with fresh noise.
        parts = pa.Table.from_batches(table.to_batches(max_chunksize=500))
        first, second = (plan.privatize(parts, noise=Noise()) for _ in range(2))
        assert len(ledger.entries) == 3
        assert not first.equals(second)


def test_a_folder_is_charged_by_the_names_of_its_files(tmp_path):
    plan = PLANS["two of five"]
    with dpcore.Ledger(tmp_path / "ledger.sqlite", epsilon=20.0) as ledger:
        for n, files in ((1, ["a", "b"]), (1, ["b", "a"]), (2, ["a"]), (3, None)):
            assert plan.open(noise(), files=files).is_prepaid
            assert len(ledger.entries) == n
        for bad in (5, "ab", [5], [""]):
            with pytest.raises(ParameterError, match="'files'"):
                plan.open(noise(), files=bad)
        assert len(ledger.entries) == 3


def test_the_budget_refuses_before_anything_is_drawn(tmp_path):
    table = pa.table(columns(PLANS["one"]))
    with (
        dpcore.Ledger(tmp_path / "ledger.sqlite", epsilon=1.0),
        pytest.raises(dpcore.BudgetExceededError),
    ):
        PLANS["one"].privatize(table, noise=noise())


# Single columns


def test_columns_of_every_engine():
    mechanism = local.make("hm-j", 2.0, 0, 100)
    data = np.random.default_rng(0).uniform(20, 60, N)
    expected = mechanism.encode(data, noise=noise(), start=3)
    array = pa.array(data)
    for column in (
        array,
        pa.chunked_array([array.slice(0, 100), array.slice(100, 0), array.slice(100)]),
        pl.Series(data),
        pd.Series(data),
        OnlyACapsule(array),
    ):
        codes = arrow.encode(mechanism, column, noise=noise(), start=3)
        assert isinstance(codes, pa.Array)
        assert np.array_equal(codes, expected)
        assert np.array_equal(arrow.decode(mechanism, codes), mechanism.decode(expected))
        assert arrow.estimate(mechanism, codes) == mechanism.estimate(expected)
    assert len(arrow.encode(mechanism, pa.array([], pa.float64()))) == 0
    for bad in (pa.array([1.0, None]), pa.array(["x"]), [1.0], pa.table({"a": [1.0]})):
        with pytest.raises(DPCoreError, match="'data'"):
            arrow.encode(mechanism, bad)


def test_chunks_of_one_column_are_one_release(tmp_path):
    mechanism = local.make("duchi", 1.0)
    data = pa.chunked_array([np.zeros(1000), np.zeros(1000)])
    with dpcore.Ledger(tmp_path / "ledger.sqlite", epsilon=5.0) as ledger:
        codes = arrow.encode(mechanism, data).to_numpy()
    assert len(ledger.entries) == 1
    assert not np.array_equal(codes[:1000], codes[1000:])


# What was released once must come out the same in every later version


def frozen(plan):
    rows = np.arange(3000)
    data = {
        "age": rows % 101.0,
        "fuel": np.array(["gas", "oil", "none"])[rows % 3],
        "speed": rows % 41 - 10,
        "code": rows * 7 % 300,
        "zone": np.array([5, 3, 9])[rows % 3],
    }
    table = pa.table({name: data[name] for name in plan.names})
    result = plan.privatize(table, noise=noise("frozen"), start=1000)
    state = hashlib.sha256()
    for name in plan.names:
        for value in result[name].to_pylist():
            state.update(repr(value).encode())
    return state.hexdigest()[:16]


FROZEN = {
    "one": "e1c079572533bcd2",
    "one, 16 bits": "4b87532b6794445a",
    "one of five": "31ffedbb47c6cf68",
    "two of five": "690a6465ed304b9c",
    "all": "0c6d1fb97d94d661",
    "numbers": "f2266c8d73fe7c7d",
    "category": "6c639c59c3e15428",
    "bits": "f8c0f3c190531dab",
}


@pytest.mark.parametrize("name", FROZEN)
def test_streams_have_not_changed(name):
    assert frozen(PLANS[name]) == FROZEN[name]


def test_all_plans_are_frozen():
    assert set(FROZEN) == set(PLANS)
