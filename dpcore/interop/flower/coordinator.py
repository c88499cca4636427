"""What every server of a federation does: ask, wait, leave out who is silent, and remember."""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dpcore._files import replace_bytes
from dpcore.accounting import Privacy
from dpcore.errors import ProtocolError, WireFormatError
from dpcore.interop.flower.agreement import Agreement
from dpcore.interop.flower.envelope import ANSWER, QUESTION, REFUSAL, Envelope
from dpcore.interop.flower.member import hello_text
from dpcore.interop.flower.store import Fence, Store
from dpcore.secure.keys import verify

__all__ = ["Coordinator"]

_RESULT = "model.json"
_LONGEST = 200  # characters of a refusal that are kept


class Coordinator(ABC):
    """The server's side, without a network: a transport carries its questions and their answers.

    The transport says who can be reached (`present`), hands out questions (`take`), hands in
    answers (`accept`), and calls `advance` with its clock, again and again, until `finished`.
    A question that was not taken is replaced by the next one for the same client.

    Parameters
    ----------
    agreement : Agreement
    folder : path
        Where the state is kept. A server that starts with the folder of one that died goes on where
        that was; should it still live, it can write no more.

    Attributes
    ----------
    present : set of int
        Clients that can be reached.
    history : list of dict
        What happened, by commit.
    aborted : int
        Rounds that came to nothing, in this process.
    refusals : dict of int to str
        What clients said that refused, and have not answered since.
    """

    def __init__(self, agreement: Agreement, folder: str | Path) -> None:
        self.agreement = agreement
        self.folder = Path(folder)
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._store = Store(self.folder / "server.sqlite", agreement.digest)
        self._fence = Fence(self._store)
        self._nonce = os.urandom(32)
        self.present: set[int] = set()
        self.outbox: dict[int, bytes] = {}
        self.answered: set[int] = set()
        self.declined: set[int] = set()
        self.history: list[dict[str, Any]] = []
        self.aborted = 0
        self.refusals: dict[int, str] = {}
        self._saved_history = 0
        self._seen: set[int] = set()

    # Who is who

    def hello(self, number: int) -> bytes:
        """The question that makes a client show who it is."""
        return Envelope(
            QUESTION, "hello", number, 0, self.agreement.digest, (self._nonce,)
        ).to_bytes()

    def recognise(self, number: int, data: bytes) -> bool:
        """Whether the answer to `hello` is this client's, and it can take part."""
        try:
            answer = Envelope.from_bytes(data)
        except WireFormatError:
            return False
        if answer.kind == REFUSAL and number in self.agreement.clients:
            self._note(number, answer)
        if answer.kind != ANSWER or answer.stage != "hello" or len(answer.parts) != 2:
            return False
        public = self.agreement.clients.get(number)
        text = hello_text(self.agreement, number, self._nonce)
        if public is None or not verify(public, b"hello", text, answer.parts[0]):
            return False
        return self.introduce(number, int.from_bytes(answer.parts[1], "little"))

    @abstractmethod
    def introduce(self, number: int, last_round: int) -> bool:
        """Whether a client can take part that has answered last in this round."""

    # Questions and answers

    def take(self, number: int) -> bytes | None:
        """The question for a client, which is handed out once."""
        return self.outbox.pop(number, None)

    def accept(self, number: int, data: bytes) -> None:
        """An answer of a client; what is no answer counts as silence."""
        try:
            answer = Envelope.from_bytes(data)
        except WireFormatError:
            return
        if answer.kind == REFUSAL:
            self._note(number, answer)
        elif answer.kind == ANSWER:
            self.refusals.pop(number, None)
        if answer.agreement == self.agreement.digest and answer.number == number:
            self._take(number, answer)

    def _note(self, number: int, refusal: Envelope) -> None:
        """Keep what a client says, which may be anything, as one short line."""
        text = b" ".join(refusal.parts)[: 4 * _LONGEST].decode(errors="replace")
        self.refusals[number] = "".join(filter(str.isprintable, text))[:_LONGEST]

    def lose(self, number: int) -> None:
        """The question to this client did not reach it, or it died over it."""
        self.declined.add(number)

    @property
    @abstractmethod
    def finished(self) -> bool:
        """Whether all rounds are done."""

    def advance(self, now: float) -> None:
        """Do what can be done at this time."""
        self._seen |= self.present
        if not self.finished:
            self._advance(now)

    @abstractmethod
    def _advance(self, now: float) -> None:
        """The same, where there is something left to do."""

    @property
    def _unseen(self) -> set[int]:
        """Clients that may still come; those who came and went are not waited for."""
        return set(self.agreement.clients) - self._seen

    @abstractmethod
    def _take(self, number: int, answer: Envelope) -> None:
        """Use an answer."""

    def _ask(self, number: int, stage: str, *parts: bytes) -> None:
        self.outbox[number] = Envelope(
            QUESTION, stage, number, self.round, self.agreement.digest, parts
        ).to_bytes()

    round: int
    commits: int

    def status(self) -> str:
        """How far it is, who can be reached and who refuses, in one line of public things."""
        parts = [
            f"round {self.round}, {self.commits} of {self.agreement.rounds} done",
            f"present: {' '.join(map(str, sorted(self.present))) or 'nobody'}",
            *(f"client {number} refuses: {text}" for number, text in sorted(self.refusals.items())),
        ]
        return "; ".join(parts)

    # Memory

    def _load(self) -> dict[str, Any]:
        with self._store.turn():
            saved = json.loads(self._store.get("checkpoint") or b"{}")
            self.history = json.loads(self._store.get("history") or b"[]")
        self._saved_history = len(self.history)
        return dict(saved)

    def _save(self, state: dict[str, Any]) -> None:
        with self._store.turn():
            self._fence.check()
            self._store.put("checkpoint", json.dumps(state).encode())
            if len(self.history) != self._saved_history:
                self._store.put("history", json.dumps(self.history).encode())
        self._saved_history = len(self.history)

    # Result

    @abstractmethod
    def model(self) -> npt.NDArray[np.float64]:
        """The model, the intercept last."""

    @property
    @abstractmethod
    def privacy_(self) -> Privacy:
        """What the whole run guarantees for the data of a client."""

    def write_result(self) -> Path:
        """The model in a file of its own, put in place at once."""
        if not self.finished:
            raise ProtocolError("The federation is not finished.")
        agreement, theta = self.agreement, self.model()
        intercept = float(theta[-1]) if agreement.fit_intercept else 0.0
        result = {
            "session": agreement.session,
            "task": agreement.task,
            "loss": agreement.loss,
            "features": list(agreement.features),
            "bounds": [list(pair) for pair in agreement.bounds],
            "classes": list(agreement.classes),
            "coef": theta[: len(agreement.features)].tolist(),
            "intercept": intercept,
            "privacy": {
                name: getattr(self.privacy_, name)
                for name in ("epsilon", "delta", "unit", "adjacency", "not_covered")
            },
            "history": self.history,
        }
        path = self.folder / _RESULT
        replace_bytes(path, json.dumps(result, indent=1).encode())
        return path
