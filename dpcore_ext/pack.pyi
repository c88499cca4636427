import numpy as np
import numpy.typing as npt

MAX_BITS: int

def pack(
    codes: npt.NDArray[np.uint8] | npt.NDArray[np.uint16],
    n_bits: int,
    out: npt.NDArray[np.uint8] | memoryview,
) -> None: ...
def unpack(
    data: npt.NDArray[np.uint8] | bytes | memoryview,
    n_bits: int,
    out: npt.NDArray[np.uint8] | npt.NDArray[np.uint16],
) -> None: ...
def count_packed(
    data: npt.NDArray[np.uint8] | bytes | memoryview,
    n_bits: int,
    n: int,
    counts: npt.NDArray[np.uint64],
) -> None: ...
def count(
    codes: npt.NDArray[np.uint8] | npt.NDArray[np.uint16], counts: npt.NDArray[np.uint64]
) -> None: ...
