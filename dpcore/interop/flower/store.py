"""The memory of a client or a server: a file in which things change together or not at all."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from dpcore.errors import ProtocolError, RefusedError
from dpcore.secure.keys import random_key

__all__ = ["Answered", "Fence", "ReplacedError", "Store"]

_WAIT_SECONDS = 120.0
_EXTRA = 3  # known since SQLite 3.12
_SCHEMA = """
CREATE TABLE IF NOT EXISTS state (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS answers (
    round INTEGER NOT NULL,
    stage TEXT NOT NULL,
    question BLOB NOT NULL,
    answer BLOB NOT NULL,
    time REAL NOT NULL,
    PRIMARY KEY (round, stage)
) WITHOUT ROWID;
"""


@dataclass(frozen=True)
class Answered:
    """An answer that was given: to which round and stage, to which question, and its bytes."""

    round: int
    stage: str
    question: bytes
    answer: bytes


class Store:
    """Named values, and the answers given so far, each of them once.

    Parameters
    ----------
    path : Path
        An SQLite file, made readable by its owner only.
    owner : bytes
        Whose memory it is; a file of another owner is refused.

    Attributes
    ----------
    name : bytes
        Drawn when the file is made: a memory that was lost does not come back under its name.
    """

    def __init__(self, path: Path, owner: bytes) -> None:
        self.path = path
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        self._connection = sqlite3.connect(path, isolation_level=None, timeout=_WAIT_SECONDS)
        # The disk is waited for: an answer that was sent must not be forgotten in a power failure.
        # FULL is not enough. A commit removes the journal, and only EXTRA waits for the folder: a
        # journal that comes back undoes the commit.
        self._connection.execute("PRAGMA synchronous = EXTRA")
        if self._connection.execute("PRAGMA synchronous").fetchone() != (_EXTRA,):
            raise ProtocolError("The SQLite installed is too old to keep answers safe.")
        with self.turn():
            for statement in _SCHEMA.split(";"):
                self._connection.execute(statement)
            if self.get("owner") is None:
                self.put("owner", owner)
                self.put("name", random_key())
            if self.get("owner") != owner:
                raise RefusedError("The stored state is of another party or another agreement.")
            self.name = self.get("name") or b""

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Everything written inside lasts if the block ends well, and nothing of it otherwise.

        One process at a time is inside.
        """
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")
            raise

    def get(self, name: str) -> bytes | None:
        found = self._connection.execute("SELECT value FROM state WHERE name = ?", (name,))
        row = found.fetchone()
        return None if row is None else bytes(row[0])

    def put(self, name: str, value: bytes) -> None:
        self._connection.execute("REPLACE INTO state VALUES (?, ?)", (name, value))

    def answered(self, number: int, stage: str) -> Answered | None:
        """What was answered in a stage of a round, if anything."""
        found = self._connection.execute(
            "SELECT question, answer FROM answers WHERE round = ? AND stage = ?", (number, stage)
        ).fetchone()
        return None if found is None else Answered(number, stage, bytes(found[0]), bytes(found[1]))

    def record(self, answer: Answered) -> None:
        """Keep an answer; a second one for the same stage and round is an error."""
        self._connection.execute(
            "INSERT INTO answers VALUES (?, ?, ?, ?, ?)",
            (answer.round, answer.stage, answer.question, answer.answer, time.time()),
        )

    @property
    def answers(self) -> list[Answered]:
        """All answers given, in the order in which they were."""
        rows = self._connection.execute(
            "SELECT round, stage, question, answer FROM answers ORDER BY time, round"
        )
        return [Answered(a, b, bytes(c), bytes(d)) for a, b, c, d in rows]

    @property
    def last_round(self) -> int:
        """The last round in which anything was answered, 0 before the first."""
        [last] = self._connection.execute("SELECT MAX(round) FROM answers").fetchone()
        return last or 0

    def close(self) -> None:
        self._connection.close()


class ReplacedError(ProtocolError):
    """Somebody else continues what this process was doing."""


class Fence:
    """Lets only the latest of several owners of one store write to it.

    A server that lost its connection may still run when its successor has begun.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        with store.turn():
            self._generation = int(store.get("generation") or b"0") + 1
            store.put("generation", b"%d" % self._generation)

    def check(self) -> None:
        """Call inside a turn, before writing."""
        if int(self._store.get("generation") or b"0") != self._generation:
            raise ReplacedError("Another server has taken over this folder.")
