"""Gradients, closed-form norms and clipped sums of the prototype learners."""

import math

import lvq_twin as twin
import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import dpcore
from dpcore.learners.lvq import kernel
from dpcore.learners.lvq.kernel import MARGIN, Model, Transfer, clipped_sums

LOGISTIC = Transfer("logistic", 10.0)
SHEAR = np.array([[1.0, 0.5], [0.0, 1.0]]) / 1.5
CODES = np.array([0, 1])
KINDS = ("euclidean", "matrix", "low rank", "diagonal")


def make(kind, n=40, d=6, n_prototypes=5, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (n, d)).astype(dtype)
    y = rng.integers(0, 3, n)
    omega = {
        "euclidean": None,
        "matrix": rng.normal(size=(d, d)),
        "low rank": rng.normal(size=(2, d)),
        "diagonal": rng.uniform(0.1, 2, d),
    }[kind]
    labels = np.arange(n_prototypes) % 3
    model = Model(rng.uniform(-1, 1, (n_prototypes, d)), labels, omega)
    return x, y, model.astype(dtype)


def flatten(sums):
    parts = [sums.prototypes.ravel()] + ([] if sums.omega is None else [sums.omega.ravel()])
    return np.concatenate(parts)


def single(omega):
    """The worked example: x = (.25, .5) of class 0 between prototypes at the corners."""
    model = Model(np.array([[0.0, 0.0], [1.0, 1.0]]), CODES, omega)
    return clipped_sums(np.array([[0.25, 0.5]]), np.array([0]), model)


def test_worked_example_of_glvq():
    sums = single(None)
    assert sums.cost == pytest.approx(-0.444444444, abs=1e-9)
    expected = [[-0.64197531, -1.28395062], [-0.74074074, -0.49382716]]
    np.testing.assert_allclose(sums.prototypes, expected, atol=1e-8)


def test_worked_example_of_gmlvq():
    sums = single(np.eye(2))
    expected = [[-0.39506173, -0.04938272], [-0.04938272, 0.39506173]]
    np.testing.assert_allclose(sums.omega, expected, atol=1e-8)
    assert np.linalg.norm(flatten(sums)) == pytest.approx(1.7805191483772786, abs=1e-12)


def test_worked_example_with_a_shear():
    sums = single(SHEAR)
    assert sums.cost == pytest.approx(-3 / 7, abs=1e-12)
    expected = [[-0.8163265306, -1.2244897959], [-0.6530612245, -0.6530612245]]
    np.testing.assert_allclose(sums.prototypes, expected, atol=1e-10)
    expected = [[-0.4285714286, 0.1224489796], [-0.0612244898, 0.3673469388]]
    np.testing.assert_allclose(sums.omega, expected, atol=1e-10)
    assert np.linalg.norm(flatten(sums)) == pytest.approx(1.8319666002, abs=1e-10)


@pytest.mark.parametrize("transfer", [Transfer(), LOGISTIC], ids=["identity", "logistic"])
@pytest.mark.parametrize("kind", KINDS)
def test_gradients_agree_with_finite_differences(kind, transfer):
    x, y, model = make(kind, n=8)
    gradient = flatten(clipped_sums(x, y, model, transfer=transfer))
    split, step = model.prototypes.size, 1e-6
    flat = model.prototypes.ravel()
    if model.omega is not None:
        flat = np.concatenate([flat, model.omega.ravel()])

    def total(values):
        omega = None if model.omega is None else values[split:].reshape(model.omega.shape)
        moved = Model(values[:split].reshape(model.prototypes.shape), model.codes, omega)
        return clipped_sums(x, y, moved, transfer=transfer).cost

    for i in range(flat.size):
        shift = np.zeros_like(flat)
        shift[i] = step
        difference = (total(flat + shift) - total(flat - shift)) / (2 * step)
        assert gradient[i] == pytest.approx(difference, abs=1e-8 * 8)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.filterwarnings("error")
def test_a_steep_transfer_function_is_a_step(dtype):
    mu = np.array([-1, -0.5, 0, 0.5, 1], dtype)
    steep = Transfer("logistic", 4e5)
    np.testing.assert_array_equal(steep.cost(mu) * 1e5, np.array([0, 0, 0.5, 1, 1], dtype))
    np.testing.assert_array_equal(steep.slope(mu), [0, 0, 1, 0, 0])
    mild = Transfer("logistic", 10.0)
    wide = mu.astype(np.float64)
    np.testing.assert_allclose(mild.cost(mu), 0.4 / (1 + np.exp(-10 * wide)), rtol=1e-6)
    np.testing.assert_allclose(mild.slope(mu), 1 / np.cosh(5 * wide) ** 2, rtol=1e-6)


def test_the_matrix_gradient_is_orthogonal_to_the_matrix():
    x, y, model = make("matrix")
    for i in range(len(x)):
        omega = clipped_sums(x[i : i + 1], y[i : i + 1], model).omega
        assert abs((omega * model.omega).sum()) < 1e-12


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("clip", [math.inf, 1.0, 0.05])
def test_sums_agree_with_explicit_gradients(kind, clip):
    x, y, model = make(kind, n=200)
    ours = clipped_sums(x, y, model, clip=clip, transfer=LOGISTIC)
    aim = clip * (1 - MARGIN["d"])
    theirs = twin.clipped_sums(
        x, y, model.prototypes, model.codes, model.omega, aim, lambda mu: float(LOGISTIC.slope(mu))
    )
    np.testing.assert_allclose(ours.prototypes, theirs[0], atol=1e-10)
    if model.omega is not None:
        np.testing.assert_allclose(ours.omega, theirs[1], atol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_closed_form_norms_equal_explicit_ones(kind, monkeypatch):
    """The squared norm that clipping sees, against the norm of the gradient written out."""
    x, y, model = make(kind, n=100)
    seen = []
    clipped = kernel._Winners.clipped

    def watch(self, squared_norm, rounding, aim):
        seen.append(np.sqrt(squared_norm))
        assert (rounding < 1e-12).all()
        return clipped(self, squared_norm, rounding, aim)

    monkeypatch.setattr(kernel._Winners, "clipped", watch)
    clipped_sums(x, y, model, clip=1.0)
    explicit = [
        twin.norm(*twin.gradient(row, label, model.prototypes, model.codes, model.omega))
        for row, label in zip(x, y, strict=True)
    ]
    np.testing.assert_allclose(seen[0], explicit, rtol=1e-12, atol=1e-12)


def test_the_norm_of_glvq_is_the_known_formula():
    x, y, model = make("euclidean", n_prototypes=3)
    for i in range(len(x)):
        g = flatten(clipped_sums(x[i : i + 1], y[i : i + 1], model))
        d = ((x[i] - model.prototypes) ** 2).sum(axis=1)
        d_p = d[y[i]]
        d_m = np.delete(d, y[i]).min()
        expected = 4 * math.sqrt(d_p * d_m) / (d_p + d_m) ** 1.5
        assert np.linalg.norm(g) == pytest.approx(expected, rel=1e-12)
        assert expected <= 2 / math.sqrt(d_p + d_m) * (1 + 1e-12)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("kind", KINDS)
def test_neighbouring_lots_differ_by_at_most_the_clip_norm(kind, dtype):
    clip = 0.1
    for seed in range(30):
        x, y, model = make(kind, n=300, seed=seed, dtype=dtype)
        with_it = flatten(clipped_sums(x, y, model, clip=clip))
        without = flatten(clipped_sums(x[1:], y[1:], model, clip=clip))
        assert np.linalg.norm(with_it - without) <= clip * (1 + 1e-12)


def test_float32_without_its_margins_would_exceed_the_clip_norm(monkeypatch):
    monkeypatch.setitem(kernel.MARGIN, "f", 0.0)
    monkeypatch.setattr(kernel, "_cancellation", lambda x, sizes: 0 * sizes.x)
    monkeypatch.setattr(kernel, "_rounding", lambda squares, _: 0 * squares)
    monkeypatch.setattr(kernel, "_unit", lambda _: 0.0)
    x, y, model = make("matrix", n=2000, dtype=np.float32)
    clip = 0.1
    excess = max(
        np.linalg.norm(flatten(clipped_sums(x[i : i + 1], y[i : i + 1], model, clip=clip)))
        for i in range(len(x))
    )
    assert clip < excess < clip * (1 + 1e-5)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("kind", KINDS)
def test_a_prototype_at_the_sample_cannot_break_the_clip_norm(kind, dtype):
    """Where differences cancel, norms are rounded up, never down."""
    x, y, model = make(kind, n=60, dtype=dtype)
    for scale in (0.0, 1e-9, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2):
        near = x[0] + scale * np.random.default_rng(1).normal(size=(5, x.shape[1]))
        moved = Model(near, model.codes, model.omega).astype(dtype)
        change = flatten(clipped_sums(x[:1], y[:1], moved, clip=0.5))
        assert np.isfinite(change).all()
        assert np.linalg.norm(change) <= 0.5


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", ["near", "far"])
def test_no_position_of_the_prototypes_breaks_the_clip_norm(kind, dtype, place):
    """Prototypes at distances of 1e-9 to 2 from the sample, or from each other far from it."""
    rng = np.random.default_rng(3)
    for _ in range(200):
        d = int(rng.integers(2, 60))
        x = rng.uniform(-1, 1, (1, d)).astype(dtype)
        base = x if place == "near" else rng.uniform(-2, 2, (1, d))
        w = base + 10.0 ** rng.uniform(-9, 0.3, (4, 1)) * rng.normal(size=(4, d))
        omega = {
            "euclidean": None,
            "matrix": 10.0 ** rng.uniform(-3, 3) * rng.normal(size=(d, d)),
            "low rank": 10.0 ** rng.uniform(-3, 3) * rng.normal(size=(int(rng.integers(1, d)), d)),
            "diagonal": rng.uniform(0, 2, d),
        }[kind]
        model = Model(np.clip(w, -2, 2), np.arange(4) % 2, omega).astype(dtype)
        clip = 10.0 ** rng.uniform(-3, 1)
        change = flatten(clipped_sums(x, np.array([0]), model, clip=clip))
        assert np.linalg.norm(change) <= clip


def test_degenerate_samples_have_no_gradient():
    model = Model(np.zeros((2, 3)), CODES, np.eye(3))
    sums = clipped_sums(np.full((1, 3), 1e-8), np.array([0]), model)
    assert not flatten(sums).any()


def test_ties_go_to_the_lowest_index():
    model = Model(np.array([[1.0], [-1.0], [2.0], [-2.0]]), np.array([0, 0, 1, 1]))
    sums = clipped_sums(np.zeros((1, 1)), np.array([0]), model)
    assert sums.prototypes[0] != 0
    assert sums.prototypes[2] != 0
    assert not sums.prototypes[[1, 3]].any()


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_lot_sums_to_zero(kind):
    x, y, model = make(kind)
    sums = clipped_sums(x[:0], y[:0], model, clip=0.1)
    assert not flatten(sums).any()
    assert sums.cost == 0


def test_chunks_do_not_change_the_sums():
    x, y, model = make("matrix", n=5000)
    whole = flatten(clipped_sums(x, y, model, clip=0.3))
    parts = sum(
        flatten(clipped_sums(x[i : i + 617], y[i : i + 617], model, clip=0.3))
        for i in range(0, 5000, 617)
    )
    np.testing.assert_allclose(whole, parts, atol=1e-10)


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
        found.append(flatten(clipped_sums(x, y, model, clip=0.1)).tobytes())
    assert found[0] == found[1] == found[2]


@pytest.mark.slow
def test_a_large_lot_in_one_call():
    """10**5 x 784 x 10: the work space is that of one chunk, far below one gradient per sample."""
    import tracemalloc

    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (100_000, 784)).astype(np.float32)
    y = rng.integers(0, 10, 100_000)
    model = Model(rng.uniform(-1, 1, (10, 784)), np.arange(10), rng.normal(size=(20, 784)))
    tracemalloc.start()
    sums = clipped_sums(x, y, model.astype(np.float32), clip=0.1, transfer=LOGISTIC)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert np.isfinite(flatten(sums)).all()
    assert peak < 64 * 2**20
