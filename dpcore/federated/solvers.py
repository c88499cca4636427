"""Local problems of many users at once: min over w of sum l(x.w) + rho/2 * norm(w - z)**2.

Newton's method on all users of a block together, for u = w - z: how well it is known does not
depend on how far away z is. With fewer records than features the unknowns are the slopes c at the
records, since u = -X'c / rho at the minimum: then a user costs one small system of its records per
step, and the products X X' are formed once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dpcore._parallel import in_order, one_blas_thread
from dpcore.federated.devices import Devices
from dpcore.federated.losses import Loss

__all__ = ["LocalProblems"]

Array = npt.NDArray[np.float64]
Index = npt.NDArray[np.intp]

_MOST_STEPS = 200
_BLOCK = 1 << 19  # numbers of one block of padded data: a few blocks keep all threads busy
_SLACK = 1.25  # longest over shortest user in a block
_DECREASE = 1e-4  # of the decrease that the slope promises, for a step to be taken
_OVERSHOOT = 0.1  # of the slope, that may be left behind the minimum along a step
_ROUNDING = 1e-13  # relative error of an objective


class LocalProblems:
    """The users' data in blocks of similar size, and a solver that remembers where it was.

    Parameters
    ----------
    X : ndarray of shape (n_records, d)
    y : ndarray of shape (n_records,)
    devices : Devices
    loss : Loss
        With a curvature: the plain hinge has none.
    tolerance : float or None
        Norm of the gradient at which a local minimum counts as reached; None for 1e-10 of the
        gradient at z, for losses whose slopes have no bound.

    Notes
    -----
    Records that fill up a block are rows of zeros: they add nothing to any gradient.
    """

    def __init__(
        self,
        X: npt.NDArray[np.float64],
        y: Array,
        devices: Devices,
        loss: Loss,
        tolerance: float | None = 1e-10,
    ) -> None:
        self.n, self.d = len(devices), X.shape[1]
        self.loss = loss
        self._blocks: list[_Block] = []
        self._block_of = np.empty(self.n, np.intp)
        self._place = np.empty(self.n, np.intp)
        sizes = devices.sizes
        order = np.argsort(sizes, kind="stable")
        for users in _cut(order, sizes[order], self.d):
            self._block_of[users] = len(self._blocks)
            self._place[users] = np.arange(len(users))
            self._blocks.append(_Block.of(X, y, devices, users, loss, tolerance))

    def solve(self, users: Index, z: Array, rho: float) -> Array:
        """Minima of some users, each with its own row of z; starts where the last call ended.

        Raises ArithmeticError where the tolerance is not reached.
        """
        return np.asarray(z + self.offsets(users, z, rho))

    def offsets(self, users: Index, z: Array, rho: float) -> Array:
        """The same minima less z, without the rounding of a sum with z."""
        out = np.empty_like(z)
        block_of, place = self._block_of[users], self._place[users]

        def work(number: int) -> None:
            at = np.flatnonzero(block_of == number)
            if at.size:
                out[at] = self._blocks[number].solve(place[at], z[at], rho)

        self._for_blocks(work)
        return out

    def gradients(self, w: Array) -> Array:
        """The gradient of each user's loss at one w, or at a row of w for each."""
        w = np.broadcast_to(w, (self.n, self.d))
        out = np.empty((self.n, self.d))

        def work(number: int) -> None:
            block = self._blocks[number]
            slopes = self.loss.at(_apply(block.X, w[block.users]), block.y)[1]
            out[block.users] = _apply_transposed(block.X, slopes)

        self._for_blocks(work)
        return out

    def _for_blocks(self, work: Callable[[int], None]) -> None:
        """Call work with the number of each block; its matrices are too small for BLAS to share."""
        with one_blas_thread():
            for _ in in_order(work, range(len(self._blocks))):
                pass

    def objective(self, w: Array) -> float:
        """Sum of all users' losses at one w."""
        total = 0.0
        for block in self._blocks:
            values = self.loss.at(block.X @ w, block.y)[0]
            total += float(values[block.is_record].sum())
        return total


@dataclass
class _Block:
    users: Index
    X: Array  # (users, records, d)
    y: Array
    is_record: npt.NDArray[np.bool_]
    products: Array | None  # X X' of every user, for the dual form
    warm: Array  # slopes c in the dual form, u in the primal one
    inverses: Array  # of the last Hessians, in the primal form
    loss: Loss
    tolerance: float | None

    @staticmethod
    def of(
        X: npt.NDArray[np.float64],
        y: Array,
        devices: Devices,
        users: Index,
        loss: Loss,
        tolerance: float | None,
    ) -> _Block:
        sizes, d = devices.sizes[users], X.shape[1]
        records, starts = devices.records(users)
        longest = int(sizes.max())
        is_record = np.arange(longest) < sizes[:, np.newaxis]
        if is_record.all():
            first, last = records[0], records[-1]
            in_order = last - first + 1 == len(records) and bool((np.diff(records) == 1).all())
            rows = X[first : last + 1] if in_order else np.take(X, records, axis=0)
            data = rows.reshape(len(users), longest, d)
            target = y[records].reshape(len(users), longest)
        else:
            data, target = np.zeros((len(users), longest, d)), np.zeros((len(users), longest))
            row = np.repeat(np.arange(len(users)), sizes)
            column = np.arange(len(records)) - np.repeat(starts, sizes)
            data[row, column], target[row, column] = X[records], y[records]
        products = data @ data.swapaxes(1, 2) if longest < d else None
        warm = np.zeros((len(users), d if products is None else longest))
        inverses = np.zeros((len(users), d, d) if products is None else 0)
        return _Block(users, data, target, is_record, products, warm, inverses, loss, tolerance)

    def solve(self, at: Index, z: Array, rho: float) -> Array:
        whole = len(at) == len(self.users) and bool((at == np.arange(len(at))).all())
        pick = slice(None) if whole else at
        X, y, start = self.X[pick], self.y[pick], self.warm[pick]
        near = _apply(X, z)
        if self.loss.kind == "residual":
            # Before u is added: where scores and targets are large, what matters is their gap.
            near, y = near - y, np.zeros_like(y)
        if self.products is None:
            known = self.inverses[pick]
            primal = _Primal(X, near, y, rho, self.loss, known, np.arange(len(z)))
            start = _coast(primal, start, self.tolerance or 0.0)
            unknown = _newton(primal, start, self.tolerance)
            self.warm[pick], self.inverses[pick] = unknown, known
            return unknown
        dual = _Dual(near, y, rho, self.loss, self.products[pick])
        unknown = _newton(dual, start if start.any() else dual.guess(), self.tolerance)
        self.warm[pick] = unknown
        return -_apply_transposed(X, unknown) / rho


class _Primal:
    """Unknown: u = w - z."""

    def __init__(
        self, X: Array, near: Array, y: Array, rho: float, loss: Loss, inverses: Array, rows: Index
    ) -> None:
        self.X, self.near, self.y, self.rho, self.loss = X, near, y, rho, loss
        self.inverses, self.rows = inverses, rows  # of all users, and which of them are here

    def start(self, u: Array) -> Array:
        return self.near + _apply(self.X, u)

    def take(self, rows: npt.NDArray[np.bool_]) -> _Primal:
        return _Primal(
            self.X[rows],
            self.near[rows],
            self.y[rows],
            self.rho,
            self.loss,
            self.inverses,
            self.rows[rows],
        )

    def residual(self, u: Array, slopes: Array) -> tuple[Array, Array]:
        gradient = _apply_transposed(self.X, slopes) + self.rho * u
        return gradient, np.linalg.norm(gradient, axis=1)

    def direction(self, u: Array, gradient: Array, bends: Array) -> tuple[Array, Array, Array]:
        weighted = self.X * bends[..., np.newaxis]
        hessian = weighted.swapaxes(1, 2) @ self.X
        hessian[:, np.arange(hessian.shape[1]), np.arange(hessian.shape[1])] += self.rho
        inverses = np.asarray(np.linalg.inv(hessian), np.float64)
        self.inverses[self.rows] = inverses
        step = -_apply(inverses, gradient)
        return step, _apply(self.X, step), _dots(gradient, step)

    def penalty(
        self, u: Array, step: Array, scores: Array, moved: Array
    ) -> tuple[Array, Array, Array]:
        """Coefficients of 1, s and s**2 in the quadratic part along the step."""
        rho = self.rho
        return 0.5 * rho * _dots(u, u), rho * _dots(u, step), 0.5 * rho * _dots(step, step)


class _Dual:
    """Unknown: the slopes c, with u = -X'c / rho."""

    def __init__(self, near: Array, y: Array, rho: float, loss: Loss, products: Array) -> None:
        self.near, self.y, self.rho, self.loss = near, y, rho, loss  # near: the scores at z
        self.products = products

    def start(self, c: Array) -> Array:
        return self.near - _apply(self.products, c) / self.rho

    def guess(self) -> Array:
        """Two sweeps in which each record looks at itself: as good as a Newton step, and cheap."""
        own = self.products.diagonal(axis1=1, axis2=2) / self.rho
        c, scores = np.zeros_like(self.near), self.near
        for _ in range(2):
            _, slopes, bends = self.loss.at(scores, self.y)
            c += (slopes - c) / (1 + bends * own)
            scores = self.start(c)
        return c

    def take(self, rows: npt.NDArray[np.bool_]) -> _Dual:
        return _Dual(self.near[rows], self.y[rows], self.rho, self.loss, self.products[rows])

    def residual(self, c: Array, slopes: Array) -> tuple[Array, Array]:
        # The gradient is X'(slopes - c), of which only the norm is needed.
        gap = slopes - c
        squares = _dots(gap, _apply(self.products, gap))
        return gap, np.sqrt(np.maximum(squares, 0.0))

    def direction(self, c: Array, gap: Array, bends: Array) -> tuple[Array, Array, Array]:
        n = c.shape[1]
        system: Array = self.products * (bends / self.rho)[..., np.newaxis]
        system[:, np.arange(n), np.arange(n)] += 1.0
        step = np.asarray(np.linalg.solve(system, gap[..., np.newaxis])[..., 0], np.float64)
        moved = -_apply(self.products, step) / self.rho
        return step, moved, _dots(gap, moved)

    def penalty(
        self, c: Array, step: Array, scores: Array, moved: Array
    ) -> tuple[Array, Array, Array]:
        away = self.near - scores  # the products times c, over rho
        return 0.5 * _dots(c, away), _dots(step, away), -0.5 * _dots(step, moved)


def _newton(problem: _Primal | _Dual, start: Array, tolerance: float | None) -> Array:
    """Damped Newton's method; users that have arrived are left out of further steps."""
    unknown = start.copy()
    open_rows = np.arange(len(unknown))
    scores = problem.start(unknown)
    if tolerance is None:
        limit = 1e-10 * np.maximum(1.0, _at_zero(problem, unknown))
    else:
        limit = np.full(len(unknown), tolerance)
    for _ in range(_MOST_STEPS):
        now = unknown[open_rows]
        values, slopes, bends = problem.loss.at(scores, problem.y)
        residual, norms = problem.residual(now, slopes)
        far = norms > limit
        if not far.any():
            return unknown
        if not far.all():
            problem, scores, now = problem.take(far), scores[far], now[far]
            values, bends, residual = values[far], bends[far], residual[far]
            open_rows, limit = open_rows[far], limit[far]
        step, moved, slope = problem.direction(now, residual, bends)
        length = _line_search(problem, now, scores, values.sum(axis=1), step, moved, slope)
        unknown[open_rows] = now + length[:, np.newaxis] * step
        # Afresh rather than by adding what moved, so that rounding does not accumulate.
        scores = problem.start(unknown[open_rows])
    raise ArithmeticError("The local solver did not reach its tolerance; nothing was released.")


def _at_zero(problem: _Primal | _Dual, like: Array) -> Array:
    """Norms of the gradients at z."""
    zero = np.zeros_like(like)
    return problem.residual(zero, problem.loss.at(problem.start(zero), problem.y)[1])[1]


def _coast(problem: _Primal, start: Array, tolerance: float) -> Array:
    """Steps with the Hessians of an earlier call, as long as they halve the gradient.

    Hessians change little from round to round, and cost as much as d gradients.
    """
    u = start.copy()
    rows = np.arange(len(u))
    gradient, norms = problem.residual(u, problem.loss.at(problem.start(u), problem.y)[1])
    for _ in range(_MOST_STEPS):
        going = norms > tolerance
        if not going.any():
            break
        if not going.all():
            problem, rows = problem.take(going), rows[going]
            gradient, norms = gradient[going], norms[going]
        trial = u[rows] - _apply(problem.inverses[problem.rows], gradient)
        slopes = problem.loss.at(problem.start(trial), problem.y)[1]
        gradient, after = problem.residual(trial, slopes)
        good = after < 0.5 * norms
        u[rows[good]] = trial[good]
        norms = np.where(good, after, 0.0)
    return u


def _line_search(
    problem: _Primal | _Dual,
    now: Array,
    scores: Array,
    values: Array,
    step: Array,
    moved: Array,
    slope: Array,
) -> Array:
    """Step lengths 1, 1/2, 1/4, ... that decrease each user's objective enough.

    A step that ends before the minimum along it decreases a convex objective for sure. The slope
    there tells, however large the objective is, and with it the rounding of its values.
    """
    constant, linear, square = problem.penalty(now, step, scores, moved)
    before = values + constant
    length = np.ones(len(now))
    waiting = np.ones(len(now), dtype=np.bool_)
    while waiting.any():
        s = length[waiting]
        trial = scores[waiting] + s[:, np.newaxis] * moved[waiting]
        losses, slopes, _ = problem.loss.at(trial, problem.y[waiting])
        after = losses.sum(axis=1) + constant[waiting]
        after += s * (linear[waiting] + s * square[waiting])
        wanted = before[waiting] + _DECREASE * s * slope[waiting]
        poor = after > wanted + _ROUNDING * np.abs(before[waiting])
        rest = _dots(slopes, moved[waiting]) + linear[waiting] + 2 * s * square[waiting]
        poor |= rest > _OVERSHOOT * np.abs(slope[waiting])
        poor &= (rest > 0.0) & (s > 1e-9)
        rows = np.flatnonzero(waiting)
        waiting[rows[~poor]] = False
        length[rows[poor]] *= 0.5
    return length


def _dots(a: Array, b: Array) -> Array:
    return np.asarray(np.einsum("ij,ij->i", a, b))


def _apply(matrices: Array, vectors: Array) -> Array:
    return np.matmul(matrices, vectors[..., np.newaxis])[..., 0]  # type: ignore[no-any-return]


def _apply_transposed(matrices: Array, vectors: Array) -> Array:
    return np.matmul(vectors[:, np.newaxis, :], matrices)[:, 0]  # type: ignore[no-any-return]


def _cut(order: Index, sizes: npt.NDArray[np.intp], d: int) -> list[Index]:
    """Users in ascending order of size, cut into blocks of similar and bounded size."""
    blocks, begin = [], 0
    while begin < len(order):
        rest = sizes[begin:]
        full = rest > _SLACK * rest[0] + 4
        full |= np.arange(1, len(rest) + 1) * rest * d > _BLOCK
        full[0] = False
        end = begin + int(full.argmax()) if full.any() else len(order)
        blocks.append(order[begin:end])
        begin = end
    return blocks
