"""Stochastic gradient descent in which each device answers once, with a few randomised bits."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dpcore.federated.devices import Devices
from dpcore.federated.losses import Loss
from dpcore.local.vectors import Vector
from dpcore.noise import Noise

__all__ = ["LARGEST", "Server", "default_group_size", "gradient_at", "run_group"]

Array = npt.NDArray[np.float64]

_BLOCK = 1 << 17  # numbers of X gathered at a time: they stay in the cache
_MOST_ROUNDS = 100
LARGEST = 1e100  # of the coordinates of a model, up to which no gradient fails
_STEEPEST = 1e200  # slopes beyond, of losses without a bound, would sum up to infinity


@dataclass
class Server:
    """The model and the rule that moves it; everything here is public.

    Attributes
    ----------
    theta : ndarray
        The model; the last coordinate is the intercept if there is one.
    average : ndarray
        The running mean of the models, weighted by their steps.
    n_rounds : int
        Rounds done.
    """

    theta: Array
    learning_rate: float
    alpha: float
    clip: float
    intercept: bool
    average: Array
    n_rounds: int = 0
    weight: float = 0.0

    @staticmethod
    def start(
        d: int, *, learning_rate: float, alpha: float, clip: float, intercept: bool
    ) -> Server:
        zero = np.zeros(d)
        return Server(zero, learning_rate, alpha, clip, intercept, zero.copy())

    def step(self, mean: Array) -> float:
        """One step of length learning_rate / sqrt(round); returns how far the model moved.

        The gradient of the regulariser needs no data: it is added here, not on the devices, whose
        budget is spent on the data alone.
        """
        self.n_rounds += 1
        size = self.learning_rate / math.sqrt(self.n_rounds)
        penalty = self.alpha * self.theta
        if self.intercept:
            penalty[-1] = 0.0
        change = size * (self.clip * mean + penalty)
        self.theta = self.theta - change
        self.weight += size
        self.average = self.average + (self.theta - self.average) * (size / self.weight)
        return float(np.linalg.norm(change))


def default_group_size(n: int, d: int, epsilon: float) -> int:
    """Devices per round: about d log(d) / epsilon**2, and at most 100 rounds in all."""
    wanted = d * math.log(max(d, 2)) / min(epsilon, 1e3) ** 2
    return max(1, min(n, max(math.ceil(wanted), -(-n // _MOST_ROUNDS))))


def run_group(
    server: Server,
    collector: Vector,
    release: Noise,
    start: int,
    devices: Devices,
    chosen: npt.NDArray[np.intp],
    X: npt.NDArray[Any],
    y: Array,
    loss: Loss,
) -> float:
    """One round: every chosen device reports on its gradient, the server takes one step.

    Device i of the group is number start + i of the release. Returns how far the model moved.
    """
    tally = np.zeros((collector.d, collector.numeric.n_outputs), np.int64)  # type: ignore[union-attr]
    largest = 1 if devices.are_single else int(devices.sizes[chosen].max())
    step = max(1, _BLOCK // (X.shape[1] * largest))
    for a in range(0, len(chosen), step):
        block = chosen[a : a + step]
        values = gradient_at(server, devices, block, X, y, loss)
        reports = collector.report(release, start + a, len(block), values)
        tally += collector.tally(reports)
    return server.step(collector.mean(tally, len(chosen)))


def gradient_at(
    server: Server,
    devices: Devices,
    chosen: npt.NDArray[np.intp],
    X: npt.NDArray[Any],
    y: Array,
    loss: Loss,
) -> Any:
    """What the devices do: from coordinates to their mean gradients there, clipped, over clip.

    For rows of doubles in [-1, 1], finite targets and models up to `LARGEST` the result is finite:
    whether a device can answer does not depend on its data.
    """
    rows, starts = devices.records(chosen)
    contiguous = len(rows) == rows[-1] - rows[0] + 1 and bool((np.diff(rows) == 1).all())
    data = X[rows[0] : rows[-1] + 1] if contiguous else np.take(X, rows, axis=0)
    target = y[rows]
    n_columns = X.shape[1]
    theta = server.theta[:n_columns].astype(X.dtype)
    scores = (data @ theta).astype(np.float64)
    if server.intercept:
        scores += server.theta[-1]
    with np.errstate(over="ignore"):
        slopes = np.clip(loss.at(scores, target)[1], -_STEEPEST, _STEEPEST)
    sizes = None if devices.are_single else devices.sizes[chosen]

    def values(index: npt.NDArray[np.int64]) -> Array:
        wanted = index if sizes is None else np.repeat(index, sizes, axis=0)
        inside = np.minimum(wanted, n_columns - 1)
        at = data[np.arange(len(rows))[:, np.newaxis], inside].astype(np.float64)
        if server.intercept:
            at[wanted == n_columns] = 1.0
        at *= slopes[:, np.newaxis]
        if sizes is not None:
            at = np.add.reduceat(at, starts, axis=0) / sizes[:, np.newaxis]
        with np.errstate(over="ignore"):
            return np.asarray(np.clip(at / server.clip, -1.0, 1.0))

    return values
