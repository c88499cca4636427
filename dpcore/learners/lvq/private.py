"""GLVQ and GMLVQ under differential privacy."""

from __future__ import annotations

from typing import Any

from dpcore.learners.lvq.base import MatrixMixin
from dpcore.learners.lvq.training import PrivatePrototypes
from dpcore.noise import Noise

__all__ = ["PrivateGLVQ", "PrivateGMLVQ"]


class PrivateGLVQ(PrivatePrototypes):
    """Generalised learning vector quantisation under (epsilon, delta)-DP.

    One or a few prototypes stand for each class; a point belongs to the class of the nearest one.
    They start at private class means and descend on the summed cost of all records.

    Parameters
    ----------
    epsilon, delta : float
        Privacy of the whole fit: start, every step, and the model that results.
    classes : array_like
        All classes, from public knowledge. A class without records gets a prototype all the same,
        and with it a few per cent of the predictions. If missing they are read off y, with an
        `InferredPublicWarning` and an entry in ``privacy_.not_covered``.
    bounds : pair (lower, upper)
        Ranges of the features, numbers or one for each feature, from public knowledge. A pandas
        Series that is indexed by names of columns is put in their order. If missing, as for
        `classes`.
    prototypes_per_class : int
        1 by default. Several start a quarter of the radius from the private mean of their class,
        in random directions, and part from there.
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
        radius**2, or 0.3 radius**2 for GMLVQ; shorter where noise would undo the start.
    radius : float, optional
        Public guess of the typical distance of a record from the centre, features scaled to
        [-1, 1]; from 1e-6 to 2 sqrt(n_features). By default a Gaussian start estimates it within
        the budget; the others use sqrt(n_features) / 2.
    n_records : float, optional
        Public number of records, from 1 to 1e15. By default a noisy count, within the budget, is
        used.
    sigma_rule : {"accountant", "paper"}
        "paper" computes the noise by the printed rule; `fit` raises where the accountant finds that
        it does not give the epsilon it claims.
    random_state : int, RandomState or None
        For choices that do not touch privacy: random directions of the start. It does not make a
        fit repeatable, since the noise is fresh.
    noise : Noise, optional
        Source of randomness; a secure one by default. ``dpcore.Noise.insecure(seed)`` makes a
        program repeatable, for tests only: each fit with one such object is another run, and each
        fit with a stream of it, such as ``noise.stream("fit")``, the same.
    progress : bool
        Show a bar; False by default.

    Attributes
    ----------
    classes_, n_features_in_, feature_names_in_
    centre_ : ndarray of shape (n_features,)
        What is subtracted from a record on the scale.
    scale_ : pair of ndarray
        Middle and half-range of each feature: a record is scaled by
        ``clip((x - middle) / half, -1, 1)``.
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
        progress: bool = False,
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
        self.progress = progress


class PrivateGMLVQ(MatrixMixin, PrivatePrototypes):
    """GLVQ with a learned linear map of the features, under (epsilon, delta)-DP.

    Distances are ``|Omega (x - w)|**2``. Omega is learned with the prototypes, its gradient clipped
    together with theirs; ``Omega' Omega`` tells which features matter.

    Parameters
    ----------
    epsilon, delta, classes, bounds, prototypes_per_class, start, start_share, transfer, beta
        As for `PrivateGLVQ`.
    sampling_rate, n_steps, clip, learning_rate, radius, n_records, sigma_rule, random_state, noise
        As for `PrivateGLVQ`, and so is progress.
    relevance : {"matrix", "diagonal"}
        A matrix, or one non-negative weight for each feature (GRLVQ), which has no `rank`.
    rank : int, optional
        Rows of Omega; 60, or the number of features if that is less. Noise grows with the rank.
    omega_learning_rate : float, optional
        0.25 sqrt(n_features) / clip, shorter as `learning_rate` is.
    omega_norm : float, optional
        Frobenius norm of Omega, sqrt(n_features). It changes nothing but the scale of the gradient.

    Attributes
    ----------
    omega_, lambda_, relevance_ : ndarray
        The map, ``Omega' Omega`` with trace 1, and its diagonal. Differences of relevance that are
        smaller than the noise mean nothing.
    classes_, prototypes_, prototype_labels_, centre_, scale_, privacy_, noise_multiplier_, radius_
        As for `PrivateGLVQ`, and so are n_records_, clip_ and schedule_.

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
        progress: bool = False,
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
        self.progress = progress
