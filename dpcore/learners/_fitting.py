"""What every learner's `fit` shares: data checked without showing them, and all or nothing."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from sklearn.utils.validation import validate_data

from dpcore.errors import DataError

__all__ = ["all_or_nothing", "check_fit_data"]

_Method = TypeVar("_Method", bound=Callable[..., Any])

# Messages of scikit-learn and NumPy that go on with the data or name nothing, and what is said
# instead.
_TELLING = {
    "Expected 2D": "The 'X' parameter must have two dimensions: Reshape your data.",
    "Complex data": "Complex data not supported.",
    "could not convert string": "The 'X' and 'y' parameters must hold numbers, not strings.",
    "setting an array element": "The 'X' and 'y' parameters must be arrays, rows of one length.",
    "boolean value of NA": "The 'y' parameter must not hold missing values.",
    "Input contains NaN": "The 'X' and 'y' parameters must not hold missing values: NaN.",
    "y should be a 1d array": "The 'y' parameter must be one-dimensional: y should be a 1d array.",
    "The DType": "The 'X' parameter must hold numbers only, no dates.",
}
_NO_NUMBERS = (
    "The 'X' and 'y' parameters must hold numbers: float() argument must be a string or a real "
    "number."
)


class _KindError(DataError, TypeError):
    """Objects that are no numbers, for which scikit-learn asks for a TypeError."""


def check_fit_data(estimator: Any, *data: Any, **options: Any) -> Any:
    """scikit-learn's `validate_data`, whose messages here never repeat what is in the data."""
    try:
        _check_no_dates(data[0])
        return validate_data(estimator, *data, **options)
    except OverflowError:
        raise DataError("The 'X' and 'y' parameters must hold numbers that a float can.") from None
    except (TypeError, ValueError) as error:
        if str(error).startswith("float() argument"):
            raise _KindError(_NO_NUMBERS) from None
        said = [text for start, text in _TELLING.items() if str(error).startswith(start)]
        if not said:
            raise
        raise DataError(said[0]) from None


def _check_no_dates(x: Any) -> None:
    """Dates would be converted to counts of nanoseconds."""
    kinds: Any = getattr(x, "dtypes", getattr(x, "dtype", None))
    if any(getattr(kind, "kind", None) in ("m", "M") for kind in np.atleast_1d(kinds)):
        raise DataError("The 'X' parameter must hold numbers only, no dates.")


def all_or_nothing(*kept: str) -> Callable[[_Method], _Method]:
    """Makes a method that raises leave the learner as it was.

    Attributes named in `kept` stay: what remembers noise that was drawn must not be forgotten.
    """

    def decorate(method: _Method) -> _Method:
        @functools.wraps(method)
        def run(self: Any, *arguments: Any, **named: Any) -> Any:
            before = dict(vars(self))
            try:
                return method(self, *arguments, **named)
            except BaseException:
                now = vars(self)
                before |= {name: now[name] for name in kept if name in now}
                now.clear()
                now.update(before)
                raise

        return run  # type: ignore[return-value]

    return decorate
