"""Whole rounds in memory: clients and a server that exchange bytes, with clients that drop out."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Mapping
from multiprocessing.connection import Connection
from typing import Any

import numpy.typing as npt

from dpcore._checks import (
    check_callable,
    check_choice,
    check_data,
    check_index,
    check_instance,
    check_mapping,
)
from dpcore._parallel import set_num_threads
from dpcore._release import check_noise
from dpcore.errors import ParameterError, RefusedError
from dpcore.noise import Noise
from dpcore.secure.client import Client
from dpcore.secure.keys import Identity
from dpcore.secure.parameters import Parameters
from dpcore.secure.server import STAGES, Aggregate, Server

__all__ = ["Cohort"]

_METHODS = ("advertise", "share", "mask", "confirm", "unmask")

Charge = Callable[[bytes, int], object]


class Cohort:
    """Clients 0 to n - 1 and a server, for simulations, learners and tests.

    Nothing is shared between the parties but their messages, which are encoded and parsed as on a
    network; with ``n_jobs`` the clients live in as many processes.

    Parameters
    ----------
    parameters : Parameters
    n_clients : int
    noise : Noise, optional
        Source of all clients' noise.
    charge : callable, optional
        As for `Client`, called for every client.
    n_jobs : int
        Processes that the clients are spread over; 1 keeps them in this one.

    Privacy
    -------
    None within the process: whoever reads its memory sees all vectors. What `round` returns is the
    sum of the survivors' vectors with their noise, as a server would learn it. It is a
    `NotPrivateArray` if `noise` is insecure.

    Cost
    ----
    That of all clients and the server together.

    Examples
    --------
    >>> import numpy as np
    >>> parameters = Parameters(b"demo", dimension=2, bound=8, max_clients=5, min_clients=4)
    >>> cohort = Cohort(parameters, 5)
    >>> cohort.round(np.ones((5, 2)), dropouts={"mask": [3]}).total
    array([4., 4.])
    """

    def __init__(
        self,
        parameters: Parameters,
        n_clients: int,
        *,
        noise: Noise | None = None,
        charge: Charge | None = None,
        n_jobs: int = 1,
    ) -> None:
        self.parameters = check_instance(parameters, "parameters", Parameters)
        self.n_clients = check_index(n_clients, "n_clients", least=1, limit=1 << 16)
        n_jobs = min(check_index(n_jobs, "n_jobs", least=1), self.n_clients)
        if charge is not None:
            check_callable(charge, "charge")
        self.last_round = 0
        self._noise = check_noise(noise)
        identities = [Identity() for _ in range(self.n_clients)]
        self._directory = {number: one.public for number, one in enumerate(identities)}
        clients = {
            number: Client(
                number,
                identity,
                self._directory,
                parameters,
                charge=charge,
                noise=self._noise,
            )
            for number, identity in enumerate(identities)
        }
        self._groups: list[_Here | _Elsewhere] = [_Here(clients)]
        if n_jobs > 1:
            parts = [range(job, self.n_clients, n_jobs) for job in range(n_jobs)]
            self._groups = [_Elsewhere({i: clients[i] for i in part}) for part in parts]

    def round(
        self,
        vectors: npt.ArrayLike,
        *,
        dropouts: Mapping[str, Iterable[int]] | None = None,
    ) -> Aggregate:
        """Run the next round on one vector per client.

        Parameters
        ----------
        vectors : array_like of float, shape (n_clients, dimension)
        dropouts : mapping of str to iterable of int, optional
            For each of the stages "advertise", "share", "mask", "confirm" and "unmask" the clients
            that fall silent before they answer in it.

        Raises
        ------
        RoundAbortedError
            If too few clients are left. A client that refuses counts as gone.
        """
        data = check_data(vectors, "vectors", dimensions=2)
        if data.shape != (self.n_clients, self.parameters.dimension):
            raise ParameterError(
                "The 'vectors' parameter must have a row for each client, of length 'dimension'."
            )
        left = {} if dropouts is None else check_mapping(dropouts, "dropouts")
        silent = {stage: set[int]() for stage in _METHODS}
        for stage, numbers in left.items():
            check_choice(stage, "dropouts", _METHODS)
            silent[stage] = {check_index(number, "dropouts") for number in numbers}
        self.last_round += 1
        server = Server(self.parameters, self._directory, self.last_round)
        inbox = dict.fromkeys(range(self.n_clients), server.begin())
        gone: set[int] = set()
        for stage in STAGES[:-1]:
            gone |= silent[stage]
            waiting = {number: text for number, text in inbox.items() if number not in gone}
            for sender, answer in self._answers(stage, waiting, data):
                server.accept(sender, answer)
            inbox = server.advance()
        result = server.result()
        marked = self._noise.mark(result.total) if self.parameters.noise_sigma else result.total
        return Aggregate(result.words, marked, result.survivors, result.round)

    def close(self) -> None:
        """End the processes, if there are any."""
        for group in self._groups:
            group.close()

    def __enter__(self) -> Cohort:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _answers(
        self, stage: str, inbox: dict[int, bytes], data: npt.NDArray[Any]
    ) -> list[tuple[int, bytes]]:
        for group in self._groups:
            mine = {number: inbox[number] for number in group.numbers if number in inbox}
            rows = {number: data[number] for number in mine} if stage == "mask" else {}
            group.ask(stage, mine, rows)
        found: list[tuple[int, bytes]] = []
        errors: list[Exception] = []
        for group in self._groups:  # all of them, or the next round would find old answers
            try:
                found += group.answers()
            except Exception as error:
                errors.append(error)
        if errors:
            raise errors[0]
        return found


class _Here:
    """Clients in this process."""

    def __init__(self, clients: dict[int, Client]) -> None:
        self.numbers = list(clients)
        self._clients = clients
        self._asked: tuple[str, dict[int, bytes], dict[int, Any]] = ("", {}, {})

    def ask(self, stage: str, inbox: dict[int, bytes], rows: dict[int, Any]) -> None:
        self._asked = (stage, inbox, rows)

    def answers(self) -> Iterable[tuple[int, bytes]]:
        stage, inbox, rows = self._asked
        for number, text in inbox.items():
            arguments = (text, rows[number]) if stage == "mask" else (text,)
            try:
                answer = getattr(self._clients[number], stage)(*arguments)
            except RefusedError:  # to a server it is one more that fell silent
                continue
            if answer is not None:
                yield number, answer

    def close(self) -> None:
        self._clients = {}


class _Elsewhere:
    """Clients in a process of their own, reached by a pipe."""

    def __init__(self, clients: dict[int, Client]) -> None:
        self.numbers = list(clients)
        context = multiprocessing.get_context("fork")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, clients), daemon=True)
        self._process.start()
        theirs.close()

    def ask(self, stage: str, inbox: dict[int, bytes], rows: dict[int, Any]) -> None:
        self._pipe.send((stage, inbox, rows))

    def answers(self) -> Iterable[tuple[int, bytes]]:
        while True:
            found = self._pipe.recv()
            if isinstance(found, Exception):
                raise found
            if found is None:
                return
            yield found

    def close(self) -> None:
        # Other workers hold copies of this end, so closing it would not be noticed.
        self._pipe.send(None)
        self._process.join()
        self._pipe.close()


def _serve(pipe: Connection, clients: dict[int, Client]) -> None:
    """Answer until asked to stop."""
    set_num_threads(1)
    group = _Here(clients)
    while (asked := pipe.recv()) is not None:
        group.ask(*asked)
        try:
            for answer in group.answers():
                pipe.send(answer)
            pipe.send(None)
        except Exception as error:
            pipe.send(error)
