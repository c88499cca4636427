"""Checks of the reasons that the report gives: each could have come out the other way."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from bench.repro.llp.run import CLIPPED, CLUSTER_COUNTS, EPSILON, LITERAL, TWO, Study
from dpcore.series import Bins, purged_folds

QUANTILES = {
    "equal fifths": (0, 0.2, 0.4, 0.6, 0.8, 1),
    "tenths below, the rest above": (0, 0.1, 0.2, 0.3, 0.4, 1),
    "the rest below, tenths above": (0, 0.6, 0.7, 0.8, 0.9, 1),
}


def check(study: Study, *, quick: bool) -> dict[str, Any]:
    """All checks on one city."""
    counts = CLUSTER_COUNTS[:2] if quick else CLUSTER_COUNTS
    return {
        "loss by clusters": {
            own: {str(k): loss_by_clusters(study, own, k) for k in counts}
            for own in ("exact", "noisy")
        },
        "clipping by bins": {name: clipping(study, edges) for name, edges in QUANTILES.items()},
        "free labels": {str(size): free_labels(study, size) for size in (8, 32, 128)},
    }


def loss_by_clusters(study: Study, own: str, n_clusters: int) -> float:
    """Points that the literal method loses to noise: does the exact own table keep them few?"""
    sizes: dict[str, Any] = {"n_clusters": n_clusters, "batch_size": 50}
    free = study.accuracy("relative", epsilon=None, **sizes, **LITERAL)["mean"]
    private = study.accuracy("relative", epsilon=EPSILON, own=own, **sizes, **CLIPPED)["mean"]
    return free - private


def clipping(study: Study, quantiles: tuple[float, ...]) -> dict[str, float]:
    """Neighbours only at 2/eps: does clipping still win where bins are not of equal size?"""
    bins = []
    for column in study.city.public.T:
        edges = np.nanquantile(column, quantiles)
        for k in range(len(edges) - 1):
            edges[k + 1] = max(edges[k + 1], np.nextafter(edges[k], np.inf))
        bins.append(Bins(tuple(edges.tolist())))
    other = replace(study, city=replace(study.city, relative=bins))
    options: dict[str, Any] = {"epsilon": EPSILON, "own": "none", **TWO}
    return {
        "unclipped": other.accuracy("relative", **options)["mean"],
        "clipped": other.accuracy("relative", postprocess="clip", **options)["mean"],
    }


def free_labels(study: Study, batch_size: int) -> dict[str, float]:
    """Own tables without noise: does the free search stop early, or fit too well?"""
    options: dict[str, Any] = {
        "epsilon": None, "exchange_tables": False, "batch_size": batch_size,
    }  # fmt: skip
    search: dict[str, Any] = {**options, "labeling": "search", "vote": "majority"}
    free = study.network("relative", n_starts=50, **search)
    ordered = study.network("relative", **options)
    excess = []
    for fold in purged_folds(free.batches_, study.n_folds, free.width + free.horizon - 1):
        for network in (free, ordered):
            network.train(fold.train, nodes=study.city.targets)
        for j in study.city.targets:
            excess.append(ordered.models_[j].losses_[0] / free.models_[j].losses_[0] - 1)
    return {
        "search, 50 starts": study.accuracy("relative", n_starts=50, **search)["mean"],
        "search, 500 starts": study.accuracy("relative", n_starts=500, **search)["mean"],
        "monotone": study.accuracy("relative", **options)["mean"],
        "fits with a lower loss by search, %": 100 * float(np.mean(np.array(excess) > 1e-9)),
        "loss of monotone above that of search, %": 100 * float(np.median(excess)),
    }
