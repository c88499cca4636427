"""The folder of a node: keys, budgets, and what is said when something is wrong with it."""

import sys

import pytest

if sys.version_info < (3, 11):
    pytest.skip("the extra 'flower' needs Python 3.11", allow_module_level=True)

from flower_support import World, build, memory_folder

from dpcore.accounting import Ledger
from dpcore.interop.flower.node import enrol


@pytest.fixture
def place():
    with memory_folder() as folder:
        yield folder


def share_a_ledger(place, files):
    return enrol(
        place / "node-0", place / "federation.toml", files, ledger=place / "ledger.sqlite"
    )


@pytest.mark.parametrize("task", ["admm", "fedsgd"])
def test_one_ledger_for_the_files_of_several_clients(place, task):
    agreement = build(place, task, per_node=(3,), barrier=3, rounds=2)
    share_a_ledger(place, {i: place / f"{i}.npz" for i in range(3)})
    server = World(place, agreement).finish()
    assert not server.refusals
    ledger = Ledger(place / "ledger.sqlite")
    assert len({entry.part for entry in ledger.entries}) == len(ledger.entries) == 3
    assert ledger.spent[0] <= agreement.epsilon == ledger.epsilon


def test_a_file_of_two_clients_is_paid_for_twice(place):
    agreement = build(place, "fedsgd", per_node=(3,), barrier=3, rounds=2)
    (place / "link.npz").symlink_to(place / "0.npz")
    share_a_ledger(place, {0: place / "0.npz", 1: place / "link.npz", 2: place / "2.npz"})
    server = World(place, agreement).finish()
    assert set(server.refusals) == {1}
    assert "budget" in server.refusals[1]
