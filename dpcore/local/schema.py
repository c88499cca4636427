"""The attributes of a device's record, as the collector and the devices agree on them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from dpcore._checks import check_list, exact
from dpcore.errors import DataError, ParameterError
from dpcore.local.categorical import check_n_categories

__all__ = ["Attribute", "Categorical", "Numeric", "check_schema"]

MAX_ATTRIBUTES = 1 << 16


@dataclass(frozen=True)
class Numeric:
    """A number with public bounds; values outside count as the nearer bound.

    Privacy
    -------
    Name and bounds are public: never computed from the values to be protected. That a value is not
    finite raises, and is not protected.

    Cost
    ----
    Two numbers; to put a column on the scale from -1 to 1 takes one pass and a copy.
    """

    name: str
    lower: float
    upper: float

    def __post_init__(self) -> None:
        _check_name(self.name)
        low, high = float(exact(self.lower, "lower")), float(exact(self.upper, "upper"))
        if not low < high or not math.isfinite(high - low):
            raise ParameterError("The 'upper' parameter must be greater than 'lower'.")
        object.__setattr__(self, "lower", low)
        object.__setattr__(self, "upper", high)

    @property
    def centre(self) -> float:
        return self.lower + self.half_width

    @property
    def half_width(self) -> float:
        return (self.upper - self.lower) / 2

    def to_numbers(self, column: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """The values on the scale from -1 to 1."""
        if column.dtype.kind not in "iuf" or column.dtype.itemsize > 8:
            raise ParameterError("The 'columns' parameter must be of a number dtype where numeric.")
        if not np.isfinite(column).all():
            raise DataError("The 'columns' parameter must hold finite numbers only.")
        values = np.clip(column.astype(np.float64), self.lower, self.upper)
        return np.asarray((values - self.centre) / self.half_width)


@dataclass(frozen=True)
class Categorical:
    """One of a public list of categories: strings or integers, or a number n for 0, ..., n - 1.

    Privacy
    -------
    Name and categories are public: never collected from the values to be protected. That a value is
    not on the list raises, and is not protected.

    Cost
    ----
    Memory for the list, which is sorted once; then a binary search per value.
    """

    name: str
    categories: int | Sequence[str] | Sequence[int]
    labels: tuple[str, ...] | tuple[int, ...] | range = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check_name(self.name)
        given = self.categories
        if isinstance(given, int | np.integer):
            labels: Any = range(check_n_categories(given))
            object.__setattr__(self, "categories", int(given))
        else:
            items = check_list(given, "categories")
            labels = tuple(i.item() if isinstance(i, np.generic) else i for i in items)
            kinds = {str if isinstance(item, str) else int for item in labels}
            whole = all(isinstance(i, str | int) and not isinstance(i, bool) for i in labels)
            if len(kinds) != 1 or not whole:
                raise ParameterError(
                    "The 'categories' parameter must be a list of strings or of integers."
                )
            if len(set(labels)) != len(labels):
                raise ParameterError("The 'categories' parameter must not repeat a category.")
            check_n_categories(len(labels))
            object.__setattr__(self, "categories", labels)
        object.__setattr__(self, "labels", labels)

    def to_numbers(self, column: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """The positions of the values in the list."""
        known, order = self._sorted
        textual = known.dtype.kind == "U"
        if column.dtype.kind == "O":
            column = column.astype(str) if textual else column
        if column.dtype.kind not in ("U" if textual else "iuf"):
            raise ParameterError(
                "The 'columns' parameter must be of the kind of the list where categorical."
            )
        place = np.minimum(np.searchsorted(known, column), len(known) - 1)
        if not (known[place] == column).all():
            raise DataError("The 'columns' parameter must hold listed categories only.")
        return order[place].astype(np.float64)

    @cached_property
    def _sorted(self) -> tuple[npt.NDArray[Any], npt.NDArray[np.intp]]:
        labels = np.array(self.labels)
        order = np.argsort(labels)
        return labels[order], order


Attribute = Numeric | Categorical


def _check_name(name: Any) -> None:
    if not isinstance(name, str) or not name:
        raise ParameterError("The 'name' parameter must be a string that is not empty.")


def check_schema(schema: Any) -> tuple[Attribute, ...]:
    try:
        attributes = tuple(schema)
    except TypeError:
        attributes = ()
    if not 1 <= len(attributes) <= MAX_ATTRIBUTES or not all(
        isinstance(attribute, Numeric | Categorical) for attribute in attributes
    ):
        raise ParameterError("The 'schema' parameter must be a list of Numeric and Categorical.")
    if len({attribute.name for attribute in attributes}) != len(attributes):
        raise ParameterError("The 'schema' parameter must not repeat a name.")
    return attributes
