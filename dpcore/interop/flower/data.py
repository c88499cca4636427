"""The data of a client: a file with one row per record, and columns that the agreement names."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dpcore.errors import DataError
from dpcore.interop.flower.agreement import Agreement
from dpcore.interop.flower.member import Data

__all__ = ["load"]


def load(path: str | Path, agreement: Agreement) -> Data:
    """Features on [-1, 1], signs or targets, and devices, from an NPZ, CSV or Parquet file.

    An NPZ file holds an array for each column, or ``X`` with all features in their order.

    Raises
    ------
    DataError
        Whatever is wrong: the file cannot be read, a column is missing, or has something else than
        finite numbers or the classes agreed. That it raised is visible to whoever sees the
        federation.
    """
    try:
        return _load(Path(path), agreement)
    except DataError:
        raise
    except ImportError:
        raise DataError("A file named .parquet needs the package pyarrow.") from None
    except Exception:  # of many packages, with texts that may quote the data
        raise DataError("The file of the data cannot be read.") from None


def _load(source: Path, agreement: Agreement) -> Data:
    user = agreement.descent.user if agreement.task == "fedsgd" else None
    wanted = [*agreement.features, agreement.label, *([user] if user else [])]
    readers = {".npz": _from_npz, ".csv": _from_csv, ".parquet": _from_parquet}
    if source.suffix not in readers:
        raise DataError("The data must be in a file named .npz, .csv or .parquet.")
    found = readers[source.suffix](source, wanted, agreement)
    columns = {name: np.asarray(found[name]) for name in wanted}
    for name, column in columns.items():
        if column.ndim != 1:
            raise DataError(f"The column '{name}' must hold one value for each row.")
    if len({len(column) for column in columns.values()}) != 1 or not len(columns[agreement.label]):
        raise DataError("The columns of the data must have the same number of rows, at least one.")
    X = np.column_stack([_numbers(columns[name], name) for name in agreement.features])
    y = _target(columns[agreement.label], agreement)
    return agreement.scale(X), y, columns[user] if user else None


def _from_npz(path: Path, wanted: Sequence[str], agreement: Agreement) -> Mapping[str, Any]:
    # Opened here: np.load leaves a damaged file open.
    with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
        found = {name: file[name] for name in file.files}
    if "X" in found and "X" not in wanted:
        matrix = found.pop("X")
        if matrix.ndim != 2 or matrix.shape[1] != len(agreement.features):
            raise DataError("The array 'X' must have a column for each feature.")
        found |= dict(zip(agreement.features, matrix.T, strict=True))
    return _complete(found, wanted)


def _from_csv(path: Path, wanted: Sequence[str], agreement: Agreement) -> Mapping[str, Any]:
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    if not rows:
        raise DataError("The file of the data has no rows.")
    _complete(rows[0], wanted)
    return {name: np.array([row[name] for row in rows]) for name in wanted}


def _from_parquet(path: Path, wanted: Sequence[str], agreement: Agreement) -> Mapping[str, Any]:
    import pyarrow.parquet

    _complete(dict.fromkeys(pyarrow.parquet.read_schema(path).names), wanted)
    table = pyarrow.parquet.read_table(path, columns=list(wanted))
    return {name: table[name].to_numpy() for name in wanted}


def _complete(found: Mapping[str, Any], wanted: Sequence[str]) -> Mapping[str, Any]:
    for name in wanted:
        if name not in found:
            raise DataError(f"The data have no column '{name}'.")
    return found


def _numbers(column: npt.NDArray[Any], name: str) -> npt.NDArray[np.float64]:
    try:
        values = column.astype(np.float64)
    except (TypeError, ValueError):
        raise DataError(f"The column '{name}' must hold numbers only.") from None
    if not np.isfinite(values).all():
        raise DataError(f"The column '{name}' must hold finite numbers only.")
    return values


def _target(column: npt.NDArray[Any], agreement: Agreement) -> npt.NDArray[np.float64]:
    if not agreement.classes:
        return _numbers(column, agreement.label)
    first, second = sorted(agreement.classes)
    values = column if isinstance(second, str) else _numbers(column, agreement.label)
    is_second = values == second
    if not (is_second | (values == first)).all():
        raise DataError(f"The column '{agreement.label}' must hold the classes agreed only.")
    return np.where(is_second, 1.0, -1.0)
