"""A node: the clients whose data lie on one machine, and the folder in which all of them live."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

from dpcore._files import replace_bytes
from dpcore.accounting import Ledger
from dpcore.errors import DPCoreError, ParameterError, RefusedError, WireFormatError
from dpcore.interop.flower import data
from dpcore.interop.flower.agreement import Agreement
from dpcore.interop.flower.consensus import ConsensusMember, ConsensusServer
from dpcore.interop.flower.coordinator import Coordinator
from dpcore.interop.flower.descent import DescentMember, DescentServer
from dpcore.interop.flower.envelope import REFUSAL, Envelope
from dpcore.interop.flower.member import Member, make_keys

__all__ = ["HELLO", "Node", "client_folder", "enrol", "log_failure", "make_server"]

HELLO = "hello"
_CONFIG = "node.json"
_AGREEMENT = "federation.toml"
_CANNOT = b"This client cannot answer; the log of its node says why."


def client_folder(folder: str | Path, number: int) -> Path:
    """Where a client of a node keeps its keys and its memory."""
    return Path(folder) / f"client-{number}"


def enrol(
    folder: str | Path,
    agreement: str | Path,
    clients: Mapping[int, str | Path],
    *,
    ledger: str | Path | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
) -> Agreement:
    """Prepare the folder of a node; done again, it must be for the same agreement.

    Parameters
    ----------
    folder : path
    agreement : path
        The TOML file of public terms. A copy is kept.
    clients : mapping of int to path
        The clients of this node and their files of data.
    ledger : path, optional
        An existing or new budget for the data of all clients of the node, where it is not one for
        each client in its folder. Their files must have no record in common: each is a part of the
        ledger, known by its path, and only the costliest counts.
    epsilon, delta : float, optional
        The budget of new ledgers; by default what the agreement needs.

    Privacy
    -------
    No data are read: only where they are is kept. Whoever has the keys in the folder can remove the
    noise; those made here are readable by their owner only.

    Cost
    ----
    A few small files for each client.
    """
    place, terms = Path(folder), Agreement.from_file(agreement)
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    copy = place / _AGREEMENT
    if copy.exists() and Agreement.from_file(copy).digest != terms.digest:
        raise RefusedError("This folder belongs to another agreement.")
    if not clients or any(number not in terms.clients for number in clients):
        raise ParameterError("The 'clients' parameter must name clients of the agreement.")
    for number in clients:
        if make_keys(client_folder(place, number)) != terms.clients[number]:
            raise RefusedError("The agreement has another key for this client.")
    chance = terms.consensus.delta if terms.task == "admm" else None
    config = {
        "clients": {str(number): str(Path(path).resolve()) for number, path in clients.items()},
        "ledger": None if ledger is None else str(Path(ledger).resolve()),
        "epsilon": terms.epsilon if epsilon is None else epsilon,
        "delta": chance if delta is None else delta,
    }
    if not copy.exists():
        replace_bytes(copy, Path(agreement).read_bytes(), mode=0o600)
    replace_bytes(place / _CONFIG, json.dumps(config, indent=1).encode(), mode=0o600)
    return terms


def make_server(agreement: Agreement, folder: str | Path) -> Coordinator:
    """The server for the task of an agreement.

    Privacy
    -------
    That of the server made; see `ConsensusServer` and `DescentServer`.

    Cost
    ----
    The state in the folder is read, or a new one made.
    """
    kind = ConsensusServer if agreement.task == "admm" else DescentServer
    return kind(agreement, folder)


class Node:
    """The clients of a folder made by `enrol`; takes and returns bytes by client.

    Each call opens what it needs and leaves nothing in memory, as engines start a process for each
    message.

    Privacy
    -------
    That of `ConsensusMember` or `DescentMember` for each client; data and keys stay in the folder
    and files of the node. A folder that is put back to an earlier state is not covered.

    Cost
    ----
    Files are opened for each question, and a client's whole file of data is read for each of its
    steps, beside the cost of the client itself.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.agreement = Agreement.from_file(self.folder / _AGREEMENT)
        self._config = json.loads((self.folder / _CONFIG).read_text())

    @property
    def numbers(self) -> list[int]:
        """The clients that live here."""
        return sorted(int(number) for number in self._config["clients"])

    def member(self, number: int) -> Member:
        """One client."""
        kind = ConsensusMember if self.agreement.task == "admm" else DescentMember
        folder = client_folder(self.folder, number)
        shared, path = self._config["ledger"], self._config["clients"][str(number)]
        budget = shared or folder / "ledger.sqlite"
        new = {} if Path(budget).exists() else {k: self._config[k] for k in ("epsilon", "delta")}
        return kind(
            self.agreement,
            number,
            folder,
            partial(data.load, path, self.agreement),
            Ledger(budget, durability="power", **new),
            path if shared else None,
        )

    def answer(self, questions: Mapping[str, bytes]) -> dict[str, bytes]:
        """Answers of the clients that were asked; ``{"hello": nonce}`` asks all of them.

        What makes no sense is answered with silence. Refusals are written to the standard error.
        """
        found = {}
        for number in self.numbers:
            name = HELLO if HELLO in questions else str(number)
            if name not in questions:
                continue
            try:
                asked = Envelope.from_bytes(questions[name])
            except WireFormatError:
                continue
            if name == HELLO:
                asked = replace(asked, number=number)
            found[str(number)] = self._answer(number, asked).to_bytes()
        return found

    def _answer(self, number: int, asked: Envelope) -> Envelope:
        try:
            with closing(self.member(number)) as member:
                reply = Envelope.from_bytes(member.answer(asked.to_bytes()))
        except Exception as error:  # its text is for this machine: the reply has one text
            log_failure(f"client {number}", error)
            return asked.reply(REFUSAL, _CANNOT)
        if reply.kind == REFUSAL:
            _log(f"client {number} refuses: {reply.parts[0].decode()}")
        return reply


def log_failure(who: str, error: Exception) -> None:
    """Say on the standard error what went wrong; texts of other packages may quote the data."""
    _log(f"{who}: {error if isinstance(error, DPCoreError) else type(error).__name__}")


def _log(text: str) -> None:
    print(f"dpcore: {text}", file=sys.stderr, flush=True)
