"""Tables in files: which cells of CSV are nulls, and how much is held at a time."""

import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from table_commands_support import N, noise, privatize, read, run, write, write_schemas

from dpcore.tables import TablePlan
from dpcore.tables.files import Source, Text, _Rewound


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_schemas()
    return tmp_path


def cells(plan, text):
    Path("in.csv").write_text(text)
    with Source("in.csv", "csv", Text.of_data(plan)) as source:
        return pa.Table.from_batches(list(source)).to_pydict()


# Nulls


def test_a_category_of_one_column_is_a_null_in_the_others(folder):
    schema = {
        "x": {"lower": 0, "upper": 9},
        "a": {"categories": ["NA", "b"]},
        "c": {"categories": ["d", ""]},
        "n": {"categories": 3},
    }
    plan = TablePlan(schema, 4.0)
    found = cells(plan, "x,a,c,n\nNA,NA,NA,NA\n1,null,,2\n2,b,d,1\n")
    assert found["x"] == [None, 1.0, 2.0]
    assert found["a"] == ["NA", None, "b"]
    assert found["c"] == [None, "", "d"]
    assert found["n"] == [None, 2, 1]


@pytest.mark.parametrize("end", ["", "\n", "\n\n", "\r\n\r\n\r\n"])
def test_empty_lines_at_the_end_are_no_rows(folder, end):
    plan = TablePlan({"x": {"lower": 0, "upper": 9}}, 1.0)
    assert cells(plan, "x\n1\n\n2" + end)["x"] == [1.0, None, 2.0]
    assert cells(plan, 'x\n1\n""' + end)["x"] == [1.0, None]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
@pytest.mark.parametrize("cut", [0, 1, 3, 5, 9])
def test_only_the_end_of_a_pipe_is_trimmed(size, cut):
    text = b"x\n1\n\n\n\r\n2\n\n\r\n\n"
    for trim, expected in ((True, text.rstrip() + b"\n"), (False, text)):
        stream = _Rewound(text[:cut], io.BytesIO(text[cut:]), trim)
        found = b""
        while part := stream.read(size):
            assert len(part) <= size
            found += part
        assert found == expected


def test_categories_that_read_like_nulls_survive_in_results(folder, capsys):
    labels = ["", "NA", "null"]
    Path("labels.toml").write_text(
        "epsilon = 6.0\nk = 1\n[columns.a]\ncategories = ['', 'NA', 'null']\n"
        "[columns.x]\nlower = 0\nupper = 1\n"
    )
    data = pa.table({"a": np.resize(labels, N), "x": np.zeros(N)})
    write(data, "in.parquet")
    estimates = []
    for output in ("out.csv", "out.parquet"):
        privatize("in.parquet", output, "--values", schema="labels.toml")
        capsys.readouterr()
        run("estimate", output, "--json")
        estimates.append(capsys.readouterr().out)
    assert estimates[0] == estimates[1]


# Memory


def test_batches_are_short_where_reports_are_long(folder):
    Path("wide.toml").write_text("epsilon = 1.0\n[columns.code]\ncategories = 20000\n")
    data = pa.table({"code": np.arange(20_000)})
    write(data, "in.parquet")
    plan = TablePlan.from_toml("wide.toml")
    with Source("in.parquet", "parquet", row_bytes=plan.row_bytes) as source:
        assert max(batch.num_rows for batch in source) * 2500 <= 1 << 24
    privatize("in.parquet", "out.parquet", schema="wide.toml")
    with Source("out.parquet", "parquet") as source:
        assert max(batch.num_rows for batch in source) * 2500 <= 1 << 24
    expected = plan.privatize(data, noise=noise("in.parquet"))
    assert read("out.parquet").combine_chunks().equals(expected.combine_chunks())
