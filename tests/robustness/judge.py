"""Bad values, and what a call that is given one must do.

It refuses: with an exception of dpcore, whose message is one sentence that repeats nothing it was
given, and that leaves everything as it was: the ledger in force, NumPy's global generator, the
number of threads, and an estimator, which is as unfitted as before. Or it takes the value for what
it is, where that is sensible; `MUST_REFUSE` and `GUARANTEES` say where it is not.
"""

from __future__ import annotations

import math
import re
import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from surface import Case

import dpcore
from dpcore.errors import DPCoreError

SECRET = "7391482650"
NUMBER = 7391.48265
BAD: dict[str, Any] = {
    "nan": math.nan,
    "infinity": math.inf,
    "minus infinity": -math.inf,
    "none": None,
    "zero": 0,
    "negative": -1,
    "huge": 10**400,
    "huge float": 1e308,
    "large": 2**70,
    "true": True,
    "complex": 1j,
    "text": SECRET,
    "bytes": SECRET.encode(),
    "object": object(),
    "empty list": [],
    "empty dict": {},
    "empty array": np.empty(0),
    "empty matrix": np.empty((0, 2)),
    "array": np.full(5, NUMBER),
    "array of nan": np.full(5, math.nan),
    "array of complex": np.full(5, 1j * NUMBER),
    "matrix of infinities": np.full((5, 2), math.inf),
    "wrong shape": np.full((2, 3, 4, 5), NUMBER),
    "ragged": [[NUMBER], [NUMBER, NUMBER]],
    "list of text": [SECRET, SECRET],
    "array of objects": np.array([object(), None]),
}
# No parameter may take these for anything.
MUST_REFUSE = ("nan", "complex", "object")
# Numbers that a guarantee rests on: nothing on the list is one, but for two that are only large.
GUARANTEES = {
    "bound",
    "clip",
    "curvature_bound",
    "delta",
    "derivative_bound",
    "epsilon",
    "honest_fraction",
    "law_distance",
    "lower",
    "mu",
    "noise_multiplier",
    "noise_sigma",
    "p",
    "rho",
    "row_norm",
    "sampling_rate",
    "scale",
    "sensitivity",
    "share_sigma",
    "sigma",
    "start_share",
    "train_delta",
    "train_epsilon",
    "upper",
}
ONLY_LARGE = ("huge float", "large")
# Ends of a range, which may be 0 or negative.
SIGNED = {"lower", "upper"}


@dataclass
class Allowed:
    """What is documented to be otherwise: pairs of callable and parameter, each with a reason."""

    # Kinds of values that a parameter of a guarantee, or any other, takes.
    taken: dict[tuple[str, str], set[str]] = field(default_factory=dict)
    # Data that scikit-learn checks: its own ValueError and TypeError are the documented ones.
    foreign: set[tuple[str, str]] = field(default_factory=set)
    # What shows only in the run, when the cost is spent already.
    charged: dict[tuple[str, str], set[str]] = field(default_factory=dict)


def must_refuse(name: str, parameter: str, case: Case, kind: str, allowed: Allowed) -> bool:
    """Whether taking such a value is a fault."""
    if kind in allowed.taken.get((name, parameter), ()):
        return False
    if parameter in SIGNED and kind in ("zero", "negative"):
        return False
    if parameter in GUARANTEES:
        return kind not in ONLY_LARGE and not (kind == "none" and case.valid[parameter] is None)
    return kind in MUST_REFUSE


class Books:
    """A ledger in force that is empty, and a new one when it no longer is."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._number = folder, 0
        self._open()

    def _open(self) -> None:
        self._number += 1
        path = self._folder / f"{self._number}.ledger"
        self.ledger = dpcore.Ledger(path, epsilon=1e6, delta=0.5)

    def was_charged(self) -> bool:
        charged = bool(self.ledger.entries)
        if charged:
            self._open()
        return charged


def faults(
    name: str, parameter: str, case: Case, kind: str, allowed: Allowed, books: Books
) -> list[str]:
    """What is wrong with a call whose parameter is bad."""
    value = BAD[kind].copy() if isinstance(BAD[kind], np.ndarray) else BAD[kind]
    given = {**case.valid, parameter: value}
    threads, state = dpcore.get_num_threads(), global_state()
    found, refused = [], False
    model = None if case.make is None else case.make(given)
    before = {} if model is None else dict(vars(model))
    with warnings.catch_warnings(), books.ledger:
        warnings.simplefilter("ignore")
        try:
            _ = case.call(**given) if model is None else case.call(model, given)
        except DPCoreError as error:
            refused = True
            found += [] if is_sentence(str(error)) else [f"not a sentence: {error}"]
        except Exception as error:
            refused = True
            known = isinstance(error, ValueError | TypeError)
            if not known or (name, parameter) not in allowed.foreign:
                found.append(f"{type(error).__name__}: {str(error)[:100]}")
            elif tells(str(error)):
                found.append(f"tells what it was given: {str(error)[:100]}")
    charged = books.was_charged()
    if parameter != "out" and isinstance(value, np.ndarray) and not same([value], [BAD[kind]]):
        found.append("changed its input")
    if not refused:
        if must_refuse(name, parameter, case, kind, allowed):
            found.append("taken")
    else:
        if charged and kind not in allowed.charged.get((name, parameter), ()):
            found.append("charged")
        # What is only large may show when the order of the data is drawn already.
        if kind not in ONLY_LARGE and not same(global_state(), state):
            found.append("drew from the global generator")
        if dpcore.get_num_threads() != threads:
            found.append("changed the number of threads")
        if model is not None and not unchanged(vars(model), before):
            found.append("changed the estimator")
    dpcore.set_num_threads(threads)
    return [f"{kind}: {fault}" for fault in found]


def is_sentence(message: str) -> bool:
    return re.fullmatch(r"[A-Z][^\n]*[.]", message) is not None and not tells(message)


def tells(message: str) -> bool:
    """Whether a message repeats what was given."""
    return SECRET[:4] in message or "0x" in message


def global_state() -> Any:
    """NumPy's global generator, which learners use where `random_state` is None."""
    return np.random.get_state()[1:]  # noqa: NPY002


def same(one: Any, other: Any) -> bool:
    pairs = zip(one, other, strict=True)
    return all(np.array_equal(a, b, equal_nan=np.asarray(a).dtype.kind in "fc") for a, b in pairs)


def unchanged(now: dict[str, Any], before: dict[str, Any]) -> bool:
    """The same attributes, but for private ones that remember what was drawn."""
    public = {name for name in now if not name.startswith("_")}
    return public == set(before) and all(now[name] is before[name] for name in public)
