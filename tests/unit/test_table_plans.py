"""Plans for tables: files and metadata, and the counts and estimates that they make of reports."""

import json
import pickle

import numpy as np
import pyarrow as pa
import pytest
from tables_support import MIXED, ONE, PLANS, N, columns, noise

from dpcore import Noise
from dpcore.errors import DataError, ParameterError, WireFormatError
from dpcore.tables import Counts, TablePlan, report
from dpcore.tables.description import KEY


@pytest.fixture(params=PLANS)
def plan(request):
    return PLANS[request.param]


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


def test_printed_intervals_hold_at_small_counts():
    """95 % of 100 x 60 intervals, less five standard errors; normal intervals do not pass."""
    plan, rng = TablePlan({"code": {"categories": 60}}, 3.0), np.random.default_rng(0)
    printed = normal = 0
    for seed in range(100):
        table = pa.table({"code": rng.integers(0, 60, 300)})
        counts = plan.count(plan.privatize(table, noise=Noise.insecure(seed)))
        printed += sum(line.low < 1 / 60 < line.high for line in report.lines(plan, counts, 0.95))
        low, high = plan.estimate(counts)["code"].interval(0.95)
        normal += int(((low < 1 / 60) & (high > 1 / 60)).sum())
    assert normal < 0.936 * 6000 < printed


def test_a_column_that_no_row_reports_has_no_bounds():
    plan = TablePlan({"fuel": MIXED["fuel"], "zone": MIXED["zone"]}, 1.0, k=1)
    counts = plan.count(plan.privatize(pa.table(columns(plan, 1)), noise=noise()))
    empty = plan.names[counts.reported.index(0)]
    for line in report.lines(plan, counts, 0.95):
        assert line.low <= line.estimate <= line.high
        assert (line.high == np.inf) == (line.column == empty)


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


@pytest.mark.parametrize(
    "change",
    [
        {"codes": [[1]]},
        {"codes": [1, 2]},
        {"codes": [[[1]]] * 2},
        {"codes": [[1.5]] * 2},
        {"codes": [[-1]] * 2},
        {"codes": [[2**70]] * 2},
        {"codes": [["1"]] * 2},
        {"reported": [1]},
        {"reported": 3},
        {"reported": ["1", "2"]},
        {"n_rows": None},
        {"n_rows": 1.5},
        {"private": 1},
        {"more": 1},
    ],
)
def test_texts_that_are_no_counts_are_refused(change):
    facts = json.loads(PLANS["numbers"].count().to_json())
    with pytest.raises(WireFormatError):
        Counts.from_json(json.dumps(facts | change))


def test_counts_of_other_sizes_are_refused():
    plan = PLANS["numbers"]
    facts = json.loads(plan.count(plan.privatize(pa.table(columns(plan)))).to_json())
    other = Counts.from_json(json.dumps(facts | {"codes": [[1], [2]]}))
    with pytest.raises(ParameterError):
        plan.estimate(other)
    with pytest.raises(ParameterError):
        plan.count() + other
    assert other != plan.count()


def test_a_column_of_reports_twice_is_refused():
    result = PLANS["one"].privatize(pa.table(columns(PLANS["one"])), noise=noise())
    twice = result.append_column(result.schema.field(0), result["age"])
    with pytest.raises(WireFormatError, match="columns"):
        PLANS["one"].count(twice)


# Plans


def test_a_mechanism_that_is_none_is_refused_by_its_parameter():
    for schema in (ONE, MIXED):
        with pytest.raises(ParameterError, match="'mechanism'"):
            TablePlan(schema, 1.0, "lap")


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
        lambda facts: facts | {"plan": 5},
        lambda facts: facts | {"values": "yes"},
        lambda facts: facts | {"digest": None},
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
        "epsilon = 1\n[columns.a]\nlower = 0\nupper = 1\n[options]\nepsilon = 9",
        "epsilon = 1\n[columns.a]\nlower = 0\nupper = 1\n[options]\nk = 1",
        "epsilon = 1\n[columns.a]\nlower = 0\nupper = 1\n[options]\non_null = 'drop'",
        "epsilon = 1\n[columns.a]\nlower = 0\nupper = 1\n[options]\nmechanism = 'duchi'",
        "epsilon = 1\n[columns.a]\nlower = 0\nupper = 1\n[options.schema.a]\ncategories = 2",
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
