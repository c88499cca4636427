"""The mechanisms for one number: what a device runs, and what the server makes of the codes."""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from statistics import NormalDist
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from dpcore import wire
from dpcore._charge import open_release
from dpcore._checks import check_choice, check_index, check_positive, exact, round_down
from dpcore._events import PureEvent
from dpcore._parallel import for_ranges
from dpcore._release import check_noise, check_start, finish
from dpcore.errors import DataError, ParameterError, WireFormatError
from dpcore.local import continuous, discrete, optimal
from dpcore.local.tables import RowTable, local_event
from dpcore.noise import Noise
from dpcore_ext.encode import Rows
from dpcore_ext.pack import count as count_codes

__all__ = [
    "Duchi",
    "Estimate",
    "Hybrid",
    "HybridJoint",
    "HybridTP",
    "Laplace",
    "Mechanism",
    "OptimalOutputs",
    "Piecewise",
    "PiecewiseOpt",
    "PiecewiseSub",
    "ThreeOutputs",
]

_PARAMETERS = struct.Struct("<dddI8s")
_FOREIGN_CODES = "The 'codes' parameter must hold codes of this mechanism."


@dataclass(frozen=True)
class Estimate:
    """An unbiased estimate with its standard error.

    The error covers both the noise of the mechanism and the spread of the values, so intervals are
    for the mean of the population that the devices were drawn from.
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


class Mechanism:
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

    def _table(self) -> RowTable:
        raise NotImplementedError

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
        self, x: npt.ArrayLike, *, noise: Noise | None = None, start: int = 0
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
        key = open_release(source, self.event, "local", self._fingerprint)
        codes, rows = np.empty(data.shape, self._dtype), self._rows
        flat, flat_codes = data.reshape(-1), codes.reshape(-1)
        for_ranges(
            lambda begin, end: rows.encode(
                key, first + begin, flat[begin:end], flat_codes[begin:end]
            ),
            flat.size,
        )
        return finish(codes, source)  # type: ignore[no-any-return]

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
            counts = counts[: self.n_outputs]
        else:
            flat = self._checked_codes(codes).reshape(-1)
            table = np.zeros(1 << (8 * flat.itemsize), np.uint64)
            count_codes(flat, table)
            counts = table[: self.n_outputs].astype(np.int64)
        return self._estimate_counts(counts)

    def _estimate_counts(self, counts: npt.NDArray[Any]) -> Estimate:
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


class _Levels(Mechanism):
    """A mechanism whose outputs are continuous and are moved to n_levels codes."""

    _default_levels: ClassVar[int] = 64
    fewest_levels: ClassVar[int] = 2

    def __init__(
        self,
        epsilon: float,
        lower: float = -1.0,
        upper: float = 1.0,
        n_levels: int | None = None,
    ) -> None:
        levels = self._default_levels if n_levels is None else n_levels
        self.n_levels = check_index(
            levels, "n_levels", least=self.fewest_levels, limit=(1 << 12) + 1
        )
        super().__init__(epsilon, lower, upper)

    def _options(self) -> dict[str, Any]:
        return {"n_levels": self.n_levels}

    def _table(self) -> RowTable:
        return _cached_table(self._exact, self.epsilon, self.n_levels)

    @classmethod
    def _exact(cls, epsilon: float, n_levels: int) -> discrete.Exact:
        raise NotImplementedError


class _Atoms(Mechanism):
    """A mechanism with finitely many outputs of its own."""

    def _table(self) -> RowTable:
        return _cached_table(self._exact, self.epsilon, 0)

    @classmethod
    def _exact(cls, epsilon: float, n_levels: int) -> discrete.Exact:
        raise NotImplementedError


@lru_cache(maxsize=64)
def _cached_table(
    law: Callable[[float, int], discrete.Exact], epsilon: float, n_levels: int
) -> RowTable:
    rows = law(epsilon, n_levels)
    return RowTable.build(Fraction(epsilon), rows.outputs, rows.rows)


class Laplace(_Levels):
    """x + Laplace noise of scale 2 / epsilon, on n_levels points (default 256).

    The variance, 8 / epsilon**2 for values in [-1, 1] before discretisation, is the largest of all
    from epsilon 2.3 down; kept as a baseline.
    """

    name = "laplace"
    kind = 1
    _default_levels = 256
    fewest_levels = 32

    @classmethod
    def _exact(cls, epsilon: float, n_levels: int) -> discrete.Exact:
        return discrete.laplace(Fraction(epsilon), n_levels)


class Duchi(_Atoms):
    """Duchi, Jordan and Wainwright's one-bit mechanism: the best published below epsilon 0.6.

    Examples
    --------
    >>> from dpcore import local
    >>> local.Duchi(1.0).n_bits
    1
    """

    name = "duchi"
    kind = 2

    @classmethod
    def _exact(cls, epsilon: float, n_levels: int) -> discrete.Exact:
        return discrete.duchi(Fraction(epsilon))


class ThreeOutputs(_Atoms):
    """Outputs -C, 0 and C with the best probability of 0: two bits.

    Examples
    --------
    >>> from dpcore import local
    >>> round(local.ThreeOutputs(1.0).worst_case_variance, 3)
    4.455
    """

    name = "three-outputs"
    kind = 5

    @classmethod
    def _exact(cls, epsilon: float, n_levels: int) -> discrete.Exact:
        return _three(epsilon)


class Piecewise(_Levels):
    """The piecewise mechanism PM of Wang et al. (t = e**(epsilon/2)), on n_levels points."""

    name = "pm"
    kind = 3

    @classmethod
    def _exact(cls, epsilon: float, n_levels: int) -> discrete.Exact:
        return discrete.piecewise(Fraction(epsilon), math.exp(epsilon / 2), n_levels)


class PiecewiseSub(_Levels):
    """PM-SUB: the piecewise mechanism with t = e**(epsilon/3)."""

    name = "pm-sub"
    kind = 6

    @classmethod
    def _exact(cls, epsilon: float, n_levels: int) -> discrete.Exact:
        return discrete.piecewise(Fraction(epsilon), math.exp(epsilon / 3), n_levels)


class PiecewiseOpt(_Levels):
    """PM-OPT: the piecewise mechanism with the t of least worst-case variance."""

    name = "pm-opt"
    kind = 7

    @classmethod
    def _exact(cls, epsilon: float, n_levels: int) -> discrete.Exact:
        return discrete.piecewise(Fraction(epsilon), continuous.pm_opt_t(epsilon), n_levels)


class Hybrid(_Levels):
    """HM of Wang et al.: Duchi's mechanism or PM, chosen at random."""

    name = "hm"
    kind = 4
    fewest_levels = 4

    @classmethod
    def _exact(cls, epsilon: float, n_levels: int) -> discrete.Exact:
        weight = continuous.hm_alpha(epsilon)
        return _mixed(_duchi(epsilon), epsilon, math.exp(epsilon / 2), weight, n_levels)


class HybridTP(_Levels):
    """HM-TP: Three-Outputs or PM-SUB, chosen at random."""

    name = "hm-tp"
    kind = 8
    fewest_levels = 5

    @classmethod
    def _exact(cls, epsilon: float, n_levels: int) -> discrete.Exact:
        weight = continuous.hm_tp_beta(epsilon)
        return _mixed(_three(epsilon), epsilon, math.exp(epsilon / 3), weight, n_levels)


class HybridJoint(_Levels):
    """HM-J: Three-Outputs(a) or PM(t), with a, t and the mixing chance optimised together.

    Before discretisation its worst-case variance is at most that of every other mechanism here but
    `OptimalOutputs`. With few levels and a large epsilon `PiecewiseOpt`, which has more levels
    for the same bits, comes out ahead.
    """

    name = "hm-j"
    kind = 9
    fewest_levels = 5

    @classmethod
    def _exact(cls, epsilon: float, n_levels: int) -> discrete.Exact:
        a, t, weight = continuous.hm_joint(epsilon)
        first = discrete.three_outputs(Fraction(epsilon), a)
        return _mixed(first, epsilon, t, weight, n_levels)


class OptimalOutputs(Mechanism):
    """The mechanism of least worst-case variance with n_outputs outputs, by linear programming.

    Parameters
    ----------
    epsilon, lower, upper : float
        As for every mechanism.
    n_outputs : int
        2 to 256; fewer codes may come out where some would go unused.
    objective : {"worst", "second_moment", "at_zero"}
        What is made small: the largest variance; the largest mean square of a report, which counts
        where only some attributes are reported; or the variance at the middle of the bounds.

    Notes
    -----
    Tables for common epsilons are part of the package; others need SciPy and a few seconds.

    Examples
    --------
    >>> from dpcore import local
    >>> bool(local.OptimalOutputs(1.0, n_outputs=8).worst_case_variance < 4.0753)
    True
    """

    name = "optimal"
    kind = 10

    def __init__(
        self,
        epsilon: float,
        lower: float = -1.0,
        upper: float = 1.0,
        n_outputs: int = 16,
        objective: str = "worst",
    ) -> None:
        self._asked = check_index(n_outputs, "n_outputs", least=2, limit=257)
        self.objective = check_choice(objective, "objective", optimal.OBJECTIVES)
        super().__init__(epsilon, lower, upper)

    def _options(self) -> dict[str, Any]:
        return {"n_outputs": self._asked, "objective": self.objective}

    def _table(self) -> RowTable:
        return _optimal_table(self.epsilon, self._asked, self.objective)

    def law(self, x: float) -> continuous.Law:
        """The law at x in [-1, 1]: this mechanism has no continuous form behind it."""
        x = continuous.check_input(x)
        chances = self.pmf(self._from_unit(np.array(x)))
        pairs = zip(self.table.outputs, chances.tolist(), strict=True)
        return continuous.Law(atoms=tuple(pairs), x=x)


@lru_cache(maxsize=64)
def _optimal_table(epsilon: float, n_outputs: int, objective: str) -> RowTable:
    solution = optimal.optimal(epsilon, n_outputs, objective)
    rows = [[Fraction(p) for p in row] for row in solution.rows.tolist()]
    return RowTable.build(Fraction(epsilon), solution.outputs.tolist(), rows)


def _duchi(epsilon: float) -> discrete.Exact:
    return discrete.duchi(Fraction(epsilon))


def _three(epsilon: float) -> discrete.Exact:
    return discrete.three_outputs(Fraction(epsilon), continuous.three_outputs_a(epsilon))


def _mixed(
    first: discrete.Exact, epsilon: float, t: float, weight: float, n_levels: int
) -> discrete.Exact:
    """Atoms and piecewise levels, n_levels in all; the atoms alone where they win.

    Atoms of a share below 2**-32 are left out. They change the variance by less than rounding does,
    and their smallest probabilities, e**epsilon times smaller still, would not fit into 128 bits.
    """
    if weight == 0:
        return first
    if 1 - weight < 2**-32:
        return discrete.piecewise(Fraction(epsilon), t, n_levels)
    second = discrete.piecewise(Fraction(epsilon), t, n_levels - len(first.outputs))
    return discrete.mixture(first, second, weight)


def _numbers(x: npt.ArrayLike) -> npt.NDArray[Any]:
    """A non-empty, contiguous and aligned array of float32 or float64."""
    array = _array(x, "x")
    if array.dtype.kind not in "iuf" or array.dtype.itemsize > 8:
        raise ParameterError("The 'x' parameter must be of an integer or float dtype.")
    if array.size == 0:
        raise ParameterError("The 'x' parameter must not be empty.")
    dtype = np.float32 if array.dtype == np.float32 else np.float64
    return np.require(array, dtype, ["C", "A"])


def _array(values: npt.ArrayLike, name: str) -> npt.NDArray[Any]:
    try:
        return np.asarray(values)
    except ValueError:
        raise ParameterError(f"The '{name}' parameter must be an array of numbers.") from None
