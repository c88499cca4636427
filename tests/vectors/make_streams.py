"""Makes streams.json: what pinned streams gave when it was last made.

    python tests/vectors/make_streams.py

Streams are part of what dpcore promises: a job run again must get its noise again. Make the file
anew only for a change that is meant to change streams, and name it in the changelog.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

import dpcore

PATH = Path(__file__).with_name("streams.json")
KEY = bytes(range(32))
SIZE = 5000
SHOWN = 8


def pinned() -> dpcore.Noise:
    return dpcore.Noise.from_key(KEY).stream("vectors", 1, b"\x00")


def _integers() -> np.ndarray:
    return np.arange(SIZE) * 7 - 100


def _floats() -> np.ndarray:
    return np.arange(SIZE) / 8 - 3


def _sampler(name: str, *parameters: Any) -> Callable[[], np.ndarray]:
    return lambda: getattr(dpcore.random, name)(*parameters, SIZE, noise=pinned())


def _release(function: Callable[..., Any], *data: Any, **parameters: Any) -> Callable[[], Any]:
    return lambda: function(*data, noise=pinned(), **parameters)


CASES: dict[str, Callable[[], Any]] = {
    "bernoulli(1/3)": _sampler("bernoulli", Fraction(1, 3)),
    "integers(0, 7)": _sampler("integers", 0, 7),
    "integers(-2**63, 1)": _sampler("integers", -(2**63), 1),
    "geometric(2.5)": _sampler("geometric", 2.5),
    "geometric(1e6)": _sampler("geometric", 1e6),
    "discrete_laplace(1)": _sampler("discrete_laplace", 1),
    "discrete_laplace(17)": _sampler("discrete_laplace", 17),
    "discrete_laplace(1e9)": _sampler("discrete_laplace", 1e9),
    "discrete_gaussian(0.7)": _sampler("discrete_gaussian", 0.7),
    "discrete_gaussian(1000)": _sampler("discrete_gaussian", 1000),
    "rounded_gaussian(3.7)": _sampler("rounded_gaussian", 3.7),
    "rounded_gaussian(40)": _sampler("rounded_gaussian", 40),
    "rounded_gaussian(1e9)": _sampler("rounded_gaussian", 1e9),
    "laplace of integers": _release(dpcore.laplace, _integers(), epsilon=0.5, sensitivity=2),
    "laplace of floats": _release(dpcore.laplace, _floats(), epsilon=0.5, sensitivity=2.0),
    "laplace of floats on a grid": _release(
        dpcore.laplace, _floats(), epsilon=0.5, sensitivity=2.0, resolution=0.25
    ),
    "laplace of part": _release(
        dpcore.laplace, _integers()[:100], epsilon=0.5, sensitivity=2, start=1000
    ),
    "gaussian of integers": _release(
        dpcore.gaussian, _integers(), epsilon=1.0, delta=1e-5, sensitivity=1
    ),
    "gaussian of floats": _release(
        dpcore.gaussian, _floats(), epsilon=1.0, delta=1e-5, sensitivity=1.0
    ),
    "gaussian with sigma": _release(
        dpcore.gaussian, _floats(), sigma=2.0, sensitivity=1.0, resolution=0.5
    ),
    "histogram": _release(dpcore.histogram, np.arange(SIZE) % 37, 50, epsilon=1.0),
    "bounded_sum": _release(dpcore.bounded_sum, _floats(), 0, 10, epsilon=1.0),
    "bounded_sum, add-remove": _release(
        dpcore.bounded_sum, _floats(), 0, 10, epsilon=1.0, adjacency="add-remove"
    ),
    "bounded_mean": _release(dpcore.bounded_mean, _floats(), 0, 500, epsilon=1.0),
    "bounded_mean, add-remove": _release(
        dpcore.bounded_mean, _floats(), 0, 500, epsilon=1.0, adjacency="add-remove"
    ),
}


def compute(name: str) -> dict[str, Any]:
    """The first values and the SHA-256 of all, as little-endian int64 or float64."""
    values = np.atleast_1d(np.asarray(CASES[name]()))
    dtype = "<f8" if values.dtype.kind == "f" else "<i8"
    values = values.astype(dtype)
    return {
        "dtype": dtype,
        "size": values.size,
        "first": values[:SHOWN].tolist(),
        "sha256": hashlib.sha256(values.tobytes()).hexdigest(),
    }


def main() -> None:
    streams = {name: compute(name) for name in CASES}
    PATH.write_text(json.dumps({"key": KEY.hex(), "streams": streams}, indent=1) + "\n")


if __name__ == "__main__":
    main()
