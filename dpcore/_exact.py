"""Real numbers as integers: enclosures and fixed-point series in Python's own arithmetic."""

from __future__ import annotations

from fractions import Fraction

__all__ = ["exp_enclosure", "exp_negative", "floor_log2", "gaussian_cells", "gaussian_points"]


def exp_enclosure(x: Fraction, bits: int) -> tuple[int, int]:
    """Integers low <= e**x * 2**bits <= high, a few units apart.

    >>> low, high = exp_enclosure(Fraction(1), 30)
    >>> low / 2**30 <= 2.718281828459045 <= high / 2**30
    True
    """
    magnitude = abs(x)
    halvings = max(0, magnitude.numerator.bit_length() - magnitude.denominator.bit_length() + 9)
    work = bits + halvings + 32 + 3 * int(magnitude + 1)
    one = 1 << work
    step = (magnitude.numerator << work) // (magnitude.denominator << halvings)
    low, term, k = one, one, 0
    while term:
        k += 1
        term = (term * step >> work) // k
        low += term
    high = low + 2 * k + 4
    for _ in range(halvings):
        low = low * low >> work
        high = (high * high >> work) + 1
    if x < 0:
        low, high = one * one // high, one * one // low + 1
    return low >> (work - bits), (high >> (work - bits)) + 1


def exp_negative(x: Fraction, bits: int) -> int:
    """e**-x in units of 2**-bits, x >= 0, within a few units."""
    return 0 if x > bits else exp_enclosure(-x, bits)[0]


def floor_log2(value: Fraction) -> int:
    """The exponent of the largest power of two that is at most value."""
    exponent = value.numerator.bit_length() - value.denominator.bit_length()
    return exponent if Fraction(2) ** exponent <= value else exponent - 1


def gaussian_points(sigma: Fraction, n_points: int, bits: int) -> list[int]:
    """exp(-k**2 / (2 sigma**2)) for k = 0, ..., n_points - 1 in units of 2**-bits.

    Each value is the one before times a factor that itself shrinks by a constant factor; guard bits
    absorb what the products lose.
    """
    work = bits + 64
    square = exp_negative(1 / sigma**2, work)
    factor = exp_negative(1 / (2 * sigma**2), work)
    value, values = 1 << work, []
    for _ in range(n_points):
        values.append(value >> 64)
        value = value * factor >> work
        factor = factor * square >> work
    return values


def gaussian_cells(sigma: Fraction, n_cells: int, bits: int) -> list[int]:
    """Integral of exp(-u**2 / (2 sigma**2)) over [k - 1/2, k + 1/2] for k = 0, ..., n_cells - 1.

    In units of sigma * 2**-bits. Cells wider than half a standard deviation are split into an odd
    number of parts; a part around c of half-width a has the integral
    exp(-c**2/2) * sum over even m of 2 He_m(c) a**(m + 1) / (m + 1)!, He_m being the Hermite
    polynomials, whose terms t_m = He_m(c) a**m / m! obey (m + 1) t_{m+1} = a c t_m - a**2 t_{m-1}.
    """
    parts = int(2 / sigma) | 1 if sigma < 2 else 1
    width = 1 / (sigma * parts)
    half = (width.numerator << bits) // (2 * width.denominator)
    half_square = half * half >> bits
    # Beyond 20 standard deviations a part weighs less than 2**-288.
    n_parts = min(int(20 / width) + 1, n_cells * parts - parts // 2)
    cells = [0] * n_cells
    for j, density in enumerate(gaussian_points(1 / width, n_parts, bits)):
        slope = 2 * j * half_square
        before, term, total, m = 0, 1 << bits, 0, 0
        while term or before:
            if m % 2 == 0:
                total += term // (m + 1)
            m += 1
            before, term = term, ((slope * term >> bits) - (half_square * before >> bits)) // m
            if abs(term) <= 1 and abs(before) <= 1:
                break
        area = (density * total >> bits) * half >> (bits - 1)
        # The middle part of cell 0 is shared by both signs: its whole area belongs to cell 0,
        # and so do the mirror images of the other parts of that cell.
        cell = (j + parts // 2) // parts
        cells[cell] += area if j == 0 or cell > 0 else 2 * area
    return cells
