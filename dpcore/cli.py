"""The ``dpcore`` command."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module

__all__ = ["main"]

# Each is a module of dpcore.commands, which says in `add` what it is called with.
_COMMANDS = (
    "demo",
    "info",
    "privatize",
    "estimate",
    "account",
    "audit",
    "federate",
    "reproduce",
    "bench",
)


_INTERRUPTED = 130  # what shells say of a command that was ended by Ctrl-C

# Packages that a command may miss, and the extra that brings each.
_EXTRAS = {
    "pyarrow": "tables",
    "sklearn": "sklearn",
    "scipy": "accounting",
    "dp_accounting": "accounting",
    "torch": "torch",
    "cryptography": "secagg",
    "flwr": "flower",
    "matplotlib": "report",
    "mlxtend": "repro",
    "river": "repro",
    "pytest": "bench",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    if sys.stderr is None:  # closed; messages must not get among the results
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    try:
        return _run(arguments)
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:  # whoever read the output, `head` for example, has seen enough
        _flush()
        return 1


def _run(arguments: Sequence[str] | None) -> int:
    parser = argparse.ArgumentParser(prog="dpcore", description="Differential privacy, exactly.")
    commands = parser.add_subparsers(required=True, metavar="command")
    for name in _COMMANDS:
        import_module(f"dpcore.commands.{name}").add(commands)
    given = parser.parse_args(arguments)
    from dpcore.errors import DPCoreError

    try:
        code = int(given.run(given) or 0)
    except ModuleNotFoundError as error:
        extra = _EXTRAS.get((error.name or "").split(".")[0])
        if extra is None:
            raise
        print(
            f"dpcore: This needs {error.name}, which comes with the extra '{extra}': "
            f"pip install 'dpcore[{extra}]'.",
            file=sys.stderr,
        )
        return 1
    except DPCoreError as error:
        print(f"dpcore: {error}", file=sys.stderr)
        code = 1
    if not _flush() and code == 0:
        print("dpcore: The output cannot be written.", file=sys.stderr)
        code = 1
    return code


def _flush() -> bool:
    """Whether all that was printed has arrived: Python would try at its exit, with a traceback."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return False
    return True
