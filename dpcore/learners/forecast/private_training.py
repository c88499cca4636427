"""Training under differential privacy: clipped gradients of single windows, exact Gaussian noise.

Each node trains its own model on its own windows, so each has a guarantee of its own. The windows
of a step are drawn for every node apart, by secret coins: were they the same times at all nodes,
the models of others would tell something about them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from dpcore import random
from dpcore._checks import check_positive
from dpcore.accounting import Event, GaussianEvent, SampledGaussianEvent, calibrate_noise
from dpcore.central import _LAW_DISTANCE, gaussian
from dpcore.errors import ParameterError
from dpcore.learners.forecast.model import HistogramLSTM, normalise
from dpcore.learners.forecast.training import Options, WindowData, finish_epoch, first_state
from dpcore.noise import Noise

__all__ = ["Budget", "clipped_sums", "make_budget", "noisy", "private_train"]

# Rounding to the grid may cost this fraction of the clip norm.
_GRID_COST = 1 / 1024
# Of the clip norm, for the rounding of single-precision gradients.
_MARGIN = 1e-4
# A little of delta is kept for the distance of the sampled laws from the ideal ones.
_DELTA_KEPT = 1 - 2.0**-19
# Most numbers that the copied weights of one part of a step take up.
_MOST_COPIED = 2**24


@dataclass(frozen=True)
class Budget:
    """Steps, sampling and noise of one node's training, and what it costs one of its windows."""

    n_windows: int
    sampling_rate: float
    steps_per_epoch: int
    steps: int
    noise_multiplier: float
    event: Event


def make_budget(
    epsilon: float, delta: float, n_windows: int, batch_size: int, n_epochs: int
) -> Budget:
    """The least noise for which all steps together are (epsilon, delta)-DP.

    Parameters
    ----------
    epsilon, delta : float
        For one window that is added or removed.
    n_windows : int
        Windows to train on; public, it follows from the time axis.
    batch_size : int
        Windows of a step on average.
    n_epochs : int

    Privacy
    -------
    By `dpcore.accounting.calibrate_noise`; the event is built from the multiplier that the noise
    has.

    Examples
    --------
    >>> budget = make_budget(2.0, 1e-5, n_windows=640, batch_size=64, n_epochs=3)
    >>> budget.steps, budget.sampling_rate
    (30, 0.1)
    """
    loss = float(check_positive(epsilon, "train_epsilon"))
    chance = float(check_positive(delta, "train_delta"))
    if chance >= 1:
        raise ParameterError("The 'train_delta' parameter must be below 1.")
    rate = min(1.0, batch_size / n_windows)
    per_epoch = max(1, round(1 / rate))
    steps = n_epochs * per_epoch
    # The accountant keeps 2**-20 of delta for the distance of the sampled laws.
    if steps * _LAW_DISTANCE * (1 + math.exp(min(loss, 700.0))) > chance * 2.0**-21:
        raise ParameterError(
            "The 'train_epsilon' parameter must be smaller, or 'train_delta' larger: the accuracy "
            "of the noise does not reach that far."
        )
    multiplier = calibrate_noise(loss, chance * _DELTA_KEPT, rate, steps) * (1 + 1e-12)
    common: dict[str, Any] = {
        "mechanism": "forecast training", "noise_multiplier": multiplier, "unit": "window",
        "adjacency": "add-remove", "count": steps, "law_distance": _LAW_DISTANCE,
    }  # fmt: skip
    event: Event = (
        GaussianEvent(**common) if rate == 1 else SampledGaussianEvent(**common, sampling_rate=rate)
    )
    return Budget(n_windows, rate, per_epoch, steps, multiplier, event)


def window_losses(
    model: HistogramLSTM,
    weights: dict[str, Any],
    data: WindowData,
    nodes: Any,
    starts: Any,
    loss_space: str,
) -> Any:
    """Mean squared error of single windows, each with its own copy of its node's weights."""
    F = len(data.series) // data.n_nodes
    x = _pick(data.series, nodes, starts, F, data.width)
    y = _pick(data.series, nodes, starts + data.width, F, data.horizon)
    side = _side(data, nodes, starts, F)
    found = torch.func.functional_call(_Groups(model), _prefixed(weights), (x, side))
    error = (found - y).square()
    weight = torch.ones_like(error)
    if data.observed is not None:
        weight = _pick(data.observed, nodes, starts + data.width, F, data.horizon).to(error.dtype)
    if loss_space == "instance":
        deviation = normalise(x)[2]
        error = error / deviation.square()
        weight = weight * (deviation > 1e-4)
    each = (len(nodes), -1)
    terms = weight.reshape(each).sum(dim=1).clamp(min=1)
    return (error * weight).reshape(each).sum(dim=1) / terms


def clipped_sums(
    model: HistogramLSTM,
    data: WindowData,
    nodes: npt.NDArray[np.int64],
    starts: npt.NDArray[np.int64],
    clip: float,
    loss_space: str = "standardised",
) -> tuple[dict[str, Any], Any]:
    """Sums over windows of their gradients, each clipped to a length of `clip`, node by node.

    Parameters
    ----------
    nodes, starts : ndarray of int
        The windows: at which node, and where they begin.

    Returns
    -------
    (dict of str to tensor of float64, tensor)
        Sums in the shapes of the weights, and the summed losses of each node.

    Privacy
    -------
    One window changes the sums by at most `clip` in l2, at its own node only. Norms and sums are in
    double precision; the limit leaves a margin of 1e-4, since gradients of other windows may be
    rounded differently where it is missing from a batch.

    Cost
    ----
    A copy of the weights for every window of a part of the step. Gradients of the copies are those
    of single windows, by the same kernels as in plain training.
    """
    parameters = dict(model.named_parameters())
    device = data.series.device
    sums = {k: torch.zeros_like(p, dtype=torch.float64) for k, p in parameters.items()}
    losses = torch.zeros(data.n_nodes, dtype=torch.float64)
    at_once = max(1, _MOST_COPIED * data.n_nodes // model.n_parameters)
    for begin in range(0, len(nodes), at_once):
        who = torch.from_numpy(nodes[begin : begin + at_once]).to(device)
        where = torch.from_numpy(starts[begin : begin + at_once]).to(device)
        copies = {k: p.detach()[who].requires_grad_() for k, p in parameters.items()}
        loss = window_losses(model, copies, data, who, where, loss_space)
        gradients = torch.autograd.grad(loss.sum(), list(copies.values()))
        squares = [g.flatten(1).double().square().sum(dim=1) for g in gradients]
        norm = torch.stack(squares).sum(dim=0).sqrt()
        factor = (clip * (1 - _MARGIN) / norm.clamp(min=1e-300)).clamp(max=1.0)
        # A gradient that overflowed says nothing and must not spoil the sum.
        factor = torch.where(torch.isfinite(norm), factor, 0.0)
        for key, gradient in zip(copies, gradients, strict=True):
            scaled = factor.reshape(-1, *[1] * (gradient.dim() - 1)) * gradient.nan_to_num(0, 0, 0)
            sums[key].index_add_(0, who, scaled)
        losses.index_add_(0, who.cpu(), loss.detach().cpu().double())
    return sums, losses


def noisy(sums: dict[str, Any], clip: float, multiplier: float, source: Noise) -> dict[str, Any]:
    """The sums with exact Gaussian noise on every coordinate, on a grid.

    Privacy
    -------
    The Gaussian mechanism with a noise multiplier of at least `multiplier`, for sums of which one
    window changes at most `clip` in l2: what rounding to the grid can add at one node is part of
    the sensitivity.
    """
    n_nodes = len(next(iter(sums.values())))
    rows = [each.reshape(n_nodes, -1).cpu().numpy() for each in sums.values()]
    flat = np.concatenate(rows, axis=1)
    root = math.isqrt(flat.shape[1] - 1) + 1
    unit = 2.0 ** math.floor(math.log2(max(clip * _GRID_COST / root, multiplier * clip / 2**34)))
    sigma = math.nextafter(multiplier * (clip + root * unit) * (1 + 2.0**-50), math.inf)
    drawn = gaussian(flat, sensitivity=clip, sigma=sigma, resolution=unit, noise=source)
    values = torch.from_numpy(np.asarray(drawn).view(np.ndarray))
    widths = [each.numel() // n_nodes for each in sums.values()]
    parts = torch.split(values, widths, dim=1)
    return {k: part.reshape(sums[k].shape) for k, part in zip(sums, parts, strict=True)}


def private_train(
    model: HistogramLSTM,
    data: WindowData,
    starts: npt.NDArray[np.int64],
    validation: npt.NDArray[np.int64],
    options: Options,
    budget: Budget,
    source: Noise,
    *,
    name: str = "",
    resume: dict[str, Any] | None = None,
    after_epoch: Callable[[dict[str, Any]], None] | None = None,
) -> dict[str, Any]:
    """Adam on noisy sums of clipped gradients, as often as `budget` says; returns the final state.

    An epoch that was cut short is begun anew when a run is resumed: what it had drawn was never
    kept, so the number of steps behind the result, and with it the cost, stays the same. Training
    losses and validation errors in the state are exact, and not part of the guarantee.
    """
    assert options.clip_norm is not None
    optimizer = torch.optim.Adam(model.parameters(), lr=options.learning_rate)
    state = first_state(model, data) if resume is None else resume
    if resume is not None:
        model.load_state_dict(resume["model"])
        optimizer.load_state_dict(resume["optimizer"])
    lot = budget.sampling_rate * budget.n_windows
    for epoch in range(state["epoch"], options.n_epochs):
        began = time.perf_counter()
        loss_sum = torch.zeros(data.n_nodes, dtype=torch.float64)
        for step in range(epoch * budget.steps_per_epoch, (epoch + 1) * budget.steps_per_epoch):
            nodes, windows = _draw_lot(budget, data.n_nodes, source.stream("lot", step))
            sums, losses = clipped_sums(
                model, data, nodes, starts[windows], options.clip_norm, options.loss_space
            )
            sent = noisy(
                sums, options.clip_norm, budget.noise_multiplier, source.stream("step", step)
            )
            for key, parameter in model.named_parameters():
                parameter.grad = (sent[key] / lot).to(parameter.device, parameter.dtype)
            optimizer.step()
            loss_sum += losses
        state["losses"].append((loss_sum / (lot * budget.steps_per_epoch)).tolist())
        finish_epoch(model, optimizer, data, validation, state, options, name, began)
        if after_epoch is not None:
            after_epoch(state)
    return state


def _draw_lot(
    budget: Budget, n_nodes: int, source: Noise
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Nodes and windows of a step: every window of every node by a coin of its own."""
    shape = (n_nodes, budget.n_windows)
    if budget.sampling_rate == 1:
        coins = np.ones(shape, np.bool_)
    else:
        drawn = random.bernoulli(budget.sampling_rate, math.prod(shape), noise=source)
        coins = np.asarray(drawn).view(np.ndarray).reshape(shape)
    nodes, windows = np.nonzero(coins)
    return nodes.astype(np.int64), windows.astype(np.int64)


class _Groups(torch.nn.Module):
    """`HistogramLSTM.forward_groups` under the name that torch calls."""

    def __init__(self, model: HistogramLSTM) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Any, side: Any) -> Any:
        return self.model.forward_groups(x, side)


def _prefixed(weights: dict[str, Any]) -> dict[str, Any]:
    return {f"model.{key}": value for key, value in weights.items()}


def _pick(rows: Any, nodes: Any, starts: Any, n_channels: int, width: int) -> Any:
    """Stretches of the rows of single nodes: (len(nodes) * n_channels, 1, width)."""
    by_node = rows.unflatten(0, (-1, n_channels)).unfold(2, width, 1)
    return by_node[nodes, :, starts].reshape(-1, 1, width)


def _side(data: WindowData, nodes: Any, starts: Any, n_channels: int) -> Any:
    """What the dense layer takes in besides each window, or None."""
    if data.n_side == 0:
        return None
    last = starts + data.width - 1
    known = (last + 1) // data.bucket
    parts = [each.unflatten(0, (-1, n_channels))[nodes, :, known] for each in data.histograms]
    if data.clock:
        hour = torch.nn.functional.one_hot(last % data.clock * 24 // data.clock, 24)
        parts.append(hour[:, None].expand(-1, n_channels, -1).to(data.series.dtype))
    joined = torch.cat(parts, dim=2)
    return joined.reshape(-1, 1, joined.shape[2])
