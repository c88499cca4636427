"""What federated learners are compared with: all records in one place, or every user alone."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils.validation import check_is_fitted

from dpcore._checks import check_flag, check_index, check_positive, check_random_state
from dpcore.accounting import Privacy
from dpcore.errors import ParameterError
from dpcore.federated.devices import Devices
from dpcore.federated.losses import Loss, make_loss
from dpcore.federated.solvers import LocalProblems
from dpcore.learners._fitting import all_or_nothing, check_fit_data
from dpcore.learners._linear import binary_labels, scaled_rows

__all__ = [
    "CentralClassifier",
    "CentralRegressor",
    "LocalOnlyClassifier",
    "LocalOnlyRegressor",
]

Array = npt.NDArray[np.float64]


class _Baseline(BaseEstimator):
    """Minimises the loss plus beta / 2 * norm(w)**2 exactly, for each of some devices."""

    loss: str | Loss
    beta: float
    row_norm: float | None
    fit_intercept: bool

    def _check_parameters(self) -> tuple[Loss, float]:
        """The loss and the weight of the penalty."""
        loss = make_loss(self.loss)
        kind = "margin" if isinstance(self, ClassifierMixin) else "residual"
        if loss.kind != kind or not math.isfinite(loss.curvature_bound):
            raise ParameterError(
                f"The 'loss' parameter must be a loss of the {kind} without corners."
            )
        check_flag(self.fit_intercept, "fit_intercept")
        if self.row_norm is not None:
            check_positive(self.row_norm, "row_norm")
        return loss, float(check_positive(self.beta, "beta"))

    def _solve(self, X: Any, y: Array, devices: Devices) -> None:
        loss, beta = self._check_parameters()
        rows = scaled_rows(X, bool(self.fit_intercept), self.row_norm)
        problems = LocalProblems(rows, y, devices, loss, None)
        n = len(devices)
        # The local problem of a user at z = 0 is the penalised one.
        w = problems.solve(np.arange(n), np.zeros((n, rows.shape[1])), beta)
        self._set(w)
        self.privacy_ = Privacy(
            math.inf, 0.0, "record", None, (), ("anything: no noise",), private=False
        )

    @abstractmethod
    def _set(self, w: Array) -> None:
        """Keep the models of the users."""

    def _rows(self, X: Any) -> Array:
        check_is_fitted(self)
        data = check_fit_data(self, X, reset=False, dtype=np.float64)
        return scaled_rows(data, bool(self.fit_intercept), self.row_norm)


class _Central(_Baseline):
    def _set(self, w: Array) -> None:
        one = w[0]
        self.coef_, self.intercept_ = (
            (one[:-1], float(one[-1])) if self.fit_intercept else (one, 0.0)
        )

    def _scores(self, X: Any) -> Array:
        rows = self._rows(X)
        w = np.append(self.coef_, self.intercept_) if self.fit_intercept else self.coef_
        return np.asarray(rows @ w)


class CentralClassifier(ClassifierMixin, _Central):
    """The classifier of two classes that somebody who had all records would learn.

    Parameters
    ----------
    loss, beta, row_norm, fit_intercept, classes
        As for `ConsensusADMMClassifier`, with the l2 penalty.

    Attributes
    ----------
    coef_, intercept_, classes_, privacy_

    Privacy
    -------
    None.

    Cost
    ----
    A few Newton steps over all records.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).uniform(-1, 1, (500, 3))
    >>> bool(CentralClassifier().fit(X, X[:, 0] > 0).score(X, X[:, 0] > 0) > 0.95)
    True
    """

    def __init__(
        self,
        loss: str | Loss = "logistic",
        *,
        beta: float = 1.0,
        row_norm: float | None = 1.0,
        fit_intercept: bool = True,
        classes: Any = None,
    ) -> None:
        self.loss = loss
        self.beta = beta
        self.row_norm = row_norm
        self.fit_intercept = fit_intercept
        self.classes = classes

    @all_or_nothing()
    def fit(self, X: Any, y: Any, users: Any = None) -> CentralClassifier:
        """Minimise over all records; who holds them does not matter."""
        X, y = check_fit_data(self, X, y, dtype=np.float64)
        self.classes_, signs = binary_labels(y, self.classes)
        self._solve(X, signs, Devices.of(len(X), np.zeros(len(X), np.intp)))
        return self

    def decision_function(self, X: Any) -> Array:
        """Scores: positive for the second class."""
        return self._scores(X)

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """The likelier class of each record."""
        positive = self._scores(X) > 0
        return np.asarray(self.classes_[positive.astype(np.intp)])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags


class CentralRegressor(RegressorMixin, _Central):
    """The regression that somebody who had all records would learn.

    Parameters
    ----------
    loss, beta, row_norm, fit_intercept
        As for `ConsensusADMMRegressor`, with the l2 penalty.

    Attributes
    ----------
    coef_, intercept_, privacy_

    Privacy
    -------
    None.

    Cost
    ----
    A few Newton steps over all records.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).uniform(-1, 1, (500, 3))
    >>> bool(CentralRegressor(row_norm=None).fit(X, X[:, 0]).score(X, X[:, 0]) > 0.95)
    True
    """

    def __init__(
        self,
        loss: str | Loss = "squared",
        *,
        beta: float = 1.0,
        row_norm: float | None = 1.0,
        fit_intercept: bool = True,
    ) -> None:
        self.loss = loss
        self.beta = beta
        self.row_norm = row_norm
        self.fit_intercept = fit_intercept

    @all_or_nothing()
    def fit(self, X: Any, y: Any, users: Any = None) -> CentralRegressor:
        """Minimise over all records; who holds them does not matter."""
        X, y = check_fit_data(self, X, y, dtype=np.float64, y_numeric=True)
        self._solve(X, np.asarray(y, np.float64), Devices.of(len(X), np.zeros(len(X), np.intp)))
        return self

    def predict(self, X: Any) -> Array:
        """Values of the linear function."""
        return self._scores(X)


class _LocalOnly(_Baseline):
    n_users: int
    random_state: Any

    def _devices(self, n_records: int, users: Any) -> Devices:
        # All of it before a seed is drawn.
        self._check_parameters()
        n_users = check_index(self.n_users, "n_users", least=1)
        if users is not None:
            return Devices.of(n_records, users)
        seed = check_random_state(self.random_state).randint(1 << 31)
        return Devices.parts(n_records, n_users, np.random.default_rng(seed))

    def _set(self, w: Array) -> None:
        self.n_users_ = len(w)
        self.coef_, self.intercept_ = (
            (w[:, :-1], w[:, -1]) if self.fit_intercept else (w, np.zeros(len(w)))
        )

    def _all_scores(self, X: Any) -> Array:
        """Scores of shape (n_records, n_users)."""
        rows = self._rows(X)
        w = np.column_stack([self.coef_, self.intercept_]) if self.fit_intercept else self.coef_
        return np.asarray(rows @ w.T)


class LocalOnlyClassifier(ClassifierMixin, _LocalOnly):
    """What users learn who never speak to each other.

    Parameters
    ----------
    loss, beta, row_norm, fit_intercept, classes, n_users, random_state
        As for `ConsensusADMMClassifier`, with the l2 penalty.

    Attributes
    ----------
    coef_ : ndarray of shape (n_users, n_features)
    intercept_ : ndarray of shape (n_users,)
    classes_, privacy_, n_users_

    Notes
    -----
    `score` is the mean of the scores that the users reach, each with its own model. `predict` has
    to give one answer per record: the mean of the users' decisions -1 and 1.

    Privacy
    -------
    None, and nothing is sent.

    Cost
    ----
    A few Newton steps per user, all users together.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).uniform(-1, 1, (500, 3))
    >>> model = LocalOnlyClassifier(n_users=5, random_state=0).fit(X, X[:, 0] > 0)
    >>> model.coef_.shape
    (5, 3)
    """

    def __init__(
        self,
        loss: str | Loss = "logistic",
        *,
        beta: float = 1.0,
        row_norm: float | None = 1.0,
        fit_intercept: bool = True,
        classes: Any = None,
        n_users: int = 10,
        random_state: Any = None,
    ) -> None:
        self.loss = loss
        self.beta = beta
        self.row_norm = row_norm
        self.fit_intercept = fit_intercept
        self.classes = classes
        self.n_users = n_users
        self.random_state = random_state

    @all_or_nothing()
    def fit(self, X: Any, y: Any, users: Any = None) -> LocalOnlyClassifier:
        """Each user minimises over its own records."""
        X, y = check_fit_data(self, X, y, dtype=np.float64)
        self.classes_, signs = binary_labels(y, self.classes)
        self._solve(X, signs, self._devices(len(X), users))
        return self

    def decision_function(self, X: Any) -> Array:
        """Mean of the users' decisions, from -1 to 1."""
        return np.asarray(np.where(self._all_scores(X) > 0, 1.0, -1.0).mean(axis=1))

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """The class that most users decide for."""
        positive = self.decision_function(X) > 0
        return np.asarray(self.classes_[positive.astype(np.intp)])

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Mean accuracy of the users' own models."""
        right = (self._all_scores(X) > 0) == (np.asarray(y) == self.classes_[1])[:, np.newaxis]
        return float(np.average(right.mean(axis=1), weights=sample_weight))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags


class LocalOnlyRegressor(RegressorMixin, _LocalOnly):
    """What users learn who never speak to each other.

    Parameters
    ----------
    loss, beta, row_norm, fit_intercept, n_users, random_state
        As for `ConsensusADMMRegressor`, with the l2 penalty.

    Attributes
    ----------
    coef_, intercept_, privacy_, n_users_
        As for `LocalOnlyClassifier`.

    Notes
    -----
    `score` is the mean of the users' R**2; `predict` gives the mean of their values.

    Privacy
    -------
    None, and nothing is sent.

    Cost
    ----
    As for `LocalOnlyClassifier`.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).uniform(-1, 1, (500, 3))
    >>> model = LocalOnlyRegressor(n_users=5, row_norm=None, random_state=0).fit(X, X[:, 0])
    >>> bool(model.score(X, X[:, 0]) > 0.9)
    True
    """

    def __init__(
        self,
        loss: str | Loss = "squared",
        *,
        beta: float = 1.0,
        row_norm: float | None = 1.0,
        fit_intercept: bool = True,
        n_users: int = 10,
        random_state: Any = None,
    ) -> None:
        self.loss = loss
        self.beta = beta
        self.row_norm = row_norm
        self.fit_intercept = fit_intercept
        self.n_users = n_users
        self.random_state = random_state

    @all_or_nothing()
    def fit(self, X: Any, y: Any, users: Any = None) -> LocalOnlyRegressor:
        """Each user minimises over its own records."""
        X, y = check_fit_data(self, X, y, dtype=np.float64, y_numeric=True)
        self._solve(X, np.asarray(y, np.float64), self._devices(len(X), users))
        return self

    def predict(self, X: Any) -> Array:
        """Mean of the values of the users' linear functions."""
        return np.asarray(self._all_scores(X).mean(axis=1))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Mean R**2 of the users' own models."""
        scores = self._all_scores(X)
        target = np.broadcast_to(np.asarray(y)[:, np.newaxis], scores.shape)
        return float(r2_score(target, scores, sample_weight=sample_weight))
