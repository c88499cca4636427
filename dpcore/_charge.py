"""The ledgers in force, and the one door through which every release passes."""

from __future__ import annotations

import threading
from typing import Any, Protocol

from dpcore.noise import Noise
from dpcore_ext.rng import Key

__all__ = ["Activation", "ledger_in_force", "open_release", "prepay"]


class _Charging(Protocol):
    def admit(self, source: Noise) -> None: ...
    def charge(
        self, event: Any, *, fingerprint: str | None = None, claim: str | None = None
    ) -> None: ...


# For the whole process: a release in another thread must not escape the ledger around it.
_lock = threading.Lock()
_active: list[_Charging] = []


class Activation:
    """Puts a ledger in force as often as it is entered, and takes it out as often."""

    def __init__(self, ledger: _Charging) -> None:
        self._ledger = ledger

    def begin(self) -> None:
        with _lock:
            _active.append(self._ledger)

    def end(self) -> None:
        with _lock:
            last = max(i for i, ledger in enumerate(_active) if ledger is self._ledger)
            del _active[last]


def ledger_in_force() -> Any:
    """The innermost ledger in force, or None: for releases that charge parts of the data."""
    with _lock:
        return _active[-1] if _active else None


def open_release(source: Noise, event: Any, purpose: str, *parameters: int | str | bytes) -> Key:
    """The key of a release, once its cost is reserved on the innermost ledger in force, if any.

    A release on a pinned stream is known by its purpose and parameters: made again, or in chunks,
    it has the same noise and is charged once.
    """
    _charge(event, source, purpose, *parameters)
    return source.key_for(purpose, *parameters)


def prepay(source: Noise, event: Any, purpose: str, *parameters: int | str | bytes) -> Noise:
    """The source, once one event is reserved for everything that the caller draws from it."""
    _charge(event, source, purpose, *parameters)
    return source.for_ledger(claim=source.claim, prepaid=True)


def _charge(event: Any, source: Noise, purpose: str, *parameters: int | str | bytes) -> None:
    if not _active or source.is_prepaid:
        return
    ledger = _active[-1]
    ledger.admit(source)
    fingerprint = source.fingerprint(purpose, *parameters) if source.pinned else None
    ledger.charge(event, fingerprint=fingerprint, claim=source.claim)
