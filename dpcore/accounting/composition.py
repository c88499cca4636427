"""What several releases cost together.

Sums are kept as doubles rounded up at every step, so a total is never below the truth. Gaussian
releases compose exactly (mu-GDP); pure ones add up, or count as eps**2 / 2 -zCDP; sampled Gaussian
ones go through the accountants of dp-accounting. Every bound computed here is valid on its own, so
the smallest one is taken.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from dpcore._checks import check_choice, check_instance, check_list, exact
from dpcore._events import (
    Event,
    GaussianEvent,
    PureEvent,
    SampledGaussianEvent,
    ZCDPEvent,
)
from dpcore.accounting import sampled
from dpcore.calibration import gdp_epsilon, gdp_holds
from dpcore.errors import ParameterError

__all__ = ["Composition", "compose", "verify", "zcdp_epsilon"]

_METHODS = ("best", "pure", "zcdp", "gdp", "rdp", "pld")
# Share of delta set aside for the distance between sampled and ideal laws.
_RESERVE = 2.0**-20


@dataclass
class Composition:
    """Sequential composition of events under one neighbouring relation and one unit.

    Attributes
    ----------
    adjacency, unit : str or None
        Those of the events so far; None before the first that has one.
    pure, pure_squares : float
        Sums of epsilon and of epsilon**2 over pure events.
    gaussian : float
        Sum of 1 / noise_multiplier**2 over Gaussian events: mu**2.
    rho : float
        Sum over zCDP events.
    law_distance : float
        Sum of the distances of sampled from ideal laws.
    sampled : dict of (noise_multiplier, sampling_rate) to int
        How often each sampled Gaussian was run.

    Privacy
    -------
    A calculation with public parameters: no data are read. Sums and bounds are rounded up, so a
    total is never below the truth; it covers the events that were added and no others.

    Cost
    ----
    A few microseconds for each event added; the size does not grow, but for one entry per kind of
    sampled Gaussian. `epsilon` takes under a millisecond for pure events, milliseconds with
    Gaussian ones, and tenths of a second or more with sampled ones.

    Examples
    --------
    >>> total = compose([PureEvent(mechanism="histogram", epsilon=0.5)] * 3)
    >>> round(total.epsilon(delta=0), 12)
    1.5
    """

    adjacency: str | None = None
    unit: str | None = None
    pure: float = 0.0
    pure_squares: float = 0.0
    gaussian: float = 0.0
    rho: float = 0.0
    law_distance: float = 0.0
    sampled: dict[tuple[float, float], int] = field(default_factory=dict)

    def add(self, event: Event) -> None:
        """Compose one more event; raises, and changes nothing, if its relation or unit differs."""
        check_instance(event, "event", Event)
        adjacency, unit = _common({self.adjacency, event.adjacency}, {self.unit, event.unit})
        sums = _sums([event])
        self.adjacency, self.unit = adjacency, unit
        self.pure = _up(self.pure + sums.pure)
        self.pure_squares = _up(self.pure_squares + sums.pure_squares)
        self.gaussian = _up(self.gaussian + sums.gaussian)
        self.rho = _up(self.rho + sums.rho)
        self.law_distance = _up(self.law_distance + sums.law_distance)
        for key, count in sums.sampled.items():
            self.sampled[key] = self.sampled.get(key, 0) + count

    def plus(self, other: Composition) -> Composition:
        """Both together, on the same data."""
        adjacency, unit = _common({self.adjacency, other.adjacency}, {self.unit, other.unit})
        joint = Composition(
            adjacency,
            unit,
            _up(self.pure + other.pure),
            _up(self.pure_squares + other.pure_squares),
            _up(self.gaussian + other.gaussian),
            _up(self.rho + other.rho),
            _up(self.law_distance + other.law_distance),
            dict(self.sampled),
        )
        for key, count in other.sampled.items():
            joint.sampled[key] = joint.sampled.get(key, 0) + count
        return joint

    @property
    def is_pure(self) -> bool:
        """Whether the total is a pure epsilon, with delta 0."""
        return not (self.gaussian or self.rho or self.sampled)

    def epsilon(self, delta: float = 0.0, method: str = "best") -> float:
        """An epsilon for which everything together is (epsilon, delta)-DP.

        Parameters
        ----------
        delta : float
            Failure probability; may be 0 if all events are pure.
        method : {"best", "pure", "zcdp", "gdp", "rdp", "pld"}
            The bound to use. "best" takes the smallest of those that apply; "rdp" and "pld" are
            used for sampled Gaussian events and need dp-accounting.

        Returns
        -------
        float
            Never below the truth; infinity where the bound does not cover the events.
        """
        chance = float(exact(delta, "delta"))
        if not 0 <= chance < 1:
            raise ParameterError("The 'delta' parameter must be at least 0 and below 1.")
        check_choice(method, "method", _METHODS)
        rest = chance * (1 - _RESERVE) if self.law_distance else chance
        loss = self._bound(rest, method)
        return loss if not self.law_distance or self._law_fits(loss, chance) else math.inf

    def is_within(self, epsilon: float, delta: float) -> bool:
        """Whether everything together is (epsilon, delta)-DP; quicker than the least epsilon."""
        if self.is_pure and self.pure <= epsilon:
            return True
        left = math.nextafter(epsilon - self.pure, 0.0)
        if self.gaussian and not (self.rho or self.sampled) and delta > 0 and left > 0:
            rest = delta * (1 - _RESERVE)
            mu = _up(math.sqrt(self.gaussian))
            if self._law_fits(epsilon, delta) and gdp_holds(mu, left, rest):
                return True
        return self.epsilon(delta) <= epsilon

    def _law_fits(self, epsilon: float, delta: float) -> bool:
        """Whether what was set aside of delta covers the distance of the laws."""
        cost = self.law_distance * (1 + math.exp(min(epsilon, 700.0))) * (1 + 1e-9)
        return cost <= delta * _RESERVE

    def _bound(self, delta: float, method: str) -> float:
        if method != "best":
            return float(getattr(self, f"_{method}")(delta))
        if self.is_pure:
            return min(self.pure, self._zcdp(delta))
        if not self.sampled:
            return min(self._gdp(delta), self._zcdp(delta))
        return self._rdp(delta) if self.rho else self._pld(delta)

    def _pure(self, delta: float) -> float:
        return self.pure if self.is_pure else math.inf

    def _zcdp(self, delta: float) -> float:
        if self.sampled or delta <= 0:
            return math.inf
        return zcdp_epsilon(_up(_up(self.pure_squares + self.gaussian) / 2 + self.rho), delta)

    def _gdp(self, delta: float) -> float:
        if self.sampled or self.rho or delta <= 0:
            return math.inf
        loss = gdp_epsilon(_up(math.sqrt(self.gaussian)), delta) if self.gaussian else 0.0
        return _up(self.pure + loss) if self.pure else loss

    def _rdp(self, delta: float) -> float:
        if delta <= 0:
            return math.inf
        loss = sampled.rdp_epsilon(self.sampled, self.gaussian, self.rho, delta)
        return _up(self.pure + loss)

    def _pld(self, delta: float) -> float:
        if self.rho or delta <= 0:
            return math.inf
        return _up(self.pure + sampled.pld_epsilon(self.sampled, self.gaussian, delta))


def compose(events: Iterable[Event]) -> Composition:
    """All events together, sequentially: on the same data.

    Privacy
    -------
    A calculation with public parameters: no data are read. Sums are rounded up; events of different
    relations or units are refused.

    Cost
    ----
    Under a microsecond per event.
    """
    listed = [check_instance(event, "events", Event) for event in check_list(events, "events")]
    adjacency, unit = _common({e.adjacency for e in listed}, {e.unit for e in listed})
    total = _sums(listed)
    total.adjacency, total.unit = adjacency, unit
    return total


def verify(events: Iterable[Event], epsilon: float, delta: float = 0.0) -> float:
    """The true epsilon of the events; raises ParameterError if it is above the one claimed.

    For formulas found in print: compute the noise by them if you must, and let the accountant say
    whether the claim holds.

    Privacy
    -------
    A calculation with public parameters: no data are read. The epsilon returned is never below the
    truth.

    Cost
    ----
    That of `compose` and `Composition.epsilon`.
    """
    claimed = float(exact(epsilon, "epsilon"))
    true = compose(events).epsilon(delta)
    if not true <= claimed:
        raise ParameterError(
            f"The 'epsilon' parameter claims {claimed:.6g} at delta {float(delta):.3g}, but the "
            f"accountant finds {true:.6g}."
        )
    return true


def zcdp_epsilon(rho: float, delta: float) -> float:
    """An epsilon for which rho-zCDP implies (epsilon, delta)-DP.

    The least over alpha of ``rho alpha + log(1 - 1/alpha) - log(alpha delta) / (alpha - 1)``
    (Canonne, Kamath and Steinke, 2020). Any alpha gives a valid bound, so the search need not be
    exact; the result is rounded up.

    Privacy
    -------
    A calculation with public numbers, rounded up; no data are read.

    Cost
    ----
    201 evaluations of the bound: some 0.1 milliseconds.

    Examples
    --------
    >>> round(zcdp_epsilon(0.5, 1e-6), 3)
    5.222
    """
    loss, chance = float(exact(rho, "rho")), float(exact(delta, "delta"))
    if not loss >= 0 or not 0 < chance < 1:
        raise ParameterError("The 'rho' and 'delta' parameters must be >= 0 and in (0, 1).")
    if loss == 0:
        return 0.0

    def bound(log_order: float) -> float:
        extra = math.exp(log_order)  # alpha - 1
        return (
            loss * (1 + extra)
            + math.log(extra / (1 + extra))
            - (math.log1p(extra) + math.log(chance)) / extra
        )

    low, high = -20.0, 40.0
    ratio = (math.sqrt(5) - 1) / 2
    for _ in range(100):
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        if bound(left) < bound(right):
            high = right
        else:
            low = left
    return max(0.0, bound((low + high) / 2) * (1 + 1e-12) + 1e-12)


def _common(adjacencies: set[str | None], units: set[Any]) -> tuple[str | None, str | None]:
    relations, kinds = adjacencies - {None}, units - {None}
    if len(relations) > 1:
        raise ParameterError(
            "The 'adjacency' of all events must be the same: losses under different neighbouring "
            "relations do not add up."
        )
    if len(kinds) > 1:
        raise ParameterError("The 'unit' of all events must be the same.")
    return next(iter(relations), None), next(iter(kinds), None)


def _sums(events: list[Event]) -> Composition:
    """Sums of one pass per kind; adjacency and unit are left to the caller."""
    by_kind: dict[type[Event], list[Any]] = {}
    for event in events:
        by_kind.setdefault(type(event), []).append(event)
    pure, gaussian = by_kind.get(PureEvent, []), by_kind.get(GaussianEvent, [])
    total = Composition()
    total.pure = _sum_up([e.epsilon * e.count for e in pure])
    total.pure_squares = _sum_up([e.epsilon * e.epsilon * e.count for e in pure])
    total.gaussian = _sum_up(
        [e.count / (e.noise_multiplier * e.noise_multiplier) for e in gaussian]
    )
    total.rho = _sum_up([e.rho * e.count for e in by_kind.get(ZCDPEvent, [])])
    drawn = by_kind.get(SampledGaussianEvent, [])
    total.law_distance = _sum_up([e.law_distance * e.count for e in (*gaussian, *drawn)])
    for e in drawn:
        key = (e.noise_multiplier, e.sampling_rate)
        total.sampled[key] = total.sampled.get(key, 0) + e.count
    return total


def _sum_up(terms: list[float]) -> float:
    """A sum not below the true one, of terms with two roundings each."""
    if not terms:
        return 0.0
    return _up(math.fsum(terms) * (1 + 2.0**-51))


def _up(value: float) -> float:
    return math.nextafter(value, math.inf) if value else 0.0
