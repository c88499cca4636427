"""What a forecaster is told: parameters and series checked, steps to train on, scale."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dpcore._charge import ledger_in_force
from dpcore._checks import (
    check_array,
    check_choice,
    check_flag,
    check_index,
    check_list,
    check_name,
    check_path,
    check_positive,
    exact,
)
from dpcore._release import check_noise
from dpcore.errors import DataError, ParameterError

__all__ = ["Steps", "check_options", "check_series", "choose_steps", "find_scale"]

_INPUTS = ("neighbours", "own", "clock")


def check_series(series: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Readings of times by nodes by channels."""
    raw = check_array(series, "series")
    raw = raw[:, :, None] if raw.ndim == 2 else raw
    if raw.ndim != 3 or 0 in raw.shape[1:]:
        raise ParameterError("The 'series' parameter must be times by nodes (by channels).")
    if np.isinf(raw).any():
        raise DataError("The 'series' parameter must hold finite numbers or NaN.")
    return raw


def check_options(learner: Any) -> None:
    """Refuse parameters that nothing can be done with; `learner` is a `PrivateForecaster`."""
    check_choice(learner.model, "model", ("gate", "exchange", "local"))
    check_choice(learner.loss_space, "loss_space", ("standardised", "instance"))
    check_choice(learner.average, "average", ("counts", "proportions"))
    check_choice(learner.input_norm, "input_norm", ("instance", "none"))
    check_choice(learner.output_norm, "output_norm", ("instance", "none"))
    check_choice(learner.kernel, "kernel", ("auto", "torch"))
    for name in check_list(learner.inputs, "inputs"):
        check_choice(name, "inputs", _INPUTS)
    for name in ("bucket", "n_epochs", "batch_size", "stride", "width", "horizon"):
        check_index(getattr(learner, name), name, least=1)
    for name in ("hidden", "steps_per_day"):
        check_index(getattr(learner, name), name, least=1)
    for name in ("max_age", "random_state"):
        check_index(getattr(learner, name), name)
    if learner.patience is not None:
        check_index(learner.patience, "patience", least=1)
    check_positive(learner.learning_rate, "learning_rate")
    for name in ("epsilon", "clip_norm"):
        if getattr(learner, name) is not None:
            check_positive(getattr(learner, name), name)
    if not 0 < exact(learner.smoothing, "smoothing") <= 1:
        raise ParameterError("The 'smoothing' parameter must lie in (0, 1].")
    check_flag(learner.progress, "progress")
    check_name(learner.period, "period", may_be_empty=True)
    check_noise(learner.noise)
    _check_device(learner.device)
    path = None if learner.checkpoint is None else check_path(learner.checkpoint, "checkpoint")
    if path is not None and not path.absolute().parent.is_dir():
        raise ParameterError("The 'checkpoint' parameter must name a file in a folder.")
    check_choice(learner.train, "train", ("plain", "dp-sgd"))
    for name in ("train_epsilon", "train_delta"):
        check_positive(getattr(learner, name), name)
    if learner.train == "dp-sgd":
        _check_private_training(learner)
    if not 0 <= exact(learner.validation, "validation") < 1:
        raise ParameterError("The 'validation' parameter must lie in [0, 1).")
    if learner.validation == 0 and (learner.model == "gate" or learner.patience is not None):
        raise ParameterError("The 'validation' parameter must be above 0 to choose by it.")


def _check_device(device: Any) -> None:
    import torch

    try:
        torch.empty(0, device=torch.device(check_name(device, "device")))
    except (RuntimeError, AssertionError, NotImplementedError):
        raise ParameterError("The 'device' parameter must be a device of torch's.") from None


def _check_private_training(learner: Any) -> None:
    if learner.model == "gate" or learner.patience is not None:
        raise ParameterError(
            "The 'train' parameter must be 'plain' with 'gate' and 'patience', which choose by "
            "exact errors."
        )
    if learner.model == "exchange" and ledger_in_force() is not None:
        raise ParameterError(
            "The 'train' parameter must be 'plain' for 'exchange' under a ledger: losses of "
            "windows and of readings do not add up."
        )


@dataclass(frozen=True)
class Steps:
    """The steps to train on, and the starts of the windows that lie in them.

    Attributes
    ----------
    inside : ndarray of bool, shape (n_times,)
    starts, held_out : ndarray of int
        Windows to train on, and to validate on.
    """

    inside: npt.NDArray[np.bool_]
    starts: npt.NDArray[np.intp]
    held_out: npt.NDArray[np.intp]

    @property
    def end(self) -> int:
        """The first step after all that is trained on."""
        return int(np.flatnonzero(self.inside)[-1]) + 1


def choose_steps(
    learner: Any, n_times: int, n_train: int | None, train_steps: npt.ArrayLike | None
) -> Steps:
    """Windows of a `PrivateForecaster` by what `fit` was told."""
    steps = np.arange(n_times)
    if train_steps is None:
        count = n_times if n_train is None else n_train
        inside = steps < check_index(count, "n_train", limit=n_times + 1)
    else:
        inside = np.asarray(train_steps)
        if inside.shape != steps.shape or inside.dtype != np.bool_:
            raise ParameterError("The 'train_steps' parameter must be a bool for every step.")
        if n_train is not None:
            raise ParameterError("The 'train_steps' parameter excludes 'n_train'.")
    reach = learner.width + learner.horizon
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(inside, (0, reach)), reach)
    usable = np.flatnonzero(windows.all(axis=1))
    border = round(len(usable) * (1 - learner.validation))
    if border == 0:
        raise ParameterError("The 'n_train' parameter must leave a window to train on.")
    # Windows nearer than this to the last one share steps with it.
    held_out = usable[usable >= usable[border - 1] + reach]
    if learner.validation > 0 and held_out.size == 0:
        raise ParameterError("The 'validation' parameter must leave windows to validate on.")
    return Steps(inside, usable[: border : learner.stride], held_out[:: learner.stride])


def find_scale(
    scale: Any, training: npt.NDArray[np.float64]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Mean and deviation of every channel: the public ones, or those of the training part."""
    n_channels = training.shape[2]
    if scale is None:
        part = training.reshape(-1, n_channels)
        if np.isnan(part).all(axis=0).any():
            raise DataError("The 'series' parameter must hold readings of every channel.")
        mean, deviation = np.nanmean(part, axis=0), np.nanstd(part, axis=0)
    else:
        sides = [check_array(s, "scale", finite=True) for s in check_list(scale, "scale")]
        if len(sides) != 2 or any(s.shape not in ((), (n_channels,)) for s in sides):
            raise ParameterError(
                "The 'scale' parameter must be a pair of numbers, or one for every channel."
            )
        mean, deviation = (np.broadcast_to(side, (n_channels,)) for side in sides)
    return mean, np.where(deviation > 0, deviation, 1.0)
