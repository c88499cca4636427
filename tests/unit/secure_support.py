"""Clients and a server whose messages a test can hold, drop and change."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dpcore.secure import Client, Identity, Parameters, Server
from dpcore.secure.messages import SERVER, Roster
from dpcore.secure.rounds import Round

STAGES = ("advertise", "share", "mask", "confirm", "unmask")


def parameters(**changes):
    given = {
        "session": b"test",
        "dimension": 4,
        "bound": 8,
        "max_clients": 20,
        "min_clients": 4,
        "min_survivors": 3,
        **changes,
    }
    return Parameters(**given)


def clone(client):
    """Another client in the same state, as a restored backup would be."""
    copy = Client(
        client.number, client._identity, client._directory, client.parameters, charge=client._charge
    )
    copy._state = client._state
    return copy


class Run:
    """A round, a stage a time. `inbox` holds the messages that clients have not answered yet."""

    def __init__(self, n=5, p=None, vectors=None, clients=None, number=1, **client_options):
        self.p = p or parameters()
        self.x = np.arange(n * self.p.dimension).reshape(n, -1) % 7 - 3.0
        if vectors is not None:
            self.x = vectors
        if clients is None:
            identities = [Identity() for _ in range(n)]
            directory = {i: one.public for i, one in enumerate(identities)}
            clients = {
                i: Client(i, one, directory, self.p, **client_options)
                for i, one in enumerate(identities)
            }
        self.clients = clients
        self.directory = next(iter(clients.values()))._directory
        self.server = Server(self.p, self.directory, number)
        self.inbox = dict.fromkeys(clients, self.server.begin())

    def answer(self, number):
        """What one client answers to what it was sent."""
        text, stage = self.inbox[number], self.server.stage
        arguments = (text, self.x[number]) if stage == "mask" else (text,)
        return getattr(self.clients[number], stage)(*arguments)

    def step(self, silent=()):
        """One stage; returns the answers."""
        answers = {i: self.answer(i) for i in self.inbox if i not in set(silent)}
        for number, answer in answers.items():
            if answer is not None:
                self.server.accept(number, answer)
        self.inbox = self.server.advance()
        return answers

    def until(self, stage, silent=None):
        """Go on until a stage; `silent` maps stages to those who do not answer."""
        while self.server.stage != stage:
            self.step((silent or {}).get(self.server.stage, ()))
        return self

    def expected(self, survivors):
        point = self.p.fixed_point
        return point.wrap(sum(point.quantize(self.x[i]) for i in survivors))


def roster_of(run, entries):
    """A roster message with these entries, consistent in itself."""
    here = Round(run.p, run.server.number, entries)
    return Roster(here.number, SERVER, here.context, entries).to_bytes()


def changed(message, **fields):
    return replace(message, **fields).to_bytes()
