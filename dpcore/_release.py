"""What every release shares: the noise source, output arrays, threads, marks."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from dpcore._checks import INDEX_LIMIT, check_index, round_up
from dpcore._events import PureEvent
from dpcore._laws import MAX_LAPLACE_SCALE, Digits, Rejection, discrete_laplace
from dpcore._parallel import for_ranges
from dpcore.errors import ParameterError
from dpcore.noise import Noise
from dpcore_ext.rng import Key

__all__ = [
    "add_noise",
    "check_noise",
    "check_out",
    "check_portable",
    "check_start",
    "finish",
    "label",
    "laplace_event",
    "laplace_law",
    "sample",
]


def check_noise(noise: Noise | None) -> Noise:
    """The source given, or a secure new one."""
    if noise is None:
        return Noise()
    if not isinstance(noise, Noise):
        raise ParameterError("The 'noise' parameter must be a dpcore.Noise or None.")
    return noise


def check_portable(noise: Any) -> Noise:
    """A source whose noise is the same wherever, and however often, a task draws it."""
    if not isinstance(noise, Noise) or not noise.pinned or not noise.portable:
        raise ParameterError(
            "The 'noise' parameter must be a named stream of Noise.from_key: a task that is run "
            "again must not draw again."
        )
    return noise


def check_start(start: Any, n: int) -> int:
    """The index of the first of n elements."""
    first = check_index(start, "start")
    if first + n > INDEX_LIMIT:
        raise ParameterError("The 'start' parameter must keep all indices below 2**62.")
    return first


def check_out(out: Any, shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """A new array, or `out` if it can take the result as it is."""
    if out is None:
        return np.empty(shape, dtype)
    if (
        not isinstance(out, np.ndarray)
        or out.shape != shape
        or out.dtype != dtype
        or not out.flags.c_contiguous
        or not out.flags.writeable
    ):
        raise ParameterError(
            f"The 'out' parameter must be a writeable, contiguous {np.dtype(dtype)} array of the "
            "shape of the result."
        )
    return out


def label(number: Fraction) -> tuple[int, int]:
    """A rational parameter as ids of a stream."""
    return number.numerator, number.denominator


def laplace_law(epsilon: Fraction, distance: Fraction | int) -> tuple[Digits, Fraction]:
    """The discrete Laplace law for a loss at an l1 distance in grid units, and its rate."""
    rate = epsilon / distance
    if 1 / rate > MAX_LAPLACE_SCALE:
        raise ParameterError(
            "The 'sensitivity' parameter must be at most 2**44 times 'epsilon', in units of the "
            "resolution; choose a coarser resolution."
        )
    return discrete_laplace(rate), rate


def laplace_event(
    mechanism: str, law: Digits, distance: Fraction | int, adjacency: str | None = None
) -> PureEvent:
    """What a release with this law costs: the loss proven of its integers, over the distance."""
    if law.loss is None:
        raise ArithmeticError("A law without a proven loss cannot be released.")
    loss = round_up(law.loss * distance)
    return PureEvent(mechanism=mechanism, epsilon=loss, adjacency=adjacency)


def add_noise(
    law: Digits | Rejection,
    key: Key,
    start: int,
    x: npt.NDArray[np.int64] | None,
    out: npt.NDArray[np.int64],
) -> None:
    """out = x + noise, in parallel; x may be out, or None for the noise alone."""
    flat_out = out.reshape(-1)
    flat_x = None if x is None else x.reshape(-1)

    def work(begin: int, end: int) -> None:
        part = None if flat_x is None else flat_x[begin:end]
        law.native.add_to(key, start + begin, part, flat_out[begin:end])

    for_ranges(work, flat_out.size)


def sample(
    law: Digits | Rejection, key: Key, shape: tuple[int, ...], start: int
) -> npt.NDArray[np.int64]:
    """Noise alone."""
    out = np.empty(shape, np.int64)
    add_noise(law, key, check_start(start, out.size), None, out)
    return out


def finish(result: npt.NDArray[Any], noise: Noise, given: npt.NDArray[Any] | None = None) -> Any:
    """The result as the caller expects it: `out` where given, a number for a number, marked."""
    if given is not None:
        return given if noise.private else noise.mark(given)
    marked = noise.mark(result)
    return marked[()] if marked.ndim == 0 and noise.private else marked
