"""Exact, secure noise against NumPy's floats, OpenDP's exact samplers, OpenSSL and randomgen."""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import opendp.prelude as opendp
import randomgen
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20 as OpenSSLChaCha20
from scipy import stats

import dpcore
from bench.runner import Row
from dpcore import _laws
from dpcore_ext.rng import Key, keystream

PACKAGES = ("numpy", "opendp", "randomgen", "cryptography")
ALPHA = 1e-6
N = 4_000_000
N_OPENDP = 20_000
N_DIFFPRIVLIB = 20_000
N_THREADS = 50_000_000
KEYSTREAM_BYTES = 1 << 20
KEYSTREAM_REPEATS = 64


def goodness_of_fit(law: _laws.Digits, reach: int) -> Callable[[Any], str]:
    """Chi-square of the samples against the exact integer law, tails pooled."""

    def check(samples: Any) -> str:
        values = np.clip(np.asarray(samples), -reach, reach)
        counts = np.bincount(values + reach, minlength=2 * reach + 1)
        chances = np.array([float(law.probability(v)) for v in range(-reach, reach + 1)])
        beyond = (1 - chances.sum()) / 2
        chances[[0, -1]] += beyond
        p = stats.chisquare(counts, chances / chances.sum() * counts.sum()).pvalue
        if p < ALPHA:
            raise AssertionError(f"chi-square test failed (false alarm rate {ALPHA})")
        return f"chi-square, p = {p:.2g}"

    return check


def laplace_rows() -> list[Row]:
    law = _laws.discrete_laplace(Fraction(1))
    x, out = np.zeros(N, np.int64), np.empty(N, np.int64)
    generator = np.random.default_rng(1)
    opendp.enable_features("contrib")
    theirs = opendp.m.make_laplace(
        opendp.vector_domain(opendp.atom_domain(T="i64")), opendp.l1_distance(T="i64"), scale=1.0
    )
    few = np.zeros(N_OPENDP, np.int64)

    def ours() -> Any:
        return dpcore.laplace(x, epsilon=1, sensitivity=1, out=out)

    check = goodness_of_fit(law, 10)
    return [
        Row(
            "discrete Laplace, epsilon 1 / NumPy Generator.laplace",
            ours,
            lambda: generator.laplace(size=N),
            N / 1e6,
            N / 1e6,
            "M samples/s",
            check,
            limit=3,
            stretch=6,
        ),
        Row(
            "discrete Laplace, epsilon 1 / OpenDP discrete Laplace",
            ours,
            lambda: theirs(few),
            N / 1e6,
            N_OPENDP / 1e6,
            "M samples/s",
            check,
            limit=1000,
            stretch=2500,
            repeats=7,
        ),
    ]


def gaussian_rows() -> list[Row]:
    sigma = Fraction(10)
    discrete, rounded = _laws.discrete_gaussian(sigma), _laws.rounded_gaussian(sigma)
    assert isinstance(discrete, _laws.Digits)
    assert isinstance(rounded, _laws.Digits)
    x, out = np.zeros(N, np.int64), np.empty(N, np.int64)
    few = np.zeros(N_OPENDP, np.int64)
    generator = np.random.default_rng(1)
    theirs = opendp.m.make_gaussian(
        opendp.vector_domain(opendp.atom_domain(T="i64")), opendp.l2_distance(T="f64"), scale=10.0
    )

    def draw() -> Any:
        return dpcore.random.discrete_gaussian(10, N)

    def release() -> Any:
        return dpcore.gaussian(x, sigma=10, sensitivity=1, out=out)

    return [
        Row(
            "discrete Gaussian, sigma 10 / NumPy standard_normal",
            draw,
            lambda: generator.standard_normal(N),
            N / 1e6,
            N / 1e6,
            "M samples/s",
            goodness_of_fit(discrete, 40),
            limit=0.7,
            stretch=1.5,
        ),
        Row(
            "Gaussian release, sigma 10 / NumPy standard_normal",
            release,
            lambda: generator.standard_normal(N),
            N / 1e6,
            N / 1e6,
            "M samples/s",
            goodness_of_fit(rounded, 40),
            limit=0.7,
            stretch=1.5,
        ),
        Row(
            "discrete Gaussian, sigma 10 / OpenDP discrete Gaussian",
            draw,
            lambda: theirs(few),
            N / 1e6,
            N_OPENDP / 1e6,
            "M samples/s",
            goodness_of_fit(discrete, 40),
            limit=800,
            repeats=7,
        ),
    ]


def keystream_rows() -> list[Row]:
    secret = bytes(range(32))
    key = Key.from_bytes(secret)
    buffer = np.empty(KEYSTREAM_BYTES, np.uint8)
    zeros, sink = bytes(KEYSTREAM_BYTES), bytearray(KEYSTREAM_BYTES)

    def ours() -> Any:
        for _ in range(KEYSTREAM_REPEATS):
            keystream(key, 0, 0, buffer)
        return buffer

    def openssl() -> bytearray:
        encryptor = Cipher(OpenSSLChaCha20(secret, bytes(16)), mode=None).encryptor()
        for _ in range(KEYSTREAM_REPEATS):
            encryptor.update_into(zeros, sink)
        return sink

    def check(result: Any) -> str:
        first = Cipher(OpenSSLChaCha20(secret, bytes(16)), mode=None).encryptor().update(zeros)
        if bytes(result) != first:
            raise AssertionError("keystream differs from OpenSSL's")
        return "equal to OpenSSL, byte for byte"

    total = KEYSTREAM_BYTES * KEYSTREAM_REPEATS / 1e9
    return [
        Row(
            "ChaCha20 keystream / OpenSSL through cryptography",
            ours,
            openssl,
            total,
            total,
            "GB/s",
            check,
            limit=0.9,
            stretch=1.2,
        )
    ]


def bit_generator_rows() -> list[Row]:
    secret = bytes(range(32))
    ours = np.random.Generator(dpcore.random.ChaCha20())
    theirs = np.random.Generator(randomgen.ChaCha())
    out = np.empty(N)

    def check(_: Any) -> str:
        words = np.empty(8192, np.uint8)
        keystream(Key.from_bytes(secret), 0, 0, words)
        doubles = np.random.Generator(dpcore.random.ChaCha20(key=secret)).random(1024)
        if not np.array_equal(doubles, (words.view("<u8") >> np.uint64(11)) * 2.0**-53):
            raise AssertionError("doubles differ from the keystream")
        return "doubles equal the keystream"

    return [
        Row(
            "Generator.random on ChaCha20 / on randomgen's ChaCha",
            lambda: ours.random(out=out),
            lambda: theirs.random(out=out),
            N / 1e6,
            N / 1e6,
            "M doubles/s",
            check,
            limit=2,
        )
    ]


def all_cpu_rows() -> list[Row]:
    x, out = np.zeros(N_THREADS, np.int64), np.zeros(N_THREADS, np.int64)
    noise = dpcore.Noise.from_key(bytes(range(32))).stream("bench")

    def run(n_threads: int) -> Any:
        dpcore.set_num_threads(n_threads)
        return dpcore.laplace(x, epsilon=1, sensitivity=1, noise=noise, out=out)

    def check(result: Any) -> str:
        two = result.copy()
        if not np.array_equal(two, run(1)):
            raise AssertionError("two threads gave another array than one")
        return "equal to one thread"

    return [
        Row(
            "discrete Laplace, 50 million elements, two threads / one thread",
            lambda: run(2),
            lambda: run(1),
            N_THREADS / 1e6,
            N_THREADS / 1e6,
            "M samples/s",
            check,
            limit=1.7,
            repeats=9,
        )
    ]


def diffprivlib() -> Any:
    """Its mechanisms, or a sentence on why they are missing: it follows scikit-learn's insides."""
    try:
        version = importlib.metadata.version("diffprivlib")
    except importlib.metadata.PackageNotFoundError:
        return "diffprivlib, which is not installed."
    try:
        return importlib.import_module("diffprivlib.mechanisms")
    except ImportError:
        beside = importlib.metadata.version("scikit-learn")
        return f"diffprivlib {version}, which does not import beside scikit-learn {beside}."


def left_out() -> list[str]:
    found = diffprivlib()
    return [found] if isinstance(found, str) else []


def diffprivlib_rows() -> list[Row]:
    found = diffprivlib()
    if isinstance(found, str):
        return []
    theirs = found.Geometric(epsilon=1.0, sensitivity=1)
    x, out = np.zeros(N, np.int64), np.empty(N, np.int64)
    return [
        Row(
            "discrete Laplace, epsilon 1 / diffprivlib Geometric, value by value",
            lambda: dpcore.laplace(x, epsilon=1, sensitivity=1, out=out),
            lambda: [theirs.randomise(0) for _ in range(N_DIFFPRIVLIB)],
            N / 1e6,
            N_DIFFPRIVLIB / 1e6,
            "M samples/s",
            goodness_of_fit(_laws.discrete_laplace(Fraction(1)), 10),
            limit=1000,
            repeats=7,
        )
    ]


def single_thread_rows() -> list[Row]:
    return [
        *laplace_rows(),
        *gaussian_rows(),
        *keystream_rows(),
        *bit_generator_rows(),
        *diffprivlib_rows(),
    ]
