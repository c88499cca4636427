"""``dpcore audit [--trials N] [--quick] [--plot FILE]``."""

from __future__ import annotations

import argparse
import sys

from dpcore.commands import Commands, add_command


def add(commands: Commands) -> None:
    audit = add_command(
        commands, "audit", run, "claimed against observed epsilon, local and central mechanisms"
    )
    audit.add_argument("--trials", type=int, metavar="N", help="runs of each mechanism")
    audit.add_argument("--quick", action="store_true", help="a tenth of the runs")
    audit.add_argument("--plot", metavar="FILE", help="a picture as well; needs matplotlib")


def run(given: argparse.Namespace) -> int:
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
