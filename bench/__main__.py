"""Run the comparisons, write the results, and check the limits."""

from __future__ import annotations

import argparse
import importlib
import os
from pathlib import Path
from typing import Any

import dpcore
from bench import gate
from bench.runner import (
    RESULTS,
    Bound,
    Row,
    machine,
    markdown,
    measure,
    measure_bound,
    pin_to_one_cpu,
    write,
)

SUITES = ("noise", "local", "accounting", "llp", "secure", "lvq", "federated", "forecast")


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


def run_suite(name: str) -> Path:
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
    return write(name, {"machine": machine(suite.PACKAGES), "rows": rows, "bounds": bounds})


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("suites", nargs="*", default=SUITES, help=f"of {', '.join(SUITES)}")
    paths = [run_suite(name) for name in parser.parse_args().suites]
    tables = [f"## {path.stem}\n\n{markdown(path)}" for path in sorted(RESULTS.glob("*.json"))]
    page = "# The last recorded runs\n\n" + "\n".join(tables)
    (Path(__file__).parent / "RESULTS.md").write_text(page)
    return max(gate.check(path) for path in paths)


if __name__ == "__main__":
    raise SystemExit(main())
