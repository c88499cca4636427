"""Nulls, unlisted values and other faults of tables: refused by column, without a value."""

import numpy as np
import pyarrow as pa
import pytest
from tables_support import MIXED, ONE, PLANS, N, columns, noise, same

from dpcore import local
from dpcore.errors import DataError, DPCoreError, ParameterError
from dpcore.tables import TablePlan


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


def test_nulls_among_the_values_of_a_dictionary_are_nulls():
    values = pa.array(["gas", None, "oil"])
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, None], pa.int8()), values)
    plain = pa.table({"fuel": ["gas", None, "oil", None]})
    for on_null, n in (("drop", 2), ("category", 4)):
        plan = TablePlan({"fuel": MIXED["fuel"]}, 1.0, on_null=on_null)
        result = plan.privatize(pa.table({"fuel": column}), noise=noise())
        assert same(result, plan.privatize(plain, noise=noise()))
        assert result.num_rows == n
    with pytest.raises(DataError, match="'fuel' must hold no nulls"):
        PLANS["category"].privatize(pa.table({"fuel": column.slice(0, 2)}), noise=noise())


def test_decimals_are_numbers():
    """DuckDB reads 1.5 as a decimal."""
    plan = TablePlan({"age": MIXED["age"]}, 1.0)
    floats = pa.array([1.5, 42.25])
    decimals = floats.cast(pa.decimal128(9, 2))
    expected = plan.privatize(pa.table({"age": floats}), noise=noise())
    assert same(plan.privatize(pa.table({"age": decimals}), noise=noise()), expected)


def test_columns_of_nothing_but_nulls_have_no_type():
    empty = pa.nulls(3)
    typed = {"age": pa.nulls(3, pa.float64()), "fuel": pa.nulls(3, pa.string())}
    for name in ("age", "fuel"):
        schema = {name: MIXED[name]}
        with pytest.raises(DataError, match=f"'{name}' must hold no nulls"):
            TablePlan(schema, 1.0).privatize(pa.table({name: empty}), noise=noise())
        dropping = TablePlan(schema, 1.0, on_null="drop")
        assert dropping.privatize(pa.table({name: empty}), noise=noise()).num_rows == 0
    plan = TablePlan({"fuel": MIXED["fuel"]}, 1.0, on_null="category")
    expected = plan.privatize(pa.table({"fuel": typed["fuel"]}), noise=noise())
    assert same(plan.privatize(pa.table({"fuel": empty}), noise=noise()), expected)
    coded = pa.DictionaryArray.from_arrays(pa.nulls(3, pa.int8()), pa.nulls(0))
    assert same(plan.privatize(pa.table({"fuel": coded}), noise=noise()), expected)


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
