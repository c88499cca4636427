"""A classifier that learns from label proportions of batches, of its own or of neighbours."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from numbers import Integral
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets, unique_labels
from sklearn.utils.validation import (
    assert_all_finite,
    check_is_fitted,
    column_or_1d,
)

from dpcore._checks import (
    check_array,
    check_choice,
    check_flag,
    check_index,
    check_labels,
    check_members,
    check_not_negative,
    check_random_state,
)
from dpcore.accounting import Privacy
from dpcore.cluster import Clustering, kmeans, nearest_center
from dpcore.errors import DataError, ParameterError
from dpcore.labeling import cluster_shares, label_clusters
from dpcore.learners._fitting import all_or_nothing, check_fit_data
from dpcore.proportions import LabelCounts, label_counts

__all__ = ["LabelProportionClassifier", "vote_table"]

_MOST_BATCHES = 1 << 31
_NOT_COVERED = (
    "everything: the model is a function of the rows it was fitted to and must stay with who holds "
    "them; what was received from others is as private as they made it",
    "the choice of parameters by looking at the data",
)


class LabelProportionClassifier(ClassifierMixin, BaseEstimator):
    """Cluster rows, and give clusters the labels that explain the label proportions of batches.

    Rows are standardised and clustered by k-means. For each table of proportions (of the node
    itself, of each of its neighbours) the clusters are labelled such that the proportions implied
    in every batch come nearest to the given ones. The labelings then vote.

    Parameters
    ----------
    n_clusters : int
        Reduced to the number of rows where there are fewer.
    labeling : {"search", "monotone", "exact", "auto"}
        How labels are found; see `dpcore.labeling.label_clusters`. "monotone" asks for labels that
        do not decrease with the mean of `order_feature`: for labels that are ordered, like bins.
    n_starts : int
        Random starts of "search".
    order_feature : int
        The feature that orders clusters for "monotone".
    loss : {"squared", "product"} or function
    batch_weight : bool
        Weight batches by their size.
    classes : array_like, optional
        The labels that columns of proportions stand for: public. By default 0, 1, ..., or what
        occurs in the labels where `fit` is given labels.
    own : int or None
        Which table decides ties of the vote; the lowest label does without.
    vote : {"majority", "median", "joint"}
        "median" is for labels that are ordered. "joint" labels the clusters once, by the mean of
        all tables: it lowers the noise of tables that describe the same, and blurs others.
    n_init, max_iter, tol
        As for `dpcore.cluster.kmeans`.
    standardize : bool
        Scale features by the mean and standard deviation of the rows.
    random_state : int, RandomState or None
        Seeds of the clustering and starts of the search.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
    cluster_centers_ : ndarray of shape (n_clusters, n_features)
        In the units of X.
    labelings_ : ndarray of int32, shape (n_tables, n_clusters)
        Index of the class that each table gives each cluster.
    losses_ : ndarray of shape (n_tables,)
    n_iter_ : int
        Iterations of the clustering.
    votes_ : ndarray of shape (n_clusters, n_classes)
        Shares of votes.
    privacy_ : Privacy
        The model itself is not released.

    Privacy
    -------
    Post-processing of the proportions received, but the clusters are those of the own rows: neither
    `cluster_centers_` nor predictions may be published.

    Cost
    ----
    One clustering; then the labelings, whose cost does not depend on the number of rows.

    Examples
    --------
    >>> import numpy as np
    >>> from dpcore.learners import LabelProportionClassifier
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 2, 400)
    >>> X = y[:, None] * 4.0 + rng.normal(size=(400, 1))
    >>> batches = np.arange(400) // 20
    >>> share = np.bincount(batches, y) / 20
    >>> model = LabelProportionClassifier(n_clusters=4, random_state=0)
    >>> model = model.fit(X, np.column_stack([1 - share, share]), batches)
    >>> bool(model.score(X, y) > 0.9)
    True
    """

    def __init__(
        self,
        n_clusters: int = 16,
        *,
        labeling: str = "auto",
        n_starts: int = 50,
        order_feature: int = -1,
        loss: str | Callable[[float, float], float] = "squared",
        batch_weight: bool = False,
        classes: npt.ArrayLike | None = None,
        own: int | None = 0,
        vote: str = "majority",
        n_init: int = 10,
        max_iter: int = 300,
        tol: float = 1e-4,
        standardize: bool = True,
        random_state: Any = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.labeling = labeling
        self.n_starts = n_starts
        self.order_feature = order_feature
        self.loss = loss
        self.batch_weight = batch_weight
        self.classes = classes
        self.own = own
        self.vote = vote
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.standardize = standardize
        self.random_state = random_state

    @all_or_nothing()
    def fit(self, X: Any, proportions: Any, batches: Any = None) -> LabelProportionClassifier:
        """Cluster the rows and label the clusters.

        Parameters
        ----------
        X : array_like of shape (n_rows, n_features)
        proportions : array_like or list
            Label proportions of the batches, shape (n_batches, n_classes); or several such tables,
            shape (n_tables, n_batches, n_classes); or `LabelCounts`, one or a list of them. A
            one-dimensional array is taken as the labels of the rows, whose proportions are counted
            here.
        batches : array_like of int, shape (n_rows,), optional
            Batch of each row, numbered from 0. Without it every row is a batch of its own.
        """
        X = check_fit_data(self, X, dtype=[np.float64, np.float32], ensure_min_samples=2)
        if proportions is None:
            raise ValueError(
                "requires y to be passed, but the target y is None: give 'proportions'."
            )
        self._check_parameters()
        generator = check_random_state(self.random_state)
        batch = np.arange(len(X))
        if batches is not None:
            batch = check_members(batches, "batches", _MOST_BATCHES)
        if batch.shape != (len(X),):
            raise ParameterError("The 'batches' parameter must be integers, one for every row.")
        targets = self._targets(proportions, batch, len(X))
        if self.own is not None:
            check_index(self.own, "own", limit=len(targets))
        seed = generator.randint(0, 2**31 - 1)
        return self._fit_arrays(X, targets, batch, np.random.SeedSequence(int(seed)))

    def _check_parameters(self) -> None:
        check_choice(self.vote, "vote", ("majority", "median", "joint"))
        check_choice(self.labeling, "labeling", ("search", "monotone", "exact", "auto"))
        for name in ("n_clusters", "n_starts", "n_init", "max_iter"):
            check_index(getattr(self, name), name, least=1)
        for name in ("batch_weight", "standardize"):
            check_flag(getattr(self, name), name)
        check_not_negative(self.tol, "tol")
        if not callable(self.loss):
            check_choice(self.loss, "loss", ("squared", "product"))
        feature = self.order_feature
        if isinstance(feature, bool) or not isinstance(feature, Integral):
            raise ParameterError("The 'order_feature' parameter must be the number of a feature.")

    def _targets(
        self, proportions: Any, batch: npt.NDArray[Any], n_rows: int
    ) -> npt.NDArray[np.float64]:
        if isinstance(proportions, LabelCounts):
            proportions = proportions.proportions()
        elif isinstance(proportions, list | tuple):
            proportions = [
                table.proportions() if isinstance(table, LabelCounts) else table
                for table in proportions
            ]
        try:
            values = np.asarray(proportions)
        except (TypeError, ValueError):
            raise ParameterError("The 'proportions' parameter must be an array.") from None
        if values.dtype.kind == "c":
            raise DataError("The 'proportions' parameter must hold real numbers or labels.")
        if values.ndim == 1 or values.shape == (n_rows, 1):
            values = column_or_1d(values, warn=True)
            return self._count_labels(values, batch, n_rows)
        table = check_array(values, "proportions", finite=True)
        table = table[np.newaxis] if table.ndim == 2 else table
        if table.ndim != 3 or table.shape[1] <= batch.max(initial=-1):
            raise ParameterError("The 'proportions' parameter must have a row for every batch.")
        n_labels = table.shape[2]
        known = self.classes
        self.classes_ = np.arange(n_labels) if known is None else check_labels(known, "classes")
        if self.classes_.shape != (n_labels,):
            raise ParameterError("The 'classes' parameter must name every column of proportions.")
        return table

    def _count_labels(
        self, y: npt.NDArray[Any], batch: npt.NDArray[Any], n_rows: int
    ) -> npt.NDArray[np.float64]:
        assert_all_finite(y, input_name="y")
        check_classification_targets(y)
        if len(y) != n_rows:
            raise ValueError("The 'proportions' parameter must have a label for every row.")
        known = self.classes
        self.classes_ = unique_labels(y) if known is None else check_labels(known, "classes")
        order = np.argsort(self.classes_, kind="stable")
        index = np.searchsorted(self.classes_, y, sorter=order).clip(max=len(order) - 1)
        codes = order[index]
        if (self.classes_[codes] != y).any():
            raise DataError("The 'proportions' parameter must hold labels of 'classes' only.")
        counts = label_counts(codes, batch, int(batch.max()) + 1, len(self.classes_))
        shares: npt.NDArray[np.float64] = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
        return shares[np.newaxis]

    def _fit_arrays(
        self,
        X: npt.NDArray[Any],
        targets: npt.NDArray[np.float64],
        batch: npt.NDArray[Any],
        seeds: np.random.SeedSequence,
        cache: dict[str, Clustering] | None = None,
    ) -> LabelProportionClassifier:
        """Fit to checked arrays: a function of the first four and of the parameters alone."""
        n_batches, own = targets.shape[1], self.own
        if self.vote == "joint":
            targets, own = targets.mean(axis=0, keepdims=True), None
        n_clusters = min(check_index(self.n_clusters, "n_clusters", least=1), len(X))
        self._mean: Any = 0.0
        self._scale: Any = 1.0
        if self.standardize:
            self._mean, self._scale = _moments(X)
        clustering_seed, search_seed = np.random.SeedSequence(seeds.entropy).spawn(2)
        found = self._clusters((X - self._mean) / self._scale, n_clusters, clustering_seed, cache)
        self.n_iter_ = found.n_iter
        self._centers = found.centers
        self.cluster_centers_ = found.centers * self._scale + self._mean
        shares = cluster_shares(found.labels, batch, n_clusters, n_batches)
        sizes = np.bincount(batch, minlength=n_batches)
        kept = sizes > 0
        order = None
        if self.labeling == "monotone":
            if not -X.shape[1] <= self.order_feature < X.shape[1]:
                raise ParameterError(
                    "The 'order_feature' parameter must be the number of a feature."
                )
            feature = self.order_feature
            order = np.argsort(found.centers[:, feature], kind="stable")
        result = label_clusters(
            shares[kept],
            targets[:, kept],
            method=self.labeling,
            n_starts=self.n_starts,
            order=order,
            loss=self.loss,
            weights=sizes[kept] / sizes[kept].mean() if self.batch_weight else None,
            random_state=search_seed,
        )
        self.labelings_, self.losses_ = result.labels, result.losses
        self.votes_, self._decision = vote_table(result.labels, targets.shape[2], own, self.vote)
        self.privacy_ = Privacy(np.inf, 0.0, "row", "replace", (), _NOT_COVERED, private=False)
        return self

    def _clusters(
        self,
        rows: npt.NDArray[Any],
        n_clusters: int,
        seed: np.random.SeedSequence,
        cache: dict[str, Clustering] | None,
    ) -> Clustering:
        options: dict[str, Any] = {
            "n_init": self.n_init,
            "max_iter": self.max_iter,
            "tol": self.tol,
        }
        if cache is None:
            return kmeans(rows, n_clusters, random_state=seed, **options)
        state = hashlib.sha256(np.ascontiguousarray(rows).tobytes())
        state.update(repr((rows.shape, rows.dtype, n_clusters, seed, options)).encode())
        name = state.hexdigest()
        if name not in cache:
            cache[name] = kmeans(rows, n_clusters, random_state=seed, **options)
        return cache[name]

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """The label that most tables give to the cluster of each row."""
        cluster = self._cluster(X)
        decided: npt.NDArray[Any] = self.classes_[self._decision[cluster]]
        return decided

    def predict_proba(self, X: Any) -> npt.NDArray[np.float64]:
        """Shares of the votes: how far the tables agree, not how likely a label is."""
        cluster = self._cluster(X)
        shares: npt.NDArray[np.float64] = self.votes_[cluster]
        return shares

    def _cluster(self, X: Any) -> npt.NDArray[np.int32]:
        check_is_fitted(self)
        X = check_fit_data(self, X, reset=False, dtype=[np.float64, np.float32])
        return self._nearest(X)

    def _nearest(self, X: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
        return nearest_center((X - self._mean) / self._scale, self._centers)[0]


def vote_table(
    labelings: npt.NDArray[np.int32], n_labels: int, own: int | None, vote: str = "majority"
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.intp]]:
    """Shares of votes (n_clusters, n_labels), and the winners.

    Ties of a majority go to the labeling `own`, or to the lowest label. The median of an even
    number is the label of `own` held between the two in the middle, or the lower of these.
    """
    n_tables, k = labelings.shape
    votes = np.zeros((k, n_labels))
    for labels in labelings:
        votes[np.arange(k), labels] += 1
    if vote == "median":
        ordered = np.sort(labelings, axis=0)
        low, high = ordered[(n_tables - 1) // 2], ordered[n_tables // 2]
        middle = low if own is None else np.clip(labelings[own], low, high)
        return votes / n_tables, middle.astype(np.intp)
    decisive = votes.copy()
    if own is not None:
        decisive[np.arange(k), labelings[own]] += 0.5
    return votes / n_tables, decisive.argmax(axis=1)


def _moments(X: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    mean, scale = X.mean(axis=0), X.std(axis=0)
    scale[scale == 0] = 1
    return mean, scale
