r"""Ideal laws of the local mechanisms for one number, and the parameters that make them best.

Every mechanism maps ``x`` in [-1, 1] to an unbiased random number and is epsilon-LDP: the chances
of an output under two inputs differ by a factor of at most :math:`e^\epsilon`. "Best" means the
least worst-case variance, the largest over ``x``. Sources: Duchi, Jordan and Wainwright (2018) for
Duchi; Wang et al. (2019), "Collecting and Analyzing Multidimensional Data with Local Differential
Privacy", for PM and HM; Zhao et al. (2020), "Local Differential Privacy-Based Federated Learning
for Internet of Things", for Three-Outputs, PM-SUB, PM-OPT and HM-TP. HM-J is the joint optimum.

Epsilon, the privacy loss of one report, runs from 0.001 to 50. Nothing here draws a sample: the
numbers are doubles, in forms that keep a relative error near ``2**-52`` over that whole range, and
integer tables built from them are checked on their own. In all that follows ``E`` stands for
``exp(epsilon)``, ``s`` for ``1 / E`` and ``q`` for ``1 - s``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from numbers import Real

from dpcore.errors import ParameterError

__all__ = [
    "NAMES",
    "Duchi",
    "Laplace",
    "Law",
    "Mechanism",
    "Mixture",
    "Piecewise",
    "ThreeOutputs",
    "continuous",
    "hm_alpha",
    "hm_joint",
    "hm_tp_beta",
    "pm_opt_t",
    "three_outputs_a",
]

_LN2, _LN2_REST = 0.6931471805599453, 2.3190468138462996e-17
# Up to the first HM is Duchi alone; from the second on the best Three-Outputs has the largest a.
_HM_START, _THREE_LAST = 0.6093524930273095, 1.7103919310754397


def pm_opt_t(epsilon: float) -> float:
    """The t of PM-OPT: the positive root of ``t**4 + 2 E t**3 - 2 E t - E**2``."""
    epsilon = _check_epsilon(epsilon)
    s, t = math.exp(-epsilon), math.exp(epsilon / 3)
    # Convex and increasing to the right of the root, where t starts: Newton's steps only descend.
    while (step := t - _slope_in_t(s, t) / (4 * s * s * t**3 + 6 * s * t * t - 2 * s)) < t:
        t = step
    return t


def three_outputs_a(epsilon: float) -> float:
    """The chance of the output 0 at x = 0 that makes Three-Outputs best.

    It is 0 up to ``ln 2``, ``E`` times the root of a cubic up to ``ln((3 + sqrt(65)) / 2)``, and
    from there on ``E / (E + 2)``, the most that LDP allows.
    """
    epsilon = _check_epsilon(epsilon)
    if (excess := (epsilon - _LN2) - _LN2_REST) <= 0:
        return 0.0
    if epsilon >= _THREE_LAST:
        return 1 / (1 + 2 * math.exp(-epsilon))
    e, constant = math.exp(epsilon), 4 * math.expm1(excess)  # the latter is 2 (E - 2)
    linear, square = e * e + 4 * e - 7, e * e + 4 * e + 5
    return e * _crossing(
        lambda u: constant - u * (linear + u * (square - 2 * e * u)), 0.0, 1 / (e + 2)
    )


def hm_alpha(epsilon: float) -> float:
    """Share of PM in HM, its mixture with Duchi: ``1 - exp(-epsilon/2)``, or 0 up to 0.60935."""
    epsilon = _check_epsilon(epsilon)
    return -math.expm1(-epsilon / 2) if epsilon > _HM_START else 0.0


def hm_tp_beta(epsilon: float) -> float:
    """Share of PM-SUB in HM-TP, its best mixture with the best Three-Outputs."""
    return _hm_tp(_check_epsilon(epsilon)).weight


def hm_joint(epsilon: float) -> tuple[float, float, float]:
    """Parameters ``a, t, beta`` of HM-J, the best mixture of any Three-Outputs and any PM(t).

    The share ``beta`` of PM(t) is 0 up to 0.607584..., where ``t`` has no effect. The optimum has
    always been found at ``a = 0`` or at the largest ``a``; that is an observation (a search over
    all three parameters), not a theorem, and privacy does not rest on it.
    """
    best = _hm_joint(_check_epsilon(epsilon))
    return best.second.a, best.first.t, best.weight


def continuous(name: str, epsilon: float) -> Mechanism:
    """The ideal mechanism of a given name, one of `NAMES`.

    Examples
    --------
    >>> mechanism = continuous("hm", 1.0)
    >>> round(mechanism.worst_case_variance, 12)
    4.288992493282
    >>> round(mechanism.law(0.25).mean(), 12)
    0.25
    """
    if not isinstance(name, str) or name not in _MAKERS:
        listed = ", ".join(f"'{choice}'" for choice in NAMES)
        raise ParameterError(f"The 'name' parameter must be one of {listed}.")
    return _MAKERS[name](_check_epsilon(epsilon))


@dataclass(frozen=True)
class Law:
    """Atoms (value, probability) and pieces (left, right, density); or a Laplace law around x."""

    atoms: tuple[tuple[float, float], ...] = ()
    pieces: tuple[tuple[float, float, float], ...] = ()
    laplace_scale: float | None = None
    x: float = 0.0

    def total(self) -> float:
        """Probability of all outputs together, 1 but for rounding."""
        return math.fsum(chance for chance, _, _ in self._parts())

    def mean(self) -> float:
        """Expected output."""
        # The ends of a narrow piece are rounded; dividing by the total takes most of that back.
        return math.fsum(chance * centre for chance, centre, _ in self._parts()) / self.total()

    def variance(self) -> float:
        """Variance of the output."""
        mean = self.mean()
        parts = (chance * ((centre - mean) ** 2 + own) for chance, centre, own in self._parts())
        return math.fsum(parts) / self.total()

    def _parts(self) -> Iterator[tuple[float, float, float]]:
        """Probability, mean and variance of each part."""
        for value, chance in self.atoms:
            yield chance, value, 0.0
        for left, right, density in self.pieces:
            yield (right - left) * density, (left + right) / 2, (right - left) ** 2 / 12
        if self.laplace_scale is not None:
            yield 1.0, self.x, 2 * self.laplace_scale**2


class Mechanism(ABC):
    """An unbiased epsilon-LDP mechanism for one number of [-1, 1].

    The attribute ``support`` is the largest absolute value of an output, ``worst_case_input`` an
    ``x`` of [0, 1] at which the variance is largest.
    """

    support: float
    worst_case_input: float

    def __init__(self, epsilon: float) -> None:
        self.epsilon = _check_epsilon(epsilon)
        self.s, self.q = math.exp(-self.epsilon), -math.expm1(-self.epsilon)

    @abstractmethod
    def law(self, x: float) -> Law:
        """Law of the output for the input x."""

    @abstractmethod
    def variance(self, x: float) -> float:
        """Variance of the output for the input x."""

    @cached_property
    def worst_case_variance(self) -> float:
        """Largest variance over all inputs."""
        return self.variance(self.worst_case_input)


class Laplace(Mechanism):
    """The input plus Laplace noise of scale ``2 / epsilon``, given by the attribute `scale`."""

    support = math.inf
    worst_case_input = 0.0

    def __init__(self, epsilon: float) -> None:
        super().__init__(epsilon)
        self.scale = 2 / self.epsilon

    def law(self, x: float) -> Law:
        return Law(laplace_scale=self.scale, x=check_input(x))

    def variance(self, x: float) -> float:
        check_input(x)
        return 2 * self.scale**2


class Piecewise(Mechanism):
    """PM(t): density ``c`` on an interval around x, and ``c * s`` on the rest of [-A, A].

    ``t >= 1``; ``exp(epsilon/2)`` makes it PM, ``exp(epsilon/3)`` PM-SUB, `pm_opt_t` PM-OPT. The
    variance is ``curvature * x**2 + floor``.
    """

    worst_case_input = 1.0

    def __init__(self, epsilon: float, t: float) -> None:
        super().__init__(epsilon)
        self.t = _check_number(t, "t", 1.0, 1e30)
        s, q, t = self.s, self.q, self.t
        self._stretch = (1 + t * s) / q
        self.A = self.support = self._stretch * (1 + 1 / t)
        self.c = t * q / (2 * (1 + t * s) ** 2)
        self.curvature = (t + 1) * s / q
        self.floor = (1 + t * s) * ((t + 1) ** 3 * s + q) / (3 * t * t * q * q)

    def interval(self, x: float) -> tuple[float, float]:
        """Ends of the interval of higher density; it reaches A at x = 1 and -A at x = -1."""
        x = check_input(x)
        return self._stretch * (x - 1 / self.t), self._stretch * (x + 1 / self.t)

    def law(self, x: float) -> Law:
        (left, right), low = self.interval(x), self.c * self.s
        pieces = ((-self.A, left, low), (left, right, self.c), (right, self.A, low))
        return Law(pieces=tuple(piece for piece in pieces if piece[0] < piece[1]), x=float(x))

    def variance(self, x: float) -> float:
        return self.curvature * check_input(x) ** 2 + self.floor


class ThreeOutputs(Mechanism):
    """Outputs -C, 0 and C; 0 has the chance ``a`` at x = 0, which falls to ``a * s`` at x = 1.

    ``a`` is `three_outputs_a` by default, and at most ``a_max = E / (E + 2)``: above it the
    mechanism would not be epsilon-LDP. ``complement`` is ``1 - a``, accurate where ``a`` rounds
    to 1. The variance is ``floor + rise * abs(x) - x**2``.
    """

    def __init__(self, epsilon: float, a: float | None = None) -> None:
        super().__init__(epsilon)
        s, q = self.s, self.q
        self.a_max, least = 1 / (1 + 2 * s), 2 * s / (1 + 2 * s)
        chance = three_outputs_a(self.epsilon) if a is None else a
        self.a = a = _check_number(chance, "a", 0.0, self.a_max)
        self.complement = least if a == self.a_max else max(1 - a, least)
        self._mass = 1 - a * s
        self.C = self.support = (1 + s) / (q * self._mass)
        self.floor = self.C**2 * self.complement
        self.rise = self.C**2 * a * q
        self._edge = s * (4 + a * q * q) / (q * q * self._mass)  # the variance at x = 1
        self.worst_case_input = min(1.0, self.rise / 2)

    def law(self, x: float) -> Law:
        x = check_input(x)
        far, near = abs(x), 1 - abs(x)
        # Linear between x = 0 and x = 1, with the exact values of both ends.
        idle = near * self.complement / 2
        same = idle + far * self._mass / (1 + self.s)
        other = idle + far * self._mass * self.s / (1 + self.s)
        value = math.copysign(self.C, x)
        atoms = ((value, same), (0.0, self.a * (near + far * self.s)), (-value, other))
        return Law(tuple(sorted(atom for atom in atoms if atom[1] > 0)), x=x)

    def variance(self, x: float) -> float:
        far = abs(check_input(x))
        return (1 - far) * self.floor + far * self._edge + far * (1 - far)


class Duchi(ThreeOutputs):
    """One bit: outputs -C and C, where ``C = 1 / tanh(epsilon / 2)``. Three-Outputs with a = 0."""

    def __init__(self, epsilon: float) -> None:
        super().__init__(epsilon, 0.0)


class Mixture(Mechanism):
    """The first mechanism or the second, chosen by a coin that does not depend on the input.

    Both have the same epsilon. ``weight`` is the chance of the first, the alpha of HM and the beta
    of HM-TP and HM-J; ``complement`` that of the second, if known better than ``1 - weight``.
    """

    def __init__(
        self, first: Piecewise, second: ThreeOutputs, weight: float, complement: float | None = None
    ) -> None:
        super().__init__(first.epsilon)
        if second.epsilon != first.epsilon:
            raise ParameterError("The 'first' and 'second' parameters must have the same epsilon.")
        self.first, self.second = first, second
        self.weight = _check_number(weight, "weight", 0.0, 1.0)
        self.complement = 1 - self.weight if complement is None else complement
        if not (self.complement >= 0 and abs(self.weight + self.complement - 1) <= 1e-12):
            raise ParameterError("The 'weight' and 'complement' parameters must sum to 1.")
        used = ((first, self.weight), (second, self.complement))
        self.support = max(part.support for part, chance in used if chance)
        # Variance: constant + rise |x| - bend x**2. A bend of 0 may be rounded to either side.
        rise = self.complement * second.rise
        bend = self.complement - self.weight * first.curvature
        inside = rise < 2 * bend - 1e-15 * self.complement
        self.worst_case_input = rise / (2 * bend) if inside else 1.0

    def law(self, x: float) -> Law:
        atoms = [(at, self.complement * p) for at, p in self.second.law(x).atoms]
        pieces = [(left, right, self.weight * c) for left, right, c in self.first.law(x).pieces]
        kept = tuple(atoms) if self.complement else ()
        return Law(kept, tuple(pieces) if self.weight else (), x=float(x))

    def variance(self, x: float) -> float:
        return self.weight * self.first.variance(x) + self.complement * self.second.variance(x)


def _hm(epsilon: float) -> Mixture:
    weight, pm = hm_alpha(epsilon), Piecewise(epsilon, math.exp(epsilon / 2))
    return Mixture(pm, Duchi(epsilon), weight, math.exp(-epsilon / 2) if weight else 1.0)


def _hm_tp(epsilon: float) -> Mixture:
    return _best_mixture(Piecewise(epsilon, math.exp(epsilon / 3)), ThreeOutputs(epsilon))


def _hm_joint(epsilon: float) -> Mixture:
    s, q = math.exp(-epsilon), -math.expm1(-epsilon)
    duchi, three = Duchi(epsilon), ThreeOutputs(epsilon)

    # With Duchi the best share makes the variance constant in x: the slope of that constant in t.
    def slope_with_duchi(t: float) -> float:
        cube = t**3 * s
        return (2 + 3 * t * s - cube) * (1 + t * s) ** 2 - 3 * cube * (1 + s) ** 2

    # Otherwise the worst case lies at an x < 1, and only the piecewise variance there depends on t.
    def slope_with_three(t: float) -> float:
        x = _best_mixture(Piecewise(epsilon, t), three).worst_case_input
        return 1.5 * s * q * (1 - x * x) * t**3 - _slope_in_t(s, t)

    largest = 2 * math.exp(epsilon / 3)
    candidates = (
        _best_mixture(Piecewise(epsilon, _crossing(slope, 1.0, largest)), second)
        for slope, second in ((slope_with_duchi, duchi), (slope_with_three, three))
    )
    return min(candidates, key=lambda mixture: mixture.worst_case_variance)


def _best_mixture(first: Piecewise, second: ThreeOutputs) -> Mixture:
    """The mixture with the least worst-case variance, for the second with its best a or a = 0.

    Either of these has less variance at x = 1 than any piecewise mechanism, so the worst case of
    the best mixture lies inside (or, for a = 0, everywhere).
    """
    steepness = 1 + first.curvature
    spread = second.rise**2 + 4 * steepness * (second.floor - first.floor)
    bend = first.curvature * second.rise / math.sqrt(spread) if spread > 0 else math.inf
    if bend >= 1:
        return Mixture(first, second, 0.0)
    share = (1 - bend) / steepness
    return Mixture(first, second, share, (bend + first.curvature) / steepness)


def _slope_in_t(s: float, t: float) -> float:
    """A positive multiple of the slope in t of the worst-case variance of PM(t)."""
    return s * s * t**4 + 2 * s * t**3 - 2 * s * t - 1


def _crossing(slope: Callable[[float], float], low: float, high: float) -> float:
    """Where a function goes from positive, at low, to negative, at high, to the last bit."""
    while low < (middle := (low + high) / 2) < high:
        if slope(middle) > 0:
            low = middle
        else:
            high = middle
    return high


def _check_epsilon(epsilon: float) -> float:
    return _check_number(epsilon, "epsilon", 1e-3, 50.0)


def check_input(x: float) -> float:
    return _check_number(x, "x", -1.0, 1.0)


def _check_number(value: object, name: str, least: float, most: float) -> float:
    try:
        number = float(value) if isinstance(value, Real) else math.nan
    except OverflowError:
        number = math.nan
    if least <= number <= most and not isinstance(value, bool):
        return number
    limit = "E / (E + 2)" if name == "a" else f"{most:g}"
    raise ParameterError(f"The '{name}' parameter must be a number between {least:g} and {limit}.")


_MAKERS: dict[str, Callable[[float], Mechanism]] = {
    "laplace": Laplace,
    "duchi": Duchi,
    "pm": lambda epsilon: Piecewise(epsilon, math.exp(epsilon / 2)),
    "hm": _hm,
    "three-outputs": ThreeOutputs,
    "pm-sub": lambda epsilon: Piecewise(epsilon, math.exp(epsilon / 3)),
    "pm-opt": lambda epsilon: Piecewise(epsilon, pm_opt_t(epsilon)),
    "hm-tp": _hm_tp,
    "hm-j": _hm_joint,
}
NAMES = tuple(_MAKERS)
