"""A real SuperLink and real SuperNodes on the loopback interface, some of them killed."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest

if sys.version_info < (3, 11):
    pytest.skip("the extra 'flower' needs Python 3.11", allow_module_level=True)

from flower_support import ADMM, ADMM_TERMS, DESCENT, DESCENT_TERMS, World, records, to_toml
from test_flower_consensus import check_invariants
from test_flower_descent import replay

from dpcore.interop.flower.agreement import Agreement
from dpcore.interop.flower.launch import environment, free_port, write_app
from dpcore.interop.flower.store import Store

# The commands of the example; where only an installed dpcore is tested there is none.
example = pytest.importorskip("bench.examples.flower_federation")
LONGEST = 900.0  # seconds, for a machine that is busy
PATIENCE = 120.0  # with a client that lives: a busy machine takes long to start one


def family(pid):
    """A process and all that descend from it, whichever thread started them."""
    children = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and (fields := stat(entry.name)):
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found = [pid]
    for one in found:
        found += children.get(one, [])
    return found


def stat(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def kill(process):
    """As if the machine had lost its power; all of its processes are dead afterwards."""
    pids = family(process.pid)
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    process.wait(60)
    end = time.monotonic() + 60
    while any(map(is_alive, pids)):
        assert time.monotonic() < end, "a process survived"
        time.sleep(0.05)


def is_alive(pid):
    """Whether a process runs; a dead one may still have an entry that nobody has fetched."""
    return stat(pid)[:1] not in ([], ["Z"])


@contextmanager
def running(command, log, folder=None):
    with log.open("ab") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, cwd=folder)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                kill(process)


def wait_for(condition, process, log):
    end = time.monotonic() + LONGEST
    while not condition():
        if process.poll() is not None or time.monotonic() > end:
            pytest.fail(f"exit code {process.poll()}\n{log.read_text()[-3000:]}")
        time.sleep(0.2)


def prepare(root, task, nodes, **options):
    """Keys by the command line, files of data, and the agreement."""
    base, terms = (ADMM, ADMM_TERMS) if task == "admm" else (DESCENT, DESCENT_TERMS)
    keys = {i: bytes.fromhex(key) for i, key in example.make_keys(root, nodes).items()}
    for i in keys:
        X, y = records(i)
        rows = np.column_stack([50 + 50 * X, y])
        np.savetxt(root / f"{i}.csv", rows, delimiter=",", header="a,b,c,y", comments="")
    path = root / "federation.toml"
    path.write_text(to_toml(task, keys, base | options, terms))
    return Agreement.from_file(path)


def history(root, agreement):
    path = root / "server" / "server.sqlite"
    if not path.exists():
        return []
    store = Store(path, agreement.digest)
    try:
        return json.loads(store.get("history") or b"[]")
    finally:
        store.close()


def insecure(command):
    """The same command for a trial without TLS and node keys."""
    words = {"--authority", "--certificate", "--key", "--node"}
    skip = {i + k for i, word in enumerate(command) if word in words for k in (0, 1)}
    return [word for i, word in enumerate(command) if i not in skip] + ["--insecure"]


@pytest.mark.slow
def test_a_killed_node_costs_nothing_but_itself(tmp_path):
    """Consensus ADMM with secure sums, TLS and node keys: two of six clients die on the way.

    The commands are those of the manual: relative paths, and a server that listens everywhere.
    """
    agreement = prepare(tmp_path, "admm", example.NODES, rounds=2, patience=PATIENCE)
    example.make_certificate(tmp_path)
    port, log = free_port(), tmp_path / "server.log"
    registered = tmp_path / "server" / "registered.txt"
    with ExitStack() as stack:
        # The same key under another name: as if a kill had come before the note that it is known.
        again = (tmp_path / "node-0" / "node.key.pub").read_text() + " again"
        (tmp_path / "again.pub").write_text(again)
        command = [*example.server_command(Path(), port, 3), "--host", "0.0.0.0"]
        command += ["--node", "again.pub"]
        server = stack.enter_context(running(command, log, tmp_path))
        wait_for(
            lambda: registered.exists() and registered.read_text().count("\n") == 4, server, log
        )
        nodes = []
        for i, mine in enumerate(example.NODES):
            command = example.client_command(Path(), i, mine, port)
            nodes.append(stack.enter_context(running(command, log, tmp_path)))
        wait_for(lambda: history(tmp_path, agreement), server, log)
        first = history(tmp_path, agreement)[0]
        victim = 2 if {4, 5} & set(first["participants"]) else 1
        kill(nodes[victim])
        assert server.wait(LONGEST) == 0, log.read_text()[-3000:]
    gone = set(example.NODES[victim])
    result = json.loads((tmp_path / "server" / "model.json").read_text())
    assert result["history"][0] == first
    assert gone & set(first["participants"])
    world = World(tmp_path, agreement)
    # Nobody, unless the machine was so busy that the kill came late.
    before = {one.number for one in world.members() if one.store.answered(2, "mask")} & gone
    assert gone & set(result["history"][1]["participants"]) <= before
    check_invariants(world)
    X, y = (np.concatenate(part) for part in zip(*map(records, range(100, 130)), strict=True))
    assert ((X @ result["coef"] + result["intercept"] > 0) == y).mean() > 0.7


# Has the name of dpcore's app, and shows that it ran on a node.
OTHER_APP = """
import time
from pathlib import Path

from flwr.app import Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

server = ServerApp()
client = ClientApp()


@server.main()
def main(grid, context):
    while True:
        for node in grid.get_node_ids():
            grid.push_messages([Message(RecordDict(), dst_node_id=node, message_type="query")])
        time.sleep(10)


@client.query()
def answer(message, context):
    Path({marker!r}).touch()
    return Message(RecordDict(), reply_to=message)
"""


def submit_other_app(root):
    app = write_app(root / "other")
    text = OTHER_APP.format(marker=str(root / "ran"))
    (app / "dpcore_federation" / "apps.py").write_text(text)
    variables = environment(root / "server" / "flwr")
    subprocess.run(["flwr", "run", str(app)], env=variables, timeout=LONGEST, check=True)


@pytest.mark.slow
def test_a_killed_server_goes_on_where_it_was(tmp_path):
    """LDP-FedSGD: only the launcher is killed; the rest of it ends, and another one goes on.

    Somebody who reaches the port sends another app, which no node runs.
    """
    nodes = ((0,), (1,), (2,))
    agreement = prepare(tmp_path, "fedsgd", nodes, rounds=3, barrier=3, patience=PATIENCE)
    port, log = free_port(), tmp_path / "server.log"
    command = insecure(example.server_command(tmp_path, port, 3))
    with ExitStack() as stack:
        first = stack.enter_context(running(command, log))
        for i, mine in enumerate(nodes):
            other = insecure(example.client_command(tmp_path, i, mine, port))
            stack.enter_context(running(other, log))
        wait_for(lambda: "listening" in log.read_text(), first, log)
        submit_other_app(tmp_path)
        told = [tmp_path / f"node-{i}" / "supernode.log" for i in range(3)]
        wait_for(lambda: any("was refused" in path.read_text() for path in told), first, log)
        wait_for(lambda: history(tmp_path, agreement), first, log)
        inside = int((tmp_path / "server" / "pulse").read_text())
        old = family(first.pid)
        assert inside in old
        first.kill()
        first.wait(60)
        kept = history(tmp_path, agreement)
        second = stack.enter_context(running(command, log))
        wait_for(lambda: not any(map(is_alive, old)), second, log)
        assert second.wait(LONGEST) == 0, log.read_text()[-3000:]
    assert history(tmp_path, agreement)[: len(kept)] == kept
    assert not (tmp_path / "ran").exists()
    world = World(tmp_path, agreement)
    result = json.loads((tmp_path / "server" / "model.json").read_text())
    np.testing.assert_allclose([*result["coef"], result["intercept"]], replay(world), rtol=1e-12)
    for member in world.members():
        assert [one.round for one in member.store.answers] == [1, 2, 3]
        assert int(member.store.get("devices")) == 60
        assert len(member.ledger.entries) == 1
