"""The experiments: local-only against the number of users, and accuracy against epsilon."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np

from bench.repro.adult import RANGES, Adult
from bench.repro.resume import Parts
from dpcore import Noise
from dpcore.accounting import compose
from dpcore.federated.shares import plan, stateful_shifts
from dpcore.learners import CentralClassifier, ConsensusADMMClassifier, LocalOnlyClassifier

N_TRAIN, N_TEST = 30_000, 10_000
N_USERS, N_ROUNDS, DELTA = 100, 20, 1e-3
BETA = 0.1
USERS = (1, 10, 50, 100, 150, 200, 300, 1000)
EPSILONS = (0.05, 0.1, 0.2, 0.5, 1.0)
RHOS = (1.0, 10.0, 100.0, 1000.0)
OURS = {"rho": 4.0, "relaxation": 1.8, "tail": 3}
GRADIENTS = {"solver": "dp_gd", "learning_rate": 4.0, "tail": 4}


def split(adult: Adult, seed: int, *, log: bool = False) -> tuple[Any, Any, Any, Any]:
    X = adult.X
    if log:
        X = X.copy()
        for name in ("capital_gain", "capital_loss"):
            j, top = adult.columns.index(name), RANGES[name][1]
            X[:, j] = np.log1p(X[:, j] * top) / math.log1p(top)
    order = np.random.default_rng(seed).permutation(len(X))
    train, test = order[:N_TRAIN], order[N_TRAIN : N_TRAIN + N_TEST]
    return X[train], adult.y[train], X[test], adult.y[test]


def fit(parts: tuple[Any, Any, Any, Any], seed: int, **options: Any) -> tuple[float, float]:
    """Test accuracy, and the true epsilon of all rounds."""
    X, y, X_test, y_test = parts
    values: dict[str, Any] = {
        "epsilon": None, "delta": DELTA, "n_users": N_USERS, "n_rounds": N_ROUNDS, "beta": BETA,
        "classes": [0, 1], "random_state": seed, "noise": Noise.insecure(seed),
    }  # fmt: skip
    model = ConsensusADMMClassifier(**(values | options)).fit(X, y)
    return model.score(X_test, y_test), model.privacy_.epsilon


def multiplier(per_round: float) -> float:
    """Noise over the sensitivity of one step, by the classical formula."""
    return math.sqrt(2 * math.log(1.25 / DELTA)) / per_round


def run(adult: Adult, keep: Parts, *, quick: bool) -> dict[str, Any]:
    repeats = 1 if quick else 2
    parts = [split(adult, seed) for seed in range(repeats)]
    logged = [split(adult, seed, log=True) for seed in range(repeats)]
    results: dict[str, Any] = {
        "rows": len(adult.y),
        "repeats": repeats,
        "seeds": list(range(repeats)),
        "majority": float(np.mean([1 - part[3].mean() for part in parts])),
        "central": keep("central", lambda: mean(map(central, parts))),
        "central, log": keep("central, log", lambda: mean(map(central, logged))),
        "local only": {},
        "without noise": {},
        "by epsilon": [],
        "totals": keep("totals", totals),
    }
    for n in (1, 100) if quick else USERS:
        results["local only"][n] = keep(
            f"local only, {n} users", lambda n=n: mean(local(part, n) for part in parts)
        )
    for rho in RHOS[:2] if quick else RHOS:
        results["without noise"][rho] = keep(
            f"without noise, rho {rho:g}",
            lambda rho=rho: mean(fit(part, seed, rho=rho)[0] for seed, part in enumerate(parts)),
        )
    for per_round in (0.1,) if quick else EPSILONS:
        variants: dict[str, tuple[Any, dict[str, Any]]] = {
            f"as published, rho {rho:g}": (parts, {"rho": rho})
            for rho in (RHOS[1:2] if quick else RHOS)
        }
        variants["relaxed, tail mean"] = (parts, OURS)
        variants["gradients"] = (parts, GRADIENTS)
        if per_round == 0.1:
            variants["relaxed, tail mean, log"] = (logged, OURS | {"rho": 5.0, "tail": 5})
            variants["gradients, 40 rounds, log"] = (
                logged,
                GRADIENTS | {"n_rounds": 40, "learning_rate": 2.0, "tail": 8},
            )
        for name, (data, options) in variants.items():
            results["by epsilon"].append(
                keep(
                    f"epsilon {per_round:g} per round, {name}",
                    lambda row=(per_round, name, data, options): noisy(*row),
                )
            )
    return results


def noisy(per_round: float, name: str, data: Any, options: dict[str, Any]) -> dict[str, Any]:
    """One row of the table by epsilon."""
    # More rounds with the same total loss: each with more noise.
    factor = math.sqrt(options.get("n_rounds", N_ROUNDS) / N_ROUNDS)
    found = [
        fit(part, seed, noise_multiplier=multiplier(per_round) * factor, **options)
        for seed, part in enumerate(data)
    ]
    return {
        "per round": per_round,
        "name": name,
        "accuracy": mean(score for score, _ in found),
        "spread": float(np.std([score for score, _ in found])),
        "total epsilon": found[0][1],
    }


def central(part: tuple[Any, Any, Any, Any]) -> float:
    return CentralClassifier(beta=BETA).fit(part[0], part[1]).score(part[2], part[3])


def local(part: tuple[Any, Any, Any, Any], n: int) -> float:
    model = LocalOnlyClassifier(beta=BETA, n_users=n, random_state=0)
    return model.fit(part[0], part[1]).score(part[2], part[3])


def totals() -> list[dict[str, float]]:
    """The true epsilon of 20 rounds at the published noise, by accounting and rho.

    It depends on the numbers of shares and of records per user, not on the data.
    """
    smoothness = N_TRAIN / N_USERS / 4
    rows = []
    for per_round in EPSILONS:
        row = {"per round": per_round, "share": total(per_round, in_sum=False)}
        for rho in RHOS:
            steps = [Fraction(2) / Fraction(rho)] * N_ROUNDS
            shifts = stateful_shifts(steps, [rho] * N_ROUNDS, smoothness)
            row[f"stateful, rho {rho:g}"] = total(per_round, steps, shifts)
        row["gradients"] = total(per_round)
        rows.append(row)
    return rows


def total(per_round: float, steps: Any = None, shifts: Any = None, *, in_sum: bool = True) -> float:
    steps = steps or [Fraction(2)] * N_ROUNDS
    made = plan(
        d=104, steps=steps, shifts=shifts or steps, n_shares=N_USERS, in_sum=in_sum, epsilon=None,
        delta=DELTA, noise_multiplier=multiplier(per_round), mechanism="totals",
        adjacency="replace",
    )  # fmt: skip
    return compose([made.event]).epsilon(DELTA)


def mean(values: Any) -> float:
    return float(np.mean(list(values)))
