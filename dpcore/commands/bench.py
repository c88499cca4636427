"""``dpcore bench [--compare] [--quick] [--out DIR] [suite ...]``."""

from __future__ import annotations

import argparse

from dpcore.commands import Commands, add_command, source_module


def add(commands: Commands) -> None:
    bench = add_command(commands, "bench", run, "how fast dpcore is here, and beside its peers")
    bench.add_argument("suites", nargs="*", metavar="suite", help="only these")
    bench.add_argument("--compare", action="store_true", help="with the comparisons with peers")
    bench.add_argument("--quick", action="store_true", help="small: to see that it runs")
    bench.add_argument("--out", metavar="DIR", help="where results go; by default bench/results")


def run(given: argparse.Namespace) -> int:
    module = source_module("bench.__main__")
    arguments = [*given.suites]
    arguments += ["--compare"] if given.compare else []
    arguments += ["--quick"] if given.quick else []
    arguments += [] if given.out is None else ["--out", given.out]
    return int(module.main(arguments))
