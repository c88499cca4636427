"""Duchi, Jordan and Wainwright's mechanism for many numbers at once: a baseline."""

from __future__ import annotations

import hashlib
import math
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from dpcore._charge import prepay
from dpcore._checks import INDEX_LIMIT, as_array, check_index, check_positive
from dpcore._events import PureEvent
from dpcore._laws import ONE, Digits, IntegerTable
from dpcore._parallel import for_ranges
from dpcore._release import check_noise, check_start, finish, label
from dpcore.errors import DataError, ParameterError
from dpcore.local.base import Estimate
from dpcore.local.categorical import within
from dpcore.local.discrete import growth
from dpcore.local.tables import PROVEN, RowTable, local_event
from dpcore.noise import Noise
from dpcore_ext.sample import integers as fill_integers

__all__ = ["DuchiMulti"]

MAX_DUCHI = 128  # the rarest outcome of the table, 2**-d, keeps 128 bits


class DuchiMulti:
    """Duchi, Jordan and Wainwright's mechanism for d numbers in [-1, 1]: one sign for each.

    The numbers are rounded to signs at random; the report agrees with m of them, and all reports
    with more than d / 2 agreements are e**epsilon times likelier than the others. A baseline: its
    variance is above that of `Tuple`.

    Parameters
    ----------
    epsilon : float
        Privacy loss of the whole record, from 0.001 to 50.
    d : int
        Number of attributes, 1 to 128.

    Attributes
    ----------
    B : float
        Magnitude of every decoded report.
    chances : list of Fraction
        Probability, as sampled, of one report with m agreements, m = 0, ..., d.

    Privacy
    -------
    epsilon-local-DP for the whole record, verified at construction in exact arithmetic: the largest
    of `chances` is at most e**epsilon times the least. The variant that draws from the half-spaces
    with d / 2 agreements on both sides is not private for even d (its factor is e**epsilon + 1) and
    is not offered. One report is covered; reports of the same record under fresh noise add up. That
    a device reports, and that its numbers are finite, are not protected.

    Cost
    ----
    2 d + 1 exact samples and d bits on the wire per device.

    Examples
    --------
    >>> DuchiMulti(1.0, 3).encode([[0.5, -1.0, 0.0]]).shape
    (1, 3)
    """

    def __init__(self, epsilon: float, d: int) -> None:
        loss = check_positive(epsilon, "epsilon")
        if not Fraction(1, 1000) <= loss <= 50:
            raise ParameterError("The 'epsilon' parameter must lie between 0.001 and 50.")
        self.d = check_index(d, "d", least=1)
        if self.d > MAX_DUCHI:
            raise ParameterError(f"The 'd' parameter must be at most {MAX_DUCHI}.")
        self.epsilon, self._loss = float(loss), min(loss, Fraction(float(loss)))
        e = growth(self._loss)
        ways = [math.comb(self.d, m) for m in range(self.d + 1)]
        weights = [
            way * (e.numerator if 2 * m > self.d else e.denominator) for m, way in enumerate(ways)
        ]
        table = IntegerTable.from_weights(weights)
        self._law = Digits(table)
        drawn = [Fraction(weight, ONE) for weight in table.weights()]
        self.chances = [p / way for p, way in zip(drawn, ways, strict=True)]
        if not within(self._loss * PROVEN, max(self.chances), min(self.chances)):
            raise ArithmeticError("A local randomiser came out less private than asked for.")
        # A sign is kept with the mean that makes B times it unbiased, for the law in use.
        kept = sum((p * (2 * m - self.d) for m, p in enumerate(drawn)), Fraction(0))
        self.B = float(self.d / kept)
        signs = RowTable((-1.0, 1.0), ((1 << 64, 0), (0, 1 << 64)), 64)
        self._signs = signs.compile(-1.0, 1.0)

    @property
    def event(self) -> PureEvent:
        """What the report of one record costs."""
        return local_event("duchi-multi", self._loss)

    def encode(
        self, x: npt.ArrayLike, *, noise: Noise | None = None, start: int = 0
    ) -> npt.NDArray[np.uint8]:
        """Randomise records into signs: 1 stands for B, 0 for -B.

        Parameters
        ----------
        x : array_like of shape (n_devices, d)
            Numbers in [-1, 1]; those outside count as the nearer bound.
        noise : Noise, optional
            Source of randomness; a secure one by default.
        start : int
            Index of the first device in the release.
        """
        data = as_array(x, "x")
        if data.dtype.kind not in "iuf" or data.dtype.itemsize > 8:
            raise ParameterError("The 'x' parameter must be of an integer or float dtype.")
        if data.ndim != 2 or data.shape[1] != self.d or len(data) == 0:
            raise ParameterError("The 'x' parameter must have d columns and not be empty.")
        source = check_noise(noise)
        n, d = data.shape
        first = check_start(start, n)
        if (first + n) * d > INDEX_LIMIT:
            raise ParameterError("The 'start' parameter must keep all indices times d below 2**62.")
        names = (*label(self._loss), d)
        paid = prepay(source, self.event, "local duchi-multi", *names)
        sign_key, agree_key, subset_key = (
            paid.key_for(f"local duchi-multi {part}", *names)
            for part in ("signs", "agreements", "subset")
        )
        positions = [subset_key.derive(hashlib.sha256(b"%d" % j).digest()) for j in range(d)]
        out = np.empty((n, d), np.uint8)

        def work(begin: int, end: int) -> None:
            block = np.ascontiguousarray(data[begin:end], dtype=np.float64)
            rounded, wanted = np.empty(block.size, np.uint8), np.empty(end - begin, np.int64)
            self._signs.encode(sign_key, (first + begin) * d, block.reshape(-1), rounded)
            signs = rounded.reshape(block.shape)
            self._law.native.add_to(agree_key, first + begin, None, wanted)
            # Selection sampling: a place is taken with chance wanted / left.
            draw = np.empty_like(wanted)
            for j, key in enumerate(positions):
                fill_integers(key, 0, d - j, first + begin, draw)
                taken = draw < wanted
                wanted -= taken
                out[begin:end, j] = signs[:, j] ^ ~taken

        for_ranges(work, n)
        return finish(out, source)  # type: ignore[no-any-return]

    def decode(self, codes: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """The values that codes stand for: unbiased for what was encoded."""
        return np.asarray(self.B * (2.0 * self._checked(codes) - 1))

    def estimate(self, codes: npt.ArrayLike) -> list[Estimate]:
        """Mean of every attribute."""
        array = self._checked(codes)
        n = len(array)
        results = []
        for mean in (self.B * (2 * array.mean(axis=0) - 1)).tolist():
            spread = max(0.0, self.B**2 - mean**2)
            results.append(Estimate(mean, math.sqrt(spread / (n - 1)) if n > 1 else math.inf, n))
        return results

    def variance(self, x: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Variance of a decoded report at given values."""
        return np.asarray(self.B**2 - np.square(np.asarray(x, dtype=np.float64)))

    def _checked(self, codes: npt.ArrayLike) -> npt.NDArray[Any]:
        array = as_array(codes, "codes")
        if array.ndim != 2 or array.shape[1] != self.d or len(array) == 0:
            raise ParameterError("The 'codes' parameter must have d columns and not be empty.")
        if array.dtype.kind not in "iu" or int(array.min()) < 0 or int(array.max()) > 1:
            raise DataError("The 'codes' parameter must hold 0 and 1 only.")
        return array

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._loss, self.d)

    def __repr__(self) -> str:
        return f"DuchiMulti(epsilon={self.epsilon!r}, d={self.d})"
