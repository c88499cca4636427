"""The audit of everything that dpcore ships: what ``dpcore audit`` runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

import dpcore
from dpcore import local
from dpcore.audit.mechanisms import mechanism
from dpcore.audit.result import Audit
from dpcore.noise import Noise
from dpcore.proportions import release_label_counts

__all__ = ["plot", "run", "table"]

Job = Callable[[int], Audit]

_DELTA = 1e-5
_SLOW = 60  # a call of an aggregate takes as long as so many runs of a batch
_WEAK = 0.3  # a bound below this part of the claim says little


def jobs(noise: Noise | None = None) -> list[tuple[str, Job]]:
    """Every shipped mechanism by its name, as a function of the number of trials.

    Losses differ, so that small, middling and large ones are covered.
    """
    source = Noise() if noise is None else noise
    return [*_local(source), *_central(source), *_label_counts(source), *_aggregates(source)]


def run(
    trials: int = 300_000, noise: Noise | None = None
) -> Iterator[tuple[str, Callable[[], Audit]]]:
    """Names, and what to call for the audit of each: so that progress can be shown.

    Examples
    --------
    >>> names = [name for name, _ in run(10_000)]
    >>> "local hm-j" in names and "gaussian" in names
    True
    """
    for name, job in jobs(noise):
        yield name, partial(job, trials)


def _local(noise: Noise) -> Iterator[tuple[str, Job]]:
    schema: list[Any] = [
        local.Numeric("a", 0, 1),
        local.Numeric("b", -5, 5),
        local.Categorical("c", 4),
        local.Categorical("d", 40),
    ]
    others: list[tuple[str, Any]] = [
        ("duchi, small loss", local.Duchi(0.25)),
        ("hm-j, large loss", local.HybridJoint(4.0, 0.0, 100.0)),
        ("grr", local.GRR(1.0, 8)),
        ("oue", local.OUE(1.0, 16)),
        ("duchi-multi", local.DuchiMulti(1.0, 4)),
        ("tuple", local.Tuple(schema, 2.0)),
        ("tuple, 2 of 4", local.Tuple(schema, 3.0, k=2)),
        ("split-budget", local.SplitBudget(schema[:3], 2.0)),
    ]
    for name, m in [*((name, local.make(name, 1.0)) for name in local.NAMES), *others]:
        yield f"local {name}", partial(_audit_local, m, noise, f"local {name}")


def _audit_local(m: Any, noise: Noise, name: str, trials: int) -> Audit:
    return mechanism(m, trials=trials, noise=noise, name=name)


def _central(noise: Noise) -> Iterator[tuple[str, Job]]:
    paid = noise.for_ledger(prepaid=True)
    whole, floats = [[0, 0], [1, 0], [0, 1]], [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]
    options: dict[str, Any] = {"batch": True}

    def laplace(x: Any) -> Any:
        return dpcore.laplace(x, epsilon=1.0, sensitivity=1.0, noise=paid)

    sigma = dpcore.gaussian_sigma(1.0, _DELTA)

    def gaussian(x: Any) -> Any:
        return dpcore.gaussian(x, sigma=sigma, sensitivity=1.0, noise=paid)

    # Rounding to the grid moves floats by up to a thousandth of the sensitivity.
    for name, release, inputs, claim in (
        ("laplace", laplace, whole, {"epsilon": 1.0}),
        ("laplace, floats", laplace, floats, {"epsilon": 1.0}),
        ("gaussian", gaussian, whole, {"mu": 1 / sigma, "delta": _DELTA}),
        ("gaussian, floats", gaussian, floats, {"mu": 1.001 / sigma, "delta": _DELTA}),
    ):
        yield name, partial(_audit_release, release, inputs, name, {**claim, **options})


def _label_counts(noise: Noise) -> Iterator[tuple[str, Job]]:
    changed = {"replace": [[3, 2, 1], [2, 3, 1], [3, 1, 2]], "add-remove": [[3, 2], [3, 3]]}
    for adjacency, inputs in changed.items():
        call = partial(_release_label_counts, adjacency, noise.for_ledger(prepaid=True))
        name = f"label counts, {adjacency}"
        yield name, partial(_audit_release, call, inputs, name, {"epsilon": 1.0, "batch": True})


def _release_label_counts(adjacency: str, noise: Noise, counts: Any) -> Any:
    """Every run is a batch of readings of its own; sizes are public."""
    sizes = np.full(len(counts), 6)
    message, _ = release_label_counts(
        counts, epsilon=1.0, adjacency=adjacency, sizes=sizes, noise=noise
    )
    return message.counts


def _aggregates(noise: Noise) -> Iterator[tuple[str, Job]]:
    paid = noise.for_ledger(prepaid=True)
    changed = {"replace": [[0, 1, 1], [0, 1, 0]], "add-remove": [[0, 1], [0, 1, 1]]}
    for adjacency, inputs in changed.items():
        settings: dict[str, Any] = {"epsilon": 2.0, "adjacency": adjacency, "noise": paid}
        bounds = {"lower": 0, "upper": 1}
        releases: list[tuple[Any, dict[str, Any]]] = [
            (dpcore.histogram, {"n_bins": 2}),
            (dpcore.bounded_sum, bounds),
            (dpcore.bounded_mean, bounds),
        ]
        for release, public in releases:
            name = f"{release.__name__}, {adjacency}"
            call = partial(release, **settings, **public)
            yield name, partial(_audit_release, call, inputs, name, {"epsilon": 2.0})


def _audit_release(
    release: Callable[[Any], Any],
    inputs: Sequence[Any],
    name: str,
    options: dict[str, Any],
    trials: int,
) -> Audit:
    count = trials if options.get("batch") else max(1000, trials // _SLOW)
    return mechanism(release, inputs, trials=count, name=name, **options)


def table(audits: Sequence[Audit]) -> str:
    """Claimed against observed, one line each."""
    width = max(len(audit.mechanism) for audit in audits)
    lines = [f"{'mechanism':{width}}  claimed    delta  at least    trials  verdict"]
    for audit in audits:
        delta = f"{audit.delta:.0e}" if audit.delta else "0"
        verdict = "no leak found" if audit.passed else f"FLAGGED: {audit.worst}"
        if audit.passed and audit.lower_bound < _WEAK * audit.epsilon:
            verdict += " (a weak test: the bound is far below the claim)"
        lines.append(
            f"{audit.mechanism:{width}}  {audit.epsilon:7.4f}  {delta:>7}  "
            f"{audit.lower_bound:8.4f}  {audit.trials:8}  {verdict}"
        )
    return "\n".join(lines)


def plot(audits: Sequence[Audit], path: str) -> None:
    """A picture of the table; needs matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError("A plot needs matplotlib: pip install 'dpcore[report]'.") from None
    figure = Figure(figsize=(8, 1 + 0.28 * len(audits)), layout="constrained")
    axes = figure.add_subplot()
    places = range(len(audits), 0, -1)
    for place, audit in zip(places, audits, strict=True):
        colour = "tab:blue" if audit.passed else "tab:red"
        axes.barh(place, audit.lower_bound, height=0.6, color=colour)
        axes.plot([audit.epsilon] * 2, [place - 0.4, place + 0.4], color="black", linewidth=2)
    axes.set_yticks(list(places), [audit.mechanism for audit in audits])
    axes.set_xlabel("epsilon: observed at least (bar), claimed (line)")
    figure.savefig(path)
