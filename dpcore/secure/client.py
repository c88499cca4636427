"""The client of secure aggregation: five messages in, five messages out, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dpcore import _laws
from dpcore._checks import (
    check_callable,
    check_index,
    check_instance,
    check_mapping,
    check_path,
)
from dpcore._release import add_noise, check_noise, label
from dpcore.errors import ParameterError, RefusedError
from dpcore.noise import Noise
from dpcore.secure import keys, shamir
from dpcore.secure.keys import Identity, Pair
from dpcore.secure.messages import (
    ENTRY,
    REVEALED,
    SEALED,
    SIGNED,
    Advertisement,
    Begin,
    Confirmation,
    Confirmations,
    Delivery,
    Masked,
    Reveal,
    Roster,
    Shares,
    Survivors,
    from_bits,
)
from dpcore.secure.parameters import Parameters
from dpcore.secure.ring import add_masks
from dpcore.secure.rounds import Members, Round, advertised, begin_context, check_roster
from dpcore.secure.state import PHASES, State, read_state, write_state

__all__ = ["Client"]

_KEY = 32
_HELD = 4 + 2 * _KEY


class Client:
    """One user's side of secure aggregation.

    Each method takes one message of the server and returns the answer, in this order:
    `advertise`, `share`, `mask`, `confirm`, `unmask`. A method either returns bytes to be sent,
    having stored its new state first, or raises and leaves everything as it was. No message is
    ever produced twice.

    Parameters
    ----------
    number : int
        The client's id, below 2**62.
    identity : Identity
        Its long-term signing key.
    directory : mapping of int to bytes
        The public signing keys of all clients, from somebody other than the server.
    parameters : Parameters
        What the client agreed to.
    store : path, optional
        A file for the state. Without it the state lives in memory only, and a restart begins anew:
        then a server could replay rounds to it.
    charge : callable, optional
        Called as ``charge(session, round)`` before anything that depends on data is sent, once for
        each round: reserve the round's privacy loss there, and raise if the budget does not allow
        it. The exception reaches the caller, and nothing is sent.
    noise : Noise, optional
        Source of this client's share of the noise.

    Privacy
    -------
    The server learns the sum of at least ``min_survivors`` vectors and nothing else of them, unless
    it colludes with a third of a client's neighbours (half, and following the protocol, with a
    "curious" server), breaks the primitives, or owns the directory. The client refuses, among
    others, a round that is not new, a second set for one round, sets that are too small or lack
    itself, keys that are unsigned, unknown or doubled, and parameters other than its own.
    Not hidden: that the client takes part, and when. Corrupt clients can spoil the sum.

    Cost
    ----
    Two key exchanges and one signature check for each neighbour, one mask for each neighbour that
    shared, and signature checks of the committee.

    Examples
    --------
    `dpcore.secure.Cohort` runs clients and a server in one process.

    >>> parameters = Parameters(b"demo", dimension=2, bound=1.0, max_clients=10)
    >>> me = Identity()
    >>> Client(7, me, {7: me.public}, parameters).phase
    'idle'
    """

    def __init__(
        self,
        number: int,
        identity: Identity,
        directory: Mapping[int, bytes],
        parameters: Parameters,
        *,
        store: str | Path | None = None,
        charge: Callable[[bytes, int], object] | None = None,
        noise: Noise | None = None,
    ) -> None:
        self.number = check_index(number, "number")
        check_instance(identity, "identity", Identity)
        check_mapping(directory, "directory")
        check_instance(parameters, "parameters", Parameters)
        if charge is not None:
            check_callable(charge, "charge")
        if directory.get(self.number) != identity.public:
            raise ParameterError("The 'directory' parameter must hold this client's own key.")
        self.parameters = parameters
        self._identity = identity
        self._directory = directory
        self._store = None if store is None else check_path(store, "store")
        self._charge = charge
        self._noise = check_noise(noise)
        self._round: Round | None = None
        self._exchanged: dict[int, bytes] = {}
        owner = parameters.digest() + self.number.to_bytes(8, "little")
        found = None if self._store is None else read_state(self._store)
        self._state = State(owner) if found is None else found
        if self._state.owner != owner:
            raise RefusedError("The stored state is of another client or other parameters.")

    @property
    def phase(self) -> str:
        """What was sent last: idle, advertised, shared, masked or confirmed."""
        return self._state.phase

    @property
    def round(self) -> int:
        """The last round that the client took part in."""
        return self._state.round

    def advertise(self, data: bytes) -> bytes:
        """Answer `Begin` with fresh, signed keys. From here on the round counts as used."""
        begin = Begin.from_bytes(data)
        if begin.parameters != self.parameters.to_bytes():
            different = self.parameters.first_difference(Parameters.from_bytes(begin.parameters))
            raise RefusedError(f"The round has another '{different}' than this client agreed to.")
        context = begin_context(self.parameters, begin.round)
        if begin.context != context:
            raise RefusedError("The message belongs to another round.")
        if begin.round <= self._state.round:
            raise RefusedError("The round is not newer than the last one.")
        channel, mask, seed = Pair(), Pair(), keys.random_key()
        entry = np.zeros(1, ENTRY)
        entry["id"] = self.number
        entry["channel"] = np.void(channel.public)
        entry["mask"] = np.void(mask.public)
        entry["commitment"] = np.void(keys.commitment(context, seed))
        signature = self._identity.sign(b"advertise", advertised(context, entry[0]))
        entry["signature"] = np.void(signature)
        self._round, self._exchanged = None, {}
        self._save(
            State(
                self._state.owner,
                begin.round,
                "advertised",
                channel=channel.secret,
                mask=mask.secret,
                seed=seed,
                roster=entry.tobytes(),
            )
        )
        return Advertisement(begin.round, self.number, context, entry).to_bytes()

    def share(self, data: bytes) -> bytes:
        """Answer `Roster` with shares of both secrets, sealed for each neighbour."""
        self._require("advertised")
        roster = Roster.from_bytes(data)
        here = Round(self.parameters, self._state.round, roster.entries)
        self._check(roster.round, roster.context, here.context)
        check_roster(roster, self.parameters, self._directory)
        position = self._position(here)
        if roster.entries[position].tobytes() != self._state.roster:
            raise RefusedError("The roster has other keys of this client than it advertised.")
        start = begin_context(self.parameters, here.number)
        near = here.neighbours(position)
        for other in near.tolist():
            entry = roster.entries[other]
            public = self._directory[here.ids[other]]
            signature = entry["signature"].tobytes()
            if not keys.verify(public, b"advertise", advertised(start, entry), signature):
                raise RefusedError("A key in the roster is not signed by its client.")
        holders = here.holders(position)
        shares = shamir.split(
            self._state.mask + self._state.seed,
            self.parameters.threshold(len(holders)),
            (holders + 1).tolist(),
        )
        channel, exchanged = Pair(self._state.channel), {}
        table = np.zeros(len(near), SEALED)
        table["position"] = near
        row, held = 0, b""
        for holder, share in zip(holders.tolist(), shares, strict=True):
            if holder == position:
                held = position.to_bytes(4, "little") + share
                continue
            exchanged[holder] = channel.exchange(roster.entries[holder]["channel"].tobytes())
            sealed = keys.seal(
                exchanged[holder],
                self._session,
                here.context,
                self.number,
                here.ids[holder],
                share,
            )
            table["sealed"][row] = np.void(sealed)
            row += 1
        message = Shares(here.number, self.number, here.context, table).to_bytes()
        self._save(replace(self._state, phase="shared", roster=roster.entries.tobytes(), held=held))
        self._round, self._exchanged = here, exchanged
        return message

    def mask(self, data: bytes, x: npt.ArrayLike) -> bytes:
        """Answer `Delivery` with the vector, clamped, rounded, with noise and masked.

        The budget is charged here. Whatever happens afterwards, the client never masks again in
        this round: a message that is lost is lost.
        """
        self._require("shared")
        delivery = Delivery.from_bytes(data)
        here = self._current()
        self._check(delivery.round, delivery.context, here.context)
        members = from_bits(delivery.members, here.n)
        position = self._position(here)
        fault = here.fault_of(members, position, self.parameters.min_clients)
        if fault is not None:
            raise RefusedError(fault)
        held = self._open(here, delivery, members, position)
        units = self.parameters.fixed_point.quantize(x)
        if units.size != self.parameters.dimension:
            raise ParameterError("The 'x' parameter must have 'dimension' elements.")
        context = here.members_context(members)
        mask_keys, negative = self._mask_keys(here, members, position, context)
        if self._charge is not None:
            self._charge(self._session, here.number)
        self._save(
            replace(
                self._state,
                phase="masked",
                members=delivery.members,
                held=self._state.held + held,
                channel=b"",
                mask=b"",
                seed=b"",
            )
        )
        self._exchanged = {}
        self._add_noise(units, here.number)
        words = self.parameters.fixed_point.wrap(units)
        add_masks(mask_keys, negative, words)
        return Masked(here.number, self.number, context, words.tobytes()).to_bytes()

    def confirm(self, data: bytes) -> bytes | None:
        """Settle on the survivors of `Survivors`, once; the committee answers with a signature."""
        self._require("masked")
        message = Survivors.from_bytes(data)
        here = self._current()
        members = from_bits(self._state.members, here.n)
        self._check(message.round, message.context, here.members_context(members))
        survivors = from_bits(message.members, here.n)
        position = self._position(here)
        if (survivors & ~members).any():
            raise RefusedError("A survivor is named that did not share its secrets.")
        fault = here.fault_of(survivors, position, self.parameters.least_survivors)
        if fault is not None:
            raise RefusedError(fault)
        context = here.survivors_context(members, survivors)
        answer = None
        if position in here.committee():
            signed = np.zeros(1, SIGNED)
            signed["position"] = position
            signed["signature"] = np.void(self._identity.sign(b"survivors", context))
            answer = Confirmation(here.number, self.number, context, signed).to_bytes()
        self._save(replace(self._state, phase="confirmed", survivors=message.members))
        return answer

    def unmask(self, data: bytes) -> bytes:
        """Answer `Confirmations` with one share per neighbour; the round's secrets are gone then.

        For survivors it is the share of the self mask, for others that of the key: never both.
        """
        self._require("confirmed")
        message = Confirmations.from_bytes(data)
        here = self._current()
        members = from_bits(self._state.members, here.n)
        survivors = from_bits(self._state.survivors, here.n)
        context = here.survivors_context(members, survivors)
        self._check(message.round, message.context, context)
        self._check_quorum(here, message, context)
        held = np.frombuffer(self._state.held, np.uint8).reshape(-1, _HELD)
        positions = np.ascontiguousarray(held[:, :4]).view("<u4")[:, 0]
        shares = np.zeros(len(held), REVEALED)
        of_key = ~survivors[positions]
        chosen = np.where(of_key[:, None], held[:, 4 : 4 + _KEY], held[:, 4 + _KEY :])
        shares["position"] = positions
        shares["of_key"] = of_key
        shares["share"] = np.ascontiguousarray(chosen).view(f"V{_KEY}")[:, 0]
        shares = shares[np.argsort(positions)]
        self._save(State(self._state.owner, self._state.round))
        self._round = None
        return Reveal(here.number, self.number, context, shares).to_bytes()

    @property
    def _session(self) -> bytes:
        return self.parameters.session

    def _save(self, state: State) -> None:
        if self._store is not None:
            write_state(self._store, state)
        self._state = state

    def _require(self, phase: str) -> None:
        if self._state.phase != phase:
            raise RefusedError(
                f"This client is {self._state.phase}; the message fits only one that is {phase}."
            )
        assert phase in PHASES

    def _check(self, number: int, context: bytes, expected: bytes) -> None:
        if number != self._state.round or context != expected:
            raise RefusedError("The message belongs to another round or another set of clients.")

    def _current(self) -> Round:
        """The running round, from the stored roster after a restart."""
        if self._round is None:
            entries = np.frombuffer(self._state.roster, ENTRY)
            self._round = Round(self.parameters, self._state.round, entries)
        return self._round

    def _position(self, here: Round) -> int:
        place = int(np.searchsorted(here.entries["id"], self.number))
        if place == here.n or here.ids[place] != self.number:
            raise RefusedError("The set of the round does not contain this client.")
        return place

    def _open(self, here: Round, delivery: Delivery, members: Members, position: int) -> bytes:
        """The shares that neighbours sealed for this client, each after its position."""
        near = here.neighbours(position)
        expected = near[members[near]]
        if not np.array_equal(delivery.sealed["position"], expected):
            raise RefusedError("Shares must come from each neighbour in the set, once.")
        channel, opened = Pair(self._state.channel), []
        for record in delivery.sealed:
            other = int(record["position"])
            shared = self._exchanged.get(other) or channel.exchange(
                here.entries[other]["channel"].tobytes()
            )
            text = keys.open_sealed(
                shared,
                self._session,
                here.context,
                here.ids[other],
                self.number,
                record["sealed"].tobytes(),
            )
            opened.append(other.to_bytes(4, "little") + text)
        return b"".join(opened)

    def _mask_keys(
        self, here: Round, members: Members, position: int, context: bytes
    ) -> tuple[list[bytes], list[bool]]:
        """Keys of all masks of this client and whether they are subtracted: the later one does."""
        mask = Pair(self._state.mask)
        found = [keys.self_mask_key(self._state.seed, self._session, context)]
        negative = [False]
        near = here.neighbours(position)
        for other in near[members[near]].tolist():
            shared = mask.exchange(here.entries[other]["mask"].tobytes())
            found.append(
                keys.mask_key(shared, self._session, context, self.number, here.ids[other])
            )
            negative.append(other < position)
        return found, negative

    def _add_noise(self, units: npt.NDArray[np.int64], number: int) -> None:
        sigma = self.parameters.noise_sigma
        if sigma:
            address = (self.parameters.digest(), number, self.number, *label(sigma))
            key = self._noise.key_for("secure share", *address)
            add_noise(_laws.discrete_gaussian(sigma), key, 0, units, units)

    def _check_quorum(self, here: Round, message: Confirmations, context: bytes) -> None:
        """Enough of the committee signed the very survivors that this client settled on."""
        chosen = set(here.committee().tolist())
        needed = self.parameters.threshold(len(chosen))
        valid = 0
        for record in message.signed:
            place = int(record["position"])
            if place in chosen and valid < needed:
                public = self._directory[here.ids[place]]
                signature = record["signature"].tobytes()
                valid += keys.verify(public, b"survivors", context, signature)
        if valid < needed:
            raise RefusedError("Too few clients confirm that these are the survivors.")
