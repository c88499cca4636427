"""What all systems rest on: exact noise with an address, and a budget that holds."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np

import dpcore
from dpcore.accounting import Privacy
from dpcore.demo.section import Context, Quality, Section

__all__ = ["run"]

_CODE = """\
with dpcore.Ledger("study.sqlite", epsilon=1.0):
    counts = dpcore.histogram(decades, 10, epsilon=0.5)
    mean = dpcore.bounded_mean(ages, 0, 100, epsilon=0.1)"""


def run(context: Context) -> Section:
    section = Section(
        "basics",
        "Exact noise and a budget that holds",
        "All systems below draw their noise from the same place: integers from exact tables, keyed "
        "by the operating system, each element at an address of its own; and a release reserves "
        "its cost in a ledger before any noise is drawn.",
        _CODE,
    )
    n = 100_000 if context.quick else 1_000_000
    ages = np.random.default_rng(0).gamma(6.0, 7.0, n).astype(np.int64)
    decades = np.minimum(ages // 10, 9)
    true = np.bincount(decades, minlength=10)
    with context.ledger("basics", 1.0) as ledger:
        context.step(1, 5, "a histogram")
        counts = dpcore.histogram(decades, 10, epsilon=0.5)
        mean = dpcore.bounded_mean(ages, 0, 100, epsilon=0.1)
        try:
            dpcore.histogram(decades, 10, epsilon=0.5)
            section.facts.append("A release beyond the budget was made: this must not happen.")
        except dpcore.BudgetExceededError:
            section.facts.append(
                "A second histogram of epsilon 0.5 was refused: 0.4 of the budget of 1 is left."
            )
    section.charge(
        ledger,
        Privacy.of(
            [entry.event for entry in ledger.entries],
            not_covered=(
                "the number of records, and how long it took",
                "several records of one person: losses add up",
                "releases made outside of the ledger",
            ),
        ),
    )
    section.quality.append(
        Quality(
            f"largest error of a count (of {n:,})",
            0.0,
            float(np.abs(counts - true).max()),
            float(np.abs(n / 10 - true).max()),
            "all decades alike",
            higher_is_better=False,
            form="{:.0f}",
        )
    )
    section.facts.append(
        f"Mean age {np.minimum(ages, 100).mean():.3f}, released at epsilon 0.1: {mean:.3f}."
    )
    context.step(2, 5, "addresses")
    section.facts += _addressed(n)
    context.step(3, 5, "floating-point noise")
    section.facts += _float_attack()
    context.step(4, 5, "speed")
    section.output = "\n".join(_speed(n * 4))
    return section


def _addressed(n: int) -> Iterator[str]:
    noise = dpcore.Noise.from_key(bytes(range(32))).stream("visits", "week", 46)
    visits = np.arange(n)

    def part(begin: int, end: int) -> np.ndarray:
        return dpcore.laplace(  # type: ignore[no-any-return]
            visits[begin:end], epsilon=1, sensitivity=1, noise=noise, start=begin
        )

    whole = part(0, n)
    pieces = np.concatenate([part(0, 17), part(17, 3 * n // 5), part(3 * n // 5, n)])
    same = np.array_equal(whole, pieces)
    yield (
        f"A release made in three chunks {'equals' if same else 'DIFFERS from'} the one made at "
        "once: a job that is run again, or on many workers, makes one release."
    )


def _float_attack() -> Iterator[str]:
    n = 100_000
    noisy = 1.0 - np.log1p(-np.random.default_rng(1).random(n))
    share = 1 - _reachable_from_zero(noisy).mean()
    grid = 2.0**-10
    ours = [
        dpcore.laplace(np.full(n, a), epsilon=1, sensitivity=1, resolution=grid, dimension=n)
        for a in (0.0, 1.0)
    ]
    on_grid = all((values / grid == np.rint(values / grid)).all() for values in ours)
    yield (
        f"Textbook floating-point noise gives itself away: {share:.0%} of its outputs for the "
        "answer 1 could not have come from the answer 0. Every output of dpcore, for either, is a "
        f"multiple of one public grid: {'yes' if on_grid else 'NO'}."
    )


def _reachable_from_zero(noisy: np.ndarray) -> np.ndarray:
    """Whether -log1p(-u) equals a value for some u that the generator can give (k / 2**53)."""
    nearest = np.rint(-np.expm1(-noisy) * 2.0**53)
    steps = nearest[:, None] + np.arange(-8, 9)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray((-np.log1p(-steps / 2.0**53) == noisy[:, None]).any(axis=1))


def _speed(n: int) -> Iterator[str]:
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
    threads = dpcore.get_num_threads()
    dpcore.set_num_threads(1)
    yield "One thread, million samples per second, here and now:"
    for name, call in rows:
        best = min(_seconds(call) for _ in range(3))
        yield f"{name:36}{n / best / 1e6:7.0f}"
    dpcore.set_num_threads(threads)


def _seconds(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin
