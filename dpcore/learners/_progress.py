"""A bar on standard error for training that takes its time."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from typing import TypeVar

__all__ = ["progress_bar"]

Item = TypeVar("Item")

_WIDTH = 30
_PERIOD = 0.1  # seconds between two drawings


def progress_bar(items: Sequence[Item], unit: str, *, show: bool) -> Iterator[Item]:
    """The items, with a bar on standard error while they last; `unit` is what they are called."""
    total = len(items)
    begin = drawn = time.monotonic()
    for done, item in enumerate(items, 1):
        yield item
        now = time.monotonic()
        if show and (now - drawn > _PERIOD or done == total):
            drawn = now
            full = _WIDTH * done // total
            bar = "#" * full + "." * (_WIDTH - full)
            sys.stderr.write(f"\r[{bar}] {done}/{total} {unit}, {now - begin:.1f} s")
            sys.stderr.flush()
    if show:
        sys.stderr.write("\n")
