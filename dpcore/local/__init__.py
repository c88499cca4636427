"""Local differential privacy for numbers: a device sends a few bits, a server gets the mean.

>>> import numpy as np
>>> from dpcore import local
>>> mechanism = local.make("hm-j", epsilon=2.0, lower=0.0, upper=100.0)
>>> ages = np.random.default_rng(0).uniform(20, 60, 100_000)
>>> message = mechanism.pack(mechanism.encode(ages))
>>> low, high = mechanism.estimate(message).interval(confidence=0.999999)
>>> bool(low < ages.mean() < high)
True
"""

from __future__ import annotations

from typing import Any

from dpcore._checks import check_index
from dpcore.errors import ParameterError
from dpcore.local import optimal
from dpcore.local.base import Estimate, Mechanism
from dpcore.local.categorical import GRR, OUE, Frequencies, best_categorical
from dpcore.local.duchi_multi import DuchiMulti
from dpcore.local.mechanisms import (
    Duchi,
    Hybrid,
    HybridJoint,
    HybridTP,
    Laplace,
    OptimalOutputs,
    Piecewise,
    PiecewiseOpt,
    PiecewiseSub,
    ThreeOutputs,
)
from dpcore.local.reports import Reports, TupleEstimate
from dpcore.local.schema import Categorical, Numeric
from dpcore.local.tuples import SplitBudget, Tuple
from dpcore.local.vectors import Vector

__all__ = [
    "GRR",
    "NAMES",
    "OUE",
    "Categorical",
    "Duchi",
    "DuchiMulti",
    "Estimate",
    "Frequencies",
    "Hybrid",
    "HybridJoint",
    "HybridTP",
    "Laplace",
    "LocalPrivatizer",
    "Mechanism",
    "Numeric",
    "OptimalOutputs",
    "Piecewise",
    "PiecewiseOpt",
    "PiecewiseSub",
    "Reports",
    "SplitBudget",
    "ThreeOutputs",
    "Tuple",
    "TupleEstimate",
    "Vector",
    "best",
    "best_categorical",
    "make",
]

_MECHANISMS: dict[str, type[Mechanism]] = {
    mechanism.name: mechanism
    for mechanism in (
        Laplace,
        Duchi,
        Piecewise,
        Hybrid,
        ThreeOutputs,
        PiecewiseSub,
        PiecewiseOpt,
        HybridTP,
        HybridJoint,
        OptimalOutputs,
    )
}

NAMES = tuple(_MECHANISMS)

_LEVELS = (Piecewise, PiecewiseSub, PiecewiseOpt, Hybrid, HybridTP, HybridJoint)
_MOST_BITS = 8


def make(
    name: str, epsilon: float, lower: float = -1.0, upper: float = 1.0, **options: Any
) -> Mechanism:
    """A mechanism by its name.

    Parameters
    ----------
    name : str
        One of `NAMES`.
    epsilon, lower, upper : float
        As for every `Mechanism`.
    **options
        What else the class of that name takes, such as n_levels.

    Privacy
    -------
    That of the mechanism: epsilon-local-DP of one report.

    Cost
    ----
    That of constructing the mechanism: with default options less than a second, and a few seconds
    for "optimal" where its table is not part of the package.

    Examples
    --------
    >>> make("three-outputs", 1.0)
    ThreeOutputs(epsilon=1.0, lower=-1.0, upper=1.0)
    """
    if not isinstance(name, str) or name not in _MECHANISMS:
        raise ParameterError(f"The 'name' parameter must be one of {', '.join(NAMES)}.")
    return _MECHANISMS[name](epsilon, lower, upper, **options)


def best(
    epsilon: float, lower: float = -1.0, upper: float = 1.0, *, max_bits: int | None = None
) -> Mechanism:
    """The mechanism of least worst-case variance whose codes take at most max_bits.

    Considers all of them but Laplace, each with as many outputs as the bits allow: up to 8 bits,
    and up to 6 for `OptimalOutputs`, which is considered from epsilon 0.05 to 20, and without SciPy
    only where its table is part of the package. The choice may thus differ between machines:
    agree on a mechanism by its name and parameters, not by calling `best` on both ends.

    Parameters
    ----------
    epsilon, lower, upper : float
        As for every `Mechanism`.
    max_bits : int, optional
        Most bits that a code may take on the wire; no limit by default.

    Privacy
    -------
    That of the mechanism: epsilon-local-DP of one report. The choice depends on the parameters
    alone.

    Cost
    ----
    A second at most where the optimal table is part of the package, a few otherwise.

    Examples
    --------
    >>> best(0.5, max_bits=1).name
    'duchi'
    >>> best(1.0).name
    'optimal'
    """
    n_bits = _MOST_BITS
    if max_bits is not None:
        n_bits = min(n_bits, check_index(max_bits, "max_bits", least=1))
    candidates: list[Mechanism] = [Duchi(epsilon, lower, upper)]
    if n_bits >= 2:
        candidates.append(ThreeOutputs(epsilon, lower, upper))
    candidates += [
        kind(epsilon, lower, upper, n_levels=1 << n_bits)
        for kind in _LEVELS
        if kind.fewest_levels <= 1 << n_bits
    ]
    if n_bits >= 2 and optimal.LEAST_EPSILON <= epsilon <= optimal.MOST_EPSILON:
        candidates += _optimal_if_possible(epsilon, lower, upper, 1 << min(n_bits, 6))
    return min(candidates, key=lambda mechanism: mechanism.worst_case_variance)


def _optimal_if_possible(
    epsilon: float, lower: float, upper: float, n_outputs: int
) -> list[Mechanism]:
    try:
        return [OptimalOutputs(epsilon, lower, upper, n_outputs=n_outputs)]
    except ImportError:
        return []


def __getattr__(name: str) -> Any:
    """`LocalPrivatizer` on demand: it needs scikit-learn, which dpcore does not."""
    if name == "LocalPrivatizer":
        from dpcore.learners.privatizer import LocalPrivatizer

        return LocalPrivatizer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
