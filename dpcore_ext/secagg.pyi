import numpy as np
import numpy.typing as npt

SHARE_BYTES: int

def mask_add(
    keys: npt.NDArray[np.uint8],
    negative: npt.NDArray[np.uint8],
    counter: int,
    acc: npt.NDArray[np.uint32] | npt.NDArray[np.uint64],
) -> None: ...
def split(
    coefficients: npt.NDArray[np.uint8],
    points: npt.NDArray[np.uint16],
    shares: npt.NDArray[np.uint8],
) -> None: ...
def weights(points: npt.NDArray[np.uint16], out: npt.NDArray[np.uint8]) -> None: ...
def combine(
    weights: npt.NDArray[np.uint8], shares: npt.NDArray[np.uint8], secret: npt.NDArray[np.uint8]
) -> None: ...
