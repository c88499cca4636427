"""The commands of the command line, one module each; heavy imports wait until one runs."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

__all__ = ["Commands", "add_command", "source_module"]

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def add_command(
    commands: Commands, name: str, run: Callable[[argparse.Namespace], int | None], text: str
) -> argparse.ArgumentParser:
    """A parser for a command that calls `run`; the caller adds the arguments."""
    command = commands.add_parser(name, help=text, description=text.capitalize() + ".")
    command.set_defaults(run=run)
    return command


def source_module(name: str) -> Any:
    """A module of ``bench``, which only the source tree has: it is not part of a wheel."""
    from dpcore.errors import DPCoreError

    here = Path.cwd()
    if (here / "bench" / "repro").is_dir() and str(here) not in sys.path:
        sys.path.insert(0, str(here))
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or name.startswith(error.name):
            raise DPCoreError(
                "This command needs the source tree of dpcore: run it in a clone, in the folder "
                "that holds 'bench'."
            ) from None
        raise DPCoreError(f"This command needs the package {error.name}.") from None
