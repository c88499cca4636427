"""LDP-FedSGD by mechanism, loss and epsilon: misclassification and mean squared error."""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.repro.ldp.data import Task
from bench.repro.resume import Parts
from dpcore import Noise
from dpcore.learners import (
    CentralClassifier,
    CentralRegressor,
    LDPFedSGDClassifier,
    LDPFedSGDRegressor,
)

MECHANISMS = ("laplace", "duchi", "pm", "hm", "three-outputs", "pm-sub", "hm-tp", "optimal")
EPSILONS = (0.5, 1.0, 2.0, 4.0)
LOSSES = ("logistic", "hinge", "squared")
LEARNING_RATE = {"logistic": 1.0, "hinge": 0.5, "squared": 0.5}
TEST_SHARE = 0.2


def run(task: Task, parts: Parts, *, quick: bool) -> dict[str, Any]:
    repeats = 2 if quick else 8
    epsilons = (1.0, 4.0) if quick else EPSILONS
    splits = [
        np.random.default_rng(seed).random(len(task.y)) < TEST_SHARE for seed in range(repeats)
    ]
    return {
        "records": len(task.y),
        "features": task.X.shape[1],
        "repeats": repeats,
        "seeds": list(range(repeats)),
        "references": references(task, splits[0]),
        "errors": [
            row
            for loss in LOSSES
            for epsilon in epsilons
            for row in parts(
                f"{task.name}, {loss}, epsilon {epsilon:g}",
                lambda loss=loss, epsilon=epsilon: rows(task, loss, epsilon, splits),
            )
        ],
    }


def rows(task: Task, loss: str, epsilon: float, splits: list[Any]) -> list[dict[str, Any]]:
    """Errors of all mechanisms in one setting."""
    return [
        {
            "loss": loss,
            "epsilon": epsilon,
            "mechanism": mechanism,
            "errors": [
                error(task, loss, mechanism, epsilon, held, seed)
                for seed, held in enumerate(splits)
            ],
        }
        for mechanism in MECHANISMS
    ]


def error(task: Task, loss: str, mechanism: str, epsilon: float, held: Any, seed: int) -> float:
    """Each record is a device. Splits, orders and seeds are the same for all mechanisms."""
    options: dict[str, Any] = {
        "epsilon": epsilon,
        "mechanism": mechanism,
        "learning_rate": LEARNING_RATE[loss],
        "random_state": seed,
        "noise": Noise.insecure(seed),
    }
    if loss == "squared":
        X, target = task.X_target, task.target
        regressor = LDPFedSGDRegressor(loss, **options).fit(X[~held], target[~held])
        return float(np.square(regressor.predict(X[held]) - target[held]).mean())
    model = LDPFedSGDClassifier(loss, classes=[0, 1], **options)
    model.fit(task.X[~held], task.y[~held])
    return 1 - float(model.score(task.X[held], task.y[held]))


def references(task: Task, held: Any) -> dict[str, float]:
    """Without privacy, and without looking at the features."""
    X, y, X_target, target = task.X, task.y, task.X_target, task.target
    classifier = CentralClassifier(row_norm=None).fit(X[~held], y[~held])
    regressor = CentralRegressor(row_norm=None).fit(X_target[~held], target[~held])
    share = y[held].mean()
    return {
        "centralised misclassification": 1 - classifier.score(X[held], y[held]),
        "majority misclassification": float(min(share, 1 - share)),
        "centralised squared error": float(
            np.square(regressor.predict(X_target[held]) - target[held]).mean()
        ),
        "variance of the target": float(target[held].var()),
    }
