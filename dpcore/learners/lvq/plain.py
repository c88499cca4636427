"""The twins without privacy: the same model, schedule and formulas, exact means and no noise."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from dpcore._checks import check_choice, check_flag, check_index, check_positive
from dpcore.accounting import Privacy
from dpcore.errors import DataError, ParameterError
from dpcore.learners._fitting import all_or_nothing
from dpcore.learners.lvq.base import MatrixMixin, PrototypeClassifier
from dpcore.learners.lvq.descent import Schedule, lbfgs, stochastic_descent
from dpcore.learners.lvq.kernel import gradient_sums
from dpcore.learners.lvq.start import Start

__all__ = ["GLVQ", "GMLVQ"]

_NOTHING = Privacy(
    math.inf,
    1.0,
    "record",
    "add-remove",
    not_covered=("anything: trained without noise",),
    private=False,
)


class _PlainPrototypes(PrototypeClassifier):
    """Class means, then descent with the schedule of the private learners, or L-BFGS."""

    _is_private = False

    @all_or_nothing()
    def fit(self, X: Any, y: Any) -> Any:
        """Train on X and y. Nothing here is private.

        Parameters
        ----------
        X : array_like of shape (n_samples, n_features)
            Values outside the bounds count as the nearer bound. float32 is computed in float32.
        y : array_like of shape (n_samples,)
            Labels: numbers, booleans or strings.

        Returns
        -------
        self
        """
        check_choice(self.solver, "solver", ("sgd", "lbfgs"))
        check_flag(self.progress, "progress")
        transfer = self._transfer()
        rate = float(check_positive(self.sampling_rate, "sampling_rate"))
        if rate > 1:
            raise ParameterError("The 'sampling_rate' parameter must be at most 1.")
        clip = math.inf if self.clip is None else float(check_positive(self.clip, "clip"))
        n_steps = self._steps()
        limit = check_index(self.max_iter, "max_iter", least=1)
        generator = self._generator()
        self._rate(1.0)
        x, codes = self._check_input(X, y, self.classes, reset=True)
        start = self._means(x, codes, self._public_radius())
        moved = x - start.centre.astype(x.dtype)
        d = x.shape[1]
        model = self._first_model(start, self._first_omega(d, generator), generator)
        if self.solver == "lbfgs":
            model, self.n_iter_ = lbfgs(moved, codes, model, transfer, max_iter=limit)
        else:
            # The private formulas take their clip norm into the length of a step of Omega.
            schedule = Schedule(
                steps=n_steps,
                sampling_rate=rate,
                lot=rate * len(x),
                clip=clip,
                rate=self._rate(start.radius),
                omega_rate=self._omega_rate(d, self._clip(start.radius)),
                omega_norm=self._omega_norm(d),
                transfer=transfer,
            )
            model = stochastic_descent(
                moved, codes, model, schedule, generator, progress=self.progress
            )
            self.n_iter_ = schedule.steps
        self._keep(model, start)
        self.cost_ = gradient_sums(moved, codes, model.astype(x.dtype), transfer=transfer).cost
        self.privacy_ = _NOTHING
        return self

    def _means(
        self, x: npt.NDArray[Any], codes: npt.NDArray[np.intp], radius: float | None
    ) -> Start:
        if len(np.unique(codes)) < len(self.classes_):
            raise DataError(
                "The 'y' parameter must hold every class of the 'classes' parameter: without noise "
                "a class without records has no mean to start from."
            )
        centre = x.mean(axis=0, dtype=np.float64)
        means = np.array([x[codes == c].mean(axis=0) for c in range(len(self.classes_))]) - centre
        norms = np.linalg.norm(x - centre, axis=1)
        radius = float(np.median(norms)) if radius is None else radius
        return Start(centre, means, max(radius, 1e-12), float(len(x)))


class GLVQ(_PlainPrototypes):
    """Generalised learning vector quantisation without privacy.

    Parameters
    ----------
    solver : {"sgd", "lbfgs"}
        Steps with the schedule of `PrivateGLVQ`, the default, or L-BFGS on the whole data (needs
        SciPy).
    classes : array_like, optional
        All classes, each with records; those of y by default.
    bounds : pair (lower, upper), optional
        Ranges that are scaled to [-1, 1]; those of the data by default.
    max_iter : int
        Iterations of L-BFGS, at most; 200 by default.
    clip : float, optional
        Bound on the gradient norm of a record; none by default.
    prototypes_per_class, transfer, beta, sampling_rate, n_steps, learning_rate, radius
        As for `PrivateGLVQ`, defaults included; but the radius is the median distance from the mean
        by default. L-BFGS takes no steps of these.
    random_state : int, RandomState or None
        For lots below a sampling rate of 1 and random directions of the start; a number makes a fit
        repeatable.
    progress : bool
        Show a bar of the steps, False by default; L-BFGS shows none.

    Attributes
    ----------
    classes_, prototypes_, prototype_labels_, centre_, scale_, radius_, n_features_in_
        As for `PrivateGLVQ`.
    cost_ : float
        Sum of the transfer function over the records.
    n_iter_ : int
        Steps, or iterations of L-BFGS.
    privacy_ : Privacy
        An infinite loss.

    Privacy
    -------
    None. This is the reference that a private fit is compared with.

    Cost
    ----
    As `PrivateGLVQ`.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from dpcore.learners.lvq import GLVQ
    >>> X, y = load_iris(return_X_y=True)
    >>> bool(GLVQ(solver="lbfgs").fit(X, y).score(X, y) > 0.94)
    True
    """

    def __init__(
        self,
        *,
        solver: str = "sgd",
        classes: Any = None,
        bounds: Any = None,
        prototypes_per_class: int = 1,
        transfer: str = "logistic",
        beta: float | None = None,
        sampling_rate: float = 1.0,
        n_steps: int | None = None,
        max_iter: int = 200,
        clip: float | None = None,
        learning_rate: float | None = None,
        radius: float | None = None,
        random_state: Any = None,
        progress: bool = False,
    ) -> None:
        self.solver = solver
        self.classes = classes
        self.bounds = bounds
        self.prototypes_per_class = prototypes_per_class
        self.transfer = transfer
        self.beta = beta
        self.sampling_rate = sampling_rate
        self.n_steps = n_steps
        self.max_iter = max_iter
        self.clip = clip
        self.learning_rate = learning_rate
        self.radius = radius
        self.random_state = random_state
        self.progress = progress


class GMLVQ(MatrixMixin, _PlainPrototypes):
    """GLVQ with a learned linear map of the features, without privacy.

    Parameters
    ----------
    relevance, rank, omega_learning_rate, omega_norm
        As for `PrivateGMLVQ`.
    solver, classes, bounds, prototypes_per_class, transfer, beta, sampling_rate, n_steps, max_iter
        As for `GLVQ`, and so are clip, learning_rate, radius, random_state and progress.

    Attributes
    ----------
    omega_, lambda_, relevance_ : ndarray
    classes_, prototypes_, prototype_labels_, centre_, scale_, radius_, cost_, privacy_
        As for `GLVQ`, and so are n_iter_ and n_features_in_.

    Privacy
    -------
    None.

    Cost
    ----
    As `PrivateGMLVQ`.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from dpcore.learners.lvq import GMLVQ
    >>> X, y = load_iris(return_X_y=True)
    >>> GMLVQ().fit(X, y).relevance_.shape
    (4,)
    """

    def __init__(
        self,
        *,
        solver: str = "sgd",
        classes: Any = None,
        bounds: Any = None,
        prototypes_per_class: int = 1,
        relevance: str = "matrix",
        rank: int | None = None,
        transfer: str = "logistic",
        beta: float | None = None,
        sampling_rate: float = 1.0,
        n_steps: int | None = None,
        max_iter: int = 200,
        clip: float | None = None,
        learning_rate: float | None = None,
        omega_learning_rate: float | None = None,
        omega_norm: float | None = None,
        radius: float | None = None,
        random_state: Any = None,
        progress: bool = False,
    ) -> None:
        self.solver = solver
        self.classes = classes
        self.bounds = bounds
        self.prototypes_per_class = prototypes_per_class
        self.relevance = relevance
        self.rank = rank
        self.transfer = transfer
        self.beta = beta
        self.sampling_rate = sampling_rate
        self.n_steps = n_steps
        self.max_iter = max_iter
        self.clip = clip
        self.learning_rate = learning_rate
        self.omega_learning_rate = omega_learning_rate
        self.omega_norm = omega_norm
        self.radius = radius
        self.random_state = random_state
        self.progress = progress
