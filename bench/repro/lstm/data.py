"""The series at hand: speed of road sensors, cut into a training and a test part."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dpcore.data import load_sensors
from dpcore.series import neighbours_from_adjacency

# Name: pattern of its file, what it is called in the published table.
SETS = {
    "metr_la": ("metr_la*full.npz", "METR-LA"),
    "pems_bay": ("pems_bay_sub*.npz", "PEMS-BAY"),
}
TRAIN_SHARE = 0.8


@dataclass(frozen=True)
class City:
    """Readings with gaps (NaN), the same with zeros as the usual loader leaves them, neighbours."""

    name: str
    masked: npt.NDArray[np.float64]
    zeros: npt.NDArray[np.float64]
    neighbours: list[npt.NDArray[np.int64]]
    n_train: int

    @property
    def compat_scale(self) -> tuple[float, float]:
        """Mean and deviation over everything, the test part included, as the usual loader does."""
        return float(self.zeros.mean()), float(self.zeros.std())

    @property
    def honest_scale(self) -> tuple[float, float]:
        part = self.masked[: self.n_train]
        return float(np.nanmean(part)), float(np.nanstd(part))


def find(directory: Path) -> dict[str, Path]:
    """Files below a directory by the name of their data set."""
    found = {}
    for name, (pattern, _) in SETS.items():
        for path in sorted(directory.rglob(pattern)):
            found.setdefault(name, path)
    return found


def load(name: str, path: Path, *, quick: bool = False) -> City:
    data = load_sensors(path)
    masked = data.series[:, :, 0]
    if quick:
        masked = masked[: 288 * 28]
    return City(
        name,
        masked,
        np.nan_to_num(masked),
        neighbours_from_adjacency(data.adjacency),
        round(len(masked) * TRAIN_SHARE),
    )
