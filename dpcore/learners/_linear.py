"""What the linear learners share: labels as signs, and measuring on public data."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import is_classifier
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_X_y

from dpcore._checks import check_labels
from dpcore.errors import DataError, ParameterError
from dpcore.federated.devices import scaled_rows
from dpcore.federated.losses import Loss
from dpcore.learners._public import warn_inferred

__all__ = ["Validation", "binary_labels", "check_validation", "measure", "scaled_rows"]

Array = npt.NDArray[np.float64]
Validation = tuple[npt.NDArray[Any], Array]


def binary_labels(
    y: npt.NDArray[Any], classes: Any, *, loud: bool = False
) -> tuple[npt.NDArray[Any], Array]:
    """The two classes, sorted, and -1 or 1 for each label; from y itself if classes is None.

    `loud` is for learners that promise privacy: what they read off y they warn of.
    """
    check_classification_targets(y)
    if classes is None:
        if loud:
            warn_inferred("classes", "which two labels occur")
        known = np.unique(y)
        if len(known) == 1:
            raise ValueError("The 'y' parameter must hold two classes, not 1 class.")
        if len(known) > 2:
            raise ValueError(
                "Only binary classification is supported. The type of the target is "
                f"{type_of_target(y)}."
            )
    else:
        known = np.unique(check_labels(classes, "classes"))
        if known.shape != (2,):
            raise ParameterError("The 'classes' parameter must list two labels.")
    second = y == known[1]
    if not (second | (y == known[0])).all():
        raise DataError("The 'y' parameter must hold listed classes only.")
    return known, np.where(second, 1.0, -1.0)


def check_validation(estimator: Any, validation: Any) -> Validation:
    """A public data set to measure on: labels become signs."""
    try:
        X, y = validation
        X, y = check_X_y(X, y, dtype=[np.float64, np.float32])
    except (TypeError, ValueError, OverflowError):
        raise ParameterError(
            "The 'validation' parameter must be a pair (X, y) of a table and a column."
        ) from None
    if X.shape[1] != estimator.n_features_in_:
        raise ParameterError("The 'validation' parameter must have the features of X.")
    if is_classifier(estimator):
        return X, binary_labels(y, estimator.classes_)[1]
    return X, np.asarray(y, np.float64)


def measure(held_out: Validation, loss: Loss, coef: Array, intercept: float) -> dict[str, float]:
    """Mean loss on a public data set, and accuracy, or mean squared error for residuals."""
    X, y = held_out
    scores = X @ coef + intercept
    result = {"objective": float(loss.at(scores, y)[0].mean())}
    if loss.kind == "margin":
        result["accuracy"] = float(((scores > 0) == (y > 0)).mean())
    else:
        result["mean_squared_error"] = float(np.square(scores - y).mean())
    return result
