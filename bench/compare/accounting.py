"""What a reservation and a composition cost."""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

import dpcore
from bench.runner import Bound, Row
from dpcore.accounting import Event, GaussianEvent, PureEvent, compose

PACKAGES = ("numpy", "dp-accounting")
N_RESERVATIONS = 2000
N_EVENTS = 10**6


def reservation(event: Event) -> float:
    """Median microseconds of a reservation in a file of its own."""
    with tempfile.TemporaryDirectory() as folder:
        ledger = dpcore.Ledger(Path(folder) / "bench.sqlite", epsilon=3.0, delta=1e-6)
        times = []
        for _ in range(N_RESERVATIONS):
            begin = time.perf_counter()
            ledger.charge(event)
            times.append(time.perf_counter() - begin)
        if len(ledger.entries) != N_RESERVATIONS:
            raise AssertionError("reservations were lost")
    return statistics.median(times) * 1e6


def check_refusal() -> str:
    with tempfile.TemporaryDirectory() as folder:
        ledger = dpcore.Ledger(Path(folder) / "bench.sqlite", epsilon=1.0)
        ledger.charge(PureEvent(mechanism="bench", epsilon=0.75))
        try:
            ledger.charge(PureEvent(mechanism="bench", epsilon=0.75))
        except dpcore.BudgetExceededError:
            return "a release over the budget was refused"
    raise AssertionError("a release over the budget was taken")


def events() -> list[Event]:
    """As many different pure as Gaussian ones."""
    half = N_EVENTS // 2
    pure = [PureEvent(mechanism="bench", epsilon=(i + 1) / half**2) for i in range(half)]
    return pure + [GaussianEvent(mechanism="bench", noise_multiplier=half + i) for i in range(half)]


def composition() -> float:
    listed = events()
    begin = time.perf_counter()
    compose(listed).epsilon(1e-6)
    return time.perf_counter() - begin


def check_composition() -> str:
    total = compose(events())
    if abs(total.pure - 0.5) > 1e-5 or abs(total.gaussian * N_EVENTS - 1) > 1e-3:
        raise AssertionError("the sums are wrong")
    return "sums equal their closed forms"


def bounds() -> list[Bound]:
    return [
        Bound(
            "reservation of a pure release, median",
            lambda: reservation(PureEvent(mechanism="bench", epsilon=1e-4)),
            "microseconds",
            check_refusal,
            most=200,
        ),
        Bound(
            "reservation of a Gaussian release, median",
            lambda: reservation(GaussianEvent(mechanism="bench", noise_multiplier=100.0)),
            "microseconds",
            check_refusal,
            most=200,
        ),
        Bound(
            "composition of a million different events",
            composition,
            "seconds",
            check_composition,
            most=1,
        ),
    ]


def single_thread_rows() -> list[Row]:
    return []


def all_cpu_rows() -> list[Row]:
    return []
