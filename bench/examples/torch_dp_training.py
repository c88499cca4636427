"""A small network trained privately: ``python -m bench.examples.torch_dp_training``.

Per-sample gradients are clipped, summed on a grid and get exact noise; the lots are secret Poisson
samples; the whole run is charged to a ledger before its first step.
"""

from __future__ import annotations

import tempfile

import torch
from torch import nn

import dpcore
from dpcore.interop.torch import DPOptimizer, per_sample_gradients

N_RECORDS = 4000


def rings(n: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Two classes that no line separates."""
    y = torch.randint(0, 2, (n,), generator=generator)
    angle = 6.2832 * torch.rand(n, generator=generator)
    radius = 1.0 + y + 0.25 * torch.randn(n, generator=generator)
    return torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1), y


def main(epsilon: float = 3.0, steps: int = 150, sampling_rate: float = 0.05) -> float:
    generator = torch.Generator().manual_seed(0)
    x, y = rings(N_RECORDS, generator)
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))
    adam = torch.optim.Adam(module.parameters(), lr=0.05)
    with (
        tempfile.TemporaryDirectory() as folder,
        dpcore.Ledger(f"{folder}/ledger.sqlite", epsilon=epsilon, delta=1e-5) as ledger,
    ):
        optimizer = DPOptimizer(
            adam,
            clip=1.0,
            epsilon=epsilon,
            delta=1e-5,
            steps=steps,
            sampling_rate=sampling_rate,
            n_records=N_RECORDS,
        )
        for lot in optimizer.lots(N_RECORDS):
            per_sample_gradients(module, nn.functional.cross_entropy, x[lot], y[lot])
            optimizer.step()
        print(optimizer.privacy())
        print(f"spent {ledger.spent[0]:.4f} of epsilon {ledger.epsilon:g}")
    test_x, test_y = rings(2000, generator)
    accuracy = float((module(test_x).argmax(dim=1) == test_y).float().mean())
    print(f"accuracy {accuracy:.3f}")
    return accuracy


if __name__ == "__main__":
    main()
