"""Plans for tables of several kinds, columns for them, and noise."""

import numpy as np

from dpcore import Noise
from dpcore.tables import TablePlan, table_stream

N = 20_000
KEY_BYTES = bytes(range(32))
ONE = {"age": {"lower": 0, "upper": 100}}
MIXED = {
    "age": {"lower": 0, "upper": 100},
    "fuel": {"categories": ["gas", "oil", "none"]},
    "speed": {"lower": -10, "upper": 30},
    "code": {"categories": 300},
    "zone": {"categories": [5, 3, 9]},
}
PLANS = {
    "one": TablePlan(ONE, 2.0),
    "one, 16 bits": TablePlan(ONE, 2.0, n_levels=1000),
    "one of five": TablePlan(MIXED, 2.0),
    "two of five": TablePlan(MIXED, 5.0),
    "all": TablePlan(MIXED, 5.0, k=5),
    "numbers": TablePlan({"age": MIXED["age"], "speed": MIXED["speed"]}, 6.0, "duchi"),
    "category": TablePlan({"fuel": MIXED["fuel"]}, 1.0),
    "bits": TablePlan({"code": MIXED["code"]}, 1.0),
}


def noise(name="survey"):
    return table_stream(Noise.from_key(KEY_BYTES), name)


def columns(plan, n=N, seed=0):
    rng = np.random.default_rng(seed)
    made = {
        "age": rng.uniform(20, 60, n),
        "fuel": rng.choice(["gas", "oil", "none"], n, p=[0.5, 0.3, 0.2]),
        "speed": rng.integers(-10, 31, n),
        "code": rng.integers(0, 300, n),
        "zone": rng.choice([3, 5, 9], n, p=[0.7, 0.2, 0.1]),
    }
    return {name: made[name] for name in plan.names}


def same(a, b):
    return a.combine_chunks().equals(b.combine_chunks(), check_metadata=True)
