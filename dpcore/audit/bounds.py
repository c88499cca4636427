"""Exact confidence bounds: Clopper-Pearson for shares, and the p-value of a one-run audit.

Binomial tails are regularised incomplete beta functions, computed here by the continued fraction
that converges fast far from the mean. Bounds are found by bisection, and err to the careful side.
"""

from __future__ import annotations

import math
from statistics import NormalDist

__all__ = ["log_tail", "lower_share", "one_run_epsilon", "one_run_p_value", "upper_share"]

_TINY = 1e-300
_STEPS = 100_000
# Rounding errors of lgamma at counts of 10**9 stay below this part of a tail.
_CARE = 1e-5


def log_tail(k: int, n: int, p: float) -> float:
    """Logarithm of P[X >= k] for X binomial with n trials of chance p.

    >>> round(math.exp(log_tail(75, 100, 0.75)), 4)
    0.5535
    """
    if k <= 0:
        return 0.0
    if k > n or p <= 0:
        return -math.inf
    if p >= 1:
        return 0.0
    a, b = k, n - k + 1
    if p <= (a + 1) / (a + b + 2):
        return min(0.0, _log_beta_tail(a, b, p))
    return math.log1p(-min(math.exp(_log_beta_tail(b, a, 1 - p)), 1 - 1e-16))


def lower_share(k: int, n: int, alpha: float) -> float:
    """Clopper-Pearson: a number that is above the true share with probability at most alpha.

    >>> round(lower_share(75, 100, 0.025), 4), lower_share(0, 10, 0.1)
    (0.6534, 0.0)
    """
    if k <= 0:
        return 0.0
    target, low, high = math.log(alpha) + math.log1p(-_CARE), 0.0, k / n
    for _ in range(200):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        if log_tail(k, n, middle) <= target:
            low = middle
        else:
            high = middle
        if high - low <= 1e-12 * low:
            break
    return low


def upper_share(k: int, n: int, alpha: float) -> float:
    """Clopper-Pearson: a number that is below the true share with probability at most alpha."""
    return 1 - lower_share(n - k, n, alpha)


def one_run_p_value(m: int, r: int, v: int, epsilon: float, delta: float) -> float:
    """Bound on the chance of v right guesses of r about m canaries, under (epsilon, delta)-DP.

    Every canary takes part by a fair coin of its own; the guesser abstains from m - r. This is the
    bound of Steinke, Nasr and Jagielski, "Privacy auditing with one (1) training run" (2023).
    """
    chance = 1 / (1 + math.exp(-epsilon))
    tail = math.exp(log_tail(v, r, chance)) * (1 + _CARE)
    if delta == 0:
        return min(tail, 1.0)
    steepest, below = 0.0, 0.0
    for i in range(1, v + 1):
        below += math.exp(_log_chance(v - i, r, chance)) * (1 + _CARE)
        steepest = max(steepest, below / i)
    return min(tail + 2 * m * delta * steepest, 1.0)


def one_run_epsilon(m: int, r: int, v: int, delta: float, alpha: float) -> float:
    """The largest epsilon that v right guesses of r about m canaries refute at level alpha."""
    if one_run_p_value(m, r, v, 0.0, delta) >= alpha:
        return 0.0
    low, high = 0.0, 1.0
    while one_run_p_value(m, r, v, high, delta) < alpha:
        low, high = high, 2 * high
    for _ in range(40):
        middle = (low + high) / 2
        if one_run_p_value(m, r, v, middle, delta) < alpha:
            low = middle
        else:
            high = middle
    return low


def quantile(share: float) -> float:
    """Quantile of the standard normal law, infinite at 0 and 1."""
    if not 0 < share < 1:
        return math.inf if share >= 1 else -math.inf
    return NormalDist().inv_cdf(share)


def _log_chance(k: int, n: int, p: float) -> float:
    choices = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
    return choices + k * math.log(p) + ((n - k) * math.log1p(-p) if k < n else 0.0)


def _log_beta_tail(a: float, b: float, x: float) -> float:
    """log I_x(a, b) by Lentz's method, for x up to about the mean of the beta law."""
    front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) - math.log(a)
    front += a * math.log(x) + b * math.log1p(-x)
    c, d = 1.0, 1 - (a + b) * x / (a + 1)
    d = 1 / (d if abs(d) > _TINY else _TINY)
    value = d
    for m in range(1, _STEPS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1 + term * d
            d = 1 / (d if abs(d) > _TINY else _TINY)
            c = 1 + term / c
            c = c if abs(c) > _TINY else _TINY
            change = c * d
            value *= change
        if abs(change - 1) < 1e-14:
            return front + math.log(value)
    raise ArithmeticError("A binomial tail did not converge.")
