"""``dpcore federate``: what it makes, what it refuses, and how it keeps Flower to itself."""

import sys

import pytest

if sys.version_info < (3, 11):
    pytest.skip("the extra 'flower' needs Python 3.11", allow_module_level=True)

import ast
import os
import socket
import subprocess
import time
from pathlib import Path

from flower_support import build, memory_folder

from dpcore import cli
from dpcore._files import replace_bytes
from dpcore.errors import ParameterError, RefusedError
from dpcore.interop.flower import guard, launch, processes
from dpcore.interop.flower.member import make_keys
from dpcore.interop.flower.node import client_folder


@pytest.fixture
def place():
    with memory_folder() as folder:
        yield folder


def federate(*arguments):
    return cli.main(["federate", *map(str, arguments)])


def test_keys_are_made_once_and_only_their_public_half_is_printed(place, capsys):
    command = ("keys", "--folder", place / "node", "--client", 3, "--client", 4)
    assert federate(*command) == 0
    first = capsys.readouterr().out
    assert federate(*command) == 0
    assert capsys.readouterr().out == first
    for number in (3, 4):
        folder = client_folder(place / "node", number)
        assert f'{number} = "{make_keys(folder).hex()}"' in first
        for name in ("identity.key", "noise.key"):
            assert (folder / name).read_bytes().hex() not in first
    assert (place / "node" / "node.key").stat().st_mode & 0o077 == 0
    assert (place / "node" / "node.key.pub").read_text().startswith("ecdsa-sha2-nistp384 ")


def test_a_node_key_is_complete_or_not_there(tmp_path, monkeypatch):
    key = tmp_path / "node.key"

    def die(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(launch.os, "link", die)
        with pytest.raises(KeyboardInterrupt):
            launch.make_node_key(key)
    assert not key.exists()
    public = launch.make_node_key(key)
    secret, text = key.read_bytes(), public.read_text()
    assert key.stat().st_mode & 0o077 == 0
    public.unlink()
    assert launch.make_node_key(key).read_text() == text
    assert key.read_bytes() == secret
    public.unlink()
    key.write_bytes(b"")
    with pytest.raises(ParameterError, match="no key of a node"):
        launch.make_node_key(key)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (("--data", "0", "--server", "localhost:1", "--insecure"), "'--data'"),
        (("--data", "0=0.npz", "--server", "localhost", "--insecure"), "'--server'"),
        (("--data", "0=0.npz", "--server", "localhost:1"), "authority, or 'insecure'"),
        (("--data", "99=0.npz", "--server", "localhost:1", "--insecure"), "'clients'"),
        (("--data", "2=0.npz", "--server", "localhost:1", "--insecure"), "no keys of client 2 "),
        (("--data", "0=0.npz", "--server", "h:1", "--authority", __file__), "no keys of this node"),
        (("--data", "0=0.npz", "--server", "h:1", "--authority", "ca.crt"), "no file ca.crt"),
        (("--data", "0=none.npz", "--server", "localhost:1", "--insecure"), "cannot be read"),
    ],
)
def test_a_client_that_cannot_start_says_why(place, capsys, changes, message):
    build(place, "fedsgd")
    command = ("client", place / "federation.toml", "--folder", place / "node-0", *changes)
    before = set(place.rglob("*.key"))
    assert federate(*command) == 1
    assert message in capsys.readouterr().err
    assert set(place.rglob("*.key")) == before


def test_a_server_that_cannot_start_says_why(place, capsys):
    build(place, "fedsgd")
    command = ("server", place / "federation.toml", "--folder", place / "server")
    assert federate(*command) == 1
    assert "authority, or 'insecure'" in capsys.readouterr().err
    (place / "ca.crt").touch()
    assert federate(*command, "--authority", place / "ca.crt") == 1
    assert "TLS needs a certificate" in capsys.readouterr().err
    for name in ("--certificate", "--key", "--node"):
        options = ("--authority", place / "ca.crt", name, place / "none.pem")
        assert federate(*command, *options) == 1
        assert f"which '{name}' names" in capsys.readouterr().err
    text = (place / "federation.toml").read_text().replace("epsilon = 4.0", "epsilon = 3.0")
    (place / "other.toml").write_text(text)
    command = ("server", place / "other.toml", "--folder", place / "server", "--insecure")
    assert federate(*command) == 1
    assert "another agreement" in capsys.readouterr().err
    assert federate("server", place / "none.toml", "--folder", place / "x", "--insecure") == 1
    assert "cannot be read" in capsys.readouterr().err


def test_flower_stays_at_home(tmp_path):
    variables = launch.environment(tmp_path)
    assert variables["FLWR_HOME"] == str(tmp_path)
    assert variables["FLWR_TELEMETRY_ENABLED"] == "0"
    assert variables["FLWR_DISABLE_UPDATE_CHECK"] == "1"
    assert variables["FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION"] == "1"


def test_the_app_that_is_shipped_holds_no_code_of_its_own(tmp_path):
    launch.write_app(tmp_path)
    tree = ast.parse((tmp_path / "dpcore_federation" / "apps.py").read_text())
    [imported] = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    assert imported.module == "dpcore.interop.flower.transport"
    rest = [ast.unparse(node) for node in tree.body if node is not imported]
    assert rest == ["server = server_app()", "client = client_app()"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Flower's imports
def test_a_node_knows_the_app_by_its_files(tmp_path):
    from flwr.cli.build import build_fab_from_disk

    own = guard.own_files()
    assert {name for name, _ in own} == {
        "pyproject.toml",
        "dpcore_federation/__init__.py",
        "dpcore_federation/apps.py",
        ".info/CONTENT",
    }
    app = launch.write_app(tmp_path / "app")
    assert guard.unpack(build_fab_from_disk(app)) == own
    (app / "dpcore_federation" / "more.py").touch()
    assert guard.unpack(build_fab_from_disk(app)) != own
    (app / "dpcore_federation" / "more.py").unlink()
    (app / "dpcore_federation" / "__init__.py").write_text("import os")
    assert guard.unpack(build_fab_from_disk(app)) != own
    assert guard.unpack(b"no archive") == []


def test_a_channel_is_secure_or_says_that_it_is_not(tmp_path):
    with pytest.raises(ParameterError, match="insecure"):
        launch.Channel("127.0.0.1", 1)
    with pytest.raises(ParameterError, match="insecure"):
        launch.Channel("127.0.0.1", 1, tmp_path, insecure=True)
    with pytest.raises(ParameterError, match="key of the node"):
        launch.NodeProcess(tmp_path, launch.Channel("127.0.0.1", 1, tmp_path))


@pytest.mark.parametrize(
    ("host", "listens", "connects"),
    [
        ("0.0.0.0", "0.0.0.0:8000", "127.0.0.1:8000"),
        ("::", "[::]:8000", "[::1]:8000"),
        ("server.example", "server.example:8000", "server.example:8000"),
    ],
)
def test_nobody_connects_to_a_wildcard(host, listens, connects):
    channel = launch.Channel(host, 8000, insecure=True)
    assert channel.address == listens
    assert channel.local.address == connects


def test_a_relative_path_is_made_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    channel = launch.Channel("127.0.0.1", 1, Path("ca.crt"))
    assert channel.authority == tmp_path / "ca.crt"


# Starts a process that does not end when asked to, with a child in a session of its own.
STUBBORN = """
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if sys.argv[1:]:
    print("ready", flush=True)
else:
    subprocess.Popen([sys.executable, __file__, "child"], start_new_session=True)
time.sleep(600)
"""
LAUNCHER = """
import os, sys, time
from pathlib import Path
from dpcore.interop.flower.processes import Place
place = Place(Path(sys.argv[1]), "test")
place.start([sys.executable, sys.argv[2]], os.environ)
time.sleep(600)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_what_a_killed_launcher_left_is_ended_by_the_next(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "_END_SECONDS", 0.5)
    log, record = tmp_path / "test.log", tmp_path / "test.pid"
    (tmp_path / "stubborn.py").write_text(STUBBORN)
    launcher = subprocess.Popen(
        [sys.executable, "-c", LAUNCHER, str(tmp_path), str(tmp_path / "stubborn.py")]
    )
    try:
        wait_until(lambda: log.exists() and "ready" in log.read_text())
        with pytest.raises(RefusedError, match="Another process"):
            processes.Place(tmp_path, "test")
    finally:
        launcher.kill()
        launcher.wait()
    left = processes._family(int(record.read_text().split()[0]))
    assert len(left) == 2
    processes.Place(tmp_path, "test").leave()
    assert not processes._left(left)


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_a_process_that_began_at_another_time_is_not_ours(tmp_path):
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as stranger:
        mark = processes._mark(stranger.pid)
        (tmp_path / "test.pid").write_text(f"{stranger.pid} {mark}0")
        processes.Place(tmp_path, "test").leave()
        assert processes._mark(stranger.pid) == mark
        stranger.kill()


def wait_until(condition):
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_port_that_is_taken_is_refused_before_anything_starts(place, capsys):
    build(place, "fedsgd")
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        command = ("server", place / "federation.toml", "--folder", place / "server")
        assert federate(*command, "--insecure", "--port", port) == 1
    assert f"Port {port} is in use" in capsys.readouterr().err
    assert not (place / "server" / "superlink.log").exists()


def test_a_node_that_ends_again_and_again_says_so_and_waits_longer(tmp_path, monkeypatch):
    program(tmp_path / "flower-supernode", "echo turned away")
    monkeypatch.setattr(launch, "_SUPERNODE", ("flower-supernode",))
    monkeypatch.setattr(launch, "environment", lambda home: {"PATH": str(tmp_path)})
    pauses, said = [], []
    monkeypatch.setattr(launch.time, "sleep", pauses.append)

    def report(text):
        said.append(text)
        if len(said) == 4:
            raise KeyboardInterrupt

    launch.NodeProcess(tmp_path, launch.Channel("127.0.0.1", 1, insecure=True)).keep(report)
    assert said[0] == "The node ended 3 times in a row. Its log ends with: turned away"
    assert pauses == [5.0, 10.0, 20.0, 40.0, 60.0]


def test_each_change_of_the_status_is_told_once(tmp_path, monkeypatch):
    program(tmp_path / "flower-superlink", "exec sleep 600")
    monkeypatch.setattr(launch, "environment", lambda home: {"PATH": f"{tmp_path}:{os.defpath}"})
    status = tmp_path / "status.txt"
    status.write_text("from an earlier start")
    said = []

    def report(text):
        said.append(text)
        if len(said) == 1:
            replace_bytes(status, b"round 2 of 3\n")
        else:
            (tmp_path / "model.json").touch()

    channel = launch.Channel("127.0.0.1", launch.free_port(), insecure=True)
    with launch.ServerProcess(tmp_path, channel) as server:
        (tmp_path / "pulse").touch()
        status.write_text("round 1 of 3\n")
        assert server.wait(60, report) == tmp_path / "model.json"
    assert said == ["round 1 of 3", "round 2 of 3"]


def program(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o700)
