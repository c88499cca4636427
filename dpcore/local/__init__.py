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

from dpcore.errors import ParameterError
from dpcore.local.categorical import GRR, OUE, Frequencies, best_categorical
from dpcore.local.duchi_multi import DuchiMulti
from dpcore.local.mechanisms import (
    Duchi,
    Estimate,
    Hybrid,
    HybridJoint,
    HybridTP,
    Laplace,
    Mechanism,
    OptimalOutputs,
    Piecewise,
    PiecewiseOpt,
    PiecewiseSub,
    ThreeOutputs,
)
from dpcore.local.schema import Categorical, Numeric
from dpcore.local.tuples import Reports, SplitBudget, Tuple, TupleEstimate

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


def make(
    name: str, epsilon: float, lower: float = -1.0, upper: float = 1.0, **options: Any
) -> Mechanism:
    """A mechanism by its name, one of `NAMES`.

    Examples
    --------
    >>> make("three-outputs", 1.0)
    ThreeOutputs(epsilon=1.0, lower=-1.0, upper=1.0)
    """
    if name not in _MECHANISMS:
        raise ParameterError(f"The 'name' parameter must be one of {', '.join(NAMES)}.")
    return _MECHANISMS[name](epsilon, lower, upper, **options)


def best(
    epsilon: float, lower: float = -1.0, upper: float = 1.0, *, max_bits: int | None = None
) -> Mechanism:
    """The mechanism of least worst-case variance whose codes take at most max_bits.

    Considers every mechanism with as many outputs as the bits allow (at most 6 bits are tried:
    more gain less than one per cent). Mechanisms that would need a solver that is not installed
    are left out.

    Examples
    --------
    >>> best(0.5, max_bits=1).name
    'duchi'
    """
    if max_bits is not None and (not isinstance(max_bits, int) or max_bits < 1):
        raise ParameterError("The 'max_bits' parameter must be a positive integer.")
    n_bits = min(max_bits or 6, 6)
    candidates: list[Mechanism] = [Duchi(epsilon, lower, upper)]
    if n_bits >= 2:
        candidates.append(ThreeOutputs(epsilon, lower, upper))
        candidates += _optimal_candidates(epsilon, lower, upper, n_bits)
    if n_bits >= 3:
        candidates += [
            kind(epsilon, lower, upper, n_levels=1 << n_bits)
            for kind in (Piecewise, PiecewiseSub, PiecewiseOpt, Hybrid, HybridTP, HybridJoint)
        ]
    return min(candidates, key=lambda mechanism: mechanism.worst_case_variance)


def _optimal_candidates(epsilon: float, lower: float, upper: float, n_bits: int) -> list[Mechanism]:
    try:
        return [OptimalOutputs(epsilon, lower, upper, n_outputs=1 << n_bits)]
    except (ImportError, ParameterError):
        return []


def __getattr__(name: str) -> Any:
    """`LocalPrivatizer` on demand: it needs scikit-learn, which dpcore does not."""
    if name == "LocalPrivatizer":
        from dpcore.learners.privatizer import LocalPrivatizer

        return LocalPrivatizer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
