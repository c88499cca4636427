"""Clipped gradient sums of GLVQ, GMLVQ and GRLVQ, without a gradient per sample.

For a sample x of class y let p be the nearest prototype of class y and m the nearest of another,
``D = x - w``, ``V = Omega D``, ``d = |V|**2``, ``S = d_p + d_m`` and ``mu = (d_p - d_m) / S``.
With ``a = 4 d_m / S**2`` and ``b = 4 d_p / S**2``, times the slope of the transfer function, the
gradient of the cost is ``-a Omega' V_p`` for w_p, ``b Omega' V_m`` for w_m, and
``a V_p D_p' - b V_m D_m'`` for Omega. Its norm over all parameters is a closed form of inner
products, so a clip factor f per sample is known before any gradient is formed, and with
``Z = f (a V_p - b V_m)`` the sums are

    H[j]    = sum of f a V_p over p = j, less the sum of f b V_m over m = j
    g_W     = -H Omega
    g_Omega = Z' X - H' W

The two large products are ``X Omega'`` and ``Z' X``. Only differences of samples and prototypes
matter, so both are first moved to where the prototypes' mean is 0, which costs no digits later.

One sample must not change what another adds. Last digits of a product may depend on how many rows
it has, so whatever is a jump (which prototype wins, whether a gradient counts) is decided by the
row alone where rounding could decide it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from dpcore._parallel import in_order, one_blas_thread

__all__ = ["DEGENERATE", "MARGIN", "Model", "Sums", "Transfer", "clipped_sums", "distances"]

Array = npt.NDArray[Any]

DEGENERATE = 1e-12
# Clip factors aim this fraction below the bound: what rounding may add to a sum.
MARGIN = {"d": 1e-6, "f": 2e-5}
_CHUNK = 2048


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
        tail = np.exp(-np.abs(self.beta * mu))
        return np.asarray(4 / self.beta * np.where(mu < 0, tail, 1) / (1 + tail))

    def slope(self, mu: Array) -> Array:
        if self.name == "identity":
            return np.ones_like(mu)
        tail = np.exp(-np.abs(self.beta * mu))
        return np.asarray(4 * tail / np.square(1 + tail))


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
    codes: npt.NDArray[np.intp]
    omega: Array | None = None

    def astype(self, dtype: npt.DTypeLike) -> Model:
        omega = None if self.omega is None else self.omega.astype(dtype, copy=False)
        return replace(self, prototypes=self.prototypes.astype(dtype, copy=False), omega=omega)

    @cached_property
    def gram(self) -> Array:
        """Omega Omega' of GMLVQ."""
        assert self.omega is not None
        return np.asarray(self.omega @ self.omega.T)

    def project(self, x: Array) -> Array:
        """x in coordinates whose Euclidean distance is that of the model."""
        if self.omega is None:
            return x
        if self.omega.ndim == 1:
            return np.asarray(x * np.sqrt(self.omega))
        return np.asarray(x @ self.omega.T)


@dataclass(frozen=True)
class Sums:
    """Sums over a lot: clipped gradients in float64, and the cost before clipping."""

    prototypes: npt.NDArray[np.float64]
    omega: npt.NDArray[np.float64] | None
    cost: float


def distances(x: Array, model: Model) -> Array:
    """Squared distances of the rows of x to the prototypes, at least 0."""
    w = model.prototypes
    y, u = model.project(x), model.project(w)
    return _Sizes.of(x, w, y, u).gaps(y, u)


def clipped_sums(
    x: Array,
    codes: npt.NDArray[np.intp],
    model: Model,
    *,
    clip: float = math.inf,
    transfer: Transfer | None = None,
) -> Sums:
    """Sums over the rows of x of their gradients, each clipped to a joint norm of `clip`.

    Parameters
    ----------
    x : ndarray of float32 or float64, shape (n, n_features)
        May be empty.
    codes : ndarray of shape (n,)
        Positions of the classes.
    model : Model
        Of the dtype of x.
    clip : float
        Bound on the norm of what one row adds, rounding included: the sums of two lots that differ
        in one row are no further apart.
    transfer : Transfer, optional
        Identity by default.

    Cost
    ----
    Two products of n x n_features x rank and O(n n_features n_prototypes) besides, in
    `dpcore.get_num_threads` threads whose number changes no bit; work space for 2048 rows in each.
    Nothing of the size rank x n_features exists per row.
    """
    transfer = transfer or Transfer()
    aim = clip * (1 - MARGIN[x.dtype.char])
    rows = {None: _euclidean_rows, 1: _diagonal_rows, 2: _matrix_rows}[
        None if model.omega is None else model.omega.ndim
    ]
    centre = model.prototypes.mean(axis=0)
    model = replace(model, prototypes=model.prototypes - centre)

    def chunk(begin: int) -> _Moments:
        part = slice(begin, begin + _CHUNK)
        return rows(x[part] - centre, codes[part], model, aim, transfer)

    with one_blas_thread():
        moments = in_order(chunk, range(0, max(len(x), 1), _CHUNK))
        total = next(moments)
        for part in moments:
            total += part
        return total.gradient(model)


@dataclass
class _Moments:
    """What a chunk adds: H of the formulas above, Z' X or its like for Omega, and the cost."""

    h: Array
    z: Array | None
    cost: float

    def __iadd__(self, other: _Moments) -> _Moments:
        self.h += other.h
        if self.z is not None:
            self.z += other.z
        self.cost += other.cost
        return self

    def gradient(self, model: Model) -> Sums:
        """The sums that belong to these moments."""
        w, omega = model.prototypes, model.omega
        if omega is None or self.z is None:
            return Sums(-self.h, None, self.cost)
        if omega.ndim == 1:
            return Sums(-self.h * omega, self.z / 2, self.cost)
        self.z -= self.h.T @ w
        return Sums(-(self.h @ omega), self.z, self.cost)


@dataclass(frozen=True)
class _Winners:
    """Nearest prototypes of the own class (p) and of another (m), with their coefficients.

    `part` is how much of a clipped gradient counts: it falls to 0 where a sample lies on both.
    """

    p: npt.NDArray[np.intp]
    m: npt.NDArray[np.intp]
    d_p: Array
    d_m: Array
    a: Array
    b: Array
    part: Array
    cost: float

    def clipped(self, squared_norm: Array, rounding: Array, aim: float) -> _Winners:
        """Coefficients of gradients that, with what rounding may add to each, stay within aim."""
        if aim == math.inf:
            return self
        norm = np.sqrt(np.maximum(squared_norm, 0)) + rounding
        factor = (self.part * aim / np.maximum(norm, aim)).astype(norm.dtype)
        return replace(self, a=self.a * factor, b=self.b * factor)

    def scatter(self, n_prototypes: int) -> Array:
        """Coefficients a at p and -b at m, one row per sample."""
        weights = np.zeros((len(self.p), n_prototypes), self.a.dtype)
        rows = np.arange(len(self.p))
        weights[rows, self.p] = self.a
        weights[rows, self.m] = -self.b
        return weights


def _nearest(
    d: Array, sizes: _Sizes, x: Array, codes: npt.NDArray[np.intp], model: Model
) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """The prototypes p and m of each row, the first among equals.

    d holds distances as products give them. Where their error could decide, float64 does, and where
    it still could, distances that are computed for each row by itself.
    """
    own = model.codes == codes[:, None]
    sides = np.where(own, d, np.inf), np.where(own, np.inf, d)
    p, m = (side.argmin(axis=1) for side in sides)
    limit = 2 * _reach(sizes, model)[:, None]
    close = [(side <= side.min(axis=1, keepdims=True) + limit).sum(axis=1) > 1 for side in sides]
    open_rows = np.flatnonzero(close[0] | close[1])
    if open_rows.size == 0:
        return p, m
    rows, labels = x[open_rows], codes[open_rows]
    if x.dtype == np.float64:
        d, own = _lone_distances(rows, model), own[open_rows]
        p[open_rows] = np.where(own, d, np.inf).argmin(axis=1)
        m[open_rows] = np.where(own, np.inf, d).argmin(axis=1)
    else:
        rows, wide = rows.astype(np.float64), model.astype(np.float64)
        y, u = wide.project(rows), wide.project(wide.prototypes)
        sizes = _Sizes.of(rows, wide.prototypes, y, u)
        p[open_rows], m[open_rows] = _nearest(sizes.gaps(y, u), sizes, rows, labels, wide)
    return p, m


def _lone_distances(x: Array, model: Model) -> Array:
    """Distances whose digits depend on nothing but their row and prototype."""
    d = np.empty((len(x), len(model.prototypes)))
    for j, w in enumerate(model.prototypes):
        moved = x - w
        if model.omega is not None and model.omega.ndim == 2:
            moved = np.matmul(model.omega, moved[..., np.newaxis])[..., 0]  # a product for each row
            d[:, j] = _rowdot(moved, moved)
        else:
            d[:, j] = _rowdot(moved, moved if model.omega is None else moved * model.omega)
    return d


def _reach(sizes: _Sizes, model: Model) -> Array:
    """A bound on the error of the distances of each row: n terms lose n units at most."""
    d = rank = model.prototypes.shape[1]
    size = np.sqrt(sizes.y) + math.sqrt(sizes.u.max())
    spread = np.zeros_like(size)
    if model.omega is not None and model.omega.ndim == 2:
        rank = len(model.omega)
        raw = np.sqrt(sizes.x) + math.sqrt(sizes.w.max())
        spread = raw * ((d + 8) * 2 * float(np.linalg.norm(model.omega)))
    unit = float(np.finfo(size.dtype).eps) / 2
    return np.asarray(unit * size * ((rank + 8) * size + spread))


@dataclass(frozen=True)
class _Sizes:
    """Squared norms of rows x and prototypes w, and of both under the model: y and u."""

    x: Array
    w: Array
    y: Array
    u: Array

    @staticmethod
    def of(x: Array, w: Array, y: Array, u: Array) -> _Sizes:
        x_squares, w_squares = _rowdot(x, x), _rowdot(w, w)
        if y is x:
            return _Sizes(x_squares, w_squares, x_squares, w_squares)
        return _Sizes(x_squares, w_squares, _rowdot(y, y), _rowdot(u, u))

    def gaps(self, y: Array, u: Array) -> Array:
        """Squared distances of the rows to the prototypes, at least 0."""
        products = y @ u.T
        products *= -2
        products += self.y[:, None]
        products += self.u
        return np.asarray(np.maximum(products, 0, out=products))


def _coefficients(p: Array, m: Array, d_p: Array, d_m: Array, transfer: Transfer) -> _Winners:
    s = d_p + d_m
    live = s >= DEGENERATE
    s = np.where(live, s, 1)
    mu = np.where(live, (d_p - d_m) / s, 0)
    part = np.clip(s / DEGENERATE - 1, 0, 1)
    scale = np.where(live, 4 * transfer.slope(mu) / (s * s), 0).astype(s.dtype)
    cost = float(transfer.cost(mu[live].astype(np.float64)).sum())
    return _Winners(p, m, d_p, d_m, scale * d_m, scale * d_p, part, cost)


def _rowdot(x: Array, y: Array) -> Array:
    return np.asarray(np.einsum("ij,ij->i", x, y))


def _euclidean_rows(
    x: Array, codes: npt.NDArray[np.intp], model: Model, aim: float, transfer: Transfer
) -> _Moments:
    w = model.prototypes
    rows = np.arange(len(x))
    sizes = _Sizes.of(x, w, x, w)
    d = sizes.gaps(x, w)
    p, m = _nearest(d, sizes, x, codes, model)
    won = _coefficients(p, m, d[rows, p], d[rows, m], transfer)
    a2, b2 = won.a * won.a, won.b * won.b
    norm = a2 * won.d_p + b2 * won.d_m + (a2 + b2) * _cancellation(x, sizes)
    won = won.clipped(norm, (won.a + won.b) * _rounding(sizes.x, sizes.w), aim)
    weights = won.scatter(len(w))
    h = (weights.T @ x).astype(np.float64) - weights.sum(axis=0, dtype=np.float64)[:, None] * w
    return _Moments(h, None, won.cost)


def _matrix_rows(
    x: Array, codes: npt.NDArray[np.intp], model: Model, aim: float, transfer: Transfer
) -> _Moments:
    w, omega = model.prototypes, model.omega
    assert omega is not None
    y, u = x @ omega.T, w @ omega.T
    sizes = _Sizes.of(x, w, y, u)
    p, m = _nearest(sizes.gaps(y, u), sizes, x, codes, model)
    v_p, v_m = y - u[p], y - u[m]
    won = _coefficients(p, m, _rowdot(v_p, v_p), _rowdot(v_m, v_m), transfer)
    if aim < math.inf:
        # H and Z' X lose digits of their own where a prototype is close to the sample.
        norm = _matrix_norm(x, sizes, won, v_p, v_m, model)
        lost = won.a * np.sqrt(won.d_p) + won.b * np.sqrt(won.d_m)
        lost = lost * _rounding(sizes.x, sizes.w)
        size = np.linalg.norm(omega) + math.sqrt(sizes.w.max())
        lost += (won.a + won.b) * _rounding(sizes.y, sizes.u) * size
        won = won.clipped(norm, lost, aim)
    v_p *= won.a[:, None]
    v_m *= won.b[:, None]
    every = np.arange(len(w))
    h = (won.p == every[:, None]).astype(x.dtype) @ v_p
    h -= (won.m == every[:, None]).astype(x.dtype) @ v_m
    v_p -= v_m
    return _Moments(h.astype(np.float64), (v_p.T @ x).astype(np.float64), won.cost)


def _matrix_norm(
    x: Array, sizes: _Sizes, won: _Winners, v_p: Array, v_m: Array, model: Model
) -> Array:
    """Squared norms of the gradients, over prototypes and Omega together."""
    w = model.prototypes
    rows = np.arange(len(x))
    w_gram, xw = w @ w.T, x @ w.T
    xw_p, xw_m = xw[rows, won.p], xw[rows, won.m]
    slack = _cancellation(x, sizes)
    dd_p = sizes.x - 2 * xw_p + sizes.w[won.p] + slack
    dd_m = sizes.x - 2 * xw_m + sizes.w[won.m] + slack
    dd_pm = sizes.x - xw_p - xw_m + w_gram[won.p, won.m]
    a2, b2 = won.a * won.a, won.b * won.b
    outer_p, outer_m = a2 * won.d_p * dd_p, b2 * won.d_m * dd_m
    outer_pm = won.a * won.b * _rowdot(v_p, v_m) * dd_pm
    # Far from two prototypes that are close to each other, the outer products nearly cancel.
    slack = 4 * _unit(x) * (outer_p + outer_m)
    norm = a2 * _pulled_back(v_p, won.d_p, model) + b2 * _pulled_back(v_m, won.d_m, model)
    return np.asarray(norm + outer_p + outer_m - 2 * outer_pm + slack)


def _pulled_back(v: Array, squares: Array, model: Model) -> Array:
    """|Omega' v|**2 of every row, at least; `squares` are those of v.

    Through the Gram matrix where that is less work. The number of rows must not choose: the two
    ways round differently.
    """
    omega = model.omega
    assert omega is not None
    rank, d = omega.shape
    if 2 * rank <= d:
        slack = _unit(v) * float(np.trace(model.gram))
        return np.asarray(_rowdot(v @ model.gram, v) + slack * squares)
    back = v @ omega
    return _rowdot(back, back)


def _diagonal_rows(
    x: Array, codes: npt.NDArray[np.intp], model: Model, aim: float, transfer: Transfer
) -> _Moments:
    w, weight = model.prototypes, model.omega
    assert weight is not None
    y, u = model.project(x), model.project(w)
    sizes = _Sizes.of(x, w, y, u)
    p, m = _nearest(sizes.gaps(y, u), sizes, x, codes, model)
    square_p, square_m = (x - w[p]) ** 2, (x - w[m]) ** 2
    won = _coefficients(p, m, square_p @ weight, square_m @ weight, transfer)
    a2, b2 = won.a * won.a, won.b * won.b
    g_weight = won.a[:, None] * square_p - won.b[:, None] * square_m
    norm = a2 * (square_p @ weight**2) + b2 * (square_m @ weight**2)
    norm = norm + _rowdot(g_weight, g_weight) / 4
    lost = (won.a + won.b) * _rounding(sizes.x, sizes.w) * weight.max()
    won = won.clipped(norm, lost, aim)
    weights = won.scatter(len(w))
    h = (weights.T @ x).astype(np.float64) - weights.sum(axis=0, dtype=np.float64)[:, None] * w
    z = (won.a @ square_p).astype(np.float64) - won.b @ square_m
    return _Moments(h, z, won.cost)


def _cancellation(x: Array, sizes: _Sizes) -> Array:
    """What |x|**2 - 2 x w + |w|**2 may fall short of the distance by rounding."""
    return np.asarray(_unit(x) * (sizes.x + sizes.w.max()))


def _unit(x: Array) -> float:
    """The rounding of an inner product over the features, relative to its terms."""
    return (8 + math.sqrt(x.shape[1])) * float(np.finfo(x.dtype).eps)


def _rounding(squares: Array, w_squares: Array) -> Array:
    """What rounding may add to a difference of multiples of x and w, per unit of the multiple."""
    units = 8 * np.finfo(squares.dtype).eps
    return np.asarray(units * (np.sqrt(squares) + math.sqrt(w_squares.max())))
