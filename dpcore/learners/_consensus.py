"""A fit by consensus: the plan of the noise, the schedule, the rounds, and what is promised."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from dpcore._charge import prepay
from dpcore._checks import (
    check_choice,
    check_flag,
    check_index,
    check_instance,
    check_not_negative,
    check_positive,
    check_random_state,
    exact,
)
from dpcore._release import check_noise
from dpcore.accounting import Privacy
from dpcore.errors import ParameterError
from dpcore.federated.consensus import (
    Consensus,
    GradientDescent,
    Penalty,
    Summation,
    plain_sum,
    tail_mean,
)
from dpcore.federated.devices import Devices
from dpcore.federated.history import History
from dpcore.federated.losses import Loss, make_loss
from dpcore.federated.schedule import Delays, Schedule, simulate
from dpcore.federated.secure_sum import secure_sum
from dpcore.federated.shares import (
    ACCOUNTINGS,
    TOLERANCE,
    Plan,
    classical_epsilon,
    plan,
    stateful_shifts,
)
from dpcore.federated.solvers import LocalProblems
from dpcore.learners._fitting import check_fit_data
from dpcore.learners._linear import check_validation, measure, scaled_rows
from dpcore.learners._progress import progress_bar
from dpcore.noise import Noise

__all__ = ["ConsensusADMM"]

Array = npt.NDArray[np.float64]

_SOLVERS = ("exact", "dp_gd")
_PENALTIES = ("l2", "l1", "elasticnet")

_NOT_COVERED = (
    "how many records each user holds, who takes part in which round, and when",
    "further records of the same person: losses add up",
    "parameters that were chosen by looking at the data",
)


class ConsensusADMM(BaseEstimator):
    """What the classifier and the regressor of `dpcore.learners.admm` share."""

    def __init__(
        self,
        loss: str | Loss,
        epsilon: float | None,
        delta: float,
        noise_multiplier: float | None,
        accounting: str,
        solver: str,
        adjacency: str,
        penalty: str,
        beta: float,
        l1_ratio: float,
        rho: float | Sequence[float],
        relaxation: float,
        learning_rate: float,
        n_rounds: int,
        tol: float | None,
        tail: int,
        n_users: int,
        barrier: int | None,
        max_delay: int,
        delays: Delays | None,
        honest: float,
        secure: bool,
        row_norm: float | None,
        fit_intercept: bool,
        diagnostics: bool,
        random_state: Any,
        noise: Noise | None,
        progress: bool,
    ) -> None:
        self.loss = loss
        self.epsilon = epsilon
        self.delta = delta
        self.noise_multiplier = noise_multiplier
        self.accounting = accounting
        self.solver = solver
        self.adjacency = adjacency
        self.penalty = penalty
        self.beta = beta
        self.l1_ratio = l1_ratio
        self.rho = rho
        self.relaxation = relaxation
        self.learning_rate = learning_rate
        self.n_rounds = n_rounds
        self.tol = tol
        self.tail = tail
        self.n_users = n_users
        self.barrier = barrier
        self.max_delay = max_delay
        self.delays = delays
        self.honest = honest
        self.secure = secure
        self.row_norm = row_norm
        self.fit_intercept = fit_intercept
        self.diagnostics = diagnostics
        self.random_state = random_state
        self.noise = noise
        self.progress = progress

    def _fit(self, X: Any, y: Array, users: Any, validation: Any) -> None:
        loss = self._check_parameters()
        held_out = None
        if validation is not None:
            data, target = check_validation(self, validation)
            held_out = (self._rows(data), target)
        devices = None if users is None else Devices.of(len(X), users)
        seed = check_random_state(self.random_state).randint(1 << 31)
        generator = np.random.default_rng(seed)
        if devices is None:
            devices = Devices.parts(len(X), self.n_users, generator)
        n = len(devices)
        barrier = n if self.barrier is None else min(self.barrier, n)
        schedule = simulate(
            n,
            self.n_rounds,
            barrier=barrier,
            max_delay=self.max_delay,
            delays=self.delays,
            generator=generator,
        )
        rho = self._penalties(len(schedule), schedule)
        rows = self._rows(X)
        source = check_noise(self.noise)
        chosen = self._plan(rows.shape[1], loss, rho, devices, schedule, barrier)
        summation = self._summation(n, rows.shape[1], barrier, chosen)
        slope = loss.derivative_bound * (self.row_norm or 1.0)
        tolerance = TOLERANCE * slope if math.isfinite(slope) else None
        problems = LocalProblems(rows, y, devices, loss, tolerance)
        paid = None if chosen is None else self._pay(source, chosen)
        engine = self._engine(problems, loss, rows, chosen, summation, paid)
        models = self._run(engine, schedule, rho, loss, held_out)
        w = tail_mean(models, self.tail)
        self.coef_, self.intercept_ = (w[:-1], float(w[-1])) if self.fit_intercept else (w, 0.0)
        self.schedule_ = schedule
        self.n_users_, self.n_rounds_ = n, len(self.history_)
        self.n_iter_ = self.n_rounds_
        self.privacy_ = self._promise(chosen, source)

    def _check_parameters(self) -> Loss:
        loss = make_loss(self.loss)
        kind = "margin" if isinstance(self, ClassifierMixin) else "residual"
        if loss.kind != kind:
            raise ParameterError(f"The 'loss' parameter must be a loss of the {kind}.")
        if not math.isfinite(loss.curvature_bound):
            raise ParameterError("The 'loss' parameter must be a loss without corners.")
        check_choice(self.solver, "solver", _SOLVERS)
        check_choice(self.accounting, "accounting", ACCOUNTINGS)
        check_choice(self.adjacency, "adjacency", ("replace", "add-remove"))
        check_choice(self.penalty, "penalty", _PENALTIES)
        for name in ("beta", "l1_ratio"):
            check_not_negative(getattr(self, name), name)
        for name in ("secure", "fit_intercept", "diagnostics", "progress"):
            check_flag(getattr(self, name), name)
        check_positive(self.learning_rate, "learning_rate")
        for name in ("tail", "n_users", "n_rounds", "max_delay"):
            check_index(getattr(self, name), name, least=1)
        if self.barrier is not None:
            check_index(self.barrier, "barrier", least=1)
        self._rhos()
        check_noise(self.noise)
        if self.tol is not None:
            check_not_negative(self.tol, "tol")
        if self.delays is not None:
            check_instance(self.delays, "delays", Delays)
        if not 0 < exact(self.relaxation, "relaxation") < 2:
            raise ParameterError("The 'relaxation' parameter must lie between 0 and 2.")
        if not 0 < exact(self.honest, "honest") <= 1:
            raise ParameterError("The 'honest' parameter must be above 0 and at most 1.")
        for name in ("row_norm", "epsilon", "noise_multiplier"):
            if getattr(self, name) is not None:
                check_positive(getattr(self, name), name)
        if self.row_norm is not None and not 2**-100 <= exact(self.row_norm, "row_norm") <= 2**100:
            raise ParameterError("The 'row_norm' parameter must lie between 2**-100 and 2**100.")
        if self._is_private:
            if not 0 < exact(self.delta, "delta") < 1:
                raise ParameterError("The 'delta' parameter must lie between 0 and 1.")
            if self.row_norm is None:
                raise ParameterError("The 'row_norm' parameter must be given for a private fit.")
            if not math.isfinite(loss.derivative_bound):
                raise ParameterError(
                    "The 'loss' parameter must have bounded slopes for a private fit; 'huber' has."
                )
            if self.epsilon is not None and self.noise_multiplier is not None:
                raise ParameterError(
                    "The 'epsilon' parameter must be None where 'noise_multiplier' is given."
                )
        return loss

    @property
    def _is_private(self) -> bool:
        return self.epsilon is not None or self.noise_multiplier is not None

    def _rhos(self) -> list[float]:
        """rho of every round that is planned."""
        rho = self.rho
        if not (isinstance(rho, list | tuple) or (isinstance(rho, np.ndarray) and rho.ndim)):
            return [float(check_positive(self.rho, "rho"))] * self.n_rounds
        values = [float(check_positive(value, "rho")) for value in rho]
        if len(values) < self.n_rounds:
            raise ParameterError("The 'rho' parameter must be one number, or one for every round.")
        return values

    def _penalties(self, n_rounds: int, schedule: Schedule) -> list[float]:
        """rho of every round that takes place."""
        if np.ndim(self.rho) and not schedule.is_synchronous:
            raise ParameterError("The 'rho' parameter must be one number where users are late.")
        return self._rhos()[:n_rounds]

    def _rows(self, X: npt.NDArray[Any]) -> Array:
        return scaled_rows(X, bool(self.fit_intercept), self.row_norm)

    def _plan(
        self,
        d: int,
        loss: Loss,
        rho: list[float],
        devices: Devices,
        schedule: Schedule,
        barrier: int,
    ) -> Plan | None:
        if not self._is_private:
            return None
        everybody = schedule.is_synchronous and barrier == len(devices)
        factor = 2 if self.adjacency == "replace" else 1
        slope = Fraction(loss.derivative_bound) * exact(self.row_norm, "row_norm")
        if self.solver == "dp_gd":
            name, in_sum = "gradients of all users", True
            steps = [factor * slope] * len(rho)
            shifts = steps
        else:
            inexact = slope * (factor + 2 * Fraction(TOLERANCE))
            steps = [inexact / Fraction(value) for value in rho]
            name, in_sum = f"consensus ADMM, {self.accounting}", self.accounting == "stateful"
            shifts = steps[: schedule.most_rounds]
            steps = steps[: schedule.most_rounds]
            if in_sum:
                most = int(devices.sizes.max()) + (self.adjacency == "add-remove")
                smoothness = most * loss.curvature_bound * float(self.row_norm or 1.0) ** 2
                shifts = stateful_shifts(
                    steps, rho, math.nextafter(smoothness, math.inf), self.relaxation
                )
        if in_sum and not everybody:
            raise ParameterError(
                "The 'accounting' parameter must be 'share', with solver 'exact', where not all "
                "users take part in every round."
            )
        chosen = plan(
            d=d,
            steps=steps,
            shifts=shifts,
            n_shares=max(1, math.ceil(exact(self.honest, "honest") * barrier)),
            in_sum=in_sum,
            epsilon=self.epsilon,
            delta=float(self.delta),
            noise_multiplier=self.noise_multiplier,
            mechanism=name,
            adjacency=self.adjacency,
        )
        return chosen.for_rounds(len(rho))

    def _summation(self, n: int, d: int, barrier: int, chosen: Plan | None) -> Summation:
        if not self.secure:
            return plain_sum
        if chosen is None:
            raise ParameterError(
                "The 'secure' parameter is for private fits: exact sums tell what they tell."
            )
        return secure_sum(n, d, barrier=barrier)

    def _pay(self, source: Noise, chosen: Plan) -> Noise:
        name = ("consensus admm", chosen.event.to_json())
        return prepay(source, chosen.event, *name).release(*name)

    def _engine(
        self,
        problems: LocalProblems,
        loss: Loss,
        rows: Array,
        chosen: Plan | None,
        summation: Summation,
        paid: Noise | None,
    ) -> Consensus | GradientDescent:
        beta, ratio = float(self.beta), float(self.l1_ratio)
        penalty = {
            "l2": Penalty(l2=beta),
            "l1": Penalty(l1=beta),
            "elasticnet": Penalty(l1=beta * ratio, l2=beta * (1 - ratio)),
        }[self.penalty]
        if self.solver == "exact":
            in_state = self.accounting == "share"
            return Consensus(problems, penalty, self.relaxation, chosen, in_state, summation, paid)
        if self.row_norm is None:
            squares = float(np.square(rows).sum())
        else:
            squares = len(rows) * float(self.row_norm) ** 2
        rate = float(check_positive(self.learning_rate, "learning_rate"))
        smoothness = loss.curvature_bound * squares / rate
        return GradientDescent(problems, penalty, smoothness, chosen, summation, paid)

    def _run(
        self,
        engine: Consensus | GradientDescent,
        schedule: Schedule,
        rho: list[float],
        loss: Loss,
        held_out: Any,
    ) -> list[Array]:
        models: list[Array] = []
        self.history_ = History()
        rounds = progress_bar(range(len(schedule)), "rounds", show=bool(self.progress))
        tol = None if self.tol is None else float(exact(self.tol, "tol"))
        for number in rounds:
            users = schedule.participants[number]
            moved = engine.round(number, users, rho[number])
            models.append(engine.w0)
            extra: dict[str, float] = {}
            if held_out is not None:
                extra |= measure(held_out, loss, engine.w0, 0.0)
            if self.diagnostics:
                total = engine.problems.objective(engine.w0) + engine.penalty.value(engine.w0)
                extra |= {
                    "training_objective": total,
                    "primal_residual": engine.primal_residual(),
                }
            self.history_.add(
                participants=len(users),
                time=float(schedule.times[number]),
                bytes_sent=8 * engine.problems.d * len(users),
                residual=moved,
                **extra,
            )
            if tol is not None and moved <= tol * max(1.0, float(np.linalg.norm(engine.w0))):
                break
        if not models:
            raise ParameterError("The 'delays' parameter leaves fewer users than 'barrier'.")
        return models

    def _promise(self, chosen: Plan | None, source: Noise) -> Privacy:
        listed = list(_NOT_COVERED)
        if isinstance(self, ClassifierMixin) and self.classes is None:
            listed.append("which two labels occur")
        if self.diagnostics:
            listed.append("the history, which holds diagnostics of the private data")
        if chosen is None:
            self.per_round_epsilon_ = self.noise_multiplier_ = None
            return Privacy(
                math.inf, 0.0, "record", self.adjacency, (), ("anything: no noise", *listed), False
            )
        if self.accounting == "stateful" or self.solver == "dp_gd":
            if self.secure:
                listed.append("more dishonest users in a sum than 'honest' allows")
            else:
                listed.append(
                    "anything from whoever sums the messages: each holds a share of noise"
                )
        self.noise_multiplier_ = chosen.noise_multiplier
        self.per_round_epsilon_ = classical_epsilon(chosen.noise_multiplier, float(self.delta))
        return Privacy.of(
            [chosen.event], float(self.delta), not_covered=listed, private=source.private
        )

    def _scores(self, X: Any) -> Array:
        check_is_fitted(self)
        data = check_fit_data(self, X, reset=False, dtype=np.float64)
        w = np.append(self.coef_, self.intercept_) if self.fit_intercept else self.coef_
        return np.asarray(self._rows(data) @ w)
