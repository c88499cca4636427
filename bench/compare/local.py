"""Encoding numbers into codes against the same mechanisms in vectorised NumPy and in a loop."""

from __future__ import annotations

import math
import random
from bisect import bisect
from collections.abc import Callable
from typing import Any

import numpy as np

from bench.runner import Row
from dpcore import local

PACKAGES = ("numpy", "scipy")
EPSILON = 2.0
N = 8_000_000
N_LOOP = 20_000


def numpy_three_outputs(mechanism: local.Mechanism) -> Callable[[Any], Any]:
    """Inverse transform on one uniform per value, in the fewest passes NumPy allows."""
    c = mechanism.outputs[-1]
    at_zero = float(mechanism.pmf(0.0)[1])
    drop = at_zero - float(mechanism.pmf(1.0)[1])
    generator = np.random.default_rng(1)

    def encode(x: Any) -> Any:
        u = generator.random(x.size)
        zero = at_zero - drop * np.abs(x)
        down = (1 - zero - x / c) / 2
        return (u >= down).astype(np.uint8) + (u >= down + zero)

    return encode


def numpy_hm_tp(mechanism: local.Mechanism) -> Callable[[Any], Any]:
    """PM-SUB or Three-Outputs per value, the continuous output moved to the same levels."""
    from dpcore.local import continuous

    beta = continuous.hm_tp_beta(mechanism.epsilon)
    three = numpy_three_outputs(local.ThreeOutputs(mechanism.epsilon))
    growth, t = math.exp(mechanism.epsilon), math.exp(mechanism.epsilon / 3)
    half = (growth + t) / (t * (growth - 1))
    reach = half * (t + 1)
    n_levels = mechanism.n_outputs - 3
    step = 2 * reach / (n_levels - 1)
    generator = np.random.default_rng(1)

    def encode(x: Any) -> Any:
        n = x.size
        codes = three(x)
        use = np.flatnonzero(generator.random(n) < beta)
        values = x[use]
        centre = half * t * values
        inside = generator.random(use.size) < growth / (growth + t)
        u = generator.random(use.size)
        outside = u * (2 * (growth + t) / (growth - 1)) - reach
        outside = np.where(outside < centre - half, outside, outside + 2 * half)
        y = np.where(inside, centre + (2 * u - 1) * half, outside)
        position = (y + reach) / step
        level = position.astype(np.uint8)
        level += generator.random(use.size) < position - level
        codes[use] = 3 + level
        return codes

    return encode


def numpy_table(mechanism: local.Mechanism) -> Callable[[Any], Any]:
    """A row per grid point, one uniform to choose the row, one searched in its cumulative sums."""
    cumulative = np.cumsum(mechanism.table.probabilities, axis=1)
    flat = (cumulative + np.arange(cumulative.shape[0])[:, np.newaxis]).reshape(-1)
    n_intervals, n_outputs = mechanism.table.n_intervals, mechanism.n_outputs
    generator = np.random.default_rng(1)

    def encode(x: Any) -> Any:
        position = (x + 1) * (n_intervals / 2)
        row = position.astype(np.intp)
        row += generator.random(x.size) < position - row
        found = np.searchsorted(flat, row + generator.random(x.size), side="right")
        return np.minimum(found - row * n_outputs, n_outputs - 1).astype(np.uint8)

    return encode


def python_loop(mechanism: local.Mechanism) -> Callable[[Any], Any]:
    """One value at a time, written as scripts are: the law at x, then NumPy's choice."""
    probabilities, n_intervals = mechanism.table.probabilities, mechanism.table.n_intervals
    generator = np.random.default_rng(1)

    def encode(values: list[float]) -> list[int]:
        codes = []
        for x in values:
            below = min(int((x + 1) * n_intervals / 2), n_intervals - 1)
            up = (x + 1) * n_intervals / 2 - below
            law = (1 - up) * probabilities[below] + up * probabilities[below + 1]
            codes.append(generator.choice(len(law), p=law))
        return codes

    return encode


def tight_python_loop(mechanism: local.Mechanism) -> Callable[[Any], Any]:
    """One value at a time, all tables prepared, on the fastest generator Python has."""
    rows = np.cumsum(mechanism.table.probabilities, axis=1).tolist()
    n_intervals = mechanism.table.n_intervals

    def encode(values: list[float]) -> list[int]:
        codes = []
        for x in values:
            position = (x + 1) * n_intervals / 2
            row = int(position)
            row += random.random() < position - row
            codes.append(bisect(rows[row], random.random(), hi=len(rows[row]) - 1))
        return codes

    return encode


def check_mean(mechanism: local.Mechanism, x: Any) -> Callable[[Any], str]:
    """The estimate lies within six standard errors of the mean it estimates."""

    def check(codes: Any) -> str:
        estimate = mechanism.estimate(codes)
        distance = abs(estimate.mean - float(x.mean())) / estimate.standard_error
        if distance > 6:
            raise AssertionError("the estimated mean is off by more than six standard errors")
        return f"mean within {distance:.1f} standard errors"

    return check


def single_thread_rows() -> list[Row]:
    x = np.random.default_rng(0).uniform(-1, 1, N)
    few = x[:N_LOOP].tolist()
    result: list[Row] = []
    for label, mechanism, peer in (
        ("three-outputs", local.ThreeOutputs(EPSILON), numpy_three_outputs),
        ("hm-tp", local.HybridTP(EPSILON), numpy_hm_tp),
        ("optimal(16)", local.OptimalOutputs(EPSILON, n_outputs=16), numpy_table),
    ):
        vectorised = peer(mechanism)
        check = check_mean(mechanism, x)
        result.append(
            Row(
                f"encode {label} / vectorised NumPy",
                lambda m=mechanism: m.encode(x),
                lambda f=vectorised: f(x),
                N / 1e6,
                N / 1e6,
                "M values/s",
                check,
                limit=5,
                stretch=10,
            )
        )
        for kind, make, limit in (
            ("Python loop", python_loop, 1000),
            ("tight Python loop", tight_python_loop, 100),
        ):
            loop = make(mechanism)
            result.append(
                Row(
                    f"encode {label} / {kind}",
                    lambda m=mechanism: m.encode(x),
                    lambda f=loop: f(few),
                    N / 1e6,
                    N_LOOP / 1e6,
                    "M values/s",
                    check,
                    limit=limit,
                    repeats=5,
                )
            )
        codes = mechanism.encode(x)

        def server(m: local.Mechanism = mechanism, c: Any = codes) -> Any:
            message = m.pack(c)
            m.estimate(message)
            return m.unpack(message)

        result.append(
            Row(
                f"pack + unpack + estimate {label} / encode",
                server,
                lambda m=mechanism: m.encode(x),
                N / 1e6,
                N / 1e6,
                "M values/s",
                check,
                limit=1,
            )
        )
    return result


def all_cpu_rows() -> list[Row]:
    return []
