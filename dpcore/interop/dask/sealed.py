"""What travels to workers: sealed against names, displays and logs, and never charged there."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from dpcore._charge import paid_elsewhere
from dpcore._parallel import one_thread
from dpcore._release import check_portable
from dpcore.errors import ParameterError
from dpcore.interop._secure import check_secure
from dpcore.noise import Noise

__all__ = ["Sealed", "call", "check_private"]


class Sealed:
    """An argument of a task that shows nothing of itself.

    Dask names tasks by hashes of their arguments and writes the arguments of a failed task to the
    log. This shows as its public name alone.

    Parameters
    ----------
    name : str
        What Dask may know: equal for equal contents.
    shared : object
        What all tasks of a job use, such as a mechanism. It is pickled here, and unpickled once per
        process rather than once per task.
    noise : Noise, optional
    private : object
        What this task alone uses, such as the readings of a node.
    """

    __slots__ = ("_name", "_noise", "_private", "_shared")

    def __init__(
        self, name: str, shared: Any, *, noise: Noise | None = None, private: Any = None
    ) -> None:
        self._name, self._noise, self._private = name, noise, private
        self._shared = pickle.dumps(shared)

    @property
    def shared(self) -> Any:
        return _load(self._shared)

    @property
    def private(self) -> Any:
        return self._private

    @property
    def noise(self) -> Noise:
        """The source, marked as paid for: a ledger that is in force here is not charged."""
        if self._noise is None:
            raise ParameterError("The task was sent without noise.")
        return self._noise.for_ledger(prepaid=True)

    def __repr__(self) -> str:
        return f"<sealed {self._name}>"

    def __dask_tokenize__(self) -> str:
        return self._name

    def __getstate__(self) -> tuple[Any, ...]:
        return self._name, self._noise, self._private, self._shared

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self._name, self._noise, self._private, self._shared = state


@lru_cache(maxsize=32)
def _load(pickled: bytes) -> Any:
    return pickle.loads(pickled)


def call(sealed: Sealed) -> Any:
    """What a function, the shared part, makes of the private part, on one thread."""
    function: Callable[[Any], Any] = sealed.shared
    with one_thread(), paid_elsewhere():
        return function(sealed.private)


def check_private(noise: Any) -> Noise:
    """A source for tasks whose results cannot carry the mark of insecure noise."""
    return check_secure(check_portable(noise), "collections of Dask")
