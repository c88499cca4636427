"""Laplace and Gaussian noise on numbers: integer noise on integers, grid noise on floats."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from dpcore import _laws
from dpcore._charge import open_release
from dpcore._checks import (
    check_data,
    check_index,
    check_positive,
    check_resolution,
    default_exponent,
    exact,
    round_down,
)
from dpcore._events import GaussianEvent
from dpcore._exact import floor_log2
from dpcore._parallel import for_ranges
from dpcore._release import (
    add_noise,
    check_noise,
    check_out,
    check_start,
    finish,
    label,
    laplace_event,
    laplace_law,
)
from dpcore.calibration import gaussian_sigma
from dpcore.errors import ParameterError
from dpcore.noise import Noise
from dpcore_ext.rng import Key
from dpcore_ext.sample import dequantize, quantize

__all__ = ["gaussian", "laplace"]

# Rounding to the grid may cost this fraction of the sensitivity where the default is in force.
_GRID_COST = Fraction(1, 1024)
# Total-variation distance of the sampled law from the ideal one, for 2**40 elements.
_LAW_DISTANCE = 2.0**-78


def laplace(
    x: npt.ArrayLike,
    *,
    epsilon: float,
    sensitivity: float,
    resolution: float | None = None,
    dimension: int | None = None,
    noise: Noise | None = None,
    start: int = 0,
    out: npt.NDArray[Any] | None = None,
) -> Any:
    """x plus Laplace noise: epsilon-differential privacy.

    Parameters
    ----------
    x : array_like of integers or floats
        What is to be released. Integers get integer noise. Floats are rounded to multiples of
        `resolution` and get noise in such multiples.
    epsilon : float
        Privacy loss of the whole release.
    sensitivity : float
        How much one individual can change x, in the sum of absolute differences (l1).
    resolution : float, optional
        For floats: the grid, a power of two. The default costs at most 0.1 % more noise.
    dimension : int, optional
        For floats: number of elements of the whole release; needed where x is a part of it
        (``start`` > 0), since rounding can move each of them. Default: the size of x.
    noise : Noise, optional
        Source of randomness; a secure one by default.
    start : int
        Index of the first element of x in the release.
    out : ndarray, optional
        Where to put the result, int64 or float64; may be x itself.

    Returns
    -------
    ndarray of int64, or of the float dtype of x; a number where x is one.

    Privacy
    -------
    Pure epsilon-DP between any two inputs whose l1 distance is at most `sensitivity`. The ratio of
    neighbouring probabilities of the integer law in use is checked, in integers, to be at most
    e**(epsilon / sensitivity) at every point of its unbounded support. For floats the sensitivity
    is enlarged by one unit of the grid per element. The shape of x, its dtype, and whether it is
    finite and within 2**62 units of 0 (else it is refused) are taken as public. A result beyond
    int64 is replaced by the nearest int64.

    Cost
    ----
    2 to 12 bytes of ChaCha20 keystream per element; no rejection.

    Examples
    --------
    >>> import dpcore
    >>> counts = dpcore.laplace([120, 45, 3], epsilon=0.5, sensitivity=1)
    >>> counts.dtype, counts.shape
    (dtype('int64'), (3,))
    """
    epsilon_exact = check_positive(epsilon, "epsilon")
    distance = check_positive(sensitivity, "sensitivity")
    data = check_data(x, "x")
    source = check_noise(noise)
    start = check_start(start, data.size)
    if data.dtype == np.int64:
        _refuse_grid(resolution, dimension)
        law, rate = laplace_law(epsilon_exact, distance)
        event = laplace_event("laplace", law, distance)
        release = partial(open_release, source, event, "laplace", *label(rate))
        return _release_integers(data, law, release, source, start, out)
    n = _dimension(dimension, data.size, start)
    if resolution is None:
        finest = distance / epsilon_exact / 2**40
        exponent = default_exponent(
            floor_log2(max(distance * _GRID_COST / n, finest)), "sensitivity"
        )
    else:
        exponent = check_resolution(resolution)
    unit = Fraction(2) ** exponent
    in_units = int(distance / unit) + n
    law, rate = laplace_law(epsilon_exact, in_units)
    event = laplace_event("laplace", law, in_units)
    release = partial(open_release, source, event, "laplace", *label(rate), "grid", exponent)
    return _release_floats(x, data, law, exponent, release, source, start, out)


def gaussian(
    x: npt.ArrayLike,
    *,
    sensitivity: float,
    epsilon: float | None = None,
    delta: float | None = None,
    sigma: float | None = None,
    resolution: float | None = None,
    dimension: int | None = None,
    noise: Noise | None = None,
    start: int = 0,
    out: npt.NDArray[Any] | None = None,
) -> Any:
    """x plus Gaussian noise: (epsilon, delta)-differential privacy.

    Parameters
    ----------
    x : array_like of integers or floats
        As for `laplace`.
    sensitivity : float
        How much one individual can change x, in Euclidean distance (l2).
    epsilon, delta : float, optional
        Privacy of the whole release; the noise is the least that gives it (analytic Gaussian).
    sigma : float, optional
        Standard deviation of the noise, instead of epsilon and delta.
    resolution, dimension, noise, start, out
        As for `laplace`. With `sigma`, floats are rounded to the grid and the noise stays sigma;
        account for a sensitivity of ``sensitivity + sqrt(dimension) * resolution``.

    Returns
    -------
    ndarray of int64, or of the float dtype of x; a number where x is one.

    Privacy
    -------
    The noise is a Gaussian real number rounded to the grid, not a discrete Gaussian: the release is
    the continuous Gaussian mechanism followed by rounding, so its (epsilon, delta) curve, zCDP and
    GDP hold as they stand for vectors and under composition. For floats the sensitivity is enlarged
    by the root of the number of elements times the grid. The sampled law is within 2**-118 per
    element of the exact one in total variation; what this costs in delta, for up to 2**40 elements,
    is taken off delta before sigma is computed. Public and saturating as for `laplace`.

    Cost
    ----
    2 bytes of ChaCha20 keystream per element up to sigma = 32 units, 8 to 10 above.

    Examples
    --------
    >>> import dpcore
    >>> y = dpcore.gaussian([0.5, -1.25], sensitivity=1.0, epsilon=1.0, delta=1e-6)
    >>> y.dtype, y.shape
    (dtype('float64'), (2,))
    """
    distance = check_positive(sensitivity, "sensitivity")
    data = check_data(x, "x")
    source = check_noise(noise)
    start = check_start(start, data.size)
    multiplier = _noise_multiplier(distance, epsilon, delta, sigma)
    if data.dtype == np.int64:
        _refuse_grid(resolution, dimension)
        deviation = multiplier * distance
        law = _gaussian_law(deviation)
        event = _gaussian_event(multiplier)
        release = partial(open_release, source, event, "gaussian", *label(deviation))
        return _release_integers(data, law, release, source, start, out)
    root = Fraction(math.isqrt(_dimension(dimension, data.size, start) - 1) + 1)
    if resolution is None:
        finest = multiplier * distance / 2**34
        exponent = default_exponent(
            floor_log2(max(distance * _GRID_COST / root, finest)), "sensitivity"
        )
    else:
        exponent = check_resolution(resolution)
    unit = Fraction(2) ** exponent
    enlarged = distance + root * unit
    deviation = multiplier * (distance if sigma is not None else enlarged) / unit
    event = _gaussian_event(deviation * unit / enlarged)
    release = partial(open_release, source, event, "gaussian", *label(deviation), "grid", exponent)
    law = _gaussian_law(deviation)
    return _release_floats(x, data, law, exponent, release, source, start, out)


def _gaussian_event(multiplier: Fraction) -> GaussianEvent:
    return GaussianEvent(
        mechanism="gaussian", noise_multiplier=round_down(multiplier), law_distance=_LAW_DISTANCE
    )


def _gaussian_law(deviation: Fraction) -> _laws.Digits | _laws.Rejection:
    if not Fraction(1, 1000) <= deviation <= _laws.MAX_SIGMA:
        raise ParameterError(
            "The 'sigma' parameter, given or computed, must lie between 1/1000 and 2**36 units of "
            "the resolution; choose another resolution."
        )
    return _laws.rounded_gaussian(deviation)


def _noise_multiplier(
    distance: Fraction, epsilon: float | None, delta: float | None, sigma: float | None
) -> Fraction:
    """sigma / sensitivity."""
    if sigma is not None:
        if epsilon is not None or delta is not None:
            raise ParameterError("The 'sigma' parameter excludes 'epsilon' and 'delta'.")
        return check_positive(sigma, "sigma") / distance
    if epsilon is None or delta is None:
        raise ParameterError("The 'epsilon' and 'delta' parameters, or 'sigma', must be given.")
    loss = round_down(check_positive(epsilon, "epsilon"))
    chance = round_down(exact(delta, "delta"))
    if not 0 < chance < 1:
        raise ParameterError("The 'delta' parameter must lie between 0 and 1.")
    reserve = _LAW_DISTANCE * (1 + math.exp(min(loss, 700.0)))
    if reserve > chance / 2:
        raise ParameterError(
            "The 'delta' parameter must exceed 2**-77 * (1 + e**epsilon), the accuracy of the law."
        )
    return Fraction(gaussian_sigma(loss, math.nextafter(chance - reserve, 0.0)))


def _refuse_grid(resolution: float | None, dimension: int | None) -> None:
    for name, value in (("resolution", resolution), ("dimension", dimension)):
        if value is not None:
            raise ParameterError(f"The '{name}' parameter is for floats; integers have no grid.")


def _dimension(dimension: int | None, size: int, start: int) -> int:
    if dimension is None:
        if start > 0:
            raise ParameterError(
                "The 'dimension' parameter must be given for floats where 'start' is not 0."
            )
        return size
    dimension = check_index(dimension, "dimension", least=1)
    if dimension < start + size:
        raise ParameterError("The 'dimension' parameter must cover 'start' and all of 'x'.")
    return dimension


def _release_integers(
    data: npt.NDArray[np.int64],
    law: _laws.Digits | _laws.Rejection,
    release: Callable[[], Key],
    source: Noise,
    start: int,
    out: npt.NDArray[Any] | None,
) -> Any:
    result = check_out(out, data.shape, np.int64)
    in_place = result.ctypes.data == data.ctypes.data
    if not in_place and np.may_share_memory(result, data):
        data = data.copy()
    add_noise(law, release(), start, data, result)
    return finish(result, source, out)


def _release_floats(
    x: npt.ArrayLike,
    data: npt.NDArray[np.float64],
    law: _laws.Digits | _laws.Rejection,
    exponent: int,
    release: Callable[[], Key],
    source: Noise,
    start: int,
    out: npt.NDArray[Any] | None,
) -> Any:
    result = check_out(out, data.shape, np.float64)
    # Everything happens in a buffer of its own: a refusal leaves `out`, which may be x, untouched.
    units = np.empty(data.size, np.int64)
    flat, flat_result = data.reshape(-1), result.reshape(-1)
    for_ranges(
        lambda begin, end: quantize(
            flat[begin:end], -math.inf, math.inf, exponent, units[begin:end]
        ),
        units.size,
    )
    add_noise(law, release(), start, units, units)
    for_ranges(
        lambda begin, end: dequantize(units[begin:end], exponent, flat_result[begin:end]),
        units.size,
    )
    if out is None:
        dtype = np.asarray(x).dtype
        result = result if dtype == np.float64 else result.astype(dtype)
    return finish(result, source, out)
