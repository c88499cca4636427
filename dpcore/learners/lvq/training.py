"""Training under differential privacy: the budget, what is paid, and what is said."""

from __future__ import annotations

import hashlib
import math
import pickle
from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from dpcore._charge import prepay
from dpcore._checks import check_choice, check_flag, check_index, check_positive
from dpcore._release import check_noise
from dpcore.accounting import Privacy
from dpcore.errors import ParameterError
from dpcore.learners._fitting import all_or_nothing
from dpcore.learners.lvq.base import PrototypeClassifier
from dpcore.learners.lvq.budget import Plan, make_plan
from dpcore.learners.lvq.clipped import to_grid
from dpcore.learners.lvq.descent import Schedule, private_descent
from dpcore.learners.lvq.kernel import Model
from dpcore.learners.lvq.start import (
    Start,
    default_radius,
    gaussian_start,
    laplace_start,
    noisy_count,
)
from dpcore.noise import Noise, NotPrivateArray

__all__ = ["PrivatePrototypes"]

Array = npt.NDArray[Any]
Index = npt.NDArray[np.intp]

_WALK = 0.55  # of the noise of all steps, in radii, from which on steps are shortened
_SPREAD = 0.1  # norm of the prototypes of a start that looks at no data, in radii
_NOT_COVERED = (
    "choosing parameters, or the best of several fits, by results on the same data",
    "records of one person in several rows: losses add up",
    "whether the data were valid, and how long the fit took",
)
_PARTIAL = "records passed to partial_fit more than once: losses add up"


class PrivatePrototypes(PrototypeClassifier):
    """Training, budget and privacy of both learners."""

    _kind: ClassVar[str]

    @all_or_nothing("_n_calls")
    def fit(self, X: Any, y: Any) -> Any:
        """Train on X and y within the budget; whatever was learned before is forgotten.

        Parameters
        ----------
        X : array_like of shape (n_samples, n_features)
            Values outside the bounds count as the nearer bound. float32 needs half of the memory,
            and its sums are as exact.
        y : array_like of shape (n_samples,)
            Labels, all of them of `classes`.

        Returns
        -------
        self
        """
        return self._first_fit(X, y, self.classes)

    @all_or_nothing("_n_calls")
    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> Any:
        """Train on further records, within the same budget for each of them.

        The first call is `fit`. Later ones take another `n_steps` steps from where the model is, on
        the new records alone, and spend the whole budget on these: a record that is passed once
        has a loss of epsilon, one that is passed twice a loss of twice that. Where the budget
        changes between calls, `privacy_` names the largest. A ledger adds all calls up, unless
        each runs inside ``with ledger.part("batch", i)``, for batches that share no record.

        Parameters
        ----------
        X : array_like of shape (n_samples, n_features)
        y : array_like of shape (n_samples,)
        classes : array_like, optional
            All classes, for the first call; `self.classes` by default. Later calls keep classes,
            bounds, radius, rank, relevance and prototypes_per_class of the first, and refuse
            others; `n_records` counts the records of each call.

        Returns
        -------
        self
        """
        if not hasattr(self, "_model"):
            return self._first_fit(X, y, self.classes if classes is None else classes)
        self._check_parameters()
        x, codes = self._check_input(X, y, classes, reset=False)
        points = to_grid(x)
        public = self.n_records is not None
        plan = self._plan("independent" if public else "count", estimate_radius=False)
        self._n_calls += 1
        model = self._model
        known = (model.prototypes, model.omega, self._centre, self.radius_, self._n_seen)
        source = self._pay(plan, self._n_calls, points, codes, known)
        count = (
            float(check_positive(self.n_records, "n_records"))
            if public
            else noisy_count(len(points), plan.start["count"], source.stream("count"))
        )
        self._n_seen += count
        start = Start(self._centre, np.empty((0, points.shape[1])), self.radius_, count)
        self._train(points, codes, start, self._model, plan, source)
        self._say(plan, source, self.privacy_)
        return self

    def _first_fit(self, X: Any, y: Any, classes: Any) -> Any:
        self._check_parameters()
        x, codes = self._check_input(X, y, classes, reset=True)
        points = to_grid(x)
        d, radius, generator = x.shape[1], self._public_radius(), self._generator()
        plan = self._plan(self.start, estimate_radius=radius is None)
        # What is wrong with parameters must show before anything is spent.
        omega = self._first_omega(d, generator)
        self._omega_rate(d, 1.0)
        self._omega_norm(d)
        drawn: list[Any] = [omega]
        if self.start == "independent" or self.prototypes_per_class > 1:
            drawn.append(pickle.dumps(generator.get_state(legacy=False)))
        self._n_calls = 1
        source = self._pay(plan, self._n_calls, points, codes, drawn)
        start = self._start(points, codes, plan, radius, generator, source)
        self._n_seen = start.n_records
        model = self._first_model(start, omega, generator)
        self._train(points, codes, start, model, plan, source)
        self._say(plan, source)
        return self

    def _check_parameters(self) -> None:
        check_choice(self.start, "start", ("gaussian", "laplace", "independent"))
        if self.start == "independent" and self.n_records is None:
            raise ParameterError(
                "The 'n_records' parameter must be given where 'start' is 'independent': nothing "
                "else tells how many records there are, and counting them would leak."
            )
        self._check_count()
        self._clip(1.0)
        self._rate(1.0)
        check_index(self.prototypes_per_class, "prototypes_per_class", least=1)
        check_noise(self.noise)
        check_flag(self.progress, "progress")
        self._transfer()

    def _plan(self, start: str, *, estimate_radius: bool) -> Plan:
        return make_plan(
            self.epsilon,
            self.delta,
            start=start,
            sampling_rate=self.sampling_rate,
            steps=self._steps(),
            estimate_radius=estimate_radius,
            start_share=self.start_share if start != "count" else None,
            sigma_rule=self.sigma_rule if start != "count" else "accountant",
        )

    def _pay(
        self, plan: Plan, call: int, points: Array, codes: Index, model: Iterable[Any]
    ) -> Noise:
        """A source for everything that the run draws, once the ledger in force has taken it.

        `model` is what the run starts from besides the data.
        """
        source = check_noise(self.noise)
        address: tuple[int | str | bytes, ...] = (self._kind, call)
        if source.pinned:
            address += (self._fingerprint(points, codes, model),)
        return prepay(source, plan.events[::-1], "lvq", *address).release("lvq", *address)

    def _fingerprint(self, points: Array, codes: Index, model: Iterable[Any]) -> bytes:
        """A hash of all that a run is a function of, besides its noise.

        Runs on one pinned stream that differ in any of it must not share noise: the difference of
        their results would be exact. It only enters keys, so it leaves no trace of the data.
        """
        state = hashlib.sha256()
        # What classes, bounds and random states stand for is hashed below; a bar changes nothing.
        left_out = ("noise", "classes", "bounds", "random_state", "progress")
        for name, value in sorted(self.get_params(deep=False).items()):
            if name not in left_out:
                state.update(repr((name, value)).encode())
        public = (self.classes_.tolist(), self._scale.lower, self._scale.upper)
        for part in (*public, *model, points, codes):
            if isinstance(part, np.ndarray):
                state.update(repr((part.shape, part.dtype.str)).encode())
                state.update(np.ascontiguousarray(part).data)
            else:
                state.update(repr(part).encode())
        return state.digest()

    def _start(
        self,
        points: Array,
        codes: Index,
        plan: Plan,
        radius: float | None,
        generator: np.random.RandomState,
        source: Noise,
    ) -> Start:
        k, d = len(self.classes_), points.shape[1]
        if self.start == "gaussian":
            start = gaussian_start(points, codes, k, plan.start, source, radius=radius)
        elif self.start == "laplace":
            start = laplace_start(points, codes, k, plan.start, source)
        else:
            means = generator.standard_normal((k, d))
            reach = default_radius(d) if radius is None else radius
            means *= _SPREAD * reach / np.linalg.norm(means, axis=1, keepdims=True)
            start = Start(np.zeros(d), means, reach, float(self.n_records))
        count = start.n_records if self.n_records is None else float(self.n_records)
        return Start(start.centre, start.means, radius or start.radius, count)

    def _train(
        self,
        points: Array,
        codes: Index,
        start: Start,
        model: Model,
        plan: Plan,
        source: Noise,
    ) -> None:
        d = points.shape[1]
        self.clip_ = self._clip(start.radius)
        steps, lot = self._steps(), float(self.sampling_rate) * start.n_records
        damping = _damping(plan.step, steps, d, lot) * start.n_records / self._n_seen
        schedule = Schedule(
            steps=steps,
            sampling_rate=float(self.sampling_rate),
            lot=lot,
            clip=self.clip_,
            rate=self._rate(start.radius, damping),
            omega_rate=self._omega_rate(d, self.clip_, damping),
            omega_norm=self._omega_norm(d),
            transfer=self._transfer(),
        )
        points -= to_grid(start.centre[np.newaxis].astype(points.dtype))
        model = private_descent(
            points, codes, model, schedule, plan.step, source, progress=self.progress
        )
        self._keep(model, start)
        self.noise_multiplier_ = plan.step
        self.schedule_ = schedule

    def _say(self, plan: Plan, source: Noise, before: Privacy | None = None) -> None:
        """What the run cost, or the costliest of several whose records differ."""
        found = plan.privacy
        epsilon, delta, events = found.epsilon, found.delta, plan.events
        listed = (*self._inferred, *_NOT_COVERED)
        private = source.private
        if before is not None:
            events = events if epsilon > before.epsilon else before.events
            epsilon, delta = max(epsilon, before.epsilon), max(delta, before.delta)
            listed = tuple(dict.fromkeys((*before.not_covered, *listed, _PARTIAL)))
            private = private and before.private
        if not private:
            self.prototypes_ = self.prototypes_.view(NotPrivateArray)
        self.privacy_ = Privacy(
            epsilon, delta, found.unit, found.adjacency, events, listed, private
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.non_deterministic = True
        # Noise costs accuracy: on a handful of records there is nothing to be had.
        tags.classifier_tags.poor_score = True
        return tags


def _damping(multiplier: float, steps: int, d: int, lot: float) -> float:
    """How much shorter steps must be for their noise not to undo the start.

    With steps of the usual length the noise of all of them moves a prototype by about this walk.
    Nothing in it depends on the data but the noisy count.
    """
    walk = multiplier * math.sqrt(steps * d) / lot
    return min(1.0, _WALK / walk)
