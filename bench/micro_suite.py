"""The pytest-benchmark suite, in a process of its own, as one file of results."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.runner import machine, write_json

FOLDER = Path(__file__).parent / "micro"


def run(folder: Path, *, quick: bool = False) -> Path:
    """Run bench/micro, and write micro.json."""
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.json"
        options = ["--benchmark-max-time=0.01", "--benchmark-min-rounds=3"] if quick else []
        subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(FOLDER),
             f"--benchmark-json={report}", *options],
            check=True,
            cwd=FOLDER.parents[1],
        )  # fmt: skip
        found = json.loads(report.read_text())["benchmarks"]
    rows = [
        {"name": row["name"].removeprefix("test_")}
        | {key: row["stats"][key] for key in ("min", "median", "iqr", "rounds")}
        for row in found
    ]
    path = folder / "micro.json"
    write_json(path, {"machine": machine(("numpy",)), "benchmarks": rows})
    return path


def markdown(payload: dict[str, Any]) -> str:
    """The table of a recorded run."""
    lines = [
        "One million elements in one thread, or as the name says; microseconds.",
        "",
        "| call | least | median | spread (quartiles) | rounds |",
        "|---|---|---|---|---|",
    ]
    for row in payload["benchmarks"]:
        numbers = (f"{1e6 * row[key]:.4g}" for key in ("min", "median", "iqr"))
        lines.append(f"| {row['name']} | " + " | ".join(numbers) + f" | {row['rounds']} |")
    return "\n".join(lines) + "\n"
