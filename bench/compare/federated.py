"""Federated rounds against loops over users with the solvers and samplers people use."""

from __future__ import annotations

import math
import subprocess
import sys
from functools import lru_cache
from typing import Any

import numpy as np

from bench.runner import Bound, Row
from dpcore import Noise
from dpcore.federated import LOSSES
from dpcore.federated.devices import Devices
from dpcore.federated.fedsgd import default_group_size
from dpcore.federated.solvers import LocalProblems
from dpcore.learners import LDPFedSGDClassifier

PACKAGES = ("numpy", "scipy", "scikit-learn")

# One round of ADMM
N_USERS, N_RECORDS, N_FEATURES, RHO = 1000, 30, 105, 1.0
TOLERANCE = 1e-8
N_LOOP_USERS = 50

# LDP-FedSGD
N_DEVICES, N_COLUMNS, EPSILON = 1_000_000, 100, 4.0
N_LOOP_DEVICES = 5_000


@lru_cache(maxsize=1)
def users() -> tuple[Any, Any, Any]:
    """Rows of norm 1 with labels, and the points that the local minima stay near."""
    generator = np.random.default_rng(1)
    X = generator.standard_normal((N_USERS * N_RECORDS, N_FEATURES))
    X /= np.linalg.norm(X, axis=1)[:, np.newaxis]
    y = np.where(X @ generator.standard_normal(N_FEATURES) > 0, 1.0, -1.0)
    return X, y, 0.1 * generator.standard_normal((N_USERS, N_FEATURES))


def cold_round() -> Any:
    """All local minima from nothing, the products of records included."""
    X, y, z = users()
    devices = Devices(None, np.arange(len(X)), np.arange(0, len(X) + 1, N_RECORDS))
    problems = LocalProblems(X, y, devices, LOSSES["logistic"], TOLERANCE)
    return problems.solve(np.arange(N_USERS), z, RHO)


def loop_round() -> Any:
    """scipy's L-BFGS for one user after the other, with the gradient, to the same tolerance."""
    from scipy.optimize import minimize

    X, y, z = users()
    found = []
    for i in range(N_LOOP_USERS):
        part = slice(i * N_RECORDS, (i + 1) * N_RECORDS)
        own, labels, near = X[part], y[part], z[i]

        def objective(w: Any, own: Any = own, labels: Any = labels, near: Any = near) -> Any:
            margins = labels * (own @ w)
            away = w - near
            slopes = -labels / (1 + np.exp(margins))
            value = np.logaddexp(0, -margins).sum() + RHO / 2 * (away @ away)
            return value, own.T @ slopes + RHO * away

        options = {"gtol": TOLERANCE / math.sqrt(N_FEATURES), "ftol": 0.0, "maxiter": 500}
        found.append(minimize(objective, near, jac=True, method="L-BFGS-B", options=options).x)
    return np.array(found)


def check_round(found: Any) -> str:
    X, y, z = users()
    gradients = RHO * (found - z)
    for i in range(N_USERS):
        part = slice(i * N_RECORDS, (i + 1) * N_RECORDS)
        own, labels = X[part], y[part]
        gradients[i] -= own.T @ (labels / (1 + np.exp(labels * (own @ found[i]))))
    worst = np.linalg.norm(gradients, axis=1).max()
    if worst > TOLERANCE:
        raise AssertionError("a local minimum misses the tolerance")
    if np.abs(found[:N_LOOP_USERS] - loop_round()).max() > 1e-6:
        raise AssertionError("the loop finds other minima")
    return "every gradient within the tolerance, minima those of scipy"


@lru_cache(maxsize=1)
def devices() -> tuple[Any, Any]:
    generator = np.random.default_rng(2)
    X = generator.standard_normal((N_DEVICES, N_COLUMNS), dtype=np.float32)
    X /= 3
    np.clip(X, -1, 1, out=X)
    signal = X @ generator.standard_normal(N_COLUMNS).astype(np.float32)
    return X, (signal > 0).astype(np.int64)


def fit_devices() -> Any:
    X, y = devices()
    return LDPFedSGDClassifier(
        epsilon=EPSILON, mechanism="hm-j", classes=[0, 1], random_state=0, noise=Noise()
    ).fit(X, y)


def numpy_loop() -> Any:
    """Gradient, choice and perturbation of one device after the other, in NumPy."""
    X, y = devices()
    generator = np.random.default_rng(3)
    d = N_COLUMNS + 1
    k = max(1, min(d, int(EPSILON / 2.5)))
    epsilon = EPSILON / k
    growth, t = math.exp(epsilon), math.exp(epsilon / 2)
    reach = (t + 1) / (t - 1)
    group = default_group_size(N_DEVICES, d, EPSILON)
    theta, total = np.zeros(d), np.zeros(d)
    for i in range(N_LOOP_DEVICES):
        row = np.append(X[i], 1.0)
        label = 2.0 * y[i] - 1
        gradient = np.clip(-label * row / (1 + np.exp(label * (row @ theta))), -1, 1)
        for j in generator.choice(d, k, replace=False):
            # The piecewise mechanism on one coordinate.
            left = (reach + 1) / 2 * gradient[j] - (reach - 1) / 2
            right = left + reach - 1
            if generator.random() < t / (t + 1):
                value = generator.uniform(left, right)
            else:
                value = generator.uniform(-reach, reach - (right - left))
                value = value + (right - left) if value > left else value
            total[j] += d / k * value
        if (i + 1) % group == 0:
            theta -= total / group / math.sqrt((i + 1) // group)
            total[:] = 0
    return theta, growth


def check_fit(model: Any) -> str:
    X, y = devices()
    if model.n_devices_ != N_DEVICES or model.score(X, y) < 0.75:
        raise AssertionError("the model was not learned from all devices")
    return f"accuracy {model.score(X, y):.3f}, epsilon {model.privacy_.epsilon:.3f}"


def single_thread_rows() -> list[Row]:
    return [
        Row(
            f"ADMM round: {N_USERS} users x {N_RECORDS} records x {N_FEATURES}, scipy user by user",
            cold_round,
            loop_round,
            N_USERS,
            N_LOOP_USERS,
            "users/s",
            check_round,
            limit=10,
            repeats=5,
        ),
        Row(
            f"LDP-FedSGD: {N_DEVICES:.0e} devices x {N_COLUMNS}, NumPy user by user",
            fit_devices,
            numpy_loop,
            N_DEVICES,
            N_LOOP_DEVICES,
            "devices/s",
            check_fit,
            limit=20,
            repeats=5,
        ),
    ]


def all_cpu_rows() -> list[Row]:
    return []


MEMORY = """
import resource
from bench.compare.federated import fit_devices
fit_devices()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


def peak_memory() -> float:
    """Bytes that a process takes which makes the data and fits: float32, 0.4 GB of them data."""
    run = subprocess.run([sys.executable, "-c", MEMORY], capture_output=True, text=True, check=True)
    return float(run.stdout)


def bounds() -> list[Bound]:
    return [
        Bound(
            "LDP-FedSGD, peak memory of the process, data included",
            peak_memory,
            "bytes",
            lambda: check_fit(fit_devices()),
            most=1e9,
        )
    ]
