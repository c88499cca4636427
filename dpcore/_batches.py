"""Batches of nodes in a ledger: charged once, and never drawn twice."""

from __future__ import annotations

from collections.abc import Iterable

from dpcore._charge import ledger_in_force
from dpcore._events import PureEvent
from dpcore.errors import RepeatedReleaseError
from dpcore.noise import Noise

__all__ = ["ReleaseRegister", "reserve_batches"]


class ReleaseRegister:
    """Remembers which batches of which nodes were released, and refuses a second draw.

    Every new batch is new data; an old one drawn again under fresh noise would cost again.

    Privacy
    -------
    Holds names of nodes and numbers of batches, no data. It forgets with the process: only a ledger
    refuses a second draw in a later one.

    Cost
    ----
    One entry in memory for every batch claimed; a claim takes time in proportion to its batches.

    Examples
    --------
    >>> register = ReleaseRegister()
    >>> register.claim("node 7", [0, 1], "five bins")
    >>> register.claim("node 7", [1, 2], "five bins")
    Traceback (most recent call last):
        ...
    dpcore_ext.errors.RepeatedReleaseError: A batch of this node was released before.
    """

    def __init__(self) -> None:
        self._drawn: set[tuple[int | str | bytes, int, str]] = set()

    def claim(self, node: int | str | bytes, slots: Iterable[int], scheme: str) -> None:
        """Take note of a release, or raise `RepeatedReleaseError` and take note of nothing."""
        asked = {(node, int(slot), scheme) for slot in slots}
        if asked & self._drawn:
            raise RepeatedReleaseError("A batch of this node was released before.")
        self._drawn |= asked


def reserve_batches(
    source: Noise,
    event: PureEvent,
    slots: list[int],
    *,
    node: int | str | bytes,
    scheme: str,
    period: str,
) -> Noise:
    """The stream of a node's batches, once they are entered in the ledger in force, if any.

    The node's period is charged once for every scheme and event, however many calls its batches
    take: those of one scheme share no reading. Every batch is entered so that it cannot be drawn
    again. Batches of different schemes may overlap in time, so they cannot be parts by themselves:
    the entries of single batches stand beside the charge, each the only one of its part.
    """
    pinned = source if source.pinned else source.release("label counts")
    stream = pinned.stream(node, scheme, period)
    ledger = ledger_in_force()
    if ledger is None or source.is_prepaid:
        return stream
    repeat = "same" if source.pinned else "raise"
    for slot in slots:
        ledger.keyed("label counts", node, scheme, slot, noise=stream, repeat=repeat)
    with ledger.part("readings", node, period):
        # Named by what is charged, not by the noise: later batches come with noise of their own.
        name = ledger.keyed(
            "label counts", node, period, scheme, event.to_json(), noise=stream, repeat="same"
        ).claim
        ledger.charge(event, fingerprint=name, claim=name)
    for slot in slots:
        with ledger.part("batch", node, scheme, slot):
            ledger.reserve(
                event, noise=stream, key=("label counts", node, scheme, slot), repeat=repeat
            )
    return stream.for_ledger(prepaid=True)
