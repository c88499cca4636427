r"""Noise that nobody knows as a whole: each client adds a share before it masks.

Shares are discrete Gaussian of deviation :math:`s`. The sum of :math:`h` of them is close to a
discrete Gaussian: by Kairouz, Liu and Steinke (2021, "The distributed discrete Gaussian mechanism",
theorem 1) a vector of dimension :math:`d` with l2 sensitivity :math:`D`, in units of the ring, is
released with :math:`\epsilon^2/2`-concentrated privacy, where

.. math:: \tau = 10 \sum_{j=1}^{h-1} e^{-2 \pi^2 s^2 j/(j+1)}, \quad
    \epsilon = \min\left(\sqrt{D^2/(h s^2) + \tau d / 2},\; D/(\sqrt{h} s) + \tau \sqrt{d}\right).

Shares of Skellam noise are not offered: their sums are Skellam exactly, but from 2 units on
:math:`\tau` is below 1e-16, and the bound of Skellam noise has a further term.

Only the noise of honest survivors counts. More of them than planned only add independent noise, and
wrapping in the ring is post-processing, so the bound holds for every set that clients accept.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from dpcore._checks import check_index, check_instance, check_positive, exact
from dpcore._laws import MAX_SIGMA
from dpcore.accounting import ZCDPEvent, zcdp_epsilon
from dpcore.errors import ParameterError
from dpcore.secure.ring import FixedPoint

__all__ = [
    "LEAST_SIGMA",
    "DistributedGaussian",
    "distributed_gaussian",
    "honest_survivors",
    "share_sigma",
]

LEAST_SIGMA = 2  # below it sums of shares are visibly not Gaussian
_STEP = 1 << 16
_UP = 1 + 1e-12  # more than the float operations below lose


@dataclass(frozen=True)
class DistributedGaussian:
    """The privacy of a sum to which each client adds a discrete Gaussian share.

    Parameters
    ----------
    share_sigma : Fraction
        Deviation of one share in units of the ring: ``noise_sigma`` of `Parameters`.
    honest : int
        Honest clients among the fewest survivors that are accepted.
    sensitivity : Fraction
        l2 sensitivity in units of the ring, rounding included; see `FixedPoint.sensitivity`.
    dimension : int

    Privacy
    -------
    Bounds are rounded up. They cover everyone who sees the sum and does not know the honest
    clients' noise: the server and up to ``survivors - honest`` clients together. The unit is
    whatever the sensitivity was stated for.

    Cost
    ----
    At most 64 exponentials for each property, and a search of 100 steps for `epsilon`; nothing
    grows with the dimension or the number of clients.

    Examples
    --------
    >>> plan = DistributedGaussian(Fraction(2), 100, Fraction(5), 10)
    >>> round(plan.epsilon_of_concentration, 6), plan.epsilon(1e-5) < 1.2
    (0.25, True)
    """

    share_sigma: Any
    honest: int
    sensitivity: Any
    dimension: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "share_sigma", check_positive(self.share_sigma, "share_sigma"))
        object.__setattr__(self, "sensitivity", check_positive(self.sensitivity, "sensitivity"))
        check_index(self.honest, "honest", least=1)
        check_index(self.dimension, "dimension", least=1)
        if self.share_sigma < LEAST_SIGMA:
            raise ParameterError("The 'share_sigma' parameter must be at least 2 units.")
        if self.share_sigma > MAX_SIGMA:
            raise ParameterError("The 'share_sigma' parameter must be at most 2**36 units.")

    @property
    def tau(self) -> float:
        """How far sums of shares are from Gaussian."""
        square = 2 * math.pi**2 * float(self.share_sigma) ** 2 * (1 - 1e-12)
        # Terms shrink towards the limit; those from 64 on are bounded by the 64th.
        near = min(self.honest - 1, 64)
        terms = sum(math.exp(-square * j / (j + 1)) for j in range(1, near + 1))
        far = (self.honest - 1 - near) * math.exp(-square * 64 / 65)
        return 10 * (terms + far) * _UP

    @property
    def epsilon_of_concentration(self) -> float:
        """The epsilon of epsilon**2 / 2 concentrated (zCDP) privacy."""
        ratio = float(self.sensitivity) / (math.sqrt(self.honest) * float(self.share_sigma)) * _UP
        d, tau = self.dimension, self.tau
        return min(math.sqrt(ratio**2 + tau * d / 2), ratio + tau * math.sqrt(d)) * _UP

    @property
    def rho(self) -> float:
        """The zCDP parameter; those of several rounds add up."""
        return self.epsilon_of_concentration**2 / 2 * _UP

    def epsilon(self, delta: float, rounds: int = 1) -> float:
        """The privacy loss of so many rounds together, at a failure probability delta."""
        return zcdp_epsilon(self.rho * rounds * _UP, delta)

    def event(self, *, unit: str, adjacency: str, rounds: int = 1) -> ZCDPEvent:
        """What a client's ledger is charged for so many rounds.

        Examples
        --------
        >>> plan = DistributedGaussian(Fraction(2), 100, Fraction(5), 10)
        >>> round(plan.event(unit="client", adjacency="replace").rho, 6)
        0.03125
        """
        return ZCDPEvent(
            mechanism="distributed discrete Gaussian",
            rho=self.rho,
            adjacency=adjacency,
            unit=unit,
            count=rounds,
        )


def honest_survivors(min_survivors: int, honest_fraction: float) -> int:
    """How many clients' noise can be counted on, of the fewest survivors that are accepted.

    Privacy
    -------
    A calculation with public numbers; no data are read. That `honest_fraction` holds is the
    caller's claim: noise planned for more honest clients than there are protects less.

    Cost
    ----
    A few operations.

    Examples
    --------
    >>> honest_survivors(67, 0.9)
    61
    """
    fraction = exact(honest_fraction, "honest_fraction")
    if not 0 < fraction <= 1:
        raise ParameterError("The 'honest_fraction' parameter must lie between 0 and 1.")
    # Rounded first: a fraction of 0.1 is a little more as a float, and must not count for more.
    survivors = check_index(min_survivors, "min_survivors", least=1)
    return max(1, math.ceil(round(fraction * survivors, 6)))


def share_sigma(sigma: float, honest: int) -> Fraction:
    """The share with which `honest` clients' noise has a variance of at least sigma**2.

    The deviation sigma / sqrt(honest) is rounded up by more than what the variance of a discrete
    Gaussian falls short of its parameter: for 2 units and more that is less than 1e-30.

    Privacy
    -------
    A calculation with public numbers; no data are read. The share is rounded up.

    Cost
    ----
    A few operations on integers.

    Examples
    --------
    >>> float(share_sigma(40.0, 100))
    4.000030517578125
    """
    square = check_positive(sigma, "sigma") ** 2 * _STEP**2 / check_index(honest, "honest", least=1)
    share = Fraction(math.isqrt(math.floor(square)) + 2, _STEP)
    if share < LEAST_SIGMA:
        raise ParameterError("The 'sigma' parameter must give shares of at least 2 units.")
    return share


def distributed_gaussian(
    fixed_point: FixedPoint,
    dimension: int,
    *,
    sensitivity: float,
    min_survivors: int,
    honest_fraction: float,
    epsilon: float,
    delta: float,
    rounds: int = 1,
) -> DistributedGaussian:
    """The smallest share of noise, to 2**-16 units, that gives a privacy loss.

    Parameters
    ----------
    fixed_point : FixedPoint
    dimension : int
        Length of the vectors.
    sensitivity : float
        How far, in l2 distance before rounding, the sum moves when what is protected changes.
    min_survivors : int
        As in `Parameters`: the sum of fewer is never disclosed.
    honest_fraction : float
        Fraction of the survivors, 0 < f <= 1, whose noise the adversary does not know.
    epsilon, delta : float
        The loss of all rounds together.
    rounds : int
        How often the same data are summed.

    Privacy
    -------
    Nothing is released here. `sensitivity` and `honest_fraction` are the caller's claims; the
    bound of the result is rounded up.

    Cost
    ----
    A bisection, milliseconds.

    Examples
    --------
    >>> point = FixedPoint(bound=1.0, fraction_bits=16)
    >>> plan = distributed_gaussian(point, 10, sensitivity=2.0, min_survivors=67,
    ...     honest_fraction=0.9, epsilon=1.0, delta=1e-5)
    >>> plan.honest, plan.epsilon(1e-5) <= 1.0
    (61, True)
    """
    check_instance(fixed_point, "fixed_point", FixedPoint)
    target = check_positive(epsilon, "epsilon")
    rounds = check_index(rounds, "rounds", least=1)
    honest = honest_survivors(min_survivors, honest_fraction)
    distance = fixed_point.sensitivity(check_positive(sensitivity, "sensitivity"), dimension)

    def plan(steps: int) -> DistributedGaussian:
        return DistributedGaussian(Fraction(steps, _STEP), honest, distance, dimension)

    low, high = LEAST_SIGMA * _STEP - 1, int(MAX_SIGMA) * _STEP
    if plan(high).epsilon(delta, rounds) > target:
        raise ParameterError("The 'epsilon' parameter is too small for this ring and sensitivity.")
    while high - low > 1:
        middle = (low + high) // 2
        enough = plan(middle).epsilon(delta, rounds) <= target
        low, high = (low, middle) if enough else (middle, high)
    return plan(high)
