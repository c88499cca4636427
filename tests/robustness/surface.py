"""The public surface: every callable of every public module, and a valid small call of each."""

from __future__ import annotations

import importlib
import inspect
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from public_modules import PUBLIC

from dpcore.accounting import Ledger

# What dpcore hands out and nobody is asked to build: results, marks, and the bases of others.
HANDED_OUT = {
    "Aggregate",
    "Audit",
    "Clustering",
    "Composition",
    "Counts",
    "Entry",
    "Estimate",
    "Fold",
    "Frequencies",
    "GraphSecurity",
    "History",
    "InferredPublicWarning",
    "Labeling",
    "LabelCounts",
    "Mechanism",
    "Message",
    "NotPrivateArray",
    "Privacy",
    "PrivateFrame",
    "PrivateLazyFrame",
    "ReleaseRegister",
    "ReleasedCounts",
    "Reports",
    "Schedule",
    "SensorData",
    "TimeBatches",
    "TupleEstimate",
}
WITHOUT_PARAMETERS = {"Noise", "get_include", "get_num_threads"}
# Runs the simulator of another project, which takes longer than all the rest.
SLOW = {"simulate_city"}
# Called by compiled code, which has types instead of checks; refusals are in the tests of Numba.
COMPILED = {f"dpcore.interop.numba.{name}" for name in ("add_noise", "code_at", "noise_at")} | {
    "dpcore.interop.numba.encode",
    "dpcore.interop.numba.Sampler",
}
# Parties of a federation work on folders of their own, and have tests of their own.
PARTIES = {
    f"dpcore.interop.flower.{name}"
    for name in (
        "ConsensusMember",
        "ConsensusServer",
        "DescentMember",
        "DescentServer",
        "Node",
        "enrol",
        "make_server",
    )
}


@dataclass(frozen=True)
class Case:
    """A call that works, and the parameters that a test spoils one after the other."""

    call: Callable[..., Any]
    valid: dict[str, Any]
    # Of an estimator: makes it from what is given, and `call` takes it as first argument.
    make: Callable[[dict[str, Any]], Any] | None = None

    def run(self, given: dict[str, Any]) -> Any:
        return self.call(**given) if self.make is None else self.call(self.make(given), given)


def defaults(thing: Any) -> dict[str, Any]:
    parameters = inspect.signature(thing).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}


def function(thing: Any, **valid: Any) -> Case:
    """All parameters of a function, those with a default included."""
    return Case(thing, defaults(thing) | valid)


def settings(kind: type, *data: Any, options: dict[str, Any] | None = None, **valid: Any) -> Case:
    """All parameters of an estimator's constructor, which `fit` checks."""

    def fit(model: Any, _given: dict[str, Any]) -> Any:
        return model.fit(*data, **(options or {}))

    return Case(fit, defaults(kind) | valid, lambda given: kind(**given))


def fitting(kind: type, made: dict[str, Any], **data: Any) -> Case:
    """The data that an estimator is fitted to."""
    return Case(lambda model, given: model.fit(**given), data, lambda _given: kind(**made))


def using(model: Any, method: str, **data: Any) -> Case:
    """A method of an estimator that was fitted."""
    return Case(getattr(model, method), data)


def ledger(**parameters: Any) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        path = parameters.pop("path")
        inside = isinstance(path, str) and path == "ledger"
        made = Ledger(Path(folder, path) if inside else path, **parameters)
        return made.spent


def charged(event: Any) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        made = Ledger(Path(folder, "ledger"), epsilon=1.0)
        made.charge(event)
        return made.spent


def public_callables() -> dict[str, Any]:
    """Dotted names and objects; what several modules export has the name in the first of them."""
    found: dict[int, tuple[str, Any]] = {}
    for name in PUBLIC:
        module = importlib.import_module(name)
        for public in module.__all__:
            thing = getattr(module, public)
            skipped = public in HANDED_OUT | WITHOUT_PARAMETERS | SLOW or not callable(thing)
            skipped = skipped or f"{name}.{public}" in COMPILED | PARTIES
            if skipped or (inspect.isclass(thing) and issubclass(thing, Exception)):
                continue
            found.setdefault(id(thing), (f"{name}.{public}", thing))
    return dict(sorted(found.values(), key=lambda pair: pair[0]))
