"""The cells of the table: which learner with which parameters, how many runs, and their errors."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dpcore
from bench.repro.lvq.data import DATASETS, Dataset
from bench.runner import write_json
from dpcore.learners import PrivateGLVQ, PrivateGMLVQ
from dpcore.learners._progress import progress_bar
from dpcore.learners.lvq import GLVQ, GMLVQ

EPSILONS = (0.75, 1.5, 2.5)
COLUMNS = (*(f"dp-{epsilon}" for epsilon in EPSILONS), "sgd", "lbfgs")
MODELS = ("glvq", "gmlvq")
BLOCKS = ("ours", "paper")
DELTA = 1e-5
N_RUNS = 25

# The paper states no learning rate. This one, in units of d / 4 for prototypes, was the best of
# 0.002, 0.01 and 0.05 for GLVQ on Segment.
PAPER_RATE = 0.01
PAPER_OMEGA_RATE = 0.001


@dataclass(frozen=True)
class Cell:
    """One entry of the table."""

    dataset: str
    block: str
    model: str
    column: str

    @property
    def name(self) -> str:
        return f"{self.dataset}-{self.block}-{self.model}-{self.column}"

    def n_runs(self, quick: bool) -> int:
        return 2 if quick else N_RUNS

    def skipped(self, quick: bool) -> bool:
        """A quick run leaves out what takes more than some seconds each."""
        if not quick:
            return False
        if self.block == "paper":
            return (self.dataset, self.model, self.column) != ("segment", "glvq", "dp-0.75")
        return self.dataset != "segment" and (self.model == "gmlvq" or self.column == "lbfgs")


def all_cells(datasets: tuple[str, ...] = DATASETS) -> list[Cell]:
    return [
        Cell(dataset, block, model, column)
        for block in BLOCKS
        for dataset in datasets
        for model in MODELS
        for column in COLUMNS
    ]


def learner(cell: Cell, data: Dataset, n_train: int, run: int, noise: dpcore.Noise | None) -> Any:
    """The estimator of a cell: our defaults, or the recipe of the paper."""
    d = data.x.shape[1]
    options: dict[str, Any] = {"bounds": data.bounds, "random_state": run}
    if cell.block == "paper":
        options |= {"transfer": "identity", "learning_rate": PAPER_RATE * d / 4}
        if cell.model == "gmlvq":
            options |= {"rank": d, "omega_norm": 1.0, "omega_learning_rate": PAPER_OMEGA_RATE}
        if cell.column != "lbfgs":
            options |= {"sampling_rate": 0.01, "n_steps": 5000}
    if not cell.column.startswith("dp-"):
        plain = {"glvq": GLVQ, "gmlvq": GMLVQ}[cell.model]
        return plain(solver=cell.column, max_iter=100, **options)
    if cell.block == "paper":
        options |= {
            "start": "laplace",
            "start_share": 0.2,
            "clip": 0.5,
            "n_records": n_train,
            "sigma_rule": "paper",
        }
    private = {"glvq": PrivateGLVQ, "gmlvq": PrivateGMLVQ}[cell.model]
    epsilon = float(cell.column.removeprefix("dp-"))
    return private(epsilon, DELTA, classes=data.classes, noise=noise, **options)


class Store:
    """Errors of finished runs, one file for each cell, replaced as a whole after every run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def read(self, cell: Cell) -> dict[str, Any]:
        path = self.folder / f"{cell.name}.json"
        if not path.exists():
            return {"errors": {}, "seconds": 0.0, "epsilon": None, "delta": None, "source": None}
        return dict(json.loads(path.read_text()))

    def write(self, cell: Cell, content: dict[str, Any]) -> None:
        write_json(self.folder / f"{cell.name}.json", content)

    def left(self, cell: Cell, quick: bool) -> list[int]:
        """The runs of a cell that are not recorded."""
        done = self.read(cell)["errors"]
        return [run for run in range(cell.n_runs(quick)) if str(run) not in done]

    def refuse_other_data(self, cell: Cell, source: str | None) -> None:
        """A cell holds errors of one source only."""
        if self.read(cell)["source"] not in (None, source):
            raise SystemExit(f"{cell.name} holds results of other data; choose another --out.")


def run_cell(cell: Cell, data: Dataset, store: Store, quick: bool, deadline: float) -> bool:
    """Do the runs that are missing; False if time ran out before the last of them."""
    store.refuse_other_data(cell, data.source)
    content = store.read(cell)
    left = store.left(cell, quick)
    for run in progress_bar(left, f"runs of {cell.name}", show=sys.stderr.isatty()):
        if time.monotonic() > deadline:
            return False
        begin = time.monotonic()
        train, test = data.split(run)
        fitted = learner(cell, data, len(train), run, None).fit(data.x[train], data.y[train])
        error = float((fitted.predict(data.x[test]) != data.y[test]).mean())
        content["errors"][str(run)] = round(error, 6)
        content["seconds"] += round(time.monotonic() - begin, 3)
        content["source"] = data.source
        if cell.column.startswith("dp-"):
            content["epsilon"], content["delta"] = fitted.privacy_.epsilon, fitted.privacy_.delta
        store.write(cell, content)
    return True
