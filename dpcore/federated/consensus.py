"""Consensus ADMM: a server that sees sums, and users that keep their data, models and duals.

Each user holds a model w, a scaled dual variable lambda and the last model it received. What it
sends is one vector, the change of v = w + lambda: sent apart, the changes of w and of lambda would
tell the server the sums of the old and of the new models, whose difference over two sets of users
is a single one's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from dpcore.federated.shares import Plan
from dpcore.federated.solvers import LocalProblems
from dpcore.noise import Noise

__all__ = ["Consensus", "GradientDescent", "Penalty", "plain_sum", "tail_mean"]

Array = npt.NDArray[np.float64]
Index = npt.NDArray[np.intp]
Integers = npt.NDArray[np.int64]
Summation = Callable[[Integers, Index], Integers]


def plain_sum(units: Integers, users: Index) -> Integers:
    """The sum of the users' messages, as a trusted aggregator makes it."""
    return np.asarray(units.sum(axis=0))


@dataclass(frozen=True)
class Penalty:
    """l1 * norm(w, 1) + l2 / 2 * norm(w)**2."""

    l1: float = 0.0
    l2: float = 0.0

    def minimise(self, v: Array, weight: float) -> Array:
        """argmin over w of the penalty + weight / 2 * norm(w - v)**2."""
        soft = np.sign(v) * np.maximum(np.abs(v) - self.l1 / weight, 0.0)
        return np.asarray(soft * (weight / (self.l2 + weight)))

    def value(self, w: Array) -> float:
        return float(self.l1 * np.abs(w).sum() + self.l2 / 2 * (w @ w))


@dataclass
class Consensus:
    """State of a run: the server's and, below, the users'.

    Parameters
    ----------
    problems : LocalProblems
    penalty : Penalty
    relaxation : float
        Between 0 and 2; above 1 users work near a point beyond the server's model, as seen from
        their own.
    plan : Plan, optional
        Noise; without it messages are exact.
    noise_in_state : bool
        Whether users keep their models with the noise on them, and send changes, or add fresh noise
        to each message, and send v itself.
    summation : callable
        How integer messages are summed: `plain_sum`, or by secure aggregation.
    noise : Noise, optional
        Source of the shares.

    Attributes
    ----------
    w0 : ndarray
        The server's model.
    average : ndarray
        The server's average of w + lambda over all users.
    w, dual, received : ndarray of shape (n, d)
        Models, scaled dual variables, and last models received of the users: private.
    """

    problems: LocalProblems
    penalty: Penalty
    relaxation: float = 1.0
    plan: Plan | None = None
    noise_in_state: bool = True
    summation: Summation = plain_sum
    noise: Noise | None = None
    w0: Array = field(init=False)
    average: Array = field(init=False)
    w: Array = field(init=False)
    dual: Array = field(init=False)
    received: Array = field(init=False)

    def __post_init__(self) -> None:
        n, d = self.problems.n, self.problems.d
        self.w0, self.average = np.zeros(d), np.zeros(d)
        self.w, self.dual, self.received = (np.zeros((n, d)) for _ in range(3))
        self._sent: npt.NDArray[Any] = np.zeros(
            (n, d), np.float64 if self.plan is None else np.int64
        )
        self._total = np.zeros(d, np.int64)
        self._rho: float | None = None

    def round(self, number: int, users: Index, rho: float) -> float:
        """One round with these users; returns how far the server's model moved."""
        if self._rho is not None and self._rho != rho:
            self.dual *= self._rho / rho  # the multiplier itself is rho times the scaled one
        self._rho = rho
        ahead = self.relaxation * self.received[users] + (1 - self.relaxation) * self.w[users]
        w = self.problems.solve(users, ahead - self.dual[users], rho)
        if self.plan is not None and self.noise_in_state:
            units = self.plan.quantize(w, self.problems.n)
            w = self.plan.dequantize(units + self._shares(number, users))
        self.w[users] = w
        self.dual[users] += w - ahead
        self._collect(number, users, w + self.dual[users])
        before, n = self.w0, self.problems.n
        self.w0 = self.penalty.minimise(self.average, n * rho)
        self.received[users] = self.w0
        return float(np.linalg.norm(self.w0 - before))

    def _collect(self, number: int, users: Index, v: Array) -> None:
        n = self.problems.n
        if self.plan is None:
            self.average = self.average + (v - self._sent[users]).sum(axis=0) / n
            self._sent[users] = v
            return
        units = self.plan.quantize(v, n)
        if self.noise_in_state:
            self._total += self.summation(np.subtract(units, self._sent[users]), users)
            self._sent[users] = units
        else:
            self._total = self.summation(units + self._shares(number, users), users)
        self.average = self.plan.dequantize(self._total) / n

    def _shares(self, number: int, users: Index) -> Integers:
        assert self.plan is not None
        assert self.noise is not None
        return self.plan.draw(self.noise, number, users, self.problems.d)

    def primal_residual(self) -> float:
        """Root of the mean square distance of the users' models from the server's: private."""
        return float(np.sqrt(np.square(self.w - self.w0).sum() / self.problems.n))


@dataclass
class GradientDescent:
    """Users send gradients at the server's model and keep no state.

    The server takes accelerated proximal steps, restarted where they turn back.

    Parameters
    ----------
    problems, penalty, plan, summation, noise
        As for `Consensus`.
    smoothness : float
        Largest curvature of the sum of all losses; steps have length 1 / smoothness.
    """

    problems: LocalProblems
    penalty: Penalty
    smoothness: float
    plan: Plan | None = None
    summation: Summation = plain_sum
    noise: Noise | None = None
    w0: Array = field(init=False)

    def __post_init__(self) -> None:
        self.w0 = np.zeros(self.problems.d)
        self._ahead = self.w0
        self._weight = 1.0

    def round(self, number: int, users: Index, rho: float) -> float:
        """One round; returns how far the server's model moved. rho is not used."""
        before = self.w0
        gradient = self._gradient(number, users)
        target = self._ahead - gradient / self.smoothness
        self.w0 = self.penalty.minimise(target, self.smoothness)
        if (self._ahead - self.w0) @ (self.w0 - before) > 0:
            self._weight = 1.0
        weight = (1 + np.sqrt(1 + 4 * self._weight**2)) / 2
        self._ahead = self.w0 + (self._weight - 1) / weight * (self.w0 - before)
        self._weight = weight
        return float(np.linalg.norm(self.w0 - before))

    def _gradient(self, number: int, users: Index) -> Array:
        gradients = self.problems.gradients(self._ahead)[users]
        if self.plan is None:
            return np.asarray(gradients.sum(axis=0))
        assert self.noise is not None
        units = self.plan.quantize(gradients, self.problems.n)
        units += self.plan.draw(self.noise, number, users, self.problems.d)
        return self.plan.dequantize(self.summation(units, users))

    def primal_residual(self) -> float:
        """Users have no models of their own."""
        return 0.0


def tail_mean(models: Sequence[Array], count: int) -> Array:
    """The mean of the last models: post-processing that takes noise away."""
    return np.asarray(np.mean(models[-count:], axis=0))
