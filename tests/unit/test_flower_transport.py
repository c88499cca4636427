"""The server's side of Flower, against nodes that send anything."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

if sys.version_info < (3, 11):
    pytest.skip("the extra 'flower' needs Python 3.11", allow_module_level=True)

from flower_support import build, memory_folder

from dpcore.interop.flower.node import Node, make_server
from dpcore.interop.flower.transport import STATUS, _Carrier, drive

flwr = pytest.importorskip("flwr.app")


@pytest.fixture
def place(monkeypatch):
    identity = pytest.importorskip("flwr.supercore.task_identity").TaskIdentity
    for name in ("_task_id", "_run_id", "_node_id"):  # as in an app that Flower started
        monkeypatch.setattr(identity, name, 1)
    with memory_folder() as folder:
        yield folder


def record(content):
    return flwr.RecordDict({"dpcore": flwr.ConfigRecord(content)})


class Grid:
    """Hands messages to nodes of this process; `nodes` are functions from questions to content."""

    def __init__(self, nodes):
        self.nodes = nodes
        self.replies = {}

    def get_node_ids(self):
        return list(self.nodes)

    def push_messages(self, messages):
        names = []
        for message in messages:
            names.append(f"message {len(self.replies)}")
            questions = dict(message.content["dpcore"])
            self.replies[names[-1]] = self.nodes[message.metadata.dst_node_id](questions)
        return names

    def pull_messages(self, names):
        return [
            SimpleNamespace(
                content=self.replies[name],
                metadata=SimpleNamespace(reply_to_message_id=name),
                has_error=lambda: False,
            )
            for name in names
        ]


HOSTILE = {
    "nothing": lambda questions: flwr.RecordDict(),
    "another record": lambda questions: flwr.RecordDict({"other": flwr.ConfigRecord({"0": b""})}),
    "an array": lambda questions: flwr.RecordDict(
        {"dpcore": flwr.ArrayRecord([np.zeros(3, np.float32)])}
    ),
    "a long name": lambda questions: record({"9" * 5000: b"x"}),
    "strange names": lambda questions: record({"²": b"x", "-1": b"", "0.5": b"", "": b""}),
    "numbers": lambda questions: record(dict.fromkeys("012345", 7)),
    "garbage": lambda questions: record(dict.fromkeys("012345", b"x" * 100)),
    "an echo": record,
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_node_stops_nobody(place, what):
    agreement = build(place, "fedsgd", per_node=(2, 2), barrier=4, rounds=2)
    server = make_server(agreement, place / "server")
    good = [Node(place / f"node-{i}") for i in range(2)]
    nodes = {i + 1: lambda questions, node=node: record(node.answer(questions))
             for i, node in enumerate(good)}  # fmt: skip
    grid = Grid(nodes | {3: HOSTILE[what]})
    carrier = _Carrier(grid, server)
    for now in range(200):
        carrier.turn(float(now))
        if server.finished:
            break
    assert server.finished
    assert [len(one["reports"]) for one in server.history] == [4, 4]


@pytest.mark.parametrize("what", HOSTILE)
def test_what_is_no_answer_is_lost(place, what):
    """A node that showed who it is, and then sends anything."""
    agreement = build(place, "fedsgd", per_node=(2, 2), barrier=4, rounds=1)
    server = make_server(agreement, place / "server")
    first, second = (Node(place / f"node-{i}") for i in range(2))

    def turncoat(questions):
        return (
            record(second.answer(questions)) if "hello" in questions else HOSTILE[what](questions)
        )

    carrier = _Carrier(Grid({1: lambda q: record(first.answer(q)), 2: turncoat}), server)
    for now in range(200):
        carrier.turn(float(now))
        if server.finished:
            break
    assert server.finished
    assert {number for number, _ in server.history[0]["reports"]} == {0, 1}


def test_the_status_is_in_a_file(place):
    agreement = build(place, "fedsgd", per_node=(2,), barrier=2, rounds=2)
    server, node = make_server(agreement, place / "server"), Node(place / "node-0")
    path = place / "server" / STATUS
    seen = []

    def answer(questions):
        seen.append(path.read_text() if path.exists() else "")
        return record(node.answer(questions))

    drive(Grid({1: answer}), server, status=path)
    assert seen[0] == ""
    assert seen[-1] == "round 2, 1 of 2 done; present: 0 1\n"
    assert path.read_text() == "round 3, 2 of 2 done; present: 0 1\n"
