"""What all mechanisms for one number share: what a device runs, and what the server makes of it."""

from __future__ import annotations

import hashlib
import math
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from statistics import NormalDist
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from dpcore import wire
from dpcore._charge import ledger_in_force, open_release
from dpcore._checks import check_positive, exact, round_down
from dpcore._events import PureEvent
from dpcore._parallel import for_ranges
from dpcore._release import check_noise, check_out, check_start, finish
from dpcore.errors import DataError, ParameterError, WireFormatError
from dpcore.local import continuous
from dpcore.local.export import table_bytes
from dpcore.local.tables import RowTable, local_event
from dpcore.noise import Noise
from dpcore_ext.encode import Rows
from dpcore_ext.pack import count as count_codes

__all__ = ["Estimate", "Mechanism", "check_finite"]

_PARAMETERS = struct.Struct("<dddI8s")
_BLOCK = 1 << 16  # values whose flags stay in the cache
_FOREIGN_CODES = "The 'codes' parameter must hold codes of this mechanism."


@dataclass(frozen=True)
class Estimate:
    """An unbiased estimate with its standard error.

    The error covers both the noise of the mechanism and the spread of the values, so intervals are
    for the mean of the population that the devices were drawn from.

    Privacy
    -------
    Post-processing of the reports: free.

    Cost
    ----
    Three numbers, however many reports there were.
    """

    mean: float
    standard_error: float
    count: int

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Bounds that hold the true mean with this probability.

        By the normal approximation: too narrow where so few reports came, or so little noise was
        added, that nearly all codes are equal.
        """
        level = float(exact(confidence, "confidence"))
        if not 0 < level < 1:
            raise ParameterError("The 'confidence' parameter must lie between 0 and 1.")
        reach = NormalDist().inv_cdf((1 + level) / 2) * self.standard_error
        return self.mean - reach, self.mean + reach


class Mechanism(ABC):
    """A local randomiser for numbers in [lower, upper], with finitely many outputs.

    Parameters
    ----------
    epsilon : float
        Privacy loss of one report, from 0.001 to 50.
    lower, upper : float
        Public bounds within 1e150 of zero; values outside count as the nearer bound.

    Attributes
    ----------
    outputs : ndarray
        The value that each output code stands for.
    n_outputs, n_bits : int
        Number of codes, and bits that one takes on the wire.
    worst_case_variance : float
        Largest variance of a decoded report over all values, discretisation included.
    table : RowTable
        The integers in use.

    Privacy
    -------
    epsilon-local-DP: for any two values and any code, the probabilities of the code differ by at
    most a factor of e**epsilon. This is verified at construction, in integers, for the table that
    `encode` runs; no noisy floating-point number ever exists. It covers one report: reports of the
    same value under fresh noise add up. That a device reports, when, and that its value is finite,
    are not protected.

    Cost
    ----
    4 bytes of ChaCha20 keystream and one table look-up per value (64 more bytes for the few that
    these do not settle, and for every value of calls with up to 32); `n_bits` on the wire.
    """

    name: ClassVar[str]
    kind: ClassVar[int]

    def __init__(self, epsilon: float, lower: float = -1.0, upper: float = 1.0) -> None:
        loss = check_positive(epsilon, "epsilon")
        if not Fraction(1, 1000) <= loss <= 50:
            raise ParameterError("The 'epsilon' parameter must lie between 0.001 and 50.")
        low, high = float(exact(lower, "lower")), float(exact(upper, "upper"))
        if not low < high:
            raise ParameterError("The 'upper' parameter must be greater than 'lower'.")
        if max(abs(low), abs(high)) > 1e150 or high - low < 1e-150:
            raise ParameterError(
                "The 'lower' and 'upper' parameters must lie within 1e150 of zero and be 1e-150 "
                "apart."
            )
        self.epsilon, self.lower, self.upper = round_down(loss), low, high
        self.table = self._table()

    @abstractmethod
    def _table(self) -> RowTable:
        """The rows in use."""

    def _options(self) -> dict[str, Any]:
        """Parameters beyond epsilon and the bounds."""
        return {}

    @property
    def n_outputs(self) -> int:
        return len(self.table.outputs)

    @property
    def n_bits(self) -> int:
        return wire.n_bits_for(self.n_outputs)

    @property
    def event(self) -> PureEvent:
        """What one report costs."""
        return local_event(self.name, Fraction(self.epsilon))

    @cached_property
    def _rows(self) -> Rows:
        """For `encode` only: a server, and `best`, do without."""
        return self.table.compile(self.lower, self.upper)

    @property
    def _dtype(self) -> np.dtype[Any]:
        return np.dtype(np.uint8 if self.n_outputs <= 256 else np.uint16)

    @cached_property
    def outputs(self) -> npt.NDArray[np.float64]:
        return self._from_unit(np.array(self.table.outputs))

    @cached_property
    def worst_case_variance(self) -> float:
        return self.table.worst_case_variance() * self._half_width**2

    def encode(
        self,
        x: npt.ArrayLike,
        *,
        noise: Noise | None = None,
        start: int = 0,
        out: npt.NDArray[Any] | None = None,
    ) -> npt.NDArray[Any]:
        """Randomise values into output codes: what a device sends.

        Parameters
        ----------
        x : array_like of floats or integers
            float32 and float64 are read as they are, without a copy where contiguous.
        noise : Noise, optional
            Source of randomness; a secure one by default.
        start : int
            Index of the first value in the release.
        out : ndarray, optional
            Where to put the codes.

        Returns
        -------
        ndarray of uint8, or uint16 above 256 outputs, of the shape of x

        Privacy
        -------
        epsilon-local-DP of every value by itself. With a pinned stream, the same values in the same
        places give the same codes: never use it for other values.

        Cost
        ----
        One pass; memory for the codes, and for a copy of x where it is not a contiguous array of
        float32 or float64.
        """
        data = _numbers(x)
        source = check_noise(noise)
        first = check_start(start, data.size)
        codes, rows = check_out(out, data.shape, self._dtype), self._rows
        flat, flat_codes = data.reshape(-1), codes.reshape(-1)
        if ledger_in_force() is not None and not source.is_prepaid:
            # The kernel refuses what is not finite too, but only once it is charged.
            check_finite(flat)
        key = open_release(source, self.event, *self._address)
        for_ranges(
            lambda begin, end: rows.encode(
                key, first + begin, flat[begin:end], flat_codes[begin:end]
            ),
            flat.size,
        )
        return finish(codes, source, out)  # type: ignore[no-any-return]

    def decode(self, codes: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """The values that codes stand for: unbiased for what was encoded, within the bounds."""
        return np.asarray(self.outputs[self._checked_codes(codes)])

    def privatize(
        self, x: npt.ArrayLike, *, noise: Noise | None = None, start: int = 0
    ) -> npt.NDArray[np.float64]:
        """Randomised values: the decoded codes of `encode`."""
        source = check_noise(noise)
        codes = self.encode(x, noise=source, start=start)
        return finish(np.asarray(self.outputs[np.asarray(codes)]), source)  # type: ignore[no-any-return]

    def pmf(self, x: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Probabilities of the codes at given values; the last axis runs over the codes."""
        below, up = self.table.mix(self._to_unit(x))
        rows, up = self.table.probabilities, up[..., np.newaxis]
        return np.asarray(rows[below] * (1 - up) + rows[below + 1] * up)

    def variance(self, x: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """Variance of a decoded report at given values."""
        return np.asarray(self.table.variance(self._to_unit(x)) * self._half_width**2)

    def law(self, x: float) -> continuous.Law:
        """The law before discretisation at x in [-1, 1], for reading and plotting only."""
        return continuous.continuous(self.name, self.epsilon).law(x)

    def pack(self, codes: npt.ArrayLike) -> bytes:
        """Codes as a message: `n_bits` each behind a header with the public parameters."""
        flat = self._checked_codes(codes).reshape(-1)
        parameters = _PARAMETERS.pack(
            self.epsilon, self.lower, self.upper, self.n_outputs, self._digest[:8]
        )
        return wire.pack(flat, kind=self.kind, n_bits=self.n_bits, parameters=parameters)

    def unpack(self, message: bytes | wire.Message) -> npt.NDArray[Any]:
        """The codes of a message that this mechanism packed; refuses all others."""
        return self._checked_codes(self._own(message).codes(), WireFormatError)

    def to_table(self) -> bytes:
        """The mechanism for a device that runs the C core without Python: see dpcore/device.h.

        Public: holds the parameters and the probabilities, and no key.

        Examples
        --------
        >>> from dpcore import local
        >>> len(local.Duchi(1.0).to_table())
        184
        """
        return table_bytes(
            self._rows,
            kind=self.kind,
            n_outputs=self.n_outputs,
            epsilon=self.epsilon,
            bounds=(self.lower, self.upper),
            digest=self._digest,
        )

    def estimate(self, codes: npt.ArrayLike | bytes | wire.Message) -> Estimate:
        """Mean of the encoded values, from codes or straight from a packed message.

        Parameters
        ----------
        codes : array_like of integers, bytes-like or Message
            What `encode` or `pack` gave, or `dpcore.wire.unpack` of the latter.

        Raises
        ------
        WireFormatError
            If a message is not one of this mechanism with these parameters, or holds codes that it
            cannot output.

        Privacy
        -------
        Post-processing of the codes.

        Cost
        ----
        One pass that counts codes; a message is not unpacked.
        """
        if isinstance(codes, bytes | bytearray | memoryview | wire.Message):
            counts = self._own(codes).counts()
            if counts[self.n_outputs :].any():
                raise WireFormatError(_FOREIGN_CODES)
            return self._estimate_counts(counts[: self.n_outputs])
        return self._estimate_counts(self.count(codes))

    def count(self, codes: npt.ArrayLike) -> npt.NDArray[np.int64]:
        """How often each code occurs, by their numbers; counts of parts add up."""
        flat = self._checked_codes(codes).reshape(-1)
        table = np.zeros(1 << (8 * flat.itemsize), np.uint64)
        count_codes(flat, table)
        return table[: self.n_outputs].astype(np.int64)

    def _estimate_counts(self, counts: npt.NDArray[Any]) -> Estimate:
        """What `estimate` makes of codes that occur so often."""
        n = int(counts.sum())
        if n == 0:
            raise ParameterError("The 'codes' parameter must not be empty.")
        values = np.array(self.table.outputs)
        shares = counts / n
        mean = float(shares @ values)
        spread = float(shares @ np.square(values - mean))
        error = math.sqrt(spread / (n - 1)) if n > 1 else math.inf
        return Estimate(float(self._from_unit(np.array(mean))), error * self._half_width, n)

    def _own(self, message: bytes | bytearray | memoryview | wire.Message) -> wire.Message:
        opened = message if isinstance(message, wire.Message) else wire.unpack(message)
        expected = (self.epsilon, self.lower, self.upper, self.n_outputs, self._digest[:8])
        if (
            opened.kind != self.kind
            or len(opened.parameters) != _PARAMETERS.size
            or _PARAMETERS.unpack(opened.parameters) != expected
        ):
            raise WireFormatError("The message was packed by another mechanism.")
        return opened

    def _checked_codes(
        self, codes: npt.ArrayLike, error: type[ValueError] = DataError
    ) -> npt.NDArray[Any]:
        array = _array(codes, "codes")
        if array.dtype.kind not in "iu" and array.size:
            raise ParameterError("The 'codes' parameter must be of an integer dtype.")
        if array.size and (array.min() < 0 or array.max() >= self.n_outputs):
            raise error(_FOREIGN_CODES)
        return np.require(array, self._dtype, ["C", "A"])

    @property
    def _half_width(self) -> float:
        return (self.upper - self.lower) / 2

    def _from_unit(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return np.asarray(values * self._half_width + (self.lower + self.upper) / 2)

    def _to_unit(self, x: npt.ArrayLike) -> npt.NDArray[np.float64]:
        numbers = _numbers(x).astype(np.float64)
        if not np.isfinite(numbers).all():
            raise DataError("The 'x' parameter must hold finite numbers only.")
        values = np.clip(numbers, self.lower, self.upper)
        return np.asarray((values - (self.lower + self.upper) / 2) / self._half_width)

    @cached_property
    def _digest(self) -> bytes:
        """Names the table: equal for equal laws only."""
        state = hashlib.sha256(repr((self.name, self.table.bits, self.table.outputs)).encode())
        for row in self.table.rows:
            state.update(repr(row).encode())
        return state.digest()

    @cached_property
    def _fingerprint(self) -> bytes:
        bounds = struct.pack("<dd", self.lower, self.upper)
        return hashlib.sha256(self._digest + bounds).digest()

    @property
    def _address(self) -> tuple[str, bytes]:
        """Purpose and parameters of the noise of `encode`."""
        return "local", self._fingerprint

    def __repr__(self) -> str:
        options = {"epsilon": self.epsilon, "lower": self.lower, "upper": self.upper}
        shown = ", ".join(f"{k}={v!r}" for k, v in (options | self._options()).items())
        return f"{type(self).__name__}({shown})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mechanism) and repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(repr(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.epsilon, self.lower, self.upper, self._options())


def _rebuild(
    kind: Callable[..., Mechanism], epsilon: float, lower: float, upper: float, options: Any
) -> Mechanism:
    return kind(epsilon, lower, upper, **options)


def _numbers(x: npt.ArrayLike) -> npt.NDArray[Any]:
    """A non-empty, contiguous and aligned array of float32 or float64."""
    array = _array(x, "x")
    if array.dtype.kind not in "iuf" or array.dtype.itemsize > 8:
        raise ParameterError("The 'x' parameter must be of an integer or float dtype.")
    if array.size == 0:
        raise ParameterError("The 'x' parameter must not be empty.")
    dtype = np.float32 if array.dtype == np.float32 else np.float64
    return np.require(array, dtype, ["C", "A"])


def check_finite(flat: npt.NDArray[Any]) -> None:
    """Refuse numbers that are not finite, before they are charged."""
    for begin in range(0, flat.size, _BLOCK):
        if not np.isfinite(flat[begin : begin + _BLOCK]).all():
            raise DataError("The 'x' parameter must hold finite numbers only.")


def _array(values: npt.ArrayLike, name: str) -> npt.NDArray[Any]:
    try:
        return np.asarray(values)
    except ValueError:
        raise ParameterError(f"The '{name}' parameter must be an array of numbers.") from None
