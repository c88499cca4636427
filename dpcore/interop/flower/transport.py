"""The seam to Flower: its apps carry the bytes of a server and its nodes, and nothing else.

Only this module and the processes that `launch` starts know Flower. A message to a node is a record
of bytes by client, and so is its answer.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpcore._files import replace_bytes
from dpcore.errors import ParameterError
from dpcore.interop.flower.agreement import Agreement
from dpcore.interop.flower.coordinator import Coordinator
from dpcore.interop.flower.node import HELLO, Node, log_failure, make_server
from dpcore.interop.flower.store import ReplacedError

__all__ = ["FOLDER", "RUN", "STATUS", "client_app", "drive", "failure_file", "server_app"]

# In the environment of the server's process: its folder, and a name of this start of it.
FOLDER = "DPCORE_FEDERATION"
RUN = "DPCORE_FEDERATION_RUN"
NODE_FOLDER = "dpcore-folder"  # in the configuration of a node
PULSE = "pulse"
STATUS = "status.txt"  # in the server's folder: a line that says how far it is

_RECORD = "dpcore"
_POLL = 0.2
_LIFETIME = 3600.0  # seconds that an undelivered question is kept


def failure_file(folder: Path, run: str) -> Path:
    """Where a server says why it gave up; one that was replaced writes to a file of its own."""
    return folder / f"failure-{run}.txt"


def client_app() -> Any:
    """The app that Flower runs on a node, once for each message.

    It takes nothing from the server but questions: the folder, and with it the agreement, the data
    and the keys, is named by the node's own configuration.
    """
    from flwr.app import ConfigRecord, Context, Message, RecordDict
    from flwr.clientapp import ClientApp

    app = ClientApp()

    @app.query()
    def answer(message: Message, context: Context) -> Message:
        answers: dict[str, bytes] = {}
        try:
            questions = dict(message.content[_RECORD])
            answers = Node(str(context.node_config[NODE_FOLDER])).answer(questions)
        except Exception as error:  # Flower would send its text to the server
            log_failure("this node cannot answer", error)
        return Message(RecordDict({_RECORD: ConfigRecord(answers)}), reply_to=message)

    return app


def server_app() -> Any:
    """The app that Flower runs next to its SuperLink; its folder is named by the environment."""
    from flwr.app import Context
    from flwr.serverapp import Grid, ServerApp

    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        folder = os.environ.get(FOLDER)
        if folder is None:
            raise ParameterError(f"The {FOLDER} variable must name the server's folder.")
        place = Path(folder)
        try:
            server = make_server(Agreement.from_file(place / "federation.toml"), place)
            drive(grid, server, pulse=place / PULSE, status=place / STATUS)
            server.write_result()
        except ReplacedError:
            return
        except Exception as error:
            reason = f"{type(error).__name__}: {error}\n"
            replace_bytes(failure_file(place, os.environ.get(RUN, "")), reason.encode())
            raise

    return app


@dataclass(frozen=True)
class _Sent:
    node: int
    numbers: tuple[int, ...]
    is_hello: bool


def drive(
    grid: Any, server: Coordinator, *, pulse: Path | None = None, status: Path | None = None
) -> None:
    """Carry questions and answers until the server is finished.

    Parameters
    ----------
    grid : flwr.serverapp.Grid
    server : Coordinator
    pulse : path, optional
        A file with the number of this process, touched in every turn: whoever started this sees
        that it lives.
    status : path, optional
        A file that has the server's status, replaced when that changes.
    """
    carrier = _Carrier(grid, server)
    if pulse is not None:
        pulse.write_text(str(os.getpid()))
    said = ""
    while not server.finished:
        carrier.turn(time.monotonic())
        if status is not None and server.status() != said:
            said = server.status()
            replace_bytes(status, f"{said}\n".encode())
        if pulse is not None:
            pulse.touch()
        time.sleep(_POLL)


class _Carrier:
    """Which client is at which node, and which messages are under way: one per node."""

    def __init__(self, grid: Any, server: Coordinator) -> None:
        self._grid = grid
        self._server = server
        self._node_of: dict[int, int] = {}
        self._greeted: set[int] = set()
        self._under_way: dict[str, _Sent] = {}

    def turn(self, now: float) -> None:
        online = set(self._grid.get_node_ids())
        self._greeted &= online
        for message in self._grid.pull_messages(list(self._under_way)):
            sent = self._under_way.pop(message.metadata.reply_to_message_id, None)
            if sent is not None:
                self._receive(sent, message)
        self._server.present = {n for n, node in self._node_of.items() if node in online}
        self._server.advance(now)
        busy = {sent.node for sent in self._under_way.values()}
        for node in sorted(online - busy):
            self._send(node)

    def _send(self, node: int) -> None:
        if node not in self._greeted:
            self._greeted.add(node)
            self._push(node, {HELLO: self._server.hello(0)}, _Sent(node, (), True))
            return
        numbers = sorted(n for n, place in self._node_of.items() if place == node)
        questions = {str(n): text for n in numbers if (text := self._server.take(n)) is not None}
        if questions:
            self._push(node, questions, _Sent(node, tuple(map(int, questions)), False))

    def _push(self, node: int, questions: dict[str, bytes], sent: _Sent) -> None:
        from flwr.app import ConfigRecord, Message, RecordDict

        content = RecordDict({_RECORD: ConfigRecord(questions)})
        message = Message(content, dst_node_id=node, message_type="query", ttl=_LIFETIME)
        [name] = self._grid.push_messages([message])
        if name is None:
            self._lose(sent)
        else:
            self._under_way[name] = sent

    def _receive(self, sent: _Sent, message: Any) -> None:
        if message.has_error():
            self._lose(sent)
            return
        # What a node sends may be anything: only what was asked for is looked up.
        found = message.content.config_records.get(_RECORD, {})
        asked = self._server.agreement.clients if sent.is_hello else sent.numbers
        for number in asked:
            data = found.get(str(number))
            if not isinstance(data, bytes):
                if not sent.is_hello:
                    self._server.lose(number)
            elif not sent.is_hello:
                self._server.accept(number, data)
            elif self._server.recognise(number, data):
                self._node_of[number] = sent.node

    def _lose(self, sent: _Sent) -> None:
        for number in sent.numbers:
            self._server.lose(number)
        if sent.is_hello:
            self._greeted.discard(sent.node)
