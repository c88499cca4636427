"""Records grouped by the device that holds them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dpcore._checks import check_labels
from dpcore.errors import ParameterError

__all__ = ["Devices", "scaled_rows"]


@dataclass(frozen=True)
class Devices:
    """Which records each device holds.

    Attributes
    ----------
    ids : ndarray or None
        Names of the devices, sorted; None where every record is a device of its own.
    order : ndarray or None
        Records in the order of their devices; None for the order they have.
    edges : ndarray, shape (n + 1,)
        Device i holds the records order[edges[i]:edges[i + 1]].
    """

    ids: npt.NDArray[Any] | None
    order: npt.NDArray[np.intp] | None
    edges: npt.NDArray[np.intp]

    @staticmethod
    def of(n_records: int, users: Any = None) -> Devices:
        """One device per record, or per different value of users."""
        if users is None:
            return Devices(None, None, np.arange(n_records + 1))
        labels = check_labels(users, "users")
        if labels.shape != (n_records,):
            raise ParameterError("The 'users' parameter must name a user for each record.")
        ids, inverse, counts = np.unique(labels, return_inverse=True, return_counts=True)
        order = np.argsort(inverse, kind="stable")
        return Devices(ids, order, np.concatenate([[0], np.cumsum(counts)]))

    @staticmethod
    def parts(n_records: int, n_devices: int, generator: np.random.Generator) -> Devices:
        """A random partition into devices of equal size, up to one record."""
        n = min(n_devices, n_records)
        edges = np.array([n_records * i // n for i in range(n + 1)])
        return Devices(np.arange(n), generator.permutation(n_records), edges)

    def __len__(self) -> int:
        return len(self.edges) - 1

    @property
    def sizes(self) -> npt.NDArray[np.intp]:
        return np.diff(self.edges)

    @property
    def are_single(self) -> bool:
        """Whether every device holds one record, in the order of the records."""
        return self.order is None

    def records(
        self, devices: npt.NDArray[np.intp]
    ) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
        """Records of some devices, one device after the other, and where each begins."""
        if self.order is None:
            return devices, np.arange(len(devices))
        sizes = self.sizes[devices]
        starts = np.concatenate([[0], np.cumsum(sizes)])
        within = np.arange(starts[-1]) - np.repeat(starts[:-1], sizes)
        return self.order[np.repeat(self.edges[devices], sizes) + within], starts[:-1]


def scaled_rows(
    X: npt.NDArray[Any], intercept: bool, norm: float | None
) -> npt.NDArray[np.float64]:
    """Rows with a 1 for the intercept, scaled down to a norm where they are longer."""
    rows = np.column_stack([X, np.ones(len(X))]) if intercept else np.array(X, np.float64)
    if norm is not None:
        lengths = np.linalg.norm(rows, axis=1)
        # A little less than the norm, so that no rounding makes a row longer than it.
        scale = float(norm) * (1 - 1e-12) / np.maximum(lengths, float(norm) * (1 - 1e-12))
        rows *= scale[:, np.newaxis]
    return rows
