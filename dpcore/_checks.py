"""Checks of parameters and data: one sentence per fault, never with the value at fault."""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from numbers import Rational, Real
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from dpcore._parallel import for_ranges
from dpcore.errors import DataError, ParameterError
from dpcore_ext.sample import all_small

__all__ = [
    "INDEX_LIMIT",
    "as_array",
    "check_array",
    "check_callable",
    "check_choice",
    "check_data",
    "check_executor",
    "check_flag",
    "check_generator",
    "check_index",
    "check_instance",
    "check_integer_range",
    "check_labels",
    "check_list",
    "check_mapping",
    "check_members",
    "check_name",
    "check_not_negative",
    "check_path",
    "check_positive",
    "check_random_state",
    "check_resolution",
    "check_size",
    "default_exponent",
    "exact",
    "round_down",
    "round_up",
]

INDEX_LIMIT = 1 << 62
EXPONENT_LIMIT = 900

_T = TypeVar("_T")


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


def check_not_negative(value: Any, name: str) -> float:
    """A finite number of at least 0, as a float."""
    number = exact(value, name)
    if number < 0:
        raise ParameterError(f"The '{name}' parameter must not be negative.")
    return float(number)


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


def check_flag(value: Any, name: str) -> bool:
    """True or False; what merely counts as one of them is a mistake more often than not."""
    if not isinstance(value, bool | np.bool_):
        raise ParameterError(f"The '{name}' parameter must be True or False.")
    return bool(value)


def check_name(value: Any, name: str, *, may_be_empty: bool = False) -> str:
    """A string."""
    if not isinstance(value, str) or not (value or may_be_empty):
        kind = "a string" if may_be_empty else "a string that is not empty"
        raise ParameterError(f"The '{name}' parameter must be {kind}.")
    return value


def check_path(value: Any, name: str) -> Path:
    """A path that a file could have."""
    text = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if not isinstance(text, str) or not text or "\0" in text:
        raise ParameterError(f"The '{name}' parameter must be a path.")
    return Path(text)


def check_instance(value: Any, name: str, kind: type[_T]) -> _T:
    """An object of a class of dpcore."""
    if not isinstance(value, kind):
        raise ParameterError(f"The '{name}' parameter must be of the class {kind.__name__}.")
    return value


def check_callable(value: Any, name: str) -> Callable[..., Any]:
    """Something that can be called."""
    if not callable(value):
        raise ParameterError(f"The '{name}' parameter must be callable.")
    function: Callable[..., Any] = value
    return function


def check_executor(value: Any, name: str = "executor") -> Any:
    """None, or something with a method map, such as the executors of concurrent.futures."""
    if value is not None and not callable(getattr(value, "map", None)):
        raise ParameterError(f"The '{name}' parameter must be None or have a method map.")
    return value


def check_list(value: Any, name: str) -> list[Any]:
    """The items of a sequence, an array or another iterable; a string is none of these."""
    listed = isinstance(value, Iterable) and getattr(value, "ndim", 1) > 0
    if not listed or isinstance(value, str | bytes):
        raise ParameterError(f"The '{name}' parameter must be a list.")
    return list(value)


def check_mapping(value: Any, name: str) -> Mapping[Any, Any]:
    """A dictionary or something like it."""
    if not isinstance(value, Mapping):
        raise ParameterError(f"The '{name}' parameter must be a mapping.")
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


def check_generator(value: Any, name: str = "random_state") -> np.random.Generator:
    """The generator of algorithmic choices that NumPy makes of None, a seed or a generator."""
    try:
        if isinstance(value, bool | np.bool_):
            raise TypeError
        return np.random.default_rng(value)
    except (TypeError, ValueError, OverflowError):
        raise ParameterError(
            f"The '{name}' parameter must be None, an integer of at least 0, a SeedSequence or a "
            "Generator."
        ) from None


def check_random_state(value: Any, name: str = "random_state") -> np.random.RandomState:
    """The same with scikit-learn's convention: None, a seed below 2**32 or a RandomState."""
    if value is None or value is np.random:
        shared: np.random.RandomState = np.random.mtrand._rand
        return shared
    if isinstance(value, np.random.RandomState):
        return value
    try:
        return np.random.RandomState(check_index(value, name, limit=1 << 32))
    except ParameterError:
        raise ParameterError(
            f"The '{name}' parameter must be None, an integer from 0 below 2**32, or a RandomState."
        ) from None


def as_array(x: Any, name: str) -> npt.NDArray[Any]:
    """What NumPy makes of x, of any kind; rows of different lengths make nothing."""
    try:
        return np.asarray(x)
    except (TypeError, ValueError, OverflowError):
        raise ParameterError(f"The '{name}' parameter must be an array.") from None


def check_array(
    x: Any,
    name: str,
    *,
    dtype: type[Any] = np.float64,
    dimensions: int | None = None,
    finite: bool = False,
) -> npt.NDArray[Any]:
    """An array of a dtype, float64 or int64 as a rule; a copy only where the conversion is one.

    For integers floats are refused, but for an empty array.
    """
    array = as_array(x, name)
    whole = np.dtype(dtype).kind in "iu"
    if array.dtype.kind not in ("biu" if whole and array.size else "biuf"):
        kind = "integers" if whole else "numbers"
        raise ParameterError(f"The '{name}' parameter must be an array of {kind}.")
    if dimensions is not None and array.ndim != dimensions:
        raise ParameterError(f"The '{name}' parameter must have {dimensions} dimension(s).")
    if finite and array.dtype.kind == "f" and not np.isfinite(array).all():
        raise DataError(f"The '{name}' parameter must hold finite numbers only.")
    if whole and array.dtype.kind == "u" and array.dtype.itemsize == 8 and (array >> 63).any():
        raise DataError(f"The '{name}' parameter must hold integers below 2**63.")
    return array.astype(dtype, copy=False)


def check_members(x: Any, name: str, limit: int) -> npt.NDArray[np.int64]:
    """Numbers of members of something: one dimension of integers from 0 below a limit."""
    array = check_array(x, name, dtype=np.int64, dimensions=1)
    if array.size and (array.min() < 0 or array.max() >= limit):
        raise DataError(f"The '{name}' parameter must hold integers from 0 below their number.")
    return array


def check_labels(x: Any, name: str) -> npt.NDArray[Any]:
    """Labels of classes: numbers that are finite, booleans or strings."""
    labels = as_array(x, name)
    if labels.dtype == object and all(isinstance(label, str) for label in labels.flat):
        labels = labels.astype(str)
    if labels.ndim != 1 or not labels.size or labels.dtype.kind not in "biufUS":
        raise ParameterError(f"The '{name}' parameter must be a list of labels.")
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        raise ParameterError(f"The '{name}' parameter must hold finite numbers or strings.")
    return labels


def check_data(
    x: npt.ArrayLike, name: str, *, dimensions: int | None = None, may_be_empty: bool = False
) -> npt.NDArray[Any]:
    """A non-empty array of int64 or float64, contiguous, whose integers lie within 2**62.

    Copies only where the dtype or the layout asks for it; smaller integers and floats are widened.
    """
    array = as_array(x, name)
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
