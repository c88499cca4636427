"""Loaders of sensor series in the files in which METR-LA, PEMS-BAY and their like are passed on."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dpcore.data.road import SensorData
from dpcore.errors import DataError, ParameterError

__all__ = ["load_sensors"]

_SERIES_KEYS = ("speed", "data", "speed_x10", "x")
_ADJACENCY_KEYS = ("adj", "adjacency", "adj_mx")
# What a pickled adjacency of arrays and lists needs; anything else in such a file is refused.
_PICKLED = {
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy.core.multiarray", "scalar"),
    ("_codecs", "encode"),
}


def load_sensors(
    path: str | Path,
    adjacency: str | Path | None = None,
    *,
    zero_is_missing: bool = True,
    step_minutes: int = 5,
) -> SensorData:
    """Series and graph from the user's files.

    Parameters
    ----------
    path : path
        ``.npz`` with ``speed``, ``data``, ``x`` or ``speed_x10`` (tenths), times by nodes (by
        channels), and perhaps ``adj``; ``.npy``; ``.csv`` with a header line, and times in the
        first column if that is not a number; or ``.h5`` as pandas writes a table of times by nodes
        (needs the extra ``hdf``).
    adjacency : path, optional
        ``.npy``, ``.npz``, ``.csv`` without header, or ``.pkl`` as in DCRNN, whose last item is the
        matrix. By default the one in `path`, or no edges.
    zero_is_missing : bool
        Whether 0 in the first channel stands for no reading, as in both data sets; it becomes NaN.
    step_minutes : int

    Examples
    --------
    >>> import os, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> file = os.path.join(folder, "speeds.npz")
    >>> np.savez(file, speed=[[61.0, 0.0], [59.5, 62.0]], adj=[[1, 0.5], [0.5, 1]])
    >>> load_sensors(file).series[:, :, 0].tolist()
    [[61.0, nan], [59.5, 62.0]]
    """
    path = Path(path)
    series, found = _read_series(path)
    series = np.array(series, dtype=np.float64)
    series = series[:, :, None] if series.ndim == 2 else series
    if series.ndim != 3:
        raise DataError("The file must hold times by nodes (by channels).")
    if zero_is_missing:
        series[series[:, :, 0] == 0] = np.nan
    graph = found if adjacency is None else _read_adjacency(Path(adjacency))
    n_nodes = series.shape[1]
    matrix = np.zeros((n_nodes, n_nodes)) if graph is None else np.asarray(graph, np.float64)
    if matrix.shape != (n_nodes, n_nodes):
        raise DataError("The 'adjacency' parameter must have a row and a column for every node.")
    names = ("speed", *(f"channel {f}" for f in range(1, series.shape[2])))
    return SensorData(series, matrix, names, step_minutes)


def _read_series(path: Path) -> tuple[npt.NDArray[Any], npt.NDArray[Any] | None]:
    if path.suffix == ".npz":
        with np.load(path) as file:
            graph = next((file[key] for key in _ADJACENCY_KEYS if key in file), None)
            key = next((key for key in _SERIES_KEYS if key in file), None)
            if key is None:
                raise DataError("The file must hold a series under one of the usual names.")
            return (file[key] / 10.0 if key.endswith("_x10") else file[key]), graph
    if path.suffix == ".npy":
        return np.load(path), None
    if path.suffix == ".csv":
        return _read_csv(path), None
    if path.suffix in (".h5", ".hdf5"):
        return _read_hdf(path), None
    raise ParameterError("The 'path' parameter must name an npz, npy, csv or h5 file.")


def _read_csv(path: Path) -> npt.NDArray[Any]:
    with open(path, encoding="utf-8") as file:
        n_columns = len(file.readline().split(","))
        first = file.readline().split(",")[0]
    try:
        float(first or "nan")
        columns = range(n_columns)
    except ValueError:
        columns = range(1, n_columns)
    return np.genfromtxt(path, delimiter=",", skip_header=1, usecols=columns, ndmin=2)


def _read_hdf(path: Path) -> npt.NDArray[Any]:
    import h5py

    with h5py.File(path, "r") as file:
        tables: list[npt.NDArray[Any]] = []

        def visit(name: str, item: Any) -> None:
            if name.endswith("block0_values"):
                tables.append(item[()])

        file.visititems(visit)
    if len(tables) != 1:
        raise DataError("The file must hold one table of one type.")
    return tables[0]


class _ArraysOnly(pickle.Unpickler):
    """Refuses everything that is not an array: a pickle could run code otherwise."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _PICKLED:
            raise DataError("The 'adjacency' parameter must name a file of arrays and lists only.")
        return super().find_class(module, name)


def _read_adjacency(path: Path) -> npt.NDArray[Any]:
    if path.suffix == ".npy":
        return np.asarray(np.load(path))
    if path.suffix == ".npz":
        with np.load(path) as file:
            key = next((key for key in _ADJACENCY_KEYS if key in file), None)
            if key is None:
                raise DataError("The file must hold an adjacency under one of the usual names.")
            return np.asarray(file[key])
    if path.suffix == ".csv":
        return np.genfromtxt(path, delimiter=",", ndmin=2)
    if path.suffix == ".pkl":
        with open(path, "rb") as file:
            content = _ArraysOnly(file, encoding="latin1").load()
        return np.asarray(content[-1] if isinstance(content, list | tuple) else content)
    raise ParameterError("The 'adjacency' parameter must name an npy, npz, csv or pkl file.")
