"""The ``dpcore`` command."""

from __future__ import annotations

import argparse
import platform
from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="dpcore", description="Differential privacy, exactly.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    commands.add_parser("demo", help="show what dpcore does, in under a minute")
    commands.add_parser("info", help="versions, SIMD level and threads in use")
    command = parser.parse_args(arguments).command
    if command == "demo":
        from dpcore.demo import run

        run()
    else:
        print("\n".join(_info()))
    return 0


def _info() -> list[str]:
    import numpy as np

    import dpcore
    from dpcore_ext.rng import level, levels

    return [
        f"dpcore {dpcore.__version__}",
        f"Python {platform.python_version()}, NumPy {np.__version__}",
        f"SIMD level {level()} (this machine has: {', '.join(levels())})",
        f"threads {dpcore.get_num_threads()}",
        f"C headers {dpcore.get_include()}",
    ]
