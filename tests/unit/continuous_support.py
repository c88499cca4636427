"""References for the ideal local mechanisms, with 60 digits.

The closed forms of the parameters (Ferrari for PM-OPT, the cosine for Three-Outputs) cancel in
floating point; they serve here, where digits are free.
"""

import math

import mpmath  # type: ignore[import-untyped, unused-ignore]

from dpcore.local.continuous import Mixture, Piecewise, continuous

DIGITS = 60
LN2 = math.log(2)
LAST = math.log((3 + math.sqrt(65)) / 2)
# Both ends of the range, both sides of every change of branch, and points between.
BRANCHES = [
    *(LN2, math.nextafter(LN2, 1), LN2 + 1e-12, LN2 + 1e-6),
    *(LAST - 1e-5, math.nextafter(LAST, 1), LAST, math.nextafter(LAST, 2)),
    *(0.607, 0.608, 0.6093, 0.6094, 0.61, 0.62, 2.029, 2.03, 5.44),
]
EPSILONS = sorted(
    [
        *BRANCHES,
        *(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 0.5, 0.6, 0.65, 0.69, 0.7, 0.8, 1.0, 1.1, 1.3, 1.5),
        *(1.7, 1.72, 2.0, 2.5, 3.0, 4.0, 5.0, 8.0, 12.0, 20.0, 30.0, 36.2, 37.0, 40.0, 50.0),
    ]
)


def worst(name: str, epsilon: float) -> float:
    return continuous(name, epsilon).worst_case_variance


def mixture(name: str, epsilon: float) -> Mixture:
    found = continuous(name, epsilon)
    assert isinstance(found, Mixture)
    return found


def piecewise(name: str, epsilon: float) -> Piecewise:
    found = continuous(name, epsilon)
    assert isinstance(found, Piecewise)
    return found


# References with 60 digits.


def exact_t(epsilon: float) -> mpmath.mpf:
    e = mpmath.exp(epsilon)
    m2 = e**2 - mpmath.cbrt(4 * e**2 * (e**2 - 1))
    r, g = mpmath.sqrt(m2), e**3 - 2 * e
    if e**2 <= 2:
        return -e / 2 + (r + mpmath.sqrt(3 * e**2 - m2 - 2 * g / r)) / 2
    return -e / 2 + (-r + mpmath.sqrt(3 * e**2 - m2 + 2 * g / r)) / 2


def exact_a(epsilon: float) -> mpmath.mpf:
    e = mpmath.exp(epsilon)
    if e <= 2:
        return mpmath.mpf(0)
    if e >= (3 + mpmath.sqrt(65)) / 2:
        return e / (e + 2)
    a3, a2, a1, a0 = 2 * e, -(e**2 + 4 * e + 5), -(e**2 + 4 * e - 7), 2 * (e - 2)
    p = (3 * a3 * a1 - a2**2) / (3 * a3**2)
    g = (2 * a2**3 - 9 * a3 * a2 * a1 + 27 * a3**2 * a0) / (27 * a3**3)
    angle = mpmath.acos(3 * g / (2 * p) * mpmath.sqrt(-3 / p)) / 3 - 2 * mpmath.pi / 3
    return e * (-a2 / (3 * a3) + 2 * mpmath.sqrt(-p / 3) * mpmath.cos(angle))


def exact_piecewise(epsilon: float, t: mpmath.mpf) -> tuple[mpmath.mpf, mpmath.mpf]:
    """Curvature and floor of the variance, in the forms that cancel."""
    e = mpmath.exp(epsilon)
    return (t + 1) / (e - 1), (t + e) * ((t + 1) ** 3 + e - 1) / (3 * t**2 * (e - 1) ** 2)


def exact_three(epsilon: float, a: mpmath.mpf) -> tuple[mpmath.mpf, mpmath.mpf]:
    """Floor and rise of the variance."""
    e = mpmath.exp(epsilon)
    c = (e + 1) / ((e - 1) * (1 - a / e))
    return c**2 * (1 - a), c**2 * a * (1 - 1 / e)


def exact_mixture(
    epsilon: float, t: mpmath.mpf, a: mpmath.mpf
) -> tuple[mpmath.mpf, mpmath.mpf, mpmath.mpf]:
    """Best share of PM(t), worst variance, and where it is met."""
    (curvature, base), (floor, rise) = exact_piecewise(epsilon, t), exact_three(epsilon, a)
    m = 1 + curvature
    disc = rise**2 + 4 * m * (floor - base)
    alone = mpmath.mpf(0), floor + rise**2 / 4, rise / 2
    if disc <= 0:
        return alone
    d = curvature * rise / mpmath.sqrt(disc)
    r, r1 = (d + curvature) / m, 2 * curvature / (2 - rise + 2 * curvature)
    if r >= 1:
        return alone
    if r <= r1:
        return 1 - r1, (1 - r1) * (curvature + base) + r1 * (floor + rise - 1), mpmath.mpf(1)
    return 1 - r, (1 - r) * base + r * floor + rise**2 * r**2 / (4 * d), rise * r / (2 * d)


def relative(value: float, truth: mpmath.mpf) -> float:
    return abs(value) if truth == 0 else float(abs(value / truth - 1))
