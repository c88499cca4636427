"""What a fitted learner or a finished release says about its privacy."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dpcore._events import Event
from dpcore.accounting.composition import compose

__all__ = ["Privacy"]


@dataclass(frozen=True)
class Privacy:
    """A guarantee, what it was computed from, and what it does not cover.

    Attributes
    ----------
    epsilon, delta : float
        The guarantee of everything together.
    unit : str
        What is protected: one "record", "user", "reading", ...
    adjacency : {"replace", "add-remove", "local"} or None
        The neighbouring relation.
    events : tuple of Event
        What was released.
    not_covered : tuple of str
        What the guarantee does not protect.
    private : bool
        False where insecure noise was used: then nobody is protected.

    Privacy
    -------
    A statement about releases, computed from their public parameters and rounded up; no data are
    read. It covers the events listed and nothing that was released besides.

    Cost
    ----
    That of `compose` and `Composition.epsilon` for `of`; the events are kept, not copied.

    Examples
    --------
    >>> from dpcore.accounting import PureEvent
    >>> event = PureEvent(mechanism="histogram", epsilon=0.5, adjacency="replace", unit="reading")
    >>> print(Privacy.of([event], not_covered=["the number of readings"]))
    0.5-DP for one reading (replace). Not covered: the number of readings.
    """

    epsilon: float
    delta: float
    unit: str
    adjacency: str | None
    events: tuple[Event, ...] = ()
    not_covered: tuple[str, ...] = ()
    private: bool = True

    @staticmethod
    def of(
        events: Iterable[Event],
        delta: float = 0.0,
        *,
        not_covered: Iterable[str] = (),
        private: bool = True,
    ) -> Privacy:
        """The guarantee of the events together, at the given delta."""
        listed = tuple(events)
        total = compose(listed)
        loss = total.epsilon(delta)
        kept = 0.0 if total.is_pure and loss == total.pure else float(delta)
        return Privacy(
            loss, kept, total.unit or "record", total.adjacency, listed, tuple(not_covered), private
        )

    def __str__(self) -> str:
        loss = f"{self.epsilon:.6g}"
        loss = loss if self.delta == 0 else f"({loss}, {self.delta:.3g})"
        text = f"{loss}-DP for one {self.unit} ({self.adjacency or 'as the sensitivity states'})."
        if not self.private:
            text = f"Not private, insecure noise was used; with secure noise: {text}"
        if self.not_covered:
            text += f" Not covered: {'; '.join(self.not_covered)}."
        return text
