"""``dpcore privatize INPUT --schema FILE -o OUTPUT``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

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
    add_argument(
        "--ledger",
        metavar="FILE",
        help="charge the budget in this file; a folder once for every set of names of its files",
    )
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

    plan = _plan(given)
    from dpcore.tables.run import Job

    files, key, meter = _files(given), _key(given), Meter()
    job = Job(
        plan,
        None,
        kind=given.format,
        output_kind=given.output_format,
        values=given.values,
        extra=given.extra_columns,
        force=given.force,
        progress=meter,
    )
    if key is not None and not key.exists():
        # What is refused now leaves no key behind.
        job.check((file.where, file.output) for file in files)
    with _ledger(given):
        noise, usage = _source(key)
        job, data_set = replace(job, usage=usage), noise.stream("table", _stream(given))
        done = []
        for file, own, pay in _streams(plan, data_set, files, given.repeated):
            meter.file(file.name or _stream(given))
            done.append(job.file(file.where, file.output, own, pay))
    text = meter.finish()
    skipped = done.count(False)
    was = f"; {skipped} of {len(done)} files were done before" if skipped else ""
    print(f"dpcore: {text}{was}", file=sys.stderr)


class _File(NamedTuple):
    """One file to privatise: its name in the folder, if any, and the paths of input and output."""

    name: str | None
    where: str
    output: str


def _streams(
    plan: Any, data_set: Noise, files: list[_File], repeated: bool
) -> Iterator[tuple[_File, Noise, Callable[[], Noise]]]:
    """The files with the noise of each, and what pays for it: all at once unless repeated."""
    names = [file.name for file in files if file.name is not None]
    pay_all = cache(lambda: plan.open(data_set, files=names or None))
    for file in files:
        if file.name is None:
            yield file, data_set, pay_all
            continue
        own = data_set.stream("file", file.name)
        pay = partial(plan.open, own) if repeated else partial(_paid_file, pay_all, file.name)
        yield file, own, pay


def _paid_file(pay_all: Callable[[], Noise], name: str) -> Noise:
    return pay_all().stream("file", name)


def _plan(given: argparse.Namespace) -> Any:
    _need_pyarrow()
    from dpcore.errors import ParameterError
    from dpcore.tables import TablePlan
    from dpcore.tables.plan import MECHANISMS

    if given.mechanism not in (None, *MECHANISMS):
        raise ParameterError(f"The --mechanism must be one of {', '.join(MECHANISMS)}.")
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


def _files(given: argparse.Namespace) -> list[_File]:
    """What is to be done, or a refusal by paths and options."""
    from dpcore.errors import ParameterError
    from dpcore.tables.files import tables_in

    if given.budget is not None and given.ledger is None:
        raise ParameterError("The --budget is that of a --ledger, which must be given.")
    if given.input == "-" and given.key is not None and given.stream is None:
        raise ParameterError("The --stream of a pipe must be named where a --key is given.")
    source, output = Path(given.input), Path(given.output)
    if given.input != "-" and not source.exists():
        raise ParameterError("There is no such input.")
    if given.input == "-" or not source.is_dir():
        if given.repeated:
            raise ParameterError("The option --repeated is for folders.")
        if given.output != "-":
            _check_apart(source, output)
            if not output.parent.is_dir():
                raise ParameterError("The output cannot be written: its folder is not there.")
        return [_File(None, given.input, given.output)]
    if given.output == "-":
        raise ParameterError("A folder cannot be written to a pipe.")
    _check_apart(source, output)
    if output.exists() and not output.is_dir():
        raise ParameterError("The output of a folder must be a folder.")
    targets: dict[Path, str] = {}
    for name in tables_in(source):
        target = output / name
        if given.output_format is not None:
            target = target.with_suffix("." + given.output_format)
        if target in targets:
            raise ParameterError(
                f"The files '{targets[target]}' and '{name}' have one output, '{target.name}'."
            )
        targets[target] = name
    return [_File(name, str(source / name), str(target)) for target, name in targets.items()]


def _check_apart(source: Path, output: Path) -> None:
    from dpcore.errors import ParameterError

    a, b = source.resolve(), output.resolve()
    if a == b or (a.is_dir() and a in b.parents):
        raise ParameterError("The output must not be the input, or inside of it.")


def _stream(given: argparse.Namespace) -> str:
    """The name of the data set, which is that of its path however the path is written."""
    return given.stream or Path(given.input).resolve().name


def _key(given: argparse.Namespace) -> Path | None:
    """Where the key is kept, unless it is used once."""
    if given.key is not None:
        return Path(given.key)
    if given.input == "-":
        return None
    path = Path(given.input).resolve()
    return path.with_name(path.name + ".dpcore-key")


def _source(key: Path | None) -> tuple[Noise, Usage | None]:
    """The noise, and the record of its use unless the key is used once."""
    from dpcore.noise import Noise
    from dpcore.tables.keys import Usage, load_key

    if key is None:
        return Noise(), None
    return load_key(key), Usage(key.with_name(key.name + ".streams"))


def _ledger(given: argparse.Namespace) -> Any:
    if given.ledger is None:
        return nullcontext()
    from dpcore.accounting import Ledger
    from dpcore.errors import ParameterError

    if given.budget is None and not os.path.exists(given.ledger):
        raise ParameterError("The --budget of a ledger that is not there yet must be given.")
    return Ledger(given.ledger, epsilon=given.budget)
