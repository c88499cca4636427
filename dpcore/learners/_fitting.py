"""What every learner's `fit` shares: data checked without showing them, and all or nothing."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from sklearn.utils.validation import validate_data

from dpcore.errors import DataError

__all__ = ["all_or_nothing", "check_fit_data"]

_Method = TypeVar("_Method", bound=Callable[..., Any])

# Messages of scikit-learn and NumPy that go on with the data, and what is said instead.
_TELLING = {
    "Expected 2D": "The 'X' parameter must have two dimensions: Reshape your data.",
    "Complex data": "Complex data not supported.",
    "could not convert string": "The 'X' and 'y' parameters must hold numbers, not strings.",
}


def check_fit_data(estimator: Any, *data: Any, **options: Any) -> Any:
    """scikit-learn's `validate_data`, whose messages here never repeat what is in the data."""
    try:
        return validate_data(estimator, *data, **options)
    except OverflowError:
        raise DataError("The 'X' and 'y' parameters must hold numbers that a float can.") from None
    except (TypeError, ValueError) as error:
        said = [text for start, text in _TELLING.items() if str(error).startswith(start)]
        if not said:
            raise
        raise DataError(said[0]) from None


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
