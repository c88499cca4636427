"""Estimates of a table as text, as JSON and as a picture."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from dpcore.errors import ParameterError
from dpcore.local.base import Estimate, Mechanism
from dpcore.local.schema import Categorical
from dpcore.tables.counts import Counts
from dpcore.tables.plan import TablePlan

__all__ = ["Line", "as_json", "lines", "plot", "table"]


@dataclass(frozen=True)
class Line:
    """One estimate: the mean of a column, or the share of a category."""

    column: str
    category: str | int | None
    estimate: float
    low: float
    high: float

    @property
    def name(self) -> str:
        return self.column if self.category is None else f"{self.column} = {self.category}"


def lines(plan: TablePlan, counts: Counts, confidence: float) -> list[Line]:
    """All estimates, in the order of the schema."""
    result, made = plan.estimate(counts), []
    for j, attribute in enumerate(plan.attributes):
        found = result[attribute.name]
        low, high = found.interval(confidence)
        if isinstance(found, Estimate):
            made.append(Line(attribute.name, None, found.mean, low, high))
        elif isinstance(attribute, Categorical):
            low, high = _score_interval(plan, counts, j, confidence)
            labels: Sequence[Any] = attribute.labels
            # Which columns were drawn is part of the estimate and not of the interval.
            made += [
                Line(attribute.name, label, share, min(a, share), max(b, share))
                for label, share, a, b in zip(
                    labels, found.frequencies.tolist(), low.tolist(), high.tolist(), strict=True
                )
            ]
    return made


def _score_interval(
    plan: TablePlan, counts: Counts, j: int, confidence: float
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Wilson's interval for the probability that a report supports a category, as shares.

    The variance is that of the mechanism at each end. An estimated one is too small where few
    reports support a category: at 300 rows and 60 categories, 95 % were 91 %.
    """
    oracle = plan.columns[j].randomiser
    assert not isinstance(oracle, Mechanism)
    n = counts.reported[j]
    if n == 0:
        return np.full(oracle.n_categories, -np.inf), np.full(oracle.n_categories, np.inf)
    square = NormalDist().inv_cdf((1 + confidence) / 2) ** 2 / n
    p, q, seen = float(oracle.p), float(oracle.q), counts.codes[j] / n
    middle = (seen + square / 2) / (1 + square)
    reach = np.sqrt(square * (seen * (1 - seen) + square / 4)) / (1 + square)
    return (middle - reach - q) / (p - q), (middle + reach - q) / (p - q)


def table(plan: TablePlan, counts: Counts, estimates: Sequence[Line]) -> str:
    """The estimates as lines of text."""
    rows = [("column", "estimate", "from", "to")]
    rows += [
        (line.name, f"{line.estimate:.6g}", f"{line.low:.6g}", f"{line.high:.6g}")
        for line in estimates
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    text = [
        f"{counts.n_rows} rows, epsilon {plan.epsilon:g} each, {plan.k} of {len(plan.names)} "
        "columns reported"
    ]
    for name, *numbers in rows:
        cells = (cell.rjust(width) for cell, width in zip(numbers, widths[1:], strict=True))
        text.append("  ".join([name.ljust(widths[0]), *cells]))
    return "\n".join(text)


def as_json(plan: TablePlan, counts: Counts, estimates: Sequence[Line]) -> str:
    """The estimates for programs."""
    found = [{name: _finite(value) for name, value in vars(line).items()} for line in estimates]
    facts = {"rows": counts.n_rows, "epsilon": plan.epsilon, "private": counts.private}
    return json.dumps({**facts, "estimates": found}, indent=1, allow_nan=False)


def _finite(value: Any) -> Any:
    """JSON has no infinity, which is how far the interval of a single row reaches."""
    return None if isinstance(value, float) and not isfinite(value) else value


def plot(estimates: Sequence[Line], path: str) -> None:
    """The estimates with their intervals, a panel for every column."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise ParameterError(
            "The picture needs the package matplotlib: pip install 'dpcore[report]'."
        ) from None
    columns: dict[str, list[Line]] = {}
    for line in estimates:
        columns.setdefault(line.column, []).append(line)
    heights = [0.6 + 0.25 * len(own) for own in columns.values()]
    figure = Figure(figsize=(6.4, 0.6 + sum(heights)), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(len(columns), 1, squeeze=False, height_ratios=heights)[:, 0]
    for panel, (name, own) in zip(panels, columns.items(), strict=True):
        places = range(len(own))
        middle = [line.estimate for line in own]
        reach = [
            [line.estimate - line.low for line in own],
            [line.high - line.estimate for line in own],
        ]
        panel.errorbar(middle, places, xerr=reach, fmt="o", capsize=3)
        categories = own[0].category is not None
        labels = [str(line.category) for line in own] if categories else [name]
        panel.set_yticks(places, labels)
        panel.set_ylim(len(own) - 0.5, -0.5)
        panel.set_xlabel(f"share of {name}" if categories else f"mean of {name}")
    try:
        figure.savefig(path, dpi=120)
    except (OSError, ValueError):
        raise ParameterError("The picture cannot be written there.") from None
