"""``python -m bench.repro.ldp --data DIR``: run, write bench/results/ldp, judge the ordering."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from bench.repro.ldp import report
from bench.repro.ldp.data import load
from bench.repro.ldp.run import run
from bench.runner import RESULTS, machine

FOLDER = RESULTS / "ldp"


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench.repro.ldp", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="searched for Adult and WISDM")
    parser.add_argument("--quick", action="store_true", help="two splits, two epsilons")
    parser.add_argument("--out", type=Path, default=None, help=f"by default {FOLDER.name}")
    arguments = parser.parse_args()
    out: Path = arguments.out or (FOLDER.with_name("ldp-quick") if arguments.quick else FOLDER)
    out.mkdir(parents=True, exist_ok=True)
    tasks = {}
    for task in load(arguments.data):
        print(f"{task.name} ...", flush=True)
        tasks[task.name] = run(task, quick=arguments.quick)
    results = {"machine": machine(("numpy",)), "quick": arguments.quick, "tasks": tasks}
    (out / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    (out / "README.md").write_text(report.markdown(results))
    report.plots(results, out)
    for row in report.compare(results):
        print(f"{row['verdict']:9s} {100 * row['difference']:+7.2f} %  {row['claim']}")
    changed = [] if arguments.quick else report.drift(results)
    for line in changed:
        print(f"changed: {line}")
    return 1 if changed else 0


if __name__ == "__main__":
    raise SystemExit(main())
