"""Re-make the published table: ``python -m bench.repro.lstm --data DIR [--quick]``."""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import torch

import dpcore
from bench.repro.lstm import report, run
from bench.repro.lstm.data import DAY, SETS, SMALL, find, load, simulated_day
from bench.runner import RESULTS, machine, write_json
from dpcore._files import replace_bytes

FOLDER = RESULTS / "lstm"


def read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text()) if path.exists() else {}


def write(path: Path, content: dict[str, Any]) -> None:
    """As a whole, so that a run that is stopped loses one cell at most."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_json(path, content)


def measure(name: str, source: Path, target: Path, *, quick: bool) -> dict[str, Any]:
    """All cells of one data set that are not recorded yet."""
    city = load(name, source, quick=quick)
    done = read(target)
    done.setdefault("nodes", city.masked.shape[1])
    done.setdefault("steps", len(city.masked))
    if name == "sumo_day":
        done.setdefault("made_by", DAY)
    done.setdefault("cells", {})
    for mode, row in run.cells(name):
        if row in done["cells"].get(mode, {}):
            continue
        found = run.run_cell(city, mode, row, quick=quick)
        done["cells"].setdefault(mode, {})[row] = found
        done["machine"] = machine(("numpy", "torch"))
        done["seeds"] = run.SEEDS
        write(target, done)
        print(f"{name}, {mode}, {row}: {found['mse']:.4f} in {found['seconds']} s", flush=True)
    return done


def main(given: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench.repro.lstm", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="directory with the files")
    parser.add_argument(
        "--quick", action="store_true", help="two data sets, four weeks, three epochs"
    )
    parser.add_argument("--only", choices=tuple(SETS), help="one data set")
    parser.add_argument("--fresh", action="store_true", help="measure recorded cells again")
    parser.add_argument("--out", type=Path, help=f"by default {FOLDER.name}")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args(given)
    torch.set_num_threads(options.threads)
    dpcore.set_num_threads(options.threads)
    found = find(options.data)
    if not found:
        sys.exit("no file of a known data set was found")
    if options.quick and options.only is None:
        found = {name: path for name, path in found.items() if name not in SMALL}
    elif "sumo_day" not in found and options.only in (None, "sumo_day"):
        if importlib.util.find_spec("sumo") is None:
            print("the simulated day is left out: it needs the extra sumo", flush=True)
        else:
            found["sumo_day"] = simulated_day(Path("build/sumo_day.npz"))
    folder: Path = options.out or (FOLDER.with_name("lstm-quick") if options.quick else FOLDER)
    for name, path in found.items():
        if options.only in (None, name):
            target = folder / f"{name}.json"
            if options.fresh:
                target.unlink(missing_ok=True)
            measure(name, path, target, quick=options.quick)
    results = {name: read(folder / f"{name}.json") for name in SETS}
    results = {name: result for name, result in results.items() if result}
    replace_bytes(folder / "README.md", report.markdown(results).encode())
    report.plots(results, folder)
    return report.verdict(results, quick=options.quick)


if __name__ == "__main__":
    raise SystemExit(main())
