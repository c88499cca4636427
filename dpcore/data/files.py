"""Loaders of sensor series in the files in which METR-LA, PEMS-BAY and their like are passed on."""

from __future__ import annotations

import io
import math
import pickle
import pickletools
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from dpcore._checks import check_array, check_flag, check_index, check_instance, check_path
from dpcore._files import replacing
from dpcore.data.road import SensorData
from dpcore.errors import DataError, DPCoreError, ParameterError

__all__ = ["load_sensors", "save_sensors"]

_SERIES_KEYS = ("speed", "data", "speed_x10", "x")
_ADJACENCY_KEYS = ("adj", "adjacency", "adj_mx")
_MOST_DEFLATED = 1100  # bytes that a byte of a zip file can stand for: deflate's limit is 1032


def load_sensors(
    path: str | Path,
    adjacency: str | Path | None = None,
    *,
    zero_is_missing: bool | None = None,
    step_minutes: int | None = None,
) -> SensorData:
    """Series and graph from the user's files.

    Parameters
    ----------
    path : path
        ``.npz`` with ``speed``, ``data``, ``x`` or ``speed_x10`` (tenths), times by nodes (by
        channels), and perhaps ``adj``, such as `save_sensors` writes; ``.npy``; ``.csv`` with a
        header line, and times in the first column if that is not a number; or ``.h5`` as pandas
        writes a table of times by nodes (needs the extra ``hdf``).
    adjacency : path, optional
        ``.npy``, ``.npz``, ``.csv`` without header, or ``.pkl`` as in DCRNN, whose last item is the
        matrix. By default the one in `path`, or no edges.
    zero_is_missing : bool
        Whether 0 in the first channel stands for no reading, as in both data sets; it becomes NaN.
        By default it does, except in a file of `save_sensors`, which keeps gaps as NaN.
    step_minutes : int
        By default what `save_sensors` kept, otherwise 5.

    Privacy
    -------
    None: the readings are those of the file.

    Cost
    ----
    Series and graph are read into memory as a whole, with a copy of the series on the way; the
    graph takes n_nodes**2 numbers, also where there are no edges.

    Examples
    --------
    >>> import os, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> file = os.path.join(folder, "speeds.npz")
    >>> np.savez(file, speed=[[61.0, 0.0], [59.5, 62.0]], adj=[[1, 0.5], [0.5, 1]])
    >>> load_sensors(file).series[:, :, 0].tolist()
    [[61.0, nan], [59.5, 62.0]]
    """
    path = check_path(path, "path")
    if zero_is_missing is not None:
        check_flag(zero_is_missing, "zero_is_missing")
    if step_minutes is not None:
        step_minutes = check_index(step_minutes, "step_minutes", least=1)
    adjacency = None if adjacency is None else check_path(adjacency, "adjacency")
    if path.suffix not in (".npz", ".npy", ".csv", ".h5", ".hdf5"):
        raise ParameterError("The 'path' parameter must name an npz, npy, csv or h5 file.")
    if adjacency is not None and adjacency.suffix not in (".npy", ".npz", ".csv", ".pkl"):
        raise ParameterError("The 'adjacency' parameter must name an npy, npz, csv or pkl file.")
    with _only_data_errors(path, "path"):
        series, found = _read_series(path)
        series = np.array(check_array(series, "path"))
        kept = _read_kept(path)
    series = series[:, :, None] if series.ndim == 2 else series
    if series.ndim != 3 or 0 in series.shape:
        raise DataError("The file must hold times by nodes (by channels).")
    if not kept if zero_is_missing is None else zero_is_missing:
        series[series[:, :, 0] == 0] = np.nan
    n_nodes = series.shape[1]
    with _only_data_errors(adjacency, "adjacency"):
        graph = found if adjacency is None else _read_adjacency(adjacency)
        matrix = np.zeros((n_nodes, n_nodes)) if graph is None else check_array(graph, "adjacency")
    if matrix.shape != (n_nodes, n_nodes):
        raise DataError("The 'adjacency' parameter must have a row and a column for every node.")
    channels = ("speed", *(f"channel {f}" for f in range(1, series.shape[2])))
    minutes = kept.get("step_minutes", 5) if step_minutes is None else step_minutes
    return SensorData(
        series, matrix, kept.get("channels", channels), minutes, kept.get("names", ())
    )


def save_sensors(path: str | Path, data: SensorData) -> None:
    """Keep series, graph and names in an ``.npz`` that `load_sensors` gives back as it was.

    Parameters
    ----------
    path : path
        Ends in ``.npz``. A file of that name is replaced as a whole.
    data : SensorData

    Privacy
    -------
    None: the file holds the raw readings, with the permissions that new files get.

    Cost
    ----
    One pass that compresses the arrays.

    Examples
    --------
    >>> import tempfile
    >>> from dpcore.data import traffic
    >>> road = traffic(n_nodes=3, days=1)
    >>> file = tempfile.mkdtemp() + "/road.npz"
    >>> save_sensors(file, road)
    >>> again = load_sensors(file)
    >>> again.channels, bool(np.array_equal(again.series, road.series, equal_nan=True))
    (('speed', 'density'), True)
    """
    path = check_path(path, "path")
    check_instance(data, "data", SensorData)
    if path.suffix != ".npz":
        raise ParameterError("The 'path' parameter must name an npz file.")
    with replacing(path) as file:
        np.savez_compressed(
            file, data=data.series, adj=data.adjacency, channels=np.array(data.channels, np.str_),
            step_minutes=data.step_minutes, names=np.array(data.names, np.str_),
        )  # fmt: skip


def _read_kept(path: Path) -> dict[str, Any]:
    """What only `save_sensors` writes; empty for other files."""
    if path.suffix != ".npz":
        return {}
    with np.load(path) as file:
        if not {"channels", "step_minutes", "names"} <= set(file):
            return {}
        texts = {key: tuple(str(each) for each in file[key]) for key in ("channels", "names")}
        return {**texts, "step_minutes": int(file["step_minutes"])}


@contextmanager
def _only_data_errors(path: Path | None, name: str) -> Iterator[None]:
    """Files come from anywhere: whatever their readers raise means that one is broken."""
    if path is not None:
        path.open("rb").close()  # that there is none is for the operating system to say
    try:
        yield
    except (DPCoreError, ImportError, MemoryError):
        raise
    except Exception:
        raise DataError(f"The '{name}' parameter must name a file that can be read.") from None


def _read_series(path: Path) -> tuple[npt.NDArray[Any], npt.NDArray[Any] | None]:
    if path.suffix == ".npz":
        _check_lengths(path)
        with np.load(path) as file:
            graph = next((file[key] for key in _ADJACENCY_KEYS if key in file), None)
            key = next((key for key in _SERIES_KEYS if key in file), None)
            if key is None:
                raise DataError("The file must hold a series under one of the usual names.")
            return (file[key] / 10.0 if key.endswith("_x10") else file[key]), graph
    if path.suffix == ".npy":
        _check_lengths(path)
        return np.load(path), None
    if path.suffix == ".csv":
        return _read_csv(path), None
    return _read_hdf(path), None


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


def _check_lengths(path: Path) -> None:
    """NumPy makes room for as much as a header says: it must not say more than the file holds."""
    whole = path.stat().st_size
    if path.suffix == ".npy":
        with open(path, "rb") as file:
            _check_header(file, whole)
        return
    with zipfile.ZipFile(path) as archive:
        for member in archive.infolist():
            if member.file_size > _MOST_DEFLATED * min(member.compress_size, whole):
                raise DataError("The file must not be shorter than its header says.")
            with archive.open(member) as part:
                _check_header(part, member.file_size)


def _check_header(file: IO[bytes], length: int) -> None:
    version = np.lib.format.read_magic(file)
    read = {1: np.lib.format.read_array_header_1_0, 2: np.lib.format.read_array_header_2_0}
    shape, _, dtype = read[version[0]](file)
    if math.prod(shape) * dtype.itemsize > length - file.tell():
        raise DataError("The file must not be shorter than its header says.")


def _unpickle(data: bytes) -> Any:
    for _, argument, _ in pickletools.genops(data):
        if isinstance(argument, int) and abs(argument) > max(len(data), 1 << 16):
            raise DataError("The 'adjacency' parameter must name a file of arrays and lists only.")
    return _ArraysOnly(io.BytesIO(data), encoding="latin1").load()


class _Array:
    """Stands for NumPy's class in a pickle, which names it but must not call it."""


def _reconstruct(kind: type, shape: tuple[int, ...], code: bytes | str) -> npt.NDArray[Any]:
    """An empty array, whatever the size asked for; its contents follow, and must fit its shape."""
    if kind is not _Array:
        raise DataError("The 'adjacency' parameter must name a file of arrays and lists only.")
    return np.empty(0)


def _scalar(dtype: np.dtype[Any], data: bytes) -> Any:
    return np.frombuffer(data, dtype)[0]


def _encode(text: str, _codec: str) -> bytes:
    return text.encode("latin1")


class _ArraysOnly(pickle.Unpickler):
    """Refuses everything that is not an array: a pickle could run code otherwise."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _PICKLED:
            raise DataError("The 'adjacency' parameter must name a file of arrays and lists only.")
        return _PICKLED[module, name]


def _read_adjacency(path: Path) -> npt.NDArray[Any]:
    if path.suffix in (".npy", ".npz"):
        _check_lengths(path)
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
    content = _unpickle(path.read_bytes())
    return np.asarray(content[-1] if isinstance(content, list | tuple) else content)


# What a pickled adjacency of arrays and lists needs; anything else in such a file is refused.
_PICKLED: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): np.dtype,
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy.core.multiarray", "scalar"): _scalar,
    ("_codecs", "encode"): _encode,
}
