"""Each kernel alone: one million elements, one thread."""

from __future__ import annotations

import numpy as np
import pytest

import dpcore
from dpcore_ext.rng import Key, keystream

N = 1_000_000


@pytest.fixture(autouse=True)
def _one_thread():
    dpcore.set_num_threads(1)
    yield
    dpcore.set_num_threads(None)


@pytest.mark.parametrize("epsilon", [1.0, 0.1, 1e-3, 1e-9])
def test_laplace_on_integers(benchmark, epsilon):
    x, out = np.zeros(N, np.int64), np.empty(N, np.int64)
    benchmark(dpcore.laplace, x, epsilon=epsilon, sensitivity=1, out=out)
    assert abs(out.mean()) < 10 / epsilon / np.sqrt(N)


def test_laplace_on_floats(benchmark):
    x, out = np.zeros(N), np.empty(N)
    benchmark(dpcore.laplace, x, epsilon=1.0, sensitivity=1.0, out=out)
    assert abs(out.mean()) < 10 / np.sqrt(N)


@pytest.mark.parametrize("sigma", [1.0, 10.0, 1e3, 1e9])
@pytest.mark.parametrize("sampler", ["discrete_gaussian", "rounded_gaussian"])
def test_gaussian(benchmark, sampler, sigma):
    drawn = benchmark(getattr(dpcore.random, sampler), sigma, N)
    assert abs(drawn.mean()) < 8 * sigma / np.sqrt(N)


def test_gaussian_on_floats(benchmark):
    x, out = np.zeros(N), np.empty(N)
    benchmark(dpcore.gaussian, x, sigma=1.0, sensitivity=1.0, out=out)
    assert abs(out.mean()) < 8 / np.sqrt(N)


@pytest.mark.parametrize("high", [2, 1000, 2**63])
def test_integers(benchmark, high):
    drawn = benchmark(dpcore.random.integers, 0, high, N)
    assert drawn.min() >= 0


def test_bernoulli(benchmark):
    drawn = benchmark(dpcore.random.bernoulli, 1 / 3, N)
    assert abs(drawn.mean() - 1 / 3) < 8 / np.sqrt(N)


def test_keystream(benchmark):
    out = np.empty(1 << 20, np.uint8)
    benchmark(keystream, Key.from_os(), 0, 0, out)
    assert len(np.unique(out)) == 256


def test_one_release(benchmark):
    y = benchmark(dpcore.laplace, 7, epsilon=1.0, sensitivity=1)
    assert abs(int(y) - 7) < 100


def test_histogram(benchmark):
    labels = np.arange(N) % 100
    counts = benchmark(dpcore.histogram, labels, 100, epsilon=1.0)
    assert abs(int(counts.sum()) - N) < 1000
