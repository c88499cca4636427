"""LDP-FedSGD over any transport, the files of clients, and the terms that all agree on."""

import sys

import numpy as np
import pytest

if sys.version_info < (3, 11):
    pytest.skip("the extra 'flower' needs Python 3.11", allow_module_level=True)

import os
import signal
from dataclasses import replace

from flower_support import Accident, World, build, dies, memory_folder, records

from dpcore.errors import DataError, ParameterError, RefusedError, WireFormatError
from dpcore.interop.flower import data
from dpcore.interop.flower.agreement import Agreement
from dpcore.interop.flower.descent import _descent
from dpcore.interop.flower.envelope import ANSWER, QUESTION, REFUSAL, Envelope
from dpcore.interop.flower.node import Node, client_folder, enrol
from dpcore.learners import LDPFedSGDClassifier
from dpcore.local.reports import Reports

TERMS = {
    "session": "study",
    "task": "admm",
    "features": ["a", "b"],
    "bounds": [[0, 10], [-1, 1]],
    "classes": ["no", "yes"],
    "label": "z",
    "epsilon": 1.0,
    "rounds": 5,
    "clients": {str(i): f"{i:064x}" for i in range(5)},
}


@pytest.fixture
def place():
    with memory_folder() as folder:
        yield folder


def gradient(agreement, number, at_round, theta=None):
    theta = np.zeros(agreement.dimension) if theta is None else theta
    parts = (theta.astype("<f8").tobytes(),)
    return Envelope(QUESTION, "gradient", number, at_round, agreement.digest, parts).to_bytes()


def replay(world):
    """The model that follows from the answers on the clients' disks, by the server's rule."""
    state = _descent(world.agreement)
    used = [tuple(one) for step in world.server.history for one in step["reports"]]
    assert len(used) == len(set(used)), "a report counted twice"
    members = {member.number: member for member in world.members()}
    for step in world.server.history:
        tally, n = 0, 0
        for number, at_round in step["reports"]:
            answer = members[number].store.answered(at_round, "gradient").answer
            reports = Reports.from_bytes(
                Envelope.from_bytes(answer).parts[0], world.agreement.collector
            )
            tally, n = tally + world.agreement.collector.tally(reports), n + len(reports)
        state.step(world.agreement.collector.mean(tally, n))
    return state.average


def test_the_model_is_that_of_the_reports_on_the_clients_disks(place):
    world = World(place, build(place, "fedsgd", barrier=6, rounds=3))
    server = world.finish()
    np.testing.assert_allclose(server.model(), replay(world), rtol=1e-12)
    assert [one["devices"] for one in server.history] == [120, 120, 120]


def test_it_learns_what_the_learner_learns(place):
    terms = {"group_size": 60, "learning_rate": 2.0}
    # So little noise that the limits below are more than eight deviations away.
    world = World(place, build(place, "fedsgd", barrier=6, rounds=1, epsilon=64.0, terms=terms))
    server = world.finish()
    X = np.concatenate([records(i)[0] for i in range(6)])
    y = np.concatenate([records(i)[1] for i in range(6)])
    learner = LDPFedSGDClassifier(
        epsilon=64.0, group_size=360, learning_rate=2.0, classes=[0, 1]
    ).fit(X, y)
    assert server.privacy_.epsilon == learner.privacy_.epsilon
    assert server.privacy_.adjacency == "local"
    ours, theirs = server.model()[:3], learner.coef_
    cosine = ours @ theirs / np.linalg.norm(ours) / np.linalg.norm(theirs)
    assert cosine > 0.7
    assert ((X @ ours + server.model()[3] > 0) == y).mean() > 0.8


def test_every_device_answers_once_in_its_life(place):
    world = World(place, build(place, "fedsgd", rounds=10, barrier=6))
    server = world.finish()
    assert len(server.history) == 3  # of 60 devices 20 answer in a round
    for member in world.members():
        assert int(member.store.get("devices")) == 60
        assert len(member.ledger.entries) == 1
        assert member.ledger.spent[0] <= 4.0
    late = Envelope.from_bytes(
        Node(place / "node-0").answer({"0": gradient(world.agreement, 0, 99)})["0"]
    )
    assert (late.kind, late.parts) == (ANSWER, (b"",))


def test_asked_again_it_says_the_same_and_asked_otherwise_nothing(place):
    agreement = build(place, "fedsgd")
    node = Node(place / "node-0")
    first = node.answer({"0": gradient(agreement, 0, 2)})["0"]
    assert node.answer({"0": gradient(agreement, 0, 2)})["0"] == first
    for other in (
        gradient(agreement, 0, 2, np.ones(4)),
        gradient(agreement, 0, 1),
        gradient(agreement, 0, 3, np.full(4, np.nan)),
    ):
        assert Envelope.from_bytes(node.answer({"0": other})["0"]).kind == REFUSAL
    assert int(node.member(0).store.get("devices")) == 20


@pytest.mark.parametrize("seed", range(4))
def test_crashes_of_nodes_and_server_anywhere(place, monkeypatch, seed):
    accident = Accident().install(monkeypatch)
    world = World(place, build(place, "fedsgd", max_delay=1 + seed % 2))
    generator = np.random.default_rng(seed)
    crashes = 0
    for _ in range(200):
        if world.server.finished:
            break
        before = world.server.round
        if generator.random() < 0.2:
            accident.left, crashes = int(generator.integers(0, 4)), crashes + 1
            with dies():
                world.turn()
            accident.left = None
            world.restart()
            assert world.server.round >= before
        else:
            world.turn()
        for i in generator.permutation(3):
            node, fate = world.nodes[i], generator.random()
            if fate < 0.1:
                continue
            questions = world.take(node)
            if fate < 0.35:
                accident.left, crashes = int(generator.integers(0, 14)), crashes + 1
            answers = {}
            with dies():
                answers = world.ask(node, questions)
            accident.left = None
            for name in questions:
                if name in answers and fate < 0.9:
                    world.server.accept(int(name), answers[name])
                else:
                    world.server.lose(int(name))
    assert crashes
    world.finish()
    np.testing.assert_allclose(world.server.model(), replay(world), rtol=1e-12)
    for member in world.members():
        answered = [one for one in member.store.answers if Envelope.from_bytes(one.answer).parts[0]]
        assert int(member.store.get("devices") or b"0") == 20 * len(answered)


def test_killed_at_every_point_of_an_answer(place, monkeypatch):
    survived, points = False, 0
    while not survived:
        root = place / str(points)
        root.mkdir()
        agreement = build(root, "fedsgd", per_node=(1,), barrier=1)
        child = os.fork()
        if child == 0:
            try:
                signal.alarm(600)
                accident = Accident().install(monkeypatch)
                accident.left, accident.by_signal = points, True
                Node(root / "node-0").answer({"0": gradient(agreement, 0, 1)})
                os._exit(0)
            finally:
                os._exit(1)  # an error must not go on with the tests of the parent
        status = os.waitpid(child, 0)[1]
        assert status in (0, signal.SIGKILL)
        survived = status == 0
        node = Node(root / "node-0")
        stored = [one.answer for one in node.member(0).store.answers]
        again = node.answer({"0": gradient(agreement, 0, 1, np.ones(4))})["0"]
        assert (Envelope.from_bytes(again).kind == REFUSAL) == bool(stored)
        assert int(node.member(0).store.get("devices")) == 20
        assert len(node.member(0).ledger.entries) == 1
        points += 1
    assert points > 8


def test_a_late_answer_counts_once(place):
    world = World(place, build(place, "fedsgd", max_delay=2, rounds=3))
    world.turn()
    held = world.take(world.nodes[2])
    for _ in range(8):
        for node in world.nodes[:2]:
            world.deliver(node)
        world.turn()
        if world.server.round == 2:
            break
    late = world.ask(world.nodes[2], held)
    for _ in range(2):
        for name, text in late.items():
            world.server.accept(int(name), text)
    assert world.server._devices == 40
    world.finish()
    assert len(world.server.history[1]["reports"]) == 6 + 2
    np.testing.assert_allclose(world.server.model(), replay(world), rtol=1e-12)
    assert world.server.history[1]["devices"] == 120 + 40


def test_reports_survive_the_server_that_took_them(place):
    world = World(place, build(place, "fedsgd", barrier=6, rounds=1))
    world.turn()
    for node in world.nodes[:2]:
        world.deliver(node)
    assert len(world.server.answered) == 4
    world.restart()
    for node in world.nodes[:2]:  # they are not needed any more
        world.alive[node] = False
    world.finish()
    assert world.server.history[0]["devices"] == 120
    assert len(world.server.history[0]["reports"]) == 6
    world.alive = dict.fromkeys(world.nodes, True)
    np.testing.assert_allclose(world.server.model(), replay(world), rtol=1e-12)


# Files of clients


def agreement_for_files(**changes):
    return Agreement.from_mapping(TERMS | changes)


def write(path, a, b, z):
    if path.suffix == ".npz":
        np.savez(path, a=a, b=b, z=z)
    elif path.suffix == ".csv":
        rows = "\n".join(f"{x},{y},{label}" for x, y, label in zip(a, b, z, strict=True))
        path.write_text(f"a,b,z\n{rows}\n")
    else:
        import pyarrow
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.table({"a": a, "b": b, "z": z}), path)
    return path


@pytest.mark.parametrize("suffix", [".npz", ".csv", ".parquet"])
def test_files_of_all_kinds(tmp_path, suffix):
    path = tmp_path / f"data{suffix}"
    write(path, [0.0, 5.0, 99.0], [-1.0, 0.5, 1.0], ["no", "yes", "no"])
    X, y, users = data.load(path, agreement_for_files())
    np.testing.assert_array_equal(X, [[-1, -1], [0, 0.5], [1, 1]])
    np.testing.assert_array_equal(y, [-1, 1, -1])
    assert users is None


@pytest.mark.parametrize(
    ("a", "z", "message"),
    [
        ([1.0, np.nan], ["no", "yes"], "'a' must hold finite"),
        (["1", "secret"], ["no", "yes"], "'a' must hold numbers"),
        ([1.0, 2.0], ["no", "secret"], "'z' must hold the classes"),
    ],
)
def test_bad_data_are_named_and_not_shown(tmp_path, a, z, message):
    path = write(tmp_path / "data.csv", a, [0, 0], z)
    with pytest.raises(DataError, match=message) as caught:
        data.load(path, agreement_for_files())
    assert "secret" not in str(caught.value)


def test_missing_columns_and_strange_files(tmp_path):
    np.savez(tmp_path / "data.npz", a=[1.0])
    with pytest.raises(DataError, match="no column 'b'"):
        data.load(tmp_path / "data.npz", agreement_for_files())
    with pytest.raises(DataError, match=r"named \.npz"):
        data.load(tmp_path / "data.txt", agreement_for_files())
    with pytest.raises(DataError, match="cannot be read"):
        data.load(tmp_path / "none.csv", agreement_for_files())


def uneven(path, **changes):
    columns = {"a": [1.0, 2.0], "b": [0.0, 0.0], "z": ["no", "yes"]} | changes
    np.savez(path, **columns)


@pytest.mark.parametrize(
    ("name", "make", "message"),
    [
        ("d.npz", lambda path: path.write_bytes(b"PK\3\4secret"), "cannot be read"),
        ("d.npz", lambda path: path.write_bytes(b""), "cannot be read"),
        ("d.npz", lambda path: uneven(path, b=[0.0]), "same number of rows"),
        ("d.npz", lambda path: uneven(path, z=["no"]), "same number of rows"),
        ("d.npz", lambda path: uneven(path, a=np.zeros((2, 2))), "'a' must hold one value"),
        ("d.npz", lambda path: uneven(path, z=np.zeros((2, 2))), "'z' must hold one value"),
        ("d.npz", lambda path: uneven(path, a=[None, "secret"]), "cannot be read"),
        ("d.npz", lambda path: uneven(path, a=[], b=[], z=[]), "at least one"),
        ("d.csv", lambda path: path.write_text("a,b,z\n" + "7" * 200_000), "cannot be read"),
        ("d.csv", lambda path: path.write_bytes(b"a,b,z\n\xff\xfe,1,no"), "cannot be read"),
        ("d.csv", lambda path: path.write_text("a,b,z\n1,2"), "'z' must hold the classes"),
        ("d.parquet", lambda path: path.write_bytes(b"PAR1secret"), "cannot be read"),
        ("d.npz", lambda path: path.mkdir(), "cannot be read"),
    ],
)
def test_whatever_is_wrong_with_a_file_one_error_says_so(tmp_path, name, make, message):
    make(tmp_path / name)
    with pytest.raises(DataError, match=message) as caught:
        data.load(tmp_path / name, agreement_for_files())
    assert "secret" not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_devices_of_several_records(tmp_path):
    np.savez(tmp_path / "d.npz", a=[1, 2, 3], b=[0, 0, 0], z=[1, 0, 1], who=["x", "y", "x"])
    terms = agreement_for_files(task="fedsgd", classes=[0, 1], fedsgd={"user": "who"})
    assert data.load(tmp_path / "d.npz", terms)[2].tolist() == ["x", "y", "x"]


# Terms


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bogus": 1}, "no 'bogus'"),
        ({"admm": {"group_size": 5}}, "no 'group_size'"),
        ({"barrier": 2}, "'barrier'"),
        ({"barrier": 6}, "'barrier'"),
        ({"bounds": [[0, 1]]}, "'bounds'"),
        ({"bounds": [[0, 1], [3, 2]]}, "'bounds'"),
        ({"features": ["a", "a"]}, "'features'"),
        ({"classes": ["yes"]}, "'classes'"),
        ({"loss": "hinge"}, "'loss'"),
        ({"loss": "squared", "classes": []}, "'loss'"),
        ({"epsilon": 0}, "'epsilon'"),
        ({"epsilon": 1000.0}, "'delta'"),
        ({"task": "other"}, "'task'"),
        ({"clients": {"0": "00"}}, "'clients'"),
        ({"session": ""}, "'session'"),
        ({"admm": {"server": "kind"}}, "'server'"),
        ({"admm": {"relaxation": 2.5}}, "'relaxation'"),
        ({"rounds": "many"}, "'rounds'"),
    ],
)
def test_terms_that_cannot_be_kept_are_refused(changes, message):
    with pytest.raises(ParameterError, match=message):
        Agreement.from_mapping(TERMS | changes)


def test_every_term_is_part_of_the_digest():
    first = Agreement.from_mapping(TERMS)
    others = [
        replace(first, session="other"),
        replace(first, epsilon=2.0),
        replace(first, bounds=((0.0, 10.0), (-1.0, 2.0))),
        replace(first, clients=dict(first.clients) | {5: bytes(32)}),
        replace(first, terms=replace(first.consensus, rho=2.0)),
        replace(first, barrier=4),
    ]
    digests = {one.digest for one in [first, *others]}
    assert len(digests) == 7
    assert Agreement.from_mapping(TERMS).digest == first.digest


def test_what_the_terms_cost():
    agreement = Agreement.from_mapping(TERMS)
    from dpcore.accounting import compose

    assert 0.99 < compose([agreement.plan.event]).epsilon(1e-6) <= 1.0
    assert agreement.secure.min_survivors == 3


def test_a_folder_belongs_to_one_agreement(place):
    build(place, "fedsgd")
    text = (place / "federation.toml").read_text().replace("epsilon = 4.0", "epsilon = 3.0")
    (place / "other.toml").write_text(text)
    with pytest.raises(RefusedError, match="another agreement"):
        enrol(place / "node-0", place / "other.toml", {0: place / "0.npz"})
    with pytest.raises(RefusedError, match="another key"):
        enrol(place / "new", place / "other.toml", {0: place / "0.npz"})
    with pytest.raises(ParameterError, match="clients of the agreement"):
        enrol(place / "node-0", place / "federation.toml", {77: place / "0.npz"})
    keys = client_folder(place / "node-0", 0)
    for name in ("identity.key", "noise.key"):
        assert (keys / name).stat().st_mode & 0o077 == 0


# Messages


def test_messages_have_one_encoding():
    one = Envelope(QUESTION, "mask", 3, 9, bytes(range(32)), (b"", b"abc"))
    data_ = one.to_bytes()
    assert Envelope.from_bytes(data_) == one
    for cut in range(len(data_)):
        with pytest.raises(WireFormatError):
            Envelope.from_bytes(data_[:cut])
    for place, value in ((0, 0), (4, 2), (5, 9), (6, 99), (7, 1)):
        broken = bytearray(data_)
        broken[place] = value
        with pytest.raises(WireFormatError):
            Envelope.from_bytes(bytes(broken))
    with pytest.raises(WireFormatError, match="too long"):
        Envelope.from_bytes(data_ + b"\0")
