"""What all parties of a federation agree on, before anybody reads data: a file of public terms."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dpcore._checks import (
    check_array,
    check_choice,
    check_flag,
    check_index,
    check_instance,
    check_labels,
    check_list,
    check_mapping,
    check_name,
    check_positive,
    exact,
)
from dpcore.errors import ParameterError
from dpcore.federated.consensus import Penalty
from dpcore.federated.losses import Loss, make_loss
from dpcore.federated.shares import TOLERANCE, Plan, log2_limit, plan
from dpcore.local.vectors import Vector
from dpcore.secure.graph import SERVERS
from dpcore.secure.parameters import LEAST_SURVIVORS, Parameters

__all__ = ["Agreement", "ConsensusTerms", "DescentTerms"]

Array = npt.NDArray[np.float64]

_KEY_BYTES = 32
_MOST_NUMBER = 1 << 31


@dataclass(frozen=True)
class ConsensusTerms:
    """Section ``[admm]``: consensus ADMM; names as in `dpcore.learners.ConsensusADMMClassifier`.

    `server` is that of `dpcore.secure.Parameters`, `tail` the number of models that are averaged.
    """

    delta: float = 1e-6
    rho: float = 1.0
    beta: float = 1.0
    penalty: str = "l2"
    l1_ratio: float = 0.5
    relaxation: float = 1.0
    row_norm: float = 1.0
    adjacency: str = "replace"
    tail: int = 1
    server: str = "malicious"

    def __post_init__(self) -> None:
        for name in ("delta", "rho", "row_norm"):
            check_positive(getattr(self, name), name)
        for name in ("beta", "l1_ratio"):
            if exact(getattr(self, name), name) < 0:
                raise ParameterError(f"The '{name}' parameter must not be negative.")
        if not self.delta < 1:
            raise ParameterError("The 'delta' parameter must lie between 0 and 1.")
        if not 0 < exact(self.relaxation, "relaxation") < 2:
            raise ParameterError("The 'relaxation' parameter must lie between 0 and 2.")
        check_choice(self.penalty, "penalty", ("l2", "l1", "elasticnet"))
        check_choice(self.adjacency, "adjacency", ("replace", "add-remove"))
        check_index(self.tail, "tail", least=1)

    @property
    def regulariser(self) -> Penalty:
        """The penalty that the server minimises."""
        l1 = {"l2": 0.0, "l1": 1.0, "elasticnet": self.l1_ratio}[self.penalty]
        return Penalty(l1=self.beta * l1, l2=self.beta * (1 - l1))


@dataclass(frozen=True)
class DescentTerms:
    """Section ``[fedsgd]``: LDP-FedSGD; names as in `dpcore.learners.LDPFedSGDClassifier`.

    `group_size` is the number of devices that each client lets answer in a round, `user` the column
    that names the device of a record; without it each record is a device.
    """

    group_size: int = 100
    mechanism: str = "three-outputs"
    k: int | None = None
    objective: str = "at_zero"
    learning_rate: float = 1.0
    alpha: float = 1e-4
    clip: float = 1.0
    user: str | None = None

    def __post_init__(self) -> None:
        for name in ("learning_rate", "clip"):
            check_positive(getattr(self, name), name)
        if exact(self.alpha, "alpha") < 0:
            raise ParameterError("The 'alpha' parameter must not be negative.")
        check_index(self.group_size, "group_size", least=1)


_SECTIONS = {"admm": ConsensusTerms, "fedsgd": DescentTerms}


@dataclass(frozen=True)
class Agreement:
    """Public terms of a federation. Parties get them from somebody they trust, not from the server.

    Parameters
    ----------
    session : str
        A name that is never used again.
    task : {"admm", "fedsgd"}
    features : tuple of str
        Columns of the data.
    bounds : tuple of pairs
        Range of each feature, which becomes [-1, 1]; values outside count as the nearer bound.
    clients : mapping of int to bytes
        Who takes part, and their public signing keys: the directory.
    epsilon : float
        Loss of a client's data over all rounds (of a device under "fedsgd").
    rounds : int
        Rounds of the server, and the most in which a client takes part.
    terms : ConsensusTerms or DescentTerms
    label : str
        Column of the label.
    classes : tuple of two labels
        For losses of the margin.
    loss : str
        One of `dpcore.federated.LOSSES`.
    fit_intercept : bool
    barrier, max_delay : int
        A round ends when `barrier` clients (default: all) have answered, and nobody who can be
        reached has missed max_delay - 1 rounds. Clients that came and went are not waited for.
    patience : float
        Seconds after which a client that does not answer is left out.

    Privacy
    -------
    Everything here is public. A client computes its noise from its own copy, and answers no server
    whose copy is a different one.

    Cost
    ----
    Some milliseconds when it is made: the noise of all rounds, or the randomiser, is computed then
    and kept.
    """

    session: str
    task: str
    features: tuple[str, ...]
    bounds: tuple[tuple[float, float], ...]
    clients: Mapping[int, bytes]
    epsilon: float
    rounds: int
    terms: ConsensusTerms | DescentTerms
    label: str = "y"
    classes: tuple[Any, ...] = ()
    loss: str = "logistic"
    fit_intercept: bool = True
    barrier: int = 0
    max_delay: int = 1
    patience: float = 60.0

    def __post_init__(self) -> None:
        check_choice(self.task, "task", tuple(_SECTIONS))
        check_positive(self.epsilon, "epsilon")
        check_positive(self.patience, "patience")
        check_index(self.rounds, "rounds", least=1)
        check_index(self.max_delay, "max_delay", least=1)
        check_name(self.label, "label")
        check_flag(self.fit_intercept, "fit_intercept")
        check_instance(self.terms, "terms", _SECTIONS[self.task])
        if not 1 <= len(check_name(self.session, "session").encode(errors="replace")) <= 200:
            raise ParameterError("The 'session' parameter must have 1 to 200 bytes.")
        features = [check_name(item, "features") for item in check_list(self.features, "features")]
        if not features or len(set(features)) != len(features):
            raise ParameterError("The 'features' parameter must name different columns.")
        bounds = check_array(self.bounds, "bounds", dimensions=2)
        if bounds.shape != (len(features), 2) or not (
            np.isfinite(bounds).all() and (bounds[:, 0] < bounds[:, 1]).all()
        ):
            raise ParameterError("The 'bounds' parameter must give lower < upper for each feature.")
        keys = check_mapping(self.clients, "clients").values()
        if not keys or any(not isinstance(k, bytes) or len(k) != _KEY_BYTES for k in keys):
            raise ParameterError("The 'clients' parameter must give 32-byte keys.")
        least = LEAST_SURVIVORS if self.task == "admm" else 1
        barrier = check_index(self.barrier, "barrier") or len(self.clients)
        if not least <= barrier <= len(self.clients):
            raise ParameterError(
                "The 'barrier' parameter must be at most the number of clients, and 3 or more "
                "where their answers are summed securely."
            )
        object.__setattr__(self, "barrier", barrier)
        loss = self.loss_function
        labels = check_list(self.classes, "classes")
        labels = list(check_labels(labels, "classes")) if labels else labels
        if (loss.kind == "margin") != (len(set(labels)) == 2):
            raise ParameterError("The 'classes' parameter must list two labels for this loss.")
        if self.task == "admm" and not math.isfinite(loss.derivative_bound + loss.curvature_bound):
            raise ParameterError("The 'loss' parameter must have bounded slopes and no corners.")
        if self.task == "admm":
            check_choice(self.consensus.server, "server", SERVERS)
            _ = self.plan, self.secure  # they raise for terms that cannot be kept
        else:
            _ = self.collector

    @staticmethod
    def from_mapping(given: Mapping[str, Any]) -> Agreement:
        """The terms in a mapping of the form of the file; refuses names that it does not know."""
        values = dict(given)
        task = values.get("task")
        section = _SECTIONS.get(str(task), DescentTerms)
        known = {item.name for item in fields(Agreement) if item.init} - {"terms"}
        unknown = set(values) - known - {str(task)}
        options = dict(values.pop(str(task), {}))
        unknown |= set(options) - {item.name for item in fields(section)}
        if unknown:
            raise ParameterError(f"There is no '{sorted(unknown)[0]}' in an agreement.")
        missing = {"session", "task", "features", "bounds", "clients", "epsilon", "rounds"}
        if missing - set(values):
            raise ParameterError(f"The '{sorted(missing - set(values))[0]}' parameter is missing.")
        try:
            values["features"] = tuple(str(name) for name in values["features"])
            values["bounds"] = tuple((float(a), float(b)) for a, b in values["bounds"])
            values["classes"] = tuple(values.get("classes", ()))
            values["clients"] = {
                check_index(int(number), "clients", limit=_MOST_NUMBER): bytes.fromhex(key)
                for number, key in sorted(values["clients"].items(), key=lambda item: int(item[0]))
            }
            return Agreement(terms=section(**options), **values)
        except TypeError:
            raise ParameterError("The agreement has a value of the wrong type.") from None

    @staticmethod
    def from_file(path: str | Path) -> Agreement:
        """The terms in a TOML file."""
        import tomllib

        try:
            return Agreement.from_mapping(tomllib.loads(Path(path).read_text()))
        except OSError:
            raise ParameterError("The file of the agreement cannot be read.") from None
        except tomllib.TOMLDecodeError:
            raise ParameterError("The file of the agreement is not TOML.") from None

    @cached_property
    def digest(self) -> bytes:
        """32 bytes that stand for these terms."""
        text = asdict(self) | {"clients": {str(i): k.hex() for i, k in self.clients.items()}}
        canonical = json.dumps(text, sort_keys=True, default=str)
        return hashlib.sha256(b"dpcore/federation/v1/" + canonical.encode()).digest()

    @property
    def dimension(self) -> int:
        """Length of a model, the intercept last."""
        return len(self.features) + bool(self.fit_intercept)

    @property
    def loss_function(self) -> Loss:
        return make_loss(self.loss)

    @property
    def consensus(self) -> ConsensusTerms:
        assert isinstance(self.terms, ConsensusTerms)
        return self.terms

    @property
    def descent(self) -> DescentTerms:
        assert isinstance(self.terms, DescentTerms)
        return self.terms

    def scale(self, X: npt.NDArray[Any]) -> Array:
        """Features from their bounds to [-1, 1], clipped."""
        low, high = np.array(self.bounds, np.float64).T
        return np.asarray(np.clip((2 * X - low - high) / (high - low), -1.0, 1.0))

    @cached_property
    def plan(self) -> Plan:
        """Noise of a client of consensus ADMM: each noisy local model counts as published."""
        terms = self.consensus
        factor = 2 if terms.adjacency == "replace" else 1
        slope = Fraction(self.loss_function.derivative_bound) * exact(terms.row_norm, "row_norm")
        step = slope * (factor + 2 * Fraction(TOLERANCE)) / exact(terms.rho, "rho")
        return plan(
            d=self.dimension,
            steps=[step] * self.rounds,
            shifts=[step] * self.rounds,
            n_shares=self.barrier,
            in_sum=False,
            epsilon=self.epsilon,
            delta=terms.delta,
            noise_multiplier=None,
            mechanism="consensus ADMM, share",
            adjacency=terms.adjacency,
        )

    @cached_property
    def secure(self) -> Parameters:
        """The session of secure aggregation in which clients' changes are summed."""
        n = len(self.clients)
        return Parameters(
            b"dpcore/federation/" + self.digest,
            dimension=self.dimension,
            bound=1 << (log2_limit(n) + 2),  # a change is the difference of two messages
            fraction_bits=0,
            ring_bits=64,
            max_clients=n,
            min_clients=LEAST_SURVIVORS,
            min_survivors=LEAST_SURVIVORS,
            server=self.consensus.server,
        )

    @cached_property
    def collector(self) -> Vector:
        """The randomiser of gradients of LDP-FedSGD."""
        terms = self.descent
        return Vector(
            self.dimension, self.epsilon, terms.mechanism, k=terms.k, objective=terms.objective
        )
