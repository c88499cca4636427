"""The series at hand: sensors and streets, cut into training and test parts."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dpcore.data import load_sensors, save_sensors, simulate_city
from dpcore.series import Bins, neighbours_from_adjacency

# Name: pattern of its file, what it is called in the published table.
SETS = {
    "metr_la": ("metr_la*full.npz", "METR-LA"),
    "pems_bay": ("pems_bay_sub*.npz", "PEMS-BAY"),
    "metr_la_week": ("metr_la_week*.npz", "METR-LA, all sensors, one week"),
    "sumo_day": ("sumo_day*.npz", "Simulated day"),
}
SMALL = ("metr_la_week", "sumo_day")
TRAIN_SHARE = 0.8
N_FOLDS = 5
# Steps after a test fold that are not trained on: the histogram of a bucket reaches that far back.
PURGED = 12
# The day that is simulated where no file of one is found.
DAY: dict[str, Any] = {"n_roads": 40, "n_trips": 28_000, "seed": 0}


@dataclass(frozen=True)
class Setting:
    """Public bins of each channel, fine and coarse, and how the models of a data set are trained.

    The small sets, a week and a day, get every window, and the day, with some 170 of them in the
    training part of a fold, the published 15 epochs, small batches and a larger part for the gate.
    """

    bins: tuple[Bins, ...]
    coarse: tuple[Bins, ...]
    stride: int = 1
    n_epochs: int = 5
    batch_size: int = 64
    validation: float = 0.1
    unit: str = "mph"


_MILES = ((Bins.relative(80.0, 10),), (Bins((0.0, 25.0, 45.0, 60.0, 80.0)),))
_STREETS = (
    (Bins((0, 1, 2, 3, 5, 8, 12, 20, 40, 80, 140)), Bins.relative(50.0, 10)),
    (Bins((0, 2, 6, 20, 140)), Bins((0, 10, 20, 35, 50))),
)
SETTINGS = {
    "metr_la": Setting(*_MILES, stride=3),
    "pems_bay": Setting(*_MILES, stride=5),
    "metr_la_week": Setting(*_MILES),
    "sumo_day": Setting(*_STREETS, n_epochs=15, batch_size=16, validation=0.25, unit="km/h"),
}


@dataclass(frozen=True)
class Fold:
    """Steps to train on, the first step of the test part and the first after it."""

    train: npt.NDArray[np.bool_]
    begin: int
    end: int


@dataclass(frozen=True)
class City:
    """Readings (times, nodes, channels) with gaps (NaN), the same with zeros, as the usual loader
    leaves them, neighbours, and the parts to train and to test on."""

    name: str
    masked: npt.NDArray[np.float64]
    zeros: npt.NDArray[np.float64]
    neighbours: list[npt.NDArray[np.int64]]
    folds: tuple[Fold, ...]

    @property
    def setting(self) -> Setting:
        return SETTINGS[self.name]

    def scale(self, fold: Fold, *, compat: bool) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Mean and deviation of each channel: of the training part, or for `compat` over
        everything, the test part included, as the usual loader does."""
        if compat:
            return self.zeros.mean(axis=(0, 1)), self.zeros.std(axis=(0, 1))
        part = self.masked[fold.train]
        return np.nanmean(part, axis=(0, 1)), np.nanstd(part, axis=(0, 1))


def find(directory: Path) -> dict[str, Path]:
    """Files below a directory by the name of their data set."""
    found = {}
    for name, (pattern, _) in SETS.items():
        for path in sorted(directory.rglob(pattern)):
            found.setdefault(name, path)
    return found


def simulated_day(path: Path) -> Path:
    """The file of the simulated day, which is made where it does not exist."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        save_sensors(path, simulate_city(**DAY, progress=True))
    return path


def folds(n_steps: int, name: str) -> tuple[Fold, ...]:
    """The last fifth of the time to test on; of a single day, every fifth in turn."""
    steps = np.arange(n_steps)
    if name != "sumo_day":
        border = round(n_steps * TRAIN_SHARE)
        return (Fold(steps < border, border, n_steps),)
    ends = np.linspace(0, n_steps, N_FOLDS + 1).round().astype(int).tolist()
    return tuple(
        Fold((steps < begin) | (steps >= end + PURGED), begin, end)
        for begin, end in itertools.pairwise(ends)
    )


def load(name: str, path: Path, *, quick: bool = False) -> City:
    data = load_sensors(path)
    masked = data.series[:, :, : len(SETTINGS[name].bins)]
    if quick:
        masked = masked[: 288 * 28]
    return City(
        name,
        masked,
        np.nan_to_num(masked),
        neighbours_from_adjacency(data.adjacency),
        folds(len(masked), name),
    )
