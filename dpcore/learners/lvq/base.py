"""What all prototype learners share: scaling, prediction, the model in the user's units."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
)
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from dpcore._checks import check_choice, check_index, check_list, check_positive, check_random_state
from dpcore.errors import DataError, ParameterError
from dpcore.learners._fitting import check_fit_data
from dpcore.learners.lvq.budget import default_steps
from dpcore.learners.lvq.descent import scaled_omega
from dpcore.learners.lvq.kernel import Model, Transfer, distances
from dpcore.learners.lvq.public import (
    check_bounds,
    encode_labels,
    resolve_bounds,
    resolve_classes,
    sorted_classes,
    tidy_labels,
)
from dpcore.learners.lvq.start import Start
from dpcore.noise import NotPrivateArray

__all__ = ["MatrixMixin", "PrototypeClassifier"]

Array = npt.NDArray[Any]

_OFFSET = 0.25  # distance of several prototypes of a class from its mean, in radii


class PrototypeClassifier(ClassifierMixin, BaseEstimator):
    """Nearest prototype under a learned distance; see the learners for parameters."""

    # Formulas of the defaults in the radius B and the number of features d.
    _beta = 20.0
    _clip_factor = 0.9
    _rate_factor = 1.0
    _is_private = True

    def _check_input(self, X: Any, y: Any, classes: Any, *, reset: bool) -> tuple[Array, Array]:
        """Validated data on the public scale, and positions of the labels."""
        # Last digits of sums over rows depend on the order in memory.
        X, y = check_fit_data(self, X, y, dtype=[np.float64, np.float32], order="C", reset=reset)
        y = tidy_labels(y)
        if reset:
            if classes is None:
                check_classification_targets(y)
            self.classes_, no_classes = resolve_classes(classes, y, loud=self._is_private)
            self._scale, no_bounds = resolve_bounds(
                self.bounds,
                X,
                loud=self._is_private,
                names=getattr(self, "feature_names_in_", None),
            )
            self._inferred = (*no_classes, *no_bounds)
            self._first = self._settled()
        else:
            self._check_later(X, classes)
        return self._scale.apply(X), encode_labels(y, self.classes_)

    def _settled(self) -> dict[str, Any]:
        """What the first fit settles for further ones, in a form that can be compared."""
        names = getattr(self, "feature_names_in_", None)
        sides = self.bounds
        if sides is not None:
            scale = check_bounds(sides, self.n_features_in_, names)
            sides = scale.lower.tolist(), scale.upper.tolist()
        return {
            "classes": None if self.classes is None else sorted_classes(self.classes).tolist(),
            "bounds": sides,
            "prototypes_per_class": check_index(
                self.prototypes_per_class, "prototypes_per_class", least=1
            ),
        }

    def _check_later(self, X: Array, classes: Any) -> None:
        """Whether further data and the parameters are for the model that there is."""
        now = self._settled()
        self._public_radius()
        changed = [name for name, value in self._first.items() if now[name] != value]
        if classes is not None and not np.array_equal(sorted_classes(classes), self.classes_):
            changed.insert(0, "classes")
        if changed:
            raise ParameterError(
                f"The '{changed[0]}' parameter must be what it was in the first call: call fit for "
                "a new model."
            )
        if not self._scale.fits(X.dtype):
            raise DataError(
                "The 'X' parameter must be of a dtype that the bounds of the first call fit: "
                "use float64."
            )

    def _steps(self) -> int:
        if self.n_steps is not None:
            return check_index(self.n_steps, "n_steps", least=1)
        return default_steps(self.sampling_rate)

    def _transfer(self) -> Transfer:
        name = check_choice(self.transfer, "transfer", ("logistic", "identity"))
        beta = self._beta if self.beta is None else self._moderate("beta")
        return Transfer(name, beta if name == "logistic" else 1.0)

    def _public_radius(self) -> float | None:
        """The radius that is given; the scale is a cube of side 2."""
        if self.radius is None:
            return None
        radius = float(check_positive(self.radius, "radius"))
        if not 1e-6 <= radius <= 2 * math.sqrt(self.n_features_in_):
            raise ParameterError(
                "The 'radius' parameter must lie between 1e-6 and 2 sqrt(n_features), the size of "
                "the scale."
            )
        return radius

    def _check_count(self) -> None:
        if (
            self.n_records is not None
            and not 1 <= check_positive(self.n_records, "n_records") <= 10**15
        ):
            raise ParameterError("The 'n_records' parameter must lie between 1 and 1e15.")

    def _moderate(self, name: str) -> float:
        """A parameter of the descent, whose squares must not overflow once noise was paid for."""
        value = float(check_positive(getattr(self, name), name))
        if not 1e-9 <= value <= 1e9:
            raise ParameterError(f"The '{name}' parameter must lie between 1e-9 and 1e9.")
        return value

    def _clip(self, radius: float) -> float:
        return self._clip_factor / radius if self.clip is None else self._moderate("clip")

    def _rate(self, radius: float, damping: float = 1.0) -> float:
        if self.learning_rate is None:
            return damping * self._rate_factor * radius * radius
        return self._moderate("learning_rate")

    def _omega_rate(self, d: int, clip: float, damping: float = 1.0) -> float:
        return 0.0

    def _omega_norm(self, d: int) -> float:
        return math.sqrt(d)

    def _first_omega(self, d: int, generator: np.random.RandomState) -> Array | None:
        return None

    def _first_model(
        self, start: Start, omega: Array | None, generator: np.random.RandomState
    ) -> Model:
        """One prototype at each class mean, or several at random about it."""
        each = check_index(self.prototypes_per_class, "prototypes_per_class", least=1)
        means = np.repeat(start.means, each, axis=0)
        if each > 1:
            offsets = generator.standard_normal(means.shape)
            offsets *= _OFFSET * start.radius / np.linalg.norm(offsets, axis=1, keepdims=True)
            means = means + offsets
        codes = np.repeat(np.arange(len(self.classes_), dtype=np.intp), each)
        return Model(means, codes, omega)

    def _generator(self) -> np.random.RandomState:
        return check_random_state(self.random_state)

    def _keep(self, model: Model, start: Start) -> None:
        self._model, self._centre = model, start.centre
        self.scale_ = self._scale.middle, self._scale.half
        self.radius_, self.n_records_ = start.radius, start.n_records
        self.prototypes_ = self._scale.invert(model.prototypes + start.centre)
        self.prototype_labels_ = self.classes_[model.codes]

    def _marked(self, values: Array) -> Array:
        """Values of the model, labelled if its prototypes are."""
        insecure = isinstance(self.prototypes_, NotPrivateArray)
        return values.view(NotPrivateArray) if insecure else values

    @property
    def centre_(self) -> Array:
        """What is subtracted from records that were scaled to [-1, 1]."""
        check_is_fitted(self)
        return self._marked(self._centre)

    def _centred(self, X: Any) -> Array:
        check_is_fitted(self)
        data = check_fit_data(self, X, reset=False, dtype=[np.float64, np.float32], order="C")
        if not self._scale.fits(data.dtype):
            data = data.astype(np.float64)
        unit = self._scale.apply(data)
        unit -= self._centre.astype(unit.dtype)
        return unit

    def _class_distances(self, X: Any) -> Array:
        unit = self._centred(X)
        d = distances(unit, self._model.astype(unit.dtype))
        columns = [d[:, self._model.codes == c].min(axis=1) for c in range(len(self.classes_))]
        return np.column_stack(columns)

    def predict(self, X: Any) -> Array:
        """Classes of the nearest prototypes.

        Parameters
        ----------
        X : array_like of shape (n_samples, n_features)
            Values outside the bounds count as the nearer bound.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        nearest = self._class_distances(X).argmin(axis=1)
        return np.asarray(self.classes_[nearest])

    def decision_function(self, X: Any) -> Array:
        """Minus the squared distance to the nearest prototype of each class.

        Parameters
        ----------
        X : array_like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            For two classes of shape (n_samples,): by how much the second is nearer.
        """
        d = self._class_distances(X)
        return np.asarray(d[:, 0] - d[:, 1] if d.shape[1] == 2 else -d)


class MatrixMixin(ClassNamePrefixFeaturesOutMixin, TransformerMixin):
    """What a learned Omega adds: its shape, its relevance profile, projection and a plot.

    scikit-learn wraps a `transform` for `set_output` where its own mixin is a base of the class
    that defines it, so the mixins are bases of this one.
    """

    _beta = 10.0
    _clip_factor = 2.0
    _rate_factor = 0.3
    _omega_factor = 0.25
    _default_rank = 60

    def _shape(self, d: int) -> tuple[str, int]:
        """What `relevance` and `rank` stand for."""
        kind = check_choice(self.relevance, "relevance", ("matrix", "diagonal"))
        rank = self.rank
        if kind == "diagonal" and rank is not None:
            raise ParameterError(
                "The 'rank' parameter must be None where 'relevance' is 'diagonal': weights have "
                "no rank."
            )
        rank = min(d, self._default_rank) if rank is None else check_index(rank, "rank", least=1)
        if rank > d:
            raise ParameterError("The 'rank' parameter must be at most the number of features.")
        return kind, rank

    def _settled(self) -> dict[str, Any]:
        kind, rank = self._shape(self.n_features_in_)
        return {**super()._settled(), "relevance": kind, "rank": rank}

    def _omega_rate(self, d: int, clip: float, damping: float = 1.0) -> float:
        if self.omega_learning_rate is None:
            return damping * self._omega_factor * math.sqrt(d) / clip
        return float(self._moderate("omega_learning_rate"))

    def _omega_norm(self, d: int) -> float:
        if self.omega_norm is None:
            return math.sqrt(d)
        return float(self._moderate("omega_norm"))

    def _first_omega(self, d: int, generator: np.random.RandomState) -> Array:
        """The identity, or random directions of a lower rank; never of the data.

        All features begin with the same relevance, whatever their directions are.
        """
        kind, rank = self._shape(d)
        if kind == "diagonal":
            return scaled_omega(np.ones(d), self._omega_norm(d))
        if rank == d:
            return scaled_omega(np.eye(d), self._omega_norm(d))
        omega = generator.standard_normal((rank, d))
        omega /= np.linalg.norm(omega, axis=0)
        return scaled_omega(omega, self._omega_norm(d))

    @property
    def omega_(self) -> Array:
        """Omega, of shape (rank, n_features); diagonal for GRLVQ."""
        check_is_fitted(self)
        omega = np.asarray(self._model.omega)
        matrix: Array = np.diag(np.sqrt(omega)) if omega.ndim == 1 else omega
        return np.asanyarray(self._marked(matrix))

    @property
    def lambda_(self) -> Array:
        """Omega' Omega with a trace of 1: how pairs of features enter the distance."""
        product = self.omega_.T @ self.omega_
        return np.asanyarray(product / np.trace(product))

    @property
    def relevance_(self) -> Array:
        """The diagonal of `lambda_`: the part of each feature, summing to 1.

        It starts equal for all features; differences smaller than the noise mean nothing.
        """
        squares = (self.omega_ * self.omega_).sum(axis=0)
        return np.asanyarray(squares / squares.sum())

    @property
    def _n_features_out(self) -> int:
        return int(self.omega_.shape[0])

    def transform(self, X: Any) -> Array:
        """X on the public scale, centred and projected by Omega.

        It is ``(clip((X - middle) / half, -1, 1) - centre_) @ omega_.T``, where
        ``middle, half = scale_``.

        Parameters
        ----------
        X : array_like of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, rank)
        """
        unit = self._centred(X)
        return np.asarray(self._model.astype(unit.dtype).project(unit))

    def plot_relevance(
        self,
        ax: Any = None,
        *,
        n_features: int | None = 20,
        feature_names: Any = None,
        **options: Any,
    ) -> Any:
        """Bars of the most relevant features, by matplotlib.

        Post-processing of the fitted model: it costs no privacy.

        Parameters
        ----------
        ax : matplotlib axes, optional
            By default those of a new figure, as high as the number of bars asks for.
        n_features : int, optional
            How many features are shown, the most relevant first; None for all.
        feature_names : array_like of str, optional
            Names of all features; by default those that `fit` saw, or x0, x1 and so on.
        **options
            Passed to `ax.barh`.

        Returns
        -------
        matplotlib axes
            A dotted line marks 1 / n_features, the relevance that all features start with.
        """
        relevance = np.asarray(self.relevance_)
        names = self._names(feature_names)
        limit = None if n_features is None else check_index(n_features, "n_features", least=1)
        shown = np.argsort(-relevance, kind="stable")[:limit]
        ax = _new_axes(len(shown)) if ax is None else ax
        places = np.arange(len(shown))
        ax.barh(places, relevance[shown], **options)
        ax.set_yticks(places, [names[i] for i in shown])
        ax.invert_yaxis()
        ax.axvline(1 / len(relevance), color="gray", linestyle=":", label="1 / n_features")
        ax.legend(loc="lower right")
        ax.set_xlabel("relevance")
        return ax

    def _names(self, given: Any) -> list[str]:
        """A name for every feature."""
        d = int(self.n_features_in_)
        if given is None:
            given = getattr(self, "feature_names_in_", [f"x{i}" for i in range(d)])
        names = [str(name) for name in check_list(given, "feature_names")]
        if len(names) != d:
            raise ParameterError("The 'feature_names' parameter must name every feature.")
        return names


def _new_axes(n_bars: int) -> Any:
    """Axes with room for bars and their names."""
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=(6.4, 1.2 + 0.22 * n_bars), layout="constrained")[1]
