"""One question of a server to one client, or its answer, as bytes with one encoding.

``dpfl``, the version (1), kind and stage (u8 each), a zero byte, client and round (u64), the digest
of the agreement (32 bytes), then the parts: their number (u32), and each behind its length (u64).
Integers are little-endian.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from dpcore.errors import WireFormatError

__all__ = ["ANSWER", "QUESTION", "REFUSAL", "STAGES", "Envelope"]

STAGES = ("hello", "advertise", "share", "mask", "confirm", "unmask", "gradient")
QUESTION, ANSWER, REFUSAL = range(1, 4)

_MAGIC = b"dpfl"
_VERSION = 1
_HEADER = struct.Struct("<4sBBBBQQ32sI")
_LENGTH = struct.Struct("<Q")


@dataclass(frozen=True)
class Envelope:
    """A message between the server and client `number`.

    Examples
    --------
    >>> question = Envelope(QUESTION, "gradient", 7, 1, bytes(32), (b"model",))
    >>> Envelope.from_bytes(question.to_bytes()) == question
    True
    """

    kind: int
    stage: str
    number: int
    round: int
    agreement: bytes
    parts: tuple[bytes, ...] = ()

    def to_bytes(self) -> bytes:
        head = _HEADER.pack(
            _MAGIC,
            _VERSION,
            self.kind,
            STAGES.index(self.stage),
            0,
            self.number,
            self.round,
            self.agreement,
            len(self.parts),
        )
        return head + b"".join(_LENGTH.pack(len(part)) + part for part in self.parts)

    @staticmethod
    def from_bytes(data: bytes) -> Envelope:
        """The message that the bytes encode; WireFormatError if they are anything else."""
        if len(data) < _HEADER.size:
            raise WireFormatError("The message is truncated: its header is not complete.")
        magic, version, kind, stage, zero, number, at_round, agreement, count = _HEADER.unpack_from(
            data
        )
        if magic != _MAGIC or zero:
            raise WireFormatError("The message does not begin like one of a federation.")
        if version != _VERSION:
            raise WireFormatError("The message is of another version than this dpcore reads.")
        if kind not in (QUESTION, ANSWER, REFUSAL) or stage >= len(STAGES):
            raise WireFormatError("The message is of a kind that this dpcore does not know.")
        at, parts = _HEADER.size, []
        for _ in range(count):
            if len(data) < at + _LENGTH.size:
                raise WireFormatError("The message is truncated: a length is missing.")
            end = at + _LENGTH.size + _LENGTH.unpack_from(data, at)[0]
            if len(data) < end:
                raise WireFormatError("The message is truncated: a part is not complete.")
            parts.append(data[at + _LENGTH.size : end])
            at = end
        if at != len(data):
            raise WireFormatError("The message is too long: bytes follow its end.")
        return Envelope(kind, STAGES[stage], number, at_round, agreement, tuple(parts))

    def reply(self, kind: int, *parts: bytes) -> Envelope:
        """The answer to this question."""
        return Envelope(kind, self.stage, self.number, self.round, self.agreement, parts)
