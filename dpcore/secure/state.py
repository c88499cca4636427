"""What a client remembers between messages, as bytes on its own disk."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass, fields
from pathlib import Path

from dpcore._files import replace_bytes
from dpcore.errors import WireFormatError

__all__ = ["PHASES", "State", "read_state", "write_state"]

PHASES = ("idle", "advertised", "shared", "masked", "confirmed")
_MAGIC = b"dpst\1"
_HEAD = struct.Struct("<QQB")
_COUNT = struct.Struct("<Q")


@dataclass(frozen=True)
class State:
    """The memory of a client. It holds the secrets of a running round: keep it as secret.

    Attributes
    ----------
    owner : bytes
        Digest of the parameters, and the client's id: state of another client does not fit.
    round : int
        The last round that was taken part in, 0 before the first.
    phase : str
        What was sent last in it; "idle" after the end, when all secrets are gone.
    """

    owner: bytes
    round: int = 0
    phase: str = "idle"
    channel: bytes = b""
    mask: bytes = b""
    seed: bytes = b""
    roster: bytes = b""
    members: bytes = b""
    held: bytes = b""
    survivors: bytes = b""

    def to_bytes(self) -> bytes:
        """The state, with a checksum against accidents."""
        blobs = [getattr(self, item.name) for item in fields(self) if item.type == "bytes"]
        body = _MAGIC + _HEAD.pack(self.round, len(blobs), PHASES.index(self.phase))
        body += b"".join(_COUNT.pack(len(blob)) + blob for blob in blobs)
        return body + hashlib.sha256(body).digest()

    @staticmethod
    def from_bytes(data: bytes) -> State:
        """The state that `to_bytes` encoded; refuses everything else."""
        body, checksum = data[:-32], data[-32:]
        if body[: len(_MAGIC)] != _MAGIC or hashlib.sha256(body).digest() != checksum:
            raise WireFormatError("The stored state of the client is damaged.")
        number, n_blobs, phase = _HEAD.unpack_from(body, len(_MAGIC))
        at, blobs = len(_MAGIC) + _HEAD.size, []
        for _ in range(n_blobs):
            [length] = _COUNT.unpack_from(body, at)
            blobs.append(body[at + _COUNT.size : at + _COUNT.size + length])
            at += _COUNT.size + length
        return State(blobs[0], number, PHASES[phase], *blobs[1:])


def read_state(path: Path) -> State | None:
    """The state in a file, or None if there is none."""
    try:
        return State.from_bytes(path.read_bytes())
    except FileNotFoundError:
        return None


def write_state(path: Path, state: State) -> None:
    """Replace the file as a whole, readable by its owner only, and wait until it is on disk."""
    replace_bytes(path, state.to_bytes(), mode=0o600)
