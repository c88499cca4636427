"""The server of secure aggregation: collects a stage, closes it, and in the end knows the sum."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dpcore._checks import check_index, check_instance, check_mapping
from dpcore.errors import ProtocolError, RoundAbortedError, WireFormatError
from dpcore.secure import keys, shamir
from dpcore.secure.keys import Pair
from dpcore.secure.messages import (
    ENTRY,
    SEALED,
    SERVER,
    SIGNED,
    Advertisement,
    Begin,
    Confirmation,
    Confirmations,
    Delivery,
    Masked,
    Message,
    Reveal,
    Roster,
    Shares,
    Survivors,
    Table,
    to_bits,
)
from dpcore.secure.parameters import Parameters
from dpcore.secure.ring import Words, add_masks
from dpcore.secure.rounds import Members, Round, advertised, begin_context

__all__ = ["STAGES", "Aggregate", "Server"]

STAGES = ("advertise", "share", "mask", "confirm", "unmask", "done")


@dataclass(frozen=True)
class Aggregate:
    """The result of a round.

    Attributes
    ----------
    words : ndarray of uint32 or uint64
        The sum in the ring, the clients' noise included.
    total : ndarray of float
        The same as real numbers.
    survivors : tuple of int
        Ids of the clients whose vectors are in the sum.
    round : int

    Privacy
    -------
    What the server learns of the vectors: with noise as private as `DistributedGaussian` says,
    without noise the sum itself. Who survived is not protected.

    Cost
    ----
    12 or 16 bytes per coordinate, and a number per survivor.
    """

    words: Words
    total: npt.NDArray[np.float64]
    survivors: tuple[int, ...]
    round: int


class Server:
    """One round, seen from the server.

    `begin` gives the first message. Answers of clients go into `accept` in any order; `advance`
    closes the stage, whoever answered, and gives the next message of each client. After five
    stages `result` has the sum. A message that is not acceptable raises and changes nothing; a
    round that cannot go on raises `RoundAbortedError` in `advance`, and stays ended.

    Parameters
    ----------
    parameters : Parameters
    directory : mapping of int to bytes
        The public signing keys of the clients.
    number : int
        The round: greater than any before, 1 at least.

    Privacy
    -------
    An honest server learns what `result` returns and who took part until when. What a dishonest
    one can learn is up to the clients; see `Client`.

    Cost
    ----
    One addition per masked vector, one mask per survivor and one for each pair of a client that
    dropped out after sharing and a survivor.

    Examples
    --------
    >>> parameters = Parameters(b"demo", dimension=2, bound=1.0, max_clients=10)
    >>> server = Server(parameters, {}, 1)
    >>> server.stage, len(server.begin()) > 56
    ('advertise', True)
    """

    def __init__(self, parameters: Parameters, directory: Mapping[int, bytes], number: int) -> None:
        self.parameters = check_instance(parameters, "parameters", Parameters)
        self.number = check_index(number, "number", least=1)
        self.stage = STAGES[0]
        self._directory = check_mapping(directory, "directory")
        self._context = begin_context(parameters, self.number)
        self._answers: dict[int, Table] = {}
        self._sum: Words = np.zeros(parameters.dimension, parameters.fixed_point.dtype)
        self._round: Round | None = None
        self._members: Members = np.zeros(0, bool)
        self._survivors: Members = np.zeros(0, bool)
        self._aggregate: Aggregate | None = None

    def begin(self) -> bytes:
        """The message that invites clients."""
        text = self.parameters.to_bytes()
        return Begin(self.number, SERVER, self._context, text).to_bytes()

    def accept(self, sender: int, data: bytes) -> None:
        """Take an answer of this stage, from a client that the transport has authenticated."""
        kinds: dict[str, tuple[type[Message], Callable[[int, Message], Table]]] = {
            "advertise": (Advertisement, self._take_advertisement),
            "share": (Shares, self._take_shares),
            "mask": (Masked, self._take_masked),
            "confirm": (Confirmation, self._take_confirmation),
            "unmask": (Reveal, self._take_reveal),
        }
        sender = check_index(sender, "sender")
        if self.stage not in kinds:
            raise ProtocolError("The round is over.")
        kind, take = kinds[self.stage]
        message = kind.from_bytes(data)
        if message.sender != sender:
            raise ProtocolError("The message names another sender than the transport.")
        if message.round != self.number or message.context != self._context:
            raise ProtocolError("The message belongs to another round or another set of clients.")
        if sender in self._answers:
            raise ProtocolError("The client has answered already.")
        self._answers[sender] = take(sender, message)

    def advance(self) -> dict[int, bytes]:
        """Close the stage: the next message for each client that is still in the round."""
        close = {
            "advertise": self._close_advertise,
            "share": self._close_share,
            "mask": self._close_mask,
            "confirm": self._close_confirm,
            "unmask": self._close_unmask,
        }
        if self.stage not in close:
            raise ProtocolError("The round is over.")
        try:
            messages = close[self.stage]()
        except RoundAbortedError:
            self.stage = "aborted"
            self._sum = self._sum[:0]
            raise
        self.stage = STAGES[STAGES.index(self.stage) + 1]
        self._answers = {}
        return messages

    def result(self) -> Aggregate:
        """The sum, after the last stage."""
        if self._aggregate is None:
            raise ProtocolError("The round has no result.")
        return self._aggregate

    # Taking answers

    @property
    def _here(self) -> Round:
        assert self._round is not None
        return self._round

    def _place(self, sender: int, members: Members) -> int:
        place = int(np.searchsorted(self._here.entries["id"], sender))
        if place == self._here.n or self._here.ids[place] != sender or not members[place]:
            raise ProtocolError("The sender is not in the round.")
        return place

    def _take_advertisement(self, sender: int, message: Message) -> Table:
        assert isinstance(message, Advertisement)
        entry = message.entry
        if len(entry) != 1 or int(entry["id"][0]) != sender:
            raise WireFormatError("The message must hold the sender's entry alone.")
        public = self._directory.get(sender)
        signature = entry[0]["signature"].tobytes()
        text = advertised(self._context, entry[0])
        if public is None or not keys.verify(public, b"advertise", text, signature):
            raise ProtocolError("The entry is not signed by a client of the directory.")
        return entry

    def _take_shares(self, sender: int, message: Message) -> Table:
        assert isinstance(message, Shares)
        place = self._place(sender, np.ones(self._here.n, bool))
        if not np.array_equal(message.sealed["position"], self._here.neighbours(place)):
            raise WireFormatError("The message must hold a share for each neighbour.")
        return message.sealed

    def _take_masked(self, sender: int, message: Message) -> Table:
        assert isinstance(message, Masked)
        self._place(sender, self._members)
        if len(message.words) != self._sum.nbytes:
            raise WireFormatError("The message must hold a word for each element.")
        words = np.frombuffer(message.words, self._sum.dtype)
        np.add(self._sum, words, out=self._sum)
        return words[:0]

    def _take_confirmation(self, sender: int, message: Message) -> Table:
        assert isinstance(message, Confirmation)
        place = self._place(sender, self._survivors)
        signed = message.signed
        if len(signed) != 1 or int(signed["position"][0]) != place:
            raise WireFormatError("The message must hold the sender's signature alone.")
        signature = signed[0]["signature"].tobytes()
        public = self._directory[sender]
        if not keys.verify(public, b"survivors", self._context, signature):
            raise ProtocolError("The survivors are not signed by the sender.")
        return signed

    def _take_reveal(self, sender: int, message: Message) -> Table:
        assert isinstance(message, Reveal)
        holders = self._here.holders(self._place(sender, self._survivors))
        expected = holders[self._members[holders]]
        shares = message.shares
        if not np.array_equal(shares["position"], expected) or not np.array_equal(
            shares["of_key"], ~self._survivors[expected]
        ):
            raise WireFormatError("The message must hold the right share of each neighbour.")
        return shares

    # Closing stages

    def _close_advertise(self) -> dict[int, bytes]:
        self._need(len(self._answers), self.parameters.min_clients)
        if len(self._answers) > self.parameters.max_clients:
            raise RoundAbortedError("More clients than 'max_clients' answered.")
        entries = np.concatenate([self._answers[sender] for sender in sorted(self._answers)])
        self._round = Round(self.parameters, self.number, entries.astype(ENTRY))
        self._context = self._round.context
        message = Roster(self.number, SERVER, self._context, entries).to_bytes()
        return dict.fromkeys(self._round.ids, message)

    def _close_share(self) -> dict[int, bytes]:
        here = self._here
        self._members = self._answered()
        places = np.flatnonzero(self._members)
        self._need(len(places), self.parameters.min_clients, self.parameters.threshold(here.n))
        inbox: dict[int, list[tuple[int, np.void]]] = {place: [] for place in places.tolist()}
        for place in places.tolist():
            for record in self._answers[here.ids[place]]:
                if (to := int(record["position"])) in inbox:
                    inbox[to].append((place, record["sealed"]))
        bits = to_bits(self._members)
        messages = {}
        for place, records in inbox.items():
            table = np.zeros(len(records), SEALED)
            for row, (sender, sealed) in enumerate(records):
                table["position"][row] = sender
                table["sealed"][row] = sealed
            delivery = Delivery(self.number, SERVER, self._context, bits, table)
            messages[here.ids[place]] = delivery.to_bytes()
        self._context = here.members_context(self._members)
        return messages

    def _close_mask(self) -> dict[int, bytes]:
        here = self._here
        self._survivors = self._answered()
        least = self.parameters.least_survivors
        self._need(int(self._survivors.sum()), least, self.parameters.threshold(here.n))
        bits = to_bits(self._survivors)
        message = Survivors(self.number, SERVER, self._context, bits).to_bytes()
        self._context = here.survivors_context(self._members, self._survivors)
        return dict.fromkeys(self._survivor_ids(), message)

    def _close_confirm(self) -> dict[int, bytes]:
        chosen = {self._here.ids[place] for place in self._here.committee().tolist()}
        signed = [self._answers[sender] for sender in sorted(chosen & set(self._answers))]
        self._need(len(signed), self.parameters.threshold(len(chosen)))
        table = np.concatenate(signed).astype(SIGNED)
        message = Confirmations(self.number, SERVER, self._context, table).to_bytes()
        return dict.fromkeys(self._survivor_ids(), message)

    def _close_unmask(self) -> dict[int, bytes]:
        secrets = self._secrets()
        context = self._here.members_context(self._members)
        session = self.parameters.session
        mask_keys, negative = [], []
        for place, secret in secrets.items():
            if self._survivors[place]:
                mask_keys.append(keys.self_mask_key(secret, session, context))
                negative.append(True)
                continue
            pair, near = Pair(secret), self._here.neighbours(place)
            for other in near[self._survivors[near]].tolist():
                shared = pair.exchange(self._here.entries[other]["mask"].tobytes())
                ends = (self._here.ids[place], self._here.ids[other])
                mask_keys.append(keys.mask_key(shared, session, context, *ends))
                negative.append(place > other)
        add_masks(mask_keys, negative, self._sum)
        total = self.parameters.fixed_point.decode(self._sum)
        self._aggregate = Aggregate(self._sum, total, tuple(self._survivor_ids()), self.number)
        return {}

    def _secrets(self) -> dict[int, bytes]:
        """The self mask of each survivor and the key of each client that dropped out after it."""
        here = self._here
        found: dict[int, list[tuple[int, bytes]]] = {
            place: [] for place in np.flatnonzero(self._members).tolist()
        }
        for sender in sorted(self._answers):
            point = self._place(sender, self._survivors) + 1
            answer = self._answers[sender]
            for place, share in zip(
                answer["position"].tolist(), answer["share"].tolist(), strict=True
            ):
                found[place].append((point, share))
        start = begin_context(self.parameters, self.number)
        secrets = {}
        for place, shares in found.items():
            needed = self.parameters.threshold(len(here.holders(place)))
            self._need(len(shares), needed)
            points, parts = zip(*shares[:needed], strict=True)
            secret = shamir.combine(points, parts)
            entry = here.entries[place]
            if self._survivors[place]:
                right = keys.commitment(start, secret) == entry["commitment"].tobytes()
            else:
                right = Pair(secret).public == entry["mask"].tobytes()
            if not right:
                raise RoundAbortedError("A client revealed or sent a share that is not right.")
            secrets[place] = secret
        return secrets

    def _answered(self) -> Members:
        return np.isin(self._here.entries["id"], list(self._answers))

    def _survivor_ids(self) -> list[int]:
        return [self._here.ids[place] for place in np.flatnonzero(self._survivors).tolist()]

    @staticmethod
    def _need(found: int, *least: int) -> None:
        if found < max(least):
            raise RoundAbortedError("Too few clients answered; the round has no result.")
