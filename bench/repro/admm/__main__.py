"""``python -m bench.repro.admm --data DIR``: run, write bench/results/admm, say which bars hold."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from bench.repro.admm import report
from bench.repro.admm.run import run
from bench.repro.adult import find, load
from bench.repro.resume import Parts, fingerprint
from bench.runner import RESULTS, machine, write_json
from dpcore._files import replace_bytes

FOLDER = RESULTS / "admm"


def main(given: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench.repro.admm", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="a directory that holds Adult")
    parser.add_argument("--quick", action="store_true", help="one split and the main rows")
    parser.add_argument("--out", type=Path, default=None, help=f"by default {FOLDER.name}")
    arguments = parser.parse_args(given)
    out: Path = arguments.out or (FOLDER.with_name("admm-quick") if arguments.quick else FOLDER)
    out.mkdir(parents=True, exist_ok=True)
    adult = load(find(arguments.data))
    parts = Parts(out / "parts", f"{arguments.quick} {fingerprint(adult.X, adult.y)}")
    found = run(adult, parts, quick=arguments.quick)
    found["seconds"] = round(parts.seconds, 1)
    packages = machine(("numpy", "scikit-learn"))
    results: dict[str, Any] = {"machine": packages, "quick": arguments.quick, **found}
    write_json(out / "results.json", results)
    results = json.loads((out / "results.json").read_text())
    replace_bytes(out / "README.md", report.markdown(results).encode())
    report.plots(results, out)
    parts.finish()
    missed = 0
    for name, value, least, stretch in report.bars(results):
        holds = value >= least
        missed += not holds and not stretch
        word = "holds " if holds else "MISSED"
        print(f"{word} {value:.4f} >= {least:.4f}  {name}{' (stretch)' * stretch}")
    changed = [] if arguments.quick else report.drift(results)
    for line in changed:
        print(f"changed: {line}")
    if arguments.quick:
        print("a quick run: bars are indicative and not judged")
        return 0
    return 1 if missed or changed else 0


if __name__ == "__main__":
    raise SystemExit(main())
