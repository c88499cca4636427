"""Training of stacked models: minibatches by gathering, everything per node, resumable."""

from __future__ import annotations

import pickle
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from dpcore._files import replacing
from dpcore.errors import DataError
from dpcore.learners.forecast.model import HistogramLSTM, normalise

__all__ = [
    "Options",
    "WindowData",
    "finish_epoch",
    "first_state",
    "grouped",
    "read_checkpoint",
    "squared_errors",
    "train",
    "without_gaps",
    "write_checkpoint",
]

_EVALUATION_ROWS = 512


@dataclass(frozen=True)
class WindowData:
    """The series of all nodes, from which windows are gathered; none is stored twice.

    Attributes
    ----------
    series : tensor of shape (G, n_times)
        Standardised and without gaps; G is n_nodes * n_channels.
    observed : tensor of bool, shape (G, n_times), or None
        Readings that count in the loss; None where all do.
    histograms : list of tensors of shape (G, n_buckets + 1, K)
        What the dense layer takes in by bucket.
    bucket : int
        Steps of a bucket.
    clock : int
        Steps of a day where the hour of the last input is taken in as well, otherwise 0.
    width, horizon, n_nodes : int
    """

    series: Any
    observed: Any
    histograms: list[Any]
    bucket: int
    clock: int
    width: int
    horizon: int
    n_nodes: int

    @property
    def n_side(self) -> int:
        """Columns of the side input."""
        return sum(int(each.shape[2]) for each in self.histograms) + (24 if self.clock else 0)

    def inputs(self, starts: Any) -> tuple[Any, Any]:
        """Windows (G, B, T) that begin at the given steps, and side inputs (G, B, K) or None."""
        x = self.series.unfold(1, self.width, 1)[:, starts]
        if self.n_side == 0:
            return x, None
        last = starts + self.width - 1
        known = (last + 1) // self.bucket  # row 0 stands for no bucket
        parts = [each[:, known] for each in self.histograms]
        if self.clock:
            hour = torch.nn.functional.one_hot(last % self.clock * 24 // self.clock, 24)
            parts.append(hour.to(x.dtype).expand(len(x), -1, -1))
        return x, torch.cat(parts, dim=2)

    def targets(self, starts: Any) -> tuple[Any, Any]:
        """What followed (G, B, O), and which of it counts, or None for all."""
        y = self.series.unfold(1, self.horizon, 1)[:, starts + self.width]
        if self.observed is None:
            return y, None
        return y, self.observed.unfold(1, self.horizon, 1)[:, starts + self.width]


def without_gaps(
    series: npt.NDArray[np.float64],
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """The series with the last reading in every gap, 0 before the first; and where the gaps are."""
    missing = np.isnan(series)
    steps = np.arange(len(series)).reshape(-1, 1, 1)
    last = np.maximum.accumulate(np.where(missing, -1, steps), axis=0)
    filled = np.take_along_axis(series, last.clip(0), axis=0)
    filled[last < 0] = 0.0
    return filled, missing


def grouped(values: npt.NDArray[Any], device: str) -> Any:
    """A tensor (G, n_times, K) of values by time, node and channel; flags stay flags."""
    by_time = values.reshape(len(values), values.shape[1] * values.shape[2], -1)
    dtype = torch.bool if values.dtype == np.bool_ else torch.float32
    return torch.from_numpy(np.ascontiguousarray(np.moveaxis(by_time, 0, 1))).to(device, dtype)


@dataclass(frozen=True)
class Options:
    """How to train; as for `PrivateForecaster`."""

    n_epochs: int
    batch_size: int
    learning_rate: float
    loss_space: str
    patience: int | None
    clip_norm: float | None
    random_state: int
    progress: bool


def squared_errors(
    model: HistogramLSTM, data: WindowData, starts: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Sums of squared errors and numbers of terms, per group and step ahead: (G, O) each."""
    total = torch.zeros(len(data.series), data.horizon, dtype=torch.float64)
    count = torch.zeros_like(total)
    with torch.no_grad():
        for begin in range(0, len(starts), _EVALUATION_ROWS):
            part = torch.from_numpy(starts[begin : begin + _EVALUATION_ROWS])
            part = part.to(data.series.device)
            y, counted = data.targets(part)
            error = (model.forward_groups(*data.inputs(part)) - y).square()
            if counted is not None:
                error = error * counted
                count += counted.sum(dim=1).to("cpu", torch.float64)
            else:
                count += len(part)
            total += error.sum(dim=1, dtype=torch.float64).cpu()
    return total.numpy(), count.numpy()


def node_losses(model: HistogramLSTM, data: WindowData, starts: Any, loss_space: str) -> Any:
    """Mean squared error of each node over its own terms: their sum trains all nodes apart."""
    x, side = data.inputs(starts)
    y, counted = data.targets(starts)
    error = (model.forward_groups(x, side) - y).square()
    weight = None if counted is None else counted.to(error.dtype)
    if loss_space == "instance":
        deviation = normalise(x)[2]
        error = error / deviation.square()
        moving = (deviation > 1e-4).to(error.dtype).expand_as(error)
        weight = moving if weight is None else weight * moving
    nodes = (data.n_nodes, -1)
    if weight is None:
        return error.reshape(nodes).mean(dim=1)
    terms = weight.reshape(nodes).sum(dim=1).clamp(min=1)
    return (error * weight).reshape(nodes).sum(dim=1) / terms


def clip_gradients(model: HistogramLSTM, limit: float) -> None:
    """Scale the gradient of each node to a length of at most `limit`: each node for itself."""
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    norm = torch.stack([g.flatten(1).square().sum(dim=1) for g in gradients]).sum(dim=0).sqrt()
    factor = (limit / norm.clamp(min=1e-12)).clamp(max=1.0)
    for gradient in gradients:
        gradient.mul_(factor.reshape(-1, *[1] * (gradient.dim() - 1)))


def train(
    model: HistogramLSTM,
    data: WindowData,
    starts: npt.NDArray[np.int64],
    validation: npt.NDArray[np.int64],
    options: Options,
    *,
    name: str = "",
    resume: dict[str, Any] | None = None,
    after_epoch: Callable[[dict[str, Any]], None] | None = None,
) -> dict[str, Any]:
    """Train all nodes together as if each were alone; returns the final state.

    Minibatches are the same times at every node. With `patience`, a node stops after so many epochs
    without a better validation error and keeps its best weights; the others go on. The order of an
    epoch is a function of `random_state` and its number, so a run that is resumed from what
    `after_epoch` was given goes on as if it had not stopped.
    """
    optimizer = torch.optim.Adam(
        model.parameters(), lr=options.learning_rate, fused=data.series.device.type == "cpu"
    )
    state = first_state(model, data) if resume is None else resume
    if resume is not None:
        model.load_state_dict(resume["model"])
        optimizer.load_state_dict(resume["optimizer"])
    for epoch in range(state["epoch"], options.n_epochs):
        if options.patience is not None and bool((state["waited"] >= options.patience).all()):
            break
        began = time.perf_counter()
        order = np.random.default_rng([options.random_state, epoch]).permutation(starts)
        loss_sum = torch.zeros(data.n_nodes, dtype=torch.float64)
        for begin in range(0, len(order), options.batch_size):
            batch = torch.from_numpy(order[begin : begin + options.batch_size])
            optimizer.zero_grad()
            losses = node_losses(model, data, batch.to(data.series.device), options.loss_space)
            losses.sum().backward()
            if options.clip_norm is not None:
                clip_gradients(model, options.clip_norm)
            optimizer.step()
            loss_sum += losses.detach().to("cpu", torch.float64) * len(batch)
        state["losses"].append((loss_sum / len(order)).tolist())
        finish_epoch(model, optimizer, data, validation, state, options, name, began)
        if after_epoch is not None:
            after_epoch(state)
    if options.patience is not None and len(validation):
        model.load_state_dict(state["best"])
    return state


def first_state(model: HistogramLSTM, data: WindowData) -> dict[str, Any]:
    """What is known before the first epoch."""
    return {
        "epoch": 0,
        "losses": [],
        "best_error": torch.full((data.n_nodes,), torch.inf, dtype=torch.float64),
        "waited": torch.zeros(data.n_nodes, dtype=torch.int64),
        "best": {key: value.clone() for key, value in model.state_dict().items()},
    }


def finish_epoch(
    model: HistogramLSTM,
    optimizer: Any,
    data: WindowData,
    validation: npt.NDArray[np.int64],
    state: dict[str, Any],
    options: Options,
    name: str,
    began: float,
) -> None:
    """Bring the state up to the end of an epoch whose losses it holds already."""
    if len(validation):
        _keep_best(model, state, _node_errors(model, data, validation), options.patience)
    state["epoch"] = len(state["losses"])
    state["model"], state["optimizer"] = model.state_dict(), optimizer.state_dict()
    if options.progress:
        _report(name, state, options, time.perf_counter() - began)


def _node_errors(model: HistogramLSTM, data: WindowData, starts: npt.NDArray[np.int64]) -> Any:
    total, count = squared_errors(model, data, starts)
    shape = (data.n_nodes, -1)
    terms = np.maximum(count.reshape(shape).sum(axis=1), 1)
    return torch.from_numpy(total.reshape(shape).sum(axis=1) / terms)


def _keep_best(
    model: HistogramLSTM, state: dict[str, Any], error: Any, patience: int | None
) -> None:
    running = state["waited"] < (sys.maxsize if patience is None else patience)
    better = running & (error < state["best_error"])
    state["best_error"] = torch.where(better, error, state["best_error"])
    state["waited"] = torch.where(better, 0, state["waited"] + running)
    state["error"] = error
    for key, value in model.state_dict().items():
        state["best"][key][better] = value[better]


def _report(name: str, state: dict[str, Any], options: Options, seconds: float) -> None:
    done = f"{'#' * state['epoch']:.<{options.n_epochs}}"
    line = f"{name} [{done}] loss {np.mean(state['losses'][-1]):.4f}"
    if "error" in state:
        line += f", validation {float(state['error'].mean()):.4f}"
    if options.patience is not None:
        line += f", {int((state['waited'] >= options.patience).sum())} nodes stopped"
    print(f"{line}, {seconds:.1f} s", file=sys.stderr, flush=True)


def write_checkpoint(path: Path, content: dict[str, Any]) -> None:
    """Replace a file as a whole: a reader, or a kill at any moment, sees the old or the new one."""
    with replacing(path, mode=0o600) as file:
        torch.save(content, file)


def read_checkpoint(path: Path, fingerprint: str) -> dict[str, Any] | None:
    """What was written, or None where there is no file; it must be of the same data and options."""
    if not path.exists():
        return None
    try:
        content = torch.load(path, weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, KeyError, ValueError):
        content = None
    if not isinstance(content, dict) or content.get("fingerprint") != fingerprint:
        raise DataError("The 'checkpoint' parameter must name a file of the same data and options.")
    return content
