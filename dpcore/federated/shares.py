r"""Noise that many users make together, and what the sums that carry it cost.

Every user adds a discrete Gaussian share of deviation s to integers on a grid. Two facts make the
sum of h shares as good as the continuous Gaussian mechanism, with a distance in total variation
that is far below any delta. Let :math:`\phi_s` be the density of deviation s, and
:math:`\epsilon(s) = 2 \sum_{k \ge 1} e^{-2 \pi^2 s^2 k^2}`. By Poisson's summation formula the sum
of :math:`\phi_s` over the integers, shifted by any amount, lies within :math:`\epsilon(s)` of 1.

1. The product of two densities of deviations a and b is one of deviation
   :math:`\sqrt{a^2 + b^2}` times one of deviation :math:`ab/\sqrt{a^2+b^2}`. So the sum of two
   discrete Gaussians has, at every integer, the probability of the discrete Gaussian of deviation
   :math:`\sqrt{a^2+b^2}`, up to a factor that :math:`\epsilon(ab/\sqrt{a^2+b^2})` bounds. Adding
   shares one by one, the factors are within `share_distance` of 1.
2. Add continuous noise of deviation t to an integer, then draw an integer from the discrete
   Gaussian of deviation r around the result. By the same formula this is the discrete Gaussian of
   deviation :math:`\sqrt{t^2 + r^2}`, up to factors that :math:`\epsilon(r)` bounds. The second
   step does not look at the data, so the sum of shares is post-processing of a continuous Gaussian
   mechanism of deviation :math:`\sqrt{h s^2 - r^2}`.

All rounds then compose as Gaussian mechanisms do, exactly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from dpcore import random
from dpcore._checks import round_up
from dpcore._events import GaussianEvent
from dpcore._exact import floor_log2
from dpcore._laws import MAX_SIGMA
from dpcore.accounting import compose
from dpcore.calibration import gaussian_sigma
from dpcore.errors import ParameterError
from dpcore.noise import Noise
from dpcore_ext.sample import dequantize, quantize

__all__ = [
    "ACCOUNTINGS",
    "TOLERANCE",
    "Plan",
    "classical_epsilon",
    "log2_limit",
    "plan",
    "share_distance",
    "stateful_shifts",
]

ACCOUNTINGS = ("share", "stateful")
TOLERANCE = 1e-10  # of local minima, over the largest gradient of a record

_LOG2_SHARE = 24  # deviation of a share, in units of the grid
_SMOOTHING = 4  # r of fact 2: exp(-2 pi^2 r^2) is below 1e-137
_LAW_DISTANCE = 2.0**-78  # of the sampled law from the ideal one, for 2**40 elements
_RESERVE = 1 - 2.0**-19  # of delta; the rest is for distances between laws


@dataclass(frozen=True)
class Plan:
    """Noise of a whole run, and its cost.

    Attributes
    ----------
    event : GaussianEvent
        The cost of all rounds together, from the integers that the sampler uses.
    fraction_bits : int
        Messages are multiples of 2**-fraction_bits.
    deviations : tuple of Fraction
        For each round, the deviation of one user's share, in units of the grid.
    n_shares : int
        Shares in a sum that come from users who follow the protocol.
    noise_multiplier : float
        Deviation of the noise of a sum over the sensitivity of one step: the quantity from which
        publications compute an epsilon per round.
    """

    event: GaussianEvent
    fraction_bits: int
    deviations: tuple[Fraction, ...]
    n_shares: int
    noise_multiplier: float

    def for_rounds(self, n_rounds: int) -> Plan:
        """The same noise for as many rounds as there are, where no user takes part in all."""
        missing = n_rounds - len(self.deviations)
        return replace(self, deviations=self.deviations + self.deviations[-1:] * missing)

    def sigma(self, number: int) -> float:
        """Deviation of the noise of a sum of n_shares users in a round, as a real number."""
        units = float(self.deviations[number]) * math.sqrt(self.n_shares)
        return math.ldexp(units, -self.fraction_bits)

    def quantize(self, x: npt.NDArray[np.float64], n: int) -> npt.NDArray[np.int64]:
        """x on the grid, clamped so that sums of n rows do not wrap."""
        limit = math.ldexp(1.0, log2_limit(n) - self.fraction_bits)
        flat, out = np.ascontiguousarray(x).reshape(-1), np.empty(x.size, np.int64)
        quantize(flat, -limit, limit, -self.fraction_bits, out)
        return out.reshape(x.shape)

    def dequantize(self, units: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Integers of the grid as real numbers."""
        flat, out = np.ascontiguousarray(units).reshape(-1), np.empty(units.size)
        dequantize(flat, -self.fraction_bits, out)
        return out.reshape(units.shape)

    def draw(
        self, noise: Noise, number: int, users: npt.NDArray[np.intp], d: int
    ) -> npt.NDArray[np.int64]:
        """Shares of some users in a round: those of user i are elements i * d, ... of the round."""
        source = noise.stream("round", number)
        first, last = int(users[0]), int(users[-1]) + 1
        drawn = random.discrete_gaussian(
            self.deviations[number], (last - first, d), noise=source, start=first * d
        )
        return np.asarray(drawn)[users - first]


def plan(
    *,
    d: int,
    steps: Sequence[Fraction],
    shifts: Sequence[Fraction],
    n_shares: int,
    in_sum: bool,
    epsilon: float | None,
    delta: float,
    noise_multiplier: float | None,
    mechanism: str,
    adjacency: str,
) -> Plan:
    """The least noise for a loss, or the loss for a given noise.

    Parameters
    ----------
    d : int
        Length of a message.
    steps : sequence of Fraction
        For each round, the sensitivity of one local step; the noise of a round is in proportion.
    shifts : sequence of Fraction
        For each round, how far one record can move what is released, all rounds before given.
    n_shares : int
        Honest shares in every sum.
    in_sum : bool
        Whether the guarantee is for the sum; else it is for a single user's share.
    epsilon, delta : float
        Loss of all rounds together.
    noise_multiplier : float, optional
        Deviation of the noise of a sum over the sensitivity of one step, instead of epsilon.
    """
    count = n_shares if in_sum else 1
    ratio = math.sqrt(sum(float(b / a) ** 2 for a, b in zip(steps, shifts, strict=True)))
    ratio *= math.sqrt(n_shares / count)
    if noise_multiplier is None:
        if epsilon is None:
            raise ParameterError("The 'epsilon' or the 'noise_multiplier' parameter must be given.")
        multiplier = ratio * gaussian_sigma(epsilon, delta * _RESERVE)
    else:
        multiplier = float(noise_multiplier)
    least = min(float(step) for step in steps) * multiplier / math.sqrt(n_shares)
    fraction_bits = min(52, max(0, _LOG2_SHARE - floor_log2(Fraction(least))))
    unit, root = Fraction(1, 1 << fraction_bits), _root_up(d)
    distances = [shift / unit + root for shift in shifts]
    # The grid moves each neighbour by sqrt(d) units more, and fact 2 takes r off: made good here.
    growth = max(float(q * unit / s) for q, s in zip(distances, shifts, strict=True)) * (1 + 1e-9)
    for _ in range(50):
        scale = Fraction(multiplier * growth / math.sqrt(n_shares)).limit_denominator(1 << 60)
        deviations = tuple(Fraction(math.ceil(step / unit * scale * 256), 256) for step in steps)
        if not 2 * _SMOOTHING <= min(deviations) <= max(deviations) <= MAX_SIGMA:
            raise ParameterError(
                "The 'epsilon' or the 'noise_multiplier' parameter, with 'row_norm', must ask for "
                "noise that the grid can show: from 8 to 2**36 units."
            )
        square = sum(
            q * q / (count * s * s - _SMOOTHING**2)
            for q, s in zip(distances, deviations, strict=True)
        )
        mu = math.nextafter(math.sqrt(round_up(Fraction(square))), math.inf)
        distance = d * share_distance(float(min(deviations)), count) + _LAW_DISTANCE
        event = GaussianEvent(
            mechanism=mechanism,
            noise_multiplier=math.nextafter(1 / mu, 0.0),
            law_distance=len(steps) * distance,
            adjacency=adjacency,
            unit="record",
            parameters=(
                ("rounds", len(steps)),
                ("noise over one step", multiplier),
                ("epsilon of one round, classical formula", classical_epsilon(multiplier, delta)),
            ),
        )
        # Asked for by its multiplier, the noise need not meet a loss: the event says what it costs.
        if noise_multiplier is not None or compose([event]).epsilon(delta) <= float(epsilon or 0):
            return Plan(event, fraction_bits, deviations, n_shares, multiplier)
        growth *= 1 + 1e-7
    raise ParameterError("The 'delta' parameter must exceed 2**-50 * (1 + e**epsilon) per round.")


def log2_limit(n: int) -> int:
    """Exponent of the largest message, in units, of which n are summed: exact as doubles too."""
    return min(50, 60 - n.bit_length())


def share_distance(deviation: float, count: int) -> float:
    """How far a sum of discrete Gaussian shares is from one discrete Gaussian, per coordinate.

    A bound on the logarithm of the ratio of probabilities (and so on the total variation), with
    fact 2 included.

    >>> f"{share_distance(1.5, 100):.1e}"
    '2.3e-09'
    """
    j = np.arange(1, count)
    total = 10 * float(np.exp(-2 * math.pi**2 * deviation**2 * j / (j + 1)).sum())
    return total + 10 * math.exp(-2 * math.pi**2 * _SMOOTHING**2)


def classical_epsilon(noise_multiplier: float, delta: float) -> float:
    """The epsilon that publications state for one round: sqrt(2 log(1.25 / delta)) / multiplier.

    Not a guarantee: it is for one round of many, and its formula is proven below 1 only.
    """
    return math.sqrt(2 * math.log(1.25 / delta)) / noise_multiplier


def stateful_shifts(
    steps: Sequence[Fraction],
    rho: Sequence[float],
    smoothness: float,
    relaxation: float = 1.0,
) -> list[Fraction]:
    r"""How far one record can move w + lambda in each round, where users keep a noise-free state.

    The state of a user is the point z = a w0 + (1 - a) w - lambda near which it minimises, a being
    the relaxation: w = P(z), lambda = P(z) - z. What it sends is 2 P(z) - z, which does not expand,
    so ``shift = e + 2 D`` for points e apart and a step of sensitivity D. The next point is
    ``a w0 + c (z - b P(z))`` with c = rho / next rho and b = 1 + (a - 1) / c. P is the gradient of
    a convex function with slopes from 1 - kappa to 1, kappa = L / (L + rho) for a loss of
    smoothness L, so ``e <- c max(abs(1 - b), abs(1 - b (1 - kappa))) e + c b D``.
    """
    a, weights = Fraction(relaxation), [Fraction(value) for value in rho]
    apart, shifts = Fraction(0), []
    for step, weight, following in zip(steps, weights, [*weights[1:], weights[-1]], strict=False):
        shifts.append(Fraction(round_up(apart + 2 * step)))
        kappa = Fraction(smoothness) / (Fraction(smoothness) + weight)
        c = weight / following
        b = 1 + (a - 1) / c
        factor = c * max(abs(1 - b), abs(1 - b * (1 - kappa)))
        apart = Fraction(round_up(factor * apart + abs(c * b) * step))
    return shifts


def _root_up(d: int) -> Fraction:
    return Fraction(math.isqrt(d << 64) + 1, 1 << 32)
