"""GLVQ and GMLVQ under differential privacy."""

from __future__ import annotations

import hashlib
import pickle
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin

from dpcore._charge import prepay
from dpcore._checks import check_choice, check_index, check_positive
from dpcore._release import check_noise
from dpcore.accounting import Privacy
from dpcore.errors import ParameterError
from dpcore.learners.lvq.base import MatrixMixin, PrototypeClassifier
from dpcore.learners.lvq.budget import Plan, make_plan
from dpcore.learners.lvq.descent import Schedule, private_descent
from dpcore.learners.lvq.kernel import Model
from dpcore.learners.lvq.start import (
    Start,
    default_radius,
    gaussian_start,
    laplace_start,
    noisy_count,
)
from dpcore.noise import Noise

__all__ = ["PrivateGLVQ", "PrivateGMLVQ"]

Array = npt.NDArray[Any]

_SPREAD = 0.1  # norm of the prototypes of a start that looks at no data, in radii
_NOT_COVERED = (
    "choosing parameters, or the best of several fits, by results on the same data",
    "records of one person in several rows: losses add up",
    "whether the data were valid, and how long the fit took",
)
_FLOAT32 = "rounding of float32 sums beyond the margin of 2e-5 of the clip norm"
_FLOAT64 = "rounding of float64 sums beyond the margin of 1e-6 of the clip norm"
_PARTIAL = "records passed to partial_fit more than once: losses add up"


class _PrivatePrototypes(PrototypeClassifier):
    """Training, budget and privacy of both learners."""

    _kind: ClassVar[str]

    def fit(self, X: Any, y: Any) -> Any:
        """Train on X and y within the budget; whatever was learned before is forgotten.

        Parameters
        ----------
        X : array_like of shape (n_samples, n_features)
            Values outside the bounds count as the nearer bound. float32 is computed in float32.
        y : array_like of shape (n_samples,)
            Labels, all of them of `classes`.
        """
        return self._first_fit(X, y, self.classes)

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> Any:
        """Train on further records, within the same budget for each of them.

        The first call is `fit`. Later ones take another `n_steps` steps from where the model is, on
        the new records alone, and spend the whole budget on these: a record that is passed once
        has a loss of epsilon, one that is passed twice a loss of twice that.
        """
        if not hasattr(self, "_model"):
            return self._first_fit(X, y, self.classes if classes is None else classes)
        self._check_parameters()
        x, codes = self._check_input(X, y, None, reset=False)
        public = self.n_records is not None
        plan = self._plan("independent" if public else "count", estimate_radius=False)
        self._n_calls += 1
        source = self._pay(plan, self._n_calls)
        count = (
            float(check_positive(self.n_records, "n_records"))
            if public
            else noisy_count(len(x), plan.start["count"], source.stream("count"))
        )
        d = x.shape[1]
        start = Start(self._centre, np.empty((0, d)), self.radius_, count)
        self._train(x, codes, start, self._model, plan, source)
        self._say(plan, x.dtype, source, (_PARTIAL,))
        return self

    def _first_fit(self, X: Any, y: Any, classes: Any) -> Any:
        self._check_parameters()
        x, codes = self._check_input(X, y, classes, reset=True)
        radius = self._public_radius()
        plan = self._plan(self.start, estimate_radius=radius is None)
        # Its parameters are to fail before anything is released.
        self._first_omega(x.shape[1], self._generator())
        self._n_calls = 1
        source = self._pay(plan, self._n_calls)
        start = self._start(x, codes, plan, radius, source)
        self._train(x, codes, start, self._first_model(start, self._generator()), plan, source)
        self._say(plan, x.dtype, source, ())
        return self

    def _check_parameters(self) -> None:
        check_choice(self.start, "start", ("gaussian", "laplace", "independent"))
        if self.start == "independent" and self.n_records is None:
            raise ParameterError(
                "The 'n_records' parameter must be given where 'start' is 'independent': nothing "
                "else tells how many records there are, and counting them would leak."
            )
        for name in ("n_records", "clip", "learning_rate", "radius"):
            if getattr(self, name) is not None:
                check_positive(getattr(self, name), name)
        check_index(self.prototypes_per_class, "prototypes_per_class", least=1)
        check_noise(self.noise)
        self._transfer()

    def _steps(self) -> int:
        if self.n_steps is not None:
            return int(self.n_steps)
        rate = float(check_positive(self.sampling_rate, "sampling_rate"))
        return 60 if rate >= 1 else round(30 / rate)

    def _plan(self, start: str, *, estimate_radius: bool) -> Plan:
        return make_plan(
            self.epsilon,
            self.delta,
            start=start,
            sampling_rate=self.sampling_rate,
            steps=self._steps(),
            estimate_radius=estimate_radius,
            start_share=self.start_share if start != "count" else None,
            sigma_rule=self.sigma_rule if start != "count" else "accountant",
        )

    def _pay(self, plan: Plan, call: int) -> Noise:
        """A source for everything that the run draws, once the ledger in force has taken it.

        On a pinned stream the call and all parameters are part of the address: runs that differ in
        any of them must not share noise.
        """
        source = paid = check_noise(self.noise)
        address = (self._kind, call, self._fingerprint())
        for event in plan.events:
            paid = prepay(source, event, "lvq", *address, event.mechanism)
        return paid.release("lvq", *address)

    def _fingerprint(self) -> bytes:
        """A hash of all parameters but the source of noise."""
        state = hashlib.sha256()
        for name, value in sorted(self.get_params(deep=False).items()):
            if name == "noise":
                continue
            if isinstance(value, np.random.RandomState):
                state.update(pickle.dumps((name, value)))
            else:
                nested = name in ("classes", "bounds") and value is not None
                plain = [np.asarray(part).tolist() for part in value] if nested else value
                state.update(repr((name, plain)).encode())
        return state.digest()

    def _start(
        self,
        x: Array,
        codes: npt.NDArray[np.intp],
        plan: Plan,
        radius: float | None,
        source: Noise,
    ) -> Start:
        k, d = len(self.classes_), x.shape[1]
        if self.start == "gaussian":
            start = gaussian_start(x, codes, k, plan.start, source, radius=radius)
        elif self.start == "laplace":
            start = laplace_start(x, codes, k, plan.start, source)
        else:
            means = self._generator().standard_normal((k, d))
            reach = default_radius(d) if radius is None else radius
            means *= _SPREAD * reach / np.linalg.norm(means, axis=1, keepdims=True)
            start = Start(np.zeros(d), means, reach, float(self.n_records))
        count = start.n_records if self.n_records is None else float(self.n_records)
        return Start(start.centre, start.means, radius or start.radius, count)

    def _train(
        self,
        x: Array,
        codes: npt.NDArray[np.intp],
        start: Start,
        model: Model,
        plan: Plan,
        source: Noise,
    ) -> None:
        d = x.shape[1]
        self.clip_ = self._clip(start.radius)
        rate = float(self.sampling_rate)
        schedule = Schedule(
            steps=self._steps(),
            sampling_rate=rate,
            lot=rate * start.n_records,
            clip=self.clip_,
            rate=self._rate(start.radius),
            omega_rate=self._omega_rate(d, self.clip_),
            omega_norm=self._omega_norm(d),
            transfer=self._transfer(),
        )
        moved = x - start.centre.astype(x.dtype)
        model = private_descent(moved, codes, model, schedule, plan.step, source)
        self._keep(model, start)
        self.prototypes_ = source.mark(self.prototypes_)
        self.noise_multiplier_ = plan.step
        self.schedule_ = schedule

    def _say(self, plan: Plan, dtype: Any, source: Noise, more: tuple[str, ...]) -> None:
        rounding = _FLOAT64 if dtype == np.float64 else _FLOAT32
        self.privacy_ = Privacy(
            plan.privacy.epsilon,
            plan.privacy.delta,
            plan.privacy.unit,
            plan.privacy.adjacency,
            plan.events,
            (*self._inferred, *_NOT_COVERED, rounding, *more),
            source.private,
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True
        # Noise costs accuracy: on a handful of records there is nothing to be had.
        tags.classifier_tags.poor_score = True
        return tags


class PrivateGLVQ(_PrivatePrototypes):
    """Generalised learning vector quantisation under (epsilon, delta)-DP.

    One or a few prototypes stand for each class; a point belongs to the class of the nearest one.
    They start at private class means and descend on the summed cost of all records.

    Parameters
    ----------
    epsilon, delta : float
        Privacy of the whole fit: start, every step, and the model that results.
    classes : array_like
        All classes, from public knowledge. If missing they are read off y, with an
        `InferredPublicWarning` and an entry in ``privacy_.not_covered``.
    bounds : pair (lower, upper)
        Ranges of the features, numbers or one for each feature, from public knowledge. If missing,
        as for `classes`.
    prototypes_per_class : int
    start : {"gaussian", "laplace", "independent"}
        Private means about a private centre; counts and sums with Laplace noise, as in the paper;
        or small random prototypes, for which `n_records` must be given.
    start_share : float, optional
        Part of the budget for the start. Default: 0.22 for "gaussian", 0.2 for "laplace".
    transfer : {"logistic", "identity"}
        Function of the relative distance that is summed. The paper's is the identity; the logistic
        one looks at records near the border and is far more accurate at the same budget.
    beta : float, optional
        Steepness of the logistic function, 20 for GLVQ, 10 for GMLVQ.
    sampling_rate : float
        1 for all records in each step; below that each step sees a Poisson sample.
    n_steps : int, optional
        60, or 30 / sampling_rate with sampling.
    clip : float, optional
        Bound on the gradient norm of a record; 0.9 / radius, or 2 / radius for GMLVQ.
    learning_rate : float, optional
        radius**2, or 0.3 radius**2 for GMLVQ.
    radius : float, optional
        Public guess of the typical distance of a record from the centre, features scaled to
        [-1, 1]. By default a Gaussian start estimates it within the budget; the others use
        sqrt(n_features) / 2.
    n_records : float, optional
        Public number of records. By default a noisy count, within the budget, is used.
    sigma_rule : {"accountant", "paper"}
        "paper" computes the noise by the printed rule; `fit` raises where the accountant finds that
        it does not give the epsilon it claims.
    random_state : int, RandomState or None
        For choices that do not touch privacy: random directions of the start.
    noise : Noise, optional
        Source of randomness; a secure one by default.

    Attributes
    ----------
    classes_, n_features_in_, feature_names_in_
    prototypes_ : ndarray of shape (n_prototypes, n_features)
        In the units of the features.
    prototype_labels_ : ndarray of shape (n_prototypes,)
    privacy_ : Privacy
        The guarantee, its events, and what it does not cover.
    noise_multiplier_, radius_, n_records_, clip_, schedule_
        What the run used; all of it may be published.

    Privacy
    -------
    (epsilon, delta)-DP for adding or removing one record, for everything that `fit` leaves in the
    estimator and for every intermediate model. The steps are Gaussian mechanisms on sums of
    gradients that are clipped record by record; the noise is exact, on every coordinate, from
    dpcore's secure source. Without sampling the budget is composed exactly, with it by privacy loss
    distributions (needs dpcore[accounting]). `classes`, `bounds` and all other parameters are
    public. Predictions are post-processing of the model.

    Cost
    ----
    ``n_steps`` times two products of n_samples x n_features x n_prototypes.

    Examples
    --------
    >>> import numpy as np
    >>> from dpcore.learners import PrivateGLVQ
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 2, 2000)
    >>> X = rng.normal(y[:, None] * 2 - 1, 1.0, (2000, 4))
    >>> model = PrivateGLVQ(epsilon=1.0, classes=[0, 1], bounds=(-4, 4)).fit(X, y)
    >>> bool(model.score(X, y) > 0.9)
    True
    >>> model.privacy_.epsilon <= 1.0
    True
    """

    _kind = "glvq"

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        *,
        classes: Any = None,
        bounds: Any = None,
        prototypes_per_class: int = 1,
        start: str = "gaussian",
        start_share: float | None = None,
        transfer: str = "logistic",
        beta: float | None = None,
        sampling_rate: float = 1.0,
        n_steps: int | None = None,
        clip: float | None = None,
        learning_rate: float | None = None,
        radius: float | None = None,
        n_records: float | None = None,
        sigma_rule: str = "accountant",
        random_state: Any = None,
        noise: Noise | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.classes = classes
        self.bounds = bounds
        self.prototypes_per_class = prototypes_per_class
        self.start = start
        self.start_share = start_share
        self.transfer = transfer
        self.beta = beta
        self.sampling_rate = sampling_rate
        self.n_steps = n_steps
        self.clip = clip
        self.learning_rate = learning_rate
        self.radius = radius
        self.n_records = n_records
        self.sigma_rule = sigma_rule
        self.random_state = random_state
        self.noise = noise


class PrivateGMLVQ(
    MatrixMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin, _PrivatePrototypes
):
    """GLVQ with a learned linear map of the features, under (epsilon, delta)-DP.

    Distances are ``|Omega (x - w)|**2``. Omega is learned with the prototypes, its gradient clipped
    together with theirs; ``Omega' Omega`` tells which features matter.

    Parameters
    ----------
    epsilon, delta, classes, bounds, prototypes_per_class, start, start_share, transfer, beta
        As for `PrivateGLVQ`.
    sampling_rate, n_steps, clip, learning_rate, radius, n_records, sigma_rule, random_state, noise
        As for `PrivateGLVQ`.
    relevance : {"matrix", "diagonal"}
        A matrix, or one non-negative weight for each feature (GRLVQ).
    rank : int, optional
        Rows of Omega; 60, or the number of features if that is less. Noise grows with the rank.
    omega_learning_rate : float, optional
        0.25 sqrt(n_features) / clip.
    omega_norm : float, optional
        Frobenius norm of Omega, sqrt(n_features). It changes nothing but the scale of the gradient.

    Attributes
    ----------
    omega_, lambda_, relevance_ : ndarray
        The map, ``Omega' Omega`` with trace 1, and its diagonal.
    classes_, prototypes_, prototype_labels_, privacy_, noise_multiplier_, radius_, n_records_
        As for `PrivateGLVQ`, and so are clip_ and schedule_.

    Privacy
    -------
    As for `PrivateGLVQ`: prototypes and Omega are one release in every step.

    Cost
    ----
    ``n_steps`` times two products of n_samples x n_features x rank.

    Examples
    --------
    >>> import numpy as np
    >>> from dpcore.learners import PrivateGMLVQ
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 2, 5000)
    >>> X = rng.normal(0, 1, (5000, 3))
    >>> X[:, 0] += 3 * y
    >>> model = PrivateGMLVQ(epsilon=2.0, classes=[0, 1], bounds=(-4, 7)).fit(X, y)
    >>> int(model.relevance_.argmax())
    0
    >>> model.transform(X).shape
    (5000, 3)
    """

    _kind = "gmlvq"

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-5,
        *,
        classes: Any = None,
        bounds: Any = None,
        prototypes_per_class: int = 1,
        relevance: str = "matrix",
        rank: int | None = None,
        start: str = "gaussian",
        start_share: float | None = None,
        transfer: str = "logistic",
        beta: float | None = None,
        sampling_rate: float = 1.0,
        n_steps: int | None = None,
        clip: float | None = None,
        learning_rate: float | None = None,
        omega_learning_rate: float | None = None,
        omega_norm: float | None = None,
        radius: float | None = None,
        n_records: float | None = None,
        sigma_rule: str = "accountant",
        random_state: Any = None,
        noise: Noise | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.classes = classes
        self.bounds = bounds
        self.prototypes_per_class = prototypes_per_class
        self.relevance = relevance
        self.rank = rank
        self.start = start
        self.start_share = start_share
        self.transfer = transfer
        self.beta = beta
        self.sampling_rate = sampling_rate
        self.n_steps = n_steps
        self.clip = clip
        self.learning_rate = learning_rate
        self.omega_learning_rate = omega_learning_rate
        self.omega_norm = omega_norm
        self.radius = radius
        self.n_records = n_records
        self.sigma_rule = sigma_rule
        self.random_state = random_state
        self.noise = noise
