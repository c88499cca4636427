"""The ``dpcore`` command."""

from __future__ import annotations

import argparse
import platform
import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="dpcore", description="Differential privacy, exactly.")
    commands = parser.add_subparsers(required=True, metavar="command")
    _add(commands, "demo", _demo, "show what dpcore does, in under a minute")
    _add(commands, "info", _info, "versions, SIMD level and threads in use")
    account = _add(commands, "account", _account, "what a ledger has spent, and on what")
    account.add_argument("ledger", help="file of a dpcore.Ledger")
    audit = _add(
        commands, "audit", _audit, "claimed against observed epsilon, by running everything"
    )
    audit.add_argument("--trials", type=int, metavar="N", help="runs of each mechanism")
    audit.add_argument("--quick", action="store_true", help="a tenth of the runs")
    audit.add_argument("--plot", metavar="FILE", help="a picture as well; needs matplotlib")
    given = parser.parse_args(arguments)
    from dpcore.errors import DPCoreError

    try:
        return int(given.run(given) or 0)
    except DPCoreError as error:
        print(f"dpcore: {error}", file=sys.stderr)
        return 1


def _add(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, run: object, text: str
) -> argparse.ArgumentParser:
    command = commands.add_parser(name, help=text, description=text.capitalize() + ".")
    command.set_defaults(run=run)
    return command


def _demo(given: argparse.Namespace) -> None:
    from dpcore.demo import run

    run()


def _account(given: argparse.Namespace) -> None:
    from dpcore.accounting import Ledger
    from dpcore.errors import LedgerError

    try:
        Ledger(given.ledger).report()
    except ValueError:
        raise LedgerError("There is no such file.") from None


def _audit(given: argparse.Namespace) -> int:
    from dpcore.audit import shipped

    trials = (300_000 if given.trials is None else given.trials) // (10 if given.quick else 1)
    jobs, audits = list(shipped.run(trials)), []
    for i, (name, job) in enumerate(jobs, 1):
        if sys.stderr.isatty():
            print(f"\r\033[K{i} of {len(jobs)}: {name}", end="", file=sys.stderr, flush=True)
        audits.append(job())
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    print(shipped.table(audits))
    if given.plot is not None:
        shipped.plot(audits, given.plot)
    flagged = sum(not audit.passed for audit in audits)
    print(f"{len(audits)} audited, {flagged} flagged")
    return 1 if flagged else 0


def _info(given: argparse.Namespace) -> None:
    import numpy as np

    import dpcore
    from dpcore_ext.rng import level, levels

    print(f"dpcore {dpcore.__version__}")
    print(f"Python {platform.python_version()}, NumPy {np.__version__}")
    print(f"SIMD level {level()} (this machine has: {', '.join(levels())})")
    print(f"threads {dpcore.get_num_threads()}")
    print(f"C headers {dpcore.get_include()}")
