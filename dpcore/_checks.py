"""Checks of parameters and data: one sentence per fault, never with the value at fault."""

from __future__ import annotations

import math
import operator
from fractions import Fraction
from numbers import Rational, Real
from typing import Any

import numpy as np
import numpy.typing as npt

from dpcore._parallel import for_ranges
from dpcore.errors import DataError, ParameterError
from dpcore_ext.sample import all_small

__all__ = [
    "INDEX_LIMIT",
    "check_choice",
    "check_data",
    "check_index",
    "check_integer_range",
    "check_positive",
    "check_resolution",
    "check_size",
    "default_exponent",
    "exact",
    "round_down",
    "round_up",
]

INDEX_LIMIT = 1 << 62
EXPONENT_LIMIT = 900


def exact(value: Any, name: str) -> Fraction:
    """The rational number that a finite real parameter stands for."""
    if not isinstance(value, bool | np.bool_) and isinstance(value, Real):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if math.isfinite(number):
            # NumPy's integers are Rational too, but their arithmetic overflows.
            if isinstance(value, Rational):
                return Fraction(int(value.numerator), int(value.denominator))
            return Fraction(number)
    raise ParameterError(f"The '{name}' parameter must be a finite number.")


def check_positive(value: Any, name: str) -> Fraction:
    """A finite number greater than 0, as a rational."""
    try:
        number = exact(value, name)
    except ParameterError:
        number = Fraction(0)
    if number <= 0:
        raise ParameterError(f"The '{name}' parameter must be a finite number greater than 0.")
    return number


def round_down(number: Fraction) -> float:
    """The largest double that is at most number: for losses that must not grow."""
    nearest = float(number)
    return nearest if Fraction(nearest) <= number else math.nextafter(nearest, -math.inf)


def round_up(number: Fraction) -> float:
    """The smallest double that is at least number: for losses that were spent."""
    nearest = float(number)
    return nearest if Fraction(nearest) >= number else math.nextafter(nearest, math.inf)


def check_choice(value: Any, name: str, choices: tuple[str, ...]) -> str:
    """One of a few strings."""
    if not isinstance(value, str) or value not in choices:
        listed = " or ".join(f"'{choice}'" for choice in choices)
        raise ParameterError(f"The '{name}' parameter must be {listed}.")
    return value


def check_index(value: Any, name: str, *, least: int = 0, limit: int = INDEX_LIMIT) -> int:
    """An integer of at least `least` and below `limit`."""
    try:
        index = -1 if isinstance(value, bool | np.bool_) else operator.index(value)
    except TypeError:
        index = -1
    if not least <= index < limit:
        below = "2**62" if limit == INDEX_LIMIT else limit
        raise ParameterError(
            f"The '{name}' parameter must be an integer of at least {least} and below {below}."
        )
    return index


def check_integer_range(low: Any, high: Any) -> tuple[int, int]:
    """Two integers of int64 with low < high; high may be 2**63."""
    try:
        low, high = operator.index(low), operator.index(high)
    except TypeError:
        raise ParameterError("The 'low' and 'high' parameters must be integers.") from None
    if not -(1 << 63) <= low < high <= 1 << 63:
        raise ParameterError("The 'low' and 'high' parameters must satisfy low < high in int64.")
    return low, high


def check_size(size: Any, name: str = "size") -> tuple[int, ...]:
    """The shape that a size parameter (None, an integer or a tuple of them) stands for."""
    if size is None:
        return ()
    shape = tuple(size) if isinstance(size, tuple | list) else (size,)
    return tuple(check_index(length, name) for length in shape)


def check_resolution(value: Any, name: str = "resolution") -> int:
    """The exponent of a power of two."""
    number = check_positive(value, name)
    exponent = number.numerator.bit_length() - number.denominator.bit_length()
    if number != Fraction(2) ** exponent or abs(exponent) > EXPONENT_LIMIT:
        raise ParameterError(
            f"The '{name}' parameter must be a power of two between 2**-900 and 2**900."
        )
    return exponent


def default_exponent(exponent: int, name: str) -> int:
    """The exponent of a resolution computed from a parameter, which must keep it in range."""
    if abs(exponent) > EXPONENT_LIMIT:
        raise ParameterError(f"The '{name}' parameter must lie between 2**-800 and 2**800 in size.")
    return exponent


def check_data(
    x: npt.ArrayLike, name: str, *, dimensions: int | None = None, may_be_empty: bool = False
) -> npt.NDArray[Any]:
    """A non-empty array of int64 or float64, contiguous, whose integers lie within 2**62.

    Copies only where the dtype or the layout asks for it; smaller integers and floats are widened.
    """
    try:
        array = np.asarray(x)
    except ValueError:
        raise ParameterError(f"The '{name}' parameter must be an array of numbers.") from None
    if array.dtype.kind not in "iuf" or array.dtype.itemsize > 8:
        raise ParameterError(f"The '{name}' parameter must be of an integer or float dtype.")
    if array.size == 0 and not may_be_empty:
        raise ParameterError(f"The '{name}' parameter must not be empty.")
    if dimensions is not None and array.ndim != dimensions:
        raise ParameterError(f"The '{name}' parameter must have {dimensions} dimension(s).")
    if array.dtype.kind == "f":
        return np.ascontiguousarray(array, dtype=np.float64).reshape(array.shape)
    # Unsigned integers of 2**63 and more would become negative ones.
    small = [array.dtype.kind != "u" or array.dtype.itemsize < 8 or not (array >> 63).any()]
    integers = np.ascontiguousarray(array, dtype=np.int64).reshape(array.shape)
    flat = integers.reshape(-1)
    for_ranges(lambda begin, end: small.append(all_small(flat[begin:end])), flat.size)
    if not all(small):
        raise DataError(f"The '{name}' parameter must hold integers within 2**62 of zero.")
    return integers
