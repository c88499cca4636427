"""Columns of Arrow: what is refused costs nothing, and no message shows a value."""

import math
from decimal import Decimal

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import dpcore
from dpcore import Noise, local
from dpcore.errors import DataError, InsecureNoiseError
from dpcore.interop import arrow
from dpcore.tables import TablePlan

MECHANISM = local.make("hm-j", 2.0, 0, 100)


def noise():
    return Noise.from_key(bytes(range(32))).stream("arrow")


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_numbers_that_are_not_finite_cost_nothing(tmp_path, bad, dtype):
    values = np.full(200_000, 40.0, dtype)
    values[-1] = bad
    chunks = pa.chunked_array([values[:1000], values[1000:]])
    with dpcore.Ledger(tmp_path / "ledger.sqlite", epsilon=10.0) as ledger:
        for source in (None, noise()):
            with pytest.raises(DataError, match="finite"):
                MECHANISM.encode(values, noise=source)
            for column in (pa.array(values), chunks):
                with pytest.raises(DataError, match="finite"):
                    arrow.encode(MECHANISM, column, noise=source)
        assert not ledger.entries
        arrow.encode(MECHANISM, chunks.slice(0, 199_999))
    assert len(ledger.entries) == 1


@pytest.mark.parametrize("kind", [pa.decimal128(5, 2), pa.decimal256(60, 2)])
def test_decimals_are_numbers(kind):
    values = [Decimal("1.50"), Decimal("99.25")]
    made = arrow.encode(MECHANISM, pa.array(values, kind), noise=noise())
    assert np.array_equal(made.to_numpy(), MECHANISM.encode([1.5, 99.25], noise=noise()))
    with pytest.raises(DataError, match="nulls"):
        arrow.encode(MECHANISM, pa.array([*values, None], kind), noise=noise())
    relation = duckdb.sql("select 1.5 as x")
    assert len(arrow.encode(MECHANISM, relation.arrow().read_all()["x"])) == 1


@pytest.mark.parametrize("n_chunks", [1, 2])
def test_insecure_noise_is_refused_where_its_mark_would_be_lost(n_chunks):
    column = pa.chunked_array([[40.0, 50.0]] * n_chunks)
    for source in (Noise.insecure(1), Noise.insecure(1).stream("arrow")):
        with pytest.raises(InsecureNoiseError):
            arrow.encode(MECHANISM, column, noise=source)


# An engine that fails when it is asked for the stream, and one that fails in the middle of it.
FAILING = {
    "at once": "select cast(s as double) as x from (values ('1.5'), ('SECRET-VALUE')) t(s)",
    "later": (
        "select case when i = 900000 then cast('SECRET-VALUE' || i as double) else 1.0 end as x "
        "from range(1000000) t(i)"
    ),
}


@pytest.mark.parametrize("query", FAILING.values(), ids=FAILING)
def test_an_engine_that_fails_shows_no_value(query):
    plan = TablePlan({"x": {"lower": 0, "upper": 100}}, 2.0)
    for read in (
        lambda data: list(arrow.batches(data)),
        lambda data: arrow.encode(MECHANISM, data),
        plan.privatize,
    ):
        with pytest.raises(DataError, match="'data'") as caught:
            read(duckdb.sql(query))
        assert "SECRET" not in str(caught.value)


def test_faults_of_dpcore_pass_through_a_stream():
    def batches():
        yield pa.record_batch({"x": [1.0]})
        raise DataError("The column 'x' must hold no nulls.")

    stream = pa.RecordBatchReader.from_batches(pa.schema({"x": pa.float64()}), batches())
    with pytest.raises(DataError, match="nulls"):
        list(arrow.batches(stream))
