"""Sizes of batches and numbers of clusters by rule, so that no data are looked at."""

from __future__ import annotations

import math

from dpcore._checks import check_choice, check_index, check_positive

__all__ = ["suggest_parameters"]


def suggest_parameters(
    n_rows: int, n_labels: int, epsilon: float | None, adjacency: str = "replace"
) -> tuple[int, int]:
    """A batch size and a number of clusters by rule, from public numbers alone.

    A cluster that fills its batches raises the squared error by about 2 n_rows / (b K) when it is
    labelled wrongly; noise moves that by a standard deviation of 4 (scale / b) times the root of
    n_rows / (b K). Their ratio is sqrt(n_rows b / (4 K scale^2)). The rule takes 16 clusters and
    the smallest batch, a power of two from 8, that makes it 2; where batches would become fewer
    than four per cluster it takes fewer clusters, down to two per label.

    Parameters
    ----------
    n_rows, n_labels : int
    epsilon : float or None
    adjacency : {"replace", "add-remove"}

    Returns
    -------
    batch_size, n_clusters : int

    Privacy
    -------
    No data are looked at, so the choice is free. Choosing by accuracy on protected data is not.

    Cost
    ----
    At most 13 numbers of clusters are tried, each by doubling the batch size.

    Examples
    --------
    >>> suggest_parameters(2971, 5, None), suggest_parameters(2971, 5, 0.1)
    ((8, 16), (32, 14))
    """
    n_rows = check_index(n_rows, "n_rows", least=1)
    n_labels = check_index(n_labels, "n_labels", least=2)
    replace = check_choice(adjacency, "adjacency", ("replace", "add-remove")) == "replace"
    loss = None if epsilon is None else float(check_positive(epsilon, "epsilon"))
    scale = 0.0 if loss is None else (2 if replace else 1) / loss
    clusters = 16
    while True:
        size = 8
        while size < n_rows and math.sqrt(n_rows * size / (16 * clusters)) < scale:
            size *= 2
        if n_rows >= 4 * clusters * size or clusters <= 2 * n_labels:
            return max(1, min(size, n_rows // 8)), clusters
        clusters -= 1
