"""Consensus ADMM over any transport: what it computes, and what crashes cannot change."""

import sys

import numpy as np
import pytest

if sys.version_info < (3, 11):
    pytest.skip("the extra 'flower' needs Python 3.11", allow_module_level=True)

import json
import os
import shutil
import signal

from flower_support import NAME, Accident, World, build, dies, memory_folder, records

from dpcore import Noise
from dpcore.errors import ProtocolError, RefusedError
from dpcore.federated.consensus import Consensus
from dpcore.federated.devices import Devices, scaled_rows
from dpcore.federated.shares import TOLERANCE
from dpcore.federated.solvers import LocalProblems
from dpcore.interop.flower.envelope import ANSWER, QUESTION, REFUSAL, Envelope
from dpcore.interop.flower.node import HELLO, Node, client_folder, make_server
from dpcore.learners import ConsensusADMMClassifier
from dpcore.secure.messages import Begin


@pytest.fixture
def place():
    with memory_folder() as folder:
        yield folder


@pytest.fixture
def accident(monkeypatch):
    return Accident().install(monkeypatch)


def in_process(agreement, noise, rounds):
    """The same rounds by the engine of the learners."""
    terms = agreement.consensus
    data = [records(i) for i in agreement.clients]
    X = scaled_rows(np.concatenate([x for x, _ in data]), True, terms.row_norm)
    y = np.where(np.concatenate([y for _, y in data]), 1.0, -1.0)
    users = np.repeat(np.arange(len(data)), [len(x) for x, _ in data])
    problems = LocalProblems(X, y, Devices.of(len(X), users), agreement.loss_function, TOLERANCE)
    engine = Consensus(problems, terms.regulariser, terms.relaxation, agreement.plan, noise=noise)
    for number in range(rounds):
        engine.round(number, np.arange(len(data)), terms.rho)
    return engine.w0


def total_of_clients(world):
    """What the clients count as sent; those of the last commit may not have been told."""
    server, total = world.server, np.zeros(world.agreement.dimension, np.int64)
    for member in world.members():
        committed = server._committed.get(member.number, 0)
        masked = int(member.store.get("masked in") or b"0")
        told = "pending" if committed and masked == committed else "sent"
        total += np.frombuffer(member.store.get(told) or bytes(8 * len(total)), np.int64)
    return total


def check_invariants(world):
    """Nothing lost, nothing twice: the server's total is that of the clients, to the last unit."""
    np.testing.assert_array_equal(world.server._total, total_of_clients(world))
    for member in world.members():
        steps = int(member.store.get("steps") or b"0")
        assert steps <= world.agreement.rounds
        assert len(member.ledger.entries) == (1 if steps else 0)
        places = [(one.round, one.stage) for one in member.store.answers]
        assert len(places) == len(set(places))
        for one in member.store.answers:
            sent = world.seen.get((member.number, one.round, one.stage))
            assert sent in (None, one.answer)


def test_rounds_are_those_of_the_learner(place):
    agreement = build(place, same_noise=True, barrier=6, max_delay=1)
    server = World(place, agreement).finish()
    noise = Noise.from_key(bytes(range(32))).stream("federation", agreement.digest, NAME)
    expected = in_process(agreement, noise, agreement.rounds)
    # Clients put on the grid how far they move, the engine where they arrive.
    unit = 2.0**-agreement.plan.fraction_bits
    np.testing.assert_allclose(server.model(), expected, rtol=0, atol=4 * unit)
    assert unit < 1e-7
    assert [len(one["participants"]) for one in server.history] == [6] * 4
    result = json.loads(server.write_result().read_text())
    assert [*result["coef"], result["intercept"]] == server.model().tolist()
    assert 15.9 < result["privacy"]["epsilon"] == server.privacy_.epsilon <= 16.0
    assert (result["privacy"]["delta"], result["privacy"]["unit"]) == (1e-6, "record")
    assert np.abs(expected).max() > 0.5


def test_the_loss_is_that_of_the_learner(place):
    agreement = build(place)
    X = np.concatenate([records(i)[0] for i in range(6)])
    y = np.concatenate([records(i)[1] for i in range(6)])
    learner = ConsensusADMMClassifier(
        epsilon=16.0, rho=8.0, beta=0.1, n_rounds=4, classes=[0, 1], barrier=4
    ).fit(X, y, users=np.repeat(np.arange(6), 60))
    event = learner.privacy_.events[0]
    assert agreement.plan.event.noise_multiplier <= event.noise_multiplier * (1 + 1e-9)
    assert agreement.plan.event.noise_multiplier >= event.noise_multiplier * (1 - 1e-9)


def test_a_server_goes_on_with_few_and_waits_with_fewer(place):
    world = World(place, build(place, per_node=(2, 2, 2)))
    world.alive[world.nodes[0]] = world.alive[world.nodes[1]] = False
    for _ in range(20):
        world.turn()
    assert (world.server.round, world.server.commits) == (0, 0)  # a sum of two hides nothing
    world.alive[world.nodes[0]] = True
    server = world.finish()
    assert {tuple(one["participants"]) for one in server.history} == {(0, 1, 4, 5)}
    check_invariants(world)


@pytest.mark.parametrize("stage", ["advertise", "share", "mask", "confirm", "unmask"])
@pytest.mark.parametrize("kind", ["curious", "malicious"])
def test_a_node_may_leave_in_any_stage(place, stage, kind):
    world = World(place, build(place, terms={"server": kind}, rounds=3))
    gone = False
    for _ in range(400):
        if world.server.finished:
            break
        world.turn()
        running = world.server._secure
        if world.server.commits == 1 and not gone and running and running.stage == stage:
            world.alive[world.nodes[2]], gone = False, True
        for node in world.nodes:
            if world.alive[node]:
                world.deliver(node)
    assert gone
    assert world.server.finished
    assert world.server.history[-1]["participants"] == [0, 1, 2, 3]
    # With a malicious server four of six are too few to open a round that six have entered.
    assert world.server.aborted == (kind == "malicious" and stage not in ("advertise",))
    check_invariants(world)


def test_late_answers_enter_a_later_round(place):
    world = World(place, build(place, rounds=5, patience=30.0))
    slow, held = world.nodes[2], {}
    for _ in range(400):
        if world.server.finished:
            break
        world.turn()
        for node in world.nodes[:2]:
            world.deliver(node)
        if not held:
            held = world.take(slow)
        if held and world.now % 12 == 0:
            for name, text in world.ask(slow, held).items():
                world.server.accept(int(name), text)
            held = {}
    assert world.server.finished
    inside = [4 in one["participants"] for one in world.server.history]
    assert any(inside)
    assert not all(inside)
    longest = max(len(run) for run in "".join("x."[i] for i in inside).split("."))
    assert longest <= world.agreement.max_delay
    check_invariants(world)


@pytest.mark.parametrize("seed", range(6))
def test_crashes_of_nodes_and_server_anywhere(place, accident, seed):
    world = World(place, build(place, terms={"server": ("curious", "malicious")[seed % 2]}))
    generator = np.random.default_rng(seed)
    crashes = restarts = 0
    for _ in range(150):
        if world.server.finished:
            break
        before = world.server.round, world.server.commits
        if generator.random() < 0.05:
            accident.left = int(generator.integers(0, 6))
            with dies():
                world.turn()
            accident.left, restarts = None, restarts + 1
            world.restart()
            assert world.server.round >= before[0]
            assert world.server.commits >= before[1]
        else:
            world.turn()
        for i in generator.permutation(3):
            node, fate = world.nodes[i], generator.random()
            if fate < 0.1:
                continue  # busy
            questions = world.take(node)
            if fate < 0.25:
                accident.left, crashes = int(generator.integers(0, 40)), crashes + 1
            answers = {}
            with dies():
                answers = world.ask(node, questions)
            accident.left = None
            if fate > 0.95:
                continue  # lost on the way
            for name in questions:
                if name in answers:
                    world.server.accept(int(name), answers[name])
                else:
                    world.server.lose(int(name))
    assert crashes
    world.finish()
    check_invariants(world)
    assert restarts or seed not in (0, 1)


def test_a_commit_that_nobody_was_told_of_is_kept(place):
    world = World(place, build(place))
    while not world.server.commits:
        world.turn()
        for node in world.nodes:
            world.deliver(node)
    w0, number = world.server.w0, world.server.round
    world.restart()
    np.testing.assert_array_equal(world.server.w0, w0)
    check_invariants(world)
    world.finish()
    assert world.server.history[0]["round"] == number
    assert world.server.history[1]["round"] > number
    check_invariants(world)


@pytest.mark.parametrize("backup", [False, True])
def test_a_server_that_lost_its_memory_stops(place, backup):
    """Clients send changes, which mean nothing without the total that they change."""
    world = World(place, build(place))
    path, old = place / "server" / "server.sqlite", place / "old"
    while world.server.commits < 2:
        if not world.server.commits:
            shutil.copy(path, old)
        world.turn()
        for node in world.nodes:
            world.deliver(node)
    path.unlink()
    if backup:
        shutil.copy(old, path)
    server = make_server(world.agreement, place / "server")
    answers = {}
    for node in world.nodes:
        answers |= Node(node).answer({HELLO: server.hello(0)})
    assert not server.recognise(0, answers["0"])
    assert not server.recognise(1, answers["1"])
    with pytest.raises(ProtocolError, match="This folder has lost its state"):
        server.recognise(2, answers["2"])


def test_one_client_alone_cannot_make_a_server_stop(place):
    world = World(place, build(place))
    assert not world.server.introduce(0, 10**9)
    assert not world.server.introduce(0, 10**9)
    assert not world.server.introduce(1, 1)
    assert world.server.introduce(2, 0)
    with pytest.raises(ProtocolError, match="This folder has lost its state"):
        world.server.introduce(3, 1)


@pytest.mark.parametrize("stage", ["advertise", "mask", "unmask"])
def test_a_server_that_dies_in_a_round_knows_it(place, stage):
    """What a client has answered, the server had saved before it asked."""
    world = World(place, build(place))
    while world.server._secure is None or world.server._secure.stage != stage:
        world.turn()
        for node in world.nodes:
            world.deliver(node)
    world.restart()  # every client is recognised
    world.finish()
    check_invariants(world)


def test_a_server_that_was_replaced_cannot_write(place):
    agreement = build(place)
    first = World(place, agreement)
    second = make_server(agreement, place / "server")
    with pytest.raises(ProtocolError, match="taken over"):
        first.turn()
    assert second.round == 0


def question(world, number, stage="advertise", at_round=1, model=None):
    agreement = world.agreement
    world.look()
    world.server.advance(0.0)
    begin = Envelope.from_bytes(world.server.outbox[number]).parts[0]
    assert Begin.from_bytes(begin).round == at_round
    model = np.zeros(agreement.dimension) if model is None else model
    parts = (begin, bytes(8), model.astype("<f8").tobytes())
    return Envelope(QUESTION, stage, number, at_round, agreement.digest, parts).to_bytes()


def test_asked_again_it_says_the_same_and_asked_otherwise_nothing(place):
    world = World(place, build(place))
    first = question(world, 0)
    other = question(world, 0, model=np.ones(4))
    node = Node(place / "node-0")
    answer = node.answer({"0": first})["0"]
    assert Envelope.from_bytes(answer).kind == ANSWER
    assert node.answer({"0": first})["0"] == answer
    refused = Envelope.from_bytes(node.answer({"0": other})["0"])
    assert refused.kind == REFUSAL
    assert b"another question" in refused.parts[0]
    assert int(node.member(0).store.get("steps")) == 1


@pytest.mark.parametrize("other", [False, True], ids=["same question", "another model"])
def test_killed_at_every_point_of_a_step(place, monkeypatch, other):
    """A child process is killed before and after each write; what it left behind is asked again."""
    survived, points = False, 0
    while not survived:
        root = place / str(points)
        root.mkdir()
        world = World(root, build(root, per_node=(3,), barrier=3))
        first = question(world, 0)
        again = question(world, 0, model=np.ones(4)) if other else first
        child = os.fork()
        if child == 0:
            try:
                signal.alarm(600)
                accident = Accident().install(monkeypatch)
                accident.left, accident.by_signal = points, True
                reply = Node(root / "node-0").answer({"0": first})["0"]
                (root / "sent").write_bytes(reply)
                os._exit(0)
            finally:
                os._exit(1)  # an error must not go on with the tests of the parent
        status = os.waitpid(child, 0)[1]
        assert status in (0, signal.SIGKILL)
        survived = status == 0
        node = Node(root / "node-0")
        stored = [one.answer for one in node.member(0).store.answers]
        reply = node.answer({"0": again})["0"]
        kind = Envelope.from_bytes(reply).kind
        if stored:
            assert len(stored) == 1
            assert (reply == stored[0]) if not other else (kind == REFUSAL)
        if survived:
            assert (root / "sent").read_bytes() == stored[0]
        assert len(node.member(0).ledger.entries) <= 1
        assert int(node.member(0).store.get("steps") or b"0") <= 1
        points += 1
    assert points > 15


def test_terms_that_differ_are_refused(place):
    (place / "a").mkdir()
    (place / "b").mkdir()
    world = World(place / "a", build(place / "a"))
    other = World(place / "b", build(place / "b", epsilon=15.0))
    refused = Envelope.from_bytes(
        Node(place / "a" / "node-0").answer({"0": question(other, 0)})["0"]
    )
    assert refused.kind == REFUSAL
    assert b"another agreement" in refused.parts[0]
    assert not world.server.recognise(0, refused.to_bytes())


def test_a_budget_that_is_too_small_refuses_before_anything_is_drawn(place):
    world = World(place, build(place))
    path = client_folder(place / "node-0", 0) / "ledger.sqlite"
    path.unlink()
    from dpcore.accounting import Ledger

    Ledger(path, epsilon=1.0, delta=1e-6)
    node = Node(place / "node-0")
    refused = Envelope.from_bytes(node.answer({"0": question(world, 0)})["0"])
    assert refused.kind == REFUSAL
    assert b"budget" in refused.parts[0]
    assert node.member(0).store.get("pending") is None
    assert not (client_folder(place / "node-0", 0) / "secure.state").exists()
    server = world.finish()  # the others go on without it
    assert all(0 not in one["participants"] for one in server.history)


def test_no_more_steps_than_agreed(place):
    world = World(place, build(place, rounds=1))
    world.finish()
    member = Node(place / "node-0").member(0)
    with member.store.turn():
        member.store.put("pending", b"")
        with pytest.raises(RefusedError, match="as often as was agreed"):
            member._step(np.zeros(4))


def test_another_client_is_not_recognised(place):
    world = World(place, build(place))
    answers = Node(place / "node-0").answer({"hello": world.server.hello(0)})
    assert world.server.recognise(0, answers["0"])
    assert not world.server.recognise(1, answers["0"])
    assert not world.server.recognise(7, answers["0"])
    fresh = make_server(world.agreement, place / "server")
    assert not fresh.recognise(0, answers["0"])  # signed for another question


def test_damaged_messages_do_nothing(place):
    generator = np.random.default_rng(0)
    world = World(place, build(place, per_node=(3,), barrier=3))
    node, whole = Node(place / "node-0"), question(world, 0)
    folder = client_folder(place / "node-0", 0)
    for _ in range(200):
        text = bytearray(whole)
        for _ in range(int(generator.integers(1, 4))):
            text[generator.integers(0, len(text))] ^= 1 << generator.integers(0, 8)
        cut = bytes(text[: generator.integers(1, len(text) + 1)])
        if len(cut) == len(whole) and cut[-96:] != whole[-96:]:
            continue  # another model is no damage
        answers = node.answer({"0": cut})
        assert not answers or Envelope.from_bytes(answers["0"]).kind == REFUSAL
        world.server.accept(0, cut)
        assert not world.server.answered
    assert not (folder / "secure.state").exists()
    assert not node.member(0).store.answers
