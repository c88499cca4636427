"""Lots that differ in one record: their clipped sums differ by what that record adds, exactly.

Everything here is compared without a tolerance but for the last rounding of a sum to float64.
"""

import itertools
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dpcore.learners.lvq.clipped import clipped_sums, make_space, to_grid
from dpcore.learners.lvq.kernel import CHUNK, Model, Transfer

CLIP = 0.01
KINDS = ("euclidean", "matrix", "low rank", "diagonal")


def omega_of(kind, d, generator):
    if kind == "euclidean":
        return None
    if kind == "diagonal":
        return np.abs(generator.normal(size=d)) + 1e-3
    return generator.normal(size=(d if kind == "matrix" else max(1, d // 3), d))


def model_of(kind, d, generator, prototypes):
    labels = np.arange(len(prototypes)) % 2
    return Model(prototypes, labels, omega_of(kind, d, generator))


def moments(x, codes, model, clip=CLIP, transfer=None):
    """The sums as whole numbers, before they are rounded to float64."""
    space = make_space(x.shape[1], model, clip, transfer or Transfer())
    return [moment.astype(np.int64) for moment in space.block(to_grid(x), codes, 0)]


def added(x, codes, model, clip=CLIP):
    """The norm of what the records add to the sums, in clip norms."""
    sums = clipped_sums(to_grid(x), codes, model, clip=clip)
    squares = np.square(sums.prototypes).sum()
    if sums.omega is not None:
        squares += np.square(sums.omega).sum()
    return math.sqrt(squares) / clip


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [2, 129, 401, CHUNK, CHUNK + 1, 3 * CHUNK + 7])
def test_a_record_adds_the_same_to_every_lot(kind, dtype, n):
    """Whatever the lot's size, its chunks, and whether its first or last record is the one."""
    generator = np.random.default_rng(n)
    d = 40
    x = generator.uniform(-1, 1, (n, d)).astype(dtype)
    codes = generator.integers(0, 2, n)
    model = model_of(kind, d, generator, generator.uniform(-1, 1, (5, d)))
    whole = moments(x, codes, model)
    for i in (0, n // 2, n - 1):
        alone = moments(x[i : i + 1], codes[i : i + 1], model)
        rest = moments(np.delete(x, i, axis=0), np.delete(codes, i), model)
        for sums, one, others in zip(whole, alone, rest, strict=True):
            np.testing.assert_array_equal(sums, one + others)


@pytest.mark.parametrize("kind", KINDS)
def test_records_in_any_order_have_the_same_sums(kind):
    generator = np.random.default_rng(0)
    x = generator.uniform(-1, 1, (5000, 30))
    codes = generator.integers(0, 2, 5000)
    model = model_of(kind, 30, generator, generator.uniform(-1, 1, (4, 30)))
    expected = moments(x, codes, model, transfer=Transfer("logistic", 20.0))
    order = generator.permutation(5000)
    mixed = np.asfortranarray(x[order])
    found = moments(mixed, codes[order], model, transfer=Transfer("logistic", 20.0))
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", KINDS)
def test_equal_records_are_added_as_often_as_they_come(kind, dtype):
    """Records between two prototypes, on one, near one: rounding would move all of them at once."""
    generator = np.random.default_rng(1)
    for d in (1, 2, 100):
        prototypes = generator.uniform(-1, 1, (5, d))
        prototypes[2] = prototypes[1]
        middle = prototypes[:2].mean(axis=0)
        prototypes[3] = 2 * middle - prototypes[0]
        model = model_of(kind, d, generator, prototypes)
        near = prototypes[0] + 1e-3 * generator.normal(size=d) / np.sqrt(d)
        corner = np.sign(generator.normal(size=d)) * (1 - 1e-6)
        for record, n in itertools.product((prototypes[0], near, middle, corner), (3, 400, 2049)):
            x = np.repeat(record[None].astype(dtype), n, axis=0)
            codes = np.zeros(n, int)
            one, all_of_them = moments(x[:1], codes[:1], model), moments(x, codes, model)
            for single, total in zip(one, all_of_them, strict=True):
                np.testing.assert_array_equal(total, n * single)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", ["anywhere", "near", "far", "corner"])
def test_no_record_and_no_model_break_the_clip_norm(kind, place):
    """Prototypes at distances of 1e-9 to 2 from the record, or from each other far from it."""
    generator = np.random.default_rng(3)
    largest = 0.0
    for _ in range(300):
        d = int(generator.integers(1, 60))
        x = generator.uniform(-1, 1, (1, d))
        if place == "corner":
            x = np.sign(x)
        base = {"near": x, "far": generator.uniform(-2, 2, (1, d))}.get(place, np.zeros((1, d)))
        spread = generator.uniform(-9, 0.3, (4, 1)) if place in ("near", "far") else 0.0
        w = base + 10.0**spread * generator.normal(size=(4, d))
        if place == "corner":
            w = 2 * np.sign(w)
        model = model_of(kind, d, generator, np.clip(w, -2, 2))
        if model.omega is not None:
            scale = 10.0 ** generator.uniform(-6, 6)
            model = Model(model.prototypes, model.codes, scale * model.omega)
        clip = 10.0 ** generator.uniform(-6, 6)
        largest = max(largest, added(x, np.array([0]), model, clip))
        assert largest <= 1
    assert largest > 0.99


@pytest.mark.parametrize("kind", KINDS)
def test_records_that_repeat_with_the_chunks_do_not_rotate(kind):
    """A lot with the period of the chunks, less its first record: every chunk is another."""
    generator = np.random.default_rng(5)
    x = np.tile(generator.uniform(-1, 1, (CHUNK, 3)), (4, 1)).astype(np.float32)
    codes = np.tile(generator.integers(0, 2, CHUNK), 4)
    base = generator.uniform(-0.1, 0.1, (1, 3))
    model = model_of(kind, 3, generator, base + np.array([[0], [0], [1], [0]]))
    whole, less = (clipped_sums(to_grid(x[i:]), codes[i:], model, clip=CLIP) for i in (0, 1))
    change = np.square(whole.prototypes - less.prototypes).sum()
    if whole.omega is not None:
        change += np.square(whole.omega - less.omega).sum()
    assert math.sqrt(change) <= CLIP


PROGRAM = """
import hashlib, sys
import numpy as np
from dpcore.learners.lvq.clipped import clipped_sums, to_grid
from dpcore.learners.lvq.kernel import Model, Transfer

state = hashlib.sha256()
generator = np.random.default_rng(0)
for n, d, rank in ((401, 784, 0), (1200, 100, 60), (3000, 20, 20)):
    x = generator.integers(-1000, 1001, (n, d)) / 1000
    w = generator.integers(-1000, 1001, (3, d)) / 1000
    omega = generator.integers(-9, 10, (rank, d)) / 8.0 if rank else None
    model = Model(w, np.array([0, 1, 1]), omega)
    sums = clipped_sums(
        to_grid(x), np.arange(n) % 2, model, clip=0.01, transfer=Transfer("logistic", 20.0)
    )
    state.update(sums.prototypes.tobytes())
    if omega is not None:
        state.update(sums.omega.tobytes())
print(state.hexdigest())
"""


@pytest.mark.parametrize("kernels", ["Haswell", "SkylakeX", "Sandybridge", "Nehalem"])
def test_kernels_of_blas_change_nothing(kernels):
    """OpenBLAS has other products for other machines; where the CPU has them, they are tried."""

    def digest(**environment):
        found = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env=os.environ | environment,
            capture_output=True,
            text=True,
            check=True,
        )
        return found.stdout

    cpu = Path("/proc/cpuinfo")
    flags = cpu.read_text() if cpu.exists() else ""
    needs = {"Haswell": "avx2", "SkylakeX": "avx512vl", "Sandybridge": "avx", "Nehalem": "sse4_2"}
    chosen = {"OPENBLAS_CORETYPE": kernels} if needs[kernels] in flags else {}
    assert digest(**chosen) == digest(OPENBLAS_NUM_THREADS="1")
