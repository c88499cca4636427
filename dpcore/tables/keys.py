"""The secret of a table, and the record of what it was used for."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import sqlite3
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dpcore._files import create_bytes
from dpcore.errors import DPCoreError, RepeatedReleaseError
from dpcore.noise import Noise
from dpcore.tables.columns import Nulls

__all__ = ["KeyFileError", "Record", "Seal", "Usage", "load_key"]

_SIZE = 32
_APPLICATION_ID = 0x64707374  # "dpst"
_WAIT_SECONDS = 60.0


class KeyFileError(DPCoreError, OSError):
    """A key file cannot be used; nothing was released."""


def load_key(path: Path) -> Noise:
    """Noise from the key in a file, which is made, for its owner alone, if it is not there.

    Refuses a file that others can read or that belongs to somebody else: whoever has the key can
    take the noise off.
    """
    if not path.exists():
        try:
            create_bytes(path, secrets.token_bytes(_SIZE), mode=0o600)
        except OSError:
            raise KeyFileError("The key file cannot be made; name another with --key.") from None
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        raise KeyFileError("The key file cannot be opened.") from None
    try:
        facts = os.fstat(handle)
        if not stat.S_ISREG(facts.st_mode) or facts.st_size != _SIZE:
            raise KeyFileError("The key file must be a file of 32 bytes.")
        if facts.st_uid != os.geteuid():
            raise KeyFileError("The key file must belong to the user who runs this.")
        if stat.S_IMODE(facts.st_mode) & 0o077:
            raise KeyFileError("The key file must not be readable by others; chmod it to 600.")
        return Noise.from_key(os.read(handle, _SIZE))
    finally:
        os.close(handle)


class Seal:
    """A keyed digest of what the randomiser reads, whatever the batches and the format of the file.

    Noise that is used for two different tables cancels in their difference, so what a stream was
    used for is recorded. The digest is keyed because an unkeyed one of few possible values can be
    guessed.

    Numbers are sealed as float64, which is what the randomiser makes of any type: integers in
    Parquet and the same in CSV, which has no types, are the same data. Integers beyond 2**53 are
    sealed as the floats that they are rounded to, as they are privatised.

    Cost
    ----
    SHA-256 of 8 bytes per number and of 4 per category, and a copy of numbers of other types.
    """

    def __init__(self, numeric: Sequence[bool]) -> None:
        self._columns = [(hashlib.sha256(), np.float64 if n else np.int32) for n in numeric]
        self._dropped = hashlib.sha256()
        self.rows = 0
        self.kept = 0

    def update(self, numbers: list[npt.NDArray[Any]], dropped: Nulls) -> None:
        for (state, kind), column in zip(self._columns, numbers, strict=True):
            state.update(np.ascontiguousarray(column, kind).view(np.uint8).data)
        n = len(numbers[0])
        self.rows += n
        if dropped is not None:
            gone = np.flatnonzero(dropped)
            self.kept -= len(gone)
            self._dropped.update((gone + (self.rows - n)).astype("<i8").tobytes())
        self.kept += n

    def digest(self, noise: Noise) -> str:
        """The digest under the key of the stream."""
        key = noise.key_for("table content").export()
        states = [*(state for state, _ in self._columns), self._dropped]
        parts = [state.digest() for state in states]
        known = repr((self.rows, self.kept)).encode()
        return hmac.new(key, b"".join(parts) + known, "sha256").hexdigest()


@dataclass(frozen=True)
class Record:
    """What a stream was used for: the digest of the data, and how the file looked."""

    content: str
    rows: int
    kept: int
    size: int
    modified: int


class Usage:
    """What the streams of one key were used for, in an SQLite file beside it.

    Keep it with the key: it is what tells a job that is run again from noise that is used again.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        if not path.exists():
            with suppress(FileExistsError):
                os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        with self._connection() as connection:
            connection.execute("BEGIN IMMEDIATE")
            [found] = connection.execute("PRAGMA application_id").fetchone()
            if found == 0:
                connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
                connection.execute(
                    "CREATE TABLE streams (name TEXT PRIMARY KEY, content TEXT, rows INTEGER, "
                    "kept INTEGER, size INTEGER, modified INTEGER) WITHOUT ROWID"
                )
            elif found != _APPLICATION_ID:
                raise KeyFileError("The file beside the key is not a record of its streams.")
            connection.execute("COMMIT")

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        try:
            connection = sqlite3.connect(self._path, isolation_level=None, timeout=_WAIT_SECONDS)
            try:
                connection.execute("PRAGMA synchronous = FULL")
                yield connection
            finally:
                connection.close()
        except sqlite3.Error:
            raise KeyFileError("The record beside the key cannot be read or written.") from None

    def find(self, name: str) -> Record | None:
        with self._connection() as connection:
            row = connection.execute(
                "SELECT content, rows, kept, size, modified FROM streams WHERE name = ?", (name,)
            ).fetchone()
        return None if row is None else Record(*row)

    def claim(self, name: str, record: Record) -> None:
        """Note what a stream is used for; raises if it was used for other data."""
        with self._connection() as connection:
            connection.execute("BEGIN IMMEDIATE")
            row = connection.execute(
                "SELECT content FROM streams WHERE name = ?", (name,)
            ).fetchone()
            if row is not None and row[0] != record.content:
                raise RepeatedReleaseError(
                    "The input has changed since its stream was used under this key, and the same "
                    "noise must not be used twice: name a new stream with --stream."
                )
            connection.execute(
                "REPLACE INTO streams VALUES (?, ?, ?, ?, ?, ?)",
                (name, record.content, record.rows, record.kept, record.size, record.modified),
            )
            connection.execute("COMMIT")
