"""LDP-FedSGD: linear models from devices that each answer once, under local privacy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from dpcore._checks import (
    check_flag,
    check_index,
    check_not_negative,
    check_positive,
    check_random_state,
)
from dpcore._release import check_noise
from dpcore.accounting import Privacy
from dpcore.errors import ParameterError
from dpcore.federated.devices import Devices
from dpcore.federated.fedsgd import Server, default_group_size, run_group
from dpcore.federated.history import History
from dpcore.federated.losses import Loss, make_loss
from dpcore.learners._fitting import all_or_nothing, check_fit_data
from dpcore.learners._linear import Validation, binary_labels, check_validation, measure
from dpcore.learners._progress import progress_bar
from dpcore.local.vectors import Vector
from dpcore.noise import Noise

__all__ = ["LDPFedSGDClassifier", "LDPFedSGDRegressor"]

_NOT_COVERED = (
    "that a device takes part, when, and which coordinates it drew",
    "a device that takes part again in another fit, or under another name: losses add up",
    "whether the data are finite numbers",
)


class _LDPFedSGD(BaseEstimator):
    """What both learners share: groups of devices, rounds, and the promise."""

    _release: Noise | None

    def __init__(
        self,
        loss: str | Loss,
        epsilon: float,
        mechanism: str,
        k: int | None,
        objective: str,
        group_size: int | None,
        learning_rate: float,
        alpha: float,
        clip: float,
        fit_intercept: bool,
        average: bool,
        shuffle: bool,
        random_state: Any,
        noise: Noise | None,
        progress: bool,
    ) -> None:
        self.loss = loss
        self.epsilon = epsilon
        self.mechanism = mechanism
        self.k = k
        self.objective = objective
        self.group_size = group_size
        self.learning_rate = learning_rate
        self.alpha = alpha
        self.clip = clip
        self.fit_intercept = fit_intercept
        self.average = average
        self.shuffle = shuffle
        self.random_state = random_state
        self.noise = noise
        self.progress = progress

    def _fit(self, X: Any, y: npt.NDArray[Any], users: Any, validation: Any) -> None:
        self._check_parameters()
        held_out = self._validation(validation)
        devices = Devices.of(len(X), users)
        n = len(devices)
        size = self._group_size(n)
        generator = check_random_state(self.random_state)
        order = np.arange(n)
        if self.shuffle:
            order = generator.permutation(n)
        self._begin()
        self._enrol(devices)
        groups = range(0, n, size)
        release = self._release
        for a in progress_bar(groups, "rounds", show=bool(self.progress)):
            self._round(X, y, devices, order[a : a + size], release, held_out)
        self._release = None
        self._finish(devices)

    def _partial_fit(self, X: Any, y: npt.NDArray[Any], users: Any, validation: Any) -> None:
        self._check_parameters()
        held_out = self._validation(validation)
        devices = Devices.of(len(X), users)
        if getattr(self, "_server", None) is None:
            self._begin()
        self._check_new(devices)
        if self._release is None:
            self._release = self._collector.open(check_noise(self.noise))
        self._enrol(devices)
        self._round(X, y, devices, np.arange(len(devices)), self._release, held_out)
        self._finish(devices)

    def _check_new(self, devices: Devices) -> None:
        """Each user takes part once."""
        if devices.ids is not None and not self._seen.isdisjoint(devices.ids.tolist()):
            raise ParameterError(
                "The 'users' parameter must not name a user that took part before."
            )

    def _enrol(self, devices: Devices) -> None:
        if devices.ids is not None:
            self._seen.update(devices.ids.tolist())

    def _check_parameters(self) -> None:
        check_positive(self.learning_rate, "learning_rate")
        check_positive(self.clip, "clip")
        check_not_negative(self.alpha, "alpha")
        for name in ("fit_intercept", "average", "shuffle", "progress"):
            check_flag(getattr(self, name), name)
        self._loss = make_loss(self.loss)
        kind = "margin" if isinstance(self, ClassifierMixin) else "residual"
        if self._loss.kind != kind:
            raise ParameterError(f"The 'loss' parameter must be a loss of the {kind}.")
        self._group_size(1)
        check_noise(self.noise)
        self._new_collector()

    def _new_collector(self) -> Vector:
        d = self.n_features_in_ + bool(self.fit_intercept)
        return Vector(d, self.epsilon, self.mechanism, k=self.k, objective=self.objective)

    def _begin(self) -> None:
        """Charge the release, and start from the zero model."""
        learning_rate, alpha, clip = float(self.learning_rate), float(self.alpha), float(self.clip)
        collector = self._new_collector()
        source = check_noise(self.noise)
        self._release = collector.open(source)
        self._collector = collector
        self._server = Server.start(
            collector.d,
            learning_rate=learning_rate,
            alpha=alpha,
            clip=clip,
            intercept=bool(self.fit_intercept),
        )
        self.mechanism_ = self._collector.numeric
        self.k_ = self._collector.k
        self.n_devices_ = 0
        self._seen: set[Any] = set()
        self.history_ = History()
        self._private = source.private

    def _group_size(self, n: int) -> int:
        if self.group_size is None:
            d = self.n_features_in_ + bool(self.fit_intercept)
            return default_group_size(n, d, float(check_positive(self.epsilon, "epsilon")))
        return check_index(self.group_size, "group_size", least=1)

    def _round(
        self,
        X: Any,
        y: npt.NDArray[Any],
        devices: Devices,
        chosen: npt.NDArray[np.intp],
        release: Noise | None,
        held_out: Validation | None,
    ) -> None:
        assert release is not None
        server, collector = self._server, self._collector
        moved = run_group(
            server, collector, release, self.n_devices_, devices, chosen, X, y, self._loss
        )
        self.n_devices_ += len(chosen)
        sent = len(chosen) * collector.k * collector.n_bits / 8
        extra = measure(held_out, self._loss, *self._model()) if held_out is not None else {}
        self.history_.add(participants=len(chosen), bytes_sent=sent, residual=moved, **extra)

    def _model(self) -> tuple[npt.NDArray[np.float64], float]:
        theta = self._server.average if self.average else self._server.theta
        if not self.fit_intercept:
            return theta, 0.0
        return theta[:-1], float(theta[-1])

    def _finish(self, devices: Devices) -> None:
        self.coef_, self.intercept_ = self._model()
        self.n_rounds_ = self.n_iter_ = self._server.n_rounds
        not_covered = list(_NOT_COVERED)
        if devices.ids is None:
            not_covered.append("further records of the same user, each counted as a device")
        if isinstance(self, ClassifierMixin) and self.classes is None:
            not_covered.append("which two labels occur")
        event = replace(self._collector.event, mechanism="LDP-FedSGD", unit="user")
        self.privacy_ = Privacy.of([event], not_covered=not_covered, private=self._private)

    def _validation(self, validation: Any) -> Validation | None:
        return None if validation is None else check_validation(self, validation)

    def _scores(self, X: Any) -> npt.NDArray[np.float64]:
        check_is_fitted(self)
        data = check_fit_data(self, X, reset=False, dtype=[np.float64, np.float32])
        # In the dtype of the data: a product of two dtypes would copy all of them.
        return np.asarray(data @ self.coef_.astype(data.dtype), np.float64) + self.intercept_

    def __getstate__(self) -> Any:
        # A release in progress cannot be copied: its noise would be drawn twice.
        state = super().__getstate__()
        if "_release" in state:
            state = state | {"_release": None}
        return state


class LDPFedSGDClassifier(ClassifierMixin, _LDPFedSGD):
    """A linear classifier of two classes from devices under local differential privacy.

    The devices are cut into disjoint groups. In each round one group gets the model; every device
    of it computes the gradient on all its records, clips it, and reports k of its d coordinates
    through a local mechanism. The server averages the reports and takes a step of length
    learning_rate / sqrt(round). Each device takes part once.

    Parameters
    ----------
    loss : {"logistic", "hinge", "huber_hinge"} or Loss
        See `dpcore.federated.custom_loss` for one of your own.
    epsilon : float
        Privacy loss of a device, for all of its records and its whole life.
    mechanism : str
        A name of `dpcore.local.NAMES`, or "auto".
    k : int, optional
        Coordinates that a device reports; by default max(1, min(d, floor(epsilon / 2.5))).
    objective : {"at_zero", "worst"}
        What "auto" and "optimal" make small; most coordinates of gradients lie near 0.
    group_size : int, optional
        Devices per round; by default of the order d log(d) / epsilon**2, and 100 rounds at most.
    learning_rate : float
    alpha : float
        Weight of the penalty alpha / 2 * norm(coef)**2, which the server adds by itself.
    clip : float
        Every coordinate of a gradient is clipped to [-clip, clip]. How many were is not reported:
        nothing counts them privately.
    fit_intercept : bool
    average : bool
        Use the mean of the models of all rounds, weighted by their steps, which has less noise.
    shuffle : bool
        Assign devices to rounds at random; otherwise in the order given.
    classes : array_like of 2 labels, optional
        Public list of labels. Without it, the labels that occur are taken from y, with an
        `InferredPublicWarning`.
    random_state : int or RandomState, optional
        For the order of the devices.
    noise : Noise, optional
        Source of randomness of the mechanism; a secure one by default.
    progress : bool
        Show a bar.

    Attributes
    ----------
    coef_ : ndarray of shape (n_features,)
    intercept_ : float
    classes_ : ndarray of shape (2,)
    privacy_ : Privacy
    history_ : History
        By round: participants, bytes_sent, residual (how far the model moved), and objective and
        accuracy where a validation set was given.
    mechanism_ : Mechanism
    k_, n_rounds_, n_devices_ : int

    Privacy
    -------
    epsilon-local-DP for each user: whatever a device holds, the server sees each possible report
    with probabilities that differ by at most a factor of e**epsilon. Participation once per fit is
    kept by construction; `partial_fit` refuses users it has seen. The model sent to later groups
    is made of reports only. A validation set counts as public.

    Cost
    ----
    Per record one product with the model; per device k exact samples for the choice, k table
    look-ups, and k * n_bits on the wire. Coordinates that were not drawn are not computed.

    Examples
    --------
    >>> import numpy as np
    >>> from dpcore.learners import LDPFedSGDClassifier
    >>> generator = np.random.default_rng(0)
    >>> X = generator.uniform(-1, 1, (20_000, 4))
    >>> y = np.where(X[:, 0] > X[:, 1], "yes", "no")
    >>> model = LDPFedSGDClassifier(epsilon=2.0, classes=["no", "yes"]).fit(X, y)
    >>> bool(model.score(X, y) > 0.75)
    True
    >>> model.privacy_.unit, model.privacy_.adjacency
    ('user', 'local')
    """

    def __init__(
        self,
        loss: str | Loss = "logistic",
        epsilon: float = 1.0,
        mechanism: str = "three-outputs",
        *,
        k: int | None = None,
        objective: str = "at_zero",
        group_size: int | None = None,
        learning_rate: float = 1.0,
        alpha: float = 1e-4,
        clip: float = 1.0,
        fit_intercept: bool = True,
        average: bool = True,
        shuffle: bool = True,
        classes: Any = None,
        random_state: Any = None,
        noise: Noise | None = None,
        progress: bool = False,
    ) -> None:
        super().__init__(
            loss, epsilon, mechanism, k, objective, group_size, learning_rate, alpha, clip,
            fit_intercept, average, shuffle, random_state, noise, progress,
        )  # fmt: skip
        self.classes = classes

    @all_or_nothing()
    def fit(self, X: Any, y: Any, users: Any = None, validation: Any = None) -> LDPFedSGDClassifier:
        """Run all rounds over the devices.

        Parameters
        ----------
        X : array_like of shape (n_records, n_features)
            float32 and float64 are used as they are.
        y : array_like of shape (n_records,)
        users : array_like of shape (n_records,), optional
            Who holds each record; by default each record is a device of its own.
        validation : tuple (X, y), optional
            Public data to measure the model on in every round.
        """
        X, y = check_fit_data(self, X, y, dtype=[np.float64, np.float32])
        self.classes_, signs = binary_labels(y, self.classes, loud=True)
        self._fit(X, signs, users, validation)
        return self

    def partial_fit(
        self, X: Any, y: Any, classes: Any = None, users: Any = None, validation: Any = None
    ) -> LDPFedSGDClassifier:
        """One round with new devices, from where the last call ended.

        Parameters
        ----------
        X, y, users, validation
            As for `fit`. Users that took part before are refused.
        classes : array_like of 2 labels
            Needed in the first call, unless a parameter of the learner.
        """
        first = getattr(self, "_server", None) is None
        X, y = check_fit_data(self, X, y, dtype=[np.float64, np.float32], reset=first)
        if first:
            known = self.classes if classes is None else classes
            if known is None:
                raise ParameterError("The 'classes' parameter must be given in the first call.")
            self.classes_ = binary_labels(y, known)[0]
        signs = binary_labels(y, self.classes_)[1]
        self._partial_fit(X, signs, users, validation)
        return self

    def decision_function(self, X: Any) -> npt.NDArray[np.float64]:
        """Scores: positive for the second class."""
        return self._scores(X)

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """The likelier class of each record."""
        positive = self._scores(X) > 0
        return np.asarray(self.classes_[positive.astype(np.intp)])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        tags.classifier_tags.poor_score = True
        tags.non_deterministic = self.noise is None
        return tags


class LDPFedSGDRegressor(RegressorMixin, _LDPFedSGD):
    """A linear regression from devices under local differential privacy.

    See `LDPFedSGDClassifier` for the protocol.

    Parameters
    ----------
    loss : {"squared", "huber"} or Loss
        squared is (x.w - y)**2; Huber's has slope 1 beyond residuals of 1. Scale y accordingly.
    epsilon, mechanism, k, objective, group_size, learning_rate, alpha, clip, fit_intercept, \
average, shuffle, random_state, noise, progress
        As for `LDPFedSGDClassifier`.

    Attributes
    ----------
    coef_, intercept_, privacy_, history_, mechanism_, k_, n_rounds_, n_devices_
        As for `LDPFedSGDClassifier`.

    Privacy
    -------
    As for `LDPFedSGDClassifier`. Gradients are clipped on the device, so no bound on X or y is
    needed.

    Cost
    ----
    As for `LDPFedSGDClassifier`.

    Examples
    --------
    >>> import numpy as np
    >>> from dpcore.learners import LDPFedSGDRegressor
    >>> X = np.random.default_rng(0).uniform(-1, 1, (50_000, 2))
    >>> model = LDPFedSGDRegressor(epsilon=4.0).fit(X, 0.5 * X[:, 0])
    >>> bool(model.score(X, 0.5 * X[:, 0]) > 0.9)
    True
    """

    def __init__(
        self,
        loss: str | Loss = "squared",
        epsilon: float = 1.0,
        mechanism: str = "three-outputs",
        *,
        k: int | None = None,
        objective: str = "at_zero",
        group_size: int | None = None,
        learning_rate: float = 1.0,
        alpha: float = 1e-4,
        clip: float = 1.0,
        fit_intercept: bool = True,
        average: bool = True,
        shuffle: bool = True,
        random_state: Any = None,
        noise: Noise | None = None,
        progress: bool = False,
    ) -> None:
        super().__init__(
            loss, epsilon, mechanism, k, objective, group_size, learning_rate, alpha, clip,
            fit_intercept, average, shuffle, random_state, noise, progress,
        )  # fmt: skip

    @all_or_nothing()
    def fit(self, X: Any, y: Any, users: Any = None, validation: Any = None) -> LDPFedSGDRegressor:
        """Run all rounds over the devices; parameters as for `LDPFedSGDClassifier.fit`."""
        X, y = check_fit_data(self, X, y, dtype=[np.float64, np.float32], y_numeric=True)
        self._fit(X, np.asarray(y, np.float64), users, validation)
        return self

    def partial_fit(
        self, X: Any, y: Any, users: Any = None, validation: Any = None
    ) -> LDPFedSGDRegressor:
        """One round with new devices; parameters as for `fit`. Users seen before are refused."""
        first = getattr(self, "_server", None) is None
        X, y = check_fit_data(
            self, X, y, dtype=[np.float64, np.float32], y_numeric=True, reset=first
        )
        self._partial_fit(X, np.asarray(y, np.float64), users, validation)
        return self

    def predict(self, X: Any) -> npt.NDArray[np.float64]:
        """Values of the linear function."""
        return self._scores(X)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True
        tags.non_deterministic = self.noise is None
        return tags
