"""Vectors of many coordinates per device: only those drawn are ever computed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from dpcore._checks import check_index
from dpcore._release import check_noise, check_start
from dpcore.errors import DataError, ParameterError
from dpcore.local.reports import Reports
from dpcore.local.schema import Numeric
from dpcore.local.tuples import Tuple, choose
from dpcore.noise import Noise

__all__ = ["Vector"]


class Vector(Tuple):
    """A local randomiser for vectors in [-1, 1]**d, of which each device reports k coordinates.

    What `Tuple` does for d numeric attributes, for vectors that are computed on the device, such as
    gradients: the coordinates are drawn first, without looking at the data, and the others need not
    be computed. Codes are the same as `Tuple.encode` gives for the whole vectors.

    Parameters
    ----------
    d : int
        Number of coordinates.
    epsilon, mechanism, k, objective, **options
        As for `Tuple`.

    Privacy
    -------
    As for `Tuple`: epsilon-local-DP for the whole vector. Coordinates outside [-1, 1] count as the
    nearer bound.

    Cost
    ----
    As for `Tuple`, without the coordinates that are not drawn.

    Examples
    --------
    >>> import numpy as np
    >>> collector = Vector(16, epsilon=2.0)
    >>> x = np.random.default_rng(0).uniform(-1, 1, (100_000, 16))
    >>> rows = np.arange(len(x))[:, np.newaxis]
    >>> reports = collector.report(collector.open(), 0, len(x), lambda index: x[rows, index])
    >>> estimate = collector.mean(collector.tally(reports), 100_000)
    >>> bool(np.abs(estimate - x.mean(axis=0)).max() < collector.error_bound(100_000, 0.999999))
    True
    """

    def __init__(
        self,
        d: int,
        epsilon: float,
        mechanism: str = "hm-j",
        *,
        k: int | None = None,
        objective: str = "worst",
        **options: Any,
    ) -> None:
        n = check_index(d, "d", least=1)
        schema = [Numeric(f"x{j}", -1.0, 1.0) for j in range(n)]
        super().__init__(schema, epsilon, mechanism, k=k, objective=objective, **options)

    def open(self, noise: Noise | None = None) -> Noise:
        """Begin one release: charge it, and return the source that all of its devices draw from.

        A release is one report of each device; `start` in `report` tells them apart.
        """
        return self._release(check_noise(noise))

    def report(
        self,
        release: Noise,
        start: int,
        n: int,
        values: Callable[[npt.NDArray[np.int64]], npt.ArrayLike],
    ) -> Reports:
        """What n devices send.

        Parameters
        ----------
        release : Noise
            From `open`.
        start : int
            Index of the first device in the release.
        n : int
            Number of devices.
        values : callable
            From the coordinates drawn, of shape (n, k), to their values of the same shape.
        """
        first = check_start(start, n)
        index = choose(release, first, n, self.d, self.k)
        numbers = np.asarray(values(index), dtype=np.float64)
        if numbers.shape != index.shape:
            raise ParameterError("The 'values' parameter must give a number for each coordinate.")
        if not np.isfinite(numbers).all():
            raise DataError("The 'values' parameter must give finite numbers only.")
        code = self._numeric.encode(numbers, noise=release, start=first * self.k)
        where = index.astype(np.uint8 if self.d <= 256 else np.uint16)
        return Reports(self, release.mark(where), code, {})

    def tally(self, reports: Reports) -> npt.NDArray[np.int64]:
        """How often each code was sent for each coordinate, shape (d, n_outputs): sums add up."""
        pairs = self._offsets[np.asarray(reports.index)] + np.asarray(reports.code)
        counts = np.bincount(pairs.reshape(-1), minlength=int(self._sizes.sum()))
        return counts.reshape(self.d, -1)

    def mean(self, tally: npt.NDArray[np.int64], n: int) -> npt.NDArray[np.float64]:
        """The unbiased mean of n vectors: a device that did not draw a coordinate counts as 0."""
        return np.asarray(tally @ self._numeric.outputs * (self.d / self.k / n))
