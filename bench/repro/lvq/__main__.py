"""Make Table 1 again: ``python -m bench.repro.lvq --data DIR [--quick]``."""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path

from bench.repro.lvq.cells import Store, all_cells, run_cell
from bench.repro.lvq.data import DATASETS, load
from bench.repro.lvq.report import bars, write_table
from bench.runner import RESULTS


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench.repro.lvq", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with the data sets")
    parser.add_argument("--quick", action="store_true", help="two runs per cell, cheap cells only")
    parser.add_argument("--out", type=Path, help="folder of the results")
    parser.add_argument("--datasets", nargs="+", choices=DATASETS, default=DATASETS)
    parser.add_argument("--only", default="", help="cells whose name contains this")
    parser.add_argument("--seconds", type=float, default=math.inf, help="stop, to go on later")
    asked = parser.parse_args(arguments)
    out = asked.out or RESULTS / ("lvq-quick" if asked.quick else "lvq")
    store, deadline = Store(out / "runs"), time.monotonic() + asked.seconds
    cells = [cell for cell in all_cells(tuple(asked.datasets)) if not cell.skipped(asked.quick)]
    chosen = [cell for cell in cells if asked.only in cell.name]
    finished = True
    loaded = {}
    for cell in chosen:
        if len(store.read(cell)["errors"]) >= cell.n_runs(asked.quick):
            continue
        if cell.dataset not in loaded:
            loaded = {cell.dataset: load(cell.dataset, asked.data)}
        finished = run_cell(cell, loaded[cell.dataset], store, asked.quick, deadline)
        done = store.read(cell)["errors"].values()
        if done:
            mean = sum(done) / len(done)
            print(f"{cell.name}: {mean:.4f} over {len(done)} runs", flush=True)
        if not finished:
            print("Time is up; the same command goes on from here.")
            break
    write_table(cells, store, out)
    if not finished:
        return 2
    lines, held = bars(cells, store)
    print("\n".join(lines))
    return 0 if held or asked.quick else 1


if __name__ == "__main__":
    raise SystemExit(main())
