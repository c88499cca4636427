"""What happened round by round, and a plot of it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from dpcore.errors import ParameterError

__all__ = ["History"]


class History:
    """Numbers recorded in every round, by name.

    Attributes
    ----------
    columns : dict of str to list
        One list per quantity, one entry per round; NaN where a quantity was not measured.

    Privacy
    -------
    Participants, bytes, times, steps and what is measured on a validation set follow from public
    and released values. Quantities that read private data are recorded only where a learner was
    asked for diagnostics, and are then not covered by its guarantee.

    Cost
    ----
    One entry for each quantity and round, and a step for each quantity when a round is added.

    Examples
    --------
    >>> history = History()
    >>> history.add(participants=3, step=0.5)
    >>> history["step"], len(history)
    ([0.5], 1)
    """

    def __init__(self) -> None:
        self.columns: dict[str, list[Any]] = {}
        self._length = 0

    def add(self, **values: Any) -> None:
        """Record one round."""
        for name in values:
            self.columns.setdefault(name, [math.nan] * self._length)
        for name, column in self.columns.items():
            column.append(values.get(name, math.nan))
        self._length += 1

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, name: str) -> list[Any]:
        return self.columns[name]

    def __contains__(self, name: object) -> bool:
        return name in self.columns

    def plot(self, names: Iterable[str] | None = None, *, axes: Any = None) -> Any:
        """One panel per quantity against the round; needs matplotlib.

        Parameters
        ----------
        names : iterable of str, optional
            Which quantities; all by default.
        axes : array of matplotlib axes, optional
            Where to draw, one for each.

        Returns
        -------
        array of matplotlib axes
        """
        chosen = list(self.columns if names is None else names)
        if not chosen or any(name not in self.columns for name in chosen):
            raise ParameterError("The 'names' parameter must name quantities of this history.")
        if axes is None:
            from matplotlib.figure import Figure

            figure = Figure(figsize=(6.0, 1.8 * len(chosen)), layout="constrained")
            axes = figure.subplots(len(chosen), 1, sharex=True, squeeze=False)[:, 0]
        for axis, name in zip(axes, chosen, strict=True):
            axis.plot(range(1, self._length + 1), self.columns[name])
            axis.set_ylabel(name.replace("_", " "))
        axes[-1].set_xlabel("round")
        return axes

    def __repr__(self) -> str:
        return f"<History: {self._length} rounds of {', '.join(self.columns) or 'nothing'}>"
