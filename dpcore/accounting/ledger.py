"""A privacy budget in a file that no release can overspend, however many processes share it."""

from __future__ import annotations

import json
import os
import sqlite3
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpcore import _charge
from dpcore._checks import check_choice, check_flag, check_list, check_path, exact
from dpcore._events import Event
from dpcore.accounting.composition import Composition
from dpcore.errors import (
    BudgetExceededError,
    InsecureNoiseError,
    LedgerError,
    ParameterError,
    RepeatedReleaseError,
)
from dpcore.noise import Noise

__all__ = ["Entry", "Ledger"]

_APPLICATION_ID = 0x64706C67  # "dplg"
_VERSION = 1
_WAIT_SECONDS = 60.0
_SYNCHRONOUS = {"process": "NORMAL", "power": "FULL"}
_SCHEMA = """
CREATE TABLE budget (epsilon REAL NOT NULL, delta REAL NOT NULL);
CREATE TABLE totals (part TEXT PRIMARY KEY, state TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE entries (
    id INTEGER PRIMARY KEY,
    time REAL NOT NULL,
    part TEXT NOT NULL,
    event TEXT NOT NULL,
    key TEXT,
    fingerprint TEXT UNIQUE
);
CREATE INDEX entries_by_key ON entries (key) WHERE key IS NOT NULL;
"""
# All data: what was released without naming a part of the data.
_WHOLE = ""
# Between the fingerprint of a release and the number of its event, from the second one on.
_SEPARATOR = "\x1f"


@dataclass(frozen=True)
class Entry:
    """One line of a ledger.

    Attributes
    ----------
    number : int
        Entries are numbered in the order of their reservation, without gaps.
    time : float
        Seconds since 1970, by the clock of the process that reserved.
    part : str
        The part of the data, or "" for all of it.
    event : Event
    key : str or None
        Name of a keyed release.

    Privacy
    -------
    Nothing of the data: public parameters of a release, the names that the caller gave, and when it
    was reserved.

    Cost
    ----
    A few short fields, however large the release was.
    """

    number: int
    time: float
    part: str
    event: Event
    key: str | None


class Ledger:
    """A budget of (epsilon, delta) and the list of everything that was spent of it.

    A release first reserves its cost here, in one transaction, and only then draws noise. What does
    not fit raises `BudgetExceededError` before any randomness is touched. Inside ``with ledger:``
    every release of this process, in all of its threads, is charged, and so is every release of the
    processes that it starts there, forked or spawned: those find the file by the environment
    variable ``DPCORE_LEDGER``, which may also be set for a whole job.

    Releases on a pinned stream are charged once: the same release made again, or made in chunks,
    has the same noise and tells nothing new.

    Parameters
    ----------
    path : path-like
        An SQLite file. It is created if it does not exist, and then `epsilon` must be given.
    epsilon, delta : float
        The budget. For an existing file they may be left out, and must agree if given.
    durability : {"process", "power"}
        What a reservation survives: the death of the process at any moment, or also a loss of power
        (the disk is then waited for, some milliseconds each time).
    allow_insecure : bool
        Whether to take releases made with `Noise.insecure`, which protect nobody: for simulations.

    Privacy
    -------
    The sum of all entries is at most the budget, under the composition rules of
    `dpcore.accounting` (never less than the truth). A process that dies after reserving leaves the
    cost spent, never unspent. Not covered: releases made outside of ``with ledger:``, those of
    workers that were started before it (pools of joblib and others keep them, and keep charging the
    ledger they were started in), copies of the file, other ledgers for the same data, and somebody
    who edits it.

    Cost
    ----
    Some 70 microseconds per reservation, 180 once Gaussian releases are among them.

    Examples
    --------
    >>> import tempfile, dpcore
    >>> path = tempfile.mkdtemp() + "/study.sqlite"
    >>> with dpcore.Ledger(path, epsilon=1.0) as ledger:
    ...     ages = dpcore.histogram([3, 1, 1], 4, epsilon=0.75)
    ...     try:
    ...         again = dpcore.histogram([3, 1, 1], 4, epsilon=0.75)
    ...     except dpcore.BudgetExceededError:
    ...         print("refused")
    refused
    >>> round(ledger.spent[0], 6)
    0.75
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        epsilon: float | None = None,
        delta: float | None = None,
        *,
        durability: str = "process",
        allow_insecure: bool = False,
    ) -> None:
        self.path = check_path(path, "path")
        self.durability = check_choice(durability, "durability", tuple(_SYNCHRONOUS))
        self.allow_insecure = check_flag(allow_insecure, "allow_insecure")
        asked = _check_budget(epsilon, delta)
        self._local = threading.local()
        self._scope = threading.local()
        self._active = _charge.Activation(self)
        if not self.path.exists():
            if asked is None:
                raise ParameterError("The 'epsilon' parameter must be given for a new ledger.")
            _create(self.path, *asked)
        with _translated(self.path):
            self.epsilon, self.delta = (
                self._connection().execute("SELECT epsilon, delta FROM budget").fetchone()
            )
        if asked is not None and (asked[0] != self.epsilon or delta not in (None, self.delta)):
            raise LedgerError("The ledger was made for another budget than the one given.")

    def charge(
        self,
        event: Event | Sequence[Event],
        *,
        fingerprint: str | None = None,
        claim: str | None = None,
        parts: Sequence[tuple[int | str | bytes, ...]] | None = None,
    ) -> None:
        """Reserve the cost of a release, or raise `BudgetExceededError` and reserve nothing.

        Every releasing function does this itself. A release of several events is reserved as a
        whole, with an entry for each of them. `fingerprint` names a release that may be made
        again with the same noise: it is charged the first time only. `claim` names a release that
        `keyed` handed out. A release that concerns several disjoint parts of the data names them
        in `parts`, as `part` does one.
        """
        events = _check_events(event)
        named = [self._part] if parts is None else _check_parts(parts)
        rows = [(each.to_json(), part, claim) for part in named for each in events]
        with self._transaction() as connection:
            if fingerprint is not None:
                before = _charged(connection, fingerprint)
                if before:
                    if before != rows:
                        raise RepeatedReleaseError(
                            "A release with this noise was charged as another event, part or key."
                        )
                    return
            if claim is not None and _drawn(connection, claim):
                raise RepeatedReleaseError("This keyed release was drawn before, in another way.")
            for part in named:
                self._add(connection, part, events)
            now, names = time.time(), _names(fingerprint, len(rows))
            connection.executemany(
                "INSERT INTO entries (time, event, part, key, fingerprint) VALUES (?, ?, ?, ?, ?)",
                [(now, *row, name) for row, name in zip(rows, names, strict=True)],
            )

    def _add(self, connection: sqlite3.Connection, part: str, events: list[Event]) -> None:
        """Add events to what a part of the data has cost, if they fit."""
        total, whole = _load(connection, part), _load(connection, _WHOLE)
        for event in events:
            total.add(event)
        self._check_budget(connection, part, total, whole)
        connection.execute("REPLACE INTO totals VALUES (?, ?)", (part, _dump(total)))

    def _check_budget(
        self, connection: sqlite3.Connection, part: str, total: Composition, whole: Composition
    ) -> None:
        if part == _WHOLE:
            rows = connection.execute("SELECT part, state FROM totals WHERE part <> ''")
            candidates = [total, *(total.plus(_parse(state)) for _, state in rows)]
        else:
            candidates = [total.plus(whole)]
        for candidate in candidates:
            if not candidate.is_within(self.epsilon, self.delta):
                raise BudgetExceededError(
                    "The release does not fit what is left of the privacy budget; nothing was "
                    "released."
                )

    def reserve(
        self,
        event: Event,
        *,
        noise: Noise | None = None,
        key: tuple[int | str | bytes, ...] | None = None,
        repeat: str = "raise",
    ) -> Noise:
        """Reserve an event for noise that the caller draws by itself.

        For learners, whose event covers many draws. What is drawn from the result is not charged
        again.

        Parameters
        ----------
        event : Event
            The cost of everything that will be drawn.
        noise : Noise, optional
            Source to draw from; a secure one by default.
        key : tuple of int, str and bytes, optional
            Name of the release (data set, batch, label scheme, ...). It cannot be drawn twice.
        repeat : {"raise", "same"}
            What a second request for a key gets: `RepeatedReleaseError`, or the same stream for the
            same event, which costs nothing. That needs noise made from an explicit key.
        """
        source = Noise() if noise is None else noise
        if key is not None:
            source = self.keyed(*key, noise=source, repeat=repeat)
        self.admit(source)
        fingerprint = source.fingerprint("reserved") if source.pinned else None
        self.charge(event, fingerprint=fingerprint, claim=source.claim)
        return source.for_ledger(prepaid=True)

    def keyed(
        self, *ids: int | str | bytes, noise: Noise | None = None, repeat: str = "raise"
    ) -> Noise:
        """A pinned stream for one named release, which cannot be drawn twice.

        Parameters
        ----------
        *ids : int, str or bytes
            Name of the release (data set, batch, label scheme, ...).
        noise, repeat
            As for `reserve`.

        Examples
        --------
        >>> import tempfile, dpcore
        >>> ledger = dpcore.Ledger(tempfile.mkdtemp() + "/study.sqlite", epsilon=1.0)
        >>> with ledger:
        ...     noise = ledger.keyed("visits", "week 46")
        ...     counts = dpcore.histogram([3, 1, 1], 4, epsilon=0.5, noise=noise)
        >>> ledger.keyed("visits", "week 46")
        Traceback (most recent call last):
            ...
        dpcore_ext.errors.RepeatedReleaseError: This keyed release was drawn before.
        """
        check_choice(repeat, "repeat", ("raise", "same"))
        claim, source = _name(ids), Noise() if noise is None else noise
        self.admit(source)
        if repeat == "raise" and self._was_drawn(claim):
            raise RepeatedReleaseError("This keyed release was drawn before.")
        return source.stream("ledger", *ids).for_ledger(claim=claim)

    @contextmanager
    def part(self, *ids: int | str | bytes) -> Iterator[Ledger]:
        """Releases inside concern one part of the data only: a shard, a day, a region.

        Parts must be disjoint, and which part a record is in must not depend on what is protected.
        Then only the costliest part counts (parallel composition), on top of what was released
        about all data.
        """
        outer = self._part
        self._scope.part = _name(ids)
        try:
            yield self
        finally:
            self._scope.part = outer

    @property
    def spent(self) -> tuple[float, float]:
        """(epsilon, delta) of everything so far; delta is 0 as long as all releases are pure."""
        with _translated(self.path):
            rows = dict(self._connection().execute("SELECT part, state FROM totals"))
        whole = _parse(rows.pop(_WHOLE, None))
        totals = [whole, *(whole.plus(_parse(state)) for state in rows.values())]
        if all(total.is_pure for total in totals) and max(t.pure for t in totals) <= self.epsilon:
            return max(total.pure for total in totals), 0.0
        return max(total.epsilon(self.delta) for total in totals), self.delta

    @property
    def entries(self) -> list[Entry]:
        """Everything reserved, in order."""
        with _translated(self.path):
            rows = self._connection().execute(
                "SELECT id, time, part, event, key FROM entries ORDER BY id"
            )
            return [
                Entry(number, when, part, Event.from_json(event), key)
                for number, when, part, event, key in rows
            ]

    def report(self) -> None:
        """Print a table of what was spent on what."""
        from dpcore.accounting.report import table

        print(table(self))

    def __enter__(self) -> Ledger:
        self._active.begin()
        return self

    def __exit__(self, *exception: object) -> None:
        self._active.end()

    def __repr__(self) -> str:
        loss, chance = self.spent
        return (
            f"<dpcore.Ledger: spent epsilon {loss:.6g} of {self.epsilon:.6g}, "
            f"delta {chance:.3g} of {self.delta:.3g}>"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (str(self.path), self.durability, self.allow_insecure)

    def admit(self, source: Noise) -> None:
        """Refuse a source whose releases would not be private."""
        if not source.private and not self.allow_insecure:
            raise InsecureNoiseError(
                "A ledger takes no releases with insecure noise, unless made with allow_insecure."
            )

    @property
    def _part(self) -> str:
        return getattr(self._scope, "part", _WHOLE)

    def _was_drawn(self, key: str) -> bool:
        with _translated(self.path):
            return _drawn(self._connection(), key)

    def _connection(self) -> sqlite3.Connection:
        """One connection per thread and process: SQLite's do not survive a fork."""
        owned = getattr(self._local, "connection", None)
        if owned is not None and owned[0] == os.getpid():
            return owned[1]  # type: ignore[no-any-return]
        connection = _open(self.path)
        connection.execute(f"PRAGMA synchronous = {_SYNCHRONOUS[self.durability]}")
        self._local.connection = (os.getpid(), connection)
        return connection

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with _translated(self.path):
            connection = self._connection()
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
                raise


def _check_budget(epsilon: float | None, delta: float | None) -> tuple[float, float] | None:
    chance = 0.0 if delta is None else float(exact(delta, "delta"))
    if not 0 <= chance < 1:
        raise ParameterError("The 'delta' parameter must be at least 0 and below 1.")
    if epsilon is None:
        if delta is not None:
            raise ParameterError("The 'delta' parameter must come with 'epsilon'.")
        return None
    loss = float(exact(epsilon, "epsilon"))
    if not loss > 0:
        raise ParameterError("The 'epsilon' parameter must be a finite number greater than 0.")
    return loss, chance


def _create(path: Path, epsilon: float, delta: float) -> None:
    """A complete file, put in place at once: no other process sees half of it."""
    with _translated(path):
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        os.close(handle)
        try:
            connection = sqlite3.connect(name, isolation_level=None)
            connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {_VERSION}")
            connection.executescript(_SCHEMA)
            connection.execute("INSERT INTO budget VALUES (?, ?)", (epsilon, delta))
            connection.execute("PRAGMA journal_mode = WAL")
            connection.close()
            with suppress(FileExistsError):
                os.link(name, path)
        finally:
            for suffix in ("", "-wal", "-shm"):
                with suppress(FileNotFoundError):
                    os.unlink(name + suffix)


def _open(path: Path) -> sqlite3.Connection:
    if path.stat().st_size == 0:
        raise LedgerError("The file is empty, so it is not a ledger of dpcore.")
    # "rw": a file that vanished must not come back as an empty one.
    uri = f"{path.absolute().as_uri()}?mode=rw"
    connection = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=_WAIT_SECONDS)
    [application] = connection.execute("PRAGMA application_id").fetchone()
    [version] = connection.execute("PRAGMA user_version").fetchone()
    if application != _APPLICATION_ID:
        connection.close()
        raise LedgerError("The file is not a ledger of dpcore.")
    if version != _VERSION:
        connection.close()
        raise LedgerError("The ledger was written by a newer version of dpcore.")
    return connection


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    """SQLite's and the disk's troubles as one exception: whatever happens, nothing is released."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        text = str(error)
        if "not a database" in text or "malformed" in text or "no such table" in text:
            raise LedgerError("The file is not a ledger of dpcore, or is damaged.") from error
        raise LedgerError(
            f"The ledger cannot be written ({text}); nothing was released."
        ) from error
    except OSError as error:
        if isinstance(error, LedgerError):
            raise
        raise LedgerError(
            f"The ledger cannot be opened ({error.strerror}); nothing was released."
        ) from error


def _name(ids: tuple[int | str | bytes, ...]) -> str:
    if not ids or any(
        isinstance(item, bool) or not isinstance(item, int | str | bytes) for item in ids
    ):
        raise ParameterError("The 'ids' parameter must consist of integers, strings and bytes.")
    return json.dumps([item.hex() + "h" if isinstance(item, bytes) else item for item in ids])


def _check_events(event: Any) -> list[Event]:
    events = list(event) if isinstance(event, list | tuple) else [event]
    if not events or not all(isinstance(each, Event) for each in events):
        raise ParameterError(
            "The 'event' parameter must be an event of dpcore.accounting, or several in a list."
        )
    return events


def _check_parts(parts: Any) -> list[str]:
    named = [tuple(check_list(part, "parts")) for part in check_list(parts, "parts")]
    if not named:
        raise ParameterError("The 'parts' parameter must name at least one part.")
    return [_name(part) for part in named]


def _names(fingerprint: str | None, n: int) -> list[str | None]:
    """What the entries of a release of n events are found by."""
    if fingerprint is None:
        return [None] * n
    return [fingerprint, *(f"{fingerprint}{_SEPARATOR}{i}" for i in range(1, n))]


def _charged(connection: sqlite3.Connection, fingerprint: str) -> list[tuple[str, str, str | None]]:
    """(event, part, key) of the entries of a release, in order; none if it is not there."""
    # The first text after all that begin with the fingerprint and the separator.
    end = fingerprint + chr(ord(_SEPARATOR) + 1)
    return connection.execute(
        "SELECT event, part, key FROM entries WHERE fingerprint = ? OR "
        "(fingerprint > ? AND fingerprint < ?) ORDER BY id",
        (fingerprint, fingerprint + _SEPARATOR, end),
    ).fetchall()


def _drawn(connection: sqlite3.Connection, key: str) -> bool:
    found = connection.execute("SELECT 1 FROM entries WHERE key = ? LIMIT 1", (key,))
    return found.fetchone() is not None


def _load(connection: sqlite3.Connection, part: str) -> Composition:
    row = connection.execute("SELECT state FROM totals WHERE part = ?", (part,)).fetchone()
    return _parse(row and row[0])


def _parse(state: str | None) -> Composition:
    if state is None:
        return Composition()
    values = json.loads(state)
    values["sampled"] = {(m, q): count for m, q, count in values["sampled"]}
    return Composition(**values)


def _dump(total: Composition) -> str:
    values = vars(total) | {"sampled": [[m, q, c] for (m, q), c in total.sampled.items()]}
    return json.dumps(values)


def _reopen(path: str, durability: str, allow_insecure: bool) -> Ledger:
    return Ledger(path, durability=durability, allow_insecure=allow_insecure)
