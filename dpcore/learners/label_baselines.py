"""What label proportions are measured against: models of one node with scikit-learn's interface."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.dummy import DummyClassifier
from sklearn.neighbors import KNeighborsClassifier

from dpcore._checks import check_choice, check_index, check_instance, check_random_state
from dpcore.cluster import kmeans, nearest_center
from dpcore.learners.label_proportions import LabelProportionClassifier
from dpcore.series import Bins

__all__ = ["BASELINES", "CentroidBin", "Persistence", "make_baseline"]

BASELINES = ("majority", "persistence", "centroid", "supervised", "knn")
_KNN_NEIGHBOURS = 16


class Persistence(ClassifierMixin, BaseEstimator):
    """Predicts the bin of the last value of a window: nothing is learned.

    Parameters
    ----------
    bins : Bins

    Examples
    --------
    >>> from dpcore.series import Bins
    >>> Persistence(Bins((0, 1, 2))).fit([[0.0]], [0]).predict([[0.5], [1.5]]).tolist()
    [0, 1]
    """

    def __init__(self, bins: Bins) -> None:
        self.bins = bins

    def fit(self, X: Any, y: Any = None) -> Persistence:
        self.classes_ = np.arange(self.bins.n_labels)
        return self

    def predict(self, X: Any) -> npt.NDArray[np.int64]:
        return self.bins.label(np.asarray(X, dtype=np.float64)[:, -1])


class CentroidBin(ClassifierMixin, BaseEstimator):
    """Predicts the bin of the last value of the cluster's center: no label is used.

    Parameters
    ----------
    bins : Bins
    n_clusters, n_init, random_state
        As for `dpcore.cluster.kmeans`.

    Examples
    --------
    >>> from dpcore.series import Bins
    >>> model = CentroidBin(Bins((0, 1, 2)), n_clusters=2, random_state=0)
    >>> model.fit([[0.2], [0.4], [1.6], [1.8]]).predict([[0.9], [1.7]]).tolist()
    [0, 1]
    """

    def __init__(
        self, bins: Bins, n_clusters: int = 16, n_init: int = 10, random_state: Any = None
    ) -> None:
        self.bins = bins
        self.n_clusters = n_clusters
        self.n_init = n_init
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> CentroidBin:
        rows = np.asarray(X, dtype=np.float64)
        k = min(self.n_clusters, len(rows))
        found = kmeans(rows, k, n_init=self.n_init, random_state=self.random_state)
        self.cluster_centers_ = found.centers
        self.labels_of_clusters_ = self.bins.label(found.centers[:, -1])
        self.classes_ = np.arange(self.bins.n_labels)
        return self

    def predict(self, X: Any) -> npt.NDArray[np.int64]:
        cluster, _ = nearest_center(np.asarray(X, dtype=np.float64), self.cluster_centers_)
        labels: npt.NDArray[np.int64] = self.labels_of_clusters_[cluster]
        return labels


def make_baseline(
    name: str, bins: Bins, *, n_clusters: int = 16, n_init: int = 10, random_state: int = 0
) -> Any:
    """A model with fit(X, y) and predict(X), by name.

    Parameters
    ----------
    name : {"majority", "persistence", "centroid", "supervised", "knn"}
        The commonest label; the bin of the last value; the bin of the cluster's center; clusters
        with the commonest label of their rows; and 16 nearest neighbours. All but the second and
        third see the label of every row.
    bins : Bins
    n_clusters, n_init, random_state
        Of those that cluster.

    Privacy
    -------
    None: models are fitted to raw rows. Neither they nor what they predict may leave the node.

    Cost
    ----
    Nothing is computed before `fit`. There "centroid" and "supervised" run `dpcore.cluster.kmeans`
    with n_init starts, "knn" keeps all rows, and the other two make one pass at most.

    Examples
    --------
    >>> from dpcore.series import Bins
    >>> make_baseline("majority", Bins((0, 1, 2))).fit([[0], [1], [2]], [0, 1, 1]).predict([[0]])
    array([1])
    """
    check_choice(name, "name", BASELINES)
    check_instance(bins, "bins", Bins)
    check_index(n_clusters, "n_clusters", least=1)
    check_index(n_init, "n_init", least=1)
    check_random_state(random_state)
    if name == "majority":
        return DummyClassifier(strategy="most_frequent")
    if name == "persistence":
        return Persistence(bins)
    if name == "centroid":
        return CentroidBin(bins, n_clusters, n_init, random_state)
    if name == "supervised":
        return LabelProportionClassifier(
            n_clusters,
            labeling="search",
            n_starts=1,
            classes=np.arange(bins.n_labels),
            n_init=n_init,
            random_state=random_state,
        )
    return KNeighborsClassifier(_KNN_NEIGHBOURS)
