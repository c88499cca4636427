"""Keys of secure aggregation: identities, ephemeral pairs, and what is derived from them.

Primitives are those of the package `cryptography` (the extra ``secagg``): Ed25519, X25519,
HKDF-SHA256 and ChaCha20-Poly1305. Every derived key is bound to the session, to a digest of the
round with its participants, and to its purpose; masks take the full 256 bits.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from dpcore.errors import ParameterError, RefusedError
from dpcore_ext.rng import Key

__all__ = [
    "PREFIX",
    "Identity",
    "Pair",
    "commitment",
    "digest",
    "mask_key",
    "open_sealed",
    "seal",
    "self_mask_key",
    "verify",
]

PREFIX = b"dpcore/sa/v1/"
KEY_BYTES = 32


def digest(purpose: bytes, *parts: bytes) -> bytes:
    """SHA-256 of an injective encoding of the parts."""
    state = hashlib.sha256(PREFIX + purpose)
    for part in parts:
        state.update(len(part).to_bytes(8, "little") + part)
    return state.digest()


class Identity:
    """A client's long-term Ed25519 key; others know its `public` part from a directory.

    Privacy
    -------
    Whoever has the secret can answer in the client's place. Only `export` gives it; without the
    parameter it comes from the operating system.

    Cost
    ----
    One Ed25519 key; 32 bytes for its public part, and 64 for a signature.

    Examples
    --------
    >>> len(Identity().public)
    32
    """

    def __init__(self, secret: bytes | None = None) -> None:
        if secret is None:
            secret = random_key()
        if not isinstance(secret, bytes) or len(secret) != KEY_BYTES:
            raise ParameterError("The 'secret' parameter must be 32 bytes.")
        self._key = Ed25519PrivateKey.from_private_bytes(secret)
        self.public: bytes = self._key.public_key().public_bytes_raw()

    def export(self) -> bytes:
        """The secret, for a client that keeps it."""
        secret: bytes = self._key.private_bytes_raw()
        return secret

    def sign(self, purpose: bytes, message: bytes) -> bytes:
        signature: bytes = self._key.sign(PREFIX + purpose + b"\0" + message)
        return signature


@lru_cache(maxsize=1 << 14)
def verify(public: bytes, purpose: bytes, message: bytes, signature: bytes) -> bool:
    """Whether an identity signed a message for a purpose.

    Remembered: clients of one process, as in a simulation, check the same signatures.
    """
    try:
        key = Ed25519PublicKey.from_public_bytes(public)
        key.verify(signature, PREFIX + purpose + b"\0" + message)
    except (InvalidSignature, ValueError):
        return False
    return True


class Pair:
    """An X25519 key pair of one round."""

    def __init__(self, secret: bytes | None = None) -> None:
        self.secret = random_key() if secret is None else secret
        self._key = X25519PrivateKey.from_private_bytes(self.secret)
        self.public: bytes = self._key.public_key().public_bytes_raw()

    def exchange(self, public: bytes) -> bytes:
        """The secret shared with the owner of a public key; refuses points of low order."""
        try:
            shared: bytes = self._key.exchange(X25519PublicKey.from_public_bytes(public))
        except ValueError:
            raise RefusedError("A public key of the round is not acceptable.") from None
        return shared


def random_key() -> bytes:
    """32 bytes from the operating system; raises if there are none."""
    return Key.from_os().export()


def commitment(context: bytes, seed: bytes) -> bytes:
    """What a client publishes about its self mask beforehand: hides it and fixes it."""
    return digest(b"commitment", context, seed)


def mask_key(shared: bytes, session: bytes, context: bytes, one: int, other: int) -> bytes:
    """Key of the mask of a pair of clients, the same for both."""
    ends = min(one, other).to_bytes(8, "little") + max(one, other).to_bytes(8, "little")
    return _derive(shared, session, b"mask", context + ends)


def self_mask_key(seed: bytes, session: bytes, context: bytes) -> bytes:
    """Key of a client's own mask."""
    return _derive(seed, session, b"self", context)


def seal(shared: bytes, session: bytes, context: bytes, sender: int, to: int, text: bytes) -> bytes:
    """Text encrypted and authenticated from one client to another, in one round."""
    place = sender.to_bytes(8, "little") + to.to_bytes(8, "little")
    key = _derive(shared, session, b"seal", context + place)
    # The key serves for one text only, so the nonce may be constant.
    sealed: bytes = ChaCha20Poly1305(key).encrypt(bytes(12), text, context + place)
    return sealed


def open_sealed(
    shared: bytes, session: bytes, context: bytes, sender: int, to: int, sealed: bytes
) -> bytes:
    """The text of `seal`; refuses what another client, round or direction sealed."""
    place = sender.to_bytes(8, "little") + to.to_bytes(8, "little")
    key = _derive(shared, session, b"seal", context + place)
    try:
        text: bytes = ChaCha20Poly1305(key).decrypt(bytes(12), sealed, context + place)
    except InvalidTag:
        raise RefusedError("A sealed share does not come from its sender.") from None
    return text


def _derive(secret: bytes, session: bytes, purpose: bytes, info: bytes) -> bytes:
    derived: bytes = HKDF(
        hashes.SHA256(), KEY_BYTES, salt=session, info=PREFIX + purpose + b"\0" + info
    ).derive(secret)
    return derived
