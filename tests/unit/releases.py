"""What the tests of releases share: seeds, the law behind a call, a test of variances."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import dpcore
from dpcore import _laws

ALPHA = 1e-6
Z_ALPHA = 4.8916  # two-sided normal quantile of ALPHA


def insecure(seed: int = 1) -> dpcore.Noise:
    return dpcore.Noise.insecure(seed)


def pinned(seed: int = 1) -> dpcore.Noise:
    return insecure(seed).stream("pinned")


def laws_used(
    monkeypatch: pytest.MonkeyPatch, module: Any, call: Callable[[], object]
) -> list[_laws.Digits | _laws.Rejection]:
    """The laws that a release draws from; the release itself is left without noise."""
    used = []

    def add_noise(law, key, start, x, out) -> None:
        used.append(law)
        out[...] = 0 if x is None else x

    def sample(law, key, shape, start) -> npt.NDArray[np.int64]:
        used.append(law)
        return np.zeros(shape, np.int64)

    for name, stand_in in (("add_noise", add_noise), ("sample", sample)):
        if hasattr(module, name):
            monkeypatch.setattr(module, name, stand_in)
    call()
    return used


def laplace_variance(scale: float) -> float:
    q = math.exp(-1 / scale)
    return 2 * q / (1 - q) ** 2


def assert_variance(sample: npt.ArrayLike, variance: float, kurtosis: float) -> None:
    """The variance about 0, within what samples of this kurtosis show by chance."""
    squares = np.asarray(sample, np.float64) ** 2
    spread = variance * math.sqrt((kurtosis - 1) / squares.size)
    z = (squares.mean() - variance) / spread
    assert abs(z) < Z_ALPHA, (
        f"variance off by {z:.1f} deviations; by chance once in {1 / ALPHA:.0e}"
    )


def multiples(y: npt.ArrayLike, resolution: float) -> bool:
    """Whether all of y are multiples of the resolution, and not all of twice the resolution."""
    units = np.asarray(y, np.float64) / resolution
    return bool((units == np.rint(units)).all() and (np.mod(units, 2) != 0).any())


def floor_power_of_two(value: float | Fraction) -> float:
    return 2.0 ** math.floor(math.log2(value))
