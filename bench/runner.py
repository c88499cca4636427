"""Rows of a comparison: two calls timed in turn, a check of ours, limits on the ratio."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpcore._files import replace_bytes
from dpcore_ext.rng import level

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Row:
    """One comparison.

    `check` looks at what `ours` returned and gives the name of what it verified; it raises where
    the result is wrong. `work` and `peer_work` are the units each call produces.
    """

    name: str
    ours: Callable[[], Any]
    peer: Callable[[], Any]
    work: float
    peer_work: float
    unit: str
    check: Callable[[Any], str]
    limit: float
    stretch: float | None = None
    repeats: int = 15


@dataclass(frozen=True)
class Bound:
    """A quantity of ours that must not exceed a limit: seconds, bytes."""

    name: str
    measure: Callable[[], float]
    unit: str
    check: Callable[[], str]
    most: float


def measure_bound(bound: Bound) -> dict[str, Any]:
    checked = bound.check()
    return {
        "name": bound.name,
        "unit": bound.unit,
        "value": bound.measure(),
        "most": bound.most,
        "checked": checked,
    }


def seconds(call: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def measure(row: Row) -> dict[str, Any]:
    """Alternate the two calls; the ratio of the bests, and the quartiles of the ratios in turn."""
    checked = row.check(row.ours())
    row.peer()
    times = [(seconds(row.ours), seconds(row.peer)) for _ in range(row.repeats)]
    ours, peer = (min(column) for column in zip(*times, strict=True))
    ratios = [(row.work / a) / (row.peer_work / b) for a, b in times]
    low, middle, high = statistics.quantiles(ratios, n=4)
    return {
        "name": row.name,
        "unit": row.unit,
        "ours": row.work / ours,
        "peer": row.peer_work / peer,
        "ratio": (row.work / ours) / (row.peer_work / peer),
        "ratio_quartiles": [low, middle, high],
        "limit": row.limit,
        "stretch": row.stretch,
        "checked": checked,
    }


def machine(packages: tuple[str, ...]) -> dict[str, Any]:
    """What a reader needs to know to judge the numbers."""
    cpu = platform.processor()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [
            line.split(":")[1] for line in info.read_text().splitlines() if "model name" in line
        ]
        cpu = names[0].strip() if names else cpu
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    return {
        "cpu": cpu,
        "cpus": os.cpu_count(),
        "level": level(),
        "python": platform.python_version(),
        "commit": commit.stdout.strip(),
        "packages": {name: importlib.metadata.version(name) for name in packages},
    }


def pin_to_one_cpu() -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def write(name: str, payload: dict[str, Any], folder: Path = RESULTS) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    write_json(path, payload)
    return path


def write_json(path: Path, content: Any) -> None:
    """As a whole: tests may read what a run replaces."""
    replace_bytes(path, f"{json.dumps(content, indent=1)}\n".encode())


def origin(here: dict[str, Any]) -> str:
    """The machine and versions of a recorded run, as a line."""
    packages = ", ".join(f"{name} {version}" for name, version in here["packages"].items())
    return (
        f"{here['cpu']}, {here['cpus']} CPUs, SIMD level {here['level']}, Python {here['python']}, "
        f"{packages}."
    )


def markdown(payload: dict[str, Any]) -> str:
    """A recorded run as a table."""
    lines = [*(f"Left out: {text}" for text in payload.get("left_out", [])), ""]
    if payload["rows"]:
        lines += [
            "| comparison | dpcore | other | unit | ratio (quartiles) | limit | stretch "
            "| checked |",
            "|---|---|---|---|---|---|---|---|",
        ]
    for row in payload["rows"]:
        low, _, high = row["ratio_quartiles"]
        stretch = "" if row["stretch"] is None else f"{row['stretch']:g}"
        lines.append(
            f"| {row['name']} | {row['ours']:.4g} | {row['peer']:.4g} | {row['unit']} "
            f"| **{row['ratio']:.3g}** ({low:.3g} to {high:.3g}) | {row['limit']:g} | {stretch} "
            f"| {row['checked']} |"
        )
    bounds = payload.get("bounds", [])
    if bounds:
        lines += ["", "| quantity | measured | at most | unit | checked |", "|---|---|---|---|---|"]
    for bound in bounds:
        lines.append(
            f"| {bound['name']} | **{bound['value']:.3g}** | {bound['most']:g} | {bound['unit']} "
            f"| {bound['checked']} |"
        )
    return "\n".join(lines) + "\n"
