"""Random models and lots for the tests of the LVQ kernels."""

import numpy as np

from dpcore.learners.lvq.kernel import Model, Transfer

LOGISTIC = Transfer("logistic", 10.0)
KINDS = ("euclidean", "matrix", "low rank", "diagonal")


def make(kind, n=40, d=6, n_prototypes=5, seed=0, dtype=np.float64):
    """A lot of three classes and a model of this kind."""
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (n, d)).astype(dtype)
    y = rng.integers(0, 3, n)
    labels = np.arange(n_prototypes) % 3
    omega = random_omega(kind, d, rng)
    model = Model(rng.uniform(-1, 1, (n_prototypes, d)), labels, omega)
    return x, y, model.astype(dtype)


def random_omega(kind, d, rng):
    if kind == "euclidean":
        return None
    if kind == "diagonal":
        return rng.uniform(0.1, 2, d)
    return rng.normal(size=(d if kind == "matrix" else max(1, d // 3), d))


def flatten(sums):
    parts = [sums.prototypes.ravel()] + ([] if sums.omega is None else [sums.omega.ravel()])
    return np.concatenate(parts)
