"""Convex losses of a linear model, with the bounds that their privacy rests on."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dpcore._checks import check_callable, check_choice, check_name, check_positive
from dpcore.errors import ParameterError

__all__ = ["LOSSES", "Loss", "custom_loss", "make_loss"]

Array = npt.NDArray[np.float64]
Terms = tuple[Array, Array, Array]

_KINDS = ("margin", "residual")
_HINGE_WIDTH = 0.5  # half width of the parabola that rounds the corner of the hinge


@dataclass(frozen=True)
class Loss:
    """A loss l(t) of one number: the margin y x.w of a label -1 or 1, or the residual x.w - y.

    Attributes
    ----------
    name : str
    kind : {"margin", "residual"}
    derivative_bound : float
        Largest abs(l'): what one record can do to a gradient, per unit of its norm. Infinite for
        the squared loss, which therefore has no private fit.
    curvature_bound : float
        Largest l''; infinite where l' jumps.
    terms : callable
        Array of t -> (l, l', l'').

    Privacy
    -------
    None by itself. The bounds are taken as stated: where they are too low, so is noise in
    proportion to them. `custom_loss` enforces those that it is given.

    Cost
    ----
    That of `terms`: one pass over the numbers for each of the losses in `LOSSES`.

    Examples
    --------
    >>> import numpy as np
    >>> value, first, second = make_loss("logistic").terms(np.array([0.0]))
    >>> float(first[0]), float(second[0])
    (-0.5, 0.25)
    """

    name: str
    kind: str
    derivative_bound: float
    curvature_bound: float
    terms: Callable[[Array], Terms]

    def __post_init__(self) -> None:
        check_name(self.name, "name")
        check_choice(self.kind, "kind", _KINDS)
        for name in ("derivative_bound", "curvature_bound"):
            value = getattr(self, name)
            if not (isinstance(value, float) and value == math.inf):
                check_positive(value, name)
        check_callable(self.terms, "terms")

    def at(self, scores: Array, y: Array) -> Terms:
        """Values, and first and second derivatives by the score x.w, which broadcast with y."""
        if self.kind == "residual":
            return self.terms(scores - y)
        value, first, second = self.terms(scores * y)
        first = first * y
        return value, first, second


def make_loss(loss: str | Loss) -> Loss:
    """A loss by its name, one of `LOSSES`; a `Loss` stays as it is.

    Privacy
    -------
    A look-up by a public name; no data are read.

    Cost
    ----
    Constant.
    """
    if isinstance(loss, Loss):
        return loss
    if not isinstance(loss, str) or loss not in LOSSES:
        raise ParameterError(
            f"The 'loss' parameter must be one of {', '.join(LOSSES)}, or a Loss of your own."
        )
    return LOSSES[loss]


def custom_loss(
    function: Callable[[float], tuple[float, float, float]],
    *,
    derivative_bound: float,
    curvature_bound: float,
    kind: str = "margin",
    name: str = "custom",
) -> Loss:
    """A loss of your own.

    Parameters
    ----------
    function : callable
        From t to (value, first derivative, second derivative), convex, in Python that Numba
        compiles, or compiled already.
    derivative_bound, curvature_bound : float
        Largest abs(l') and l''. The sensitivity follows from them.
    kind : {"margin", "residual"}
        What t is: y x.w for labels -1 and 1, or x.w - y.

    Privacy
    -------
    Derivatives are clamped to the bounds declared: for a convex function the clamped derivative is
    that of another convex function, which has the bounds. That the function is convex is for the
    caller to know; a coarse grid of points is checked.

    Cost
    ----
    The function is compiled once, as long as it is among the 32 used last, and evaluated at 401
    points. Each use is one pass over the numbers, on one thread.

    Examples
    --------
    A pinball loss for the median, with its corner rounded:

    >>> def smooth_absolute(t):
    ...     root = (1.0 + t * t) ** 0.5
    ...     return root - 1.0, t / root, 1.0 / root**3
    >>> loss = custom_loss(
    ...     smooth_absolute, derivative_bound=1.0, curvature_bound=1.0, kind="residual"
    ... )
    >>> loss.derivative_bound
    1.0
    """
    check_choice(kind, "kind", _KINDS)
    check_name(name, "name")
    check_callable(function, "function")
    slope = float(check_positive(derivative_bound, "derivative_bound"))
    curvature = float(check_positive(curvature_bound, "curvature_bound"))
    loss = Loss(name, kind, slope, curvature, _Clamped(function, slope, curvature))
    grid = np.concatenate([-np.logspace(-3, 3, 200)[::-1], [0.0], np.logspace(-3, 3, 200)])
    slopes = loss.terms.raw(grid)[1]  # type: ignore[attr-defined]
    if not (np.isfinite(slopes).all() and (np.diff(slopes) >= -1e-9 * slope).all()):
        raise ParameterError("The 'function' parameter must be convex, with finite derivatives.")
    if np.abs(slopes).max() > slope * (1 + 1e-12):
        raise ParameterError("The 'derivative_bound' parameter must bound the first derivative.")
    return loss


@dataclass(frozen=True)
class _Clamped:
    function: Any
    slope: float
    curvature: float

    def raw(self, t: Array) -> Terms:
        from dpcore._jit.losses import compile_loss

        terms: Terms = compile_loss(self.function)(t)
        return terms

    def __call__(self, t: Array) -> Terms:
        value, first, second = self.raw(t)
        np.clip(first, -self.slope, self.slope, out=first)
        np.clip(second, 0.0, self.curvature, out=second)
        return value, first, second


def _logistic(t: Array) -> Terms:
    small = np.exp(-np.abs(t))
    value = np.log1p(small) + np.maximum(-t, 0.0)
    high = 1.0 / (1.0 + small)  # probability of the likelier side
    low = small * high
    return value, -np.where(t > 0, low, high), high * low


def _hinge(t: Array) -> Terms:
    below = t < 1.0
    return np.maximum(1.0 - t, 0.0), -below.astype(np.float64), np.zeros_like(t)


def _huber_hinge(t: Array) -> Terms:
    h = _HINGE_WIDTH
    gap = np.clip(1.0 + h - t, 0.0, 2 * h)
    value = gap * gap / (4 * h) + np.maximum(1.0 - h - t, 0.0)
    inside = (gap > 0.0) & (gap < 2 * h)
    return value, -gap / (2 * h), inside / (2 * h)


def _squared(t: Array) -> Terms:
    return t * t, 2.0 * t, np.full_like(t, 2.0)


def _huber(t: Array) -> Terms:
    clipped = np.clip(t, -1.0, 1.0)
    return clipped * (t - 0.5 * clipped), clipped, (np.abs(t) < 1.0).astype(np.float64)


LOSSES: dict[str, Loss] = {
    loss.name: loss
    for loss in (
        Loss("logistic", "margin", 1.0, 0.25, _logistic),
        Loss("hinge", "margin", 1.0, math.inf, _hinge),
        Loss("huber_hinge", "margin", 1.0, 1 / (2 * _HINGE_WIDTH), _huber_hinge),
        Loss("squared", "residual", math.inf, 2.0, _squared),
        Loss("huber", "residual", 1.0, 1.0, _huber),
    )
}
