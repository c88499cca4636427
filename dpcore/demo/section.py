"""What a part of the demonstration hands over, and the bar that shows how far it is."""

from __future__ import annotations

import importlib.util
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from dpcore.accounting import Ledger, Privacy
from dpcore.accounting.report import table

__all__ = ["Context", "Figure", "Part", "Quality", "Section", "missing_packages"]

_BAR = 24
_LEDGER_LINES = 6
_LEDGER_WIDTH = 88


@dataclass(frozen=True)
class Quality:
    """One line of the summary: how good without privacy, with it, and without learning at all."""

    what: str
    plain: float
    private: float
    naive: float
    naive_name: str
    higher_is_better: bool = True
    form: str = "{:.1%}"

    def cells(self) -> tuple[str, str, str]:
        """The three numbers as text."""
        plain, private, naive = map(self.form.format, (self.plain, self.private, self.naive))
        return plain, private, f"{naive} ({self.naive_name})"


@dataclass(frozen=True)
class Figure:
    """A picture (an SVG document) and the sentence that says what it shows."""

    svg: bytes
    title: str
    caption: str


@dataclass
class Section:
    """One system of the demonstration."""

    key: str
    title: str
    lead: str
    code: str = ""
    quality: list[Quality] = field(default_factory=list)
    facts: list[str] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    spent: tuple[float, float] | None = None
    unit: str = ""
    not_covered: tuple[str, ...] = ()
    ledger: str = ""
    output: str = ""
    skipped: str = ""
    seconds: float = 0.0

    def charge(self, ledger: Ledger, privacy: Privacy) -> None:
        """Take over what the ledger was charged, and what the guarantee leaves open."""
        self.spent, self.ledger = ledger.spent, _shortened(table(ledger).splitlines())
        self.not_covered = privacy.not_covered
        self.unit = f"one {privacy.unit} ({privacy.adjacency})"

    @property
    def loss(self) -> str:
        """Epsilon, and delta where it is not 0."""
        if self.spent is None:
            return ""
        epsilon, delta = self.spent
        return f"{epsilon:.3g}" + (f" (delta {delta:.0e})" if delta else "")


@dataclass(frozen=True)
class Part:
    """A part: what it is called, what it imports, and the function that runs it."""

    key: str
    title: str
    needs: tuple[str, ...]
    run: Callable[[Context], Section]


@dataclass
class Context:
    """What a part is given: its size, a folder for its ledger, and a way to report progress."""

    folder: Path
    quick: bool
    plots: bool
    stream: TextIO = field(default_factory=lambda: sys.stderr)
    _title: str = ""
    _begin: float = 0.0

    def ledger(self, key: str, epsilon: float, delta: float = 0.0) -> Ledger:
        """A new ledger of the part, in a file."""
        return Ledger(self.folder / f"{key}.sqlite", epsilon=epsilon, delta=delta)

    def begin(self, title: str) -> None:
        self._title, self._begin = title, time.perf_counter()
        self.step(0, 1, "")

    def step(self, done: int, total: int, text: str) -> None:
        """Show how far the part is, where somebody watches."""
        if self.stream.isatty():
            full = _BAR * done // total
            bar = "#" * full + "." * (_BAR - full)
            self.stream.write(f"\r\033[K[{bar}] {self._title}{': ' if text else ''}{text}")
            self.stream.flush()

    def end(self, text: str = "") -> float:
        """Finish the bar; the seconds since `begin`."""
        taken = time.perf_counter() - self._begin
        clear = "\r\033[K" if self.stream.isatty() else ""
        shown = text or f"[{'#' * _BAR}] {self._title}, {taken:.1f} s"
        self.stream.write(f"{clear}{shown}\n")
        self.stream.flush()
        return taken


def _shortened(lines: list[str]) -> str:
    """The head of a ledger's table and its totals: a network has an entry for every batch."""
    entries, totals = lines[:-3], lines[-3:]
    left_out = len(entries) - 1 - _LEDGER_LINES
    if left_out > 0:
        entries = [*entries[: 1 + _LEDGER_LINES], f"... and {left_out:,} lines more"]
    return "\n".join([*(line[:_LEDGER_WIDTH].rstrip() for line in entries), *totals])


def missing_packages(names: tuple[str, ...]) -> list[str]:
    """Those that cannot be imported."""
    return [name for name in names if importlib.util.find_spec(name) is None]
