"""The messages of secure aggregation: bytes that say exactly one thing, or an error.

Every message begins with ``dpsa``, the version (1), its kind, two zero bytes, the round (u64), the
sender (u64; the server is 2**64 - 1) and a 32-byte digest of the context that it belongs to. What
follows is a table of records, a set of positions in the roster (one bit each) or both, as the
classes below say. Integers are little-endian, nothing is padded, and each message has one encoding.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, fields
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt

from dpcore.errors import WireFormatError

__all__ = [
    "SEALED_BYTES",
    "SERVER",
    "VERSION",
    "Advertisement",
    "Begin",
    "Confirmation",
    "Confirmations",
    "Delivery",
    "Masked",
    "Message",
    "Reveal",
    "Roster",
    "Shares",
    "Survivors",
    "from_bits",
    "to_bits",
]

VERSION = 1
SERVER = (1 << 64) - 1
SEALED_BYTES = 64 + 16

_MAGIC = b"dpsa"
_HEADER = struct.Struct("<4sBBHQQ32s")
_COUNT = struct.Struct("<I")

Table = npt.NDArray[Any]
Kind = TypeVar("Kind", bound="Message")

ENTRY = np.dtype(
    [
        ("id", "<u8"),
        ("channel", "V32"),
        ("mask", "V32"),
        ("commitment", "V32"),
        ("signature", "V64"),
    ]
)
SEALED = np.dtype([("position", "<u4"), ("sealed", f"V{SEALED_BYTES}")])
SIGNED = np.dtype([("position", "<u4"), ("signature", "V64")])
REVEALED = np.dtype([("position", "<u4"), ("of_key", "u1"), ("share", "V32")])


def to_bits(members: npt.NDArray[np.bool_]) -> bytes:
    """A set of positions as bytes, position 0 in the lowest bit."""
    return np.packbits(members, bitorder="little").tobytes()


def from_bits(data: bytes, n: int) -> npt.NDArray[np.bool_]:
    """The set of n positions that `to_bits` encoded."""
    if len(data) != -(-n // 8):
        raise WireFormatError("The message has a set of another size than the roster.")
    bits = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little").astype(bool)
    if bits[n:].any():
        raise WireFormatError("The message has members beyond the roster.")
    return bits[:n]


@dataclass(frozen=True, eq=False)
class Message:
    """What all messages have; `to_bytes` and `from_bytes` of the kinds are inverse."""

    round: int
    sender: int
    context: bytes

    KIND: ClassVar[int] = 0
    FROM_SERVER: ClassVar[bool] = False

    def to_bytes(self) -> bytes:
        """The message's one encoding."""
        head = _HEADER.pack(_MAGIC, VERSION, self.KIND, 0, self.round, self.sender, self.context)
        parts = [_encode(getattr(self, item.name)) for item in fields(self)[3:]]
        return b"".join([head, *parts])

    @classmethod
    def from_bytes(cls: type[Kind], data: bytes | bytearray | memoryview) -> Kind:
        """The message that the bytes encode; WireFormatError if they are anything else.

        Lengths are compared with the data before they are used.
        """
        try:
            view = memoryview(data)
        except TypeError:
            raise WireFormatError("The message must be contiguous bytes.") from None
        if view.itemsize != 1 or view.ndim != 1 or not view.contiguous:
            raise WireFormatError("The message must be contiguous bytes.")
        if len(view) < _HEADER.size:
            raise WireFormatError("The message is truncated: its header is not complete.")
        magic, version, kind, zero, number, sender, context = _HEADER.unpack_from(view)
        if magic != _MAGIC:
            raise WireFormatError("The message does not begin like one of secure aggregation.")
        if version != VERSION:
            raise WireFormatError("The message is of another version than this dpcore reads.")
        if kind != cls.KIND:
            raise WireFormatError("The message is of another kind than this stage takes.")
        if zero:
            raise WireFormatError("The message has reserved bits set.")
        if (sender == SERVER) != cls.FROM_SERVER:
            raise WireFormatError("The message comes from the wrong side.")
        body, rest = [], bytes(view[_HEADER.size :])
        for item in fields(cls)[3:]:
            value, rest = _decode(rest, cls.FIELDS[item.name])
            body.append(value)
        if rest:
            raise WireFormatError("The message is too long: bytes follow its end.")
        return cls(number, sender, context, *body)

    FIELDS: ClassVar[dict[str, Any]] = {}


def _encode(value: Any) -> bytes:
    if isinstance(value, np.ndarray):
        return _COUNT.pack(len(value)) + value.tobytes()
    return _COUNT.pack(len(value)) + bytes(value)


def _decode(data: bytes, kind: Any) -> tuple[Any, bytes]:
    """A table of records of a dtype, or bytes where the kind is `bytes`; and what follows."""
    if len(data) < _COUNT.size:
        raise WireFormatError("The message is truncated: a length is missing.")
    count = _COUNT.unpack_from(data)[0]
    end = _COUNT.size + count * (1 if kind is bytes else kind.itemsize)
    if len(data) < end:
        raise WireFormatError("The message is truncated: it is shorter than its lengths say.")
    body = data[_COUNT.size : end]
    if kind is bytes:
        return body, data[end:]
    table: Table = np.frombuffer(body, kind)
    if "position" in kind.names and (np.diff(table["position"].astype(np.int64)) <= 0).any():
        raise WireFormatError("The message has positions that do not increase.")
    return table, data[end:]


@dataclass(frozen=True, eq=False)
class Begin(Message):
    """Server to all: a round begins, under these parameters."""

    parameters: bytes

    KIND: ClassVar[int] = 1
    FROM_SERVER: ClassVar[bool] = True
    FIELDS: ClassVar[dict[str, Any]] = {"parameters": bytes}


@dataclass(frozen=True, eq=False)
class Advertisement(Message):
    """Client to server: its signed keys of the round, as a table of one entry."""

    entry: Table

    KIND: ClassVar[int] = 2
    FIELDS: ClassVar[dict[str, Any]] = {"entry": ENTRY}


@dataclass(frozen=True, eq=False)
class Roster(Message):
    """Server to all: the entries of everybody in the round, by increasing id."""

    entries: Table

    KIND: ClassVar[int] = 3
    FROM_SERVER: ClassVar[bool] = True
    FIELDS: ClassVar[dict[str, Any]] = {"entries": ENTRY}


@dataclass(frozen=True, eq=False)
class Shares(Message):
    """Client to server: sealed shares of its two secrets, one for each neighbour."""

    sealed: Table

    KIND: ClassVar[int] = 4
    FIELDS: ClassVar[dict[str, Any]] = {"sealed": SEALED}


@dataclass(frozen=True, eq=False)
class Delivery(Message):
    """Server to client: who shared, and the sealed shares meant for this client."""

    members: bytes
    sealed: Table

    KIND: ClassVar[int] = 5
    FROM_SERVER: ClassVar[bool] = True
    FIELDS: ClassVar[dict[str, Any]] = {"members": bytes, "sealed": SEALED}


@dataclass(frozen=True, eq=False)
class Masked(Message):
    """Client to server: its masked vector, as the bytes of little-endian words."""

    words: bytes

    KIND: ClassVar[int] = 6
    FIELDS: ClassVar[dict[str, Any]] = {"words": bytes}


@dataclass(frozen=True, eq=False)
class Survivors(Message):
    """Server to client: whose masked vectors arrived."""

    members: bytes

    KIND: ClassVar[int] = 7
    FROM_SERVER: ClassVar[bool] = True
    FIELDS: ClassVar[dict[str, Any]] = {"members": bytes}


@dataclass(frozen=True, eq=False)
class Confirmation(Message):
    """Client to server: its signature of the survivors, as a table of one record."""

    signed: Table

    KIND: ClassVar[int] = 8
    FIELDS: ClassVar[dict[str, Any]] = {"signed": SIGNED}


@dataclass(frozen=True, eq=False)
class Confirmations(Message):
    """Server to client: the signatures of the committee."""

    signed: Table

    KIND: ClassVar[int] = 9
    FROM_SERVER: ClassVar[bool] = True
    FIELDS: ClassVar[dict[str, Any]] = {"signed": SIGNED}


@dataclass(frozen=True, eq=False)
class Reveal(Message):
    """Client to server: for each neighbour one share, of its key (1) or of its self mask (0)."""

    shares: Table

    KIND: ClassVar[int] = 10
    FIELDS: ClassVar[dict[str, Any]] = {"shares": REVEALED}
