"""A private epoch of GMLVQ against per-sample gradients by Opacus and by torch.func."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from opacus.grad_sample import GradSampleModule
from opacus.optimizers import DPOptimizer
from threadpoolctl import threadpool_limits

import dpcore
from bench.runner import Row
from dpcore.learners.lvq.clipped import MARGIN, clipped_sums, to_grid
from dpcore.learners.lvq.descent import Schedule, noisy_sums, step
from dpcore.learners.lvq.kernel import Model, Sums, Transfer

PACKAGES = ("numpy", "torch", "opacus")
N, D, CLASSES, RANK = 14_000, 784, 10, 60
CLIP, MULTIPLIER, RATE = 0.1, 2.0, 0.1


def make(n: int = N, d: int = D, rank: int = RANK) -> tuple[Any, Any, Model]:
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (n, d)).astype(np.float32)
    y = rng.integers(0, CLASSES, n)
    omega = rng.normal(size=(rank, d)) / np.sqrt(rank)
    model = Model(rng.normal(0, 0.1, (CLASSES, d)), np.arange(CLASSES), omega)
    return x, y, model


def lots_of(x: Any, y: Any, size: int) -> list[tuple[Any, Any]]:
    """The same lots for everybody."""
    return [(x[i : i + size], y[i : i + size]) for i in range(0, len(x), size)]


def epoch(lots: list[tuple[Any, Any]], model: Model) -> Model:
    """Exact clipped sums, exact noise on every coordinate, and a step, for each lot of points."""
    noise = dpcore.Noise().release("bench")
    norm = float(np.linalg.norm(np.asarray(model.omega)))
    schedule = Schedule(len(lots), 1.0, float(len(lots[0][0])), CLIP, RATE, RATE, norm, Transfer())
    for t, (x, y) in enumerate(lots):
        sums = clipped_sums(x, y, model, clip=CLIP)
        model = step(model, noisy_sums(sums, CLIP, MULTIPLIER, noise.stream(t)), schedule)
    return model


class TorchGMLVQ(torch.nn.Module):
    """Squared distances to the prototypes."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.tensor(model.prototypes, dtype=torch.float32))
        self.omega = torch.nn.Parameter(torch.tensor(model.omega, dtype=torch.float32))

    def forward(self, x: Any) -> Any:
        difference = (x @ self.omega.T)[..., None, :] - self.w @ self.omega.T
        return (difference**2).sum(-1)


def cost(d: Any, y: Any) -> Any:
    own = torch.arange(CLASSES) == y[..., None]
    d_p = torch.where(own, d, torch.inf).min(-1).values
    d_m = torch.where(own, torch.inf, d).min(-1).values
    return ((d_p - d_m) / (d_p + d_m)).sum()


def tensors(lots: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    return [(torch.from_numpy(x), torch.from_numpy(y)) for x, y in lots]


def opacus_epoch(lots: list[tuple[Any, Any]], model: Model) -> Callable[[], Any]:
    ready = tensors(lots)
    module = GradSampleModule(TorchGMLVQ(model), loss_reduction="sum")
    optimizer = DPOptimizer(
        torch.optim.SGD(module.parameters(), lr=RATE),
        noise_multiplier=MULTIPLIER,
        max_grad_norm=CLIP,
        expected_batch_size=len(lots[0][0]),
        loss_reduction="sum",
    )

    def run() -> Any:
        for x, y in ready:
            optimizer.zero_grad()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                cost(module(x), y).backward()
            optimizer.step()
        return module

    return run


def torch_clipped_sums(parameters: dict[str, Any], module: Any, x: Any, y: Any) -> dict[str, Any]:
    def single(values: dict[str, Any], row: Any, label: Any) -> Any:
        return cost(torch.func.functional_call(module, values, (row,)), label)

    gradients = torch.func.vmap(torch.func.grad(single), (None, 0, 0))(parameters, x, y)
    squares = torch.stack([g.flatten(1).square().sum(1) for g in gradients.values()]).sum(0)
    factors = (CLIP * (1 - MARGIN) / squares.sqrt()).clamp(max=1)
    return {name: torch.einsum("i,i...->...", factors, g) for name, g in gradients.items()}


def torch_func_epoch(lots: list[tuple[Any, Any]], model: Model) -> Callable[[], Any]:
    ready, module = tensors(lots), TorchGMLVQ(model)

    def run() -> Any:
        values = {name: p.detach() for name, p in module.named_parameters()}
        for x, y in ready:
            sums = torch_clipped_sums(values, module, x, y)
            for name, total in sums.items():
                noisy = total + torch.normal(0.0, MULTIPLIER * CLIP, total.shape)
                values[name] = values[name] - RATE / len(x) * noisy
        return values

    return run


def check_sums(x: Any, y: Any, model: Model) -> Callable[[Any], str]:
    """Our clipped sums of a lot against those of torch.func in float64.

    Ours are on a grid, and each record's part is cut to it.
    """
    module = TorchGMLVQ(model).double()
    values = {name: p.detach() for name, p in module.named_parameters()}
    wide = torch.from_numpy(x.astype(np.float64))

    def check(_: Any) -> str:
        theirs = torch_clipped_sums(values, module, wide, torch.from_numpy(y))
        ours = clipped_sums(to_grid(x), y, model, clip=CLIP)
        for mine, other in ((ours.prototypes, theirs["w"]), (ours.omega, theirs["omega"])):
            target = other.numpy()
            if np.linalg.norm(mine - target) > 2e-3 * np.linalg.norm(target):
                raise AssertionError("the clipped sums differ from those of torch.func")
        return "clipped sums equal torch.func's to 2e-3, the digits of the grid"

    return check


def epoch_rows() -> list[Row]:
    x, y, model = make()
    rows = []
    for size, limits in ((1400, (20.0, 5.0)), (140, (20.0, 5.0))):
        lots = lots_of(x, y, size)
        points = [(to_grid(part), labels) for part, labels in lots]
        peers = (("Opacus", opacus_epoch), ("torch.func", torch_func_epoch))
        for (name, peer), limit in zip(peers, limits, strict=True):
            rows.append(
                Row(
                    f"private GMLVQ epoch, 14,000 x 784, rank 60, lots of {size} / {name}",
                    lambda points=points: epoch(points, model),
                    peer(lots, model),
                    N / 1e3,
                    N / 1e3,
                    "k records/s",
                    check_sums(*lots[0], model),
                    limit=limit,
                    repeats=3,
                )
            )
    return rows


def growth_rows() -> list[Row]:
    """Linear growth: the work per record and feature stays the same."""

    def sums(n: int, d: int) -> Callable[[], Any]:
        x, y, model = make(n, d)
        points = to_grid(x)
        return lambda: clipped_sums(points, y, model, clip=CLIP)

    def check(found: Any) -> str:
        if not np.isfinite(found.omega).all():
            raise AssertionError("sums are not finite")
        return "finite"

    small, big = (20_000, 392), [(80_000, 392), (20_000, 1568)]
    return [
        Row(
            f"clipped sums per record and feature, {n:,} x {d} / {small[0]:,} x {small[1]}",
            sums(n, d),
            sums(*small),
            n * d / 1e6,
            small[0] * small[1] / 1e6,
            "M values/s",
            check,
            limit=0.7,
            repeats=5,
        )
        for n, d in big
    ]


def single_thread_rows() -> list[Row]:
    # BLAS started its threads with NumPy; on one CPU they would wait for each other.
    threadpool_limits(1)
    torch.set_num_threads(1)
    return [*epoch_rows(), *growth_rows()]


def all_cpu_rows() -> list[Row]:
    """Two threads against one, with the same bits."""
    x, y, model = make()
    points = to_grid(x)

    def sums(n_threads: int) -> Sums:
        dpcore.set_num_threads(n_threads)
        return clipped_sums(points, y, model, clip=CLIP)

    def check(found: Sums) -> str:
        expected = sums(1)
        if not np.array_equal(found.omega, expected.omega):
            raise AssertionError("the number of threads changes the sums")
        return "the same bits as one thread"

    return [
        Row(
            "clipped sums, 14,000 x 784, rank 60, two threads / one thread",
            lambda: sums(2),
            lambda: sums(1),
            N / 1e3,
            N / 1e3,
            "k records/s",
            check,
            limit=1.5,
            repeats=9,
        )
    ]
