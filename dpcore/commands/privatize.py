"""``dpcore privatize INPUT --schema FILE -o OUTPUT``."""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpcore.commands import Commands, add_command

if TYPE_CHECKING:
    from dpcore.noise import Noise
    from dpcore.tables.keys import Usage

_TEXT = """
The noise of a row is a function of the key, the stream and the number of the row. A job that was
killed is simply run again: finished files are left as they are, and the others come out the same,
so nothing is released twice. What a stream was used for is recorded beside the key; other data
under the same stream are refused. The output needs nothing else to be estimated from; the key must
stay secret, because whoever has it can take the noise off.
"""


def add(commands: Commands) -> None:
    command = add_command(
        commands, "privatize", run, "randomise every row of a table, under local privacy"
    )
    command.epilog = _TEXT
    add_argument = command.add_argument
    add_argument("input", help="a table, a folder of tables, or - for a pipe")
    add_argument("--schema", required=True, metavar="FILE", help="columns, in TOML or JSON")
    add_argument("-o", "--output", required=True, metavar="PATH", help="file, folder or -")
    add_argument("--epsilon", type=float, metavar="E", help="privacy loss of a row")
    add_argument("--mechanism", metavar="NAME", help="for numbers; hm-j by default")
    add_argument("--k", type=int, metavar="K", help="columns that each row reports")
    add_argument(
        "--on-null",
        choices=("error", "drop", "category"),
        help="refuse nulls (the default), drop their rows, or count them as a category",
    )
    add_argument(
        "--extra-columns",
        choices=("error", "drop"),
        default="error",
        help="refuse (the default) or leave out columns that are not in the schema",
    )
    add_argument(
        "--key",
        metavar="FILE",
        help="secret key, made if it is not there; by default INPUT.dpcore-key, and for pipes a "
        "key that is used once",
    )
    add_argument(
        "--stream", metavar="NAME", help="name of the data set; by default that of the input"
    )
    add_argument("--ledger", metavar="FILE", help="charge the budget in this file")
    add_argument("--budget", type=float, metavar="E", help="epsilon of a ledger that is made")
    add_argument(
        "--repeated",
        action="store_true",
        help="the files of a folder are about the same people: charge each of them",
    )
    add_argument("--values", action="store_true", help="write values instead of codes")
    add_argument("--format", choices=("parquet", "csv", "arrow"), help="of the input")
    add_argument("--output-format", choices=("parquet", "csv", "arrow"), help="of the output")
    add_argument("--force", action="store_true", help="write over an output that is there")


def run(given: argparse.Namespace) -> None:
    from dpcore.commands._progress import Meter
    from dpcore.errors import ParameterError

    plan = _plan(given)
    from dpcore.tables.files import tables_in
    from dpcore.tables.run import Job

    _check_paths(given.input, given.output)
    folder = given.input != "-" and os.path.isdir(given.input)
    stream = given.stream or Path(given.input).absolute().name
    if given.input == "-" and given.key is not None and given.stream is None:
        raise ParameterError("The --stream of a pipe must be named where a --key is given.")
    noise, usage = _source(given)
    meter = Meter()
    job = Job(
        plan,
        usage,
        kind=given.format,
        output_kind=given.output_format,
        values=given.values,
        extra=given.extra_columns,
        force=given.force,
        progress=meter,
    )
    data_set = noise.stream("table", stream)
    names = tables_in(Path(given.input)) if folder else []
    with _ledger(given):
        if folder and given.repeated:
            done = _run_folder(
                job, given, names, meter, lambda name: plan.open(_file(data_set, name))
            )
        elif folder:
            paid = plan.open(data_set, files=names)
            done = _run_folder(job, given, names, meter, lambda name: _file(paid, name))
        else:
            meter.file(stream)
            done = [job.file(given.input, given.output, plan.open(data_set))]
    text = meter.finish()
    skipped = done.count(False)
    was = f"; {skipped} of {len(done)} files were done before" if skipped else ""
    print(f"dpcore: {text}{was}", file=sys.stderr)


def _file(noise: Noise, name: str) -> Noise:
    return noise.stream("file", name)


def _plan(given: argparse.Namespace) -> Any:
    _need_pyarrow()
    from dpcore.tables import TablePlan

    return TablePlan.from_toml(
        given.schema,
        epsilon=given.epsilon,
        mechanism=given.mechanism,
        k=given.k,
        on_null=given.on_null,
    )


def _need_pyarrow() -> None:
    from importlib.util import find_spec

    from dpcore.errors import ParameterError

    if find_spec("pyarrow") is None:
        raise ParameterError("Tables need the package pyarrow: pip install 'dpcore[tables]'.")


def _check_paths(source: str, output: str) -> None:
    from dpcore.errors import ParameterError

    if "-" in (source, output):
        if os.path.isdir(source):
            raise ParameterError("A folder cannot be written to a pipe.")
        return
    a, b = Path(source).resolve(), Path(output).resolve()
    if not a.exists():
        raise ParameterError("The input must be a file, a folder or '-'.")
    if a == b or (a.is_dir() and a in b.parents):
        raise ParameterError("The output must not be the input, or inside of it.")


def _source(given: argparse.Namespace) -> tuple[Noise, Usage | None]:
    """The noise, and the record of its use unless the key is used once."""
    from dpcore.noise import Noise
    from dpcore.tables.keys import Usage, load_key

    if given.key is None and "-" in (given.input, given.output):
        return Noise(), None
    path = Path(given.input.rstrip("/") + ".dpcore-key" if given.key is None else given.key)
    return load_key(path), Usage(path.with_name(path.name + ".streams"))


def _ledger(given: argparse.Namespace) -> Any:
    if given.ledger is None:
        return nullcontext()
    from dpcore.accounting import Ledger
    from dpcore.errors import ParameterError

    if given.budget is None and not os.path.exists(given.ledger):
        raise ParameterError("The --budget of a ledger that is not there yet must be given.")
    return Ledger(given.ledger, epsilon=given.budget)


def _run_folder(
    job: Any, given: argparse.Namespace, names: list[str], meter: Any, noise_of: Any
) -> list[bool]:
    done = []
    for name in names:
        target = Path(given.output, name)
        if given.output_format is not None:
            target = target.with_suffix("." + given.output_format)
        target.parent.mkdir(parents=True, exist_ok=True)
        meter.file(name)
        done.append(job.file(str(Path(given.input, name)), str(target), noise_of(name)))
    return done
