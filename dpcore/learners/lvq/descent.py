"""Descent on the cost: private steps on noisy clipped sums, and the twins without privacy."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from dpcore import random
from dpcore._gradients import noisy_sum
from dpcore.learners._progress import progress_bar
from dpcore.learners.lvq.clipped import clipped_sums, to_grid
from dpcore.learners.lvq.kernel import Model, Sums, Transfer, gradient_sums
from dpcore.noise import Noise

__all__ = ["Schedule", "lbfgs", "noisy_sums", "private_descent", "step", "stochastic_descent"]

Array = npt.NDArray[Any]

_REACH = 2.0  # prototypes stay in this cube


@dataclass(frozen=True)
class Schedule:
    """Everything about the steps that is fixed before the first of them.

    Attributes
    ----------
    steps, sampling_rate
    lot : float
        What sums are divided by: sampling rate times the public or noisy number of records, never
        the size of a lot.
    clip : float
    rate, omega_rate : float
        Step lengths of prototypes and of Omega.
    omega_norm : float
        Frobenius norm that Omega is scaled to after each step.
    transfer : Transfer
    """

    steps: int
    sampling_rate: float
    lot: float
    clip: float
    rate: float
    omega_rate: float
    omega_norm: float
    transfer: Transfer


def scaled_omega(omega: Array, norm: float) -> Array:
    """Omega with a Frobenius norm of `norm`, in place; weights of GRLVQ are clamped at 0 before.

    Where noise leaves nothing, all features begin anew.
    """
    if omega.ndim == 1:
        omega = np.maximum(omega, 0)
        if not omega.any():
            omega = np.ones_like(omega)
        return np.asarray(omega * (norm * norm / omega.sum()))
    size = math.sqrt(np.square(omega).sum())  # not by BLAS, whose threads may change digits
    if size == 0:
        return scaled_omega(np.eye(*omega.shape), norm)
    omega *= norm / size
    return omega


def step(model: Model, sums: Sums, schedule: Schedule) -> Model:
    """The model after one step along the sums, which is post-processing of them."""
    moved = model.prototypes - (schedule.rate / schedule.lot) * sums.prototypes
    prototypes = np.clip(moved, -_REACH, _REACH)
    if model.omega is None or sums.omega is None:
        return replace(model, prototypes=prototypes)
    omega = np.multiply(sums.omega, -schedule.omega_rate / schedule.lot)
    omega += model.omega
    return replace(model, prototypes=prototypes, omega=scaled_omega(omega, schedule.omega_norm))


def noisy_sums(sums: Sums, clip: float, multiplier: float, source: Noise) -> Sums:
    """The sums with exact Gaussian noise on every coordinate, on a grid: see `noisy_sum`."""
    parts = [sums.prototypes.ravel()]
    if sums.omega is not None:
        parts.append(sums.omega.ravel())
    flat = np.concatenate(parts)
    values = noisy_sum(flat, clip, multiplier, source)
    split = sums.prototypes.size
    omega = None if sums.omega is None else values[split:].reshape(sums.omega.shape)
    return Sums(values[:split].reshape(sums.prototypes.shape), omega)


def private_descent(
    points: Array,
    codes: npt.NDArray[np.intp],
    model: Model,
    schedule: Schedule,
    multiplier: float,
    source: Noise,
    *,
    progress: bool = False,
) -> Model:
    """The model after all steps on points of the grid, see `clipped`.

    Every intermediate model may be published, the lots may not. A lot is a Poisson sample by
    secret, exact coins, all records at a sampling rate of 1. An empty lot still gets its noise and
    its step.
    """
    for t in progress_bar(range(schedule.steps), "steps", show=progress):
        lot, labels = points, codes
        if schedule.sampling_rate < 1:
            stream = source.stream("lot", t)
            coins = random.bernoulli(schedule.sampling_rate, len(points), noise=stream)
            chosen = np.flatnonzero(np.asarray(coins))
            lot, labels = points[chosen], codes[chosen]
        sums = clipped_sums(lot, labels, model, clip=schedule.clip, transfer=schedule.transfer)
        noisy = noisy_sums(sums, schedule.clip, multiplier, source.stream("step", t))
        model = step(model, noisy, schedule)
    return model


def stochastic_descent(
    x: Array,
    codes: npt.NDArray[np.intp],
    model: Model,
    schedule: Schedule,
    generator: np.random.RandomState,
    *,
    progress: bool = False,
) -> Model:
    """The same schedule without noise, and without clipping where `clip` is infinite."""
    data = to_grid(x) if schedule.clip < math.inf else x
    for _ in progress_bar(range(schedule.steps), "steps", show=progress):
        lot, labels = data, codes
        if schedule.sampling_rate < 1:
            chosen = np.flatnonzero(generator.random_sample(len(x)) < schedule.sampling_rate)
            lot, labels = data[chosen], codes[chosen]
        if schedule.clip < math.inf:
            sums = clipped_sums(lot, labels, model, clip=schedule.clip, transfer=schedule.transfer)
        else:
            sums = gradient_sums(lot, labels, model.astype(x.dtype), transfer=schedule.transfer)
        model = step(model, sums, schedule)
    return model


def lbfgs(
    x: Array,
    codes: npt.NDArray[np.intp],
    model: Model,
    transfer: Transfer,
    *,
    max_iter: int = 200,
) -> tuple[Model, int]:
    """The model at a local minimum of the cost, by L-BFGS-B on the analytic gradient.

    Returns
    -------
    (Model, int)
        The model and the number of iterations.
    """
    from scipy.optimize import minimize

    shape, split = model.prototypes.shape, model.prototypes.size

    def unpack(flat: Array) -> Model:
        omega = None if model.omega is None else flat[split:].reshape(model.omega.shape)
        return replace(model, prototypes=flat[:split].reshape(shape), omega=omega)

    def objective(flat: Array) -> tuple[float, Array]:
        sums = gradient_sums(x, codes, unpack(flat).astype(x.dtype), transfer=transfer)
        parts = [sums.prototypes.ravel()] + ([] if sums.omega is None else [sums.omega.ravel()])
        return sums.cost / len(x), np.concatenate(parts) / len(x)

    parts = [model.prototypes.ravel()] + ([] if model.omega is None else [model.omega.ravel()])
    first = np.concatenate(parts).astype(np.float64)
    bounds = None
    if model.omega is not None and model.omega.ndim == 1:
        bounds = [(None, None)] * split + [(0, None)] * model.omega.size
    found = minimize(
        objective,
        first,
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
        options={"maxiter": max_iter, "maxcor": 10, "ftol": 1e-13, "gtol": 1e-8},
    )
    return unpack(np.asarray(found.x)), max(1, int(found.nit))
