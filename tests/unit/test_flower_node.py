"""The folder of a node: keys, budgets, and what is said when something is wrong with it."""

import os
import signal
import sys

import pytest

if sys.version_info < (3, 11):
    pytest.skip("the extra 'flower' needs Python 3.11", allow_module_level=True)

from flower_support import World, build, memory_folder

from dpcore._files import create_bytes
from dpcore.accounting import Ledger
from dpcore.errors import RefusedError
from dpcore.interop.flower import data
from dpcore.interop.flower.envelope import ANSWER, REFUSAL, Envelope
from dpcore.interop.flower.member import make_keys
from dpcore.interop.flower.node import HELLO, Node, client_folder, enrol


@pytest.fixture
def place():
    with memory_folder() as folder:
        yield folder


def share_a_ledger(place, files):
    return enrol(place / "node-0", place / "federation.toml", files, ledger=place / "ledger.sqlite")


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


@pytest.mark.parametrize("name", ["identity.key", "noise.key"])
def test_a_key_file_that_is_damaged_is_named(place, name):
    build(place, "fedsgd", per_node=(3,), barrier=3)
    folder = client_folder(place / "node-0", 0)
    (folder / name).write_bytes(b"")
    with pytest.raises(RefusedError, match="key file of this client is damaged"):
        make_keys(folder)
    with pytest.raises(RefusedError, match="key file of this client is damaged"):
        Node(place / "node-0").member(0)
    (folder / name).unlink()
    with pytest.raises(RefusedError, match="is missing"):
        Node(place / "node-0").member(0)


def test_a_process_killed_while_it_makes_keys_leaves_whole_ones(place, monkeypatch):
    """Whatever the disk has done last, the next run finds a key or makes one."""
    for point in range(6):
        folder = place / str(point)
        child = os.fork()
        if child == 0:
            left = point

            def around(function):
                def wrapped(*arguments):
                    nonlocal left
                    left -= 1
                    if left < 0:
                        os.kill(os.getpid(), signal.SIGKILL)
                    return function(*arguments)

                return wrapped

            with monkeypatch.context() as patch:
                for call in ("fsync", "link"):
                    patch.setattr(os, call, around(getattr(os, call)))
                make_keys(folder)
            os._exit(0)
        killed = os.waitpid(child, 0)[1] != 0
        assert killed
        first = make_keys(folder)
        assert make_keys(folder) == first
        for name in ("identity.key", "noise.key"):
            assert (folder / name).stat().st_mode & 0o777 == 0o600


def test_a_file_is_made_once_and_whole(tmp_path):
    path = tmp_path / "key"
    assert create_bytes(path, b"first", mode=0o640)
    assert not create_bytes(path, b"second")
    assert path.read_bytes() == b"first"
    assert path.stat().st_mode & 0o777 == 0o640
    assert [one.name for one in tmp_path.iterdir()] == ["key"]


def test_a_client_that_fails_says_one_thing_and_its_log_another(place, capsys, monkeypatch):
    world = World(place, build(place, "fedsgd", per_node=(3,), barrier=3, rounds=1))
    node = Node(place / "node-0")
    world.turn()
    questions = world.take(world.nodes[0])
    (client_folder(place / "node-0", 0) / "noise.key").write_bytes(b"short")

    def fail(*arguments):
        raise ZeroDivisionError("7.25")

    monkeypatch.setattr(data, "load", fail)
    answers = {name: Envelope.from_bytes(text) for name, text in node.answer(questions).items()}
    fixed = (b"This client cannot answer; the log of its node says why.",)
    assert {name: one.parts for name, one in answers.items()} == dict.fromkeys("012", fixed)
    assert {one.kind for one in answers.values()} == {REFUSAL}
    log = capsys.readouterr().err
    assert "client 0: A key file of this client is damaged." in log
    assert "client 1: ZeroDivisionError\n" in log
    assert "7.25" not in log
    hello = node.answer({HELLO: world.server.hello(0)})
    assert [Envelope.from_bytes(hello[name]).kind for name in "012"] == [REFUSAL, ANSWER, ANSWER]
    assert not world.server.recognise(0, hello["0"])
    assert world.server.refusals[0] == fixed[0].decode()


def test_questions_that_make_no_sense_are_met_with_silence(place):
    build(place, "fedsgd", per_node=(3,), barrier=3)
    node = Node(place / "node-0")
    assert node.answer({HELLO: b"x", "0": b"x"}) == {}
    assert node.answer({"7": b"x", "9" * 5000: b"x", "0": b""}) == {}


def test_the_status_says_who_refuses(place):
    world = World(place, build(place, per_node=(4,), barrier=4, rounds=1))
    assert world.server.status() == "round 0, 0 of 1 done; present: nobody"
    path = client_folder(place / "node-0", 3) / "ledger.sqlite"
    path.unlink()
    Ledger(path, epsilon=1.0, delta=1e-6)
    world.turn()
    world.deliver(world.nodes[0])
    expected = "round 1, 0 of 1 done; present: 0 1 2 3; client 3 refuses: The release does not fit"
    assert world.server.status().startswith(expected)
    noise = Envelope(REFUSAL, "advertise", 3, 1, bytes(32), (b"a\n\x1b[31mb" + b"x" * 900,))
    world.server.accept(3, noise.to_bytes())
    assert "\n" not in world.server.status()
    assert "\x1b" not in world.server.status()
    assert len(world.server.status()) < 300
