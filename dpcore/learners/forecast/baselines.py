"""What a forecaster has to beat: the nearest past window, the last value, the average day."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dpcore._checks import check_index
from dpcore.errors import ParameterError

__all__ = ["average_day", "last_value", "nearest_window"]

Floats = npt.NDArray[np.float64]


def nearest_window(
    series: npt.ArrayLike,
    n_train: int,
    times: npt.ArrayLike,
    *,
    width: int = 12,
    horizon: int = 12,
    block: int = 2048,
) -> Floats:
    """What followed the training window nearest to each window: centralised, without any privacy.

    Parameters
    ----------
    series : array_like of shape (n_times, n_nodes)
        Without gaps; standardise first.
    n_train : int
        Windows and what followed them are taken from so many first steps.
    times : array_like of int
        Last step of each window to forecast from.
    block : int
        Windows compared at a time.

    Returns
    -------
    ndarray of shape (len(times), n_nodes, horizon)

    Cost
    ----
    n_train * len(times) * width * n_nodes multiplications, as blocked products in single
    precision; the lowest of equally near windows wins.

    Examples
    --------
    >>> day = np.tile(np.sin(np.arange(24)), 4)[:, None]
    >>> found = nearest_window(day, 48, [60], width=6, horizon=3)
    >>> bool(np.allclose(found[0, 0], day[61:64, 0]))
    True
    """
    x = np.ascontiguousarray(series, dtype=np.float32)
    width = check_index(width, "width", least=1)
    horizon = check_index(horizon, "horizon", least=1)
    ends = np.asarray(times, dtype=np.int64).ravel()
    n_windows = n_train - width - horizon + 1
    if x.ndim != 2 or n_windows < 1 or n_train > len(x):
        raise ParameterError("The 'n_train' parameter must leave a window to learn from.")
    if not np.isfinite(x).all():
        raise ParameterError("The 'series' parameter must hold finite numbers only.")
    if ends.size == 0 or ends.min() < width - 1 or ends.max() >= len(x):
        raise ParameterError("The 'times' parameter must name steps with a window.")
    n_nodes = x.shape[1]
    # A window is `width` consecutive rows of memory: the flat view costs nothing until a block.
    flat = np.lib.stride_tricks.sliding_window_view(x.ravel(), width * n_nodes)[::n_nodes]
    norms = np.square(x).sum(axis=1, dtype=np.float64).cumsum()
    norms = norms[width - 1 :] - np.concatenate([[0.0], norms[:-width]])
    best = np.full(len(ends), np.inf, np.float32)
    nearest = np.zeros(len(ends), np.int64)
    for begin in range(0, n_windows, block):
        known = np.ascontiguousarray(flat[begin : min(begin + block, n_windows)])
        half = (norms[begin : begin + len(known)] / 2).astype(np.float32)
        for first in range(0, len(ends), block):
            asked = np.ascontiguousarray(flat[ends[first : first + block] - width + 1])
            score = half - asked @ known.T
            place = score.argmin(axis=1)
            value = score[np.arange(len(asked)), place]
            part = slice(first, first + len(asked))
            closer = value < best[part]
            best[part][closer] = value[closer]
            nearest[part][closer] = place[closer] + begin
    steps = nearest[:, None] + width + np.arange(horizon)
    found: Floats = np.asarray(series, dtype=np.float64)[steps].transpose(0, 2, 1)
    return found


def last_value(series: npt.ArrayLike, times: npt.ArrayLike, *, horizon: int = 12) -> Floats:
    """The reading at each time, repeated: (len(times), n_nodes, horizon).

    >>> last_value([[1.0], [2.0]], [1], horizon=3).tolist()
    [[[2.0, 2.0, 2.0]]]
    """
    x = np.asarray(series, dtype=np.float64)[np.asarray(times, dtype=np.int64)]
    return np.repeat(x[:, :, None], check_index(horizon, "horizon", least=1), axis=2)


def average_day(
    series: npt.ArrayLike,
    n_train: int,
    times: npt.ArrayLike,
    *,
    horizon: int = 12,
    steps_per_day: int = 288,
) -> Floats:
    """Each node's mean at the time of day over the training part: (len(times), n_nodes, horizon).

    Missing readings (NaN) are left out; where all of a time of day are missing, the node's mean.

    >>> average_day(np.tile([[1.0], [5.0]], (4, 1)), 4, [5], horizon=2, steps_per_day=2).tolist()
    [[[1.0, 5.0]]]
    """
    x = np.asarray(series, dtype=np.float64)[:n_train]
    known = ~np.isnan(x)
    slot = np.arange(len(x)) % steps_per_day
    total = np.zeros((steps_per_day, x.shape[1]))
    count = np.zeros_like(total)
    np.add.at(total, slot, np.where(known, x, 0.0))
    np.add.at(count, slot, known)
    overall = total.sum(axis=0) / np.maximum(count.sum(axis=0), 1)
    mean = np.where(count > 0, total / np.maximum(count, 1), overall)
    ahead = np.asarray(times, dtype=np.int64)[:, None] + 1 + np.arange(horizon)
    found: Floats = mean[ahead % steps_per_day].transpose(0, 2, 1)
    return found
