"""Rows and rows per second on a terminal, and nothing anywhere else."""

from __future__ import annotations

import sys
import time

__all__ = ["Meter"]

_EVERY = 0.2  # seconds
_WIDTH = 30


class Meter:
    """A line on stderr that says how far a file is, and what it took in the end."""

    def __init__(self) -> None:
        self.rows = 0
        self._before = 0
        self._begin = self._shown = time.monotonic()
        self._name = ""

    def file(self, name: str) -> None:
        """Begin with another file."""
        self._name, self._before = name, self.rows

    def __call__(self, done: int, total: int | None) -> None:
        self.rows = self._before + done
        now = time.monotonic()
        if not sys.stderr.isatty() or now - self._shown < _EVERY:
            return
        self._shown = now
        bar = ""
        if total:
            full = _WIDTH * done // total
            bar = f" [{'#' * full}{'.' * (_WIDTH - full)}] {100 * done // total} %"
        print(f"\r\033[K{self._name}{bar} {self._speed()}", end="", file=sys.stderr, flush=True)

    def finish(self) -> str:
        """Clear the line; what was done."""
        if sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr)
        return f"{self._speed()} in {time.monotonic() - self._begin:.1f} s"

    def _speed(self) -> str:
        speed = self.rows / max(time.monotonic() - self._begin, 1e-9)
        shown = f"{speed / 1e6:.3g} M" if speed >= 1e6 else f"{speed:,.0f}"
        return f"{self.rows} rows, {shown} rows/s"
