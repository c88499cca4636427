"""What a forecaster has to beat: the nearest past window, the last value, the average day."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dpcore._checks import INDEX_LIMIT, check_array, check_index, check_members
from dpcore.errors import DataError, ParameterError

__all__ = ["average_day", "last_value", "nearest_window"]

_MOST_STEPS = 1 << 24

Floats = npt.NDArray[np.float64]


def nearest_window(
    series: npt.ArrayLike,
    n_train: int | npt.NDArray[np.bool_],
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
    n_train : int or ndarray of bool
        Windows and what followed them are taken from so many first steps, or from the steps that
        are True.
    times : array_like of int
        Last step of each window to forecast from.
    block : int
        Windows compared at a time.

    Returns
    -------
    ndarray of shape (len(times), n_nodes, horizon)

    Privacy
    -------
    None: windows of all nodes are compared in one place, and the result consists of raw readings.

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
    whole = check_array(series, "series", dimensions=2, finite=True)
    with np.errstate(over="ignore"):
        x = np.ascontiguousarray(whole, dtype=np.float32)
    if not np.isfinite(x).all():
        raise DataError("The 'series' parameter must hold numbers of single precision.")
    block = check_index(block, "block", least=1)
    width = check_index(width, "width", least=1)
    horizon = check_index(horizon, "horizon", least=1)
    ends = check_array(times, "times", dtype=np.int64).ravel()
    steps = _training_steps(n_train, len(x))
    reach = width + horizon
    padded = np.pad(steps, (0, reach))
    usable = np.asarray(np.lib.stride_tricks.sliding_window_view(padded, reach).all(axis=1))
    n_windows = int(np.flatnonzero(usable)[-1]) + 1 if usable.any() else 0
    if n_windows < 1:
        raise ParameterError("The 'n_train' parameter must leave a window to learn from.")
    if ends.size == 0 or ends.min() < width - 1 or ends.max() >= len(x):
        raise ParameterError("The 'times' parameter must name steps with a window.")
    n_nodes = x.shape[1]
    # A window is `width` consecutive rows of memory: the flat view costs nothing until a block.
    flat = np.lib.stride_tricks.sliding_window_view(x.ravel(), width * n_nodes)[::n_nodes]
    norms = np.square(x).sum(axis=1, dtype=np.float64).cumsum()
    norms = np.array(norms[width - 1 :] - np.concatenate([[0.0], norms[:-width]]))
    norms[~usable[: len(norms)]] = np.inf
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
    after = nearest[:, None] + width + np.arange(horizon)
    found: Floats = whole[after].transpose(0, 2, 1)
    return found


def _training_steps(n_train: int | npt.NDArray[np.bool_], n_times: int) -> npt.NDArray[np.bool_]:
    if not isinstance(n_train, np.ndarray):
        return np.arange(n_times) < check_index(n_train, "n_train", limit=n_times + 1)
    if n_train.dtype != np.bool_ or n_train.shape != (n_times,):
        raise ParameterError("The 'n_train' parameter must be a number or a bool for every step.")
    return n_train


def last_value(series: npt.ArrayLike, times: npt.ArrayLike, *, horizon: int = 12) -> Floats:
    """The reading at each time, repeated: (len(times), n_nodes, horizon).

    Privacy
    -------
    None: the result consists of raw readings and must not leave the node.

    Cost
    ----
    8 bytes for each number of the result; the series is not copied where it is of float64.

    Examples
    --------
    >>> last_value([[1.0], [2.0]], [1], horizon=3).tolist()
    [[[2.0, 2.0, 2.0]]]
    """
    x = check_array(series, "series", dimensions=2)
    steps = check_members(times, "times", len(x))
    horizon = check_index(horizon, "horizon", least=1, limit=_MOST_STEPS)
    return np.repeat(x[steps][:, :, None], horizon, axis=2)


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

    Privacy
    -------
    None: means of a node's raw readings, which must not leave the node.

    Cost
    ----
    One pass over the training part with a copy of it, two tables of steps_per_day by n_nodes, and
    the result.

    Examples
    --------
    >>> average_day(np.tile([[1.0], [5.0]], (4, 1)), 4, [5], horizon=2, steps_per_day=2).tolist()
    [[[1.0, 5.0]]]
    """
    n_train = check_index(n_train, "n_train", least=1)
    steps_per_day = check_index(steps_per_day, "steps_per_day", least=1, limit=_MOST_STEPS)
    horizon = check_index(horizon, "horizon", least=1, limit=_MOST_STEPS)
    starts = check_members(times, "times", INDEX_LIMIT)
    x = check_array(series, "series", dimensions=2)[:n_train]
    known = ~np.isnan(x)
    slot = np.arange(len(x)) % steps_per_day
    total = np.zeros((steps_per_day, x.shape[1]))
    count = np.zeros_like(total)
    np.add.at(total, slot, np.where(known, x, 0.0))
    np.add.at(count, slot, known)
    overall = total.sum(axis=0) / np.maximum(count.sum(axis=0), 1)
    mean = np.where(count > 0, total / np.maximum(count, 1), overall)
    ahead = starts[:, None] + 1 + np.arange(horizon)
    found: Floats = mean[ahead % steps_per_day].transpose(0, 2, 1)
    return found
