"""dpcore privatize killed and run again: the same bytes, charged once."""

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from table_commands_support import (
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
from dpcore.tables import TablePlan


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_schemas()
    return tmp_path


# The command, which sends itself a signal once it has done a number of rows.
PROGRAM = """
import os, signal, sys
from dpcore.cli import main
from dpcore.commands._progress import Meter

number, rows, *arguments = sys.argv[1:]
count = Meter.__call__

def count_and_signal(self, done, total):
    count(self, done, total)
    if self.rows >= int(rows):
        Meter.__call__ = count
        os.kill(os.getpid(), int(number))

Meter.__call__ = count_and_signal
signal.alarm(900)
raise SystemExit(main(arguments))
"""


def start(number, rows, *arguments):
    """The command, once the signal has killed or stopped it."""
    given = map(str, [int(number), rows, *arguments])
    process = subprocess.Popen([sys.executable, "-c", PROGRAM, *given], stderr=subprocess.PIPE)
    ended = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WSTOPPED | os.WNOWAIT)
    assert ended.si_status == number, process.communicate()[1]
    return process


def test_a_killed_file_comes_out_as_if_nothing_had_happened(folder):
    write_big("in.parquet", 8_000_000)
    options = ["privatize", "in.parquet", "--schema", "one.toml", "--epsilon", 2]
    options += ["--ledger", "ledger.sqlite", "--budget", 2.5]
    part = Path(".out.parquet.part")
    start(signal.SIGKILL, 4_000_000, *options, "-o", "out.parquet").communicate()
    assert part.stat().st_size > 100_000
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
    start(signal.SIGKILL, 7_000_000, *options, "-o", "out").communicate()
    finished = {p.name: p.stat() for p in Path("out").glob("*.parquet")}
    assert sorted(finished) == ["0.parquet", "1.parquet"]
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
    with start(signal.SIGSTOP, 4_000_000, *options, "-o", "out.parquet") as process:
        try:
            run(*options, "-o", "out.parquet", code=1)
            assert "another process" in capsys.readouterr().err
            os.kill(process.pid, signal.SIGCONT)
            process.communicate(timeout=900)
            assert process.returncode == 0
        finally:
            process.kill()
    assert read("out.parquet").num_rows == 8_000_000
