"""What a refused run of dpcore privatize leaves behind: no charge, no key, no output."""

import fcntl
import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
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
from dpcore.commands._progress import Meter
from dpcore.errors import DataError, DPCoreError
from dpcore.tables import TablePlan
from dpcore.tables.keys import Usage
from dpcore.tables.run import Job, _locked_part

LEDGER = ["--ledger", "l", "--budget", 9]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_schemas()
    return tmp_path


def charged():
    return len(dpcore.Ledger("l").entries) if Path("l").exists() else 0


# The budget


@pytest.mark.parametrize(
    "text", [b"x\n1\nnan\n", b"x\n1\n\n2\n", b"", b"y\n1\n", b"x\na\n", b"x\n"]
)
def test_a_pipe_that_is_refused_costs_nothing(folder, text):
    command = ["privatize", "-", "--schema", "one.toml", "--epsilon", 2, "--format", "csv"]
    command = [*COMMAND, *map(str, [*command, *LEDGER, "-o", "-"])]
    done = subprocess.run(command, input=text, capture_output=True, timeout=60, check=False)
    assert done.returncode == (0 if text == b"x\n" else 1)
    assert b"Traceback" not in done.stderr
    assert charged() == 0


def test_files_that_are_refused_cost_nothing_and_leave_no_key(folder, capsys):
    write(table().select(["x"]), "good.parquet")
    write(pa.table({"x": [1.0, float("nan")]}), "nan.parquet")
    write(pa.table({"x": [None, 1.0]}), "null.csv")
    write(pa.table({"x": ["a"]}), "text.parquet")
    for name in ("empty", "bad"):
        os.mkdir(name)
    write(table().select(["x"]), "bad/a.parquet")
    write(pa.table({"x": ["a"]}), "bad/b.parquet")
    Path("taken.parquet").write_text("precious")
    options = ["--epsilon", 2, *LEDGER]
    for source in ("nan.parquet", "null.csv", "text.parquet", "missing.parquet"):
        privatize(source, "out.parquet", *options, code=1)
    for source in ("empty", "bad", "nowhere/"):
        privatize(source, "out", *options, code=1)
    privatize("good.parquet", "taken.parquet", *options, code=1)
    privatize("good.parquet", "nowhere/out.parquet", *options, code=1)
    assert charged() == 0
    assert not list(folder.glob("*.dpcore-key*"))
    assert not list(folder.glob("*out*"))
    capsys.readouterr()
    privatize("missing.parquet", "out.parquet", *options, code=1)
    assert "There is no such input" in capsys.readouterr().err


@pytest.mark.parametrize(
    "table",
    [
        pa.table({"x": pa.array([1.0, None])}),
        pa.table({"x": ["a"]}),
        pa.table({"x": [1.0, float("inf")]}),
        pa.Table.from_batches([pa.record_batch({"x": [1.0]}), pa.record_batch({"x": [np.nan]})]),
        pa.RecordBatchReader.from_batches(
            pa.schema([("x", pa.float64())]), [pa.record_batch({"x": [np.nan]})]
        ),
    ],
)
def test_a_table_that_is_refused_costs_nothing(folder, table):
    plan = TablePlan({"x": {"lower": 0, "upper": 100}}, 2.0)
    with dpcore.Ledger("l", epsilon=9.0) as ledger:
        with pytest.raises(DPCoreError, match="'x'"):
            plan.privatize(table)
        assert not ledger.entries


def test_row_indices_that_are_refused_cost_nothing(folder):
    plan = TablePlan({"x": {"lower": 0, "upper": 100}}, 2.0)
    batches = [pa.record_batch({"x": [1.0], "row": [3]})] * 2
    with dpcore.Ledger("l", epsilon=9.0) as ledger:
        with pytest.raises(DataError, match="twice"):
            plan.privatize(pa.Table.from_batches(batches), rows="row")
        assert not ledger.entries


def test_options_without_their_use_are_refused(folder, capsys):
    write(table().select(["x"]), "in.parquet")
    privatize("in.parquet", "out.parquet", "--epsilon", 2, "--budget", 3, code=1)
    assert "--ledger" in capsys.readouterr().err
    privatize("in.parquet", "out.parquet", "--epsilon", 2, "--repeated", code=1)
    assert "--repeated" in capsys.readouterr().err
    assert not list(folder.glob("*.dpcore-key*"))


# The output


def test_what_another_input_left_is_not_done(folder, capsys):
    for i, name in enumerate("ab"):
        write(table(seed=i).select(["x"]), f"{name}.parquet")
    for kind in ("parquet", "csv"):
        privatize("a.parquet", f"out.{kind}", "--epsilon", 2)
        privatize("b.parquet", f"b_out.{kind}", "--epsilon", 2)
        before = Path(f"out.{kind}").read_bytes()
        privatize("b.parquet", f"out.{kind}", "--epsilon", 2, code=1)
        assert "--force" in capsys.readouterr().err
        privatize("a.parquet", f"out.{kind}", "--epsilon", 2)
        assert "done before" in capsys.readouterr().err
        assert Path(f"out.{kind}").read_bytes() == before


def test_two_files_of_a_folder_with_one_output_are_refused(folder, capsys):
    os.mkdir("in")
    for kind in ("csv", "parquet"):
        write(table(), f"in/a.{kind}")
    privatize("in", "out", "--output-format", "arrow", schema="mixed.toml", code=1)
    assert "'a.csv' and 'a.parquet'" in capsys.readouterr().err
    assert not list(folder.glob("*out*"))
    Path("file").touch()
    privatize("in", "file", schema="mixed.toml", code=1)
    assert "must be a folder" in capsys.readouterr().err
    os.mkdir("taken")
    Path("taken/a.csv").mkdir()
    privatize("in", "taken", "--force", schema="mixed.toml", code=1)
    assert "'a.csv' is a folder" in capsys.readouterr().err


def test_a_file_into_a_pipe_has_the_noise_of_the_file(folder):
    write(table().select(["x"]), "in.csv")
    command = ["privatize", "in.csv", "--schema", "one.toml", "--epsilon", 2, "-o", "-", *LEDGER]
    command = [*COMMAND, *map(str, command)]
    first, second = (
        subprocess.run(command, capture_output=True, timeout=60, check=True).stdout
        for _ in range(2)
    )
    assert first == second
    privatize("in.csv", "out.csv", "--epsilon", 2, *LEDGER)
    assert Path("out.csv").read_bytes() == first
    assert charged() == 1


def test_a_path_has_one_key_however_it_is_written(folder, monkeypatch):
    os.mkdir("in")
    write(table().select(["x"]), "in/a.parquet")
    os.symlink("in", "link")
    for i, source in enumerate(["in", "in/.", "./in/", "link", folder / "in"]):
        privatize(source, f"out{i}", "--epsilon", 2, *LEDGER)
    monkeypatch.chdir("in")
    privatize(".", "../last", "--epsilon", 2, "--ledger", "../l", schema="../one.toml")
    monkeypatch.chdir(folder)
    assert len(list(folder.glob("**/*.dpcore-key"))) == 1
    assert charged() == 1


def test_an_input_that_changes_while_it_is_read_is_not_recorded(folder):
    write(table().select(["x"]), "in.parquet")
    plan, source = TablePlan.from_toml("one.toml", epsilon=2.0), dpcore.Noise().stream("in")
    later = table(seed=1).select(["x"])
    usage = Usage(Path("usage"))
    job = Job(plan, usage, progress=lambda done, total: write(later, "in.parquet"))
    with pytest.raises(DataError, match="changed while"):
        job.file("in.parquet", "out.parquet", source, lambda: plan.open(source))
    assert usage.find(plan.fingerprint(source)) is None
    assert not list(folder.glob("*out*"))


def test_a_crash_leaves_no_new_plan_beside_old_codes(folder, monkeypatch, capsys):
    write(table(), "in.parquet")
    privatize("in.parquet", "out.csv", schema="mixed.toml")
    real = os.replace

    def crash(source, target):
        if str(target) == "out.csv":
            raise OSError(5, "crash")
        real(source, target)

    options = ["--force", "--on-null", "category"]
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", crash)
        privatize("in.parquet", "out.csv", *options, schema="mixed.toml", code=1)
    run("estimate", "out.csv", code=1)
    assert "no such" in capsys.readouterr().err
    privatize("in.parquet", "out.csv", "--on-null", "category", schema="mixed.toml")
    run("estimate", "out.csv")


def test_results_name_their_stream(folder):
    write(table().select(["x"]), "in.parquet")
    privatize("in.parquet", "out.parquet", "--epsilon", 2)
    plan = TablePlan.from_metadata(read("out.parquet"))
    expected = plan.arrow_schema(stream=plan.fingerprint(noise("in.parquet")))
    assert read("out.parquet").schema.metadata == expected.metadata
    assert plan.count(read("out.parquet")).n_rows == N


# Faults in a sentence


def faulty(arguments, **options):
    done = subprocess.run(
        [*COMMAND, *map(str, arguments)], stderr=subprocess.PIPE, timeout=60, check=False, **options
    )
    assert b"Traceback" not in done.stderr
    assert b"Exception ignored" not in done.stderr
    return done.returncode, done.stderr


def test_columns_that_are_there_twice(folder, capsys):
    one, other = pa.array([1.0]), pa.array(["a"])
    write(pa.Table.from_arrays([one, one, other], ["x", "x", "y"]), "in.parquet")
    privatize("in.parquet", "out.parquet", "--epsilon", 1, "--extra-columns", "drop", code=1)
    assert "'x' must not occur twice" in capsys.readouterr().err
    write(pa.Table.from_arrays([one, other, other], ["x", "y", "y"]), "extra.parquet")
    privatize("extra.parquet", "out.parquet", "--epsilon", 1, "--extra-columns", "drop")


def test_results_that_are_damaged(folder, capsys):
    write(table(), "in.parquet")
    privatize("in.parquet", "out.csv", schema="mixed.toml")
    lines = Path("out.csv").read_text().splitlines()
    cut = [",".join(line.split(",")[:2]) for line in lines]
    Path("cut.csv").write_text("\n".join(cut))
    run("estimate", "cut.csv", "--schema", "mixed.toml", code=1)
    assert "columns of its plan" in capsys.readouterr().err
    beside = Path("out.csv.dpcore.json")
    text = beside.read_bytes()
    for damaged in (b"\xff\xfe", text.replace(b"gas", b"g\xffs"), b'{"plan": 5}'):
        beside.write_bytes(damaged)
        run("estimate", "out.csv", code=1)
        assert capsys.readouterr().err.startswith("dpcore: ")


def test_messages_name_the_option(folder, capsys):
    write(table().select(["x"]), "in.parquet")
    privatize("in.parquet", "out.parquet", "--epsilon", 1, "--mechanism", "lap", code=1)
    assert "--mechanism" in capsys.readouterr().err
    privatize("in.parquet", "out.parquet", code=1)
    assert "with --epsilon" in capsys.readouterr().err


def test_streams_that_are_closed_or_full(folder):
    write(table().select(["x"]), "in.csv")
    privatize("in.csv", "out.csv", "--epsilon", 2)
    options = ["--schema", "one.toml", "--epsilon", 2, "--format", "csv"]
    close = {fd: {"preexec_fn": lambda fd=fd: os.close(fd)} for fd in (0, 1, 2)}
    code, text = faulty(["privatize", "-", *options, "-o", "x.csv"], **close[0])
    assert (code, b"closed" in text) == (1, True)
    for command in (["privatize", "in.csv", *options, "-o", "-"], ["estimate", "out.csv"]):
        code, text = faulty(command, **close[1])
        assert (code, b"closed" in text) == (1, True)
        with open("/dev/full", "wb") as full:
            code, text = faulty(command, stdout=full)
        assert (code, b"cannot be written" in text) == (1, True)
    code, _ = faulty(["estimate", "out.csv"], stdout=subprocess.DEVNULL, **close[2])
    assert code == 0
    buffered = {name: text for name, text in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with open("/dev/full", "wb") as full:
        code, text = faulty(["info"], stdout=full, env=buffered)
    assert (code, b"cannot be written" in text) == (1, True)


def test_an_interrupted_run_is_quiet(folder):
    write_big("in.parquet", 8_000_000)
    command = ["privatize", "in.parquet", "--schema", "one.toml", "--epsilon", "2"]
    pipe = subprocess.PIPE
    with subprocess.Popen([*COMMAND, *command, "-o", "out.parquet"], stderr=pipe) as process:
        deadline = time.monotonic() + 60
        while not Path(".out.parquet.part").exists():
            assert time.monotonic() < deadline
            time.sleep(0.002)
        process.send_signal(signal.SIGINT)
        assert process.stderr.read() == b""
        assert process.wait(timeout=60) == 130
    assert not list(folder.glob("*out*"))


@pytest.mark.parametrize("after", ["open", "flock"])
def test_an_interrupt_at_the_first_steps_leaves_nothing(folder, after, monkeypatch):
    """It may come when the file was made and is not locked, or not yet known to be."""
    module, name = {"open": (os, "open"), "flock": (fcntl, "flock")}[after]
    step = getattr(module, name)

    def interrupted(target, *others):
        done = step(target, *others)
        if after == "flock" or str(target).endswith(".part"):
            monkeypatch.setattr(module, name, step)
            raise KeyboardInterrupt
        return done

    monkeypatch.setattr(module, name, interrupted)
    with pytest.raises(KeyboardInterrupt), _locked_part(folder / "out.parquet"):
        pass
    assert not list(folder.glob("*out*"))


def test_json_has_no_infinity(folder, capsys):
    write(table(1), "in.parquet")
    privatize("in.parquet", "out.parquet", schema="mixed.toml")
    capsys.readouterr()
    run("estimate", "out.parquet", "--json")
    text = capsys.readouterr().out
    assert "Infinity" not in text
    assert "NaN" not in text
    assert json.loads(text)["estimates"][0]["low"] is None


def test_slow_runs_are_told_in_rows():
    meter = Meter()
    meter.rows, meter._begin = 18_660, time.monotonic() - 2
    assert re.search(r"18660 rows, 9,\d{3} rows/s", meter.finish())
