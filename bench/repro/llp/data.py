"""Junction counts from a directory that the user names, and the nodes that take part."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dpcore.series import Bins, nearest_neighbours

PUBLISHED_EDGES = (0, 5, 30, 60, 150, 260)
PUBLIC_DAYS = 7
N_NEIGHBOURS = 3
LEAST_MEAN = 20.0
MOST_MISSING = 0.01


@dataclass(frozen=True)
class City:
    """A network cut out of one file: target nodes, their neighbours, and bins.

    The first week is taken as public: it gives the relative bins, and is left out of everything
    else.
    """

    name: str
    public: npt.NDArray[np.float64]
    series: npt.NDArray[np.float64]
    neighbours: list[list[int]]
    targets: list[int]
    relative: list[Bins]

    @property
    def fixed(self) -> Bins:
        return Bins(PUBLISHED_EDGES)


def find(directory: Path) -> Iterator[Path]:
    """Every .npz file below the directory with counts of places: count, latlon, step_minutes."""
    for path in sorted(directory.rglob("*.npz")):
        with np.load(path, allow_pickle=False) as data:
            if {"count", "latlon", "step_minutes"} <= set(data.files):
                yield path


def load(path: Path, n_targets: int) -> City:
    """Targets are chosen by the size of their flow alone, evenly over the ranks.

    Nodes need a position, a mean of 20 vehicles and at most 1 % of missing values.
    """
    with np.load(path, allow_pickle=False) as data:
        counts = data["count"].astype(np.float64)
        positions, step = data["latlon"].astype(np.float64), int(data["step_minutes"])
    counts[counts < 0] = np.nan
    mean = np.nanmean(counts, axis=0)
    fit = np.isnan(counts).mean(axis=0) <= MOST_MISSING
    fit &= (np.abs(positions).sum(axis=1) > 0) & (mean >= LEAST_MEAN)
    nodes = np.flatnonzero(fit)
    near = nearest_neighbours(positions[nodes], N_NEIGHBOURS)
    ranked = np.argsort(mean[nodes], kind="stable")
    chosen = [int(ranked[len(nodes) * (2 * i + 1) // (2 * n_targets)]) for i in range(n_targets)]
    used = sorted({*chosen, *(int(j) for i in chosen for j in near[i])})
    place = {node: i for i, node in enumerate(used)}
    neighbours: list[list[int]] = [[] for _ in used]
    for i in chosen:
        neighbours[place[i]] = [place[int(j)] for j in near[i]]
    public = PUBLIC_DAYS * 24 * 60 // step
    columns = counts[:, nodes[used]]
    relative = [Bins.from_history(columns[:public, j]) for j in range(len(used))]
    targets = [place[i] for i in chosen]
    return City(path.stem, columns[:public], columns[public:], neighbours, targets, relative)
