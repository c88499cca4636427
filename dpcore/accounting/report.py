"""A ledger as a table for people."""

from __future__ import annotations

import time
from itertools import groupby
from typing import TYPE_CHECKING

from dpcore._events import Event, GaussianEvent, PureEvent, SampledGaussianEvent, ZCDPEvent

if TYPE_CHECKING:
    from dpcore.accounting.ledger import Entry, Ledger

__all__ = ["table"]


def table(ledger: Ledger) -> str:
    """Lines for the entries, equal neighbours together, and the total."""
    rows: list[tuple[str, ...]] = [
        ("entries", "first", "mechanism", "cost of one", "runs", "part", "key")
    ]
    for _, group in groupby(ledger.entries, key=_alike):
        rows.append(_row(list(group)))
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) for row in rows]
    loss, chance = ledger.spent
    left = max(0.0, ledger.epsilon - loss)
    rest = f"epsilon {left:.6g} left" if left > 1e-9 * ledger.epsilon else "nothing left"
    lines += [
        "",
        f"spent   epsilon {loss:.6g}, delta {chance:.3g}",
        f"budget  epsilon {ledger.epsilon:.6g}, delta {ledger.delta:.3g} ({rest})",
    ]
    return "\n".join(line.rstrip() for line in lines)


def _alike(entry: Entry) -> tuple[Event, str, str | None]:
    return entry.event, entry.part, entry.key


def _row(group: list[Entry]) -> tuple[str, ...]:
    first, last, event = group[0], group[-1], group[0].event
    numbers = str(first.number) if first is last else f"{first.number}-{last.number}"
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(first.time))
    runs = event.count * len(group)
    return numbers, when, event.mechanism, _cost(event), str(runs), first.part, first.key or ""


def _cost(event: Event) -> str:
    relation = "" if event.adjacency is None else f", {event.adjacency}"
    if isinstance(event, PureEvent):
        return f"epsilon {event.epsilon:.6g}{relation}"
    if isinstance(event, SampledGaussianEvent):
        return f"sigma {event.noise_multiplier:.6g}, rate {event.sampling_rate:.4g}{relation}"
    if isinstance(event, GaussianEvent):
        return f"sigma {event.noise_multiplier:.6g}{relation}"
    if isinstance(event, ZCDPEvent):
        return f"rho {event.rho:.6g}{relation}"
    return event.kind
