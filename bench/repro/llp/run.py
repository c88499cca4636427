"""The experiments on one city: accuracy against batch size, clusters and epsilon, and the bars."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.neighbors import KNeighborsClassifier

import dpcore
from bench.repro.llp.data import City
from bench.repro.resume import Parts
from dpcore.learners import LabelProportionNetwork
from dpcore.series import purged_folds

EPSILON = 0.1
BATCH, CLUSTERS = 32, 16
BATCHES = (8, 16, 32, 64, 128)
CLUSTER_COUNTS = (8, 16, 32, 64)
EPSILONS = (0.01, 0.05, 0.1, 0.5, 1.0)
# Rows that a bar is about: their means take more draws.
JUDGED = (
    "p-LLP 1/eps, monotone",
    "p-LLP 2/eps, monotone",
    "neighbours only, p-LLP 1/eps",
    "neighbours only, p-LLP 2/eps",
    "neighbours only, p-LLP 2/eps, joint",
)
BASELINES = ("majority", "persistence", "centroid", "supervised", "knn")

# What was published, and what dpcore does by default.
LITERAL: dict[str, Any] = {"labeling": "search", "n_starts": 50, "vote": "majority"}
CLIPPED: dict[str, Any] = {**LITERAL, "postprocess": "clip", "adjacency": "add-remove"}
ONE: dict[str, Any] = {"adjacency": "add-remove"}
TWO: dict[str, Any] = {"adjacency": "replace"}


@dataclass
class Study:
    """Runs networks on one city with shared clusterings, each with as many draws as it needs."""

    city: City
    n_folds: int
    n_draws: int
    n_bar_draws: int
    cache: dict[str, Any] = field(default_factory=dict)

    def network(self, bins: str, **options: Any) -> LabelProportionNetwork:
        chosen = self.city.relative if bins == "relative" else self.city.fixed
        settings = {"batch_size": BATCH, "n_clusters": CLUSTERS, "cache": self.cache, **options}
        network = LabelProportionNetwork(chosen, **settings)
        return network.build(self.city.series, self.city.neighbours).exchange()

    def accuracy(
        self, bins: str, *, n_draws: int | None = None, **options: Any
    ) -> dict[str, float]:
        """Mean accuracy of the targets in percent over draws, and its spread."""
        noisy = options.get("epsilon") is not None
        draws = []
        for draw in range((n_draws or self.n_draws) if noisy else 1):
            network = self.network(bins, noise=dpcore.Noise.insecure(draw), **options)
            draws.append(100 * float(self._folds(network).mean()))
        return {"mean": float(np.mean(draws)), "std": float(np.std(draws))}

    def _folds(self, network: LabelProportionNetwork) -> npt.NDArray[np.float64]:
        targets = self.city.targets
        right, total = np.zeros(len(targets)), 0
        gap = network.width + network.horizon - 1
        for fold in purged_folds(network.batches_, self.n_folds, gap):
            network.train(fold.train, nodes=targets)
            truth = network.labels_[fold.test][:, targets]
            right += (network.predict(fold.test)[:, targets] == truth).sum(axis=0)
            total += int(fold.test.sum())
        return right / total

    def pooled_knn(self, bins: str) -> dict[str, float]:
        """16 nearest neighbours among the standardised windows of all targets."""
        network = self.network(bins, epsilon=None, model="majority")
        targets, right, total = self.city.targets, 0, 0
        gap = network.width + network.horizon - 1
        for fold in purged_folds(network.batches_, self.n_folds, gap):
            rows = fold.train[network.batches_.batch]
            train, test = [], []
            for j in targets:
                X = network._features[j]
                mean, scale = X[rows].mean(axis=0), X[rows].std(axis=0)
                train.append((X[rows] - mean) / scale)
                test.append((X[fold.test] - mean) / scale)
            labels = np.concatenate([network.labels_[rows, j] for j in targets])
            truth = np.concatenate([network.labels_[fold.test, j] for j in targets])
            model = KNeighborsClassifier(16).fit(np.concatenate(train), labels)
            right += int((model.predict(np.concatenate(test)) == truth).sum())
            total += truth.size
        return {"mean": 100 * right / total, "std": 0.0}


def main_table(study: Study, bins: str) -> dict[str, dict[str, float]]:
    """Everything at b = 32, K = 16, epsilon = 0.1."""
    table = {name: study.accuracy(bins, epsilon=None, model=name) for name in BASELINES}
    table["knn pooled"] = study.pooled_knn(bins)
    free = {"epsilon": None}
    private = {"epsilon": EPSILON}
    rows: dict[str, dict[str, Any]] = {
        "own only, monotone": {**free, "exchange_tables": False},
        "own only, search": {**free, **LITERAL, "exchange_tables": False},
        "LLP, search": {**free, **LITERAL},
        "LLP, monotone": free,
        "neighbours only, LLP, search": {**free, **LITERAL, "own": "none"},
        "neighbours only, LLP, monotone": {**free, "own": "none"},
        "p-LLP 1/eps, literal": {**private, **CLIPPED},
        "p-LLP 1/eps, in-loop bug": {**private, **LITERAL, **ONE, "reproduce": "paper"},
        "p-LLP 1/eps, search unclipped": {**private, **LITERAL, **ONE},
        "p-LLP 1/eps, monotone clipped": {**private, **ONE, "postprocess": "clip"},
        "p-LLP 1/eps, monotone": {**private, **ONE},
        "p-LLP 2/eps, literal": {**private, **CLIPPED, **TWO},
        "p-LLP 2/eps, search unclipped": {**private, **LITERAL, **TWO},
        "p-LLP 2/eps, monotone clipped": {**private, **TWO, "postprocess": "clip"},
        "p-LLP 2/eps, monotone simplex": {**private, **TWO, "postprocess": "simplex"},
        "p-LLP 2/eps, monotone smoothed": {**private, **TWO, "smoothing": 1},
        "p-LLP 2/eps, monotone majority": {**private, **TWO, "vote": "majority"},
        "p-LLP 2/eps, monotone": {**private, **TWO},
        "neighbours only, p-LLP 1/eps": {**private, **ONE, "own": "none"},
        "neighbours only, p-LLP 2/eps": {**private, **TWO, "own": "none"},
        "neighbours only, p-LLP 2/eps, clipped": {
            **private, **TWO, "own": "none", "postprocess": "clip",
        },
        "neighbours only, p-LLP 2/eps, smoothed": {
            **private, **TWO, "own": "none", "smoothing": 1,
        },
        "neighbours only, p-LLP 2/eps, majority": {
            **private, **TWO, "own": "none", "vote": "majority",
        },
        "neighbours only, LLP, joint": {**free, "own": "none", "vote": "joint"},
        "neighbours only, p-LLP 2/eps, joint": {
            **private, **TWO, "own": "none", "vote": "joint",
        },
    }  # fmt: skip
    for name, options in rows.items():
        n_draws = study.n_bar_draws if name in JUDGED and bins == "relative" else None
        table[name] = study.accuracy(bins, n_draws=n_draws, **options)
    return table


def sweep(
    study: Study, bins: str, name: str, values: tuple[int, ...], **fixed: Any
) -> dict[str, dict[str, dict[str, float]]]:
    """LLP and p-LLP, as published and as dpcore does it, with kNN, along one parameter."""
    methods: dict[str, dict[str, Any]] = {
        "LLP, literal": {"epsilon": None, **LITERAL},
        "p-LLP, literal": {"epsilon": EPSILON, **CLIPPED},
        "LLP, monotone": {"epsilon": None},
        "p-LLP 1/eps, monotone": {"epsilon": EPSILON, **ONE},
        "p-LLP 2/eps, monotone": {"epsilon": EPSILON, **TWO},
        "kNN": {"epsilon": None, "model": "knn"},
    }
    return {
        label: {
            str(value): study.accuracy(bins, **{**fixed, name: value}, **options)
            for value in values
        }
        for label, options in methods.items()
    }


def epsilon_sweep(
    study: Study, bins: str, values: tuple[float, ...]
) -> dict[str, dict[str, dict[str, float]]]:
    """p-LLP along epsilon; with own proportions noisy too, and with the published loop."""
    methods: dict[str, dict[str, Any]] = {
        "p-LLP, literal": CLIPPED,
        "p-LLP, literal, own noisy": {**CLIPPED, "own": "noisy"},
        "p-LLP, in-loop bug, own noisy": {
            **LITERAL, **ONE, "reproduce": "paper", "own": "noisy",
        },
        "p-LLP 1/eps, monotone": ONE,
        "p-LLP 2/eps, monotone": TWO,
        "p-LLP 2/eps, monotone, neighbours only": {**TWO, "own": "none"},
    }  # fmt: skip
    return {
        label: {str(value): study.accuracy(bins, epsilon=value, **options) for value in values}
        for label, options in methods.items()
    }


def traffic(study: Study) -> dict[str, float]:
    """Bytes of what travels, against a byte for every label."""
    network = study.network("relative", epsilon=EPSILON, noise=dpcore.Noise.insecure(0))
    lengths = [message.n_bytes for message in network.messages_]
    n_labels = int(network.batches_.rows.size)
    numbers = network.batches_.n_batches * network.n_labels_
    return {
        "messages": len(lengths),
        "bytes_per_message": float(np.mean(lengths)),
        "labels_per_node": n_labels,
        "numbers_per_message": numbers,
        "numbers_saved": n_labels / numbers,
        "rows_lost_to_gaps": 1 - n_labels / (len(study.city.series) - 5),
    }


def study_of(city: City, *, quick: bool) -> Study:
    n_folds, n_draws, n_bar_draws = (5, 1, 1) if quick else (10, 5, 20)
    return Study(city, n_folds, n_draws, n_bar_draws)


def run(study: Study, parts: Parts, *, quick: bool) -> dict[str, Any]:
    """All experiments on one city."""
    city, both = study.city, ("relative", "fixed")
    values = (0.05, 0.1, 1.0) if quick else EPSILONS
    return {
        "nodes": len(city.neighbours),
        "targets": len(city.targets),
        "folds": study.n_folds,
        "draws": study.n_draws,
        "draws of judged rows": study.n_bar_draws,
        "seeds": list(range(study.n_bar_draws)),
        "traffic": traffic(study),
        "main": {
            bins: parts(f"main table, {bins} bins", partial(main_table, study, bins))
            for bins in both
        },
        "batch size": parts(
            "batch size",
            partial(sweep, study, "relative", "batch_size", BATCHES, n_clusters=CLUSTERS),
        ),
        "clusters": parts(
            "clusters",
            partial(
                sweep, study, "relative", "n_clusters",
                CLUSTER_COUNTS[:2] if quick else CLUSTER_COUNTS, batch_size=50,
            ),
        ),
        "epsilon": {
            bins: parts(f"epsilon, {bins} bins", partial(epsilon_sweep, study, bins, values))
            for bins in both
        },
    }  # fmt: skip
