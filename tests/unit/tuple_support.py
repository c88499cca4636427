"""What the tests of categories and of many attributes share: columns, noise, comparisons."""

from fractions import Fraction

import numpy as np

from dpcore import Noise
from dpcore._exact import exp_enclosure
from dpcore.local.schema import Categorical, Numeric

N = 1_000_000


def at_most(epsilon, ratio):
    """Whether ratio <= e**epsilon, proven."""
    return ratio * (1 << 256) <= exp_enclosure(Fraction(epsilon), 256)[0]


def numeric(d, lower=-1.0, upper=1.0):
    return [Numeric(f"x{j}", lower, upper) for j in range(d)]


def pinned(seed):
    return Noise.insecure(seed).stream("test")


MIXED = [
    Numeric("age", 0, 100),
    Categorical("fuel", ["gas", "oil", "none"]),
    Numeric("speed", -10, 30),
    Categorical("code", 300),
    Categorical("zone", [5, 3, 9]),
]


def mixed_columns(n, seed=0):
    rng = np.random.default_rng(seed)
    return {
        "age": rng.uniform(20, 60, n),
        "fuel": rng.choice(["gas", "oil", "none"], n, p=[0.5, 0.3, 0.2]),
        "speed": rng.integers(-10, 31, n),
        "code": rng.integers(0, 300, n),
        "zone": rng.choice([3, 5, 9], n, p=[0.7, 0.2, 0.1]),
    }


def same(one, other):
    return (
        np.array_equal(one.index, other.index)
        and np.array_equal(one.code, other.code)
        and one.bits.keys() == other.bits.keys()
        and all(np.array_equal(one.bits[j], other.bits[j]) for j in one.bits)
    )
