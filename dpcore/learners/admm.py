"""Consensus ADMM: linear models of users who share noisy sums only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import ClassifierMixin, RegressorMixin

from dpcore.federated.losses import Loss
from dpcore.federated.schedule import Delays
from dpcore.learners._consensus import ConsensusADMM
from dpcore.learners._fitting import all_or_nothing, check_fit_data
from dpcore.learners._linear import binary_labels
from dpcore.noise import Noise

__all__ = ["ConsensusADMMClassifier", "ConsensusADMMRegressor"]

Array = npt.NDArray[np.float64]


class ConsensusADMMClassifier(ClassifierMixin, ConsensusADMM):
    """A linear classifier of two classes, learned by users who keep their records to themselves.

    Minimises the sum of the users' losses plus a penalty. In each round every user minimises its
    own loss near the model it received, adds a share of noise and sends one vector; the server sees
    the sum, updates the model and returns it to those who took part.

    Parameters
    ----------
    loss : {"logistic", "huber_hinge"} or Loss
        See `dpcore.federated.custom_loss` for one of your own.
    epsilon, delta : float
        Loss of the whole fit. ``epsilon=None`` without `noise_multiplier` adds no noise.
    noise_multiplier : float, optional
        Noise instead of epsilon: deviation of the noise of a sum over the sensitivity of one local
        step. `privacy_` says what it costs.
    accounting : {"share", "stateful"}
        "share": users keep the noise in their state; any schedule; counts as if each user's noisy
        model were published, so the server need not be trusted. "stateful": users keep exact
        states and add fresh noise to each message; all users in every round; counts for the sums.
    solver : {"exact", "dp_gd"}
        "exact" minimises locally. "dp_gd" sends gradients and keeps no state, so one record moves
        every round by the same small amount: the least noise of all, in sums of all users.
    adjacency : {"replace", "add-remove"}
        Whether one record is replaced, or added or removed.
    penalty : {"l2", "l1", "elasticnet"}
        beta / 2 * norm(w)**2, beta * norm(w, 1), or both with `l1_ratio`.
    beta, l1_ratio : float
    rho : float or sequence of float
        Weight of staying near the model received; a sequence gives one for every round.
    relaxation : float
        Between 0 and 2: above 1 for over-relaxation.
    learning_rate : float
        For "dp_gd": length of the steps, over the one that is safe for all data.
    n_rounds : int
    tol : float, optional
        Stop when the model moves by at most tol * max(1, norm). Looks at released values only; the
        loss is that of all rounds planned.
    tail : int
        The result is the mean of the models of so many last rounds: less noise at no cost.
    n_users : int
        Where `fit` is not told who holds what: number of random, equal parts.
    barrier, max_delay : int
        A round ends when `barrier` users (default: all) have answered, and nobody outside has
        missed max_delay - 1 rounds.
    delays : Delays, optional
        How slow users are, and how they fail; see `dpcore.federated.Delays`.
    honest : float
        Share of the users in a round whose noise can be relied on.
    secure : bool
        Sum messages by secure aggregation; needs the extra ``secagg``.
    row_norm : float or None
        Rows of X, with the 1 of the intercept, are scaled down to this norm where longer, in `fit`
        and in prediction. None leaves them; a private fit needs it.
    fit_intercept : bool
    classes : array_like of 2 labels, optional
        Public list of labels. Without it, the labels that occur are taken from y, with an
        `InferredPublicWarning`.
    diagnostics : bool
        Also record the objective and the residual over the private data: not covered by the
        guarantee.
    random_state : int or RandomState, optional
        For the parts and the schedule.
    noise : Noise, optional
        Source of the shares; a secure one by default.
    progress : bool
        Show a bar.

    Attributes
    ----------
    coef_, intercept_ : ndarray of shape (n_features,), float
        Of rows scaled as said under `row_norm`.
    classes_ : ndarray of shape (2,)
    privacy_ : Privacy
        Of all rounds together.
    per_round_epsilon_ : float or None
        What publications state: the classical formula for one round alone. Not a guarantee.
    noise_multiplier_ : float or None
    history_ : History
        By round: participants, time, bytes_sent, residual; objective and accuracy where a
        validation set was given; training_objective and primal_residual with diagnostics.
    schedule_ : Schedule
    n_users_, n_rounds_ : int

    Privacy
    -------
    (epsilon, delta)-DP for one record of one user, for everything sent in all rounds. One record
    moves a local minimum by at most 2 bound row_norm / rho, bound being that of the loss's slope,
    which the noise is calibrated to; what this becomes over rounds depends on the accounting, see
    `dpcore.federated.shares`. Noise is discrete, on a grid. Under "share" it holds for whoever sees
    single messages; otherwise for whoever sees the sums. Local models and duals stay with the
    users; the server's models are free to publish. A local solver that misses its tolerance, which
    the sensitivity counts on, raises before anything is sent; that it did is visible. There is no
    privacy for a user with all its records: whole messages are not clipped.

    Cost
    ----
    Per user and round a few Newton steps: systems of the size of the records or the features,
    whichever are fewer. Each user holds one such matrix: with d features and as many records or
    more, 8 d**2 bytes. 8 bytes per feature and message.

    Examples
    --------
    >>> import numpy as np
    >>> from dpcore.learners import ConsensusADMMClassifier
    >>> generator = np.random.default_rng(0)
    >>> X = generator.uniform(-1, 1, (5000, 4))
    >>> y = (X[:, 0] > X[:, 1]).astype(int)
    >>> model = ConsensusADMMClassifier(
    ...     epsilon=1.0, solver="dp_gd", learning_rate=4.0, classes=[0, 1]
    ... ).fit(X, y, users=np.arange(5000) // 50)
    >>> bool(model.score(X, y) > 0.9)
    True
    >>> round(model.privacy_.epsilon, 3), model.n_users_
    (1.0, 100)
    """

    def __init__(
        self,
        loss: str | Loss = "logistic",
        epsilon: float | None = 1.0,
        delta: float = 1e-6,
        *,
        noise_multiplier: float | None = None,
        accounting: str = "share",
        solver: str = "exact",
        adjacency: str = "replace",
        penalty: str = "l2",
        beta: float = 1.0,
        l1_ratio: float = 0.5,
        rho: float | Sequence[float] = 1.0,
        relaxation: float = 1.0,
        learning_rate: float = 1.0,
        n_rounds: int = 20,
        tol: float | None = None,
        tail: int = 1,
        n_users: int = 10,
        barrier: int | None = None,
        max_delay: int = 1,
        delays: Delays | None = None,
        honest: float = 1.0,
        secure: bool = False,
        row_norm: float | None = 1.0,
        fit_intercept: bool = True,
        classes: Any = None,
        diagnostics: bool = False,
        random_state: Any = None,
        noise: Noise | None = None,
        progress: bool = False,
    ) -> None:
        super().__init__(
            loss, epsilon, delta, noise_multiplier, accounting, solver, adjacency, penalty, beta,
            l1_ratio, rho, relaxation, learning_rate, n_rounds, tol, tail, n_users, barrier,
            max_delay, delays, honest, secure, row_norm, fit_intercept, diagnostics, random_state,
            noise, progress,
        )  # fmt: skip
        self.classes = classes

    @all_or_nothing()
    def fit(
        self, X: Any, y: Any, users: Any = None, validation: Any = None
    ) -> ConsensusADMMClassifier:
        """Run the rounds.

        Parameters
        ----------
        X : array_like of shape (n_records, n_features)
        y : array_like of shape (n_records,)
        users : array_like of shape (n_records,), optional
            Who holds each record; by default the records are dealt to `n_users` at random.
        validation : tuple (X, y), optional
            Public data to measure the model on in every round.
        """
        X, y = check_fit_data(self, X, y, dtype=np.float64)
        noisy = self.epsilon is not None or self.noise_multiplier is not None
        self.classes_, signs = binary_labels(y, self.classes, loud=noisy)
        self._fit(X, signs, users, validation)
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
        tags.classifier_tags.poor_score = self._is_private
        tags.non_deterministic = self._is_private and self.noise is None
        return tags


class ConsensusADMMRegressor(RegressorMixin, ConsensusADMM):
    """A linear regression, learned by users who keep their records to themselves.

    See `ConsensusADMMClassifier` for the protocol.

    Parameters
    ----------
    loss : {"huber", "squared"} or Loss
        Huber's has slope 1 beyond residuals of 1: scale y accordingly. The squared loss has no
        bound on what one record can do, so it is for fits without noise only.
    epsilon, delta, noise_multiplier, accounting, solver, adjacency, penalty, beta, l1_ratio, rho, \
relaxation, learning_rate, n_rounds, tol, tail, n_users, barrier, max_delay, delays, honest, \
secure, row_norm, fit_intercept, diagnostics, random_state, noise, progress
        As for `ConsensusADMMClassifier`.

    Attributes
    ----------
    coef_, intercept_, privacy_, per_round_epsilon_, noise_multiplier_, history_, schedule_, \
n_users_, n_rounds_
        As for `ConsensusADMMClassifier`.

    Privacy
    -------
    As for `ConsensusADMMClassifier`. No bound on y is needed.

    Cost
    ----
    As for `ConsensusADMMClassifier`.

    Examples
    --------
    >>> import numpy as np
    >>> from dpcore.learners import ConsensusADMMRegressor
    >>> X = np.random.default_rng(0).uniform(-1, 1, (2000, 3))
    >>> model = ConsensusADMMRegressor("squared", epsilon=None, beta=1e-3, n_rounds=300)
    >>> model.set_params(row_norm=None).fit(X, X[:, 0] + 2).intercept_.__round__(3)
    2.0
    """

    def __init__(
        self,
        loss: str | Loss = "huber",
        epsilon: float | None = 1.0,
        delta: float = 1e-6,
        *,
        noise_multiplier: float | None = None,
        accounting: str = "share",
        solver: str = "exact",
        adjacency: str = "replace",
        penalty: str = "l2",
        beta: float = 1.0,
        l1_ratio: float = 0.5,
        rho: float | Sequence[float] = 1.0,
        relaxation: float = 1.0,
        learning_rate: float = 1.0,
        n_rounds: int = 20,
        tol: float | None = None,
        tail: int = 1,
        n_users: int = 10,
        barrier: int | None = None,
        max_delay: int = 1,
        delays: Delays | None = None,
        honest: float = 1.0,
        secure: bool = False,
        row_norm: float | None = 1.0,
        fit_intercept: bool = True,
        diagnostics: bool = False,
        random_state: Any = None,
        noise: Noise | None = None,
        progress: bool = False,
    ) -> None:
        super().__init__(
            loss, epsilon, delta, noise_multiplier, accounting, solver, adjacency, penalty, beta,
            l1_ratio, rho, relaxation, learning_rate, n_rounds, tol, tail, n_users, barrier,
            max_delay, delays, honest, secure, row_norm, fit_intercept, diagnostics, random_state,
            noise, progress,
        )  # fmt: skip

    @all_or_nothing()
    def fit(
        self, X: Any, y: Any, users: Any = None, validation: Any = None
    ) -> ConsensusADMMRegressor:
        """Run the rounds; parameters as for `ConsensusADMMClassifier.fit`."""
        X, y = check_fit_data(self, X, y, dtype=np.float64, y_numeric=True)
        self._fit(X, np.asarray(y, np.float64), users, validation)
        return self

    def predict(self, X: Any) -> Array:
        """Values of the linear function."""
        return self._scores(X)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = self._is_private
        tags.non_deterministic = self._is_private and self.noise is None
        return tags
