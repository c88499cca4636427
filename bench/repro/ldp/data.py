"""Data sets with public bounds: Adult, WISDM and one that is made up."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.repro import adult

WINDOW = 20  # readings: one second
LIMIT = 20.0  # of the sensor, metres per second squared
NOT_BY_HAND = "ABCDEM"  # walking, jogging, stairs, sitting, standing, kicking


@dataclass(frozen=True)
class Task:
    """Features in [-1, 1], a label, and a target in [-1, 1] that is none of the features."""

    name: str
    X: Any
    y: Any
    X_target: Any
    target: Any

    @property
    def arrays(self) -> tuple[Any, ...]:
        return self.X, self.y, self.X_target, self.target


def load(folder: Path | None) -> list[Task]:
    """The made-up task, and those whose files are found below the folder."""
    tasks = [synthetic()]
    if folder is None:
        return tasks
    if (home := adult.find(folder)) != Path(folder) or list(home.glob("adult*")):
        tasks.append(from_adult(home))
    for path in sorted(Path(folder).rglob("wisdm51*.npz")):
        tasks.append(from_wisdm(path))
        break
    return tasks


def from_adult(folder: Path) -> Task:
    found = adult.load(folder)
    X = 2 * found.X - 1
    X[:, len(adult.RANGES) :] = found.X[:, len(adult.RANGES) :]  # categories stay 0 and 1
    keep = [j for j, name in enumerate(found.columns) if name != "hours_per_week"]
    return Task("adult", X, found.y, X[:, keep], found.hours)


def from_wisdm(path: Path) -> Task:
    """One-second windows of an accelerometer: mean, spread, range and change of every axis."""
    with np.load(path) as data:
        acceleration, activity = data["acc"].astype(np.float64), data["activity"]
        subject, letters = data["subject"], data["activity_letters"]
    n = len(acceleration) // WINDOW
    windows = acceleration[: n * WINDOW].reshape(n, WINDOW, 3)
    labels, people = (a[: n * WINDOW].reshape(n, WINDOW) for a in (activity, subject))
    whole = (labels == labels[:, :1]).all(axis=1) & (people == people[:, :1]).all(axis=1)
    windows, labels = windows[whole], labels[whole, 0]
    length = np.linalg.norm(windows, axis=2, keepdims=True)
    series = np.concatenate([windows, length], axis=2)
    features = np.concatenate(
        [
            series.mean(axis=1) / LIMIT,
            series.std(axis=1) / (LIMIT / 2),
            series.min(axis=1) / LIMIT,
            series.max(axis=1) / LIMIT,
            np.abs(np.diff(series, axis=1)).mean(axis=1) / (LIMIT / 2),
        ],
        axis=1,
    )
    X = np.clip(features, -1, 1)
    names = np.array([str(letter) for letter in letters])[labels]
    y = np.isin(names, list(NOT_BY_HAND)).astype(np.int64)
    y_axis = [1, 9, 13]  # mean, least and largest of the second axis
    return Task("wisdm", X, y, np.delete(X, y_axis, axis=1), X[:, 1])


def synthetic(n: int = 100_000, d: int = 16) -> Task:
    """Gaussian attributes with means 0, 1/3, 2/3 and 1, clipped, and a linear rule with errors."""
    generator = np.random.default_rng(5)
    means = np.arange(d) % 4 / 3
    X = np.clip(means + generator.standard_normal((n, d)) / 4, -1, 1)
    w = generator.standard_normal(d)
    score = (X - X.mean(axis=0)) @ w
    y = (score + 0.3 * generator.standard_normal(n) > 0).astype(np.int64)
    return Task("synthetic", X, y, X, np.clip(score / 3, -1, 1))
