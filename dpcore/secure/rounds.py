"""What client and server compute alike from public messages: digests, sets, neighbours, limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from dpcore.errors import RefusedError
from dpcore.secure.graph import committee, neighbours
from dpcore.secure.keys import digest
from dpcore.secure.messages import ENTRY, Roster, Table, to_bits
from dpcore.secure.parameters import Parameters

__all__ = ["Round", "advertised", "begin_context", "check_roster"]

Members = npt.NDArray[np.bool_]


def begin_context(parameters: Parameters, number: int) -> bytes:
    """Digest of a round before anybody is in it."""
    return digest(b"begin", parameters.digest(), number.to_bytes(8, "little"))


def advertised(context: bytes, entry: np.void) -> bytes:
    """What the signature of an entry covers."""
    return context + entry.tobytes()[: ENTRY.fields["signature"][1]]  # type: ignore[index]


def check_roster(roster: Roster, parameters: Parameters, directory: Mapping[int, bytes]) -> None:
    """Refuse sizes, ids and keys that no honest server sends; signatures are not checked here."""
    entries = roster.entries
    ids = entries["id"]
    if len(ids) < parameters.min_clients:
        raise RefusedError("The round has fewer clients than 'min_clients'.")
    if len(ids) > parameters.max_clients:
        raise RefusedError("The round has more clients than 'max_clients'.")
    if (ids[1:] <= ids[:-1]).any():
        raise RefusedError("The roster must list each client once, by increasing id.")
    if not directory.keys() >= set(ids.tolist()):
        raise RefusedError("The roster names a client that is not in the directory.")
    keys = entries["channel"].tolist() + entries["mask"].tolist()
    if len(set(keys)) != len(keys):
        raise RefusedError("The roster has the same public key twice.")


@dataclass(frozen=True)
class Round:
    """A round with its roster: what follows from it is computed once."""

    parameters: Parameters
    number: int
    entries: Table

    @cached_property
    def n(self) -> int:
        return len(self.entries)

    @cached_property
    def ids(self) -> list[int]:
        ids: list[int] = self.entries["id"].tolist()
        return ids

    @cached_property
    def context(self) -> bytes:
        """Digest of parameters, round number and the whole roster."""
        start = begin_context(self.parameters, self.number)
        return digest(b"roster", start, self.entries.tobytes())

    def members_context(self, members: Members) -> bytes:
        """Digest that mask keys are bound to: the roster and who shared."""
        return digest(b"members", self.context, to_bits(members))

    def survivors_context(self, members: Members, survivors: Members) -> bytes:
        """Digest that the committee signs."""
        return digest(b"survivors", self.members_context(members), to_bits(survivors))

    def neighbours(self, position: int) -> npt.NDArray[np.int64]:
        """Increasing positions of those that a client masks with."""
        row: npt.NDArray[np.int64] = neighbours(self.context, self.n, self.parameters.degree)[
            position
        ]
        return row

    def holders(self, position: int) -> npt.NDArray[np.int64]:
        """Those who hold shares of a client's secrets: its neighbours and itself."""
        return np.sort(np.append(self.neighbours(position), position))

    def committee(self) -> npt.NDArray[np.int64]:
        """Those who sign the list of survivors."""
        return committee(self.context, self.n, self.parameters.degree)

    def fault_of(self, members: Members, position: int, least: int) -> str | None:
        """Why a set of members is too small for a client at this position."""
        if not members[position]:
            return "The set of the round does not contain this client."
        if int(members.sum()) < max(least, self.parameters.threshold(self.n)):
            return "The set of the round is smaller than the threshold."
        holders = self.holders(position)
        if int(members[holders].sum()) < self.parameters.threshold(len(holders)):
            return "Too few holders of this client's shares are left."
        return None
