"""``dpcore estimate RESULT``."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from dpcore.commands import Commands, add_command


def add(commands: Commands) -> None:
    command = add_command(
        commands, "estimate", run, "means and shares, with intervals, from a privatised table"
    )
    add_argument = command.add_argument
    add_argument("input", help="what dpcore privatize wrote: a file, a folder, or -")
    add_argument(
        "--confidence", type=float, default=0.95, metavar="C", help="of the intervals; 0.95"
    )
    add_argument("--json", action="store_true", help="print JSON instead of a table")
    add_argument("--plot", metavar="FILE", help="a picture as well; needs matplotlib")
    add_argument("--format", choices=("parquet", "csv", "arrow"), help="of the input")
    add_argument("--schema", metavar="FILE", help="the schema of a table that lost its metadata")
    add_argument("--epsilon", type=float, metavar="E", help="with --schema, if not part of it")
    add_argument("--values", action="store_true", help="with --schema: values instead of codes")


def run(given: argparse.Namespace) -> None:
    from dpcore.commands._progress import Meter
    from dpcore.commands.privatize import _need_pyarrow
    from dpcore.errors import ParameterError

    _need_pyarrow()
    from dpcore.tables import TablePlan, report
    from dpcore.tables.files import kind_of, tables_in
    from dpcore.tables.run import count_file

    plan, total = None, None
    if given.schema is not None:
        plan = TablePlan.from_toml(given.schema, epsilon=given.epsilon)
    paths = [given.input]
    if given.input != "-" and os.path.isdir(given.input):
        paths = [str(Path(given.input, name)) for name in tables_in(Path(given.input))]
    meter = Meter()
    for path in paths:
        meter.file(Path(path).name)
        plan, counts = count_file(path, kind_of(path, given.format), plan, given.values, meter)
        total = counts if total is None else total + counts
    meter.finish()
    if plan is None or total is None or total.n_rows == 0:
        raise ParameterError("The input must hold at least one row.")
    lines = report.lines(plan, total, given.confidence)
    _print(report.as_json(plan, total, lines) if given.json else report.table(plan, total, lines))
    if not total.private:
        print("dpcore: made with insecure noise, which protects nobody", file=sys.stderr)
    if given.plot is not None:
        report.plot(lines, given.plot)


def _print(text: str) -> None:
    from dpcore.tables.run import OutputError

    if sys.stdout is None:
        raise OutputError("The output cannot be written: it is closed.")
    try:
        print(text, flush=True)
    except OSError as error:
        raise OutputError(f"The output cannot be written ({error.strerror}).") from None
