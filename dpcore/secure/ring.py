"""Real vectors as words of a ring: fixed point, two's complement, modulo 2**32 or 2**64."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from dpcore._checks import check_data, check_index, check_positive, exact, round_down
from dpcore._parallel import for_ranges
from dpcore.errors import ParameterError
from dpcore_ext import secagg
from dpcore_ext.sample import dequantize, quantize

__all__ = ["TAIL", "FixedPoint", "Words", "add_masks"]

Words = npt.NDArray[np.uint32] | npt.NDArray[np.uint64]

TAIL = 12  # standard deviations of summed noise that the ring must hold: beyond is below 2**-100
_BLOCK_BYTES = 64
_LEAST_WORDS = 1 << 18  # of mask that are worth a thread


@dataclass(frozen=True)
class FixedPoint:
    """Numbers in [-bound, bound] as multiples of 2**-fraction_bits in a ring.

    Parameters
    ----------
    bound : float, int or Fraction
        Coordinates are clamped to it, which never moves two vectors apart.
    fraction_bits : int
        Binary digits after the point, 0 to 52.
    ring_bits : {64, 32}
        Size of a word.

    Privacy
    -------
    Clamping and rounding are deterministic and protect nobody. They change the l2 sensitivity of a
    vector of d coordinates from D to at most D * 2**fraction_bits + sqrt(d) units; see
    `sensitivity`. NaN and infinity raise, and that they did is visible.

    Cost
    ----
    One pass over the vector; 4 or 8 bytes per coordinate on the wire.

    Examples
    --------
    >>> point = FixedPoint(bound=8, fraction_bits=16, ring_bits=32)
    >>> point.capacity()
    4095
    >>> words = point.encode([0.5, -8.25]) + point.encode([1.0, 3.0])
    >>> point.decode(words)
    array([ 1.5, -5. ])
    """

    bound: Any
    fraction_bits: int = 16
    ring_bits: int = 64

    def __post_init__(self) -> None:
        object.__setattr__(self, "bound", check_positive(self.bound, "bound"))
        check_index(self.fraction_bits, "fraction_bits", limit=53)
        if check_index(self.ring_bits, "ring_bits") not in (32, 64):
            raise ParameterError("The 'ring_bits' parameter must be 32 or 64.")
        if not self.holds(1):
            raise ParameterError(
                "The 'bound' parameter, in units of 2**-fraction_bits, must fit the ring."
            )

    @property
    def dtype(self) -> type[Any]:
        """NumPy's type of a word."""
        return np.uint32 if self.ring_bits == 32 else np.uint64

    def holds(self, n: int, sigma: Fraction = Fraction(0)) -> bool:
        """Whether sums of n vectors, each with noise of deviation sigma units, cannot wrap.

        The test is n (bound 2**f + 1) + 12 sqrt(n) sigma < 2**(ring_bits - 1), in integers.
        """
        room = (1 << (self.ring_bits - 1)) - n * (self.bound * 2**self.fraction_bits + 1)
        return bool(room > 0 and room * room > TAIL * TAIL * n * sigma * sigma)

    def capacity(self, sigma: Any = 0) -> int:
        """The most vectors whose sum cannot wrap, each with noise of deviation sigma units."""
        deviation = exact(sigma, "sigma")
        low, high = 0, 1 << self.ring_bits
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.holds(middle, deviation) else (low, middle)
        return low

    def sensitivity(self, distance: Any, dimension: int) -> Fraction:
        """An upper bound, in units, of the l2 distance of two encodings of vectors so far apart."""
        root = math.isqrt(check_index(dimension, "dimension", least=1) << 64) + 1
        units: Fraction = exact(distance, "distance") * 2**self.fraction_bits
        return units + Fraction(root, 1 << 32)

    def quantize(self, x: npt.ArrayLike, name: str = "x") -> npt.NDArray[np.int64]:
        """x clamped to the bound, to the nearest unit, as integers."""
        array = check_data(x, name, dimensions=1)
        out = np.empty(array.size, np.int64)
        limit = round_down(self.bound)
        values = np.ascontiguousarray(array, np.float64)
        for_ranges(
            lambda begin, end: quantize(
                values[begin:end], -limit, limit, -self.fraction_bits, out[begin:end], name
            ),
            array.size,
        )
        return out

    def encode(self, x: npt.ArrayLike) -> Words:
        """x clamped, rounded and wrapped into the ring."""
        return self.wrap(self.quantize(x))

    def wrap(self, units: npt.NDArray[np.int64]) -> Words:
        """Integers as words of the ring."""
        words: Words = units.view(np.uint64) if self.ring_bits == 64 else units.astype(np.uint32)
        return words

    def unwrap(self, words: Words) -> npt.NDArray[np.int64]:
        """Words of the ring as signed integers."""
        if words.dtype != self.dtype:
            raise ParameterError("The 'words' parameter must be of the dtype of the ring.")
        signed: npt.NDArray[Any] = words.view(np.int32 if self.ring_bits == 32 else np.int64)
        return signed.astype(np.int64, copy=False)

    def decode(self, words: Words) -> npt.NDArray[np.float64]:
        """Words of the ring as real numbers."""
        units = np.ascontiguousarray(self.unwrap(words))
        out = np.empty(units.size)
        dequantize(units, -self.fraction_bits, out)
        return out


def add_masks(keys: list[bytes], negative: list[bool], words: Words) -> None:
    """Add or subtract the masks of all keys, in place and in parallel; see dpcore/mask.h."""
    if not keys:
        return
    rows = np.frombuffer(b"".join(keys), np.uint8).reshape(len(keys), 32)
    signs = np.array(negative, np.uint8)
    per_block = _BLOCK_BYTES // words.itemsize

    def work(begin: int, end: int) -> None:
        secagg.mask_add(rows, signs, begin, words[begin * per_block : end * per_block])

    least = _LEAST_WORDS // (per_block * len(keys))
    for_ranges(work, -(-words.size // per_block), least)
