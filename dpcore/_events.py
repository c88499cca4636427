"""Events: frozen records of what was released.

An event holds what accounting needs and nothing of the data. It is built from the constants that
the sampler used, rounded against us. The list of kinds only grows, and the meaning of a field never
changes: ledgers written years ago must still add up.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar

from dpcore._checks import check_index, exact
from dpcore.errors import ParameterError

__all__ = [
    "ADJACENCIES",
    "Event",
    "GaussianEvent",
    "PureEvent",
    "SampledGaussianEvent",
    "ZCDPEvent",
]

ADJACENCIES = ("replace", "add-remove", "local")

Parameters = tuple[tuple[str, float | int | str], ...]


@dataclass(frozen=True, kw_only=True)
class Event:
    """What all events say.

    Attributes
    ----------
    mechanism : str
        Name of what was run.
    adjacency : {"replace", "add-remove", "local"} or None
        The neighbouring relation. None where the caller stated a sensitivity: then it is the
        relation that the sensitivity refers to.
    unit : str
        What one neighbour differs in: "record", "user", "reading", ...
    count : int
        How often the mechanism was run on the same data.
    parameters : tuple of (name, value)
        Further public parameters, for the reader of a report.
    """

    kind: ClassVar[str]

    mechanism: str
    adjacency: str | None = None
    unit: str = "record"
    count: int = 1
    parameters: Parameters = ()

    def __post_init__(self) -> None:
        for name in ("mechanism", "unit"):
            value = getattr(self, name)
            if not isinstance(value, str) or not value:
                raise ParameterError(f"The '{name}' parameter must be a string that is not empty.")
        if self.adjacency is not None and self.adjacency not in ADJACENCIES:
            listed = ", ".join(f"'{choice}'" for choice in ADJACENCIES)
            raise ParameterError(f"The 'adjacency' parameter must be {listed} or None.")
        object.__setattr__(self, "count", check_index(self.count, "count", least=1))
        pairs = self.parameters.items() if isinstance(self.parameters, Mapping) else self.parameters
        object.__setattr__(self, "parameters", tuple((str(k), v) for k, v in pairs))

    def to_json(self) -> str:
        """The event as one line of JSON."""
        return json.dumps({"kind": self.kind} | asdict(self), sort_keys=True)

    @staticmethod
    def from_json(text: str) -> Event:
        """The event that `to_json` wrote; raises ParameterError for anything else."""
        try:
            values = json.loads(text)
            kind = _KINDS[values.pop("kind")]
            known = {field.name for field in fields(kind)}
            if set(values) != known:
                raise ValueError
            values["parameters"] = tuple((k, v) for k, v in values["parameters"])
            event: Event = kind(**values)
            return event
        except (KeyError, TypeError, ValueError, AttributeError):
            raise ParameterError("The 'text' parameter must be an event of this dpcore.") from None


@dataclass(frozen=True, kw_only=True)
class PureEvent(Event):
    """A release that is epsilon-DP.

    >>> PureEvent(mechanism="histogram", epsilon=0.5, adjacency="replace").count
    1
    """

    kind = "pure"

    epsilon: float

    def __post_init__(self) -> None:
        super().__post_init__()
        _set_positive(self, "epsilon")


@dataclass(frozen=True, kw_only=True)
class GaussianEvent(Event):
    """A Gaussian release: noise of `noise_multiplier` times the l2 sensitivity.

    `law_distance` is how far, in total variation, the sampled law may be from the Gaussian one.
    """

    kind = "gaussian"

    noise_multiplier: float
    law_distance: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        _set_positive(self, "noise_multiplier")
        if not 0 <= self.law_distance < 1:
            raise ParameterError("The 'law_distance' parameter must lie between 0 and 1.")


@dataclass(frozen=True, kw_only=True)
class SampledGaussianEvent(Event):
    """A Gaussian release on a secret Poisson sample: every record takes part by its own coin.

    Covered for "add-remove" only. Shuffled or fixed-size batches are not Poisson samples.
    """

    kind = "sampled-gaussian"

    noise_multiplier: float
    sampling_rate: float
    law_distance: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        _set_positive(self, "noise_multiplier")
        _set_positive(self, "sampling_rate")
        if self.sampling_rate > 1:
            raise ParameterError("The 'sampling_rate' parameter must be at most 1.")
        if not 0 <= self.law_distance < 1:
            raise ParameterError("The 'law_distance' parameter must lie between 0 and 1.")
        if self.adjacency != "add-remove":
            raise ParameterError(
                "The 'adjacency' parameter of a sampled Gaussian must be 'add-remove'."
            )


@dataclass(frozen=True, kw_only=True)
class ZCDPEvent(Event):
    """A release that is rho-zCDP: for bounds that are proven in this form."""

    kind = "zcdp"

    rho: float

    def __post_init__(self) -> None:
        super().__post_init__()
        _set_positive(self, "rho")


_KINDS: dict[str, type[Any]] = {
    kind.kind: kind for kind in (PureEvent, GaussianEvent, SampledGaussianEvent, ZCDPEvent)
}


def _set_positive(event: Event, name: str) -> None:
    number = float(exact(getattr(event, name), name))
    if not 0 < number < math.inf:
        raise ParameterError(f"The '{name}' parameter must be a finite number greater than 0.")
    object.__setattr__(event, name, number)
