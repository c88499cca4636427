"""The mechanisms for one category out of a public list: randomised response and unary encoding."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from statistics import NormalDist
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from dpcore import _laws
from dpcore._charge import prepay
from dpcore._checks import INDEX_LIMIT, as_array, check_index, check_positive, exact
from dpcore._events import PureEvent
from dpcore._exact import exp_enclosure
from dpcore._parallel import for_ranges
from dpcore._release import check_noise, check_start, finish, label
from dpcore.errors import DataError, ParameterError
from dpcore.local.discrete import growth
from dpcore.local.tables import PROVEN, RowTable, local_event
from dpcore.noise import Noise
from dpcore_ext.rng import Key
from dpcore_ext.sample import integers as fill_integers

__all__ = ["GRR", "OUE", "Frequencies", "best_categorical"]

MAX_CATEGORIES = 1 << 16

_BLOCK = 1 << 20  # random numbers held at a time
_BRIDGE = 1 << 11


@dataclass(frozen=True, eq=False)
class Frequencies:
    """Unbiased estimates of the shares of all categories, with their standard errors.

    Shares may come out below 0 or above 1 and need not sum to 1: that is the price of no bias. The
    errors cover the noise and the drawing of the devices from a population.

    Privacy
    -------
    Post-processing of the reports: free.

    Cost
    ----
    16 bytes per category, however many reports there were.
    """

    frequencies: npt.NDArray[np.float64]
    standard_errors: npt.NDArray[np.float64]
    count: int

    def interval(
        self, confidence: float = 0.95
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Bounds that hold a share, taken alone, with this probability (normal approximation)."""
        level = float(exact(confidence, "confidence"))
        if not 0 < level < 1:
            raise ParameterError("The 'confidence' parameter must lie between 0 and 1.")
        reach = NormalDist().inv_cdf((1 + level) / 2) * self.standard_errors
        return self.frequencies - reach, self.frequencies + reach


class FrequencyOracle:
    """A local randomiser for categories 0, ..., n_categories - 1.

    A report *supports* some categories: the true one with probability p, any other with
    probability q. Both are exact: what is sampled, not what was meant.
    """

    name: ClassVar[str]
    p: Fraction
    q: Fraction

    def __init__(self, epsilon: float, n_categories: int) -> None:
        loss = check_positive(epsilon, "epsilon")
        if not Fraction(1, 1000) <= loss <= 50:
            raise ParameterError("The 'epsilon' parameter must lie between 0.001 and 50.")
        self.epsilon, self.n_categories = float(loss), check_n_categories(n_categories)
        # As a float the loss may have been rounded up, which must not weaken the guarantee.
        self._loss = min(loss, Fraction(self.epsilon))

    def variance(self, f: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Variance that the noise of one report adds to the estimate of a share f.

        Divide by the number of reports; the drawing of the devices would add f * (1 - f).
        """
        share = np.asarray(f, dtype=np.float64)
        spread = self.p - self.q
        at_zero = float(self.q * (1 - self.q) / spread**2)
        return np.asarray(at_zero + share * float((1 - self.p - self.q) / spread))

    def debias(
        self,
        supports: npt.NDArray[np.integer[Any]],
        n_reported: int,
        count: int,
        scale: float = 1.0,
    ) -> Frequencies:
        """Frequencies from the number of reports that support each category.

        `count` devices took part, of which n_reported reported this attribute; a device that did
        not counts as 0, one that did as its debiased report times scale.
        """
        yes = float((1 - self.q) / (self.p - self.q)) * scale
        no = float(-self.q / (self.p - self.q)) * scale
        share, rest = supports / count, (n_reported - supports) / count
        means = share * yes + rest * no
        spread = np.maximum(share * yes**2 + rest * no**2 - means**2, 0)
        errors = np.sqrt(spread / (count - 1)) if count > 1 else np.full(means.shape, np.inf)
        return Frequencies(means, errors, count)

    def _checked(self, values: npt.ArrayLike, name: str) -> npt.NDArray[Any]:
        array = as_array(values, name)
        if array.dtype.kind not in "iu":
            raise ParameterError(f"The '{name}' parameter must be of an integer dtype.")
        if array.ndim != 1 or array.size == 0:
            raise ParameterError(f"The '{name}' parameter must have 1 dimension and not be empty.")
        if int(array.min()) < 0 or int(array.max()) >= self.n_categories:
            raise DataError(f"The '{name}' parameter must hold categories below 'n_categories'.")
        return array

    @property
    def event(self) -> PureEvent:
        """What one report costs."""
        return local_event(self.name, self._loss)

    @property
    def _address(self) -> tuple[str, int, int, int]:
        """Purpose and parameters of the noise of encode, for a ledger."""
        return f"local {self.name}", *label(self._loss), self.n_categories

    def _estimate_counts(self, counts: npt.NDArray[Any]) -> Frequencies:
        """What estimate makes of reports with such counts, as count gives them."""
        n = int(counts[-1])
        if n == 0:
            raise ParameterError("The 'reports' parameter must not be empty.")
        return self.debias(counts[:-1], n, n)

    def _prepay(self, noise: Noise) -> Noise:
        return prepay(noise, self.event, *self._address)

    def _key(self, noise: Noise, part: str) -> Key:
        return noise.key_for(f"local {self.name} {part}", *label(self._loss), self.n_categories)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FrequencyOracle) and self.__reduce__() == other.__reduce__()

    def __hash__(self) -> int:
        return hash(self.__reduce__())

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._loss, self.n_categories)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(epsilon={self.epsilon!r}, n_categories={self.n_categories})"


class GRR(FrequencyOracle):
    """Generalised randomised response: the category, or any other one, as a single code.

    Parameters
    ----------
    epsilon : float
        Privacy loss of one report, from 0.001 to 50.
    n_categories : int
        Number of categories, 2 to 2**16: public, never inferred from data.

    Attributes
    ----------
    p, q : Fraction
        Probabilities of sending the true category and of sending any given other one.

    Privacy
    -------
    epsilon-local-DP: the probabilities of a code under any two categories, p and q, differ by at
    most a factor of e**epsilon; verified at construction, in integers, for the probabilities in
    use. It covers one report: reports of the same value under fresh noise add up. That a device
    reports, and that its category is on the list, are not protected.

    Cost
    ----
    Two exact samples per value; log2(n_categories) bits on the wire.

    Examples
    --------
    >>> from dpcore.local.categorical import GRR
    >>> mechanism = GRR(2.0, n_categories=4)
    >>> result = mechanism.estimate(mechanism.encode([0, 1, 1, 3] * 25_000))
    >>> bool(abs(result.frequencies[1] - 0.5) < 0.02)
    True
    """

    name = "grr"

    def __init__(self, epsilon: float, n_categories: int) -> None:
        super().__init__(epsilon, n_categories)
        e = growth(self._loss)
        self._law = _laws.bernoulli(e / (e + self.n_categories - 1))
        self.p = self._law.probability(1)
        self.q = (1 - self.p) / (self.n_categories - 1)
        if not within(self._loss * PROVEN, self.p, self.q):
            raise ArithmeticError("A local randomiser came out less private than asked for.")

    def encode(
        self, values: npt.ArrayLike, *, noise: Noise | None = None, start: int = 0
    ) -> npt.NDArray[Any]:
        """Randomise categories into codes: what a device sends.

        Parameters
        ----------
        values : array_like of integers, one dimension
            Categories 0, ..., n_categories - 1.
        noise : Noise, optional
            Source of randomness; a secure one by default.
        start : int
            Index of the first value in the release.

        Returns
        -------
        ndarray of uint8, or uint16 above 256 categories
        """
        data = self._checked(values, "values")
        source = check_noise(noise)
        first = check_start(start, data.size)
        shifts = self.shifts(self._prepay(source), first, data.size)
        return finish(self.shifted(data, shifts), source)  # type: ignore[no-any-return]

    def shifts(self, noise: Noise, start: int, n: int) -> npt.NDArray[np.uint16]:
        """The noise of encode: what is added to a category, modulo n_categories."""
        keep_key, other_key = self._key(noise, "keep"), self._key(noise, "other")
        out = np.empty(n, np.uint16)

        def work(begin: int, end: int) -> None:
            for a in range(begin, end, _BLOCK):
                b = min(a + _BLOCK, end)
                keep, other = np.empty(b - a, np.int64), np.empty(b - a, np.int64)
                self._law.native.add_to(keep_key, start + a, None, keep)
                fill_integers(other_key, 1, self.n_categories - 1, start + a, other)
                out[a:b] = other * (1 - keep)

        for_ranges(work, n)
        return out

    def shifted(self, values: npt.NDArray[Any], shifts: npt.NDArray[np.uint16]) -> npt.NDArray[Any]:
        total = values.astype(np.uint32) + shifts
        total -= np.uint32(self.n_categories) * (total >= self.n_categories)
        return total.astype(np.uint8 if self.n_categories <= 256 else np.uint16)

    def estimate(self, codes: npt.ArrayLike) -> Frequencies:
        """Shares of the categories among the encoded values."""
        return self._estimate_counts(self.count(codes))

    def count(self, codes: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """How often each category was sent, then the number of codes; counts of parts add up."""
        array = self._checked(codes, "codes")
        return np.append(np.bincount(array, minlength=self.n_categories), array.size)


class OUE(FrequencyOracle):
    """Optimised unary encoding: one bit per category, each randomised on its own.

    Parameters
    ----------
    epsilon : float
        Privacy loss of one report, from 0.001 to 50.
    n_categories : int
        Number of categories, 2 to 2**16: public, never inferred from data.

    Attributes
    ----------
    p, q : Fraction
        Probabilities that the bit of the true category is set, 1/2, and that any other is.

    Privacy
    -------
    epsilon-local-DP: two categories differ in the law of two bits, whose joint probabilities differ
    by at most a factor of e**epsilon; verified at construction, in integers, for the probabilities
    in use. It covers one report: reports of the same value under fresh noise add up. That a device
    reports, and that its category is on the list, are not protected.

    Cost
    ----
    n_categories table look-ups per value, and as many bits on the wire.

    Examples
    --------
    >>> from dpcore.local.categorical import OUE
    >>> mechanism = OUE(2.0, n_categories=100)
    >>> reports = mechanism.encode([7] * 50_000)
    >>> reports.shape
    (50000, 13)
    >>> bool(abs(mechanism.estimate(reports).frequencies[7] - 1) < 0.05)
    True
    """

    name = "oue"

    def __init__(self, epsilon: float, n_categories: int) -> None:
        super().__init__(epsilon, n_categories)
        bits = 64 if self._loss <= 20 else 128
        half, rare = 1 << (bits - 1), math.ceil((1 << bits) / (growth(self._loss) + 1))
        rows = (((1 << bits) - rare, rare), (half, half))
        self.p, self.q = (Fraction(row[1], 1 << bits) for row in rows[::-1])
        # The likeliest and the least likely bits of a pair, under one category and the other.
        if not within(self._loss * PROVEN, self.p * (1 - self.q), (1 - self.p) * self.q):
            raise ArithmeticError("A local randomiser came out less private than asked for.")
        self._rows = RowTable((0.0, 1.0), rows, bits).compile(0.0, 1.0)

    @property
    def n_bytes(self) -> int:
        """Bytes of one report."""
        return -(-self.n_categories // 8)

    def encode(
        self, values: npt.ArrayLike, *, noise: Noise | None = None, start: int = 0
    ) -> npt.NDArray[np.uint8]:
        """Randomise categories into bits: what a device sends.

        Parameters
        ----------
        values : array_like of integers, one dimension
            Categories 0, ..., n_categories - 1.
        noise : Noise, optional
            Source of randomness; a secure one by default.
        start : int
            Index of the first value in the release.

        Returns
        -------
        ndarray of uint8, shape (len(values), n_bytes)
            Bit c % 8 of byte c // 8, counted from the lowest, is that of category c; bits above
            the last category are 0.
        """
        data = self._checked(values, "values")
        source = check_noise(noise)
        first = check_start(start, data.size)
        where = np.arange(first, first + data.size)
        return finish(self.encode_at(self._prepay(source), where, data), source)  # type: ignore[no-any-return]

    def encode_at(
        self, noise: Noise, where: npt.NDArray[np.int64], values: npt.NDArray[Any]
    ) -> npt.NDArray[np.uint8]:
        """Reports of elements at ascending indices.

        A native call costs as much as _BRIDGE bits: gaps that hold fewer are encoded and dropped.
        """
        n = self.n_categories
        if where.size and (int(where[-1]) + 1) * n > INDEX_LIMIT:
            raise ParameterError(
                "The 'start' parameter must keep indices times 'n_categories' below 2**62."
            )
        key = self._key(noise, "bits")
        out = np.empty((where.size, self.n_bytes), np.uint8)
        block = where // max(1, _BLOCK // n)
        breaks = (np.diff(where) > 1 + _BRIDGE // n) | (np.diff(block) > 0)
        edges = [0, *(np.flatnonzero(breaks) + 1).tolist(), where.size]
        for a, b in pairwise(edges if where.size else []):
            rows = where[a:b] - where[a]
            true = np.zeros((int(rows[-1]) + 1, n), np.float32)
            true[rows, values[a:b]] = 1
            bits = np.empty(true.shape, np.uint8)
            self._rows.encode(key, int(where[a]) * n, true.reshape(-1), bits.reshape(-1))
            out[a:b] = np.packbits(bits[rows], axis=1, bitorder="little")
        return out

    def supports(self, reports: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """Number of reports in which the bit of each category is set."""
        array = self.checked_reports(reports)
        counts = np.zeros(self.n_categories, np.int64)
        step = max(1, _BLOCK // self.n_categories)
        for a in range(0, len(array), step):
            bits = np.unpackbits(
                array[a : a + step], axis=1, count=self.n_categories, bitorder="little"
            )
            counts += bits.sum(axis=0, dtype=np.int64)
        return counts

    def estimate(self, reports: npt.ArrayLike) -> Frequencies:
        """Shares of the categories among the encoded values."""
        return self._estimate_counts(self.count(reports))

    def count(self, reports: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """How often each bit is set, then the number of reports; counts of parts add up."""
        return np.append(self.supports(reports), len(np.asarray(reports)))

    def checked_reports(self, reports: npt.ArrayLike) -> npt.NDArray[np.uint8]:
        """Reports of the right shape without bits above the last category."""
        array = as_array(reports, "reports")
        if array.dtype != np.uint8 or array.ndim != 2 or array.shape[1] != self.n_bytes:
            raise ParameterError(
                "The 'reports' parameter must be of uint8 and have 'n_bytes' columns."
            )
        used = self.n_categories % 8
        if used and (array[:, -1] >> used).any():
            raise DataError("The 'reports' parameter must hold reports of this mechanism.")
        return array


def best_categorical(epsilon: float, n_categories: int) -> GRR | OUE:
    """The mechanism with the smaller variance for rare categories: GRR for a short list.

    Privacy
    -------
    That of the mechanism: epsilon-local-DP of one report. The choice depends on the parameters
    alone.

    Cost
    ----
    One comparison, and the construction of one mechanism, in less than a millisecond. A report
    takes log2(n_categories) bits for `GRR`, n_categories bits for `OUE`.

    Examples
    --------
    >>> best_categorical(1.0, 10), best_categorical(1.0, 11)
    (GRR(epsilon=1.0, n_categories=10), OUE(epsilon=1.0, n_categories=11))
    """
    loss = float(min(check_positive(epsilon, "epsilon"), Fraction(50)))
    short = check_n_categories(n_categories) < 3 * math.exp(loss) + 2
    return GRR(epsilon, n_categories) if short else OUE(epsilon, n_categories)


def check_n_categories(value: Any) -> int:
    """An integer from 2 to 2**16."""
    try:
        return check_index(value, "n_categories", least=2, limit=MAX_CATEGORIES + 1)
    except ParameterError:
        raise ParameterError(
            "The 'n_categories' parameter must be an integer from 2 to 65536."
        ) from None


def within(epsilon: Fraction, p: Fraction, q: Fraction) -> bool:
    """Whether p and q differ by at most a factor of e**epsilon, either way, exactly."""
    bound = Fraction(exp_enclosure(epsilon, 256)[0], 1 << 256)
    return p <= bound * q and q <= bound * p
