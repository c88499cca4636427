"""Files that are replaced as a whole: readers, kills and errors meet the old one or the new one."""

import os
import stat
import subprocess
import sys
from contextlib import contextmanager

import pytest

from dpcore._files import replace_bytes, replacing

SIZE = 1 << 18

WRITER = """
import sys
from pathlib import Path
from dpcore._files import replacing
path, size = Path(sys.argv[1]), int(sys.argv[2])
for letter in b"ab" * 100_000:
    with replacing(path) as file:
        for _ in range(16):
            file.write(bytes([letter]) * (size // 16))
    print(flush=True)
"""


@contextmanager
def writing(path):
    """A process that replaces the file over and over, and is killed at the end."""
    command = [sys.executable, "-c", WRITER, str(path), str(SIZE)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        process.stdout.readline()  # the first file is in place
        try:
            yield
        finally:
            process.kill()


def test_a_reader_sees_whole_files_only(tmp_path):
    path = tmp_path / "file"
    with writing(path):
        seen = set()
        while len(seen) < 2:
            seen |= {path.read_bytes() for _ in range(200)}
    assert seen == {b"a" * SIZE, b"b" * SIZE}


def test_a_kill_leaves_a_whole_file(tmp_path):
    path = tmp_path / "file"
    for _ in range(3):
        with writing(path):
            pass
        assert path.read_bytes() in (b"a" * SIZE, b"b" * SIZE)


def test_an_error_leaves_the_old_file_and_no_other(tmp_path):
    path = tmp_path / "file"
    replace_bytes(path, b"old")

    def write():
        with replacing(path) as file:
            file.write(b"new")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write()
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_the_mode_is_less_the_umask(tmp_path):
    before = os.umask(0o027)
    try:
        for mode, expected in ((0o666, 0o640), (0o600, 0o600)):
            path = tmp_path / f"{mode:o}"
            replace_bytes(path, b"", mode=mode)
            assert stat.S_IMODE(path.stat().st_mode) == expected
    finally:
        os.umask(before)
