"""Time the kernels, compare them with peers, write the results, and check the limits."""

from __future__ import annotations

import argparse
import importlib
import json
import os
from pathlib import Path
from typing import Any

import dpcore
from bench import gate, micro_suite, scaling
from bench.runner import (
    RESULTS,
    Bound,
    Row,
    machine,
    markdown,
    measure,
    measure_bound,
    origin,
    pin_to_one_cpu,
    write,
)
from dpcore._files import replace_bytes

SUITES = (
    "noise",
    "local",
    "accounting",
    "llp",
    "secure",
    "lvq",
    "federated",
    "forecast",
    "tables",
    "dask",
    "interop",
)

# Ours alone; the others compare.
OWN: dict[str, Any] = {"micro": micro_suite, "scaling": scaling}


def run(rows: list[Row]) -> list[dict[str, Any]]:
    results = []
    for row in rows:
        results.append(measure(row))
        print(f"{results[-1]['ratio']:8.3g} x  (limit {row.limit:g})  {row.name}", flush=True)
    return results


def run_bounds(bounds: list[Bound]) -> list[dict[str, Any]]:
    results = []
    for bound in bounds:
        results.append(measure_bound(bound))
        found = results[-1]["value"]
        print(f"{found:8.3g} {bound.unit}  (at most {bound.most:g})  {bound.name}", flush=True)
    return results


def run_suite(name: str, folder: Path) -> Path:
    """Measure one suite: rows on one CPU first, then those that scale over all, then bounds."""
    suite = importlib.import_module(f"bench.compare.{name}")
    cpus = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    dpcore.set_num_threads(1)
    pin_to_one_cpu()
    rows = run(suite.single_thread_rows())
    if len(cpus) > 1:
        os.sched_setaffinity(0, cpus)
        rows += run(suite.all_cpu_rows())
    dpcore.set_num_threads(None)
    bounds = run_bounds(suite.bounds()) if hasattr(suite, "bounds") else []
    payload = {"machine": machine(suite.PACKAGES), "rows": rows, "bounds": bounds}
    if hasattr(suite, "left_out"):
        payload["left_out"] = suite.left_out()
    return write(name, payload, folder)


def section(path: Path) -> str:
    """A recorded run with its heading."""
    payload = json.loads(path.read_text())
    render = {"micro": micro_suite.markdown, "scaling": scaling.markdown}.get(path.stem, markdown)
    return f"## {path.stem}\n\n{origin(payload['machine'])}\n\n{render(payload).lstrip()}"


def page(folder: Path = RESULTS) -> str:
    """All recorded runs."""
    tables = [section(path) for path in sorted(folder.glob("*.json"))]
    return (
        "# The last recorded runs\n\nSpeeds are the best of several runs that alternate, and a "
        "ratio is that of the bests; its quartiles are those of single runs, which other work on "
        "the machine blurs. Limits are checked when a suite runs.\n\n" + "\n".join(tables)
    )


def main(given: list[str] | None = None) -> int:
    names = (*OWN, *SUITES)
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("suites", nargs="*", metavar="suite", help=f"of {', '.join(names)}")
    parser.add_argument("--compare", action="store_true", help="with the comparisons with peers")
    parser.add_argument("--quick", action="store_true", help="small and short: to see that it runs")
    parser.add_argument("--out", type=Path, help="folder of the results; by default bench/results")
    asked = parser.parse_args(given)
    unknown = set(asked.suites) - set(names)
    if unknown:
        parser.error(f"there is no suite of this name; choose of {', '.join(names)}")
    chosen = asked.suites or (names if asked.compare else OWN)
    folder: Path = asked.out or RESULTS
    folder.mkdir(parents=True, exist_ok=True)
    missed = 0
    for name in chosen:
        if name in OWN:
            OWN[name].run(folder, quick=asked.quick)
        else:
            missed |= gate.check(run_suite(name, folder))
    text = page(folder)
    target = folder / "RESULTS.md" if asked.out else Path(__file__).parent / "RESULTS.md"
    replace_bytes(target, text.encode())
    print(f"written: {target.name}")
    return missed


if __name__ == "__main__":
    raise SystemExit(main())
