"""``python -m bench.repro.ldp --data DIR``: run, write bench/results/ldp, judge the ordering."""

from __future__ import annotations

import argparse
from pathlib import Path

from bench.repro.ldp import report
from bench.repro.ldp.data import load
from bench.repro.ldp.run import run
from bench.repro.resume import Parts, fingerprint
from bench.runner import RESULTS, machine, write_json
from dpcore._files import replace_bytes

FOLDER = RESULTS / "ldp"


def main(given: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench.repro.ldp", description=__doc__)
    parser.add_argument("--data", type=Path, help="searched for Adult and WISDM")
    parser.add_argument("--quick", action="store_true", help="two splits, two epsilons")
    parser.add_argument("--out", type=Path, default=None, help=f"by default {FOLDER.name}")
    arguments = parser.parse_args(given)
    out: Path = arguments.out or (FOLDER.with_name("ldp-quick") if arguments.quick else FOLDER)
    out.mkdir(parents=True, exist_ok=True)
    loaded = load(arguments.data)
    label = f"{arguments.quick} {fingerprint(*(array for task in loaded for array in task.arrays))}"
    parts = Parts(out / "parts", label)
    tasks = {task.name: run(task, parts, quick=arguments.quick) for task in loaded}
    results = {
        "machine": machine(("numpy",)),
        "quick": arguments.quick,
        "seconds": round(parts.seconds, 1),
        "tasks": tasks,
    }
    write_json(out / "results.json", results)
    replace_bytes(out / "README.md", report.markdown(results).encode())
    report.plots(results, out)
    parts.finish()
    for row in report.compare(results):
        print(f"{row['verdict']:9s} {100 * row['difference']:+7.2f} %  {row['claim']}")
    changed = [] if arguments.quick else report.drift(results)
    for line in changed:
        print(f"changed: {line}")
    return 1 if changed else 0


if __name__ == "__main__":
    raise SystemExit(main())
