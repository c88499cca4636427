import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]

class Cells:
    def __init__(
        self,
        x: Floats,
        wx: Floats,
        wh: Floats,
        bias: Floats,
        h: Floats,
        c: Floats,
        gates: Floats,
    ) -> None: ...
    def forward(self, first: int, last: int) -> None: ...
    def backward(
        self, dh: Floats, dwx: Floats, dwh: Floats, dbias: Floats, first: int, last: int
    ) -> None: ...
