"""dpcore privatize and dpcore estimate on real files, pipes and processes."""

import io
import json
import os
import pty
import resource
import shutil
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest

import dpcore
from dpcore import Noise, cli, local
from dpcore.tables import TablePlan, table_stream

N = 4000
COMMAND = [sys.executable, "-m", "dpcore"]
ONE = "[columns.x]\nlower = 0\nupper = 100\n"
MIXED = """
epsilon = 6.0
[columns.x]
lower = 0
upper = 100
[columns.fuel]
categories = ["gas", "oil", "NA"]
[columns.code]
categories = 30
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("one.toml").write_text(ONE)
    Path("mixed.toml").write_text(MIXED)
    return tmp_path


def table(n=N, seed=0):
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "x": rng.uniform(20, 60, n),
            "fuel": rng.choice(["gas", "oil", "NA"], n),
            "code": rng.integers(0, 30, n),
        }
    )


def write(data, path):
    kind = Path(path).suffix
    if kind == ".parquet":
        pq.write_table(data, path, row_group_size=999)
    elif kind == ".csv":
        pa.csv.write_csv(data, path)
    else:
        with pa.ipc.new_file(path, data.schema) as writer:
            writer.write_table(data, max_chunksize=777)


def read(path):
    if path.endswith(".parquet"):
        return pq.read_table(path)
    return pa.ipc.open_file(path).read_all()


def run(*arguments, code=0):
    assert cli.main([str(argument) for argument in arguments]) == code


def privatize(source, output, *more, schema="one.toml", code=0):
    run("privatize", source, "--schema", schema, "-o", output, *more, code=code)


def noise(name, key="in.parquet.dpcore-key", file=None):
    return table_stream(Noise.from_key(Path(key).read_bytes()), name, file)


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
        [*COMMAND, *map(str, arguments)], input=data, capture_output=True, timeout=60, check=True,
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


# The key, the record and the ledger


def test_the_key_is_secret(folder, capfd):
    write(table().select(["x"]), "in.parquet")
    privatize("in.parquet", "out.parquet", "--epsilon", 2)
    key = Path("in.parquet.dpcore-key")
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert stat.S_IMODE(Path("in.parquet.dpcore-key.streams").stat().st_mode) == 0o600
    secret, printed = key.read_bytes(), "".join(capfd.readouterr())
    beside = Path("in.parquet.dpcore-key.streams").read_bytes() + Path("out.parquet").read_bytes()
    for form in (secret.hex().encode(), secret):
        assert form not in printed.encode(errors="surrogateescape") + beside
    key.chmod(0o640)
    privatize("in.parquet", "other.parquet", "--epsilon", 2, code=1)
    assert "readable by others" in capfd.readouterr().err
    key.chmod(0o600)
    key.write_bytes(b"short")
    privatize("in.parquet", "other.parquet", "--epsilon", 2, code=1)
    assert "32 bytes" in capfd.readouterr().err
    privatize("in.parquet", "other.parquet", "--epsilon", 2, "--key", "nowhere/key", code=1)
    assert "--key" in capfd.readouterr().err
    assert not Path("other.parquet").exists()


def test_two_processes_agree_on_one_key(folder):
    write(table().select(["x"]), "in.parquet")
    command = [*COMMAND, "privatize", "in.parquet", "--schema", "one.toml", "--epsilon", "2", "-o"]
    both = [subprocess.Popen([*command, f"{i}.parquet"], stderr=subprocess.PIPE) for i in "ab"]
    for process in both:
        process.communicate(timeout=60)
        assert process.returncode == 0
    assert Path("a.parquet").read_bytes() == Path("b.parquet").read_bytes()


def test_changed_data_never_get_the_same_noise(folder, capsys):
    data = table().select(["x"])
    write(data, "in.parquet")
    options = ["--epsilon", 2, "--ledger", "ledger.sqlite", "--budget", 5]
    privatize("in.parquet", "out.parquet", *options)
    before = Path("out.parquet").read_bytes()
    changed = data["x"].to_numpy().copy()
    changed[7] += 1
    write(pa.table({"x": changed}), "in.parquet")
    for more in ([], ["--force"]):
        privatize("in.parquet", "other.parquet", *options, *more, code=1)
        assert "--stream" in capsys.readouterr().err
    privatize("in.parquet", "out.parquet", *options, "--force", code=1)
    assert Path("out.parquet").read_bytes() == before
    assert not list(folder.glob(".*.part"))
    assert len(dpcore.Ledger("ledger.sqlite").entries) == 1
    privatize("in.parquet", "other.parquet", *options, "--stream", "second")
    assert len(dpcore.Ledger("ledger.sqlite").entries) == 2
    first, second = (read(name)["x"].to_numpy() for name in ("out.parquet", "other.parquet"))
    assert (first != second).mean() > 0.2
    privatize("in.parquet", "third.parquet", *options, "--stream", "third", code=1)
    assert "budget" in capsys.readouterr().err
    assert not Path("third.parquet").exists()


def test_a_new_ledger_needs_a_budget(folder, capsys):
    write(table().select(["x"]), "in.parquet")
    privatize("in.parquet", "out.parquet", "--epsilon", 2, "--ledger", "l", code=1)
    assert "--budget" in capsys.readouterr().err
    privatize("in.parquet", "out.parquet", "--epsilon", 2, "--budget", 1, "--ledger", "l", code=1)
    assert not Path("out.parquet").exists()


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.slice(0, N - 1),
        lambda t: t.slice(1),
        lambda t: t.set_column(1, "fuel", pa.array(["gas", *t["fuel"].to_pylist()[:-1]])),
        lambda t: t.take(pa.array(np.arange(N)[::-1])),
    ],
)
def test_any_change_is_found(folder, capsys, change):
    write(table(), "in.parquet")
    privatize("in.parquet", "out.parquet", schema="mixed.toml")
    write(change(table()), "in.parquet")
    privatize("in.parquet", "other.parquet", schema="mixed.toml", code=1)
    assert "'in.parquet' has changed" in capsys.readouterr().err
    assert not Path("other.parquet").exists()


def test_another_column_does_not_get_the_same_noise(folder, capsys):
    """A mechanism knows bounds and epsilon, and not what a column is called."""
    write(pa.table({"x": np.arange(N) % 100.0, "y": np.arange(N) % 7.0}), "in.parquet")
    Path("other.toml").write_text(ONE.replace("x", "y"))
    options = ["--epsilon", 2, "--extra-columns", "drop", "--ledger", "l", "--budget", 9]
    privatize("in.parquet", "x.parquet", *options)
    privatize("in.parquet", "y.parquet", *options, schema="other.toml", code=1)
    assert "--stream" in capsys.readouterr().err
    assert not Path("y.parquet").exists()
    privatize("in.parquet", "y.parquet", *options, "--stream", "y", schema="other.toml")
    assert len(dpcore.Ledger("l").entries) == 2
    # With another loss the noise is another, and is charged for.
    privatize("in.parquet", "z.parquet", *options, "--epsilon", 1, schema="other.toml")
    assert len(dpcore.Ledger("l").entries) == 3


def test_the_same_data_in_another_file_are_the_same(folder):
    write(table(), "in.parquet")
    privatize("in.parquet", "out.parquet", "--ledger", "l", "--budget", 6, schema="mixed.toml")
    write(table(), "in.arrow")
    shared = ["--key", "in.parquet.dpcore-key", "--stream", "in.parquet"]
    privatize("in.arrow", "other.parquet", "--ledger", "l", *shared, schema="mixed.toml")
    assert read("other.parquet").equals(read("out.parquet"))
    assert len(dpcore.Ledger("l").entries) == 1


def test_dropped_rows_are_part_of_what_is_sealed(folder, capsys):
    for place, code in ((3, 0), (3, 0), (4, 1)):
        values = [1.0, 2.0, 3.0, 0.0, 0.0, 5.0]
        values[place] = None
        write(pa.table({"x": pa.array(values)}), "in.parquet")
        privatize("in.parquet", f"{time.time_ns()}.parquet", "--epsilon", 1, "--on-null", "drop",
                  code=code)  # fmt: skip
    assert "has changed" in capsys.readouterr().err


# Refusals


@pytest.mark.parametrize("kind", ["parquet", "csv"])
@pytest.mark.parametrize(
    ("columns", "name"),
    [
        ({"x": [73.25, None]}, "x"),
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
        timeout=60,
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
        assert process.wait(timeout=60) == 1
    assert b"Traceback" not in printed


# Killed


def start(*arguments):
    return subprocess.Popen([*COMMAND, *map(str, arguments)], stderr=subprocess.PIPE)


def kill_when(process, condition):
    """SIGKILL as soon as the condition holds; it must do so while the process runs."""
    deadline = time.monotonic() + 60
    while not condition():
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.002)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL


def write_big(path, n, seed=0):
    rng = np.random.default_rng(seed)
    with pq.ParquetWriter(path, pa.schema([("x", pa.float64())]), use_dictionary=False) as writer:
        for _ in range(n // 500_000):
            writer.write_table(pa.table({"x": rng.uniform(0, 100, 500_000)}))


def test_a_killed_file_comes_out_as_if_nothing_had_happened(folder):
    write_big("in.parquet", 8_000_000)
    options = ["privatize", "in.parquet", "--schema", "one.toml", "--epsilon", 2]
    options += ["--ledger", "ledger.sqlite", "--budget", 2.5]
    part = Path(".out.parquet.part")
    process = start(*options, "-o", "out.parquet")
    kill_when(process, lambda: part.exists() and part.stat().st_size > 100_000)
    assert not Path("out.parquet").exists()
    assert stat.S_IMODE(part.stat().st_mode) == 0o600
    secret = Path("in.parquet.dpcore-key").read_bytes()
    run(*options, "-o", "out.parquet")
    run(*options, "-o", "undisturbed.parquet")
    assert Path("out.parquet").read_bytes() == Path("undisturbed.parquet").read_bytes()
    assert Path("in.parquet.dpcore-key").read_bytes() == secret
    assert not part.exists()
    assert len(dpcore.Ledger("ledger.sqlite").entries) == 1
    plan = TablePlan.from_metadata(read("out.parquet"))
    again = plan.privatize(pq.read_table("in.parquet"), noise=noise("in.parquet"))
    assert again["x"].combine_chunks().equals(read("out.parquet")["x"].combine_chunks())


def test_a_killed_folder_goes_on_where_it_was(folder):
    os.mkdir("in")
    for i in range(6):
        write_big(f"in/{i}.parquet", 3_000_000, seed=i)
    options = ["privatize", "in", "--schema", "one.toml", "--epsilon", 2]
    options += ["--ledger", "ledger.sqlite", "--budget", 2.5]
    process = start(*options, "-o", "out")
    kill_when(process, lambda: Path("out/1.parquet").exists())
    finished = {p.name: p.stat() for p in Path("out").glob("*.parquet")}
    assert 2 <= len(finished) < 6
    run(*options, "-o", "out")
    for name, before in finished.items():
        after = Path("out", name).stat()
        assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    run(*options, "-o", "undisturbed")
    for i in range(6):
        assert (
            Path(f"out/{i}.parquet").read_bytes() == Path(f"undisturbed/{i}.parquet").read_bytes()
        )
    assert not list(Path("out").glob(".*"))
    assert len(dpcore.Ledger("ledger.sqlite").entries) == 1


def test_a_record_without_an_output_is_no_obstacle(folder):
    """As after a crash between the record and the renaming."""
    write(table(), "in.csv")
    privatize("in.csv", "out.csv", schema="mixed.toml")
    before = Path("out.csv").read_bytes()
    Path("out.csv").unlink()
    privatize("in.csv", "out.csv", schema="mixed.toml")
    assert Path("out.csv").read_bytes() == before


def test_one_output_has_one_writer(folder, capsys):
    write_big("in.parquet", 8_000_000)
    options = ["privatize", "in.parquet", "--schema", "one.toml", "--epsilon", 2]
    part = Path(".out.parquet.part")
    with start(*options, "-o", "out.parquet") as process:
        try:
            deadline = time.monotonic() + 60
            while not (part.exists() and part.stat().st_size):
                assert time.monotonic() < deadline
                time.sleep(0.002)
            os.kill(process.pid, signal.SIGSTOP)
            run(*options, "-o", "out.parquet", code=1)
            assert "another process" in capsys.readouterr().err
            os.kill(process.pid, signal.SIGCONT)
            process.communicate(timeout=60)
            assert process.returncode == 0
        finally:
            process.kill()
    assert read("out.parquet").num_rows == 8_000_000


# Estimates


def test_an_estimate_prints_a_table_with_intervals(folder, capsys):
    data = table(200_000)
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
        assert process.wait(timeout=60) == 0
    finally:
        process.kill()
        process.wait(timeout=60)
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
