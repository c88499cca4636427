"""Training all nodes at once against a loop of separate models, and what it takes in memory."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from typing import Any

import numpy as np
import torch

import dpcore
from bench.runner import Bound, Row
from dpcore.learners.forecast.cells import plain_cells
from dpcore.learners.forecast.model import HistogramLSTM, normalise
from dpcore.learners.forecast.training import Options, WindowData, node_losses, train

PACKAGES = ("numpy", "torch")
N_NODES, BATCH, HIDDEN, WIDTH, HORIZON, N_BINS = 74, 64, 16, 12, 12, 10
N_WINDOWS = 6 * BATCH
FEW, MANY, STEPS = 10, 325, 52_000
MOST_MEMORY = 4e9
NONE = np.array([], np.int64)
OPTIONS = Options(1, BATCH, 0.01, "standardised", None, None, 0, False)


@cache
def windows(n_nodes: int) -> WindowData:
    random = np.random.default_rng(0)
    n_times = N_WINDOWS + WIDTH + HORIZON
    wave = np.sin(np.arange(n_times) / 20 + random.uniform(0, 6, (n_nodes, 1)))
    series = torch.from_numpy(wave + random.normal(0, 0.3, wave.shape)).float()
    share = torch.from_numpy(random.dirichlet(np.ones(N_BINS), (n_nodes, n_times // 12 + 1)))
    return WindowData(series, None, [share.float()], 12, 0, WIDTH, HORIZON, n_nodes)


class NodeModel(torch.nn.Module):
    """One node as it is usually written: nn.LSTM, a product per step, nn.Linear."""

    def __init__(self) -> None:
        super().__init__()
        self.cells = torch.nn.LSTM(1, HIDDEN, batch_first=True)
        self.linear = torch.nn.Parameter(torch.eye(HIDDEN).repeat(WIDTH, 1, 1))
        self.dense = torch.nn.Linear(WIDTH * HIDDEN + N_BINS, HORIZON)

    def forward(self, x: Any, side: Any) -> Any:
        u, mean, deviation = normalise(x)
        a = torch.relu(self.cells(u.unsqueeze(-1))[0])
        z = torch.einsum("bth,thk->btk", a, self.linear).flatten(1)
        return self.dense(torch.cat([z, side], dim=1)) * deviation + mean


def together(n_nodes: int) -> Any:
    """One epoch of all nodes; the final losses, for the check."""
    data, model = windows(n_nodes), HistogramLSTM(n_nodes, n_bins=N_BINS)
    starts = np.arange(N_WINDOWS)
    return train(model, data, starts, NONE, OPTIONS)["losses"]


def apart() -> Any:
    """The same epoch node by node, each with its own optimizer."""
    data = windows(N_NODES)
    order = torch.from_numpy(np.random.default_rng([0, 0]).permutation(N_WINDOWS))
    total = []
    batches = [(data.inputs(part), data.targets(part)[0]) for part in order.split(BATCH)]
    for node in range(N_NODES):
        model = NodeModel()
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01, fused=True)
        losses = []
        for (x, side), y in batches:
            optimizer.zero_grad()
            loss = (model(x[node], side[node]) - y[node]).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
        total.append(np.mean(losses))
    return total


def check_gradients(losses: Any) -> str:
    """The native step must give the gradients of plain autograd, and the training must work."""
    data = windows(N_NODES)
    starts = torch.arange(BATCH)
    gradients = []
    for kernel in ("auto", "torch"):
        model = HistogramLSTM(N_NODES, n_bins=N_BINS, kernel=kernel)
        node_losses(model, data, starts, "standardised").sum().backward()
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
    worst = float((gradients[0] - gradients[1]).abs().max() / gradients[1].abs().max())
    if worst > 1e-5 or not np.mean(losses) < 2 * np.mean(apart()):
        raise AssertionError("the stacked training differs from plain torch")
    return f"gradients equal autograd's to {worst:.0e} of the largest"


def epoch_row(n_threads: int, limit: float, stretch: float | None) -> Row:
    def limited(call: Any) -> Any:
        def run() -> Any:
            torch.set_num_threads(n_threads)
            dpcore.set_num_threads(n_threads)
            return call()

        return run

    work = N_NODES * N_WINDOWS
    return Row(
        f"training, 74 nodes, B 64, H 16, {n_threads} thread(s) / loop of nn.LSTM models",
        limited(lambda: together(N_NODES)),
        limited(apart),
        work,
        work,
        "windows/s",
        check_gradients,
        limit=limit,
        stretch=stretch,
        repeats=5,
    )


def step_row() -> Row:
    """The native recurrent step, forward and backward, against the same in batched autograd."""
    from dpcore.learners.forecast.cells import NativeCells

    random = torch.Generator().manual_seed(0)
    x = torch.randn(N_NODES, BATCH, WIDTH, generator=random)
    model = HistogramLSTM(N_NODES)
    weights = [p.detach().flatten(0, 1).requires_grad_() for p in (model.wx, model.wh, model.bias)]
    pull = torch.randn(N_NODES, BATCH, WIDTH, HIDDEN, generator=random)

    def run(cells: Any) -> Any:
        torch.set_num_threads(1)
        return torch.autograd.grad((cells(x, *weights) * pull).sum(), weights)

    def check(found: Any) -> str:
        pairs = zip(found, run(plain_cells), strict=True)
        worst = max(float((a - b).abs().max() / b.abs().max()) for a, b in pairs)
        if worst > 1e-5:
            raise AssertionError("the native gradients differ from autograd's")
        return f"gradients equal to {worst:.0e}"

    work = N_NODES * BATCH * WIDTH
    return Row(
        "recurrent step with gradients, 1 thread / batched torch autograd",
        lambda: run(NativeCells.apply),
        lambda: run(plain_cells),
        work,
        work,
        "cells/s",
        check,
        limit=2.0,
        stretch=5.0,
        repeats=9,
    )


def scaling_row() -> Row:
    def run(n_nodes: int) -> Any:
        torch.set_num_threads(1)
        return together(n_nodes)

    def check(losses: Any) -> str:
        if np.shape(losses) != (1, MANY) or not np.isfinite(losses).all():
            raise AssertionError("not every node was trained")
        return "325 finite losses"

    windows(MANY), windows(FEW)
    return Row(
        "training per node, 325 nodes / 10 nodes",
        lambda: run(MANY),
        lambda: run(FEW),
        MANY * N_WINDOWS,
        FEW * N_WINDOWS,
        "windows/s",
        check,
        limit=0.8,
        stretch=1.0,
        repeats=5,
    )


MEMORY_PROGRAM = f"""
import resource
import numpy as np
import dpcore
from dpcore.learners import PrivateForecaster
from dpcore.series import Bins
random = np.random.default_rng(0)
day = 50 - 20 * np.sin(np.arange({STEPS}) * 2 * np.pi / 288)
series = day[:, None] + random.normal(0, 5, ({STEPS}, {MANY}))
lists = [[(i + 1) % {MANY}, (i + 2) % {MANY}] for i in range({MANY})]
fitted = PrivateForecaster(
    Bins.relative(80.0, 10), model="exchange", n_epochs=1, stride=200,
    noise=dpcore.Noise.insecure(0),
).fit(series, lists)
assert fitted.models_["exchange"].n_nodes == {MANY}
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


def memory_bound() -> Bound:
    def measure() -> float:
        output = subprocess.run(
            [sys.executable, "-c", MEMORY_PROGRAM], capture_output=True, text=True, check=True
        )
        return float(output.stdout)

    return Bound(
        "peak memory, 325 nodes x 52 000 steps, exchange and training",
        measure,
        "bytes",
        lambda: "325 models fitted",
        MOST_MEMORY,
    )


def single_thread_rows() -> list[Row]:
    return [epoch_row(1, 3.0, 10.0), step_row(), scaling_row()]


def all_cpu_rows() -> list[Row]:
    return [epoch_row(2, 3.0, 10.0)]


def bounds() -> list[Bound]:
    return [memory_bound()]
