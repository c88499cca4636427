"""The ten mechanisms for one number; `dpcore.local.base` says what they have in common."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from dpcore._checks import check_choice, check_index
from dpcore.local import continuous, discrete, optimal
from dpcore.local.base import Mechanism
from dpcore.local.tables import RowTable

__all__ = [
    "Duchi",
    "Hybrid",
    "HybridJoint",
    "HybridTP",
    "Laplace",
    "OptimalOutputs",
    "Piecewise",
    "PiecewiseOpt",
    "PiecewiseSub",
    "ThreeOutputs",
]


class _Levels(Mechanism):
    """A mechanism whose outputs are continuous and are moved to n_levels codes."""

    _default_levels: ClassVar[int] = 64
    fewest_levels: ClassVar[int] = 2

    def __init__(
        self,
        epsilon: float,
        lower: float = -1.0,
        upper: float = 1.0,
        n_levels: int | None = None,
    ) -> None:
        levels = self._default_levels if n_levels is None else n_levels
        self.n_levels = check_index(
            levels, "n_levels", least=self.fewest_levels, limit=(1 << 12) + 1
        )
        super().__init__(epsilon, lower, upper)

    def _options(self) -> dict[str, Any]:
        return {"n_levels": self.n_levels}

    def _table(self) -> RowTable:
        return _cached_table(self._exact, self.epsilon, self.n_levels)

    @classmethod
    @abstractmethod
    def _exact(cls, epsilon: float, n_levels: int) -> discrete.Exact:
        """The law as rationals."""


class _Atoms(Mechanism):
    """A mechanism with finitely many outputs of its own."""

    def _table(self) -> RowTable:
        return _cached_table(self._exact, self.epsilon, 0)

    @classmethod
    @abstractmethod
    def _exact(cls, epsilon: float, n_levels: int) -> discrete.Exact:
        """The law as rationals."""


@lru_cache(maxsize=64)
def _cached_table(
    law: Callable[[float, int], discrete.Exact], epsilon: float, n_levels: int
) -> RowTable:
    rows = law(epsilon, n_levels)
    return RowTable.build(Fraction(epsilon), rows.outputs, rows.rows)


class Laplace(_Levels):
    """x + Laplace noise of scale 2 / epsilon, on n_levels points (default 256).

    The variance, 8 / epsilon**2 for values in [-1, 1] before discretisation, is the largest of all
    from epsilon 2.3 down; kept as a baseline.

    Privacy
    -------
    As of `Mechanism`: epsilon-local-DP of one report, verified for the integers in use. These have
    finitely many outputs within a finite range, unlike the law they come from.

    Cost
    ----
    As of `Mechanism`, with n_levels outputs: 8 bits for 256. Construction takes less than a second
    for these and grows with n_levels.
    """

    name = "laplace"
    kind = 1
    _default_levels = 256
    fewest_levels = 32

    @classmethod
    def _exact(cls, epsilon: float, n_levels: int) -> discrete.Exact:
        return discrete.laplace(Fraction(epsilon), n_levels)


class Duchi(_Atoms):
    """Duchi, Jordan and Wainwright's one-bit mechanism: the best published below epsilon 0.6.

    Privacy
    -------
    As of `Mechanism`: epsilon-local-DP of one report, verified for the integers in use.

    Cost
    ----
    As of `Mechanism`, with two outputs: 1 bit. Construction takes less than a millisecond.

    Examples
    --------
    >>> from dpcore import local
    >>> local.Duchi(1.0).n_bits
    1
    """

    name = "duchi"
    kind = 2

    @classmethod
    def _exact(cls, epsilon: float, n_levels: int) -> discrete.Exact:
        return discrete.duchi(Fraction(epsilon))


class ThreeOutputs(_Atoms):
    """Outputs -C, 0 and C with the best probability of 0: two bits.

    Privacy
    -------
    As of `Mechanism`: epsilon-local-DP of one report, verified for the integers in use.

    Cost
    ----
    As of `Mechanism`, with three outputs: 2 bits. Up to an epsilon of ln 2 the best probability of
    0 is 0, and two outputs, 1 bit, are left.

    Examples
    --------
    >>> from dpcore import local
    >>> round(local.ThreeOutputs(1.0).worst_case_variance, 3)
    4.455
    """

    name = "three-outputs"
    kind = 5

    @classmethod
    def _exact(cls, epsilon: float, n_levels: int) -> discrete.Exact:
        return _three(epsilon)


class Piecewise(_Levels):
    """The piecewise mechanism PM of Wang et al. (t = e**(epsilon/2)), on n_levels points.

    Privacy
    -------
    As of `Mechanism`: epsilon-local-DP of one report, verified for the integers in use.

    Cost
    ----
    As of `Mechanism`, with n_levels outputs, 64 by default: 6 bits. Construction takes tens of
    milliseconds for these and grows with n_levels.
    """

    name = "pm"
    kind = 3

    @classmethod
    def _exact(cls, epsilon: float, n_levels: int) -> discrete.Exact:
        return discrete.piecewise(Fraction(epsilon), math.exp(epsilon / 2), n_levels)


class PiecewiseSub(_Levels):
    """PM-SUB: the piecewise mechanism with t = e**(epsilon/3).

    Privacy
    -------
    As of `Mechanism`: epsilon-local-DP of one report, verified for the integers in use.

    Cost
    ----
    As of `Piecewise`: n_levels outputs, 64 by default, in 6 bits.
    """

    name = "pm-sub"
    kind = 6

    @classmethod
    def _exact(cls, epsilon: float, n_levels: int) -> discrete.Exact:
        return discrete.piecewise(Fraction(epsilon), math.exp(epsilon / 3), n_levels)


class PiecewiseOpt(_Levels):
    """PM-OPT: the piecewise mechanism with the t of least worst-case variance.

    Privacy
    -------
    As of `Mechanism`: epsilon-local-DP of one report, verified for the integers in use, so it does
    not rest on how exactly t was found.

    Cost
    ----
    As of `Piecewise`: n_levels outputs, 64 by default, in 6 bits.
    """

    name = "pm-opt"
    kind = 7

    @classmethod
    def _exact(cls, epsilon: float, n_levels: int) -> discrete.Exact:
        return discrete.piecewise(Fraction(epsilon), continuous.pm_opt_t(epsilon), n_levels)


class Hybrid(_Levels):
    """HM of Wang et al.: Duchi's mechanism or PM, chosen at random.

    Privacy
    -------
    As of `Mechanism`: epsilon-local-DP of one report, verified for the integers in use: those of
    the mixture, whose codes tell which of the two was chosen.

    Cost
    ----
    As of `Mechanism`, with n_levels outputs in all, 64 by default: 6 bits. Up to epsilon 0.609 it
    is Duchi's mechanism: two outputs, 1 bit.
    """

    name = "hm"
    kind = 4
    fewest_levels = 4

    @classmethod
    def _exact(cls, epsilon: float, n_levels: int) -> discrete.Exact:
        weight = continuous.hm_alpha(epsilon)
        return _mixed(_duchi(epsilon), epsilon, math.exp(epsilon / 2), weight, n_levels)


class HybridTP(_Levels):
    """HM-TP: Three-Outputs or PM-SUB, chosen at random.

    Privacy
    -------
    As of `Mechanism`: epsilon-local-DP of one report, verified for the integers in use: those of
    the mixture, whose codes tell which of the two was chosen.

    Cost
    ----
    As of `Mechanism`, with n_levels outputs in all, 64 by default: 6 bits. Up to epsilon 0.610 it
    is Duchi's mechanism: two outputs, 1 bit.
    """

    name = "hm-tp"
    kind = 8
    fewest_levels = 5

    @classmethod
    def _exact(cls, epsilon: float, n_levels: int) -> discrete.Exact:
        weight = continuous.hm_tp_beta(epsilon)
        return _mixed(_three(epsilon), epsilon, math.exp(epsilon / 3), weight, n_levels)


class HybridJoint(_Levels):
    """HM-J: Three-Outputs(a) or PM(t), with a, t and the mixing chance optimised together.

    Before discretisation its worst-case variance is at most that of every other mechanism here but
    `OptimalOutputs`. With few levels and a large epsilon `PiecewiseOpt`, which has more levels
    for the same bits, comes out ahead.

    Privacy
    -------
    As of `Mechanism`: epsilon-local-DP of one report, verified for the integers in use, so it does
    not rest on how well the parameters were optimised.

    Cost
    ----
    As of `Mechanism`, with n_levels outputs in all, 64 by default: 6 bits. Up to epsilon 0.607 it
    is Duchi's mechanism: two outputs, 1 bit.
    """

    name = "hm-j"
    kind = 9
    fewest_levels = 5

    @classmethod
    def _exact(cls, epsilon: float, n_levels: int) -> discrete.Exact:
        a, t, weight = continuous.hm_joint(epsilon)
        first = discrete.three_outputs(Fraction(epsilon), a)
        return _mixed(first, epsilon, t, weight, n_levels)


class OptimalOutputs(Mechanism):
    """The mechanism of least worst-case variance with n_outputs outputs, by linear programming.

    Parameters
    ----------
    epsilon, lower, upper : float
        As for every mechanism.
    n_outputs : int
        2 to 256; fewer codes may come out where some would go unused.
    objective : {"worst", "second_moment", "at_zero"}
        What is made small: the largest variance; the largest mean square of a report, which counts
        where only some attributes are reported; or the variance at the middle of the bounds.

    Privacy
    -------
    As of `Mechanism`: epsilon-local-DP of one report, verified for the integers in use, so it does
    not rest on the search, which uses floats.

    Cost
    ----
    As of `Mechanism`, with n_outputs outputs at most: 4 bits for 16. For the time of construction
    see the notes.

    Notes
    -----
    Tables for common epsilons are part of the package; others need SciPy and a few seconds.

    Examples
    --------
    >>> from dpcore import local
    >>> bool(local.OptimalOutputs(1.0, n_outputs=8).worst_case_variance < 4.0753)
    True
    """

    name = "optimal"
    kind = 10

    def __init__(
        self,
        epsilon: float,
        lower: float = -1.0,
        upper: float = 1.0,
        n_outputs: int = 16,
        objective: str = "worst",
    ) -> None:
        self._asked = check_index(n_outputs, "n_outputs", least=2, limit=257)
        self.objective = check_choice(objective, "objective", optimal.OBJECTIVES)
        super().__init__(epsilon, lower, upper)

    def _options(self) -> dict[str, Any]:
        return {"n_outputs": self._asked, "objective": self.objective}

    def _table(self) -> RowTable:
        return _optimal_table(self.epsilon, self._asked, self.objective)

    def law(self, x: float) -> continuous.Law:
        """The law at x in [-1, 1]: this mechanism has no continuous form behind it."""
        x = continuous.check_input(x)
        chances = self.pmf(self._from_unit(np.array(x)))
        pairs = zip(self.table.outputs, chances.tolist(), strict=True)
        return continuous.Law(atoms=tuple(pairs), x=x)


@lru_cache(maxsize=64)
def _optimal_table(epsilon: float, n_outputs: int, objective: str) -> RowTable:
    solution = optimal.optimal(epsilon, n_outputs, objective)
    rows = [[Fraction(p) for p in row] for row in solution.rows.tolist()]
    return RowTable.build(Fraction(epsilon), solution.outputs.tolist(), rows)


def _duchi(epsilon: float) -> discrete.Exact:
    return discrete.duchi(Fraction(epsilon))


def _three(epsilon: float) -> discrete.Exact:
    return discrete.three_outputs(Fraction(epsilon), continuous.three_outputs_a(epsilon))


def _mixed(
    first: discrete.Exact, epsilon: float, t: float, weight: float, n_levels: int
) -> discrete.Exact:
    """Atoms and piecewise levels, n_levels in all; the atoms alone where they win.

    Atoms of a share below 2**-32 are left out. They change the variance by less than rounding does,
    and their smallest probabilities, e**epsilon times smaller still, would not fit into 128 bits.
    """
    if weight == 0:
        return first
    if 1 - weight < 2**-32:
        return discrete.piecewise(Fraction(epsilon), t, n_levels)
    second = discrete.piecewise(Fraction(epsilon), t, n_levels - len(first.outputs))
    return discrete.mixture(first, second, weight)
