"""Shamir's threshold secret sharing of short secrets; see dpcore/shamir.h."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from dpcore.errors import ParameterError
from dpcore_ext import secagg
from dpcore_ext.rng import Key, keystream

__all__ = ["MOST_POINTS", "combine", "split"]

MOST_POINTS = 65535


def split(secret: bytes, threshold: int, points: Sequence[int]) -> list[bytes]:
    """Shares of a secret, one for each point; any `threshold` of them give it back.

    Parameters
    ----------
    secret : bytes
        A multiple of 16 bytes.
    threshold : int
        Number of shares that are needed, 1 to the number of points.
    points : sequence of int
        Increasing integers from 1 to 65535.

    Privacy
    -------
    Fewer than `threshold` shares are independent of the secret.

    Cost
    ----
    A few nanoseconds for each share, coefficient and 16 bytes.

    Examples
    --------
    >>> shares = split(bytes(range(16)), 2, [1, 2, 3])
    >>> combine([1, 3], [shares[0], shares[2]]) == bytes(range(16))
    True
    """
    if not secret or len(secret) % secagg.SHARE_BYTES:
        raise ParameterError("The 'secret' parameter must be a multiple of 16 bytes long.")
    if not 1 <= threshold <= len(points):
        raise ParameterError("The 'threshold' parameter must lie between 1 and the points.")
    drawn = np.empty(-(-threshold * len(secret) // 64) * 64, np.uint8)
    keystream(Key.from_os(), 0, 0, drawn)
    coefficients = drawn[: threshold * len(secret)].reshape(threshold, len(secret))
    coefficients[-1] = np.frombuffer(secret, np.uint8)
    shares = np.empty((len(points), len(secret)), np.uint8)
    secagg.split(coefficients, _checked(points), shares)
    drawn[:] = 0
    return [row.tobytes() for row in shares]


def combine(points: Sequence[int], shares: Sequence[bytes]) -> bytes:
    """The secret from exactly as many shares as the threshold was, at their points.

    Fewer or changed shares give another value, without a sign of it: compare the result with what
    was published about the secret.
    """
    if len(points) != len(shares) or len({len(share) for share in shares}) != 1:
        raise ParameterError("The 'shares' parameter must have equally long shares, one per point.")
    rows = np.frombuffer(b"".join(shares), np.uint8).reshape(len(shares), -1)
    secret = np.empty(rows.shape[1], np.uint8)
    secagg.combine(_weights(tuple(points)), rows, secret)
    return secret.tobytes()


@lru_cache(maxsize=16)
def _weights(points: tuple[int, ...]) -> npt.NDArray[np.uint8]:
    out = np.empty((len(points), secagg.SHARE_BYTES), np.uint8)
    secagg.weights(_checked(points), out)
    return out


def _checked(points: Sequence[int]) -> npt.NDArray[np.uint16]:
    if not points or min(points) < 1 or max(points) > MOST_POINTS:
        raise ParameterError("The 'points' parameter must hold integers from 1 to 65535.")
    return np.array(points, np.uint16)
