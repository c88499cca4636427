"""What a prototype learner takes as public: classes and ranges, and how loudly it says so."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt

from dpcore._checks import check_array, check_labels, check_list
from dpcore.errors import DataError, ParameterError
from dpcore.learners._public import InferredPublicWarning, warn_inferred

__all__ = [
    "InferredPublicWarning",
    "Scale",
    "check_bounds",
    "encode_labels",
    "resolve_bounds",
    "resolve_classes",
    "sorted_classes",
    "tidy_labels",
]

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Scale:
    """The map from public ranges to [-1, 1]; a constant feature goes to 0.

    A range that is too narrow to be halved in the dtype of the data is constant as well.
    """

    lower: npt.NDArray[np.float64]
    upper: npt.NDArray[np.float64]

    @property
    def half(self) -> npt.NDArray[np.float64]:
        half = (self.upper - self.lower) / 2
        return np.where(half > 0, half, 1.0)

    @property
    def middle(self) -> npt.NDArray[np.float64]:
        return self.lower + (self.upper - self.lower) / 2

    def fits(self, dtype: npt.DTypeLike) -> bool:
        """Whether bounds, and prototypes that noise moves out of them, are finite in this dtype."""
        with np.errstate(over="ignore"):
            sides = self.lower.astype(dtype), self.upper.astype(dtype)
            return bool(np.isfinite([*sides, 2 * (sides[1] - sides[0])]).all())

    def apply(self, x: Array) -> Array:
        """x clamped and scaled, in the dtype of x."""
        lower, upper = self.lower.astype(x.dtype), self.upper.astype(x.dtype)
        half = self.half.astype(x.dtype)
        unit = np.clip(x, lower, upper)
        unit -= self.middle.astype(x.dtype)
        unit /= np.where(half > 0, half, 1)
        return np.asarray(np.clip(unit, -1, 1, out=unit))

    def invert(self, unit: Array) -> npt.NDArray[np.float64]:
        """Points on the scale from -1 to 1 in the units of the features."""
        return np.asarray(unit * self.half + self.middle, dtype=np.float64)


def resolve_bounds(
    bounds: Any, x: Array, *, loud: bool, names: Any = None
) -> tuple[Scale, tuple[str, ...]]:
    """The public ranges, or those of the data with a warning; and what is then not covered."""
    if bounds is None:
        if loud:
            warn_inferred("bounds", "the range of every feature")
        scale = Scale(x.min(axis=0).astype(np.float64), x.max(axis=0).astype(np.float64))
        if not scale.fits(x.dtype):
            raise DataError("The 'X' parameter must hold values whose differences are finite.")
        return scale, ("the smallest and the largest value of every feature: 'bounds' was missing",)
    scale = check_bounds(bounds, x.shape[1], names)
    if not scale.fits(x.dtype):
        raise ParameterError(
            "The 'bounds' parameter must be within reach of the dtype of the data, and so must "
            "2 (upper - lower)."
        )
    return scale, ()


def check_bounds(bounds: Any, d: int, names: Any = None) -> Scale:
    """The scale of a pair (lower, upper) for d features, whose names are given if there are any."""
    if isinstance(bounds, Mapping | Set) or hasattr(bounds, "columns"):
        raise ParameterError(
            "The 'bounds' parameter must be a pair (lower, upper), whose order counts: no mapping, "
            "set or table."
        )
    try:
        sides = check_list(bounds, "bounds")
    except ParameterError:
        sides = []
    sides = [_in_order(side, names) for side in sides]
    try:
        lower, upper = (np.broadcast_to(check_array(side, "bounds"), (d,)) for side in sides)
    except ValueError:
        lower, upper = np.full(d, np.nan), np.full(d, np.nan)
    if not (np.isfinite(lower) & np.isfinite(upper) & (lower <= upper)).all():
        pairs = len(sides) == d != 2 and all(np.size(side) == 2 for side in sides)
        hint = " This one is not of shape (2, n_features): transpose it?" if pairs else ""
        raise ParameterError(
            "The 'bounds' parameter must be a pair (lower, upper) of finite numbers, or of arrays "
            f"with one for every feature, lower <= upper.{hint}"
        )
    return Scale(lower, upper)


def _in_order(side: Any, names: Any) -> Any:
    """A pandas Series that is indexed by names of features, in the order of the features."""
    index = getattr(side, "index", None)
    if names is None or index is None or callable(index):
        return side
    given = list(index)
    if not given or not all(isinstance(name, str) for name in given):
        return side
    if sorted(given) != sorted(names):
        raise ParameterError(
            "The 'bounds' parameter must be indexed by the names of the columns of 'X', each once."
        )
    return side.loc[list(names)]


def resolve_classes(classes: Any, y: Array, *, loud: bool) -> tuple[Array, tuple[str, ...]]:
    """The public classes, sorted, or those of the data with a warning; and what is not covered."""
    if classes is None:
        if loud:
            warn_inferred("classes", "which classes there are")
        found = np.unique(y)
    else:
        found = sorted_classes(classes)
    if len(found) < 2:
        raise ParameterError(
            "The 'classes' parameter must name at least two classes: one class leaves nothing to "
            "learn."
        )
    return found, ("which classes occur: 'classes' was missing",) if classes is None else ()


def tidy_labels(y: Array) -> Array:
    """Labels that can be sorted; objects that are numbers become an array of numbers."""
    texts = y.dtype == object and all(isinstance(label, str) for label in y)
    if y.dtype == object and all(isinstance(label, Real | np.bool_) for label in y):
        y = np.array(y.tolist())
    if not texts and y.dtype.kind not in "biufU":
        raise DataError(
            "The 'y' parameter must hold labels of one kind, none of them missing: numbers, "
            "booleans or strings."
        )
    return y


def sorted_classes(classes: Any) -> Array:
    """Classes as they are given, each once."""
    return np.asarray(np.unique(check_labels(classes, "classes")))


def encode_labels(y: Array, classes: Array) -> npt.NDArray[np.intp]:
    """Positions of the labels among the classes."""
    if (y.dtype.kind in "OUS") == (classes.dtype.kind in "OUS"):
        codes = np.searchsorted(classes, y)
        if np.array_equal(classes[np.minimum(codes, len(classes) - 1)], y):
            return np.asarray(codes, dtype=np.intp)
    raise DataError("The 'y' parameter must hold labels of the 'classes' parameter only.")
