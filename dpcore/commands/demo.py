"""``dpcore demo [--out DIR] [--quick]``."""

from __future__ import annotations

import argparse

from dpcore.commands import Commands, add_command


def add(commands: Commands) -> None:
    demo = add_command(
        commands, "demo", run, "five private systems, small, and a page about them; two minutes"
    )
    demo.add_argument(
        "--out", default="dpcore-report", metavar="DIR", help="where index.html is written"
    )
    demo.add_argument("--quick", action="store_true", help="smaller data, some seconds")


def run(given: argparse.Namespace) -> None:
    from dpcore import demo

    demo.run(given.out, quick=given.quick)
