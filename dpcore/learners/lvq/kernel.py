"""Models of prototype learning: distances, and the gradients of the cost without privacy.

For a sample x of class y let p be the nearest prototype of class y and m the nearest of another,
``D = x - w``, ``V = Omega D``, ``d = |V|**2``, ``S = d_p + d_m`` and ``mu = (d_p - d_m) / S``.
With ``a = 4 d_m / S**2`` and ``b = 4 d_p / S**2``, times the slope of the transfer function, the
gradient of the cost is ``-a Omega' V_p`` for w_p, ``b Omega' V_m`` for w_m, and
``a V_p D_p' - b V_m D_m'`` for Omega. No gradient is formed per sample: with
``Z = a V_p - b V_m`` the sums over samples are

    H[j]    = sum of a V_p over p = j, less the sum of b V_m over m = j
    g_W     = -H Omega
    g_Omega = Z' X - H' W

and the two large products are ``X Omega'`` and ``Z' X``. `clipped` has the sums for private steps.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from dpcore._parallel import in_order, one_blas_thread

__all__ = ["CHUNK", "DEGENERATE", "Model", "Sums", "Transfer", "distances", "gradient_sums"]

Array = npt.NDArray[Any]
Index = npt.NDArray[np.intp]

DEGENERATE = 1e-12
CHUNK = 2048  # rows that one thread works on at a time


@dataclass(frozen=True)
class Transfer:
    """The function of mu that is summed: mu itself, or 4 / beta times a logistic function.

    Both have slope 1 at mu = 0, so that clip norms and learning rates mean the same for both.
    """

    name: str = "identity"
    beta: float = 1.0

    def cost(self, mu: Array) -> Array:
        if self.name == "identity":
            return mu
        tail = _decay(np.abs(self.beta * mu))
        return np.asarray(4 / self.beta * np.where(mu < 0, tail, 1) / (1 + tail))

    def slope(self, mu: Array) -> Array:
        if self.name == "identity":
            return np.ones_like(mu)
        tail = _decay(np.abs(self.beta * mu))
        return np.asarray(4 * tail / np.square(1 + tail))


def _decay(t: Array) -> Array:
    """exp(-t) of t >= 0, to 12 digits, from operations that every machine rounds the same way.

    Vectorised exponentials may treat the last elements of an array differently.
    """
    s = np.minimum(t, 1024).astype(np.float64) / 1024
    power = np.ones_like(s)
    for k in range(6, 0, -1):
        power = 1 - s / k * power
    for _ in range(10):
        power *= power
    return power.astype(t.dtype, copy=False)


@dataclass(frozen=True)
class Model:
    """Prototypes, the positions of their classes, and what measures distance.

    Attributes
    ----------
    prototypes : ndarray of shape (n_prototypes, n_features)
    codes : ndarray of shape (n_prototypes,)
        Class of each prototype, as a position among the classes.
    omega : ndarray or None
        A matrix (rank, n_features) for GMLVQ, weights (n_features,) for GRLVQ, None for GLVQ.
    """

    prototypes: Array
    codes: Index
    omega: Array | None = None

    def astype(self, dtype: npt.DTypeLike) -> Model:
        omega = None if self.omega is None else self.omega.astype(dtype, copy=False)
        return replace(self, prototypes=self.prototypes.astype(dtype, copy=False), omega=omega)

    def project(self, x: Array) -> Array:
        """x in coordinates whose Euclidean distance is that of the model."""
        if self.omega is None:
            return x
        if self.omega.ndim == 1:
            return np.asarray(x * np.sqrt(self.omega))
        return np.asarray(x @ self.omega.T)


@dataclass(frozen=True)
class Sums:
    """Sums over a lot: gradients in float64, and the cost where nothing is clipped."""

    prototypes: npt.NDArray[np.float64]
    omega: npt.NDArray[np.float64] | None
    cost: float = np.nan

    def __add__(self, other: Sums) -> Sums:
        omega = None
        if self.omega is not None and other.omega is not None:
            omega = self.omega + other.omega
        return Sums(self.prototypes + other.prototypes, omega, self.cost + other.cost)


def distances(x: Array, model: Model) -> Array:
    """Squared distances of the rows of x to the prototypes, at least 0."""
    return _gaps(model.project(x), model.project(model.prototypes))


def gradient_sums(
    x: Array, codes: Index, model: Model, *, transfer: Transfer | None = None
) -> Sums:
    """Sums over the rows of x of cost and gradients, neither clipped nor private.

    Parameters
    ----------
    x : ndarray of float32 or float64, shape (n, n_features)
        May be empty.
    codes : ndarray of shape (n,)
        Positions of the classes.
    model : Model
        Of the dtype of x.
    transfer : Transfer, optional
        Identity by default.

    Cost
    ----
    Two products of n x n_features x rank and O(n n_features n_prototypes) besides, in
    `dpcore.get_num_threads` threads; work space for 2048 rows in each.
    """
    transfer = transfer or Transfer()
    # Only differences matter: distances lose fewer digits about the prototypes' mean.
    centre = model.prototypes.mean(axis=0)
    model = replace(model, prototypes=model.prototypes - centre)

    def chunk(begin: int) -> Sums:
        rows = slice(begin, begin + CHUNK)
        return _chunk_sums(x[rows] - centre, codes[rows], model, transfer)

    with one_blas_thread():
        chunks = in_order(chunk, range(0, max(len(x), 1), CHUNK))
        return sum(chunks, next(chunks))


def _chunk_sums(x: Array, codes: Index, model: Model, transfer: Transfer) -> Sums:
    w, omega = model.prototypes, model.omega
    y, u = model.project(x), model.project(w)
    rows = np.arange(len(x))
    d = _gaps(y, u)
    p, m = nearest(d, codes, model.codes)
    d_p, d_m = d[rows, p], d[rows, m]
    s = d_p + d_m
    live = s >= DEGENERATE
    s = np.where(live, s, 1)
    mu = np.where(live, (d_p - d_m) / s, 0)
    scale = np.where(live, 4 * transfer.slope(mu) / (s * s), 0).astype(s.dtype)
    a, b = scale * d_m, scale * d_p
    cost = float(transfer.cost(mu[live].astype(np.float64)).sum())
    weights = scatter(a, p, b, m, len(w))
    if omega is None or omega.ndim == 1:
        h = (weights.T @ x).astype(np.float64) - weights.sum(axis=0, dtype=np.float64)[:, None] * w
        if omega is None:
            return Sums(-h, None, cost)
        z = (a @ (x - w[p]) ** 2).astype(np.float64) - b @ (x - w[m]) ** 2
        return Sums(-h * omega, z / 2, cost)
    h = (weights.T @ y).astype(np.float64) - weights.sum(axis=0, dtype=np.float64)[:, None] * u
    change = a[:, None] * (y - u[p]) - b[:, None] * (y - u[m])
    return Sums(-(h @ omega), (change.T @ x).astype(np.float64) - h.T @ w, cost)


def nearest(d: Array, codes: Index, prototype_codes: Index) -> tuple[Index, Index]:
    """The nearest prototypes of the own class and of another, the first among equals."""
    own = prototype_codes == codes[:, None]
    return np.where(own, d, np.inf).argmin(axis=1), np.where(own, np.inf, d).argmin(axis=1)


def scatter(a: Array, p: Index, b: Array, m: Index, n_prototypes: int) -> Array:
    """A matrix with a in column p and -b in column m of each row."""
    weights = np.zeros((len(p), n_prototypes), a.dtype)
    rows = np.arange(len(p))
    weights[rows, p] = a
    weights[rows, m] = -b
    return weights


def row_dots(x: Array, y: Array) -> Array:
    """The inner product of each row of x with that of y."""
    return np.asarray(np.einsum("ij,ij->i", x, y))


def _gaps(y: Array, u: Array) -> Array:
    products = y @ u.T
    products *= -2
    products += row_dots(y, y)[:, None]
    products += row_dots(u, u)
    return np.asarray(np.maximum(products, 0, out=products))
