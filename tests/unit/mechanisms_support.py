"""Every mechanism for one number, values for it, and pinned noise."""

from __future__ import annotations

import numpy as np

import dpcore
from dpcore import local


def pinned(*ids: int | str) -> dpcore.Noise:
    return dpcore.Noise.from_key(bytes(range(32))).stream("mechanisms", *ids)


def values(n: int) -> np.ndarray:
    return np.random.default_rng(n).uniform(-1.1, 1.1, n)


def every_mechanism(epsilon: float = 1.0, **bounds: float) -> list[local.Mechanism]:
    return [local.make(name, epsilon, **bounds) for name in local.NAMES]
