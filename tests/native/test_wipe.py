"""Keys and keystream are gone from the stack once a call has returned."""

import subprocess
import sys

import pytest

LINUX = sys.platform == "linux"

# Its own stack is searched, below the frames of the interpreter, in a process that has done little.
SEARCH = """
from fractions import Fraction

import numpy as np

from dpcore import _laws, local
from dpcore_ext import rng, sample, secagg

mechanism = local.Duchi(1.0)
laws = [
    _laws.discrete_laplace(Fraction(1)).native,
    _laws.discrete_laplace(Fraction(1, 5000)).native,
    _laws.rounded_gaussian(Fraction(1000)).native,
]
data = bytes((37 * i + 11) % 256 for i in range(32))
key = rng.Key.from_bytes(data)
keys = np.frombuffer(data, np.uint8).reshape(1, 32).copy()
flags, whole = np.zeros(1, np.uint8), np.zeros(3, np.uint32)
out, codes = np.empty(1, np.int64), np.empty(1, mechanism._rows.dtype)
block = np.empty(64, np.uint8)
x, counters = np.array([0.3]), np.array([5], np.uint64)
calls = {
    "keystream": lambda: rng.keystream(key, 0, 0, block),
    "keystream_at": lambda: rng.keystream_at(key, 0, counters, block),
    "integers": lambda: sample.integers(key, 0, 3 << 62, 5, out),
    "encode": lambda: mechanism._rows.encode(key, 5, x, codes),
    "mask": lambda: secagg.mask_add(keys, flags, 0, whole),
    **{f"law {i}": (lambda law=law: law.add_to(key, 5, None, out)) for i, law in enumerate(laws)},
}
start, end = next(
    [int(part, 16) for part in line.split()[0].split("-")]
    for line in open("/proc/self/maps") if line.rstrip().endswith("[stack]")
)
memory = open("/proc/self/mem", "rb", buffering=0)


def stack():
    memory.seek(start)
    return memory.read(end - start)


for level in rng.levels():
    rng.select(level)
    refined, lane = np.empty(64, np.uint8), np.empty(64, np.uint8)
    rng.keystream_at(key, 16 << 32, counters, refined)
    rng.keystream(key, 0, 0, lane)
    secrets = {f"word {i} of the key, in lanes": 4 * data[4 * i : 4 * i + 4] for i in range(8)}
    secrets["a piece of the key"] = data[4:16]
    for name, text in (("refine", refined.tobytes()), ("lane 0", lane.tobytes())):
        secrets |= {f"{name}, {i}": text[i : i + 16] for i in range(0, 64, 16)}
    stack()
    for name, call in calls.items():
        call()
        seen = stack()
        for what, text in secrets.items():
            if text in seen:
                print(f"{level}, {name}: {what}")
"""


@pytest.mark.skipif(not LINUX, reason="reads /proc")
def test_the_stack_holds_neither_keys_nor_keystream_after_a_call():
    done = subprocess.run(
        [sys.executable, "-c", SEARCH], check=True, capture_output=True, text=True, timeout=300
    )
    assert done.stdout == ""
