"""Processes of Flower: one of a kind for a folder, and none that outlives who started it."""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from pathlib import Path

from dpcore.errors import RefusedError

__all__ = ["Place", "Process"]

_END_SECONDS = 10.0
_PR_SET_PDEATHSIG = 1
_PROC = Path("/proc")
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


class Place:
    """A folder in which one process of a kind runs at a time, with all that it starts.

    A file with the number of the process is locked for as long as the launcher lives. Whoever gets
    the lock finds there what the last launcher left behind when it was killed, and ends it. The
    time at which a process began, and the boot, tell it from a later one with its number. Systems
    without ``/proc`` have no such record: there a killed launcher's processes are for its user to
    end.
    """

    def __init__(self, folder: Path, kind: str) -> None:
        self.log = folder / f"{kind}.log"
        self._record = (folder / f"{kind}.pid").open("a+b", buffering=0)
        try:
            fcntl.flock(self._record, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._record.close()
            raise RefusedError("Another process runs with this folder.") from None
        self._record.seek(0)
        number, _, mark = self._record.read().decode(errors="replace").partition(" ")
        if number.isdecimal() and mark and mark == _mark(int(number)):
            _end(_family(int(number)))

    def start(self, command: Sequence[str], variables: Mapping[str, str]) -> Process:
        process = Process(command, self.log, variables)
        self._record.truncate(0)
        self._record.write(f"{process.popen.pid} {_mark(process.popen.pid)}".encode())
        return process

    def leave(self) -> None:
        """Let another launcher in, after the process was stopped."""
        self._record.close()


class Process:
    """A process of Flower with a session of its own, so that an interrupt is for its launcher."""

    def __init__(self, command: Sequence[str], log: Path, variables: Mapping[str, str]) -> None:
        with log.open("ab") as file:
            self.popen = subprocess.Popen(
                command,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=dict(variables),
                start_new_session=True,
                preexec_fn=None if _LIBC is None else partial(_die_with, os.getpid()),
            )

    def stop(self) -> None:
        """End it and what it started; Flower starts some of that in sessions of their own."""
        if self.popen.poll() is not None:
            return
        family = _family(self.popen.pid)
        self.popen.terminate()
        try:
            self.popen.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()
        _end(family)


def _die_with(parent: int) -> None:
    """In the new process: be asked to end when the launcher is gone, however it went."""
    assert _LIBC is not None
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        os._exit(1)


def _stat(number: int) -> list[str]:
    """State, parent and more of a process that runs; nothing of one that ended."""
    try:
        fields = (_PROC / str(number) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
    return [] if fields[0] in "ZX" else fields


def _mark(number: int) -> str:
    """What a process has that no other one with its number has: its boot, and when it began."""
    fields = _stat(number)
    return f"{_boot()} {fields[19]}" if fields else ""


@cache
def _boot() -> str:
    return (_PROC / "sys/kernel/random/boot_id").read_text().strip()


def _family(number: int) -> dict[int, str]:
    """A process and all that descend from it, with their marks."""
    children: dict[int, list[int]] = {}
    with suppress(OSError):
        for name in os.listdir(_PROC):
            if name.isdecimal() and (fields := _stat(int(name))):
                children.setdefault(int(fields[1]), []).append(int(name))
    found = [number]
    for one in found:
        found += children.get(one, [])
    return {one: mark for one in found if (mark := _mark(one))}


def _end(processes: Mapping[int, str]) -> None:
    """Ask processes to end, and make those end that do not."""
    for request in (signal.SIGTERM, signal.SIGKILL):
        for number in _left(processes):
            with suppress(ProcessLookupError):
                os.kill(number, request)
        end = time.monotonic() + _END_SECONDS
        while _left(processes) and time.monotonic() < end:
            time.sleep(0.05)


def _left(processes: Mapping[int, str]) -> list[int]:
    return [number for number, mark in processes.items() if _mark(number) == mark]
