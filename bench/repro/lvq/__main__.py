"""Make Table 1 again: ``python -m bench.repro.lvq --data DIR [--quick]``."""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path

from bench.repro.lvq.cells import BLOCKS, COLUMNS, MODELS, Cell, Store, all_cells, run_cell
from bench.repro.lvq.data import DATASETS, load, source_of, what_is_missing
from bench.repro.lvq.report import bars, write_table
from bench.runner import RESULTS

EXIT_CODES = (
    "Exit code: 0 if all bars that apply hold, 1 if one fails, 2 if runs that were asked for are "
    "missing."
)


def main(arguments: list[str] | None = None) -> int:
    parser = _parser()
    asked = parser.parse_args(arguments)
    chosen = _chosen(asked)
    if not chosen:
        parser.error(_choices(asked))
    out: Path = asked.out or RESULTS / ("lvq-quick" if asked.quick else "lvq")
    store, deadline = Store(out / "runs"), time.monotonic() + asked.seconds
    to_do = [cell for cell in chosen if store.left(cell, asked.quick)]
    sources = {cell.dataset: source_of(cell.dataset, asked.data) for cell in to_do}
    absent = {name: what_is_missing(name) for name, source in sources.items() if source is None}
    for name, sentence in absent.items():
        print(f"{name}: not run: {sentence}", flush=True)
    ready = [cell for cell in to_do if cell.dataset not in absent]
    for cell in ready:
        store.refuse_other_data(cell, sources[cell.dataset])
    try:
        _run(ready, asked, store, deadline)
    finally:
        write_table(_shown(asked, store), store, out, absent, measured=bool(ready))
    lines, held = bars(chosen, store)
    for line in lines:
        print(line)
    if asked.quick:
        print("A quick run judges nothing.")
    if any(store.left(cell, asked.quick) for cell in chosen):
        return 2
    return 0 if held or asked.quick else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bench.repro.lvq", description=__doc__, epilog=EXIT_CODES)
    parser.add_argument("--data", type=Path, required=True, help="folder with the data sets")
    parser.add_argument(
        "--quick", action="store_true", help="two runs per cell, cheap cells only; judges nothing"
    )
    parser.add_argument("--out", type=Path, help="folder of the results")
    parser.add_argument("--datasets", nargs="+", choices=DATASETS, default=DATASETS)
    parser.add_argument(
        "--only", default="", help="cells whose name contains this, such as motion-ours"
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=math.inf,
        help="after that stop at the end of the run in hand; the same command goes on",
    )
    return parser


def _chosen(asked: argparse.Namespace) -> list[Cell]:
    cells = all_cells(tuple(dict.fromkeys(asked.datasets)))
    return [cell for cell in cells if asked.only in cell.name and not cell.skipped(asked.quick)]


def _choices(asked: argparse.Namespace) -> str:
    parts = (asked.datasets, BLOCKS, MODELS, COLUMNS)
    names = "-".join("{" + ",".join(part) + "}" for part in parts)
    least = "; --quick leaves out the slow ones" if asked.quick else ""
    return f"--only must be a part of the name of a cell, {names}{least}"


def _shown(asked: argparse.Namespace, store: Store) -> list[Cell]:
    """Cells of the table: of all data sets that were asked for or are recorded."""
    known = {cell.dataset for cell in all_cells() if store.read(cell)["errors"]}
    return all_cells(tuple(name for name in DATASETS if name in known.union(asked.datasets)))


def _run(cells: list[Cell], asked: argparse.Namespace, store: Store, deadline: float) -> None:
    """All runs that are left, or those that time allows."""
    data = None
    for cell in cells:
        if data is None or data.name != cell.dataset:
            data = load(cell.dataset, asked.data)
        finished = run_cell(cell, data, store, asked.quick, deadline)
        done = store.read(cell)["errors"].values()
        if done:
            mean = sum(done) / len(done)
            print(f"{cell.name}: {mean:.4f} over {len(done)} runs", flush=True)
        if not finished:
            print("Time is up; the same command goes on from here.")
            return


if __name__ == "__main__":
    raise SystemExit(main())
