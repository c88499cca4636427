"""The key of a table, the record of what it was used for, and the ledger."""

import stat
import subprocess
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from table_commands_support import COMMAND, ONE, N, privatize, read, table, write, write_schemas

import dpcore


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_schemas()
    return tmp_path


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
        process.communicate(timeout=900)
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


def test_integers_are_the_same_data_in_any_format(folder, capsys):
    values = np.resize([0, 7, 100, 2**53 + 1, -(2**53) - 1, 2**62 + 1], N)
    shared = ["--epsilon", 2, "--key", "key", "--stream", "survey"]
    kinds = [("a.parquet", pa.int64()), ("b.csv", pa.int64()), ("c.arrow", pa.float64())]
    for name, kind in kinds:
        write(pa.table({"x": pa.array(values).cast(kind, safe=False)}), name)
        privatize(name, f"out_{name}.parquet", *shared)
    first, *others = (read(f"out_{name}.parquet") for name, _ in kinds)
    assert all(first.equals(other) for other in others)
    values[0] = 1
    write(pa.table({"x": values}), "b.csv")
    privatize("b.csv", "other.parquet", *shared, code=1)
    assert "has changed" in capsys.readouterr().err


def test_dropped_rows_are_part_of_what_is_sealed(folder, capsys):
    for place, code in ((3, 0), (3, 0), (4, 1)):
        values = [1.0, 2.0, 3.0, 0.0, 0.0, 5.0]
        values[place] = None
        write(pa.table({"x": pa.array(values)}), "in.parquet")
        privatize("in.parquet", f"{time.time_ns()}.parquet", "--epsilon", 1, "--on-null", "drop",
                  code=code)  # fmt: skip
    assert "has changed" in capsys.readouterr().err


def test_other_noise_for_the_rows_of_a_folder_is_charged(folder):
    Path("in").mkdir()
    write(table().select(["x"]), "in/p1.parquet")
    options = ["--epsilon", 2, "--ledger", "l", "--budget", 9]
    for output in ("out", "again"):
        privatize("in", output, *options)
    assert len(dpcore.Ledger("l").entries) == 1
    Path("in/p1.parquet").rename("in/p2.parquet")
    privatize("in", "renamed", *options)
    assert not read("out/p1.parquet").equals(read("renamed/p2.parquet"))
    assert len(dpcore.Ledger("l").entries) == 2
    shared = ["--key", "in.dpcore-key", "--stream", "in"]
    privatize("in/p2.parquet", "single.parquet", *options, *shared)
    assert not read("single.parquet").equals(read("renamed/p2.parquet"))
    assert len(dpcore.Ledger("l").entries) == 3
