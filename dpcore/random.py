"""Exact integer samplers over addressed noise, and a NumPy bit generator over the same kernel.

Every sampler takes ``noise`` (default: a secure source of its own) and ``start``, the index of the
first element: element i of a pinned stream is the same in whatever call it is drawn. No float takes
part in choosing a sample; parameters are read as the exact rationals they stand for, and the laws
are exact to 2**-256, the granularity of a 256-bit key.
"""

from __future__ import annotations

from fractions import Fraction
from numbers import Real
from typing import Any

import numpy as np

from dpcore import _laws
from dpcore._checks import check_integer_range, check_positive, check_size, exact
from dpcore._parallel import for_ranges
from dpcore._release import check_noise, check_start, finish, label, sample
from dpcore.errors import ParameterError
from dpcore.noise import Noise
from dpcore_ext.rng import ChaCha20
from dpcore_ext.sample import integers as _fill_integers

__all__ = [
    "ChaCha20",
    "bernoulli",
    "discrete_gaussian",
    "discrete_laplace",
    "geometric",
    "integers",
    "rounded_gaussian",
]

Size = int | tuple[int, ...] | None


def bernoulli(
    p: Real | float, size: Size = None, *, noise: Noise | None = None, start: int = 0
) -> Any:
    """True with probability p, exactly.

    Parameters
    ----------
    p : float, int or Fraction
        A probability, taken as the rational number it is.
    size : int or tuple of int, optional
        Shape of the result; a single value without it.
    noise, start
        Source of randomness and index of the first element.

    Privacy
    -------
    No data are read. The probability in use is p rounded to a multiple of 2**-256. What it
    protects, if anything, is up to the caller; no ledger is charged.

    Cost
    ----
    2 bytes of ChaCha20 keystream per element; 64 more for the few that these do not settle, and for
    every element of calls with up to 32.

    Examples
    --------
    >>> from fractions import Fraction
    >>> import dpcore
    >>> bool(dpcore.random.bernoulli(Fraction(1, 3), 1000).mean() < 0.5)
    True
    """
    chance = exact(p, "p")
    if not 0 <= chance <= 1:
        raise ParameterError("The 'p' parameter must lie between 0 and 1.")
    law = _laws.bernoulli(chance)
    return _draw(law, ("bernoulli", *label(chance)), size, noise, start, np.bool_)


def integers(
    low: int, high: int, size: Size = None, *, noise: Noise | None = None, start: int = 0
) -> Any:
    """Uniform integers low, ..., high - 1, without modulo bias.

    Privacy
    -------
    No data are read. All values are equally likely: words that would favour some are refused. What
    it protects, if anything, is up to the caller; no ledger is charged.

    Cost
    ----
    8 bytes of ChaCha20 keystream per element; 64 more for those whose word is refused, which is
    less likely than (high - low) / 2**64.

    Examples
    --------
    >>> import dpcore
    >>> 1 <= int(dpcore.random.integers(1, 7)) <= 6
    True
    """
    low, high = check_integer_range(low, high)
    source = check_noise(noise)
    out = np.empty(check_size(size), np.int64)
    start = check_start(start, out.size)
    key = source.key_for("integers", low, high)
    flat, bound = out.reshape(-1), (high - low) % (1 << 64)
    for_ranges(
        lambda begin, end: _fill_integers(key, low, bound, start + begin, flat[begin:end]), out.size
    )
    return finish(out, source)


def geometric(
    scale: Real | float, size: Size = None, *, noise: Noise | None = None, start: int = 0
) -> Any:
    """Integers k >= 0 with probability proportional to exp(-k / scale).

    Parameters
    ----------
    scale : float, int or Fraction
        From 1e-3 to 1e12. Below 1/64 the law of 1/64 is used, which differs from 0 with a
        probability of about 2**-92.
    size, noise, start
        As for `bernoulli`.

    Privacy
    -------
    No data are read. That neighbouring probabilities of the law in use differ by at most a factor
    of e**(1 / scale), over its unbounded support, is checked in integers. What it protects, if
    anything, is up to the caller; no ledger is charged.

    Cost
    ----
    2 bytes of ChaCha20 keystream per element up to scale 16, up to 12 above; 64 more for the few
    that these do not settle, and for every element of calls with up to 32.

    Examples
    --------
    >>> import dpcore
    >>> int(dpcore.random.geometric(10.0)) >= 0
    True
    """
    rate = _rate(scale)
    return _draw(_laws.geometric(rate), ("geometric", *label(rate)), size, noise, start)


def discrete_laplace(
    scale: Real | float, size: Size = None, *, noise: Noise | None = None, start: int = 0
) -> Any:
    """Integers k of either sign with probability proportional to exp(-abs(k) / scale).

    Parameters
    ----------
    scale, size, noise, start
        As for `geometric`.

    Privacy
    -------
    No data are read. That neighbouring probabilities of the law in use differ by at most a factor
    of e**(1 / scale), over its unbounded support, is checked in integers. To choose the scale for a
    sensitivity is up to the caller, and no ledger is charged: see `dpcore.laplace` for both.

    Cost
    ----
    As for `geometric`.

    Examples
    --------
    >>> import dpcore
    >>> dpcore.random.discrete_laplace(2.5, (2, 3)).shape
    (2, 3)
    """
    rate = _rate(scale)
    law = _laws.discrete_laplace(rate)
    return _draw(law, ("discrete_laplace", *label(rate)), size, noise, start)


def discrete_gaussian(
    sigma: Real | float, size: Size = None, *, noise: Noise | None = None, start: int = 0
) -> Any:
    """Integers k with probability proportional to exp(-k**2 / (2 sigma**2)).

    Parameters
    ----------
    sigma : float, int or Fraction
        From 1e-3 to 6e10.
    size, noise, start
        As for `bernoulli`.

    Privacy
    -------
    No data are read. The sampled law is within 2**-118 per element of the exact one in total
    variation. To choose sigma for a sensitivity is up to the caller, and no ledger is charged; a
    sigma that just suffices for the continuous Gaussian need not suffice here.

    Cost
    ----
    2 bytes of ChaCha20 keystream per element up to sigma = 32, 8 to 10 above; 64 more for the few
    that these do not settle, and for every element of calls with up to 32.

    Examples
    --------
    >>> import dpcore
    >>> dpcore.random.discrete_gaussian(10, 4).dtype
    dtype('int64')
    """
    exact_sigma = _sigma(sigma)
    law = _laws.discrete_gaussian(exact_sigma)
    return _draw(law, ("discrete_gaussian", *label(exact_sigma)), size, noise, start)


def rounded_gaussian(
    sigma: Real | float, size: Size = None, *, noise: Noise | None = None, start: int = 0
) -> Any:
    """A Gaussian real number of standard deviation sigma, rounded to the nearest integer.

    Adding it to an integer is the continuous Gaussian mechanism followed by rounding, so whatever
    holds for that mechanism (in any dimension, under any composition) holds here.

    Parameters
    ----------
    sigma, size, noise, start
        As for `discrete_gaussian`.

    Privacy
    -------
    No data are read. The sampled law is within 2**-118 per element of the exact one in total
    variation. To choose sigma for a sensitivity is up to the caller, and no ledger is charged: see
    `dpcore.gaussian` for both.

    Cost
    ----
    As for `discrete_gaussian`.

    Examples
    --------
    >>> import dpcore
    >>> dpcore.random.rounded_gaussian(10, 4).shape
    (4,)
    """
    exact_sigma = _sigma(sigma)
    law = _laws.rounded_gaussian(exact_sigma)
    return _draw(law, ("rounded_gaussian", *label(exact_sigma)), size, noise, start)


def _rate(scale: Any) -> Fraction:
    exact_scale = check_positive(scale, "scale")
    if exact_scale > _laws.MAX_LAPLACE_SCALE:
        raise ParameterError("The 'scale' parameter must be at most 2**44.")
    return 1 / exact_scale


def _sigma(sigma: Any) -> Fraction:
    exact_sigma = check_positive(sigma, "sigma")
    if not Fraction(1, 1000) <= exact_sigma <= _laws.MAX_SIGMA:
        raise ParameterError("The 'sigma' parameter must lie between 1/1000 and 2**36.")
    return exact_sigma


def _draw(
    law: _laws.Digits | _laws.Rejection,
    purpose: tuple[Any, ...],
    size: Size,
    noise: Noise | None,
    start: int,
    dtype: type = np.int64,
) -> Any:
    source = check_noise(noise)
    drawn = sample(law, source.key_for(*purpose), check_size(size), start)
    return finish(drawn if dtype is np.int64 else drawn.astype(dtype), source)
