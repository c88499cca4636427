"""``dpcore info``."""

from __future__ import annotations

import argparse
import platform

from dpcore.commands import Commands, add_command


def add(commands: Commands) -> None:
    add_command(commands, "info", run, "versions, SIMD level and threads in use")


def run(given: argparse.Namespace) -> None:
    import numpy as np

    import dpcore
    from dpcore_ext.rng import level, levels

    print(f"dpcore {dpcore.__version__}")
    print(f"Python {platform.python_version()}, NumPy {np.__version__}")
    print(f"SIMD level {level()} (this machine has: {', '.join(levels())})")
    print(f"threads {dpcore.get_num_threads()}")
    print(f"C headers {dpcore.get_include()}")
