"""Sampled Gaussian releases: the accountants of dp-accounting, never one of our own."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from dpcore._checks import check_index, exact
from dpcore.calibration import gaussian_sigma
from dpcore.errors import ParameterError

__all__ = ["LEAST_NOISE", "calibrate_noise", "check_sampling", "pld_epsilon", "rdp_epsilon"]

# Width of the grid of privacy losses; estimates are pessimistic, so a coarser one is safe.
DISCRETISATION = 1e-4
# Distributions of privacy losses fit in memory with this much noise, whatever the rest is. Where
# less would do there is hardly any sampling, or a loss that protects nobody.
LEAST_NOISE = 0.3
# The accountant cannot follow more steps, nor tell smaller rates from 0.
LEAST_RATE, MOST_STEPS = 1e-9, 10**6
# Noise multipliers are searched up to this, and to this ratio.
_MOST_LOG_MULTIPLIER = 40.0
_ACCURACY = 1e-5
_MUCH = 2.0

Sampled = Mapping[tuple[float, float], int]


def pld_epsilon(
    sampled: Sampled, gaussian: float, delta: float, grid: float = DISCRETISATION
) -> float:
    """Epsilon of sampled Gaussians, (noise multiplier, rate): count, and of a mu**2-GDP part.

    Privacy
    -------
    Pessimistic privacy loss distributions under add-remove: never below the truth.
    """
    accountant = _dp_accounting("pld").PLDAccountant(value_discretization_interval=grid)
    _feed(accountant, sampled, gaussian)
    return float(accountant.get_epsilon(delta))


def rdp_epsilon(sampled: Sampled, gaussian: float, rho: float, delta: float) -> float:
    """As `pld_epsilon` by Renyi divergences, which also take a rho-zCDP part."""
    accountant = _dp_accounting("rdp").RdpAccountant()
    _feed(accountant, sampled, gaussian)
    if rho:
        accountant.compose(_dp_accounting("dp_event").ZCDpEvent(rho))
    return float(accountant.get_epsilon(delta))


def calibrate_noise(
    epsilon: float, delta: float, sampling_rate: float = 1.0, steps: int = 1
) -> float:
    """The noise multiplier that makes a whole run of sampled Gaussian steps (epsilon, delta)-DP.

    Parameters
    ----------
    epsilon, delta : float
        Privacy of all steps together.
    sampling_rate : float
        Chance of a record to be in the Poisson sample of a step; 1 for all records in every step,
        and 1e-9 at least.
    steps : int
        Number of steps; 10**6 at most where `sampling_rate` is below 1.

    Returns
    -------
    float
        Standard deviation of the noise over the l2 sensitivity of one step; with sampling 0.3 at
        least, even where less would do.

    Privacy
    -------
    Add-remove adjacency. Found by bisection on privacy loss distributions, and rounded so that the
    accountant's epsilon at the result is at most the one asked for; for `sampling_rate` 1 by the
    exact composition of Gaussians.

    Cost
    ----
    About a second, and more as epsilon grows; dp-accounting is needed unless `sampling_rate` is 1.

    Examples
    --------
    >>> round(calibrate_noise(1.0, 1e-5), 6)
    3.730632
    >>> 4.28 < calibrate_noise(0.6, 1e-5, sampling_rate=0.01, steps=5000) < 4.3
    True
    """
    loss, chance = float(exact(epsilon, "epsilon")), float(exact(delta, "delta"))
    rate = float(exact(sampling_rate, "sampling_rate"))
    if not loss > 0 or not 0 < chance < 1:
        raise ParameterError("The 'epsilon' and 'delta' parameters must be > 0 and in (0, 1).")
    if not 0 < rate <= 1:
        raise ParameterError("The 'sampling_rate' parameter must lie above 0 and be at most 1.")
    steps = check_index(steps, "steps", least=1)
    check_sampling(rate, steps, "steps")
    if rate == 1:
        single = gaussian_sigma(loss, chance)
        return math.nextafter(single * math.nextafter(math.sqrt(steps), math.inf), math.inf)

    def search(start: float, step: float, accuracy: float, grid: float) -> float:
        def excess(log_multiplier: float) -> float:
            found = pld_epsilon({(math.exp(log_multiplier), rate): steps}, 0.0, chance, grid)
            return math.log(max(found, 1e-12) / loss)

        return _crossing(excess, start, step, accuracy)

    # Without sampling it takes more noise, so this is an upper end, or near it.
    found = math.log(max(gaussian_sigma(loss, chance) * math.sqrt(steps) * 1.001, LEAST_NOISE))
    if loss <= _MUCH:
        return math.exp(search(found, 0.7, _ACCURACY, DISCRETISATION))
    # Large losses take long on the fine grid. On a coarse one the answer is close, and only close:
    # it is the fine one that decides.
    found = search(found, 0.7, 1e-3, DISCRETISATION * 10 * loss)
    return math.exp(search(found, 2e-3, _ACCURACY, DISCRETISATION))


def check_sampling(rate: float, steps: int, name: str) -> None:
    """Refuse runs that the accountant cannot follow; `name` is what the steps are called."""
    if rate < LEAST_RATE:
        raise ParameterError("The 'sampling_rate' parameter must be at least 1e-9.")
    if rate < 1 and steps > MOST_STEPS:
        raise ParameterError(
            f"The '{name}' parameter must be at most 10**6 where 'sampling_rate' is below 1."
        )


def _crossing(
    excess: Callable[[float], float], start: float, step: float, accuracy: float
) -> float:
    """Where a falling function comes down to 0, from above: at the result it is at most 0.

    Steps from `start` grow until the place lies between two of them.
    """
    high = low = start
    above = below = excess(start)
    while above > 0:
        low, below = high, above
        high, step = high + step, 1.5 * step
        if high > _MOST_LOG_MULTIPLIER:
            raise ParameterError(
                "The 'epsilon' parameter must be larger: the accountant cannot show so little."
            )
        above = excess(high)
    least = math.log(LEAST_NOISE)
    while below <= 0:
        if low <= least:
            return low
        high, above = low, below
        low, step = max(low - step, least), 1.5 * step
        below = excess(low)
    # Regula falsi, where the relation is nearly straight; an end that stays is halved (Illinois).
    side = 0
    while high - low > accuracy:
        middle = low + (high - low) * below / (below - above)
        middle = min(max(middle, low + accuracy / 2), high - accuracy / 2)
        found = excess(middle)
        if found <= 0:
            high, above = middle, found
            below, side = below / 2 if side > 0 else below, 1
        else:
            low, below = middle, found
            above, side = above / 2 if side < 0 else above, -1
    return high


def _feed(accountant: Any, sampled: Sampled, gaussian: float) -> None:
    events = _dp_accounting("dp_event")
    for (multiplier, rate), count in sorted(sampled.items()):
        gauss = events.GaussianDpEvent(multiplier)
        accountant.compose(events.PoissonSampledDpEvent(rate, gauss), count)
    if gaussian:
        largest = math.nextafter(1 / math.nextafter(math.sqrt(gaussian), math.inf), 0.0)
        accountant.compose(events.GaussianDpEvent(largest))


def _dp_accounting(part: str) -> Any:
    try:
        import dp_accounting
        from dp_accounting import pld, rdp
    except ImportError:
        raise ImportError(
            "Accounting for sampled Gaussian noise needs dp-accounting: install dpcore[accounting]."
        ) from None
    return {"pld": pld, "rdp": rdp, "dp_event": dp_accounting}[part]
