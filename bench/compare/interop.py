"""torch ops and compiled Numba code against the NumPy calls they stand for; cost of a device."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numba import njit, prange, set_num_threads

import dpcore
from bench import device_costs
from bench.runner import Bound, Row
from dpcore import local
from dpcore.interop import torch as dpcore_torch
from dpcore.interop.numba import Encoder, Sampler, add_noise, encode

PACKAGES = ("numpy", "torch", "numba")
N = 10_000_000
BLOCK = 1 << 16
NOISE = dpcore.Noise.from_key(bytes(range(32))).stream("bench")
MECHANISM = local.OptimalOutputs(1.0, n_outputs=16)
OPTIONS: dict[str, Any] = {"epsilon": 0.5, "sensitivity": 1, "noise": NOISE}
MOST_CODE = 12_000
MOST_STACK = 1_500


@njit(parallel=True)
def encode_blocks(encoder, x, codes):  # type: ignore[no-untyped-def]
    failed = 0
    for block in prange((len(x) + BLOCK - 1) // BLOCK):
        low = block * BLOCK
        high = min(len(x), low + BLOCK)
        failed += encode(encoder, low, x[low:high], codes[low:high])
    return failed


@njit(parallel=True)
def add_blocks(sampler, x, out):  # type: ignore[no-untyped-def]
    failed = 0
    for block in prange((len(x) + BLOCK - 1) // BLOCK):
        low = block * BLOCK
        high = min(len(x), low + BLOCK)
        failed += add_noise(sampler, low, x[low:high], out[low:high])
    return failed


def equals(expected: np.ndarray) -> Callable[[Any], str]:
    def check(found: Any) -> str:
        if not np.array_equal(np.asarray(found), expected):
            raise AssertionError("the result is not that of the NumPy call")
        return "equal to the NumPy call"

    return check


class Calls:
    """The same work by NumPy, torch and Numba, each into memory that is there already."""

    def __init__(self) -> None:
        generator = np.random.default_rng(0)
        self.values = generator.uniform(-1, 1, N)
        self.counts = generator.integers(0, 1000, N)
        self.codes, self.noisy = np.empty(N, np.uint8), np.empty(N, np.int64)
        self.encoder = Encoder(MECHANISM, noise=NOISE)
        self.sampler = Sampler.laplace(**OPTIONS)
        self.encode_op = dpcore_torch.Encode(MECHANISM, noise=NOISE)
        self.laplace_op = dpcore_torch.Laplace(**OPTIONS)
        self.expected_codes = self.numpy_encode().copy()
        self.expected_noisy = self.numpy_laplace().copy()

    def numpy_encode(self) -> np.ndarray:
        return MECHANISM.encode(self.values, noise=NOISE, out=self.codes)

    def numpy_laplace(self) -> np.ndarray:
        found: np.ndarray = dpcore.laplace(self.counts, out=self.noisy, **OPTIONS)
        return found

    def torch_encode(self) -> torch.Tensor:
        codes = torch.from_numpy(self.codes)
        return self.encode_op(torch.from_numpy(self.values), out=codes)

    def torch_laplace(self) -> torch.Tensor:
        noisy = torch.from_numpy(self.noisy)
        return self.laplace_op(torch.from_numpy(self.counts), out=noisy)

    def numba_encode(self) -> np.ndarray:
        encode_blocks(self.encoder, self.values, self.codes)
        return self.codes

    def numba_laplace(self) -> np.ndarray:
        add_blocks(self.sampler, self.counts, self.noisy)
        return self.noisy

    def rows(self, threads: str, limit: float) -> list[Row]:
        packages = ("torch op", "Numba")
        cases = [
            ("encode", self.numpy_encode, self.expected_codes),
            ("laplace", self.numpy_laplace, self.expected_noisy),
        ]
        return [
            Row(
                f"{package}, {what} of 10^7 values, {threads} / the NumPy call",
                getattr(self, f"{package.split()[0].lower()}_{what}"),
                peer,
                N / 1e6,
                N / 1e6,
                "M values/s",
                equals(expected),
                limit=limit,
                repeats=9,
            )
            for package in packages
            for what, peer, expected in cases
        ]


def single_thread_rows() -> list[Row]:
    set_num_threads(1)
    return Calls().rows("one thread", 0.9)


def all_cpu_rows() -> list[Row]:
    set_num_threads(2)
    dpcore.set_num_threads(2)
    return Calls().rows("two threads", 0.8)


def bounds() -> list[Bound]:
    with tempfile.TemporaryDirectory() as name:
        size = device_costs.code_size(Path(name))
        stack = device_costs.memory(Path(name), MECHANISM)

    def check() -> str:
        if size["bss"] != 0:
            raise AssertionError("the library for devices has memory of its own")
        return "tests: same bytes as Python"

    deepest = max(stack[call] for call in ("load", "open", "encode", "pack"))
    return [
        Bound("device: code", lambda: size["text"] + size["data"], "bytes", check, MOST_CODE),
        Bound("device: deepest stack", lambda: deepest, "bytes", check, MOST_STACK),
    ]
