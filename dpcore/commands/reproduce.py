"""``dpcore reproduce ldp|llp|lstm|lvq|admm [--data DIR] [--quick] [--out DIR]``."""

from __future__ import annotations

import argparse
from pathlib import Path

from dpcore.commands import Commands, add_command, source_module

# What each looks for in --data, and the page of the experiment tells where it comes from.
_EXPERIMENTS = {
    "ldp": "Adult and WISDM, without which only made-up data are used",
    "llp": "traffic counts of junctions (.npz)",
    "lstm": "METR-LA and PEMS-BAY",
    "lvq": "MNIST, Motion and Segment",
    "admm": "Adult",
}


def add(commands: Commands) -> None:
    reproduce = add_command(
        commands, "reproduce", run, "run a paper's experiments again, its numbers beside ours"
    )
    reproduce.add_argument("experiment", choices=tuple(_EXPERIMENTS))
    reproduce.add_argument("--data", metavar="DIR", help="a directory with the data sets")
    reproduce.add_argument("--quick", action="store_true", help="two minutes at most, indicative")
    reproduce.add_argument("--out", metavar="DIR", help="where results go, and go on from")


def run(given: argparse.Namespace) -> int:
    from dpcore.errors import DPCoreError

    experiment = source_module(f"bench.repro.{given.experiment}.__main__")
    if given.data is None and given.experiment != "ldp":
        raise DPCoreError(
            f"The experiment needs --data, a directory with {_EXPERIMENTS[given.experiment]}; see "
            f"bench/repro/{given.experiment}/README.md."
        )
    if given.data is not None and not Path(given.data).is_dir():
        raise DPCoreError("The '--data' option must name a directory.")
    arguments = ["--quick"] if given.quick else []
    for name in ("data", "out"):
        value = getattr(given, name)
        arguments += [] if value is None else [f"--{name}", value]
    try:
        return int(experiment.main(arguments))
    except FileNotFoundError:
        raise DPCoreError(
            f"The 'data' directory must hold {_EXPERIMENTS[given.experiment]}; see "
            f"bench/repro/{given.experiment}/README.md."
        ) from None
