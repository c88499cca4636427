"""``dpcore account LEDGER``."""

from __future__ import annotations

import argparse

from dpcore.commands import Commands, add_command


def add(commands: Commands) -> None:
    account = add_command(commands, "account", run, "what a ledger has spent, and on what")
    account.add_argument("ledger", help="file of a dpcore.Ledger")


def run(given: argparse.Namespace) -> None:
    from dpcore.accounting import Ledger
    from dpcore.errors import LedgerError

    try:
        Ledger(given.ledger).report()
    except ValueError:
        raise LedgerError("There is no such file.") from None
