"""Native LSTM cells of many groups of weights, groups in parallel."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dpcore._parallel import for_ranges
from dpcore_ext.recurrent import Cells

__all__ = ["HIDDEN_MULTIPLE", "backward", "forward"]

HIDDEN_MULTIPLE = 16
_WORTH_A_THREAD = 1 << 13  # steps of cells

Floats = npt.NDArray[np.float32]


def forward(x: Floats, wx: Floats, wh: Floats, bias: Floats) -> tuple[Floats, Floats, Floats]:
    """Outputs, states and gates: (G, B, T, H), (G, B, T, H) and (G, B, T, 4H) of x (G, B, T)."""
    shape, hidden = x.shape, wh.shape[1]
    h, c = np.empty((*shape, hidden), np.float32), np.empty((*shape, hidden), np.float32)
    gates = np.empty((*shape, 4 * hidden), np.float32)
    cells = Cells(x, wx, wh, bias, h, c, gates)
    for_ranges(cells.forward, shape[0], _least(shape))
    return h, c, gates


def backward(
    x: Floats,
    wx: Floats,
    wh: Floats,
    bias: Floats,
    saved: tuple[Floats, Floats, Floats],
    dh: Floats,
) -> tuple[Floats, Floats, Floats]:
    """Gradients of wx, wh and bias, from that of max(outputs, 0) and what `forward` gave."""
    cells = Cells(x, wx, wh, bias, *saved)
    dwx, dwh, dbias = np.empty_like(wx), np.empty_like(wh), np.empty_like(bias)

    def work(first: int, last: int) -> None:
        cells.backward(dh, dwx, dwh, dbias, first, last)

    for_ranges(work, x.shape[0], _least(x.shape))
    return dwx, dwh, dbias


def _least(shape: tuple[int, ...]) -> int:
    return max(1, _WORTH_A_THREAD // max(1, shape[1] * shape[2]))
