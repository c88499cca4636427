from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from dpcore_ext.rng import Key

SMALL: int
MAX_DIGITS: int
GAUSS_GUARD: int

class Table:
    def __init__(self, cdf: npt.NDArray[np.uint64], first: int, open_ends: int = 0) -> None: ...
    @property
    def guide(self) -> npt.NDArray[np.int16]: ...

class Law:
    def add_to(
        self, key: Key, start: int, x: npt.NDArray[np.int64] | None, out: npt.NDArray[np.int64]
    ) -> None: ...

class DigitLaw(Law):
    @property
    def address(self) -> int: ...
    def __init__(
        self,
        top: Table,
        *,
        tail: Table | None = None,
        digits: Sequence[tuple[Table, int]] = (),
        symmetric: bool = False,
    ) -> None: ...

class GaussLaw(Law):
    @property
    def address(self) -> int: ...
    def __init__(
        self, cells: Table, *, kappa: int, shift: int, lattice: bool, guard: int = ...
    ) -> None: ...

def integers(key: Key, low: int, bound: int, start: int, out: npt.NDArray[np.int64]) -> None: ...
def exp_neg(exponent: int) -> int: ...
def all_small(x: npt.NDArray[np.int64]) -> bool: ...
def quantize(
    x: npt.NDArray[np.float64],
    lower: float,
    upper: float,
    exponent: int,
    out: npt.NDArray[np.int64],
    name: str = "x",
) -> None: ...
def dequantize(q: npt.NDArray[np.int64], exponent: int, out: npt.NDArray[np.float64]) -> None: ...
