"""``python -m bench.repro.llp --data DIR``: run, write bench/results/llp, say which bars hold."""

from __future__ import annotations

import argparse
import json
import shutil
from functools import partial
from pathlib import Path
from typing import Any

from bench.repro.llp import reasons, report
from bench.repro.llp.data import find, load
from bench.repro.llp.run import run, study_of
from bench.repro.resume import Parts, fingerprint
from bench.runner import RESULTS, machine, write_json
from dpcore._files import replace_bytes

FOLDER = RESULTS / "llp"


def main(given: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench.repro.llp", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="a directory with .npz files")
    parser.add_argument("--quick", action="store_true", help="fewer folds, nodes and draws")
    parser.add_argument("--only", help="run this file (its stem), keep the other recorded results")
    parser.add_argument("--out", type=Path, default=None, help=f"by default {FOLDER.name}")
    arguments = parser.parse_args(given)
    out: Path = arguments.out or (FOLDER.with_name("llp-quick") if arguments.quick else FOLDER)
    out.mkdir(parents=True, exist_ok=True)
    recorded = out / "results.json"
    cities: dict[str, Any] = {}
    if arguments.only and recorded.exists():
        cities = json.loads(recorded.read_text())["cities"]
    paths = [p for p in find(arguments.data) if arguments.only in (None, p.stem)]
    if not paths:
        parser.error("the 'data' directory holds no .npz file with count, latlon, step_minutes")
    for path in paths:
        study = study_of(load(path, 3 if arguments.quick else 6), quick=arguments.quick)
        label = f"{arguments.quick} {fingerprint(study.city.series)}"
        parts = Parts(out / "parts" / path.stem, label)
        cities[path.stem] = run(study, parts, quick=arguments.quick)
        cities[path.stem]["reasons"] = parts(
            f"{path.stem}, reasons", partial(reasons.check, study, quick=arguments.quick)
        )
        cities[path.stem]["seconds"] = round(parts.seconds, 1)
    results = {
        "machine": machine(("numpy", "scikit-learn")),
        "quick": arguments.quick,
        "cities": dict(sorted(cities.items())),
    }
    write_json(recorded, results)
    replace_bytes(out / "README.md", report.markdown(results).encode())
    report.plots(results, out)
    shutil.rmtree(out / "parts")
    return verdict(results)


def verdict(results: dict[str, Any]) -> int:
    """Print every bar; 1 if one does not hold, or a full run left the recorded numbers."""
    missed = 0
    for city, name, gap, limit in report.check(results):
        missed += gap > limit
        print(f"{'holds ' if gap <= limit else 'MISSED'} {gap:6.2f} <= {limit:g}  {city}: {name}")
    changed = [] if results["quick"] else report.drift(results)
    for line in changed:
        print(f"changed: {line}")
    if results["quick"]:
        print("a quick run: bars are indicative and not judged")
        return 0
    return 1 if missed or changed else 0


if __name__ == "__main__":
    raise SystemExit(main())
