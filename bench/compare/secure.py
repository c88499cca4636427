"""Secure aggregation against the bare cipher, Flower's masks, PyCryptodome's shares, and the clock.

Flower and PyCryptodome are in the extra ``bench``; without them the suite fails, it skips nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from Crypto.Protocol.SecretSharing import Shamir
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen

import dpcore
from bench.runner import Bound, Row, seconds
from dpcore.secure import Cohort, Parameters, choose_degree, security, shamir
from dpcore.secure.ring import add_masks

PACKAGES = ("numpy", "cryptography", "pycryptodome", "flwr")
N_WORDS = 1_000_000
N_PEERS = 100
CHUNK = 1 << 20
FLOWER_PEERS = 2
MOST_SECONDS = 10

KEYS = [bytes([i]) * 32 for i in range(N_PEERS)]
SIGNS = [i % 2 == 1 for i in range(N_PEERS)]


def keystream(key: bytes, n_bytes: int) -> bytes:
    return Cipher(ChaCha20(key, bytes(16)), mode=None).encryptor().update(bytes(n_bytes))


def equals_openssl(n_peers: int) -> Callable[[Any], str]:
    """The words at both ends against OpenSSL's keystream, added by NumPy."""

    def check(words: Any) -> str:
        for part in (slice(0, 999), slice(N_WORDS - 999, N_WORDS)):
            expected = np.zeros(999, words.dtype)
            for key, negative in zip(KEYS[:n_peers], SIGNS, strict=False):
                mask = np.frombuffer(keystream(key, words.nbytes), words.dtype)[part]
                expected = expected - mask if negative else expected + mask
            if not np.array_equal(words[part], expected):
                raise AssertionError("masks differ from OpenSSL's keystream")
        return "equal to OpenSSL's keystream, added"

    return check


def mask_rows() -> list[Row]:
    zeros, sink = bytes(CHUNK), bytearray(CHUNK)
    total = 8 * N_WORDS * N_PEERS

    def masks(n_peers: int, dtype: Any) -> Any:
        words = np.zeros(N_WORDS, dtype)
        add_masks(KEYS[:n_peers], SIGNS[:n_peers], words)
        return words

    def openssl() -> None:
        encryptor = Cipher(ChaCha20(KEYS[0], bytes(16)), mode=None).encryptor()
        for _ in range(total // CHUNK):
            encryptor.update_into(zeros, sink)

    def flower() -> Any:
        words = np.zeros(N_WORDS, np.int64)
        for seed in KEYS[:FLOWER_PEERS]:
            [mask] = pseudo_rand_gen(seed, 1 << 32, [(N_WORDS,)])
            words = words + mask
        return words & 0xFFFFFFFF

    return [
        Row(
            "masks of 100 peers, 10^6 64-bit words / OpenSSL's bare ChaCha20",
            lambda: masks(N_PEERS, np.uint64),
            openssl,
            total / 1e9,
            total // CHUNK * CHUNK / 1e9,
            "GB of mask/s",
            equals_openssl(N_PEERS),
            limit=0.8,
            stretch=1.0,
            repeats=9,
        ),
        Row(
            "masks of 100 peers, 10^6 32-bit words / Flower pseudo_rand_gen and addition",
            lambda: masks(N_PEERS, np.uint32),
            flower,
            N_WORDS * N_PEERS / 1e6,
            N_WORDS * FLOWER_PEERS / 1e6,
            "M mask words/s",
            equals_openssl(N_PEERS),
            limit=4,
            repeats=9,
        ),
    ]


def sharing_rows() -> list[Row]:
    secret, points = bytes(range(64)), list(range(1, 101))

    def check(shares: Any) -> str:
        for part in range(4):
            pieces = [(i, shares[i - 1][16 * part : 16 * part + 16]) for i in points[20:87]]
            if Shamir.combine(pieces) != secret[16 * part : 16 * part + 16]:
                raise AssertionError("PyCryptodome combines the shares to something else")
        return "PyCryptodome combines our shares"

    return [
        Row(
            "secret sharing, 67 of 100, 64 bytes / PyCryptodome",
            lambda: shamir.split(secret, 67, points),
            lambda: [Shamir.split(67, 100, secret[16 * i : 16 * i + 16]) for i in range(4)],
            1,
            1,
            "secrets/s",
            check,
            limit=50,
            repeats=5,
        )
    ]


def round_bound(name: str, n: int, d: int, most: float, **options: Any) -> Bound:
    """A whole round, keys and all, with every tenth client gone before it sends its vector."""
    parameters = Parameters(
        b"bench", dimension=d, bound=8, max_clients=n, min_clients=n // 2 + 2, **options
    )
    x = np.random.default_rng(1).uniform(-8, 8, (n, d))

    def run() -> Any:
        with Cohort(parameters, n, n_jobs=2) as cohort:
            return cohort.round(x, dropouts={"mask": range(0, n, 10)})

    def check() -> str:
        point = parameters.fixed_point
        kept = [i for i in range(n) if i % 10]
        if not np.array_equal(run().words, point.wrap(sum(point.quantize(x[i]) for i in kept))):
            raise AssertionError("the sum is not that of the survivors")
        return "sum exact"

    return Bound(name, lambda: min(seconds(run) for _ in range(2)), "s", check, most)


def single_thread_rows() -> list[Row]:
    return [*mask_rows(), *sharing_rows()]


def all_cpu_rows() -> list[Row]:
    def masks(n_threads: int) -> Any:
        dpcore.set_num_threads(n_threads)
        words = np.zeros(N_WORDS, np.uint64)
        add_masks(KEYS, SIGNS, words)
        return words

    return [
        Row(
            "masks of 100 peers, 10^6 64-bit words, two threads / one thread",
            lambda: masks(2),
            lambda: masks(1),
            8 * N_WORDS * N_PEERS / 1e9,
            8 * N_WORDS * N_PEERS / 1e9,
            "GB of mask/s",
            equals_openssl(N_PEERS),
            limit=1.7,
            repeats=9,
        )
    ]


def bounds() -> list[Bound]:
    found = [round_bound("round of 100 users, 10^5 words, 10 dropouts", 100, 10**5, MOST_SECONDS)]
    cases = (("curious", 0.05, MOST_SECONDS), ("malicious", 0.02, 2 * MOST_SECONDS))
    for server, corrupt, most in cases:
        degree = choose_degree(1000, server=server, corrupt=corrupt)
        assert degree is not None
        bits = security(1000, degree, server=server, corrupt=corrupt).failure_bits
        name = (
            f"round of 1000 users, 10^4 words, 100 dropouts, degree {degree} ({server} server, "
            f"{corrupt:.0%} corrupt, {bits:.0f} bits)"
        )
        found.append(round_bound(name, 1000, 10**4, most, degree=degree, server=server))
    return found
