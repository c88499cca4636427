"""Whole federations in one process: real folders and ledgers, and a carrier that loses things."""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
from pathlib import Path

import numpy as np

from dpcore.accounting import Ledger
from dpcore.interop.flower import member, store
from dpcore.interop.flower.agreement import Agreement
from dpcore.interop.flower.envelope import ANSWER, Envelope
from dpcore.interop.flower.member import make_keys
from dpcore.interop.flower.node import HELLO, Node, client_folder, enrol, make_server
from dpcore.secure import client as secure_client

NAME = bytes(32)  # of the memory of clients that are to have the same noise
FEATURES = ("a", "b", "c")
ADMM = {"epsilon": 16.0, "rounds": 4, "barrier": 4, "max_delay": 3, "patience": 6.0}
ADMM_TERMS = {"rho": 8.0, "beta": 0.1, "server": "curious"}
DESCENT = {"epsilon": 4.0, "rounds": 4, "barrier": 4, "max_delay": 2, "patience": 6.0}
DESCENT_TERMS = {"group_size": 20}


def records(seed, n=60):
    generator = np.random.default_rng(seed)
    X = generator.uniform(-1, 1, (n, 3))
    y = (X[:, 0] - X[:, 1] + 0.2 * generator.normal(size=n) > 0).astype(int)
    return X, y


def to_toml(task, keys, options, terms):
    lines = [
        'session = "test"',
        f'task = "{task}"',
        f"features = {list(FEATURES)}",
        "bounds = [[0, 100], [0, 100], [0, 100]]",
        "classes = [0, 1]",
        *(f"{name} = {value}" for name, value in options.items()),
        f"[{task}]",
        *(f"{name} = {value!r}" for name, value in terms.items()),
        "[clients]",
        *(f'{number} = "{key.hex()}"' for number, key in keys.items()),
    ]
    return "\n".join(lines) + "\n"


def build(root, task="admm", *, per_node=(2, 2, 2), same_noise=False, terms=None, **options):
    """Folders of nodes and a server, and the agreement; client i holds `records(i)`."""
    base, base_terms = (ADMM, ADMM_TERMS) if task == "admm" else (DESCENT, DESCENT_TERMS)
    places, number = {}, 0
    for node, count in enumerate(per_node):
        for _ in range(count):
            places[number] = root / f"node-{node}"
            number += 1
    keys = {}
    for i, place in places.items():
        keys[i] = make_keys(client_folder(place, i))
        if same_noise:
            (client_folder(place, i) / "noise.key").write_bytes(bytes(range(32)))
        X, y = records(i)
        np.savez(root / f"{i}.npz", X=50 + 50 * X, y=y)
    path = root / "federation.toml"
    path.write_text(to_toml(task, keys, base | options, base_terms | (terms or {})))
    for node in range(len(per_node)):
        place = root / f"node-{node}"
        enrol(place, path, {i: root / f"{i}.npz" for i, p in places.items() if p == place})
        for one in map(Node(place).member, Node(place).numbers if same_noise else ()):
            with contextlib.closing(one), one.store.turn():
                one.store.put("name", NAME)
    (root / "server").mkdir()
    (root / "server" / "federation.toml").write_text(path.read_text())
    return Agreement.from_file(path)


class CrashError(BaseException):
    """The process dies here."""


class Accident:
    """Dies at the n-th point from now: before or after something reaches a disk."""

    def __init__(self):
        self.left = None
        self.by_signal = False

    def point(self):
        if self.left is None:
            return
        self.left -= 1
        if self.left < 0:
            self.left = None
            if self.by_signal:
                os.kill(os.getpid(), signal.SIGKILL)
            raise CrashError

    def install(self, monkeypatch):
        for owner, name in (
            (store.Store, "put"),
            (store.Store, "record"),
            (Ledger, "charge"),
            (secure_client, "write_state"),
            (member.Member, "answer"),
        ):
            monkeypatch.setattr(owner, name, self._around(getattr(owner, name)))
        return self

    def _around(self, function):
        def wrapped(*arguments, **options):
            self.point()
            result = function(*arguments, **options)
            self.point()
            return result

        return wrapped


class World:
    """A server and nodes on disk; nothing else survives a crash."""

    def __init__(self, root: Path, agreement: Agreement):
        self.root, self.agreement = root, agreement
        self.nodes = sorted(root.glob("node-*"))
        self.alive = dict.fromkeys(self.nodes, True)
        self.homes = {node: Node(node).numbers for node in self.nodes}
        self.seen: dict[tuple[int, int, str], bytes] = {}
        self.questions: dict[tuple[int, int, str], bytes] = {}
        self.now = 0.0
        self.restart()

    def restart(self):
        """A server begins with what its folder holds."""
        self.server = make_server(self.agreement, self.root / "server")
        for node in self.nodes:
            self.greet(node)

    def greet(self, node):
        for name, text in Node(node).answer({HELLO: self.server.hello(0)}).items():
            assert self.server.recognise(int(name), text)

    def look(self):
        self.server.present = {
            n for node in self.nodes if self.alive[node] for n in self.homes[node]
        }

    def turn(self):
        self.now += 1.0
        self.look()
        self.server.advance(self.now)

    def take(self, node):
        return {str(n): q for n in self.homes[node] if (q := self.server.take(n)) is not None}

    def ask(self, node, questions):
        """Answers of a node, each compared with what was answered there before."""
        if not questions:
            return {}
        answers = Node(node).answer(questions)
        for name, text in answers.items():
            self.check(int(name), questions[name], text)
        return answers

    def check(self, number, question, text):
        answer, asked = Envelope.from_bytes(text), Envelope.from_bytes(question)
        place = (number, asked.round, asked.stage)
        if answer.kind == ANSWER:
            assert self.seen.setdefault(place, text) == text, "a second answer"
            assert self.questions.setdefault(place, question) == question, "two questions answered"

    def deliver(self, node):
        questions = self.take(node)
        for name, text in self.ask(node, questions).items():
            self.server.accept(int(name), text)

    def finish(self, most=400):
        """Everybody answers at once until the end."""
        for _ in range(most):
            if self.server.finished:
                return self.server
            self.turn()
            for node in self.nodes:
                if self.alive[node]:
                    self.deliver(node)
        raise AssertionError("the federation did not finish")

    def members(self):
        return [Node(node).member(n) for node in self.nodes for n in self.homes[node]]


@contextlib.contextmanager
def memory_folder():
    """A folder of real files in memory where there is one: tests wait for the disk very often."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as name:
        yield Path(name)


@contextlib.contextmanager
def dies():
    """The block may end by a crash, of which nothing is left but what is on disk."""
    with contextlib.suppress(CrashError):
        yield
