"""What every client does, whatever is learned: keep its secrets, and answer each question once."""

from __future__ import annotations

import hashlib
import hmac
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dpcore._files import create_bytes
from dpcore.accounting import Ledger
from dpcore.errors import DPCoreError, RefusedError, WireFormatError
from dpcore.interop.flower.agreement import Agreement
from dpcore.interop.flower.envelope import ANSWER, QUESTION, REFUSAL, Envelope
from dpcore.interop.flower.store import Answered, Store
from dpcore.noise import Noise
from dpcore.secure.keys import KEY_BYTES, Identity, random_key

__all__ = ["Data", "Member", "hello_text", "make_keys"]

# Features on [-1, 1], signs or targets, and devices if there is a column for them.
Data = tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[Any] | None]

_IDENTITY = "identity.key"
_NOISE = "noise.key"


def make_keys(folder: Path) -> bytes:
    """Create what is missing of a client's keys, readable by its owner; the public signing key."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name in (_IDENTITY, _NOISE):
        if not (folder / name).exists():
            create_bytes(folder / name, random_key(), mode=0o600)
    _read_key(folder / _NOISE)
    return Identity(_read_key(folder / _IDENTITY)).public


def _read_key(path: Path) -> bytes:
    try:
        key = path.read_bytes()
    except OSError:
        raise RefusedError("A key file of this client is missing or cannot be read.") from None
    if len(key) != KEY_BYTES:
        raise RefusedError("A key file of this client is damaged.")
    return key


def hello_text(agreement: Agreement, number: int, nonce: bytes) -> bytes:
    """What a client signs to show who it is."""
    return agreement.digest + number.to_bytes(8, "little") + nonce


class Member(ABC):
    """One client of a federation, with a folder of its own on the disk of its node.

    `answer` takes the bytes of a question and returns those of the answer. The answer is on disk
    before it is returned. Asked the same again, in this process or after a crash, the client
    returns the same bytes; asked anything else in a stage of a round that it has answered, it
    refuses. It answers for one state of its data: what they were at its first answer. A client that
    lost its memory begins anew, and pays again.

    Parameters
    ----------
    agreement : Agreement
        The client's own copy.
    number : int
        Which client of the agreement it is.
    folder : path
        Where its keys and its memory are.
    data : callable
        Gives the data when they are needed.
    ledger : Ledger
        The budget of these data.
    part : str, optional
        Which part of the ledger's data these are, where it is for those of several clients.
    """

    def __init__(
        self,
        agreement: Agreement,
        number: int,
        folder: str | Path,
        data: Callable[[], Data],
        ledger: Ledger,
        part: str | None = None,
    ) -> None:
        self.agreement = agreement
        self.number = number
        self.folder = Path(folder)
        self.ledger = ledger
        self.identity = Identity(_read_key(self.folder / _IDENTITY))
        if agreement.clients.get(number) != self.identity.public:
            raise RefusedError("The agreement has another key for this client.")
        key = _read_key(self.folder / _NOISE)
        self.store = Store(
            self.folder / "answers.sqlite", agreement.digest + number.to_bytes(8, "little")
        )
        # A client that lost its memory, but not its keys, must not use its noise again: it has
        # other noise, which the ledger counts as another release.
        self.noise = Noise.from_key(key).stream("federation", agreement.digest, self.store.name)
        self._source = data
        self._part = part

    def answer(self, question: bytes) -> bytes:
        """The answer to a question: a refusal if it could expose the data or makes no sense."""
        asked = Envelope.from_bytes(question)
        try:
            self._check(asked)
            if asked.stage == "hello":
                return self._hello(asked).to_bytes()
            name = hashlib.sha256(question).digest()
            with self.store.turn():
                before = self.store.answered(asked.round, asked.stage)
                if before is None:
                    answer = self._respond(asked).to_bytes()
                    before = Answered(asked.round, asked.stage, name, answer)
                    self.store.record(before)
            if before.question != name:
                raise RefusedError("This stage was answered before, to another question.")
            return before.answer
        except DPCoreError as error:
            # Messages of dpcore name parameters, never data.
            return asked.reply(REFUSAL, str(error).encode()).to_bytes()

    def close(self) -> None:
        """Let go of the file."""
        self.store.close()

    @abstractmethod
    def _respond(self, asked: Envelope) -> Envelope:
        """Compute the reply, inside a turn of the store.

        What is raised undoes the turn, so that the same may be asked again, for nothing: whether
        it is must not depend on the data together with the question. A failure that could is a
        reply too: a refusal with one text, kept like an answer, with what it costs.
        """

    def _charging(self) -> AbstractContextManager[Ledger]:
        """What is reserved inside concerns the data of this client."""
        if self._part is None:
            return nullcontext(self.ledger)
        return self.ledger.part("file", self._part)

    def _data(self) -> Data:
        """The data, inside a turn of the store: those of the first answer, or a refusal."""
        data = self._source()
        seal = _seal(data, self.noise.key_for("federation data").export())
        before = self.store.get("data")
        if before is None:
            self.store.put("data", seal)
        elif not hmac.compare_digest(before, seal):
            raise RefusedError("The data of this client have changed since its first answer.")
        return data

    def _check(self, asked: Envelope) -> None:
        if asked.kind != QUESTION or asked.number != self.number:
            raise WireFormatError("The message is not a question to this client.")
        if asked.agreement != self.agreement.digest:
            raise RefusedError("The server has another agreement than this client.")

    def _hello(self, asked: Envelope) -> Envelope:
        [nonce] = self._parts(asked, 1)
        signature = self.identity.sign(b"hello", hello_text(self.agreement, self.number, nonce))
        return asked.reply(ANSWER, signature, self.store.last_round.to_bytes(8, "little"))

    def _parts(self, asked: Envelope, count: int) -> tuple[bytes, ...]:
        if len(asked.parts) != count:
            raise WireFormatError("The message has another number of parts than its stage takes.")
        return asked.parts

    def _model(self, data: bytes) -> npt.NDArray[np.float64]:
        """A model that the server sent."""
        if len(data) != 8 * self.agreement.dimension:
            raise WireFormatError("The message has a model of another size than agreed.")
        model = np.frombuffer(data, "<f8").astype(np.float64)
        if not np.isfinite(model).all():
            raise WireFormatError("The message has a model that is not finite.")
        return model


def _seal(data: Data, key: bytes) -> bytes:
    """A digest of the arrays; keyed, because an unkeyed one of few possible values is guessed."""
    state = hmac.new(key, digestmod="sha256")
    for array in data:
        if array is None:
            continue
        content = repr(array.tolist()).encode() if array.dtype.hasobject else array.tobytes()
        state.update(repr((array.dtype.str, array.shape, len(content))).encode() + content)
    return state.digest()
