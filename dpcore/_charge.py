"""The ledgers in force, and the one door through which every release passes."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, Protocol

from dpcore.noise import Noise
from dpcore_ext.rng import Key

__all__ = ["Activation", "ledger_in_force", "open_release", "paid_elsewhere", "prepay"]


# Processes that are started inside of ``with ledger:`` and import dpcore anew find it by these.
PATH = "DPCORE_LEDGER"
DURABILITY = "DPCORE_LEDGER_DURABILITY"


class _Charging(Protocol):
    path: Path
    durability: str

    def admit(self, source: Noise) -> None: ...
    def charge(
        self, event: Any, *, fingerprint: str | None = None, claim: str | None = None
    ) -> None: ...


# For the whole process: a release in another thread must not escape the ledger around it.
_lock = threading.Lock()
_active: list[_Charging] = []
_before: dict[str, str | None] = {}
_exempt = threading.local()


class Activation:
    """Puts a ledger in force as often as it is entered, and takes it out as often."""

    def __init__(self, ledger: _Charging) -> None:
        self._ledger = ledger

    def begin(self) -> None:
        with _lock:
            if not _active:
                _before.update({name: os.environ.get(name) for name in (PATH, DURABILITY)})
            _active.append(self._ledger)
            _tell_children()

    def end(self) -> None:
        with _lock:
            last = max(i for i, ledger in enumerate(_active) if ledger is self._ledger)
            del _active[last]
            _tell_children()


def _tell_children() -> None:
    """Name the innermost ledger in the environment, or what was named there before."""
    if _active:
        ledger = _active[-1]
        os.environ |= {PATH: str(ledger.path.absolute()), DURABILITY: ledger.durability}
        return
    for name, value in _before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def ledger_in_force() -> Any:
    """The innermost ledger in force, or None."""
    if getattr(_exempt, "active", False):
        return None
    with _lock:
        if _active:
            return _active[-1]
    path = os.environ.get(PATH)
    return _inherited(path, os.environ.get(DURABILITY, "process")) if path else None


@contextmanager
def paid_elsewhere() -> Iterator[None]:
    """Releases of this thread inside were charged by whoever sent the work here."""
    before = getattr(_exempt, "active", False)
    _exempt.active = True
    try:
        yield
    finally:
        _exempt.active = before


@lru_cache(maxsize=1)
def _inherited(path: str, durability: str) -> Any:
    from dpcore.accounting.ledger import Ledger  # which uses this module
    from dpcore.errors import LedgerError

    if not Path(path).exists():
        raise LedgerError(f"The ledger that {PATH} names is not there; nothing was released.")
    return Ledger(path, durability=durability)


def open_release(source: Noise, event: Any, purpose: str, *parameters: int | str | bytes) -> Key:
    """The key of a release, once its cost is reserved on the innermost ledger in force, if any.

    A release on a pinned stream is known by its purpose and parameters: made again, or in chunks,
    it has the same noise and is charged once.
    """
    _charge(event, source, purpose, *parameters)
    return source.key_for(purpose, *parameters)


def prepay(
    source: Noise, event: Any | Sequence[Any], purpose: str, *parameters: int | str | bytes
) -> Noise:
    """The source, once everything that the caller draws from it is reserved.

    Where that is several events, they are reserved together or not at all.
    """
    _charge(event, source, purpose, *parameters)
    return source.for_ledger(claim=source.claim, prepaid=True)


def _charge(event: Any, source: Noise, purpose: str, *parameters: int | str | bytes) -> None:
    if source.is_prepaid:
        return
    ledger = ledger_in_force()
    if ledger is None:
        return
    ledger.admit(source)
    fingerprint = source.fingerprint(purpose, *parameters) if source.pinned else None
    ledger.charge(event, fingerprint=fingerprint, claim=source.claim)
