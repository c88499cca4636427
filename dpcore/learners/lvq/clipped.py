"""Sums of clipped gradients in which no record moves what another adds, not by a digit.

A floating-point sum rounds, and how depends on all of its terms: on their number, their order, the
kernel that BLAS picks for a lot of this size. A record that joins a lot could so move what many
others add, all the same way where they are alike, by far more than the clip norm. Here nothing
that is summed rounds. Records, prototypes and Omega are whole multiples of public units, and so is
what each record adds, cut towards zero, with so few digits that float64 holds every partial sum:
products and sums are exact in any order. What happens in between (quotients, roots) is done element
by element, where IEEE 754 leaves no choice. So what a record adds is a function of that record and
the model, its norm is bounded in the same arithmetic, and the sums of two lots that differ in one
record differ by what this one adds: by the clip norm at most. No thread and no machine changes a
bit.

With ``e`` digits of records and ``k`` of projected ones behind the point, coordinates of up to 2,
an Omega of norm 1 and chunks of 2**11 rows these stay below 2**53:

    |x - w|**2            16 d 4**e
    |V|**2, V' G V        16 d 4**k, with a factor of 4 to spare
    X Omega'              2 sqrt(d) 2**e 2**26
    V G, V Omega          4 sqrt(d) 2**k 2**26
    Z' X - H' W           2 2**11 2**24 2 2**e
    C' X - sums of C * W  2 2**11 2**24 2 2**e, C the coefficients of GLVQ and GRLVQ
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from dpcore._parallel import in_order, one_blas_thread
from dpcore.learners.lvq.kernel import CHUNK, Model, Sums, Transfer, nearest, row_dots, scatter

__all__ = ["MARGIN", "clipped_sums", "digits", "to_grid"]

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]
Index = npt.NDArray[np.intp]

# Part of the clip norm that is kept for the rounding of the sum of all, which is a float64.
MARGIN = 1e-6

_REACH = 2.0  # of coordinates
_OMEGA_DIGITS = 26
_MOST_COEFFICIENT = 2.0**24 - 1
_MOST_Z = 2.0**23 - 1
# What cutting may cost a record, as a part of the clip norm.
_CUT = 2.0**-12
_WEIGHT_CUT = 2.0**-20  # of gradients for the weights of GRLVQ, which are no products
_BLOCK = 256 * CHUNK  # rows whose sums int64 is sure to hold


def digits(n_features: int) -> int:
    """Binary digits of records behind the point: 16, or fewer beyond 2**17 features."""
    return min(16, (49 - _log2_above(n_features)) // 2)


def to_grid(x: Array) -> Array:
    """Points between -2 and 2 in units of 2**-digits, as whole numbers of the dtype of x."""
    units = np.clip(x, -_REACH, _REACH, order="C")
    units *= 2.0 ** digits(x.shape[1])
    return np.asarray(np.rint(units, out=units))


def clipped_sums(
    points: Array,
    codes: Index,
    model: Model,
    *,
    clip: float,
    transfer: Transfer | None = None,
) -> Sums:
    """Sums over records of their gradients, each clipped to a joint norm of `clip`.

    Parameters
    ----------
    points : ndarray of float32 or float64, shape (n, n_features)
        Of `to_grid`; may be empty. Both dtypes give the same sums.
    codes : ndarray of shape (n,)
        Positions of the classes.
    model : Model
        Its prototypes are taken to the grid as well.
    clip : float
        Bound on the norm of what one record adds, all rounding included: the sums of two lots that
        differ in one record are no further apart, as long as lots have at most 5e7 records.
    transfer : Transfer, optional
        Identity by default.

    Cost
    ----
    Two products of n x n_features x rank in float64 and O(n n_features n_prototypes) besides, in
    `dpcore.get_num_threads` threads; work space for 2048 rows in each. Nothing of the size
    rank x n_features exists per record.
    """
    with one_blas_thread():
        space = make_space(points.shape[1], model, clip, transfer or Transfer())
        first, *more = range(0, max(len(points), 1), _BLOCK)
        total = [moment.astype(np.float64) for moment in space.block(points, codes, first)]
        for begin in more:
            for sums, moment in zip(total, space.block(points, codes, begin), strict=True):
                sums += moment
        return space.gradient(*total)


def make_space(d: int, model: Model, clip: float, transfer: Transfer) -> _Space:
    """The space in which gradients of this kind of model are summed."""
    kinds: dict[int | None, type[_Space]] = {None: _Euclidean, 1: _Diagonal, 2: _Matrix}
    return kinds[None if model.omega is None else model.omega.ndim](d, model, clip, transfer)


@dataclass
class _Space(ABC):
    """A model on its grid, with all that a chunk of records needs.

    Attributes
    ----------
    w, u : ndarray
        Prototypes in units, plain and projected.
    y_digits : int
        Behind the point of projected records.
    """

    d: int
    model: Model
    clip: float
    transfer: Transfer
    aim: float = field(init=False)
    y_digits: int = field(init=False)

    def __post_init__(self) -> None:
        self.aim = self.clip * (1 - MARGIN)
        self.x_digits = self.y_digits = digits(self.d)
        self.w = to_grid(self.model.prototypes.astype(np.float64))
        self.prepare()
        self.u = self.project(self.w)
        self.u_squares = row_dots(self.u, self.u)

    @abstractmethod
    def prepare(self) -> None:
        """What the kind of model needs, before prototypes are projected."""

    @abstractmethod
    def project(self, x: Floats) -> Floats:
        """Records or prototypes, in units, as points whose Euclidean distance is the model's."""

    @abstractmethod
    def moments(self, x: Floats, codes: Index) -> Sequence[Floats]:
        """Exact sums of a chunk, whole numbers below 2**53 of units of the space."""

    @abstractmethod
    def gradient(self, *moments: Floats) -> Sums:
        """The sums of gradients that belong to moments."""

    def block(self, points: Array, codes: Index, begin: int) -> Sequence[Array]:
        """Exact sums of up to 2**19 records from `begin` on."""

        def chunk(first: int) -> Sequence[Floats]:
            rows = slice(first, first + CHUNK)
            return self.moments(points[rows].astype(np.float64, copy=False), codes[rows])

        starts = range(begin, max(min(len(points), begin + _BLOCK), begin + 1), CHUNK)
        chunks = in_order(chunk, starts)
        if len(starts) == 1:
            return next(chunks)
        total = [moment.astype(np.int64) for moment in next(chunks)]
        for part in chunks:
            for sums, moment in zip(total, part, strict=True):
                sums += moment.astype(np.int64)
        return total

    def _winners(self, y: Floats, codes: Index) -> _Winners:
        d = y @ self.u.T
        d *= -2
        d += row_dots(y, y)[:, None]
        d += self.u_squares
        p, m = nearest(d, codes, self.model.codes)
        rows = np.arange(len(y))
        d_p, d_m = d[rows, p], d[rows, m]
        s = d_p + d_m
        live = s > 0
        s = np.where(live, s, 1)
        mu = np.where(live, (d_p - d_m) / s, 0)
        unit = 4.0**-self.y_digits
        scale = np.where(live, 4 * self.transfer.slope(mu) / (s * s), 0) / unit
        return _Winners(p, m, d_p * unit, d_m * unit, scale * d_m, scale * d_p)


@dataclass(frozen=True)
class _Winners:
    """Nearest prototypes of the own class (p) and of another (m), distances and coefficients."""

    p: Index
    m: Index
    d_p: Floats
    d_m: Floats
    a: Floats
    b: Floats


class _Euclidean(_Space):
    """GLVQ."""

    def prepare(self) -> None:
        self.coefficient_unit = _power_below(self.clip * _CUT / (2 * _REACH * math.sqrt(self.d)))

    def project(self, x: Floats) -> Floats:
        return x

    def moments(self, x: Floats, codes: Index) -> Sequence[Floats]:
        won = self._winners(x, codes)
        norm = np.sqrt(won.a * won.a * won.d_p + won.b * won.b * won.d_m)
        return [self._weighted_sums(x, won, _factor(self.aim, norm))]

    def _weighted_sums(self, x: Floats, won: _Winners, factor: Floats) -> Floats:
        """Sums of c (x - w) with coefficients c cut to their unit."""
        a, b = (
            np.minimum(np.floor(c * factor / self.coefficient_unit), _MOST_COEFFICIENT)
            for c in (won.a, won.b)
        )
        weights = scatter(a, won.p, b, won.m, len(self.w))
        return np.asarray(weights.T @ x - weights.sum(axis=0)[:, None] * self.w)

    def gradient(self, *moments: Floats) -> Sums:
        return Sums(-moments[0] * (self.coefficient_unit * 2.0**-self.x_digits), None)


class _Diagonal(_Euclidean):
    """GRLVQ, its weights scaled to a sum of 1, which changes no mu."""

    def prepare(self) -> None:
        assert self.model.omega is not None
        self.y_digits = 24
        self.trace = float(self.model.omega.sum())
        self.weight = self.model.omega.astype(np.float64) / self.trace
        self.root = np.sqrt(self.weight) * 2.0 ** (self.y_digits - self.x_digits)
        size = math.sqrt(np.square(self.weight).sum())
        self.coefficient_unit = _power_below(self.clip * _CUT / (2 * _REACH * size))
        self.weight_unit = _power_below(self.clip * _WEIGHT_CUT / math.sqrt(self.d))

    def project(self, x: Floats) -> Floats:
        return np.rint(x * self.root)

    def moments(self, x: Floats, codes: Index) -> Sequence[Floats]:
        won = self._winners(self.project(x), codes)
        norm_squared = np.zeros(len(x))
        change = np.zeros_like(x)
        for c, j in ((won.a, won.p), (-won.b, won.m)):
            moved = (x - self.w[j]) * 2.0**-self.x_digits
            norm_squared += np.square(c * _norm_above(moved * self.weight))
            moved *= moved
            change += moved * (c / (2 * self.trace))[:, None]
        norm_squared += np.square(_norm_above(change))
        factor = _factor(self.aim, np.sqrt(norm_squared))
        change *= (factor / self.weight_unit)[:, None]
        return [self._weighted_sums(x, won, factor), np.trunc(change).sum(axis=0)]

    def gradient(self, *moments: Floats) -> Sums:
        plain = super().gradient(*moments).prototypes
        return Sums(plain * self.weight, moments[1] * self.weight_unit)


class _Matrix(_Space):
    """GMLVQ, Omega scaled to a norm of 1, which changes no mu."""

    def prepare(self) -> None:
        omega = np.asarray(self.model.omega, dtype=np.float64)
        self.rank = len(omega)
        self.y_digits = (47 - _log2_above(self.d)) // 2
        self.size = math.sqrt(np.square(omega).sum())
        self.omega = np.rint(omega * (2.0**_OMEGA_DIGITS / self.size))
        self.gram = None
        if 2 * self.rank <= self.d:
            self.gram = np.rint(self.omega @ self.omega.T * 2.0**-_OMEGA_DIGITS)
        self.w_gram = self.w @ self.w.T
        # A row of Z that is cut by less than a unit in each coordinate moves its gradient by this.
        self.cut_per_distance = math.sqrt(self.rank) / self.size
        self.cut_at_least = 2.001 * math.sqrt(self.rank)
        most = 4 * _REACH * math.sqrt(self.d) * self.cut_per_distance + self.cut_at_least
        self.z_unit = _power_below(self.clip * _CUT / most)

    def project(self, x: Floats) -> Floats:
        y = x @ self.omega.T
        y *= 2.0 ** (self.y_digits - self.x_digits - _OMEGA_DIGITS)
        return np.rint(y, out=y)

    def moments(self, x: Floats, codes: Index) -> Sequence[Floats]:
        y = self.project(x)
        won = self._winners(y, codes)
        v_p, v_m = y - self.u[won.p], y - self.u[won.m]
        factor = self._factors(x, won, v_p, v_m)
        to_units = factor * (2.0**-self.y_digits / self.z_unit)
        for v, c in ((v_p, won.a), (v_m, won.b)):
            v *= (c * to_units)[:, None]
            np.trunc(v, out=v)
        every = np.arange(len(self.w))
        h = (won.p == every[:, None]).astype(np.float64) @ v_p
        h -= (won.m == every[:, None]).astype(np.float64) @ v_m
        v_p -= v_m
        return [h, v_p.T @ x - h.T @ self.w]

    def _factors(self, x: Floats, won: _Winners, v_p: Floats, v_m: Floats) -> Floats:
        """Clip factors: by the norm over prototypes and Omega together, and by the digits of Z."""
        xx, ww = row_dots(x, x), self.w_gram.diagonal()
        xw = x @ self.w.T
        rows = np.arange(len(x))
        xw_p, xw_m = xw[rows, won.p], xw[rows, won.m]
        unit = 4.0**-self.x_digits
        dd_p = (xx - 2 * xw_p + ww[won.p]) * unit
        dd_m = (xx - 2 * xw_m + ww[won.m]) * unit
        dd_pm = (xx - xw_p - xw_m + self.w_gram[won.p, won.m]) * unit
        vv_pm = row_dots(v_p, v_m) * 4.0**-self.y_digits
        aa, bb = won.a * won.a, won.b * won.b
        outer = aa * won.d_p * dd_p + bb * won.d_m * dd_m
        # Far from two prototypes that are close to each other, the outer products nearly cancel.
        crossed = outer * (1 + 1e-14) - 2 * won.a * won.b * vv_pm * dd_pm
        norm_squared = aa * self._pulled_back(v_p, won.d_p) + bb * self._pulled_back(v_m, won.d_m)
        norm = np.sqrt(norm_squared + np.maximum(crossed, 0) / self.size**2)
        cut = (np.sqrt(dd_p) + np.sqrt(dd_m)) * self.cut_per_distance + self.cut_at_least
        factor = _factor(self.aim - cut * self.z_unit, norm)
        for v, c in ((v_p, won.a), (v_m, won.b)):
            largest = c * np.maximum(v.max(axis=1), -v.min(axis=1)) * 2.0**-self.y_digits
            factor = np.minimum(factor, _factor(_MOST_Z * self.z_unit, largest))
        return factor

    def _pulled_back(self, v: Floats, squares: Floats) -> Floats:
        """|Omega' v|**2 of every row or a little more, by the way that is less work."""
        unit = 2.0**-self.y_digits
        if self.gram is None:
            back = np.ceil(np.abs(v @ self.omega) * 2.0**-_OMEGA_DIGITS)
            return row_dots(back, back) * unit**2
        image = np.rint(v @ self.gram * 2.0**-_OMEGA_DIGITS)
        rounding = self.rank * 2.0**-_OMEGA_DIGITS * squares
        rounding += math.sqrt(self.rank) * unit * np.sqrt(squares)
        return np.maximum(row_dots(image, v) * unit**2, 0) + rounding

    def gradient(self, *moments: Floats) -> Sums:
        h, z = moments
        # In parts of 18 digits, whose products are exact: nothing but their sum is rounded.
        pulled, rest = np.zeros_like(self.w), h
        for unit in (2.0**36, 2.0**18, 1.0):
            part = np.trunc(rest / unit) * unit
            pulled += part @ self.omega
            rest = rest - part
        prototypes = -pulled * (self.z_unit * 2.0**-_OMEGA_DIGITS)
        return Sums(prototypes, z * (self.z_unit * 2.0**-self.x_digits / self.size))


def _factor(most: Any, norm: Floats) -> Floats:
    """What a vector of this norm is multiplied by to have one of `most` at the most."""
    return np.asarray(np.minimum(1.0, np.maximum(most, 0) / np.maximum(norm, 1e-200)))


def _norm_above(rows: Floats) -> Floats:
    """Norms of rows, rounded up; from exact sums, so that they are the same in any order."""
    bits = (52 - _log2_above(rows.shape[1])) // 2
    size = np.abs(rows)
    exponent = np.maximum(np.frexp(size.max(axis=1))[1], -900)
    size = np.ceil(np.ldexp(size, (bits - exponent)[:, None]))
    return np.asarray(np.ldexp(np.sqrt(row_dots(size, size)), exponent - bits))


def _log2_above(n: int) -> int:
    return (n - 1).bit_length()


def _power_below(x: float) -> float:
    """The largest power of two up to x, which scales without rounding."""
    return float(2.0 ** math.floor(math.log2(x)))
