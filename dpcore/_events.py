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

from dpcore._checks import check_choice, check_index, check_list, check_name, exact
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

    Privacy
    -------
    Nothing of the data, as long as the caller gives public `parameters` only. An event states a
    loss and does not bring it about: that the release had it is for the mechanism to see to.

    Cost
    ----
    Some microseconds, and a few short fields.
    """

    kind: ClassVar[str]

    mechanism: str
    adjacency: str | None = None
    unit: str = "record"
    count: int = 1
    parameters: Parameters = ()

    def __post_init__(self) -> None:
        for name in ("mechanism", "unit"):
            check_name(getattr(self, name), name)
        if self.adjacency is not None:
            check_choice(self.adjacency, "adjacency", ADJACENCIES)
        object.__setattr__(self, "count", check_index(self.count, "count", least=1))
        object.__setattr__(self, "parameters", _check_parameters(self.parameters))

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
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError):
            raise ParameterError("The 'text' parameter must be an event of this dpcore.") from None


@dataclass(frozen=True, kw_only=True)
class PureEvent(Event):
    """A release that is epsilon-DP.

    Privacy
    -------
    As for `Event`; the loss stated is `epsilon`, `count` times.

    Cost
    ----
    As for `Event`.

    Examples
    --------
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

    Privacy
    -------
    As for `Event`; the loss stated is that of the Gaussian mechanism, and `law_distance` is charged
    to delta.

    Cost
    ----
    As for `Event`.
    """

    kind = "gaussian"

    noise_multiplier: float
    law_distance: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        _set_positive(self, "noise_multiplier")
        _set_distance(self)


@dataclass(frozen=True, kw_only=True)
class SampledGaussianEvent(Event):
    """A Gaussian release on a secret Poisson sample: every record takes part by its own coin.

    Covered for "add-remove" only. Shuffled or fixed-size batches are not Poisson samples.

    Privacy
    -------
    As for `Event`; the loss stated holds only if nobody learns who was in the sample.

    Cost
    ----
    As for `Event`; accounting for it takes longer, see `Composition`.
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
        _set_distance(self)
        if self.adjacency != "add-remove":
            raise ParameterError(
                "The 'adjacency' parameter of a sampled Gaussian must be 'add-remove'."
            )


@dataclass(frozen=True, kw_only=True)
class ZCDPEvent(Event):
    """A release that is rho-zCDP: for bounds that are proven in this form.

    Privacy
    -------
    As for `Event`; the loss stated is `rho`, `count` times.

    Cost
    ----
    As for `Event`.
    """

    kind = "zcdp"

    rho: float

    def __post_init__(self) -> None:
        super().__post_init__()
        _set_positive(self, "rho")


_KINDS: dict[str, type[Any]] = {
    kind.kind: kind for kind in (PureEvent, GaussianEvent, SampledGaussianEvent, ZCDPEvent)
}


def _check_parameters(given: Any) -> Parameters:
    pairs = given.items() if isinstance(given, Mapping) else check_list(given, "parameters")
    for pair in pairs:
        fits = isinstance(pair, tuple | list) and len(pair) == 2 and isinstance(pair[0], str)
        if not fits or not isinstance(pair[1], str | int | float):
            raise ParameterError(
                "The 'parameters' parameter must pair names with numbers or strings."
            )
    return tuple((name, value) for name, value in pairs)


def _set_distance(event: GaussianEvent | SampledGaussianEvent) -> None:
    distance = exact(event.law_distance, "law_distance")
    if not 0 <= distance < 1:
        raise ParameterError("The 'law_distance' parameter must lie between 0 and 1.")
    object.__setattr__(event, "law_distance", float(distance))


def _set_positive(event: Event, name: str) -> None:
    number = float(exact(getattr(event, name), name))
    if not 0 < number < math.inf:
        raise ParameterError(f"The '{name}' parameter must be a finite number greater than 0.")
    object.__setattr__(event, name, number)
