"""Consensus ADMM between a server and clients that only meet in secure sums."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dpcore.accounting import Privacy
from dpcore.errors import ProtocolError, RefusedError, RoundAbortedError, WireFormatError
from dpcore.federated.consensus import tail_mean
from dpcore.federated.devices import Devices, scaled_rows
from dpcore.federated.shares import TOLERANCE
from dpcore.federated.solvers import LocalProblems
from dpcore.interop.flower.agreement import Agreement
from dpcore.interop.flower.coordinator import Coordinator
from dpcore.interop.flower.envelope import ANSWER, REFUSAL, Envelope
from dpcore.interop.flower.member import Member
from dpcore.secure.client import Client
from dpcore.secure.messages import Begin
from dpcore.secure.parameters import LEAST_SURVIVORS
from dpcore.secure.server import Server

__all__ = ["ConsensusMember", "ConsensusServer"]

Array = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

_WORD = 8
_NOT_COVERED = (
    "how many records each client holds, who takes part in which round, and when",
    "further records of the same person: losses add up",
    "a client whose disk is put back to an earlier state",
)
# How far away a model may ask for a minimum: rho * norm, over what a record can do to a gradient.
# Duals with the noise of many rounds stay far below. The solver looks for the distance from the
# point asked for, so that it arrives at its tolerance up to here and beyond.
_FARTHEST = 2.0**32
_FAILED = "The computation of this client failed; it answers no more in this federation."


class _StepError(Exception):
    """The local minimum was not found."""


class ConsensusMember(Member):
    """A client of consensus ADMM; parameters as for `Member`.

    A step minimises the client's loss near the model received, with noise, and gives one vector
    that waits to enter a sum. It waits until the server says in which round it did: a round that
    came to nothing costs the client neither a second step nor budget.

    Privacy
    -------
    Each step's noisy model counts as published, so the guarantee holds whoever reads the messages,
    for `Agreement.rounds` steps, which are reserved in the ledger before the first; more are
    refused. Secure aggregation hides single vectors on top of that. How many steps were made, and
    when, is visible.

    The model that the server sends may be anything. What is refused is decided before the data are
    read, from the model and from what was published. Should a step fail all the same, the client
    says so, always in the same words, and answers no more: a failure may tell something about the
    data, but only once. That data cannot be read, or have changed since the first step, is visible
    too: then the client refuses, whatever the model is.

    Cost
    ----
    A local minimum for each step, and five messages for each round.
    """

    def _respond(self, asked: Envelope) -> Envelope:
        if self._get("failed") is not None:
            raise RefusedError(_FAILED)
        client = Client(
            self.number,
            self.identity,
            self.agreement.clients,
            self.agreement.secure,
            store=self.folder / "secure.state",
        )
        if asked.stage == "advertise":
            begin, committed, model = self._parts(asked, 3)
            if Begin.from_bytes(begin).round != asked.round:
                raise WireFormatError("The message names two rounds.")
            self._settle(int.from_bytes(committed, "little"))
            if self._get("pending") is None:
                try:
                    self._step(self._model(model))
                except _StepError:
                    self.store.put("failed", b"1")
                    return asked.reply(REFUSAL, _FAILED.encode())
            return asked.reply(ANSWER, client.advertise(begin))
        [text] = self._parts(asked, 1)
        if asked.round != client.round:
            raise RefusedError("The message belongs to another round.")
        if asked.stage == "share":
            return asked.reply(ANSWER, client.share(text))
        if asked.stage == "mask":
            return asked.reply(ANSWER, client.mask(text, self._change(asked.round)))
        if asked.stage == "confirm":
            signed = client.confirm(text)
            return asked.reply(ANSWER) if signed is None else asked.reply(ANSWER, signed)
        if asked.stage == "unmask":
            return asked.reply(ANSWER, client.unmask(text))
        raise WireFormatError("The message is of a stage that this task does not have.")

    def _settle(self, committed: int) -> None:
        """The vector that waited is in the server's total, if it was sent in that round."""
        waiting = self._get("pending")
        if waiting is not None and committed and self._count("masked in") == committed:
            self.store.put("sent", waiting)
            self.store.put("pending", b"")
            self.store.put("masked in", b"0")

    def _step(self, received: Array) -> None:
        agreement, terms, plan = self.agreement, self.agreement.consensus, self.agreement.plan
        done = self._count("steps")
        if done >= agreement.rounds:
            raise RefusedError("This client has taken part as often as was agreed.")
        n, me = len(agreement.clients), np.array([self.number])
        w, dual = self._vector("w"), self._vector("dual")
        with np.errstate(over="ignore", invalid="ignore"):
            ahead = terms.relaxation * received + (1 - terms.relaxation) * w
            near = ahead - dual
            distance = terms.rho * np.linalg.norm(near)
        if not distance <= _FARTHEST * self._slope:
            raise RefusedError("The message has a model that is too far away.")
        with self._charging():
            paid = self.ledger.reserve(plan.event, noise=self.noise)
        problems = self._problems
        try:
            found = problems.offsets(np.array([0]), near[np.newaxis], terms.rho)
        except Exception:  # whatever it is, it may depend on the data
            raise _StepError from None
        # The noise covers the distance from the point asked for, which is public: added before,
        # it would round the distance away.
        units = plan.quantize(found, n) + plan.draw(paid, done, me, agreement.dimension)
        w = near + plan.dequantize(units)[0]
        dual = dual + (w - ahead)
        self.store.put("w", w.tobytes())
        self.store.put("dual", dual.tobytes())
        self.store.put("pending", plan.quantize(w + dual, n).tobytes())
        self.store.put("steps", b"%d" % (done + 1))

    def _change(self, at_round: int) -> Integers:
        pending, sent = self._get("pending"), self._get("sent")
        if pending is None:
            raise RefusedError("This client has nothing to send.")
        self.store.put("masked in", b"%d" % at_round)
        change = np.frombuffer(pending, np.int64)
        return change if sent is None else change - np.frombuffer(sent, np.int64)

    @cached_property
    def _problems(self) -> LocalProblems:
        X, y, _ = self._data()
        agreement, terms = self.agreement, self.agreement.consensus
        rows = scaled_rows(X, agreement.fit_intercept, terms.row_norm)
        loss = agreement.loss_function
        everything = Devices(np.arange(1), np.arange(len(rows)), np.array([0, len(rows)]))
        return LocalProblems(rows, y, everything, loss, TOLERANCE * self._slope)

    @property
    def _slope(self) -> float:
        """What one record can do to a gradient."""
        return self.agreement.loss_function.derivative_bound * self.agreement.consensus.row_norm

    def _get(self, name: str) -> bytes | None:
        return self.store.get(name) or None

    def _count(self, name: str) -> int:
        return int(self._get(name) or b"0")

    def _vector(self, name: str) -> Array:
        found = self._get(name)
        return np.zeros(self.agreement.dimension) if found is None else np.frombuffer(found)


class ConsensusServer(Coordinator):
    """The server of consensus ADMM; parameters and use as for `Coordinator`.

    Rounds of secure aggregation are numbered and never repeated. One that succeeds is a commit: the
    sum enters the total, and this, the new model and who was in it are on disk before anybody is
    told.

    Attributes
    ----------
    w0 : ndarray
        The model.
    commits : int

    Privacy
    -------
    Post-processing of what clients send, which is noisy before it is masked: the guarantee is that
    of `ConsensusMember` and does not rest on the server.

    Cost
    ----
    Up to five questions to each client in a round. The state, of size O(dimension * tail +
    clients), and the history are written to the disk in each.
    """

    def __init__(self, agreement: Agreement, folder: str | Path) -> None:
        super().__init__(agreement, folder)
        d = agreement.dimension
        saved = self._load()
        self.commits = int(saved.get("commits", 0))
        self.round = int(saved.get("round", 0))
        self.w0 = np.array(saved.get("w0", [0.0] * d), np.float64)
        self._total = np.array(saved.get("total", [0] * d), np.int64)
        self._models = [np.array(model) for model in saved.get("models", [])]
        self._committed = {int(i): int(r) for i, r in saved.get("committed", {}).items()}
        self._missed = {int(i): int(k) for i, k in saved.get("missed", {}).items()}
        self._ahead: set[int] = set()
        self._secure: Server | None = None
        self._asked: set[int] = set()
        self._since = 0.0

    @property
    def finished(self) -> bool:
        return self.commits >= self.agreement.rounds

    def introduce(self, number: int, last_round: int) -> bool:
        """Leaves out clients that know later rounds than this server, which saves each it begins.

        They send changes of what the server's total has no longer. One may lie; where as many as a
        commit needs say so, or too few are left without them, the server's memory was lost.
        """
        if last_round <= self.round:
            self._ahead.discard(number)
            return True
        self._ahead.add(number)
        self.refusals[number] = "It has answered rounds that this server does not know."
        left = len(self.agreement.clients) - len(self._ahead)
        if len(self._ahead) >= LEAST_SURVIVORS or left < LEAST_SURVIVORS:
            raise ProtocolError(
                "This folder has lost its state: clients have answered rounds that it does not "
                "know. Put it back, or begin a new session."
            )
        return False

    def _advance(self, now: float) -> None:
        if self._secure is None:
            if len(self.present) >= LEAST_SURVIVORS:
                self._begin(now)
            return
        if self._secure.stage == "advertise":
            self._invite()
            if self._is_gathered(now) or now - self._since > 2 * self.agreement.patience:
                self._close(now)
        elif not self._open() or now - self._since > self.agreement.patience:
            self._close(now)

    def _begin(self, now: float) -> None:
        self.round += 1
        self._save(self._state())
        self._secure = Server(self.agreement.secure, self.agreement.clients, self.round)
        self._start_stage(now)
        self._invite()

    def _start_stage(self, now: float) -> None:
        self._asked, self.answered, self.declined = set(), set(), set()
        self.outbox.clear()
        self._since = now

    def _invite(self) -> None:
        assert self._secure is not None
        begin, model = self._secure.begin(), self.w0.astype("<f8").tobytes()
        for number in sorted(self.present - self._asked):
            committed = self._committed.get(number, 0).to_bytes(_WORD, "little")
            self._ask(number, "advertise", begin, committed, model)
            self._asked.add(number)

    def _open(self) -> set[int]:
        """Who was asked, can be reached, and is silent."""
        return (self._asked & self.present) - self.answered - self.declined

    def _is_gathered(self, now: float) -> bool:
        inside = len(self.answered)
        possible = len(self.present | self._unseen)
        enough = max(LEAST_SURVIVORS, min(self.agreement.barrier, possible))
        late = {
            number
            for number in self._open()
            if self._missed.get(number, 0) >= self.agreement.max_delay - 1
        }
        if inside >= enough and not late:
            return True
        if now - self._since <= self.agreement.patience and self._open() | self._unseen:
            return False
        return inside >= LEAST_SURVIVORS

    def _close(self, now: float) -> None:
        assert self._secure is not None
        try:
            inbox = self._secure.advance()
        except RoundAbortedError:
            self._secure = None
            self.aborted += 1
            return
        stage = self._secure.stage
        if stage == "done":
            self._commit()
            return
        self._start_stage(now)
        for number, text in inbox.items():
            self._ask(number, stage, text)
            self._asked.add(number)

    def _take(self, number: int, answer: Envelope) -> None:
        if (
            self._secure is None
            or answer.round != self.round
            or answer.stage != self._secure.stage
            or number not in self._asked
            or number in self.answered
        ):
            return  # late: what it says was settled without it
        if answer.kind != ANSWER:
            self.declined.add(number)
            return
        try:
            for part in answer.parts:
                self._secure.accept(number, part)
        except (ProtocolError, WireFormatError):
            self.declined.add(number)
            return
        self.answered.add(number)

    def _commit(self) -> None:
        assert self._secure is not None
        result = self._secure.result()
        terms, plan = self.agreement.consensus, self.agreement.plan
        words = np.asarray(self.agreement.secure.fixed_point.unwrap(result.words))
        self._total = self._total + words
        self._committed |= dict.fromkeys(result.survivors, self.round)
        self._missed = {
            number: 0 if number in result.survivors else self._missed.get(number, 0) + 1
            for number in self.agreement.clients
        }
        # Only those who ever contributed: the others would pull the model towards 0.
        n, before = len(self._committed), self.w0
        average = plan.dequantize(self._total) / n
        self.w0 = terms.regulariser.minimise(average, n * terms.rho)
        self._models = [*self._models, self.w0][-terms.tail :]
        self.commits += 1
        self.history.append(
            {
                "round": self.round,
                "participants": sorted(result.survivors),
                "residual": float(np.linalg.norm(self.w0 - before)),
            }
        )
        self._secure = None
        self.outbox.clear()
        self._save(self._state())

    def _state(self) -> dict[str, Any]:
        return {
            "commits": self.commits,
            "round": self.round,
            "w0": self.w0.tolist(),
            "total": self._total.tolist(),
            "models": [model.tolist() for model in self._models],
            "committed": self._committed,
            "missed": self._missed,
        }

    def model(self) -> Array:
        return tail_mean(self._models, self.agreement.consensus.tail)

    @property
    def privacy_(self) -> Privacy:
        return Privacy.of(
            [self.agreement.plan.event], self.agreement.consensus.delta, not_covered=_NOT_COVERED
        )
