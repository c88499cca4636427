"""A training run of a forecaster: paid for, model after model, kept in a checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dpcore._charge import ledger_in_force
from dpcore._release import check_noise
from dpcore.accounting import Event
from dpcore.learners.forecast.model import HistogramLSTM
from dpcore.learners.forecast.private_training import Budget, private_train
from dpcore.learners.forecast.training import Options, WindowData, train, write_checkpoint
from dpcore.noise import Noise

__all__ = ["pay_training", "train_models"]

_CLIP_NORM = 1.0  # of single windows, where nothing else is asked for


def pay_training(
    learner: Any, ids: list[int | str], event: Event, fingerprint: str, content: dict[str, Any]
) -> Noise:
    """Noise for the training, once a ledger in force has taken its cost for every node.

    A checkpoint keeps that it was paid: a run that goes on from it is the same release.
    """
    source, ledger = check_noise(learner.noise), ledger_in_force()
    if ledger is not None and not content.get("paid"):
        # On a pinned stream the same training draws the same noise, and costs nothing new.
        name = source.fingerprint("forecast training", fingerprint, learner.device)
        ledger.admit(source)
        ledger.charge(
            event,
            fingerprint=name if source.pinned else None,
            claim=source.claim,
            parts=[("readings", node, learner.period) for node in ids],
        )
    content["paid"] = True
    content["private"] = source.private and content.get("private", True)
    release = source.release("forecast training", fingerprint, learner.device)
    return release.for_ledger(prepaid=True)


def train_models(
    learner: Any,
    data: dict[str, WindowData],
    starts: npt.NDArray[Any],
    held_out: npt.NDArray[Any],
    content: dict[str, Any],
    path: Path | None,
    paid: tuple[Budget, Noise] | None,
) -> tuple[dict[str, HistogramLSTM], dict[str, Any], dict[str, Any]]:
    """The models of a `PrivateForecaster`, their losses by epoch, and their validation errors.

    Parameters
    ----------
    data : dict of str to WindowData
        What each model is trained on.
    starts, held_out : ndarray of int
        Windows to train and to validate on.
    content : dict
        What the checkpoint holds; models in it are trained on.
    path : Path or None
        Where it is kept.
    paid : tuple of (Budget, Noise) or None
        For private training.
    """
    models: dict[str, HistogramLSTM] = {}
    histories: dict[str, Any] = {}
    errors: dict[str, Any] = {}
    options = _options(learner)
    for name, part in data.items():
        model = HistogramLSTM(
            part.n_nodes, len(part.series) // part.n_nodes, width=learner.width,
            horizon=learner.horizon, hidden=learner.hidden, n_bins=part.n_side,
            input_norm=learner.input_norm, output_norm=learner.output_norm, kernel=learner.kernel,
            random_state=learner.random_state,
        ).to(learner.device)  # fmt: skip

        def save(state: dict[str, Any], name: str = name) -> None:
            if path is not None:
                content["models"][name] = state
                write_checkpoint(path, content)

        more = {"name": name, "resume": content["models"].get(name), "after_epoch": save}
        if paid is None:
            state = train(model, part, starts, held_out, options, **more)
        else:
            state = private_train(model, part, starts, held_out, options, *paid, **more)
        models[name] = model
        histories[name] = np.array(state["losses"])
        if held_out.size:
            found = state["error"] if learner.patience is None else state["best_error"]
            errors[name] = found.numpy()
    return models, histories, errors


def _options(learner: Any) -> Options:
    clip_norm = None if learner.clip_norm is None else float(learner.clip_norm)
    if clip_norm is None and learner.train == "dp-sgd":
        clip_norm = _CLIP_NORM
    return Options(
        learner.n_epochs, learner.batch_size, float(learner.learning_rate), learner.loss_space,
        learner.patience, clip_norm, learner.random_state, learner.progress,
    )  # fmt: skip
