"""The memory of clients and servers."""

import os
import subprocess
import sys
from shutil import which

import pytest

if sys.version_info < (3, 11):
    pytest.skip("the extra 'flower' needs Python 3.11", allow_module_level=True)

from dpcore.errors import RefusedError
from dpcore.interop.flower.store import Store

COMMIT = """
import sys
from pathlib import Path
from dpcore.interop.flower.store import Store
store = Store(Path(sys.argv[1]), b"x")
print("made", flush=True)
with store.turn():
    store.put("steps", b"1")
"""


def test_a_commit_waits_for_the_folder(tmp_path):
    """What undoes a commit after a power failure is the journal: its end must be on disk."""
    store = Store(tmp_path / "a.sqlite", b"x")
    assert store._connection.execute("PRAGMA synchronous").fetchone() == (3,)
    assert store._connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)


def can_trace():
    """Whether there is strace, and a sandbox that lets it work."""
    return (
        which("strace") is not None
        and not subprocess.run(
            ["strace", "-o", os.devnull, "true"], capture_output=True, check=False
        ).returncode
    )


@pytest.mark.skipif(not can_trace(), reason="system calls cannot be watched here")
def test_the_folder_is_synced_after_the_journal_is_gone(tmp_path):
    log = tmp_path / "calls"
    calls = "trace=unlink,fsync,fdatasync,openat"
    command = ["strace", "-f", "-y", "-e", calls, "-o", str(log)]
    subprocess.run(
        [*command, sys.executable, "-c", COMMIT, str(tmp_path / "a.sqlite")],
        check=True,
        env=dict(os.environ),
        stdout=subprocess.DEVNULL,
    )
    lines = log.read_text().splitlines()
    gone = max(i for i, line in enumerate(lines) if "unlink" in line and "-journal" in line)
    assert any("sync(" in line and f"<{tmp_path}>" in line for line in lines[gone:])


def test_a_memory_has_one_owner_and_one_name(tmp_path):
    path = tmp_path / "a.sqlite"
    name = Store(path, b"x").name
    assert Store(path, b"x").name == name
    with pytest.raises(RefusedError, match="another party"):
        Store(path, b"y")
    path.unlink()
    assert Store(path, b"x").name != name
