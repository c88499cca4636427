"""Helpers of the native tests: laws beside their twins, forked children, compiled shims."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import twin

from dpcore import _laws
from dpcore_ext import rng, sample

KEY_BYTES = bytes(range(100, 132))
KEY = rng.Key.from_bytes(KEY_BYTES)
LEVELS = rng.levels()


# Laws


def twin_of(law: _laws.Digits | _laws.Rejection) -> twin.Digits | twin.Gauss:
    def table(compiled: _laws.IntegerTable) -> twin.Table:
        return twin.Table(compiled.thresholds, compiled.first)

    if isinstance(law, _laws.Rejection):
        return twin.Gauss(table(law.cells), law.kappa, law.shift, law.lattice)
    return twin.Digits(
        table(law.top),
        None if law.tail is None else table(law.tail),
        tuple((table(digit), bits) for digit, bits in law.digits),
        law.symmetric,
    )


@dataclass(frozen=True)
class Sampler:
    """One native sampler and its twin."""

    fill: Callable[[rng.Key, int, npt.NDArray[np.int64] | None, npt.NDArray[np.int64]], None]
    twin: twin.Digits | twin.Gauss | twin.Integers
    adds: bool = True  # whether it can add to an x

    def draw(self, start: int, n: int, key: rng.Key = KEY) -> npt.NDArray[np.int64]:
        out = np.empty(n, np.int64)
        self.fill(key, start, None, out)
        return out

    def add(self, start: int, x: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        out = np.empty_like(x)
        self.fill(KEY, start, x, out)
        return out

    def expected(self, start: int, n: int) -> list[int]:
        return twin.sample(self.twin, KEY_BYTES, start, [0] * n)


def from_law(law: _laws.Digits | _laws.Rejection) -> Sampler:
    return Sampler(law.native.add_to, twin_of(law))


def from_integers(low: int, bound: int) -> Sampler:
    def fill(key: rng.Key, start: int, x: None, out: npt.NDArray[np.int64]) -> None:
        assert x is None
        sample.integers(key, low, bound % (1 << 64), start, out)

    return Sampler(fill, twin.Integers(low, bound), adds=False)


SAMPLERS: dict[str, Callable[[], Sampler]] = {
    **{
        f"laplace scale {scale}": lambda scale=scale: from_law(
            _laws.discrete_laplace(Fraction(1, scale))
        )
        for scale in (1, 10, 1000, 10**9, 2**43)
    },
    **{
        f"geometric scale {scale}": lambda scale=scale: from_law(
            _laws.geometric(Fraction(1, scale))
        )
        for scale in (3, 5000)
    },
    "bernoulli 1/3": lambda: from_law(_laws.bernoulli(Fraction(1, 3))),
    **{
        f"discrete gaussian sigma {sigma}": lambda sigma=sigma: from_law(
            _laws.discrete_gaussian(Fraction(sigma))
        )
        for sigma in (1, 10, 33, 10**4, 10**9, 2**36)
    },
    **{
        f"rounded gaussian sigma {sigma}": lambda sigma=sigma: from_law(
            _laws.rounded_gaussian(Fraction(sigma))
        )
        for sigma in (1, 10, 33, 10**4, 10**9, 2**36)
    },
    **{
        f"integers bound {name}": lambda low=low, bound=bound: from_integers(low, bound)
        for name, low, bound in (
            ("1", -7, 1),
            ("3", 0, 3),
            ("2**32+1", -5, 2**32 + 1),
            ("2**63+1", -(2**63), 2**63 + 1),
            ("2**64", -(2**63), 2**64),
        )
    },
}


# Laws whose tables end so early that the tail is in use all the time.
TAILED: dict[str, Callable[[], Sampler]] = {
    f"{make.__name__} scale {scale} reach 2": lambda make=make, scale=scale: from_law(
        make(Fraction(1, scale), reach=2)
    )
    for make in (_laws.discrete_laplace, _laws.geometric)
    for scale in (1, 10, 1000)
}


@cache
def sampler(name: str) -> Sampler:
    return (SAMPLERS | TAILED)[name]()


# Processes


def in_child(function: Callable[[], Any]) -> Any:
    """What function() returns, or the exception it raises, in a forked child."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            signal.alarm(30)
            os.close(read)
            try:
                answer = function()
            except Exception as error:
                answer = error
            with os.fdopen(write, "wb") as pipe:
                pickle.dump(answer, pipe)
            status = 0
        finally:
            os._exit(status)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        data = pipe.read()
    assert os.waitpid(pid, 0) == (pid, 0)
    return pickle.loads(data)


def run_python(
    code: str, *, preload: Path | None = None, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs a program in a new interpreter, optionally under a preloaded library."""
    environment = {**os.environ, **(env or {})}
    if preload is not None:
        environment["LD_PRELOAD"] = str(preload)
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=environment,
        timeout=900,
        check=False,
    )


def compile_library(source: str, folder: Path, options: Sequence[str] = ()) -> Path:
    """A shared library made from C source."""
    path, library = folder / "shim.c", folder / "shim.so"
    path.write_text(source)
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-O1", "-o", str(library), str(path), *options],
        check=True,
        timeout=900,
    )
    return library
