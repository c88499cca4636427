"""Lots that differ in one record: clipped sums within the clip norm, whatever rounding does."""

import numpy as np
import pytest

from dpcore.learners.lvq.kernel import Model, clipped_sums

CLIP = 0.01
# Products of the core change their order of summation at some of these numbers of rows.
SIZES = (1, 120, 900, 2047)
SHAPES = [
    ("ones", 100, 90),
    ("ones", 200, 200),
    ("random", 784, 60),
    ("weights", 100, 0),
    (None, 784, 0),
]


def omega_of(kind, d, rank, generator):
    if kind is None:
        return None
    if kind == "weights":
        return np.abs(generator.normal(size=d))
    omega = generator.normal(size=(rank, d))
    if kind == "ones":
        omega = 1 + 0.01 * omega
    return omega * np.sqrt(d) / np.linalg.norm(omega)


def distance(x, codes, model):
    """Between the sums with and without the last row, in clip norms."""
    with_it, without = (clipped_sums(x[:n], codes[:n], model, clip=CLIP) for n in (None, -1))
    squares = np.square(with_it.prototypes - without.prototypes).sum()
    if with_it.omega is not None:
        squares += np.square(with_it.omega - without.omega).sum()
    return np.sqrt(squares) / CLIP


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("kind", "d", "rank"), SHAPES)
@pytest.mark.parametrize("spread", [1e-4, 1e-2, 1.0])
def test_prototypes_that_are_close_and_far_from_the_origin(dtype, kind, d, rank, spread):
    generator = np.random.default_rng(0)
    step = spread / np.sqrt(d)
    base = 0.97 + generator.uniform(-0.03, 0.03, d)
    prototypes = base + step * generator.normal(size=(4, d)) * [[1], [1], [2], [3]]
    model = Model(prototypes, np.arange(4), omega_of(kind, d, rank, generator)).astype(dtype)
    equal = np.repeat(base + step * generator.normal(size=(1, d)), max(SIZES) + 1, axis=0)
    other = base + step * generator.normal(size=equal.shape)
    labels = generator.integers(0, 4, len(other))
    for n in SIZES:
        assert distance(equal[: n + 1].astype(dtype), np.zeros(n + 1, int), model) <= 1
    assert distance(other.astype(dtype), labels, model) <= 1


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("kind", "d", "rank"), SHAPES)
def test_records_on_a_prototype_or_between_two(dtype, kind, d, rank):
    """Ties are broken by each record alone: rounding would move all equal records at once."""
    generator = np.random.default_rng(1)
    prototypes = generator.uniform(-1, 1, (5, d))
    prototypes[2] = prototypes[1]
    middle = prototypes[:2].mean(axis=0)
    prototypes[3] = 2 * middle - prototypes[0]
    omega = omega_of(kind, d, rank, generator)
    model = Model(prototypes, np.array([0, 1, 1, 1, 0]), omega).astype(dtype)
    near = prototypes[0] + 1e-3 * generator.normal(size=d) / np.sqrt(d)
    for record in (prototypes[0], near, middle):
        for n in SIZES:
            x = np.repeat(record[None], n + 1, axis=0).astype(dtype)
            assert distance(x, np.zeros(n + 1, int), model) <= 1


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_two_prototypes_on_one_record_fade_out(dtype):
    """The gradient of a degenerate record is 0, and there is no jump on the way to it."""
    at = np.zeros((1, 3), dtype)
    lengths = []
    for size in np.sqrt(np.array([0.4, 0.5, 0.75, 1.0, 2.0]) * 1e-12):
        model = Model(np.diag([size, -size, 0])[:2], np.array([0, 1])).astype(dtype)
        lengths.append(
            np.linalg.norm(clipped_sums(at, np.zeros(1, int), model, clip=1.0).prototypes)
        )
    np.testing.assert_allclose(lengths, [0, 0, 0.5, 1, 1], atol=1e-3)
