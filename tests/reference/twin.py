"""A slow twin of the native core in Python integers, written from the public headers.

Nothing here is shared with the library: a law enters as plain integers (see `Table`), a key as 32
bytes. Elements are always refined to their full width, so that agreement with the native samplers
also shows that their shortcuts (guide, 16-bit first look, 64-bit acceptance) decide nothing
differently.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

CONSTANTS = (0x61707865, 0x3320646E, 0x79622D32, 0x6B206574)
COLUMNS = ((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15))
DIAGONALS = ((0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14))

M32, M64, M128 = (1 << 32) - 1, (1 << 64) - 1, (1 << 128) - 1
INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1
REFINE_LANE = 16


# ChaCha20


def words32(data: bytes) -> list[int]:
    return [int.from_bytes(data[i : i + 4], "little") for i in range(0, len(data), 4)]


def bytes32(words: Sequence[int]) -> bytes:
    return b"".join(word.to_bytes(4, "little") for word in words)


def twenty_rounds(state: Sequence[int]) -> list[int]:
    x = list(state)
    for _ in range(10):
        for a, b, c, d in COLUMNS + DIAGONALS:
            xa, xb, xc, xd = x[a], x[b], x[c], x[d]
            xa = (xa + xb) & M32
            xd ^= xa
            xd = (xd << 16 | xd >> 16) & M32
            xc = (xc + xd) & M32
            xb ^= xc
            xb = (xb << 12 | xb >> 20) & M32
            xa = (xa + xb) & M32
            xd ^= xa
            xd = (xd << 8 | xd >> 24) & M32
            xc = (xc + xd) & M32
            xb ^= xc
            xb = (xb << 7 | xb >> 25) & M32
            x[a], x[b], x[c], x[d] = xa, xb, xc, xd
    return x


@lru_cache(maxsize=1 << 16)
def block(key: bytes, nonce: int, counter: int) -> bytes:
    """Block number `counter` of the keystream of (key, nonce)."""
    counter &= M64
    last = (counter & M32, counter >> 32, nonce & M32, nonce >> 32)
    state = [*CONSTANTS, *words32(key), *last]
    return bytes32([(a + b) & M32 for a, b in zip(state, twenty_rounds(state), strict=True)])


def keystream(key: bytes, nonce: int, counter: int, n_blocks: int) -> bytes:
    return b"".join(block(key, nonce, counter + i) for i in range(n_blocks))


def hchacha20(key: bytes, data: bytes) -> bytes:
    x = twenty_rounds([*CONSTANTS, *words32(key), *words32(data)])
    return bytes32(x[:4] + x[12:])


def derive(key: bytes, digest: bytes) -> bytes:
    return hchacha20(hchacha20(key, digest[:16]), digest[16:])


# Random integers of one element


def nonce_of(lane: int, sub_block: int) -> int:
    return lane << 32 | sub_block


def lane_word(key: bytes, lane: int, element: int, bits: int) -> int:
    """Word number `element`, of that many bits, in the keystream of a lane."""
    size = bits // 8
    number, place = divmod(element * size, 64)
    return int.from_bytes(block(key, nonce_of(lane, 0), number)[place : place + size], "little")


def refine_words(key: bytes, lane: int, sub_block: int, element: int) -> list[int]:
    """The eight 64-bit words of an element's block in a refine lane."""
    data = block(key, nonce_of(REFINE_LANE + lane, sub_block), element)
    return [int.from_bytes(data[i : i + 8], "little") for i in range(0, 64, 8)]


def joined(words: Sequence[int]) -> int:
    """64-bit words as one integer, most significant first."""
    total = 0
    for word in words:
        total = total << 64 | word
    return total


def with_prefix(value: int, width: int, prefix: int, prefix_width: int) -> int:
    """A number of `width` bits with its first bits replaced."""
    low = width - prefix_width
    return prefix << low | value & ((1 << low) - 1)


def saturated(value: int) -> int:
    return max(INT64_MIN, min(INT64_MAX, value))


# Table laws


@dataclass(frozen=True)
class Table:
    """Outcome k < len(thresholds) lies below thresholds[k], in units of 2**-256."""

    thresholds: tuple[int, ...]
    first: int = 0

    def outcome(self, u: int) -> int:
        return bisect_right(self.thresholds, u)


@dataclass(frozen=True)
class Digits:
    top: Table
    tail: Table | None = None
    digits: tuple[tuple[Table, int], ...] = ()
    symmetric: bool = False

    def noise(self, key: bytes, element: int) -> int:
        low = shift = 0
        for number, (table, bits) in enumerate(self.digits, start=1):
            drawn = table.first + table.outcome(draw_256(key, number, element))
            low += drawn << shift
            shift += bits
        outcome = self.top.outcome(draw_256(key, 0, element))
        value = self.top.first + outcome
        magnitude = abs(value)
        at_end = outcome == len(self.top.thresholds) or (self.symmetric and outcome == 0)
        if self.tail is not None and at_end:
            magnitude += tail_draw(self.tail, key, element)
        if self.digits and self.symmetric:
            magnitude = 0 if magnitude == 0 else 1 + ((magnitude - 1) << shift) + low
        elif self.digits:
            magnitude = (magnitude << shift) + low
        return -magnitude if value < 0 else magnitude


def draw_256(key: bytes, lane: int, element: int) -> int:
    u = joined(refine_words(key, lane, 0, element)[:4])
    return with_prefix(u, 256, lane_word(key, lane, element, 16), 16)


def tail_draw(tail: Table, key: bytes, element: int) -> int:
    total, sub_block = 0, 1
    while True:
        outcome = tail.outcome(joined(refine_words(key, 0, sub_block, element)[:4]))
        total += outcome
        if outcome < len(tail.thresholds):
            return total
        sub_block += 1


# Gaussian by rejection


@dataclass(frozen=True)
class Gauss:
    cells: Table
    kappa: int
    shift: int
    lattice: bool

    def noise(self, key: bytes, element: int) -> int:
        attempt = 0
        while True:
            candidate = self.attempt(key, element, attempt)
            if candidate is not None:
                return candidate
            attempt += 1

    def attempt(self, key: bytes, element: int, number: int) -> int | None:
        words = refine_words(key, 0, number, element)
        t, u, f = joined(words[:4]), joined(words[4:6]), joined(words[6:])
        if number == 0:
            bulk = lane_word(key, 0, element, 64)
            t = with_prefix(t, 256, bulk & 0xFFFF, 16)
            u = with_prefix(u, 128, bulk >> 16 & 0xFFFF, 16)
            f = with_prefix(f, 128, bulk >> 32, 32)
        if self.lattice:
            f = f >> (128 - self.shift) << (128 - self.shift)
        cell = self.cells.first + self.cells.outcome(t)
        c = -1 - cell if cell < 0 else cell
        # (c + f) cells in units, to the nearest integer, halves up.
        magnitude = (c << self.shift) + ((f >> (127 - self.shift)) + 1 >> 1)
        if self.lattice and cell < 0 and magnitude == 0:
            return None
        if u >= self.acceptance(c, f):
            return None
        return -magnitude if cell < 0 else magnitude

    def acceptance(self, c: int, f: int) -> int:
        """exp(-f (2c + f) / (2 s**2)) in units of 2**-128, f being in such units as well."""
        span = (c << 118) + (f >> 11)
        return exp_negative_128((f * span >> 128) * self.kappa >> 128)


def exp_negative_128(exponent: int) -> int:
    """e**-x in units of 2**-128, x = exponent / 2**126, by the steps of sample.c."""
    x = exponent >> 2
    t = M128
    for k in range(27, 0, -1):
        t = M128 - (x * t >> 128) // k
    for _ in range(4):
        t = t * t >> 128
    return t


def exp_negative_64(exponent: int) -> int:
    """The same with 64 bits: what dpc_exp_neg computes."""
    x = exponent >> 2
    t = M64
    for k in range(13, 0, -1):
        t = M64 - (x * t >> 64) // k
    for _ in range(4):
        t = t * t >> 64
    return t


# Uniform integers


@dataclass(frozen=True)
class Integers:
    """Uniform on low, ..., low + bound - 1, bound from 1 to 2**64."""

    low: int
    bound: int

    def noise(self, key: bytes, element: int) -> int:
        refused = (1 << 64) % self.bound
        for word in self.candidates(key, element):
            high, rest = divmod(word * self.bound, 1 << 64)
            if rest >= refused:
                return self.low + high
        raise AssertionError("the candidates never end")

    @staticmethod
    def candidates(key: bytes, element: int):
        yield lane_word(key, 0, element, 64)
        sub_block = 0
        while True:
            yield from refine_words(key, 0, sub_block, element)
            sub_block += 1


def sample(law, key: bytes, start: int, x: Sequence[int]) -> list[int]:
    """x plus noise, held inside int64, of elements start, start + 1, ..."""
    return [saturated(value + law.noise(key, start + i)) for i, value in enumerate(x)]
