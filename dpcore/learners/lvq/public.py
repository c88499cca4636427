"""What a prototype learner takes as public: classes and ranges, and how loudly it says so."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dpcore._checks import check_array, check_labels, check_list
from dpcore.errors import DataError, ParameterError
from dpcore.learners._public import InferredPublicWarning, warn_inferred

__all__ = ["InferredPublicWarning", "Scale", "encode_labels", "resolve_bounds", "resolve_classes"]

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


def resolve_bounds(bounds: Any, x: Array, *, loud: bool) -> tuple[Scale, tuple[str, ...]]:
    """The public ranges, or those of the data with a warning; and what is then not covered."""
    d = x.shape[1]
    if bounds is None:
        if loud:
            warn_inferred("bounds", "the range of every feature")
        scale = Scale(x.min(axis=0).astype(np.float64), x.max(axis=0).astype(np.float64))
        if not scale.fits(x.dtype):
            raise DataError("The 'X' parameter must hold values whose differences are finite.")
        return scale, ("the smallest and the largest value of every feature: 'bounds' was missing",)
    try:
        sides = check_list(bounds, "bounds")
        lower, upper = (np.broadcast_to(check_array(side, "bounds"), (d,)) for side in sides)
    except ValueError:
        lower, upper = np.full(d, np.nan), np.full(d, np.nan)
    if not (np.isfinite(lower) & np.isfinite(upper) & (lower <= upper)).all():
        raise ParameterError(
            "The 'bounds' parameter must be a pair (lower, upper) of finite numbers, or of arrays "
            "with one for every feature, lower <= upper."
        )
    scale = Scale(lower, upper)
    if not scale.fits(x.dtype):
        raise ParameterError(
            "The 'bounds' parameter must be within reach of the dtype of the data, and so must "
            "2 (upper - lower)."
        )
    return scale, ()


def resolve_classes(classes: Any, y: Array, *, loud: bool) -> tuple[Array, tuple[str, ...]]:
    """The public classes, sorted, or those of the data with a warning; and what is not covered."""
    if classes is None:
        if loud:
            warn_inferred("classes", "which classes there are")
        found = np.unique(y)
    else:
        found = np.unique(check_labels(classes, "classes"))
    if len(found) < 2:
        raise ParameterError(
            "The 'classes' parameter must name at least two classes: one class leaves nothing to "
            "learn."
        )
    return found, ("which classes occur: 'classes' was missing",) if classes is None else ()


def encode_labels(y: Array, classes: Array) -> npt.NDArray[np.intp]:
    """Positions of the labels among the classes."""
    codes = np.searchsorted(classes, y)
    if not np.array_equal(classes[np.minimum(codes, len(classes) - 1)], y):
        raise DataError("The 'y' parameter must hold labels of the 'classes' parameter only.")
    return np.asarray(codes, dtype=np.intp)
