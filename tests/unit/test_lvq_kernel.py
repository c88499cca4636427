"""Gradients of the prototype learners, summed without clipping."""

import math

import lvq_twin as twin
import numpy as np
import pytest
from lvq_support import KINDS, LOGISTIC, flatten, make

from dpcore.learners.lvq.kernel import Model, Transfer, gradient_sums

SHEAR = np.array([[1.0, 0.5], [0.0, 1.0]]) / 1.5
CODES = np.array([0, 1])


def single(omega):
    """The worked example: x = (.25, .5) of class 0 between prototypes at the corners."""
    model = Model(np.array([[0.0, 0.0], [1.0, 1.0]]), CODES, omega)
    return gradient_sums(np.array([[0.25, 0.5]]), np.array([0]), model)


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
    gradient = flatten(gradient_sums(x, y, model, transfer=transfer))
    split, step = model.prototypes.size, 1e-6
    flat = model.prototypes.ravel()
    if model.omega is not None:
        flat = np.concatenate([flat, model.omega.ravel()])

    def total(values):
        omega = None if model.omega is None else values[split:].reshape(model.omega.shape)
        moved = Model(values[:split].reshape(model.prototypes.shape), model.codes, omega)
        return gradient_sums(x, y, moved, transfer=transfer).cost

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
        omega = gradient_sums(x[i : i + 1], y[i : i + 1], model).omega
        assert abs((omega * model.omega).sum()) < 1e-12


def test_the_norm_of_glvq_is_the_known_formula():
    x, y, model = make("euclidean", n_prototypes=3)
    for i in range(len(x)):
        g = flatten(gradient_sums(x[i : i + 1], y[i : i + 1], model))
        d = ((x[i] - model.prototypes) ** 2).sum(axis=1)
        d_p = d[y[i]]
        d_m = np.delete(d, y[i]).min()
        expected = 4 * math.sqrt(d_p * d_m) / (d_p + d_m) ** 1.5
        assert np.linalg.norm(g) == pytest.approx(expected, rel=1e-12)
        assert expected <= 2 / math.sqrt(d_p + d_m) * (1 + 1e-12)


def test_degenerate_samples_have_no_gradient():
    model = Model(np.zeros((2, 3)), CODES, np.eye(3))
    sums = gradient_sums(np.full((1, 3), 1e-8), np.array([0]), model)
    assert not flatten(sums).any()


def test_ties_go_to_the_lowest_index():
    model = Model(np.array([[1.0], [-1.0], [2.0], [-2.0]]), np.array([0, 0, 1, 1]))
    sums = gradient_sums(np.zeros((1, 1)), np.array([0]), model)
    assert sums.prototypes[0] != 0
    assert sums.prototypes[2] != 0
    assert not sums.prototypes[[1, 3]].any()


@pytest.mark.parametrize("kind", KINDS)
def test_sums_agree_with_explicit_gradients(kind):
    x, y, model = make(kind, n=200)
    ours = gradient_sums(x, y, model, transfer=LOGISTIC)
    theirs = twin.clipped_sums(
        *(x, y, model.prototypes, model.codes, model.omega, math.inf),
        lambda mu: float(LOGISTIC.slope(np.array(mu))),
    )
    np.testing.assert_allclose(ours.prototypes, theirs[0], atol=1e-10)
    if model.omega is not None:
        np.testing.assert_allclose(ours.omega, theirs[1], atol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_lot_sums_to_zero(kind):
    x, y, model = make(kind)
    sums = gradient_sums(x[:0], y[:0], model)
    assert not flatten(sums).any()
    assert sums.cost == 0


def test_chunks_do_not_change_the_sums():
    x, y, model = make("matrix", n=5000)
    whole = flatten(gradient_sums(x, y, model))
    parts = sum(
        flatten(gradient_sums(x[i : i + 617], y[i : i + 617], model)) for i in range(0, 5000, 617)
    )
    np.testing.assert_allclose(whole, parts, atol=1e-10)
