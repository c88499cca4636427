"""Clipped sums: what they are sums of, on which grid, and that they fit in memory."""

import math

import lvq_twin as twin
import numpy as np
import pytest
from lvq_support import KINDS, LOGISTIC, flatten, make
from threadpoolctl import threadpool_limits

import dpcore
from dpcore.learners.lvq import clipped
from dpcore.learners.lvq.clipped import MARGIN, clipped_sums, digits, to_grid
from dpcore.learners.lvq.kernel import CHUNK, Model, Transfer, gradient_sums


def explicit(x, y, model, clip=math.inf):
    """The clipped gradient of every record, written out."""
    rows = []
    for row, label in zip(x, y, strict=True):
        g_w, g_omega = twin.gradient(row, label, model.prototypes, model.codes, model.omega)
        factor = min(1, clip / twin.norm(g_w, g_omega))
        parts = [g_w.ravel()] + ([] if g_omega is None else [g_omega.ravel()])
        rows.append(factor * np.concatenate(parts))
    return np.array(rows)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("clip", [100.0, 1.0, 0.05])
def test_each_record_adds_its_clipped_gradient(kind, clip):
    """To what cutting may cost: two units of 2**-12 of the clip norm, and the grid's digits."""
    x, y, model = make(kind, n=100, d=9)
    expected = explicit(x, y, model, clip * (1 - MARGIN))
    for i, gradient in enumerate(expected):
        part = slice(i, i + 1)
        found = flatten(clipped_sums(to_grid(x[part]), y[part], model, clip=clip))
        assert np.linalg.norm(found - gradient) <= clip * 2**-11 + 1e-3 * np.linalg.norm(gradient)
    whole = flatten(clipped_sums(to_grid(x), y, model, clip=clip))
    np.testing.assert_allclose(whole, expected.sum(axis=0), atol=100 * clip * 2**-11)


@pytest.mark.parametrize("kind", KINDS)
def test_without_clipping_they_are_the_plain_sums(kind):
    x, y, model = make(kind, n=300, d=9)
    exact = flatten(clipped_sums(to_grid(x), y, model, clip=50.0, transfer=LOGISTIC))
    plain = flatten(gradient_sums(x, y, model, transfer=LOGISTIC))
    assert np.linalg.norm(exact - plain) < 0.01 * np.linalg.norm(plain) + 300 * 50 * 2**-13


@pytest.mark.parametrize("kind", KINDS)
def test_both_dtypes_give_the_same_sums(kind):
    x, y, model = make(kind, n=3000, d=9, dtype=np.float32)
    found = [
        flatten(clipped_sums(to_grid(x.astype(dtype)), y, model, clip=0.1)).tobytes()
        for dtype in (np.float32, np.float64)
    ]
    assert found[0] == found[1]


# Rows of a Hadamard matrix, with a norm of 1: what is multiplied by them keeps its digits.
SIGNS = np.array([[(-1) ** (i & j).bit_count() for j in range(8)] for i in range(8)])
OMEGAS = {
    "euclidean": None,
    "matrix": SIGNS / 8,
    "low rank": SIGNS[:2] / 4,
    "diagonal": np.array([4, 1, 1, 4, 0, 4, 1, 1]) / 16,
}


@pytest.mark.parametrize(
    ("kind", "above"), [("euclidean", 0), ("matrix", 0), ("low rank", 1e-4), ("diagonal", 1e-5)]
)
def test_closed_form_norms_are_those_of_the_gradients(kind, above, monkeypatch):
    """Before clipping, against gradients written out; never less, and more where they round up."""
    generator = np.random.default_rng(0)
    x, w = (generator.integers(-64, 65, (n, 8)) / 64 for n in (100, 5))
    model, y = Model(w, np.arange(5) % 3, OMEGAS[kind]), generator.integers(0, 3, 100)
    seen = []
    factor = clipped._factor

    def watch(most, norm):
        seen.append(norm)
        return factor(most, norm)

    monkeypatch.setattr(clipped, "_factor", watch)
    clipped_sums(to_grid(x), y, model, clip=1.0)
    ratio = seen[0] / np.linalg.norm(explicit(x, y, model), axis=1)
    assert ratio.min() > 1 - 1e-12
    assert ratio.max() < 1 + 1e-12 + above


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_grid_is_exact_and_centred(dtype):
    x = np.array([[-3, -1, -(2.0**-17), 0, 2.0**-16, 1, 9]], dtype)
    np.testing.assert_array_equal(
        to_grid(np.asfortranarray(x)), [[-(2**17), -(2**16), 0, 0, 1, 2**16, 2**17]]
    )
    assert to_grid(x).dtype == dtype
    assert to_grid(np.asfortranarray(np.zeros((3, 2)))).flags.c_contiguous
    assert [digits(d) for d in (1, 2**17, 2**17 + 1, 2**20)] == [16, 16, 15, 14]


@pytest.mark.parametrize("kind", KINDS)
def test_omega_has_no_scale(kind):
    """The gradient of a scaled Omega is the scaled one, down to the ends of what is allowed."""
    if kind == "euclidean":
        return
    x, y, model = make(kind, n=50)
    base = clipped_sums(to_grid(x), y, model, clip=1e6)
    for scale in (1e-8, 1e8):
        moved = Model(model.prototypes, model.codes, scale * model.omega)
        found = clipped_sums(to_grid(x), y, moved, clip=1e6 * max(1, 1 / scale))
        size = np.linalg.norm(base.omega)
        assert np.linalg.norm(found.omega * scale - base.omega) < 0.5 * size + 1
        assert np.isfinite(flatten(found)).all()


def test_degenerate_records_have_no_gradient():
    model = Model(np.zeros((2, 3)), np.array([0, 1]), np.eye(3))
    near = to_grid(np.full((1, 3), 1e-8))
    assert not flatten(clipped_sums(near, np.array([0]), model, clip=1.0)).any()


def test_ties_go_to_the_lowest_index():
    model = Model(np.array([[1.0], [-1.0], [2.0], [-2.0]]), np.array([0, 0, 1, 1]))
    sums = clipped_sums(np.zeros((1, 1)), np.array([0]), model, clip=1.0)
    assert sums.prototypes[0] != 0
    assert sums.prototypes[2] != 0
    assert not sums.prototypes[[1, 3]].any()


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_lot_sums_to_zero(kind):
    x, y, model = make(kind)
    assert not flatten(clipped_sums(to_grid(x[:0]), y[:0], model, clip=0.1)).any()


@pytest.fixture
def threads():
    """Chooses numbers of threads, of ours and of BLAS, and forgets them."""
    before = threadpool_limits()

    def choose(n):
        dpcore.set_num_threads(n)
        threadpool_limits(n)

    yield choose
    dpcore.set_num_threads(None)
    before.restore_original_limits()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("kind", KINDS)
def test_no_number_of_threads_changes_a_bit(kind, dtype, threads):
    x, y, model = make(kind, n=9000, d=40, dtype=dtype)
    found = []
    for n in (1, 2, 5):
        threads(n)
        found.append(flatten(clipped_sums(to_grid(x), y, model, clip=0.1)).tobytes())
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("kind", ["euclidean", "low rank"])
def test_blocks_of_chunks_are_added_up(kind, monkeypatch):
    x, y, model = make(kind, n=5 * CHUNK + 3)
    whole = flatten(clipped_sums(to_grid(x), y, model, clip=0.1))
    monkeypatch.setattr(clipped, "_BLOCK", 2 * CHUNK)
    blocks = flatten(clipped_sums(to_grid(x), y, model, clip=0.1))
    np.testing.assert_allclose(blocks, whole, rtol=1e-13)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_large_lot_in_one_call(dtype):
    """10**5 x 784 x 10: the work space is that of some chunks, far below a gradient per record."""
    import tracemalloc

    rng = np.random.default_rng(0)
    points = to_grid(rng.uniform(-1, 1, (100_000, 784)).astype(dtype))
    y = rng.integers(0, 10, 100_000)
    model = Model(rng.uniform(-1, 1, (10, 784)), np.arange(10), rng.normal(size=(20, 784)))
    tracemalloc.start()
    sums = clipped_sums(points, y, model, clip=0.1, transfer=Transfer("logistic", 10.0))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert np.isfinite(flatten(sums)).all()
    assert peak < 96 * 2**20
