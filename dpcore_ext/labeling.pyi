import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Labels = npt.NDArray[np.int32]

class GramForm:
    n_targets: int
    def __init__(
        self,
        gram: Floats,
        cross: Floats,
        square: Floats,
        mean: Floats | None = None,
        target_mean: Floats | None = None,
        scale: float = 1.0,
        eta: float = 0.0,
    ) -> None: ...
    def errors(self, labels: Labels, out: Floats) -> None: ...
    def deltas(self, i: int, labels: Labels, reassign: Floats, swap: Floats) -> None: ...
    def search(self, starts: Labels, objectives: Floats) -> int: ...
    def enumerate(self, labels: Labels, objectives: Floats) -> None: ...
    def monotone(self, order: Labels, labels: Labels, errors: Floats) -> None: ...

def cross(a: Floats, b: Floats, out: Floats) -> None: ...
