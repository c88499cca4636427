r"""Exact calibration of the Gaussian mechanism.

With ``mu = sensitivity / sigma`` the Gaussian mechanism is ``(epsilon, delta)``-private exactly
when ``delta`` is at least (Balle and Wang, 2018, "Improving the Gaussian Mechanism")

.. math:: \Phi(\mu/2 - \epsilon/\mu) - e^\epsilon \Phi(-\mu/2 - \epsilon/\mu)
          = \varphi(a) [R(a) - R(b)], \quad a = \epsilon/\mu - \mu/2, \quad b = a + \mu,

where ``R`` is the Mills ratio (upper tail over density); the second form needs no ``exp(epsilon)``.

Parameters are taken as the exact rationals they are, and every later step is an integer operation
rounded outwards at ``2**-bits``, so the truth always lies in the enclosure obtained. ``bits``
doubles until the enclosure tells whether a claim holds; a claim never settled counts as false.
Each function returns the smallest double for which its claim holds.
"""

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from numbers import Rational, Real

from dpcore.errors import ParameterError

__all__ = [
    "gaussian_delta",
    "gaussian_epsilon",
    "gaussian_sigma",
    "gdp_delta",
    "gdp_epsilon",
    "gdp_holds",
]

_Enclosure = tuple[int, int]

_PRECISIONS = tuple(64 << doublings for doublings in range(9))
_RANK_OF_INFINITY = 2047 << 52


def gdp_delta(mu: float, epsilon: float) -> float:
    """Smallest delta for which a mu-GDP mechanism is (epsilon, delta)-private.

    Parameters
    ----------
    mu, epsilon : float
        Gaussian-DP parameter (the root of the summed squares of ``sensitivity / sigma`` over the
        releases) and privacy loss, both greater than 0.

    Returns
    -------
    float
        The smallest double not below the exact delta.

    Privacy
    -------
    Rounds up. ``mu`` is taken as given, so a computed ``mu`` should be rounded up too.

    Examples
    --------
    >>> round(gdp_delta(1.0, 1.0), 12)
    0.126936737507
    """
    exact_mu = _exact(mu, "mu", "gdp_delta")
    return _smallest_delta(exact_mu, _exact(epsilon, "epsilon", "gdp_delta"))


def gdp_epsilon(mu: float, delta: float) -> float:
    """Smallest epsilon for which a mu-GDP mechanism is (epsilon, delta)-private.

    Parameters
    ----------
    mu, delta : float
        Gaussian-DP parameter, greater than 0, and failure probability, between 0 and 1.

    Returns
    -------
    float
        The smallest double not below the exact epsilon: 0 where ``delta`` alone covers the
        mechanism, infinity where epsilon exceeds every double.

    Privacy
    -------
    Rounds up. ``mu`` is taken as given, so a computed ``mu`` should be rounded up too.

    Examples
    --------
    >>> round(gdp_epsilon(1.0, 1e-5), 12)
    4.377178095681
    """
    exact_mu = _exact(mu, "mu", "gdp_epsilon")
    return _smallest_epsilon(exact_mu, _exact(delta, "delta", "gdp_epsilon", below=1))


def gdp_holds(mu: float, epsilon: float, delta: float) -> bool:
    """Whether a mu-GDP mechanism is (epsilon, delta)-private: one claim checked, none searched.

    Parameters
    ----------
    mu, epsilon, delta : float
        Gaussian-DP parameter, privacy loss and failure probability (under 1), greater than 0.

    Privacy
    -------
    False where the enclosures used do not settle the claim.

    Examples
    --------
    >>> gdp_holds(1.0, 4.378, 1e-5), gdp_holds(1.0, 4.377, 1e-5)
    (True, False)
    """
    exact_mu, exact_delta = (
        _exact(mu, "mu", "gdp_holds"),
        _exact(delta, "delta", "gdp_holds", below=1),
    )
    return _is_private(exact_mu, _exact(epsilon, "epsilon", "gdp_holds"), exact_delta)


def gaussian_delta(sigma: float, epsilon: float, *, sensitivity: float = 1.0) -> float:
    """Smallest delta for which Gaussian noise is (epsilon, delta)-private.

    Parameters
    ----------
    sigma, epsilon, sensitivity : float
        Standard deviation of the noise, privacy loss and L2 sensitivity, all greater than 0.

    Returns
    -------
    float
        The smallest double not below the exact delta.

    Privacy
    -------
    Rounds up.

    Cost
    ----
    A bisection of some 60 steps in exact integers: about 10 milliseconds.

    Examples
    --------
    >>> round(gaussian_delta(4.0, 1.0), 12)
    2.924272e-06
    """
    exact_sigma = _exact(sigma, "sigma", "gaussian_delta")
    exact_mu = _exact(sensitivity, "sensitivity", "gaussian_delta") / exact_sigma
    return _smallest_delta(exact_mu, _exact(epsilon, "epsilon", "gaussian_delta"))


def gaussian_epsilon(sigma: float, delta: float, *, sensitivity: float = 1.0) -> float:
    """Smallest epsilon for which Gaussian noise is (epsilon, delta)-private.

    Parameters
    ----------
    sigma, delta, sensitivity : float
        Standard deviation of the noise, failure probability (under 1) and L2 sensitivity, all
        greater than 0.

    Returns
    -------
    float
        The smallest double not below the exact epsilon; 0 and infinity as in `gdp_epsilon`.

    Privacy
    -------
    Rounds up.

    Cost
    ----
    A bisection of some 60 steps in exact integers: about 10 milliseconds. The 256 results used last
    are kept.

    Examples
    --------
    >>> round(gaussian_epsilon(4.0, 1e-5), 12)
    0.926341503998
    """
    exact_sigma = _exact(sigma, "sigma", "gaussian_epsilon")
    exact_mu = _exact(sensitivity, "sensitivity", "gaussian_epsilon") / exact_sigma
    return _smallest_epsilon(exact_mu, _exact(delta, "delta", "gaussian_epsilon", below=1))


def gaussian_sigma(epsilon: float, delta: float, *, sensitivity: float = 1.0) -> float:
    """Smallest noise scale that makes the Gaussian mechanism (epsilon, delta)-private.

    Parameters
    ----------
    epsilon, delta, sensitivity : float
        Privacy loss, failure probability (under 1) and L2 sensitivity, all greater than 0.

    Returns
    -------
    float
        The smallest double that suffices as standard deviation of the noise.

    Privacy
    -------
    Rounds up: the guarantee holds for the returned double itself.

    Cost
    ----
    A bisection of some 60 steps in exact integers: about 10 milliseconds. The 256 results used last
    are kept.

    Examples
    --------
    >>> round(gaussian_sigma(1.0, 1e-5), 12)
    3.730631634816
    """
    exact_epsilon = _exact(epsilon, "epsilon", "gaussian_sigma")
    exact_delta = _exact(delta, "delta", "gaussian_sigma", below=1)
    reach = _exact(sensitivity, "sensitivity", "gaussian_sigma")
    sigma = _smallest_sigma(exact_epsilon, exact_delta, reach)
    if sigma == math.inf:
        raise ParameterError(
            "The 'sensitivity' parameter of gaussian_sigma must be small enough for the noise "
            "scale to be a finite number."
        )
    return sigma


def _exact(value: object, name: str, function: str, *, below: float = math.inf) -> Fraction:
    if isinstance(value, Real) and not isinstance(value, bool):
        try:
            nearest = float(value)
        except OverflowError:
            nearest = math.inf
        if 0 < nearest < below:
            if isinstance(value, Rational):
                return Fraction(int(value.numerator), int(value.denominator))
            return Fraction(nearest)
    limit = "" if below == math.inf else f" and less than {below}"
    raise ParameterError(
        f"The '{name}' parameter of {function} must be a finite number greater than 0{limit}."
    )


@lru_cache(maxsize=256)
def _smallest_sigma(epsilon: Fraction, delta: Fraction, reach: Fraction) -> float:
    return _smallest_double(lambda scale: scale > 0 and _is_private(reach / scale, epsilon, delta))


@lru_cache(maxsize=256)
def _smallest_epsilon(mu: Fraction, delta: Fraction) -> float:
    return _smallest_double(lambda epsilon: _is_private(mu, epsilon, delta))


def _smallest_delta(mu: Fraction, epsilon: Fraction) -> float:
    return _smallest_double(lambda delta: _is_private(mu, epsilon, delta))


def _smallest_double(suffices: Callable[[Fraction], bool]) -> float:
    low, high = 0, _RANK_OF_INFINITY
    while low < high:
        middle = (low + high) // 2
        if suffices(Fraction(_double_of_rank(middle))):
            high = middle
        else:
            low = middle + 1
    return _double_of_rank(low) if low < _RANK_OF_INFINITY else math.inf


def _double_of_rank(rank: int) -> float:
    exponent, fraction = divmod(rank, 1 << 52)
    return math.ldexp(fraction + (1 << 52 if exponent else 0), max(exponent, 1) - 1075)


def _is_private(mu: Fraction, epsilon: Fraction, delta: Fraction) -> bool:
    a = epsilon / mu - mu / 2
    # The tail at 39 is under 2**-1075, so under every positive double; twice the tail at 9 is
    # under 2**-54, so less than what any double below 1 lacks to 1.
    if a >= 39:
        return delta > 0
    if a <= -9:
        return delta >= 1
    for bits in _PRECISIONS:
        low, high = _enclose_delta(a, a + mu, bits)
        if high <= delta:
            return True
        if low > delta:
            return False
    return False


def _enclose_delta(a: Fraction, b: Fraction, bits: int) -> tuple[Fraction, Fraction]:
    a_low, a_high = _enclose_mills_ratio(abs(a), bits)
    b_low, b_high = _enclose_mills_ratio(b, bits)
    low, high = _enclose_inverse_density(a, bits)
    if a >= 0:
        return Fraction(max(a_low - b_high, 0), high), Fraction(a_high - b_low, low)
    return 1 - Fraction(a_high + b_high, low), 1 - Fraction(a_low + b_low, high)


def _enclose_mills_ratio(x: Fraction, bits: int) -> _Enclosure:
    """Enclose R(x), scaled by 2**bits, for x >= 0."""
    square, unit = x * x, 1 << bits
    floor, ceiling = math.floor(x * unit), math.ceil(x * unit)
    if 8 * square < bits:
        # R(x) = exp(x**2 / 2) sqrt(pi / 2) - sum of x**(2 k + 1) / (2 k + 1)!!
        low, high = _enclose_inverse_density(x, bits)
        top, bottom = square.as_integer_ratio()
        sum_low, sum_high = _enclose_sum(floor, ceiling, lambda k: (top, bottom * (2 * k + 1)))
        return low // 2 - sum_high, _divide_up(high, 2) - sum_low
    # 1 / R(x) = T(0) with T(k - 1) = x + k / T(k) and T(k) > x (Laplace): T(k) is
    # (k + 1) I(k) / I(k + 1), I(k) being the integral of t**k exp(-x t - t**2 / 2) over t > 0.
    unit *= unit
    steps = bits**2 // math.floor(8 * square) + bits // 8 + 8
    low, high = floor, ceiling + _divide_up((steps + 1) * unit, floor)
    for k in range(steps, 0, -1):
        low, high = floor + k * unit // high, ceiling + _divide_up(k * unit, low)
    return unit // high, _divide_up(unit, low)


def _enclose_inverse_density(x: Fraction, bits: int) -> _Enclosure:
    """Enclose sqrt(2 pi) exp(x**2 / 2), scaled by 2**bits."""
    unit, exponent = 1 << bits, x * x / 2
    # The series is short for exponents under 1/16; squaring restores the rest.
    halvings = math.floor(16 * exponent).bit_length()
    top, bottom = exponent.numerator, exponent.denominator << halvings
    low, high = _enclose_sum(unit, unit, lambda k: (top, bottom * k))
    for _ in range(halvings):
        low, high = low * low // unit, _divide_up(high * high, unit)
    # pi / 2 = sum of k! / (2 k + 1)!! (Euler)
    pi_low, pi_high = _enclose_sum(unit, unit, lambda k: (k, 2 * k + 1))
    root_low, root_high = math.isqrt(4 * pi_low * unit), math.isqrt(4 * pi_high * unit) + 1
    return low * root_low // unit, _divide_up(high * root_high, unit)


def _enclose_sum(low: int, high: int, ratio: Callable[[int], tuple[int, int]]) -> _Enclosure:
    """Enclose t(0) + t(1) + ..., with t(0) in [low, high] and t(k) = t(k - 1) * ratio(k)."""
    sum_low, sum_high, k = low, high, 0
    while True:
        k += 1
        top, bottom = ratio(k)
        low, high = low * top // bottom, _divide_up(high * top, bottom)
        sum_low, sum_high = sum_low + low, sum_high + high
        if high <= 1 and 2 * top <= bottom:
            # Every later ratio is at most 1/2 too, so what is left is at most the last term.
            return sum_low, sum_high + high


def _divide_up(top: int, bottom: int) -> int:
    return -(-top // bottom)
