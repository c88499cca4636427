"""LDP-FedSGD: clients send a few randomised bits of their devices' gradients, once per device."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dpcore.accounting import Privacy
from dpcore.errors import DPCoreError, RefusedError, WireFormatError
from dpcore.federated.devices import Devices
from dpcore.federated.fedsgd import LARGEST, Server, gradient_at
from dpcore.interop.flower.agreement import Agreement
from dpcore.interop.flower.coordinator import Coordinator
from dpcore.interop.flower.envelope import ANSWER, REFUSAL, Envelope
from dpcore.interop.flower.member import Member
from dpcore.local.reports import Reports
from dpcore.secure.keys import random_key

__all__ = ["DescentMember", "DescentServer"]

Array = npt.NDArray[np.float64]

_NOT_COVERED = (
    "that a device takes part, when, and which coordinates it drew",
    "a device that takes part again in another federation: losses add up",
    "a client whose disk is put back to an earlier state",
)
_FAILED = b"The computation of this client failed; its next devices count as having answered."


def _descent(agreement: Agreement) -> Server:
    terms = agreement.descent
    return Server.start(
        agreement.dimension,
        learning_rate=terms.learning_rate,
        alpha=terms.alpha,
        clip=terms.clip,
        intercept=agreement.fit_intercept,
    )


class DescentMember(Member):
    """A client of LDP-FedSGD, which holds the records of many devices; parameters as for `Member`.

    In each round the next devices, in an order drawn once, report on their gradients at the model
    received. When all have reported the client answers with nothing.

    Privacy
    -------
    `Agreement.epsilon` under local privacy for each device, which answers once in its life, kept by
    the client's own count. Charged to the ledger before the first answer. The model that the server
    sends may be anything. What is refused is decided from the model, before the data are read.
    Should a computation fail all the same, the client says so, always in the same words, and the
    devices that were to answer answer no more. Who has answered is known by position, so the client
    refuses when its data have changed since the first answer; that they have, or cannot be read, is
    visible.

    Cost
    ----
    k * n_bits for each device.
    """

    def _respond(self, asked: Envelope) -> Envelope:
        if asked.stage != "gradient":
            raise WireFormatError("The message is of a stage that this task does not have.")
        [theta] = self._parts(asked, 1)
        if asked.round <= self.store.last_round:
            raise WireFormatError("The round is not newer than the last one.")
        state = _descent(self.agreement)
        state.theta = self._model(theta)
        if np.abs(state.theta).max() > LARGEST:
            raise RefusedError("The message has a model that is too far away.")
        X, y, users = self._data()
        devices = Devices.of(len(X), users)
        order = np.random.Generator(np.random.PCG64(self._seed())).permutation(len(devices))
        done = int(self.store.get("devices") or b"0")
        chosen = order[done : done + self.agreement.descent.group_size]
        if not len(chosen):
            return asked.reply(ANSWER, b"")
        collector = self.agreement.collector
        with self._charging(), self.ledger:
            release = collector.open(self.noise)
        self.store.put("devices", b"%d" % (done + len(chosen)))
        try:
            values = gradient_at(state, devices, chosen, X, y, self.agreement.loss_function)
            reports = collector.report(release, done, len(chosen), values).to_bytes()
        except Exception:  # whatever it is, it may depend on the data
            return asked.reply(REFUSAL, _FAILED)
        return asked.reply(ANSWER, reports)

    def _seed(self) -> int:
        """Of the order of the devices: an algorithmic choice, the same after a restart."""
        found = self.store.get("order")
        if found is None:
            found = random_key()
            self.store.put("order", found)
        return int.from_bytes(found, "little")


class DescentServer(Coordinator):
    """The server of LDP-FedSGD; parameters and use as for `Coordinator`.

    Each step is on disk before the new model leaves, and so are reports before they count: a server
    that is started again has them, as devices report once. A round is asked for with the same bytes
    until it is over.

    Privacy
    -------
    Post-processing of the reports: the guarantee is that of `DescentMember` and does not rest on
    the server.

    Cost
    ----
    A question to each client and one pass over the reports in a round. The state, of size
    O(dimension + clients), is written to the disk for each answer, and the history in each round.
    """

    def __init__(self, agreement: Agreement, folder: str | Path) -> None:
        super().__init__(agreement, folder)
        self._model = _descent(agreement)
        saved = self._load()
        if saved:
            self._model.theta = np.array(saved["theta"])
            self._model.average = np.array(saved["average"])
            self._model.n_rounds = int(saved["rounds"])
            self._model.weight = float(saved["weight"])
        self._counted = {int(i): int(r) for i, r in saved.get("counted", {}).items()}
        self._empty = set(saved.get("empty", []))
        self._asked: set[int] = set()
        self._since = -math.inf
        self._tally = np.array(saved.get("tally", self._nothing()), np.int64)
        self._devices = int(saved.get("devices", 0))
        self._inside = [(int(i), int(r)) for i, r in saved.get("inside", [])]
        self.answered = {number for number, asked in self._inside if asked == self.round}

    def _nothing(self) -> npt.NDArray[np.int64]:
        numeric = self.agreement.collector.numeric
        assert numeric is not None
        return np.zeros((self.agreement.dimension, numeric.n_outputs), np.int64)

    @property
    def round(self) -> int:  # type: ignore[override]
        return self._model.n_rounds + 1

    @property
    def commits(self) -> int:  # type: ignore[override]
        return self._model.n_rounds

    @property
    def finished(self) -> bool:
        done = self._model.n_rounds >= self.agreement.rounds
        return done or self._empty >= set(self.agreement.clients)

    def introduce(self, number: int, last_round: int) -> bool:
        """Always: clients refuse rounds before their last one by themselves."""
        return True

    def _advance(self, now: float) -> None:
        if self._since == -math.inf:
            self._since = now
        theta = self._model.theta.astype("<f8").tobytes()
        for number in sorted(self.present - self._asked - self.answered - self._empty):
            self._ask(number, "gradient", theta)
            self._asked.add(number)
        able = (self.present | self._unseen) - self._empty
        inside = len(self.answered)
        silent = able - self.answered - self.declined
        if not inside:
            if now - self._since > self.agreement.patience:
                self._begin(now)  # ask again: the same question
            return
        full = inside >= min(self.agreement.barrier, max(1, len(able)))
        if full or not silent or now - self._since > self.agreement.patience:
            self._step(now)

    def _begin(self, now: float) -> None:
        self._asked, self.answered, self.declined = set(), set(), set()
        self.outbox.clear()
        self._since = now

    def _step(self, now: float) -> None:
        mean = self.agreement.collector.mean(self._tally, self._devices)
        self.history.append(
            {
                "reports": sorted(self._inside),  # of a client, and in answer to which round
                "devices": self._devices,
                "residual": self._model.step(mean),
            }
        )
        self._tally, self._devices, self._inside = self._nothing(), 0, []
        self._save(self._state())
        self._begin(now)

    def _state(self) -> dict[str, Any]:
        return {
            "theta": self._model.theta.tolist(),
            "average": self._model.average.tolist(),
            "rounds": self._model.n_rounds,
            "weight": self._model.weight,
            "counted": self._counted,
            "empty": sorted(self._empty),
            "tally": self._tally.tolist(),
            "devices": self._devices,
            "inside": self._inside,
        }

    def _take(self, number: int, answer: Envelope) -> None:
        oldest = self.round - self.agreement.max_delay
        if answer.stage != "gradient" or not oldest < answer.round <= self.round:
            return
        if answer.round <= self._counted.get(number, 0) or number in self.answered:
            return  # counted before
        if answer.kind != ANSWER or len(answer.parts) != 1:
            if answer.round == self.round:
                self.declined.add(number)
            return
        if not answer.parts[0]:
            self._empty.add(number)
            return
        try:
            reports = Reports.from_bytes(answer.parts[0], self.agreement.collector)
        except DPCoreError:
            self.declined.add(number)
            return
        if len(reports) > self.agreement.descent.group_size:
            self.declined.add(number)
            return
        self._tally += self.agreement.collector.tally(reports)
        self._devices += len(reports)
        self._counted[number] = answer.round
        self._inside.append((number, answer.round))
        self._save(self._state())
        if answer.round == self.round:
            self.answered.add(number)

    def model(self) -> Array:
        return self._model.average

    @property
    def privacy_(self) -> Privacy:
        unit = "user" if self.agreement.descent.user else "record"
        event = replace(self.agreement.collector.event, mechanism="LDP-FedSGD", unit=unit)
        return Privacy.of([event], not_covered=_NOT_COVERED)
