"""A scikit-learn transformer that randomises records on the way into a pipeline."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from dpcore._charge import prepay
from dpcore._checks import check_array, check_positive
from dpcore._release import check_noise
from dpcore.accounting import Privacy
from dpcore.errors import DataError, ParameterError
from dpcore.learners._fitting import all_or_nothing, check_fit_data
from dpcore.local.tuples import share
from dpcore.noise import Noise

__all__ = ["LocalPrivatizer"]

_NOT_COVERED = (
    "how many records there are, and which columns",
    "a record that is transformed again under fresh noise: losses add up",
    "targets, sample weights and whatever else does not pass through transform",
    "records of one person in several rows: losses add up",
)


class LocalPrivatizer(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Randomise every value of every record, so that what follows is local-DP.

    Parameters
    ----------
    mechanism : str
        A name of `dpcore.local.NAMES`.
    epsilon : float
        Privacy loss of a whole record. It is split evenly: each of d features gets epsilon / d.
    lower, upper : float or array_like of shape (n_features,)
        Public bounds, never learned from data; values outside count as the nearer bound.
    noise : Noise, optional
        Source of randomness; a secure one by default. A pinned stream gives the same noise in every
        call: use it for one data set only.

    Attributes
    ----------
    n_features_in_ : int
    feature_names_in_ : ndarray, where X has column names
    mechanism_ : Mechanism
        What every feature goes through, on the scale from -1 to 1.
    privacy_ : Privacy
        What one call of `transform` promises for each record, and what is not covered.

    Privacy
    -------
    epsilon-local-DP for each record (row) in one call of `transform`. `fit` reads nothing of X but
    its number of columns and their names. Not covered: the number of records; a record transformed
    again, or in several rows; targets and weights, which do not pass through here. NaN and infinite
    values are refused, which shows.

    Cost
    ----
    4 bytes of keystream and one table look-up per value. For many features prefer `Tuple`, whose
    error grows with the square root of d rather than with d.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.linear_model import Ridge
    >>> from sklearn.pipeline import make_pipeline
    >>> from dpcore.learners import LocalPrivatizer
    >>> X = np.random.default_rng(0).uniform(0, 10, (1000, 2))
    >>> model = make_pipeline(LocalPrivatizer(epsilon=4.0, lower=0.0, upper=10.0), Ridge())
    >>> model.fit(X, X.sum(axis=1)).named_steps["localprivatizer"].mechanism_.epsilon
    2.0
    """

    def __init__(
        self,
        mechanism: str = "hm-j",
        epsilon: float = 1.0,
        lower: float | npt.ArrayLike = -1.0,
        upper: float | npt.ArrayLike = 1.0,
        noise: Noise | None = None,
    ) -> None:
        self.mechanism = mechanism
        self.epsilon = epsilon
        self.lower = lower
        self.upper = upper
        self.noise = noise

    @all_or_nothing()
    def fit(self, X: Any, y: Any = None) -> LocalPrivatizer:
        """Check the parameters against the number of features; nothing is learned from X."""
        from dpcore import local

        check_fit_data(self, X, dtype=[np.float64, np.float32])
        d = self.n_features_in_
        part = share(check_positive(self.epsilon, "epsilon"), d)
        if part < Fraction(1, 1000):
            raise ParameterError(
                "The 'epsilon' parameter must leave at least 0.001 for every feature."
            )
        lower, upper = self._bounds("lower", d), self._bounds("upper", d)
        if not (lower < upper).all() or not np.isfinite(upper - lower).all():
            raise ParameterError("The 'upper' parameter must be greater than 'lower'.")
        private = self.noise is None or check_noise(self.noise).private
        self.mechanism_ = local.make(self.mechanism, part)
        event = replace(self.mechanism_.event, count=d)
        self.privacy_ = Privacy.of([event], not_covered=_NOT_COVERED, private=private)
        self._lower, self._upper = lower, upper
        return self

    def transform(self, X: Any) -> npt.NDArray[Any]:
        """Randomised values, unbiased for those of X within the bounds.

        Parameters
        ----------
        X : array_like of shape (n_records, n_features)

        Returns
        -------
        ndarray of shape (n_records, n_features)
            Of the dtype of X if that is float32, else float64. Values lie outside the bounds as a
            rule.
        """
        check_is_fitted(self)
        data = check_fit_data(self, X, reset=False, dtype=[np.float64, np.float32])
        source = check_noise(self.noise)
        half = (self._upper - self._lower) / 2
        centre = self._lower + half
        unit = (np.clip(data.astype(np.float64), self._lower, self._upper) - centre) / half
        paid = prepay(source, self.privacy_.events[0], "local privatizer", repr(self.mechanism_))
        drawn = np.asarray(self.mechanism_.privatize(unit, noise=paid))
        return source.mark((drawn * half + centre).astype(data.dtype))

    def _bounds(self, name: str, d: int) -> npt.NDArray[np.float64]:
        given = getattr(self, name)
        try:
            bounds = check_array(given, name, finite=True)
        except (ParameterError, DataError):
            bounds = np.empty((0, 0))
        if bounds.shape not in ((), (d,)) or isinstance(given, bool):
            raise ParameterError(
                f"The '{name}' parameter must be a finite number, or one for every feature."
            )
        return np.broadcast_to(bounds, (d,))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
