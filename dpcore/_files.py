"""Files that are made or replaced as a whole."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

__all__ = ["create_bytes", "replace_bytes", "replacing", "sync"]


@contextmanager
def replacing(path: Path, *, mode: int = 0o666) -> Iterator[BinaryIO]:
    """A file to write that takes the place of `path` once it is complete and on disk.

    A reader, a kill or a loss of power at any moment leaves the old file or the new one, never a
    part of it. `mode` is that of the new file, less the umask.
    """
    part = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_native_id()}.part")
    try:
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    sync(path.parent)


def replace_bytes(path: Path, content: bytes, *, mode: int = 0o666) -> None:
    """Put `content` in place of the file at `path`; see `replacing`."""
    with replacing(path, mode=mode) as file:
        file.write(content)


def create_bytes(path: Path, content: bytes, *, mode: int = 0o666) -> bool:
    """Make a file that is complete from its first moment, unless there is one.

    Of those who try at once exactly one succeeds; returns whether it was this one. `mode` is that
    of the new file, whatever the umask.
    """
    # Made with O_EXCL and mode 600.
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fchmod(handle, mode)
            os.fsync(handle)
        os.link(name, path)
    except FileExistsError:
        return False
    finally:
        os.unlink(name)
    sync(path.parent)
    return True


def sync(path: Path) -> None:
    """Make a file, or what was created and renamed in a folder, survive a loss of power."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
