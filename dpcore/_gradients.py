"""Sums of clipped gradients under exact Gaussian noise: what every private descent releases."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from dpcore._events import Event, GaussianEvent, SampledGaussianEvent
from dpcore.central import _LAW_DISTANCE, gaussian
from dpcore.noise import Noise

__all__ = ["descent_event", "grid_unit", "noisy_sum"]

# Rounding to the grid may cost this fraction of the clip norm.
_GRID_COST = 1 / 1024


def grid_unit(dimension: int, clip: float, multiplier: float) -> float:
    """The grid of a release of so many coordinates: a power of two."""
    finest = max(clip * _GRID_COST / _root(dimension), multiplier * clip / 2**34)
    return float(2.0 ** math.floor(math.log2(finest)))


def noisy_sum(
    flat: npt.NDArray[np.float64], clip: float, multiplier: float, source: Noise
) -> npt.NDArray[Any]:
    """The sum with exact Gaussian noise on every coordinate, on a grid, in place.

    Privacy
    -------
    The Gaussian mechanism with a noise multiplier of at least `multiplier`, for sums of which one
    record changes at most `clip` in l2: the sensitivity is enlarged by what rounding to the grid
    can add, and the noise follows it. A sum of vectors that were each rounded to this grid by half
    a unit per coordinate is covered as well.
    """
    unit = grid_unit(flat.size, clip, multiplier)
    enlarged = clip + _root(flat.size) * unit
    sigma = math.nextafter(multiplier * enlarged * (1 + 2.0**-50), math.inf)
    noisy = gaussian(flat, sensitivity=clip, sigma=sigma, resolution=unit, noise=source, out=flat)
    return np.asarray(noisy).view(np.ndarray)


def descent_event(
    mechanism: str, multiplier: float, sampling_rate: float, steps: int, adjacency: str
) -> Event:
    """What `steps` of these releases cost, on Poisson samples where the rate is below 1."""
    if sampling_rate == 1:
        return GaussianEvent(
            mechanism=mechanism,
            noise_multiplier=multiplier,
            adjacency=adjacency,
            count=steps,
            law_distance=_LAW_DISTANCE,
        )
    return SampledGaussianEvent(
        mechanism=mechanism,
        noise_multiplier=multiplier,
        sampling_rate=sampling_rate,
        adjacency=adjacency,
        count=steps,
        law_distance=_LAW_DISTANCE,
    )


def _root(dimension: int) -> int:
    return math.isqrt(dimension - 1) + 1
