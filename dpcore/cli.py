"""The ``dpcore`` command."""

from __future__ import annotations

import argparse
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


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="dpcore", description="Differential privacy, exactly.")
    commands = parser.add_subparsers(required=True, metavar="command")
    for name in _COMMANDS:
        import_module(f"dpcore.commands.{name}").add(commands)
    given = parser.parse_args(arguments)
    from dpcore.errors import DPCoreError

    try:
        return int(given.run(given) or 0)
    except DPCoreError as error:
        print(f"dpcore: {error}", file=sys.stderr)
        return 1
