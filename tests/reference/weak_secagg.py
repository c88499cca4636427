"""Secure aggregation done wrong, on purpose: what the attacks in the tests succeed against.

Three published mistakes, each a function of the same shape: masks from one symmetric seed per pair
without a sign rule, mask keys that know the round but not who takes part, and no self mask.
"""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]


def stream(key: bytes, n: int) -> Words:
    """n words from a key; any generator would do here."""
    data = b"".join(
        hashlib.sha256(key + i.to_bytes(8, "little")).digest() for i in range(-(-n // 4))
    )
    return np.frombuffer(data, "<u8")[:n].copy()


def pair_key(secret: bytes, one: int, other: int, *context: object) -> bytes:
    """The symmetric key of a pair, as a key agreement gives it to both."""
    text = repr((min(one, other), max(one, other), *context)).encode()
    return hashlib.sha256(secret + text).digest()


def symmetric_masks(secret: bytes, i: int, others: list[int], n: int) -> Words:
    """sum over j of PRG(s_ij) - PRG(s_ji), with one shared seed: s_ij is s_ji."""
    total = np.zeros(n, np.uint64)
    for j in others:
        total += stream(pair_key(secret, i, j), n)
        total -= stream(pair_key(secret, j, i), n)
    return total


def masked_by_round(secret: bytes, i: int, members: list[int], number: int, x: Words) -> Words:
    """Masks with a sign rule, keyed by the round alone, and no self mask."""
    result = x.copy()
    for j in members:
        if j != i:
            mask = stream(pair_key(secret, i, j, number), x.size)
            result = result + mask if i < j else result - mask
    return result


def rebuilt_masks(secret: bytes, i: int, members: list[int], number: int, n: int) -> Words:
    """What survivors help a server to rebuild when it says that i dropped out."""
    return masked_by_round(secret, i, members, number, np.zeros(n, np.uint64))
