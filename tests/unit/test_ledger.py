"""The ledger with real files, threads and processes, some of which are killed."""

import math
import os
import pickle
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
import threading
import time

import numpy as np
import pytest

import dpcore
from dpcore import local
from dpcore.accounting import GaussianEvent, PureEvent, SampledGaussianEvent
from dpcore.cli import main
from dpcore.errors import (
    BudgetExceededError,
    InsecureNoiseError,
    LedgerError,
    ParameterError,
    RepeatedReleaseError,
)

KEY = bytes(range(32))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "study.sqlite"


def pure(epsilon, **options):
    return PureEvent(mechanism="test", epsilon=epsilon, **options)


def run(program, *arguments):
    """A Python program in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program), *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


# Spending


def test_releases_are_charged_until_the_budget_is_gone(path):
    with dpcore.Ledger(path, epsilon=1.0) as ledger:
        for _ in range(10):
            dpcore.histogram([0, 1, 1], 2, epsilon=0.1)
        assert ledger.spent[0] == pytest.approx(1.0, abs=1e-9)
        with pytest.raises(BudgetExceededError):
            dpcore.histogram([0, 1, 1], 2, epsilon=1e-3)
    assert ledger.spent[0] <= 1.0
    assert len(ledger.entries) == 10
    dpcore.histogram([0, 1, 1], 2, epsilon=5.0)
    assert len(ledger.entries) == 10


def test_nothing_is_drawn_for_a_release_that_does_not_fit(path):
    """The fresh streams of a source are numbered: a refused release takes no number."""
    noise, twin = dpcore.Noise.insecure(3), dpcore.Noise.insecure(3)
    with dpcore.Ledger(path, epsilon=0.5, allow_insecure=True), pytest.raises(BudgetExceededError):
        dpcore.laplace([0] * 50, epsilon=1, sensitivity=1, noise=noise)
    after = dpcore.laplace([0] * 50, epsilon=1, sensitivity=1, noise=noise)
    assert (after == dpcore.laplace([0] * 50, epsilon=1, sensitivity=1, noise=twin)).all()


def test_bad_data_cost_nothing(path):
    with dpcore.Ledger(path, epsilon=1.0) as ledger:
        for call in (
            lambda: dpcore.laplace([math.nan], epsilon=1, sensitivity=1),
            lambda: dpcore.gaussian([math.inf], sigma=1, sensitivity=1),
            lambda: dpcore.histogram([5], 2, epsilon=1),
            lambda: dpcore.bounded_sum([math.nan], 0, 1, epsilon=1),
            lambda: dpcore.bounded_mean([math.nan], 0, 1, epsilon=1),
            lambda: dpcore.laplace([0.5], epsilon=1, sensitivity=1, out=np.empty(2)),
        ):
            with pytest.raises(dpcore.errors.DPCoreError):
                call()
    assert ledger.entries == []


@pytest.mark.parametrize(
    ("release", "adjacency"),
    [
        (lambda: dpcore.laplace([1, 2], epsilon=0.25, sensitivity=1), None),
        (lambda: dpcore.laplace([1.5, 2.5], epsilon=0.25, sensitivity=1), None),
        (lambda: dpcore.histogram([0], 2, epsilon=0.25), "replace"),
        (lambda: dpcore.histogram([0], 2, epsilon=0.25, adjacency="add-remove"), "add-remove"),
        (lambda: dpcore.bounded_sum([0.5], 0, 1, epsilon=0.25), "replace"),
        (lambda: dpcore.bounded_mean([0.5], 0, 1, epsilon=0.25), "replace"),
        (
            lambda: dpcore.bounded_mean([0.5], 0, 1, epsilon=0.25, adjacency="add-remove"),
            "add-remove",
        ),
        *[(lambda n=name: local.make(n, 0.25).encode([0.5]), "local") for name in local.NAMES],
        (lambda: local.GRR(0.25, 4).encode([1]), "local"),
        (lambda: local.OUE(0.25, 4).encode([1]), "local"),
        (lambda: local.DuchiMulti(0.25, 2).encode([[0.5, 0.5]]), "local"),
        (
            lambda: local.Tuple(
                [local.Numeric("a", 0, 1), local.Categorical("b", 3)], 0.25, k=2
            ).encode({"a": [0.5], "b": [1]}),
            "local",
        ),
        (
            lambda: dpcore.learners.LocalPrivatizer(epsilon=0.25).fit_transform([[0.5, 0.5]]),
            "local",
        ),
    ],
)
def test_every_release_is_charged_once_at_what_it_says(path, release, adjacency):
    with dpcore.Ledger(path, epsilon=1.0) as ledger:
        release()
    [entry] = ledger.entries
    assert entry.event.adjacency == adjacency
    assert 0.25 - 1e-9 <= ledger.spent[0] <= 0.25


def test_gaussian_releases_compose_exactly(path):
    sigma = dpcore.gaussian_sigma(1.0, 1e-5)
    with dpcore.Ledger(path, epsilon=2.0, delta=1e-5) as ledger:
        dpcore.gaussian([1, 2], sigma=sigma, sensitivity=1)
        assert ledger.spent[0] == pytest.approx(1.0, abs=1e-5)
        assert ledger.spent[1] == 1e-5
        dpcore.gaussian([1.5], sensitivity=1, epsilon=1.0, delta=1e-5)
        twice = dpcore.calibration.gdp_epsilon(math.sqrt(2) / sigma, 1e-5)
        assert ledger.spent[0] == pytest.approx(twice, abs=1e-4)
        assert ledger.spent[0] < 2.0
        with pytest.raises(BudgetExceededError):
            dpcore.gaussian([1, 2], sigma=sigma / 2, sensitivity=1)
    assert ledger.spent[0] <= 2.0


def test_sampled_gaussians_are_charged_by_their_accountant(path):
    ledger = dpcore.Ledger(path, epsilon=0.6, delta=1e-5)
    event = SampledGaussianEvent(
        mechanism="sgd",
        noise_multiplier=4.3,
        sampling_rate=0.01,
        adjacency="add-remove",
        count=5000,
    )
    ledger.charge(event)
    assert 0.59 < ledger.spent[0] < 0.6
    with pytest.raises(BudgetExceededError):
        ledger.charge(event)


def test_relations_do_not_mix_in_one_ledger(path):
    with dpcore.Ledger(path, epsilon=9.0) as ledger:
        dpcore.histogram([0], 2, epsilon=1)
        with pytest.raises(ParameterError, match="neighbouring"):
            dpcore.histogram([0], 2, epsilon=1, adjacency="add-remove")
    assert len(ledger.entries) == 1


def test_parts_compose_in_parallel(path):
    with dpcore.Ledger(path, epsilon=1.0) as ledger:
        for day in range(30):
            with ledger.part("day", day):
                dpcore.histogram([0, 1], 2, epsilon=0.75)
        assert ledger.spent[0] == pytest.approx(0.75)
        dpcore.histogram([0, 1], 2, epsilon=0.2)
        assert ledger.spent[0] == pytest.approx(0.95)
        with ledger.part("day", 31):
            dpcore.histogram([0, 1], 2, epsilon=0.75)
        with ledger.part("day", 3), pytest.raises(BudgetExceededError):
            dpcore.histogram([0, 1], 2, epsilon=0.2)
        with pytest.raises(BudgetExceededError):
            dpcore.histogram([0, 1], 2, epsilon=0.2)


def test_the_innermost_ledger_is_charged(tmp_path):
    outer, inner = (dpcore.Ledger(tmp_path / name, epsilon=1.0) for name in ("a", "b"))
    with outer:
        with inner:
            dpcore.histogram([0], 2, epsilon=0.5)
        dpcore.histogram([0], 2, epsilon=0.25)
    assert [round(ledger.spent[0], 6) for ledger in (outer, inner)] == [0.25, 0.5]


def test_releases_of_other_threads_do_not_escape(path):
    with dpcore.Ledger(path, epsilon=1.0) as ledger:
        thread = threading.Thread(target=dpcore.histogram, args=([0], 2), kwargs={"epsilon": 0.5})
        thread.start()
        thread.join()
    assert ledger.spent[0] == pytest.approx(0.5)


def test_insecure_noise_is_refused(path):
    with dpcore.Ledger(path, epsilon=1.0) as ledger, pytest.raises(InsecureNoiseError):
        dpcore.histogram([0], 2, epsilon=0.5, noise=dpcore.Noise.insecure(1))
    assert ledger.entries == []


# The same release again


def test_a_pinned_release_is_charged_once_in_whatever_pieces(path):
    noise = dpcore.Noise.from_key(KEY).stream("visits", 46)
    x = np.arange(100)
    with dpcore.Ledger(path, epsilon=1.0) as ledger:
        whole = dpcore.laplace(x, epsilon=0.8, sensitivity=1, noise=noise)
        for begin in range(0, 100, 7):
            part = dpcore.laplace(
                x[begin : begin + 7], epsilon=0.8, sensitivity=1, noise=noise, start=begin
            )
            assert (part == whole[begin : begin + 7]).all()
        assert len(ledger.entries) == 1
        with pytest.raises(BudgetExceededError):
            dpcore.laplace(x, epsilon=0.7, sensitivity=1, noise=noise)


def test_a_keyed_release_cannot_be_drawn_twice(path):
    with dpcore.Ledger(path, epsilon=5.0) as ledger:
        noise = ledger.keyed("node 3", "batch", 7, "5 bins")
        dpcore.histogram([0, 1], 2, epsilon=0.5, noise=noise)
        with pytest.raises(RepeatedReleaseError):
            ledger.keyed("node 3", "batch", 7, "5 bins")
        with pytest.raises(RepeatedReleaseError):
            dpcore.histogram([0, 1], 2, epsilon=0.25, noise=noise)
        other = ledger.keyed("node 3", "batch", 7, "5 bins", repeat="same")
        with pytest.raises(RepeatedReleaseError):
            dpcore.histogram([0, 1], 2, epsilon=0.5, noise=other)
        ledger.keyed("node 3", "batch", 8, "5 bins")
    assert len(ledger.entries) == 1


def test_a_keyed_release_can_be_had_again_with_the_same_noise(path):
    source, draws = dpcore.Noise.from_key(KEY), []
    with dpcore.Ledger(path, epsilon=0.5) as ledger:
        for _ in range(3):
            noise = ledger.keyed("visits", 46, noise=source, repeat="same")
            draws.append(dpcore.histogram([0, 1], 2, epsilon=0.5, noise=noise).tolist())
    assert draws[0] == draws[1] == draws[2]
    assert len(ledger.entries) == 1


def test_several_events_are_reserved_together_or_not_at_all(path):
    ledger = dpcore.Ledger(path, epsilon=1.25)
    with pytest.raises(BudgetExceededError):
        ledger.charge([pure(0.5), pure(1.0)], fingerprint="a", claim="b")
    with pytest.raises(ParameterError, match="'adjacency'"):
        ledger.charge([pure(0.5, adjacency="local"), pure(0.25, adjacency="replace")])
    assert ledger.entries == []
    assert ledger.spent == (0.0, 0.0)
    for _ in range(2):
        ledger.charge([pure(0.5), pure(0.25), pure(0.25)], fingerprint="a", claim="b")
    assert [(each.event.epsilon, each.key) for each in ledger.entries] == [
        (0.5, "b"),
        (0.25, "b"),
        (0.25, "b"),
    ]
    assert [each.number for each in ledger.entries] == [1, 2, 3]
    assert ledger.spent == (pytest.approx(1.0, abs=1e-9), 0.0)


@pytest.mark.parametrize(
    "events", [[0.5], [0.5, 0.25], [0.25, 0.5, 0.25], [0.5, 0.25, 0.25, 0.5], [0.5, 0.25, 0.5]]
)
def test_the_same_noise_for_other_events_is_refused(path, events):
    ledger = dpcore.Ledger(path, epsilon=9.0)
    ledger.charge([pure(0.5), pure(0.25), pure(0.25)], fingerprint="a")
    with pytest.raises(RepeatedReleaseError):
        ledger.charge([pure(each) for each in events], fingerprint="a")
    assert len(ledger.entries) == 3
    ledger.charge(pure(0.5), fingerprint="ab")
    assert len(ledger.entries) == 4


def test_reserve_pays_for_everything_drawn_from_the_result(path):
    source = dpcore.Noise.from_key(KEY)
    event = GaussianEvent(mechanism="learner", noise_multiplier=20.0, count=30)
    with dpcore.Ledger(path, epsilon=2.0, delta=1e-6) as ledger:
        noise = ledger.reserve(event, noise=source, key=("run", 1))
        for step in range(30):
            dpcore.gaussian([0], sigma=20, sensitivity=1, noise=noise.stream(step))
        assert [entry.event for entry in ledger.entries] == [event]
        with pytest.raises(RepeatedReleaseError):
            ledger.reserve(event, noise=source, key=("run", 1))
        again = ledger.reserve(event, noise=source, key=("run", 1), repeat="same")
        assert dpcore.random.integers(0, 99, noise=again) == dpcore.random.integers(
            0, 99, noise=noise
        )
        ledger.reserve(event)
    assert len(ledger.entries) == 2


# Files


def test_reopening_keeps_everything(path):
    with dpcore.Ledger(path, epsilon=1.0, delta=1e-6):
        dpcore.histogram([0], 2, epsilon=0.5)
    for again in (
        dpcore.Ledger(path),
        dpcore.Ledger(str(path), epsilon=1.0),
        dpcore.Ledger(path, epsilon=1.0, delta=1e-6),
        pickle.loads(pickle.dumps(dpcore.Ledger(path))),
    ):
        assert (again.epsilon, again.delta) == (1.0, 1e-6)
        assert again.spent[0] == pytest.approx(0.5)
    for budget in ({"epsilon": 2.0}, {"epsilon": 1.0, "delta": 1e-5}):
        with pytest.raises(LedgerError, match="another budget"):
            dpcore.Ledger(path, **budget)


@pytest.mark.parametrize("content", [b"", b"not a database at all, but long enough for one" * 50])
def test_foreign_files_are_refused_and_kept(path, content):
    path.write_bytes(content)
    with pytest.raises(LedgerError, match="not a ledger"):
        dpcore.Ledger(path, epsilon=1.0)
    assert path.read_bytes() == content


def test_a_database_of_somebody_else_is_refused_and_kept(path):
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE budget (epsilon, delta)")
    before = path.read_bytes()
    with pytest.raises(LedgerError, match="not a ledger"):
        dpcore.Ledger(path, epsilon=1.0)
    assert path.read_bytes() == before


def test_a_newer_ledger_is_refused(path):
    dpcore.Ledger(path, epsilon=1.0)
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 2")
    with pytest.raises(LedgerError, match="newer"):
        dpcore.Ledger(path)


def test_a_damaged_ledger_is_refused(path):
    with dpcore.Ledger(path, epsilon=100.0):
        for _ in range(200):
            dpcore.histogram([0], 2, epsilon=0.01)
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    data = bytearray(path.read_bytes())
    data[4096:] = os.urandom(len(data) - 4096)
    path.write_bytes(data)
    with pytest.raises(LedgerError), dpcore.Ledger(path):
        dpcore.histogram([0], 2, epsilon=0.01)


def test_a_vanished_ledger_does_not_come_back_empty(path):
    ledger = dpcore.Ledger(path, epsilon=1.0)
    for name in (path, f"{path}-wal", f"{path}-shm"):
        if os.path.exists(name):
            os.unlink(name)
    thread_errors = []

    def release():
        try:
            with ledger:
                dpcore.histogram([0], 2, epsilon=0.5)
        except LedgerError as error:
            thread_errors.append(error)

    thread = threading.Thread(target=release)  # a thread opens a connection of its own
    thread.start()
    thread.join()
    assert len(thread_errors) == 1
    assert not path.exists()


def test_nothing_is_released_to_a_read_only_disk():
    program = """
        import os, sys, dpcore
        open_ledger = dpcore.Ledger
        if os.geteuid() == 0:  # nothing is read-only for root
            os.setegid(65534), os.seteuid(65534)
        try:
            with open_ledger(sys.argv[1]) as ledger:
                print("spent", ledger.spent[0])
                print(dpcore.histogram([0], 2, epsilon=0.5))
        except dpcore.errors.LedgerError as error:
            print("refused:", error)
    """
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "study.sqlite")
        dpcore.Ledger(path, epsilon=1.0)
        os.chmod(path, 0o444)
        os.chmod(folder, 0o555)
        out, err = run(program, path).communicate(timeout=900)
        os.chmod(folder, 0o755)
    assert "refused:" in out, err
    assert "[" not in out


def test_nothing_is_released_to_a_full_disk(path):
    """A limit on the size of files stands for the end of the disk."""
    program = """
        import os, resource, signal, sys, dpcore
        ledger = dpcore.Ledger(sys.argv[1], epsilon=1e6)
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
        released = 0
        with ledger:
            try:
                for released in range(100_000):
                    dpcore.histogram([0], 2, epsilon=0.01)
            except dpcore.errors.LedgerError as error:
                print(released)
    """
    out, err = run(program, path).communicate(timeout=900)
    assert out.strip(), err
    assert len(dpcore.Ledger(path).entries) == int(out) > 0


# Processes

WORKER = """
    import sys, dpcore
    from dpcore.accounting import PureEvent
    ledger = dpcore.Ledger(sys.argv[1])
    event = PureEvent(mechanism="worker", epsilon=float(sys.argv[3]))
    for i in range(int(sys.argv[2])):
        try:
            ledger.charge(event)
        except dpcore.BudgetExceededError:
            print("refused", flush=True)
            break
        print(i, flush=True)
"""


def test_many_processes_and_kills_never_overspend_and_lose_nothing(path):
    """8 processes x 1000 reservations; half of the processes are killed on the way."""
    loss, n = 2.0**-10, 1000
    ledger = dpcore.Ledger(path, epsilon=5000.5 * loss)
    workers = [run(WORKER, path, n, loss) for _ in range(8)]
    chance = random.Random(7)
    time.sleep(1.0)
    for worker in workers[:4]:
        time.sleep(chance.uniform(0.0, 0.15))
        worker.send_signal(signal.SIGKILL)
    reported = 0
    for worker in workers:
        out, err = worker.communicate(timeout=900)
        assert not err, err
        reported += sum(line != "refused" for line in out.split())
    entries = ledger.entries
    assert [entry.number for entry in entries] == list(range(1, len(entries) + 1))
    assert len(entries) <= 5000
    # A process may have died after its reservation and before it said so.
    assert reported <= len(entries) <= reported + 4
    assert ledger.spent[0] == pytest.approx(len(entries) * loss, rel=1e-9)
    assert ledger.spent[0] <= ledger.epsilon


def test_concurrent_processes_stop_at_the_budget(path):
    loss = 2.0**-8
    dpcore.Ledger(path, epsilon=100.5 * loss)
    workers = [run(WORKER, path, 60, loss) for _ in range(4)]
    lines = [line for worker in workers for line in worker.communicate(timeout=900)[0].split()]
    assert sum(line != "refused" for line in lines) == 100
    assert len(dpcore.Ledger(path).entries) == 100


def test_creation_by_many_processes_at_once(path):
    program = "import sys, dpcore; dpcore.Ledger(sys.argv[1], epsilon=2.0); print('made')"
    workers = [run(program, path) for _ in range(6)]
    for worker in workers:
        out, err = worker.communicate(timeout=900)
        assert out == "made\n", err
    assert [p.name for p in path.parent.iterdir() if "tmp" in p.name or p.name[0] == "."] == []


def test_a_forked_child_charges_the_same_ledger(path):
    with dpcore.Ledger(path, epsilon=1.0) as ledger:
        dpcore.histogram([0], 2, epsilon=0.25)
        child = os.fork()
        if child == 0:
            try:
                dpcore.histogram([0], 2, epsilon=0.5)
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        dpcore.histogram([0], 2, epsilon=0.125)
    assert ledger.spent[0] == pytest.approx(0.875)


def test_a_crash_after_the_reservation_leaves_it_spent(path):
    program = """
        import os, signal, sys, dpcore
        from dpcore.accounting import PureEvent
        dpcore.Ledger(sys.argv[1], epsilon=1.0).charge(PureEvent(mechanism="x", epsilon=0.5))
        os.kill(os.getpid(), signal.SIGKILL)
    """
    run(program, path).communicate(timeout=900)
    assert dpcore.Ledger(path).spent == (pytest.approx(0.5), 0.0)


# Reports


def test_report_and_command_line(path, capsys):
    with dpcore.Ledger(path, epsilon=3.0) as ledger:
        for _ in range(3):
            dpcore.histogram([0], 2, epsilon=0.5)
        with ledger.part("day", 1):
            dpcore.bounded_sum([0.5], 0, 1, epsilon=0.25)
    ledger.report()
    text = capsys.readouterr().out
    assert "1-3" in text
    assert "bounded_sum" in text
    assert "spent   epsilon 1.75" in text
    assert main(["account", str(path)]) == 0
    assert capsys.readouterr().out == text
    assert "epsilon 1.75 of 3" in repr(ledger)


def test_the_command_refuses_what_is_no_ledger(tmp_path, capsys):
    (tmp_path / "notes.txt").write_text("hello")
    assert main(["account", str(tmp_path / "notes.txt")]) == 1
    assert "not a ledger" in capsys.readouterr().err
    assert main(["account", str(tmp_path / "missing.sqlite")]) == 1
    assert not (tmp_path / "missing.sqlite").exists()


@pytest.mark.parametrize(
    ("budget", "name"),
    [
        ({}, "epsilon"),
        ({"delta": 0.1}, "delta"),
        ({"epsilon": 0}, "epsilon"),
        ({"epsilon": math.nan}, "epsilon"),
        ({"epsilon": 1.0, "delta": 1.0}, "delta"),
        ({"epsilon": 1.0, "durability": "none"}, "durability"),
    ],
)
def test_bad_budgets_are_named_and_leave_no_file(path, budget, name):
    with pytest.raises(ParameterError, match=f"'{name}'"):
        dpcore.Ledger(path, **budget)
    assert not path.exists()


def test_bad_events_and_names(path):
    ledger = dpcore.Ledger(path, epsilon=1.0)
    with pytest.raises(ParameterError, match="'event'"):
        ledger.charge("histogram")
    for events in ([], [pure(0.5), "histogram"], None):
        with pytest.raises(ParameterError, match="'event'"):
            ledger.charge(events)
    for parts in ([], 5, ["readings"]):
        with pytest.raises(ParameterError, match="'parts'"):
            ledger.charge(pure(0.5), parts=parts)
    with pytest.raises(ParameterError, match="'ids'"):
        ledger.keyed()
    with pytest.raises(ParameterError, match="'ids'"):
        ledger.keyed(1.5)
    with pytest.raises(ParameterError, match="'repeat'"):
        ledger.keyed("a", repeat="maybe")
    assert ledger.entries == []
