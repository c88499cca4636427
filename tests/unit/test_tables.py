"""Plans for tables: the bytes of dpcore.local from every engine, in any batches."""

import hashlib
import json
import pickle

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import dpcore
from dpcore import Noise, local
from dpcore.errors import DataError, DPCoreError, ParameterError, WireFormatError
from dpcore.interop import arrow
from dpcore.tables import Counts, TablePlan, table_stream
from dpcore.tables.description import KEY

N = 20_000
KEY_BYTES = bytes(range(32))
ONE = {"age": {"lower": 0, "upper": 100}}
MIXED = {
    "age": {"lower": 0, "upper": 100},
    "fuel": {"categories": ["gas", "oil", "none"]},
    "speed": {"lower": -10, "upper": 30},
    "code": {"categories": 300},
    "zone": {"categories": [5, 3, 9]},
}
PLANS = {
    "one": TablePlan(ONE, 2.0),
    "one, 16 bits": TablePlan(ONE, 2.0, n_levels=1000),
    "one of five": TablePlan(MIXED, 2.0),
    "two of five": TablePlan(MIXED, 5.0),
    "all": TablePlan(MIXED, 5.0, k=5),
    "numbers": TablePlan({"age": MIXED["age"], "speed": MIXED["speed"]}, 6.0, "duchi"),
    "category": TablePlan({"fuel": MIXED["fuel"]}, 1.0),
    "bits": TablePlan({"code": MIXED["code"]}, 1.0),
}


@pytest.fixture(params=PLANS)
def plan(request):
    return PLANS[request.param]


def noise(name="survey"):
    return table_stream(Noise.from_key(KEY_BYTES), name)


def columns(plan, n=N, seed=0):
    rng = np.random.default_rng(seed)
    made = {
        "age": rng.uniform(20, 60, n),
        "fuel": rng.choice(["gas", "oil", "none"], n, p=[0.5, 0.3, 0.2]),
        "speed": rng.integers(-10, 31, n),
        "code": rng.integers(0, 300, n),
        "zone": rng.choice([3, 5, 9], n, p=[0.7, 0.2, 0.1]),
    }
    return {name: made[name] for name in plan.names}


def same(a, b):
    return a.combine_chunks().equals(b.combine_chunks(), check_metadata=True)


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


# Nulls and other faults


def with_null(name, value):
    data = {"age": [1.0, 2.0, 3.0], "fuel": ["gas", "oil", "oil"]}
    data[name][1] = value
    return pa.table({key: pa.array(column) for key, column in data.items()})


NULLS = [with_null("age", None), with_null("age", float("nan")), with_null("fuel", None)]


@pytest.mark.parametrize(("table", "name"), list(zip(NULLS, ["age", "age", "fuel"], strict=True)))
def test_nulls_are_refused_by_column(table, name):
    for k in (1, 2):
        plan = TablePlan({"age": MIXED["age"], "fuel": MIXED["fuel"]}, 4.0, k=k)
        with pytest.raises(DataError, match=f"'{name}'"):
            plan.privatize(table, noise=noise())


def test_rows_with_nulls_can_be_dropped():
    schema = {"age": MIXED["age"], "fuel": MIXED["fuel"]}
    strict, plan = TablePlan(schema, 4.0), TablePlan(schema, 4.0, on_null="drop")
    full = strict.privatize(
        pa.table({"age": [1.0, 2, 3], "fuel": ["gas"] + ["oil"] * 2}), noise=noise()
    )
    for table in NULLS:
        result = plan.privatize(table, noise=noise())
        assert result.equals(full.take([0, 2]))
    # A row keeps its address whatever is dropped before it.
    rows = NULLS[0].append_column("row", pa.array([7, 8, 9]))
    by_index = plan.privatize(rows, noise=noise(), rows="row")
    assert same(by_index, plan.privatize(NULLS[0], noise=noise(), start=7))


def test_nulls_can_be_a_category():
    schema = {"fuel": MIXED["fuel"], "zone": {"categories": [5, 3]}}
    plan = TablePlan(schema, 6.0, k=2, on_null="category")
    fuel, zone = ["gas", None, "oil"] * 3000, [5, 3, None] * 3000
    table = pa.table({"fuel": pa.array(fuel), "zone": pa.array(zone)})
    named = {
        "fuel": ["null" if value is None else value for value in fuel],
        "zone": ["null" if value is None else str(value) for value in zone],
    }
    reports = local.Tuple(plan.attributes, 6.0, k=2).encode(named, noise=noise())
    result = plan.privatize(table, noise=noise())
    assert np.array_equal(result["zone"], reports.code[:, 1])
    assert plan.attributes[0].labels == ("gas", "oil", "none", "null")
    low, high = plan.estimate(result)["fuel"].interval(0.999999)
    assert low[3] < 1 / 3 < high[3]
    numeric = TablePlan(ONE, 1.0, on_null="category")
    with pytest.raises(DataError, match="'age'"):
        numeric.privatize(pa.table({"age": pa.array([1.0, None])}), noise=noise())


SECRET = 73.25


@pytest.mark.parametrize(
    ("table", "name"),
    [
        ({"age": [SECRET, float("inf")]}, "age"),
        ({"age": [SECRET], "other": [SECRET]}, "other"),
        ({"other": [SECRET]}, "other"),
        ({}, "age"),
        ({"age": ["73.25"]}, "age"),
    ],
)
def test_faults_name_the_column_and_no_value(table, name):
    with pytest.raises(DPCoreError) as caught:
        PLANS["one"].privatize(pa.table(table), noise=noise())
    assert f"'{name}'" in str(caught.value)
    assert "73.25" not in str(caught.value)


@pytest.mark.parametrize("value", ["diesel", 7, None, 2**63])
def test_unlisted_categories_are_refused_without_the_value(value):
    for plan in (PLANS["category"], TablePlan({"fuel": {"categories": [1, 2]}}, 1.0)):
        kind = pa.uint64() if value == 2**63 else None
        with pytest.raises(DPCoreError, match="'fuel'") as caught:
            plan.privatize(pa.table({"fuel": pa.array([value], kind)}), noise=noise())
        assert str(value) not in str(caught.value)


def test_extra_columns_can_be_left_out():
    data = columns(PLANS["one"])
    table = pa.table({**data, "name": ["x"] * N})
    result = PLANS["one"].privatize(table, noise=noise(), extra="drop")
    assert same(result, PLANS["one"].privatize(pa.table(data), noise=noise()))


def test_a_column_twice_is_refused():
    table = pa.Table.from_arrays([pa.array([1.0]), pa.array([1.0])], ["age", "age"])
    with pytest.raises(ParameterError, match="twice"):
        PLANS["one"].privatize(table, noise=noise())


def test_what_is_no_table_is_refused():
    for data in ([1.0], {"age": [1.0]}, np.ones(3)):
        with pytest.raises(ParameterError, match="'data'"):
            PLANS["one"].privatize(data, noise=noise())


# Counts and estimates


def test_estimates_are_those_of_the_tuple(plan):
    data = columns(plan)
    result = plan.privatize(pa.table(data), noise=noise())
    found = TablePlan.from_metadata(result).estimate(result)
    given = data if len(plan.names) > 1 or plan.names != ("age",) else data["age"]
    direct = plan.collector.estimate(plan.collector.encode(given, noise=noise()))
    for name in plan.names:
        own = direct if plan.names == ("age",) else direct[name]
        if "lower" in MIXED[name]:
            assert found[name] == own
            low, high = found[name].interval(0.999999)
            assert low < data[name].mean() < high
        else:
            assert np.array_equal(found[name].frequencies, own.frequencies)


def test_counts_add_up_in_any_order(plan):
    result = plan.privatize(pa.table(columns(plan)), noise=noise())
    whole = plan.count(result)
    parts = [plan.count(batch) for batch in result.to_batches(max_chunksize=3000)]
    moved = [pickle.loads(pickle.dumps(part)) for part in parts[::-1]]
    assert sum(moved) == whole
    assert whole.n_rows == N
    assert sum(parts, plan.count()) == whole
    assert plan.estimate(whole).count == N
    with pytest.raises(ParameterError):
        whole + TablePlan(ONE, 1.5).count()
    with pytest.raises(ParameterError):
        TablePlan(ONE, 1.5).estimate(whole)
    with pytest.raises(ParameterError, match="empty"):
        plan.estimate(plan.count())
    assert isinstance(whole, Counts)


def test_values_instead_of_codes(plan):
    table = pa.table(columns(plan))
    codes, values = (plan.privatize(table, noise=noise(), values=v) for v in (False, True))
    # Two codes may stand for one value.
    assert plan.count(values).reported == plan.count(codes).reported
    for name in plan.names:
        found, expected = plan.estimate(values)[name], plan.estimate(codes)[name]
        if "lower" in MIXED[name]:
            assert found.mean == pytest.approx(expected.mean, rel=1e-12)
            assert found.standard_error == pytest.approx(expected.standard_error, rel=1e-12)
        else:
            assert np.array_equal(found.frequencies, expected.frequencies)
    first = plan.columns[0]
    if first.name == "age":
        known = codes["age"].drop_null().to_numpy()
        assert np.array_equal(values["age"].drop_null().to_numpy(), first.outputs[known])
    if "fuel" in plan.names:
        assert set(values["fuel"].drop_null().to_pylist()) == {"gas", "oil", "none"}
    lost = values.replace_schema_metadata()
    assert plan.count(lost, values=True) == plan.count(values)


def replaced(table, name, change):
    changed = pa.array([change(v) for v in table[name].to_pylist()], table[name].type)
    field = table.schema.field(name).with_nullable(True)
    return table.set_column(table.schema.get_field_index(name), field, changed)


def test_foreign_reports_are_refused():
    plan = PLANS["two of five"]
    result = plan.privatize(pa.table(columns(plan, 500)), noise=noise())
    with pytest.raises(DataError, match="'fuel'"):
        plan.count(replaced(result, "fuel", lambda v: v if v is None else 3))
    with pytest.raises(DataError, match="every row"):
        plan.count(replaced(result, "fuel", lambda v: None))
    with pytest.raises(DataError):
        plan.count(replaced(result, "code", lambda v: v if v is None else bytes([255] * 38)))
    with pytest.raises(WireFormatError, match="columns"):
        plan.count(result.drop_columns(["fuel"]))
    with pytest.raises(WireFormatError, match="another plan"):
        PLANS["one of five"].count(result)
    wrong = plan.privatize(pa.table(columns(plan, 500)), noise=noise(), values=True)
    with pytest.raises(DataError, match="'age'"):
        plan.count(replaced(wrong, "age", lambda v: v if v is None else v + 1))


# Plans


def test_a_plan_survives_pickle_and_metadata(plan):
    assert pickle.loads(pickle.dumps(plan)) == plan
    assert TablePlan.from_metadata(plan.arrow_schema()) == plan
    assert TablePlan.from_metadata(plan.metadata()).digest == plan.digest
    assert len({other.digest for other in PLANS.values()}) == len(PLANS)


def test_metadata_tell_everything_public_and_nothing_else():
    plan = PLANS["two of five"]
    result = plan.privatize(pa.table(columns(plan)), noise=noise())
    facts = json.loads(result.schema.metadata[KEY])
    assert set(facts) == {"format", "digest", "values", "private", "plan"}
    assert facts["plan"]["columns"] == MIXED
    assert facts["plan"]["epsilon"] == 5.0
    insecure = plan.privatize(pa.table(columns(plan)), noise=Noise.insecure(1))
    assert json.loads(insecure.schema.metadata[KEY])["private"] is False
    assert plan.count(insecure).private is False
    assert plan.count(result).private is True


@pytest.mark.parametrize(
    "change",
    [
        lambda facts: {},
        lambda facts: [],
        lambda facts: facts | {"format": 2},
        lambda facts: facts | {"digest": "0" * 64},
        lambda facts: facts | {"plan": facts["plan"] | {"epsilon": 4.0}},
    ],
)
def test_damaged_metadata_are_refused(change):
    text = json.dumps(change(json.loads(PLANS["one"].metadata())))
    with pytest.raises(WireFormatError):
        TablePlan.from_metadata(text)
    with pytest.raises(WireFormatError):
        TablePlan.from_metadata(pa.schema([]))
    with pytest.raises(WireFormatError):
        TablePlan.from_metadata("{")


TOML = """
epsilon = 5.0
on_null = "drop"

[columns.age]
lower = 0
upper = 100

[columns.fuel]
categories = ["gas", "oil", "none"]

[options]
n_levels = 32
"""


def test_plans_come_from_files(tmp_path):
    (tmp_path / "schema.toml").write_text(TOML)
    schema = {"age": MIXED["age"], "fuel": MIXED["fuel"]}
    plan = TablePlan.from_toml(tmp_path / "schema.toml")
    assert plan == TablePlan(schema, 5.0, on_null="drop", n_levels=32)
    changed = TablePlan.from_toml(tmp_path / "schema.toml", epsilon=1.0, on_null="error", k=2)
    assert changed == TablePlan(schema, 1.0, k=2, n_levels=32)
    (tmp_path / "schema.json").write_text(json.dumps(plan.description))
    assert TablePlan.from_toml(tmp_path / "schema.json") == plan
    (tmp_path / "facts.json").write_text(plan.metadata())
    assert TablePlan.from_toml(tmp_path / "facts.json") == plan


@pytest.mark.parametrize(
    "text",
    [
        "epsilon = ",
        "epsilon = 1.0",
        "colour = 1",
        "epsilon = 1\n[columns.a]\nlower = 0",
        "epsilon = 1\n[columns.a]\nlower = 0\nupper = -1",
        "epsilon = 1\n[columns.a]\nlower = 0\nupper = 1\ncategories = [1, 2]",
        "epsilon = 1\n[columns.a]\ncategories = 1",
        "epsilon = 1\n[columns.a]\ncategories = 1.5",
        "epsilon = 1\ncolumns = 3",
        "[columns.a]\nlower = 0\nupper = 1",
        "epsilon = 1\nmechanism = 'best'\n[columns.a]\nlower = 0\nupper = 1",
        "epsilon = 1\n[columns.a]\nlower = 0\nupper = 1\n[options]\ncolour = 1",
        "epsilon = 1\non_null = 'keep'\n[columns.a]\nlower = 0\nupper = 1",
        "epsilon = 1\nk = 2\n[columns.a]\nlower = 0\nupper = 1",
    ],
)
def test_bad_schema_files_are_refused(tmp_path, text):
    (tmp_path / "schema.toml").write_text(text)
    with pytest.raises(ParameterError):
        TablePlan.from_toml(tmp_path / "schema.toml")
    with pytest.raises(ParameterError):
        TablePlan.from_toml(tmp_path / "none.toml")


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
