"""What is claimed, and what an audit found."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from dpcore._checks import check_positive, exact, round_up
from dpcore.audit.bounds import lower_share, quantile, upper_share
from dpcore.calibration import gdp_epsilon
from dpcore.errors import ParameterError

__all__ = ["Audit", "Claim", "check_confidence", "check_delta", "make_claim"]


@dataclass(frozen=True)
class Claim:
    """(epsilon, delta)-DP, or mu-GDP, which means it."""

    epsilon: float
    delta: float = 0.0
    mu: float | None = None

    def bound(self, k: int, n: int, other_k: int, other_n: int, alpha: float) -> float:
        """Lower bound on epsilon, or on mu, from the hits of a set under two inputs.

        Wrong with probability at most alpha: half of it for either share.
        """
        likely, unlikely = lower_share(k, n, alpha / 2), upper_share(other_k, other_n, alpha / 2)
        if self.mu is not None:
            return quantile(likely) - quantile(unlikely)
        return math.log((likely - self.delta) / unlikely) if likely > self.delta else -math.inf

    def as_epsilon(self, bound: float) -> float:
        """What a bound means for epsilon; never negative."""
        if self.mu is not None and bound > 0:
            return gdp_epsilon(bound, self.delta)
        return max(bound, 0.0)


@dataclass(frozen=True)
class Audit:
    """What an audit found.

    Attributes
    ----------
    mechanism : str
        What was audited.
    epsilon, delta : float
        The claim.
    lower_bound : float
        Epsilon is at least this, at the claimed delta, unless the audit was unlucky.
    confidence : float
        Chance, at least, that a mechanism that keeps the claim is not flagged.
    trials, tests : int
        Runs, and sets of outputs that were tried on them; the bound is corrected for their number.
    worst : str
        The set of outputs that gave the bound, and the inputs it tells apart.

    Privacy
    -------
    A lower bound on the loss of a mechanism: evidence against a claim, never a proof of it. It is
    computed from the inputs of the audit, which get no protection.

    Cost
    ----
    A few numbers, however many trials were run.
    """

    mechanism: str
    epsilon: float
    delta: float
    lower_bound: float
    confidence: float
    trials: int
    tests: int
    worst: str

    @property
    def passed(self) -> bool:
        """Whether the claim stands; it is not proven by that."""
        return self.lower_bound <= self.epsilon

    def __str__(self) -> str:
        claim = f"epsilon {self.epsilon:.4g}" + (f", delta {self.delta:.3g}" if self.delta else "")
        verdict = "passed" if self.passed else "FLAGGED"
        return (
            f"{self.mechanism}: {verdict}, claimed {claim}, observed at least "
            f"{self.lower_bound:.4g} ({self.trials} trials, {self.tests} tests, "
            f"false alarms {1 - self.confidence:.1g}); worst: {self.worst}"
        )


def make_claim(epsilon: Any, delta: Any, mu: Any) -> Claim:
    """The claim that parameters state; with mu, epsilon is what it means at delta."""
    chance = check_delta(delta)
    if mu is not None:
        if epsilon is not None:
            raise ParameterError("The 'mu' parameter excludes 'epsilon', which follows from it.")
        if chance == 0:
            raise ParameterError("The 'delta' parameter must be greater than 0 with 'mu'.")
        factor = round_up(check_positive(mu, "mu"))
        return Claim(gdp_epsilon(factor, chance), chance, factor)
    return Claim(round_up(check_positive(epsilon, "epsilon")), chance)


def check_delta(delta: Any) -> float:
    chance = round_up(exact(delta, "delta"))
    if not 0 <= chance < 1:
        raise ParameterError("The 'delta' parameter must be at least 0 and below 1.")
    return chance


def check_confidence(confidence: Any) -> float:
    level = float(exact(confidence, "confidence"))
    if not 0 < level < 1:
        raise ParameterError("The 'confidence' parameter must lie between 0 and 1.")
    return level
