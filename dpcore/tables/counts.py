"""What a server keeps of a privatised table: a few numbers per column, which add up."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from dpcore.errors import ParameterError, WireFormatError

__all__ = ["Counts"]


@dataclass(frozen=True, eq=False)
class Counts:
    """How often every code was reported in every column; counts of parts of a table add up.

    `TablePlan.count` makes them, ``+`` and `sum` join them in any order, `TablePlan.estimate` reads
    them. They can be pickled or sent as text, and take some hundred bytes per column, however long
    the table was.

    Attributes
    ----------
    digest : str
        That of the plan.
    n_rows : int
    codes : tuple of ndarray of int64
        By column: reports of every code, or set bits of every category for reports made of bits.
    reported : tuple of int
        By column: rows that report it.
    private : bool
        False where some noise was insecure.

    Privacy
    -------
    Post-processing of the reports.

    Cost
    ----
    8 bytes per code or category of every column; a sum takes one addition for each.
    """

    digest: str
    n_rows: int
    codes: tuple[npt.NDArray[np.int64], ...]
    reported: tuple[int, ...]
    private: bool = True

    def to_json(self) -> str:
        """The counts as a text that `from_json` reads, for engines that carry no objects."""
        return json.dumps({**vars(self), "codes": [own.tolist() for own in self.codes]})

    @staticmethod
    def from_json(text: str) -> Counts:
        """The counts of a text that `to_json` gave."""
        try:
            facts = json.loads(text)
            lists = facts.pop("codes")
            numbers = [facts["n_rows"], *facts["reported"], *chain.from_iterable(lists)]
            if not all(type(number) is int and number >= 0 for number in numbers):
                raise ValueError
            codes = tuple(np.array(own, np.int64) for own in lists)
            made = Counts(codes=codes, reported=tuple(facts.pop("reported")), **facts)
            if len(codes) != len(made.reported) or type(made.private) is not bool:
                raise ValueError
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
            raise WireFormatError("The text must be counts of a table.") from None
        return made

    def __add__(self, other: Any) -> Counts:
        if not isinstance(other, Counts):
            return NotImplemented
        if other.digest != self.digest or other._sizes != self._sizes:
            raise ParameterError("The counts to add must be of one plan.")
        return Counts(
            self.digest,
            self.n_rows + other.n_rows,
            tuple(a + b for a, b in zip(self.codes, other.codes, strict=True)),
            tuple(a + b for a, b in zip(self.reported, other.reported, strict=True)),
            self.private and other.private,
        )

    @property
    def _sizes(self) -> list[int]:
        return [len(own) for own in self.codes]

    def __radd__(self, other: Any) -> Counts:
        """So that the built-in `sum` works without a start."""
        return self if isinstance(other, int) and other == 0 else NotImplemented

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Counts) and (
            (self.digest, self.n_rows, self.reported, self.private)
            == (other.digest, other.n_rows, other.reported, other.private)
            and self._sizes == other._sizes
            and all(np.array_equal(a, b) for a, b in zip(self.codes, other.codes, strict=True))
        )

    __hash__ = None  # type: ignore[assignment]
