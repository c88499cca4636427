"""What a client replies, and whether it does, tells nothing that was not paid for."""

import sys

import numpy as np
import pytest

if sys.version_info < (3, 11):
    pytest.skip("the extra 'flower' needs Python 3.11", allow_module_level=True)

from flower_support import build, memory_folder

from dpcore.federated.devices import Devices, scaled_rows
from dpcore.federated.fedsgd import LARGEST, gradient_at
from dpcore.federated.fedsgd import Server as Descent
from dpcore.federated.losses import LOSSES
from dpcore.federated.solvers import LocalProblems
from dpcore.interop.flower import descent
from dpcore.interop.flower.envelope import ANSWER, QUESTION, REFUSAL, Envelope
from dpcore.interop.flower.node import Node, client_folder
from dpcore.secure.server import Server

SIZES = (0.0, 1e3, 1e6, 1e18, 1e100, 1e308)
DIRECTIONS = ((1, 0, 0, 0), (1, -1, 1, -1), (0.3, -0.4, 0.2, 1))


@pytest.fixture
def place():
    with memory_folder() as folder:
        yield folder


def neighbours():
    """A data set that a line separates, and two that differ from it in one record."""
    generator = np.random.default_rng(1)
    X = generator.uniform(-1, 1, (60, 3))
    X[:, 0] = np.sign(X[:, 0]) * (0.05 + 0.9 * np.abs(X[:, 0]))
    y = (X[:, 0] > 0).astype(int)
    flipped, extreme = y.copy(), X.copy()
    flipped[7] ^= 1
    extreme[7] = 1, -1, 1
    return [(X, y), (X, flipped), (extreme, y)]


def give(place, number, X, y):
    np.savez(place / f"{number}.npz", X=50 + 50 * X, y=y)


class Asker:
    """Asks the clients of one node, each question in a round of its own."""

    def __init__(self, place, task, **options):
        self.agreement = build(place, task, per_node=(3,), barrier=3, **options)
        self.node = Node(place / "node-0")
        self.round = 0

    def ask(self, number, model, at_round=None):
        self.round += at_round is None
        at_round = at_round or self.round
        vector = np.asarray(model, "<f8").tobytes()
        if self.agreement.task == "admm":
            begin = Server(self.agreement.secure, self.agreement.clients, at_round).begin()
            stage, parts = "advertise", (begin, bytes(8), vector)
        else:
            stage, parts = "gradient", (vector,)
        asked = Envelope(QUESTION, stage, number, at_round, self.agreement.digest, parts)
        return Envelope.from_bytes(self.node.answer({str(number): asked.to_bytes()})[str(number)])

    def kind(self, number, model, at_round=None):
        reply = self.ask(number, model, at_round)
        return reply.kind, reply.parts if reply.kind == REFUSAL else None


@pytest.mark.parametrize("task", ["admm", "fedsgd"])
@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.filterwarnings("error")
def test_neighbours_get_replies_of_the_same_kind(place, task, direction):
    terms = {"relaxation": 1.5} if task == "admm" else {"group_size": 60}
    for k, size in enumerate(SIZES):
        root = place / str(k)
        root.mkdir()
        asker = Asker(root, task, terms=terms)
        for number, (X, y) in enumerate(neighbours()):
            give(root, number, X, y)
        model = size * np.array(direction)
        kinds = [asker.kind(number, model, 1) for number in range(3)]
        assert len(set(kinds)) == 1
        answers = size <= 1e6 if task == "admm" else size <= LARGEST
        assert kinds[0][0] == (ANSWER if answers else REFUSAL)
        for number in range(3):  # what was refused cost nothing, as it told nothing
            assert len(asker.node.member(number).ledger.entries) == answers


def test_models_that_are_too_far_are_refused_before_data_are_read(place):
    for task in ("admm", "fedsgd"):
        root = place / task
        root.mkdir()
        asker = Asker(root, task)
        for number in range(3):
            (root / f"{number}.npz").unlink()
        assert b"too far" in asker.ask(0, np.full(4, 1e200)).parts[0]
        assert b"cannot be read" in asker.ask(0, np.zeros(4)).parts[0]


def test_a_step_that_fails_is_the_last(place, monkeypatch):
    asker = Asker(place, "admm")

    def fail(*arguments):
        raise ArithmeticError("7.25")

    with monkeypatch.context() as patch:
        patch.setattr(LocalProblems, "offsets", fail)
        first = asker.ask(0, np.zeros(4))
    assert first.kind == REFUSAL
    assert b"7.25" not in first.parts[0]
    for model in (np.zeros(4), np.ones(4)):
        assert asker.kind(0, model) == (REFUSAL, first.parts)
    assert asker.node.member(0).store.get("steps") is None
    assert asker.kind(1, np.zeros(4))[0] == ANSWER


def test_devices_whose_answer_fails_have_answered(place, monkeypatch):
    asker = Asker(place, "fedsgd")

    def fail(*arguments):
        raise ValueError("7.25")

    with monkeypatch.context() as patch:
        patch.setattr(descent, "gradient_at", fail)
        first = asker.ask(0, np.zeros(4))
        again = asker.ask(0, np.zeros(4), asker.round)
        asker.ask(0, np.ones(4))
    assert first.kind == REFUSAL
    assert again == first
    assert b"7.25" not in first.parts[0]
    assert int(asker.node.member(0).store.get("devices")) == 40
    assert [asker.kind(0, np.zeros(4))[0] for _ in range(2)] == [ANSWER, ANSWER]
    assert asker.ask(0, np.zeros(4)).parts == (b"",)


@pytest.mark.parametrize("loss", ["logistic", "huber_hinge", "huber"])
@pytest.mark.parametrize(("n", "d"), [(60, 4), (3, 10)])
def test_local_minima_are_found_however_far_away(loss, n, d):
    generator = np.random.default_rng(n)
    for power in (0, 8, 16, 24, 32, 40):
        for rho in (1e-2, 1.0, 100.0):
            for orthogonal in (False, True):
                z = generator.normal(size=d)
                z *= 2.0**power / rho / np.linalg.norm(z)
                X = generator.uniform(-1, 1, (n, d))
                if orthogonal:  # where scores are small although the model is large
                    X -= np.outer(X @ z, z) / (z @ z)
                X = scaled_rows(X, False, 1.0)
                y = X @ z * generator.integers(0, 2, n) + generator.normal(size=n)
                y = y if loss == "huber" else np.sign(y)
                one = Devices(np.arange(1), np.arange(n), np.array([0, n]))
                problems = LocalProblems(X, y, one, LOSSES[loss], 1e-10)
                u = problems.offsets(np.array([0]), z[np.newaxis], rho)
                assert np.linalg.norm(rho * u) <= n + 1e-9


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.filterwarnings("error")
def test_gradients_exist_up_to_the_largest_model(loss):
    generator = np.random.default_rng(0)
    X = generator.integers(-1, 2, (40, 3)).astype(np.float64)
    y = np.sign(generator.normal(size=40))
    if LOSSES[loss].kind == "residual":
        y *= np.finfo(np.float64).max * generator.integers(0, 2, 40)
    for users in (None, np.arange(40) // 8):
        devices = Devices.of(40, users)
        for size in (0.0, 1e50, LARGEST):
            state = Descent.start(4, learning_rate=1.0, alpha=0.0, clip=1e-200, intercept=True)
            state.theta = size * np.array([1.0, -1.0, 1.0, -1.0])
            values = gradient_at(state, devices, np.arange(len(devices)), X, y, LOSSES[loss])
            found = values(np.tile(np.arange(4), (len(devices), 1)))
            assert np.isfinite(found).all()
            assert np.abs(found).max() <= 1


@pytest.mark.parametrize("task", ["admm", "fedsgd"])
def test_data_that_change_are_refused(place, task):
    asker = Asker(place, task)
    [(X, y), (_, flipped), (extreme, _)] = neighbours()
    give(place, 0, X, y)
    assert asker.kind(0, np.zeros(4))[0] == ANSWER
    if task == "admm":
        forget_what_waits(asker.node.member(0).store)
    for other in ((X, flipped), (extreme, y), (X[:-1], y[:-1]), (X[::-1], y[::-1])):
        give(place, 0, *other)
        refused = asker.ask(0, np.zeros(4))
        assert refused.kind == REFUSAL
        assert refused.parts == (b"The data of this client have changed since its first answer.",)
    give(place, 0, X, y)
    assert asker.kind(0, np.zeros(4))[0] == ANSWER


def forget_what_waits(store):
    """As if the server had said that the vector of the last step is in its total."""
    with store.turn():
        store.put("pending", b"")


def test_devices_are_part_of_the_data(place):
    asker = Asker(place, "fedsgd", terms={"user": "who"})
    X, y = neighbours()[0]
    names = np.array([f"device {i}" for i in range(60)])
    for who, kind in ((names, ANSWER), (names[::-1], REFUSAL), (names, ANSWER)):
        np.savez(place / "0.npz", X=50 + 50 * X, y=y, who=who)
        assert asker.kind(0, np.zeros(4))[0] == kind


@pytest.mark.parametrize("task", ["admm", "fedsgd"])
def test_a_lost_memory_means_other_noise_and_a_second_charge(place, task):
    asker = Asker(place, task)
    folder = client_folder(place / "node-0", 0)
    first = asker.node.member(0)
    assert asker.kind(0, np.zeros(4))[0] == ANSWER
    for name in ("answers.sqlite", "secure.state"):
        (folder / name).unlink(missing_ok=True)
    refused = asker.ask(0, np.ones(4))
    assert refused.kind == REFUSAL
    assert b"budget" in refused.parts[0]
    second = asker.node.member(0)
    assert first.noise.fingerprint("x") != second.noise.fingerprint("x")
    assert asker.node.member(0).noise.fingerprint("x") == second.noise.fingerprint("x")
