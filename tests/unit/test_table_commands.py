"""dpcore privatize and dpcore estimate on real files, pipes and terminals, and what they refuse."""

import io
import json
import os
import pty
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.ipc
import pytest
from table_commands_support import (
    COMMAND,
    N,
    noise,
    privatize,
    read,
    run,
    table,
    write,
    write_big,
    write_schemas,
)

import dpcore
from dpcore import cli, local
from dpcore.tables import TablePlan


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_schemas()
    return tmp_path


# The same bytes


def test_a_file_is_as_numpy(folder):
    data = table().select(["x"])
    write(data, "in.parquet")
    privatize("in.parquet", "out.parquet", "--epsilon", 2)
    codes = local.make("hm-j", 2.0, 0, 100).encode(data["x"].to_numpy(), noise=noise("in.parquet"))
    assert np.array_equal(read("out.parquet")["x"].to_numpy(), codes)


@pytest.mark.parametrize("output", ["parquet", "csv", "arrow"])
@pytest.mark.parametrize("source", ["parquet", "csv", "arrow"])
def test_every_format_gives_the_same_reports(folder, capsys, source, output):
    write(table(), f"in.{source}")
    privatize(f"in.{source}", f"out.{output}", "--stream", "survey", schema="mixed.toml")
    plan = TablePlan.from_toml("mixed.toml")
    expected = plan.privatize(table(), noise=noise("survey", f"in.{source}.dpcore-key"))
    if output != "csv":
        assert read(f"out.{output}").combine_chunks().equals(expected.combine_chunks())
    capsys.readouterr()
    run("estimate", f"out.{output}", "--json")
    found = json.loads(capsys.readouterr().out)
    result = plan.estimate(expected)
    assert found["rows"] == N
    assert found["estimates"][0]["estimate"] == result["x"].mean
    shares = [line["estimate"] for line in found["estimates"] if line["column"] == "code"]
    assert shares == result["code"].frequencies.tolist()


def test_values_can_be_written_and_estimated(folder, capsys):
    write(table(), "in.parquet")
    means = []
    for name, more in (("codes", []), ("values", ["--values"])):
        for kind in ("parquet", "csv"):
            output = f"{name}.{kind}"
            privatize("in.parquet", output, *more, schema="mixed.toml")
            capsys.readouterr()
            run("estimate", output, "--json")
            means.append(json.loads(capsys.readouterr().out)["estimates"][0]["estimate"])
    assert means == pytest.approx([means[0]] * 4)
    assert read("values.parquet")["x"].type == pa.float64()
    assert set(read("values.parquet")["fuel"].to_pylist()) == {"gas", "oil", "NA", None}


def test_a_folder_is_one_data_set(folder, capsys):
    os.makedirs("in/day")
    for i, name in enumerate(["b.parquet", "a.parquet", "day/c.parquet"]):
        write(table(seed=i), f"in/{name}")
    for name in ("_SUCCESS", "a.parquet.dpcore-key", "a.parquet.dpcore-key.streams"):
        Path("in", name).touch()
    options = ["--ledger", "ledger.sqlite", "--budget", 30]
    privatize("in", "out", *options, schema="mixed.toml")
    plan = TablePlan.from_toml("mixed.toml")
    expected = plan.privatize(table(seed=2), noise=noise("in", "in.dpcore-key", "day/c.parquet"))
    assert read("out/day/c.parquet").combine_chunks().equals(expected.combine_chunks())
    assert len(dpcore.Ledger("ledger.sqlite").entries) == 1
    capsys.readouterr()
    run("estimate", "out", "--json")
    found = json.loads(capsys.readouterr().out)
    assert found["rows"] == 3 * N
    first = found["estimates"][0]
    mean = np.mean([table(seed=i)["x"].to_numpy().mean() for i in range(3)])
    assert first["low"] - 1 < mean < first["high"] + 1
    privatize("in", "again", *options, "--repeated", "--stream", "x", schema="mixed.toml")
    assert len(dpcore.Ledger("ledger.sqlite").entries) == 4
    Path("in/notes.txt").touch()
    privatize("in", "more", schema="mixed.toml", code=1)
    assert "'notes.txt'" in capsys.readouterr().err


# Pipes


def piped(arguments, data=b"", **options):
    return subprocess.run(
        [*COMMAND, *map(str, arguments)], input=data, capture_output=True, timeout=900, check=True,
        **options,
    )  # fmt: skip


def test_pipes_of_csv_and_arrow(folder):
    data, sink = table(), io.BytesIO()
    pa.csv.write_csv(data, sink)
    command = ["privatize", "-", "--schema", "mixed.toml", "-o", "-", "--format"]
    made = piped([*command, "csv", "--output-format", "arrow"], sink.getvalue())
    reports = pa.ipc.open_stream(made.stdout).read_all()
    assert reports.num_rows == N
    assert not list(folder.glob("*.dpcore-key")), "a key that is used once was kept"
    found = piped(["estimate", "-", "--format", "arrow", "--json"], made.stdout)
    plan = TablePlan.from_toml("mixed.toml")
    estimates = json.loads(found.stdout)["estimates"]
    assert estimates[0]["estimate"] == plan.estimate(reports)["x"].mean
    again = piped([*command, "csv", "--output-format", "arrow"], sink.getvalue())
    assert pa.ipc.open_stream(again.stdout).read_all() != reports


def test_a_pipe_with_a_key_is_recorded(folder):
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table().schema) as writer:
        writer.write_table(table())
    command = ["privatize", "-", "--schema", "mixed.toml", "-o", "-", "--format", "arrow"]
    command += ["--key", "key", "--stream", "survey"]
    first, second = (piped(command, sink.getvalue()).stdout for _ in range(2))
    assert first == second
    expected = TablePlan.from_toml("mixed.toml").privatize(table(), noise=noise("survey", "key"))
    found = pa.ipc.open_stream(first).read_all()
    assert found.combine_chunks().equals(expected.combine_chunks())
    other = io.BytesIO()
    with pa.ipc.new_stream(other, table().schema) as writer:
        writer.write_table(table(seed=1))
    with pytest.raises(subprocess.CalledProcessError) as caught:
        piped(command, other.getvalue())
    assert caught.value.stdout == b""
    assert b"--stream" in caught.value.stderr


def test_faults_of_pipes(folder, capfd):
    privatize("-", "-", "--epsilon", 1, code=1)
    assert "format" in capfd.readouterr().err
    privatize("-", "-", "--format", "parquet", "--epsilon", 1, code=1)
    assert "Parquet" in capfd.readouterr().err
    privatize("-", "-", "--format", "csv", "--epsilon", 1, "--key", "key", code=1)
    assert "--stream" in capfd.readouterr().err
    os.mkdir("in")
    privatize("in", "-", "--epsilon", 1, code=1)
    assert "folder" in capfd.readouterr().err


# Refusals


@pytest.mark.parametrize("kind", ["parquet", "csv"])
@pytest.mark.parametrize(
    ("columns", "name"),
    [
        ({"x": [None, 73.25]}, "x"),
        ({"x": [73.25, float("nan")]}, "x"),
        ({"x": [73.25, float("inf")]}, "x"),
        ({"x": ["73.25", "b73.25"]}, "x"),
        ({"x": [73.25], "y": [73.25]}, "y"),
        ({"x": [73.25], "fuel": ["gas"], "code": [73]}, "code"),
        ({"x": [73.25], "fuel": ["73.25"], "code": [3]}, "fuel"),
        ({"x": [73.25], "fuel": ["gas"]}, "code"),
    ],
)
def test_bad_tables_are_refused_by_column_without_values(folder, capfd, kind, columns, name):
    write(pa.table({key: pa.array(values) for key, values in columns.items()}), f"in.{kind}")
    schema = "mixed.toml" if "fuel" in columns else "one.toml"
    privatize(f"in.{kind}", "out.parquet", "--epsilon", 2, schema=schema, code=1)
    printed = "".join(capfd.readouterr())
    assert f"'{name}'" in printed
    assert "73" not in printed
    assert not list(folder.glob("*out.parquet*"))


def test_missing_columns_and_headers(folder, capsys):
    write(pa.table({"y": [73.25]}), "in.parquet")
    privatize("in.parquet", "out.parquet", "--epsilon", 2, code=1)
    assert "'y'" in capsys.readouterr().err
    privatize("in.parquet", "out.parquet", "--epsilon", 2, "--extra-columns", "drop", code=1)
    assert "'x' is missing" in capsys.readouterr().err
    # Without a header, the first line is data.
    Path("in.csv").write_text("73.25\n12.5\n")
    for more in ([], ["--extra-columns", "drop"]):
        privatize("in.csv", "out.parquet", "--epsilon", 2, *more, code=1)
        printed = capsys.readouterr().err
        assert "header" in printed
        assert "73" not in printed


def test_nulls_can_be_dropped_or_counted(folder, capsys):
    data = pa.table({"x": [1.0, 2, 3, 4], "fuel": ["gas", None, "oil", "NA"], "code": [1, 2, 3, 4]})
    write(data, "in.csv")
    privatize("in.csv", "out.parquet", schema="mixed.toml", code=1)
    assert "'fuel'" in capsys.readouterr().err
    privatize("in.csv", "drop.parquet", "--on-null", "drop", schema="mixed.toml")
    assert read("drop.parquet").num_rows == 3
    privatize("in.csv", "category.parquet", "--on-null", "category", schema="mixed.toml")
    plan = TablePlan.from_metadata(read("category.parquet"))
    assert plan.attributes[1].labels == ("gas", "oil", "NA", "null")
    assert read("category.parquet").num_rows == 4


def test_extra_columns_can_be_left_out(folder):
    data = table().append_column("name", pa.array(["secret"] * N))
    for kind in ("parquet", "csv", "arrow"):
        write(data, f"in.{kind}")
        privatize(f"in.{kind}", f"{kind}.parquet", "--extra-columns", "drop", schema="mixed.toml")
        assert read(f"{kind}.parquet").schema.names == ["x", "fuel", "code"]


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "csv"])
def test_files_that_are_no_tables(folder, capsys, suffix):
    for content in (b"", b"ARROW1 or PAR1 73.25", b"\xff\xfe\x00" * 50):
        Path(f"in.{suffix}").write_bytes(content)
        privatize(f"in.{suffix}", "out.parquet", "--epsilon", 1, code=1)
        printed = capsys.readouterr().err
        assert printed.startswith("dpcore: ")
        assert "73.25" not in printed
    privatize("nothing.parquet", "out.parquet", "--epsilon", 1, code=1)
    privatize("one.toml", "out.parquet", "--epsilon", 1, code=1)


def test_outputs_are_not_written_over_by_accident(folder, capsys):
    write(table().select(["x"]), "in.parquet")
    for output in ("in.parquet", "./in.parquet"):
        privatize("in.parquet", output, "--epsilon", 1, code=1)
    Path("out.parquet").write_text("precious")
    privatize("in.parquet", "out.parquet", "--epsilon", 1, code=1)
    assert Path("out.parquet").read_text() == "precious"
    assert "--force" in capsys.readouterr().err
    privatize("in.parquet", "out.parquet", "--epsilon", 1, "--force")
    assert read("out.parquet").num_rows == N
    os.mkdir("folder")
    write(table(), "folder/a.parquet")
    privatize("folder", "folder/out", schema="mixed.toml", code=1)
    assert "inside" in capsys.readouterr().err
    privatize("in.parquet", "nowhere/out.parquet", "--epsilon", 1, code=1)
    assert "cannot be written" in capsys.readouterr().err


def test_a_full_disk_leaves_nothing_behind(folder):
    write(table(100_000).select(["x"]), "in.parquet")
    command = [*COMMAND, "privatize", "in.parquet", "--schema", "one.toml", "--epsilon", "2"]
    done = subprocess.run(
        [*command, "-o", "out.parquet"],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000)),
        capture_output=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 1
    assert b"cannot be written" in done.stderr
    assert b"Traceback" not in done.stderr
    assert not list(folder.glob("*out.parquet*"))


def test_a_reader_that_goes_away_is_no_crash(folder):
    write_big("in.parquet", 3_000_000)
    command = [*COMMAND, "privatize", "in.parquet", "--schema", "one.toml", "--epsilon", "2"]
    pipe = subprocess.PIPE
    with subprocess.Popen([*command, "-o", "-"], stdout=pipe, stderr=pipe) as process:
        process.stdout.close()
        printed = process.stderr.read()
        assert process.wait(timeout=900) == 1
    assert b"Traceback" not in printed


# Estimates


def test_an_estimate_prints_a_table_with_intervals(folder, capsys):
    data = table(200_000)
    Path("in.parquet.dpcore-key").write_bytes(bytes(range(32)))
    Path("in.parquet.dpcore-key").chmod(0o600)
    write(data, "in.parquet")
    privatize("in.parquet", "out.parquet", schema="mixed.toml")
    capsys.readouterr()
    run("estimate", "out.parquet", "--confidence", 0.999999, "--plot", "plot.png")
    head, columns, *lines = capsys.readouterr().out.splitlines()
    assert head.startswith("200000 rows, epsilon 6 each, 2 of 3 columns")
    assert columns.split() == ["column", "estimate", "from", "to"]
    truth = {"x": data["x"].to_numpy().mean()}
    for name, labels in (("fuel", ["gas", "oil", "NA"]), ("code", range(30))):
        given = data[name].to_numpy()
        truth |= {f"{name} = {label}": (given == label).mean() for label in labels}
    assert len(lines) == len(truth)
    for line in lines:
        name, _, low, high = line.rsplit(None, 3)
        assert float(low) < truth[name.strip()] < float(high)
    assert Path("plot.png").read_bytes().startswith(b"\x89PNG")
    run("estimate", "out.parquet", "--plot", "nowhere/plot.png", code=1)


def test_a_result_that_lost_its_metadata_needs_the_schema(folder, capsys):
    write(table(), "in.parquet")
    privatize("in.parquet", "out.csv", schema="mixed.toml")
    run("estimate", "out.csv")
    expected = capsys.readouterr().out
    Path("out.csv.dpcore.json").rename("plan.json")
    run("estimate", "out.csv", code=1)
    assert "schema" in capsys.readouterr().err
    for schema in ("plan.json", "mixed.toml"):
        run("estimate", "out.csv", "--schema", schema)
        assert capsys.readouterr().out == expected
    run("estimate", "in.parquet", code=1)
    assert "metadata" in capsys.readouterr().err
    privatize("in.parquet", "out.parquet", schema="mixed.toml")
    run("estimate", "out.parquet", "--schema", "mixed.toml", "--epsilon", 5, code=1)
    assert "another schema" in capsys.readouterr().err


def test_empty_tables(folder, capsys):
    for kind in ("parquet", "arrow", "csv"):
        write(table(0), f"in.{kind}")
        privatize(f"in.{kind}", f"{kind}.parquet", schema="mixed.toml")
        assert read(f"{kind}.parquet").num_rows == 0
        run("estimate", f"{kind}.parquet", code=1)
        assert "one row" in capsys.readouterr().err


# The terminal


def test_a_terminal_shows_rows_per_second(folder):
    write_big("in.parquet", 12_000_000)
    ours, theirs = pty.openpty()
    command = [*COMMAND, "privatize", "in.parquet", "--schema", "one.toml", "--epsilon", "2"]
    process = subprocess.Popen([*command, "-o", "out.parquet"], stderr=theirs)
    os.close(theirs)
    shown = b""
    try:
        while part := _read_terminal(ours):
            shown += part
        assert process.wait(timeout=900) == 0
    finally:
        process.kill()
        process.wait(timeout=900)
        os.close(ours)
    assert b"M rows/s" in shown
    assert b"in.parquet [#" in shown
    assert b"12000000 rows" in shown


def _read_terminal(handle):
    try:
        return os.read(handle, 1 << 16)
    except OSError:  # Linux says so when the other side has gone
        return b""


def test_help_is_there(capsys):
    for command in ("privatize", "estimate"):
        with pytest.raises(SystemExit) as caught:
            cli.main([command, "--help"])
        assert caught.value.code == 0
    assert "--confidence" in capsys.readouterr().out
    assert shutil.which("dpcore", path=str(Path(sys.executable).parent))
