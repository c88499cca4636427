from typing import Any

import numpy as np
import numpy.typing as npt

from dpcore_ext.rng import Key

class Rows:
    def __init__(
        self,
        cut: npt.NDArray[np.uint64],
        alias: npt.NDArray[np.uint16],
        n_intervals: int,
        lower: float,
        upper: float,
    ) -> None: ...
    @property
    def dtype(self) -> np.dtype[Any]: ...
    @property
    def addresses(self) -> tuple[int, int]: ...
    @property
    def cuts(self) -> npt.NDArray[np.uint64]: ...
    @property
    def entries(self) -> npt.NDArray[np.uint32]: ...
    def encode(self, key: Key, start: int, x: npt.NDArray[Any], out: npt.NDArray[Any]) -> None: ...
