"""How the budget of a training run is spent, and the noise that follows from it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from dpcore._checks import check_choice, check_index, check_positive, exact
from dpcore._gradients import descent_event
from dpcore.accounting import (
    Event,
    Privacy,
    PureEvent,
    calibrate_noise,
    compose,
    verify,
)
from dpcore.accounting.sampled import LEAST_NOISE, MOST_STEPS, check_sampling
from dpcore.calibration import gaussian_sigma
from dpcore.central import _LAW_DISTANCE
from dpcore.errors import ParameterError

__all__ = ["Plan", "default_steps", "make_plan", "paper_sigma"]

ADJACENCY = "add-remove"
# Parts of mu**2 that a Gaussian start takes: count and centre, radius, class sums.
GAUSSIAN_SHARES = {"centre": 0.05, "radius": 0.02, "sums": 0.15}
COUNT_SHARE = 0.02
LAPLACE_SHARE = 0.2
# With less of the budget a start is nothing but noise.
_LEAST_SHARE = 1e-4
# A little of delta is kept for the distance of the sampled laws from the ideal ones.
_DELTA_KEPT = 1 - 2.0**-19
_ROUND_UP = 1 + 1e-12


@dataclass(frozen=True)
class Plan:
    """The noise of a run and what it costs.

    Attributes
    ----------
    start : dict of str to float
        For each release of the start its noise multiplier, or its epsilon for Laplace.
    step : float
        Noise multiplier of every step.
    events : tuple of Event
    privacy : Privacy
        Of the events together.
    """

    start: dict[str, float]
    step: float
    events: tuple[Event, ...]
    privacy: Privacy


def default_steps(sampling_rate: float) -> int:
    """Steps in which a record takes part 30 times, or 60 of all records."""
    rate = float(check_positive(sampling_rate, "sampling_rate"))
    if rate * MOST_STEPS < 30:
        raise ParameterError(
            "The 'sampling_rate' parameter must be at least 3e-5 where 'n_steps' is not given."
        )
    return 60 if rate >= 1 else round(30 / rate)


def paper_sigma(epsilon: float, delta: float, sampling_rate: float, steps: int) -> float:
    """The noise multiplier of the printed rule, ``2 q sqrt(T log(1 / delta)) / epsilon``.

    It is the form of an asymptotic statement with a guessed constant: too much noise in places, far
    too little in others. `make_plan` lets the accountant judge every use.

    >>> round(paper_sigma(0.6, 1e-5, 0.01, 5000), 9)
    7.997543187
    """
    return 2 * sampling_rate * math.sqrt(steps * math.log(1 / delta)) / epsilon


def make_plan(
    epsilon: float,
    delta: float,
    *,
    start: str,
    sampling_rate: float = 1.0,
    steps: int = 1,
    estimate_radius: bool = True,
    start_share: float | None = None,
    sigma_rule: str = "accountant",
) -> Plan:
    """Noise multipliers for a run that is (epsilon, delta)-DP as a whole.

    Parameters
    ----------
    epsilon, delta : float
        Privacy of start and steps together, under add-remove adjacency.
    start : {"gaussian", "laplace", "independent", "count"}
        What is released before the first step; "count" is the number of records alone.
    sampling_rate, steps
        Of the descent. With sampling there are 10**6 steps at most, with a noise multiplier of
        `LEAST_NOISE` at least.
    estimate_radius : bool
        Whether a Gaussian start also releases a histogram of norms.
    start_share : float, optional
        Part of the budget for the start: of mu**2 for Gaussian releases, of epsilon for Laplace.
        At least 1e-4.
    sigma_rule : {"accountant", "paper"}
        "paper" uses `paper_sigma`, and refuses it where it does not give what it claims.

    Privacy
    -------
    Without sampling all Gaussians compose exactly; with it, by privacy loss distributions. The
    total is computed from the multipliers returned and never exceeds epsilon.
    """
    loss = float(check_positive(epsilon, "epsilon"))
    chance = float(exact(delta, "delta"))
    if not 0 < chance < 1:
        raise ParameterError("The 'delta' parameter must lie between 0 and 1.")
    rate = float(check_positive(sampling_rate, "sampling_rate"))
    if rate > 1:
        raise ParameterError("The 'sampling_rate' parameter must be at most 1.")
    n_steps = check_index(steps, "n_steps", least=1)
    check_sampling(rate, n_steps, "n_steps")
    # The accountant keeps 2**-20 of delta for the distance of the sampled laws.
    if (n_steps + 3) * _LAW_DISTANCE * (1 + math.exp(min(loss, 700.0))) > chance * 2.0**-21:
        raise ParameterError(
            "The 'epsilon' parameter must be smaller, or 'delta' larger: e**epsilon * n_steps may "
            "be at most 2**57 * delta, the accuracy of the noise."
        )
    check_choice(start, "start", ("gaussian", "laplace", "independent", "count"))
    check_choice(sigma_rule, "sigma_rule", ("accountant", "paper"))
    share = None if start_share is None else float(check_positive(start_share, "start_share"))
    if share is not None and not _LEAST_SHARE <= share < 1:
        raise ParameterError("The 'start_share' parameter must be at least 1e-4 and below 1.")
    if sigma_rule == "paper" and start in ("gaussian", "count"):
        raise ParameterError(
            "The 'sigma_rule' parameter may be 'paper' with the starts 'laplace' and "
            "'independent' only."
        )
    return _plan(loss, chance, start, rate, n_steps, estimate_radius, share, sigma_rule)


@lru_cache(maxsize=128)
def _plan(
    epsilon: float,
    delta: float,
    start: str,
    rate: float,
    steps: int,
    estimate_radius: bool,
    share: float | None,
    rule: str,
) -> Plan:
    releases: dict[str, float] = {}
    events: list[Event] = []
    mu = 1 / gaussian_sigma(epsilon, delta * _DELTA_KEPT)
    if start == "laplace":
        half = epsilon * (LAPLACE_SHARE if share is None else share) / 2
        releases = {"counts": half, "sums": half}
        events = [
            PureEvent(mechanism=f"lvq class {name}", epsilon=half, adjacency=ADJACENCY)
            for name in releases
        ]
    elif start != "independent":
        for name, part in _gaussian_shares(start, estimate_radius, share).items():
            releases[name] = _ROUND_UP / (mu * math.sqrt(part))
            events.append(descent_event(f"lvq {name}", releases[name], 1.0, 1, ADJACENCY))
    if rule == "paper":
        rest = epsilon - sum(e.epsilon for e in events if isinstance(e, PureEvent))
        step = paper_sigma(rest, delta, rate, steps)
        _verify_rule(descent_event("lvq step", step, rate, steps, ADJACENCY), rest, delta)
    else:
        step = _step_multiplier(epsilon, delta, tuple(events), rate, steps)
    events.append(descent_event("lvq step", step, rate, steps, ADJACENCY))
    verify(events, epsilon, delta)
    return Plan(releases, step, tuple(events), Privacy.of(events, delta))


def _verify_rule(event: Event, claimed: float, delta: float) -> None:
    found = compose([event]).epsilon(delta)
    if not found <= claimed:
        raise ParameterError(
            f"The 'epsilon' parameter claims {claimed:.6g} for the steps by the printed rule, at "
            f"delta {delta:.3g}, but the accountant finds {found:.6g}; use "
            "sigma_rule='accountant'."
        )


def _gaussian_shares(start: str, estimate_radius: bool, share: float | None) -> dict[str, float]:
    if start == "count":
        return {"count": COUNT_SHARE if share is None else share}
    parts = {n: p for n, p in GAUSSIAN_SHARES.items() if estimate_radius or n != "radius"}
    scale = 1.0 if share is None else share / sum(parts.values())
    return {name: part * scale for name, part in parts.items()}


def _step_multiplier(
    epsilon: float, delta: float, start: tuple[Event, ...], rate: float, steps: int
) -> float:
    """The least noise, up to the accuracy of the search, that keeps the whole within the budget."""
    before = compose(start)
    if not before.gaussian:
        rest = math.nextafter(epsilon - before.pure, 0.0)
        return calibrate_noise(rest, delta * _DELTA_KEPT, rate, steps) * _ROUND_UP
    if rate == 1:
        mu = 1 / gaussian_sigma(epsilon, delta * _DELTA_KEPT)
        return math.sqrt(steps / (mu * mu - before.gaussian)) * _ROUND_UP

    def fits(log_multiplier: float) -> bool:
        event = descent_event("lvq step", math.exp(log_multiplier), rate, steps, ADJACENCY)
        return compose([*start, event]).epsilon(delta) <= epsilon

    # The start leaves this much without sampling, which can only help, but for the accountant's
    # rounding up. What cannot be had by four times as much noise is left to `verify`.
    mu = 1 / gaussian_sigma(epsilon, delta * _DELTA_KEPT)
    least = math.log(LEAST_NOISE)
    high = max(0.5 * math.log(steps / (mu * mu - before.gaussian)) + 1e-3, least)
    most = high + 1.4
    while high < most and not fits(high):
        high += 0.35
    low = max(high - 0.7, least)
    while high > least and fits(low):
        high, low = low, max(low - 0.7, least)
    while high - low > 1e-3:
        middle = (low + high) / 2
        high, low = (middle, low) if fits(middle) else (high, middle)
    return math.exp(high)
