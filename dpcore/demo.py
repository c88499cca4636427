"""What ``dpcore demo`` shows: each part prints what it did and checks it."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

import dpcore
from dpcore.accounting.report import table

__all__ = ["run"]


def run() -> None:
    """Print the demonstration."""
    for title, part in (
        ("A private histogram of a million records", _histogram),
        ("Noise has an address: a job run again, or in parts, gives one release", _addressed),
        ("Floating-point noise gives itself away; grid noise does not", _float_attack),
        ("A budget that cannot be overspent", _budget),
        ("A million devices send a few bits each", _devices),
        ("Speed, one thread", _speed),
    ):
        print(f"\n{title}\n{'-' * len(title)}")
        for line in part():
            print(line)


def _histogram() -> Iterator[str]:
    ages = np.random.default_rng(0).gamma(6.0, 7.0, 1_000_000).astype(np.int64)
    decades = np.minimum(ages // 10, 9)
    true = np.bincount(decades, minlength=10)
    mean = np.minimum(ages, 100).mean()
    yield "age        true   epsilon 0.1   epsilon 1"
    weak, strong = (dpcore.histogram(decades, 10, epsilon=e) for e in (0.1, 1.0))
    for decade in range(10):
        name = f"{10 * decade} to {10 * decade + 9}" if decade < 9 else "90 and over"
        yield f"{name:11}{true[decade]:7} {weak[decade]:11} {strong[decade]:11}"
    private = dpcore.bounded_mean(ages, 0, 100, epsilon=0.1)
    yield f"mean age {mean:.4f}, released with epsilon 0.1: {private:.4f}"


def _addressed() -> Iterator[str]:
    noise = dpcore.Noise.from_key(bytes(range(32))).stream("visits", "week", 46)
    visits = np.arange(1_000_000)

    def part(begin: int, end: int) -> np.ndarray:
        return dpcore.laplace(  # type: ignore[no-any-return]
            visits[begin:end], epsilon=1, sensitivity=1, noise=noise, start=begin
        )

    whole = part(0, visits.size)
    pieces = np.concatenate([part(0, 17), part(17, 600_000), part(600_000, visits.size)])
    fresh = dpcore.laplace(visits, epsilon=1, sensitivity=1)
    yield f"three chunks equal the whole: {np.array_equal(whole, pieces)}"
    yield f"a release without a named stream equals it: {np.array_equal(whole, fresh)}"


def _budget() -> Iterator[str]:
    decades = np.random.default_rng(2).integers(0, 10, 10_000)
    with tempfile.TemporaryDirectory() as folder:
        with dpcore.Ledger(Path(folder) / "study.sqlite", epsilon=1.0) as ledger:
            dpcore.histogram(decades, 10, epsilon=0.5)
            dpcore.bounded_mean(decades, 0, 9, epsilon=0.25)
            try:
                dpcore.histogram(decades, 10, epsilon=0.5)
                yield "a third release was made: this must not happen"
            except dpcore.BudgetExceededError:
                yield "a third release, of epsilon 0.5, was refused; the ledger says:"
        yield from table(ledger).splitlines()


def _devices() -> Iterator[str]:
    speeds = np.random.default_rng(3).normal(70, 20, 1_000_000).clip(0, 150)
    yield f"true mean {speeds.mean():.4f}"
    for name in ("laplace", "pm", "hm-tp", "optimal"):
        options = {"n_levels": 64} if name != "optimal" else {"n_outputs": 16}
        mechanism = dpcore.local.make(name, 1.0, 0, 150, **options)
        message = mechanism.pack(mechanism.encode(speeds))
        estimate = mechanism.estimate(message)
        low, high = estimate.interval(0.95)
        yield (
            f"{name:8} epsilon 1, {mechanism.n_bits} bits, {len(message):>7} bytes: "
            f"{estimate.mean:8.4f}, 95 % between {low:.4f} and {high:.4f}"
        )


def _float_attack() -> Iterator[str]:
    n = 100_000
    noisy = 1.0 - np.log1p(-np.random.default_rng(1).random(n))
    yield (
        "textbook noise on the answer 1: "
        f"{1 - _reachable_from_zero(noisy).mean():.0%} of the outputs could not come from a 0"
    )
    grid = 2.0**-10
    ours = [
        dpcore.laplace(np.full(n, a), epsilon=1, sensitivity=1, resolution=grid, dimension=n)
        for a in (0.0, 1.0)
    ]
    on_grid = all((values / grid == np.rint(values / grid)).all() for values in ours)
    yield f"dpcore: every output for either answer is a multiple of one public grid: {on_grid}"


def _reachable_from_zero(noisy: np.ndarray) -> np.ndarray:
    """Whether -log1p(-u) equals a value for some u that the generator can give (k / 2**53)."""
    nearest = np.rint(-np.expm1(-noisy) * 2.0**53)
    steps = nearest[:, None] + np.arange(-8, 9)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray((-np.log1p(-steps / 2.0**53) == noisy[:, None]).any(axis=1))


def _speed() -> Iterator[str]:
    n = 4_000_000
    x, out = np.zeros(n, np.int64), np.empty(n, np.int64)
    generator = np.random.default_rng(1)
    rows: list[tuple[str, Callable[[], object]]] = [
        ("NumPy Laplace (float, not secure)", lambda: generator.laplace(size=n)),
        (
            "dpcore Laplace (exact, secure)",
            lambda: dpcore.laplace(x, epsilon=1, sensitivity=1, out=out),
        ),
        ("NumPy normal (float, not secure)", lambda: generator.standard_normal(n)),
        (
            "dpcore Gaussian (exact, secure)",
            lambda: dpcore.gaussian(x, sigma=10, sensitivity=1, out=out),
        ),
    ]
    dpcore.set_num_threads(1)
    for name, call in rows:
        best = min(_seconds(call) for _ in range(3))
        yield f"{name:36}{n / best / 1e6:7.0f} million samples/s"
    dpcore.set_num_threads(None)


def _seconds(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin
