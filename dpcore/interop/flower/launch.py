"""Starts Flower's processes as a federation needs them: offline, with TLS and node keys."""

from __future__ import annotations

import errno
import importlib.util
import json
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType, TracebackType

from dpcore._files import replace_bytes, sync
from dpcore.errors import ParameterError, ProtocolError
from dpcore.interop.flower.processes import Place, Process
from dpcore.interop.flower.transport import FOLDER, NODE_FOLDER, PULSE, RUN, failure_file

__all__ = [
    "Channel",
    "NodeProcess",
    "ServerProcess",
    "environment",
    "free_port",
    "make_node_key",
    "stop_on_signal",
    "write_app",
]

_CONNECTION = "federation"
_LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}
_DATABASE = "superlink.db"  # nodes need not register again with a SuperLink that was restarted
# Not Flower's own, which runs any app. Nothing is imported from where it is started (-P).
_SUPERNODE = (sys.executable, "-P", "-m", "dpcore.interop.flower.guard")
_STATUS = "status.txt"  # a public line, which the server in the SuperLink writes
_REGISTERED = "registered.txt"
_KNOWN = "Public key already in use"  # Flower's answer where a node is registered again
_START_SECONDS = 120.0  # a busy machine takes long to import Flower
_PULSE_SECONDS = 30.0
_SHORTEST_PAUSE, _LONGEST_PAUSE = 5.0, 60.0  # before a node is started again
_PATIENT_STARTS = 3

_PROJECT = """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "dpcore-federation"
version = "1.0.0"
description = "Hands messages over to the dpcore installed on each machine"
license = "Apache-2.0"
dependencies = []

[tool.hatch.build.targets.wheel]
packages = ["."]

[tool.flwr.app]
publisher = "dpcore"

[tool.flwr.app.components]
serverapp = "dpcore_federation.apps:server"
clientapp = "dpcore_federation.apps:client"

[tool.flwr.app.config]
"""
_APPS = """\
from dpcore.interop.flower.transport import client_app, server_app

server = server_app()
client = client_app()
"""


def _say_nothing(text: str) -> None:
    """The report of who wants none."""


@dataclass(frozen=True)
class Channel:
    """How the SuperLink is reached.

    Parameters
    ----------
    host, port
        Where nodes connect to; for the server itself, where it listens.
    authority : path, optional
        Certificate of the authority that signed the server's.
    insecure : bool
        No TLS and no node keys: for trials on one machine.
    """

    host: str
    port: int
    authority: Path | None = None
    insecure: bool = False

    def __post_init__(self) -> None:
        if self.insecure == (self.authority is not None):
            raise ParameterError("Give the certificate of an authority, or 'insecure', not both.")
        if self.authority is not None:  # Flower refuses relative paths
            object.__setattr__(self, "authority", self.authority.resolve())

    @property
    def address(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def local(self) -> Channel:
        """How the server's own machine reaches it: no certificate names a wildcard."""
        return replace(self, host=_LOOPBACK.get(self.host, self.host))


def environment(home: Path) -> dict[str, str]:
    """Variables under which Flower keeps to itself: no telemetry, no look for updates, no pip."""
    programs = str(Path(sys.executable).parent)
    return {
        **os.environ,
        "PATH": os.pathsep.join([programs, os.environ.get("PATH", "")]),
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.1",
        "COLUMNS": "200",  # else a narrow terminal breaks the answers that are looked for
    }


def write_app(folder: Path) -> Path:
    """The app that Flower ships to the nodes: a shim that calls the dpcore installed there."""
    package = folder / "dpcore_federation"
    package.mkdir(parents=True, exist_ok=True)
    (folder / "pyproject.toml").write_text(_PROJECT)
    (package / "__init__.py").write_text("")
    (package / "apps.py").write_text(_APPS)
    return folder


def make_node_key(path: Path) -> Path:
    """A key by which the SuperLink knows a node, unless there is one; returns its public half."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    if not path.exists():
        made = ec.generate_private_key(ec.SECP384R1()).private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.OpenSSH,
            serialization.NoEncryption(),
        )
        _create_bytes(path, made)
    public = path.with_name(path.name + ".pub")
    if not public.exists():
        try:
            key = serialization.load_ssh_private_key(path.read_bytes(), None)
        except ValueError:
            raise ParameterError(f"There is no key of a node in the file {path}.") from None
        text = key.public_key().public_bytes(
            serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
        )
        replace_bytes(public, text)
    return public


def _create_bytes(path: Path, content: bytes) -> None:
    """A new file for its owner alone, complete or not there at all; one that exists is kept."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    replace_bytes(part, content, mode=0o600)
    try:
        with suppress(FileExistsError):
            os.link(part, path)
    finally:
        part.unlink()
    sync(path.parent)


class ServerProcess:
    """A SuperLink, and in it the server of a federation, until it has its result.

    Parameters
    ----------
    folder : path
        With ``federation.toml``; holds the server's state, Flower's home, and in the end the
        result.
    channel : Channel
    certificate, key : path
        Of the server, for TLS. The certificate must name the host that nodes connect to and, where
        the channel's host is a wildcard, the loopback address: the server connects to itself.
    node_keys : sequence of path
        Public keys of the nodes that may connect.
    """

    def __init__(
        self,
        folder: Path,
        channel: Channel,
        *,
        certificate: Path | None = None,
        key: Path | None = None,
        node_keys: Sequence[Path] = (),
    ) -> None:
        if not channel.insecure and (certificate is None or key is None or not node_keys):
            raise ParameterError("TLS needs a certificate, its key, and the keys of the nodes.")
        _check_installed()
        self.folder = folder = folder.resolve()
        self.channel = channel
        self._node_keys = node_keys
        home = folder / "flwr"
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._place = Place(folder, "superlink")
        try:
            _check_port(channel)
        except ParameterError:
            self._place.leave()
            raise
        self._failure = failure_file(folder, run := secrets.token_hex(8))
        self._variables = environment(home) | {FOLDER: str(folder), RUN: run}
        self._write_config(home)
        self._app = write_app(folder / "app")
        self._submitted = 0.0
        (folder / _STATUS).unlink(missing_ok=True)  # that of an earlier start
        command = [
            "flower-superlink",
            "--host",
            channel.host,
            "--port",
            str(channel.port),
            "--disable-runtime-dependency-installation",
            "--database",
            str(folder / _DATABASE),
        ]
        if channel.insecure:
            command.append("--insecure")
        else:
            command.append("--enable-supernode-auth")
            for name, path in (("cert", certificate), ("key", key), ("ca-cert", channel.authority)):
                if path is not None:
                    command += [f"--ssl-{name}file", str(path.resolve())]
        self.process = self._place.start(command, self._variables)

    def _write_config(self, home: Path) -> None:
        # Flower's own default names an address outside.
        lines = ["[superlink]", f'default = "{_CONNECTION}"', f"[superlink.{_CONNECTION}]"]
        lines.append(f'address = "{self.channel.local.address}"')
        if self.channel.insecure:
            lines.append("insecure = true")
        else:
            lines.append(f"root-certificates = {json.dumps(str(self.channel.authority))}")
        (home / "config.toml").write_text("\n".join(lines) + "\n")

    def begin(self) -> None:
        """Wait for the SuperLink, let the nodes in, and start the server in it."""
        end = time.monotonic() + _START_SECONDS
        while not _is_open(self.channel.local):
            if self.process.popen.poll() is not None or time.monotonic() > end:
                raise ProtocolError("The SuperLink did not start; see superlink.log.")
            time.sleep(0.1)
        known = self.folder / _REGISTERED
        before = known.read_text().splitlines() if known.exists() else []
        for public in self._node_keys:
            text = public.read_text().strip()
            if text not in before:
                # A kill may have come between this and the note of it.
                self._flwr("supernode", "register", str(public), _CONNECTION, accept=_KNOWN)
                before.append(text)
                replace_bytes(known, ("\n".join(before) + "\n").encode())
        self._submit()

    def _submit(self) -> None:
        self._flwr("run", str(self._app), _CONNECTION)
        self._submitted = time.time()

    def _flwr(self, *arguments: str, accept: str | None = None) -> None:
        try:
            done = subprocess.run(
                ["flwr", *arguments],
                env=self._variables,
                capture_output=True,
                text=True,
                timeout=_START_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise ProtocolError(f"Flower did not answer to '{arguments[0]}' in time.") from None
        with self._place.log.open("a") as file:
            file.write(done.stdout + done.stderr)
        if done.returncode and (accept is None or accept not in done.stdout + done.stderr):
            raise ProtocolError(f"Flower did not accept '{arguments[0]}'; see superlink.log.")

    def wait(
        self, timeout: float | None = None, report: Callable[[str], None] = _say_nothing
    ) -> Path:
        """The result, once it is there. A server that dies is started again, and goes on.

        `report` is told what the server says of its state, whenever that changes.
        """
        result, end, said = self.folder / "model.json", None, ""
        if timeout is not None:
            end = time.monotonic() + timeout
        while not result.exists():
            if (status := self._status()) not in ("", said):
                report(said := status)
            if self._failure.exists():
                raise ProtocolError(f"The server stopped: {self._failure.read_text().strip()}")
            if self.process.popen.poll() is not None:
                raise ProtocolError("The SuperLink ended; see superlink.log.")
            if end is not None and time.monotonic() > end:
                raise ProtocolError("The federation was not finished in time.")
            if time.time() > self._next_pulse():
                self._submit()
            time.sleep(0.2)
        return result

    def _status(self) -> str:
        try:
            return (self.folder / _STATUS).read_text().strip()
        except FileNotFoundError:
            return ""

    def _next_pulse(self) -> float:
        """When a server that lives has shown it at the latest."""
        try:
            last = (self.folder / PULSE).stat().st_mtime
        except FileNotFoundError:
            last = 0.0
        return max(self._submitted + _START_SECONDS, last + _PULSE_SECONDS)

    def stop(self) -> None:
        self.process.stop()
        self._place.leave()

    def __enter__(self) -> ServerProcess:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


class NodeProcess:
    """A SuperNode for the clients of a folder made by `dpcore.interop.flower.enrol`.

    It runs dpcore's app only, and so needs the server's version of Flower.

    Parameters
    ----------
    folder : path
    channel : Channel
    key : path, optional
        Private key of the node, where there is TLS.
    """

    def __init__(self, folder: Path, channel: Channel, *, key: Path | None = None) -> None:
        if not channel.insecure and key is None:
            raise ParameterError("TLS needs the key of the node.")
        _check_installed()
        self.folder = folder = folder.resolve()
        home = folder / "flwr"
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._variables = environment(home)
        self._place = Place(folder, "supernode")
        self._command = [*_SUPERNODE, "--superlink", channel.address]
        self._command += ["--node-config", f'{NODE_FOLDER}="{folder}"']
        self._command += ["--host", "127.0.0.1"]
        if key is None or channel.insecure:
            self._command.append("--insecure")
        else:
            self._command += ["--root-certificates", str(channel.authority)]
            self._command += ["--auth-supernode-private-key", str(key.resolve())]
        self.process = self._start()

    def _start(self) -> Process:
        return self._place.start([*self._command, "--port", str(free_port())], self._variables)

    def keep(self, report: Callable[[str], None] = _say_nothing) -> None:
        """Start the node again whenever it ends, until this process is asked to stop.

        After a crash the SuperLink turns a node away for about a minute; `report` is told of a node
        that ends again and again.
        """
        quick = 0  # times in a row that it ended soon after its start
        try:
            while True:
                began = time.monotonic()
                self.process.popen.wait()
                quick = quick + 1 if time.monotonic() - began < _LONGEST_PAUSE else 0
                if quick >= _PATIENT_STARTS:
                    end = _last_line(self._place.log)
                    report(f"The node ended {quick} times in a row. Its log ends with: {end}")
                time.sleep(min(_SHORTEST_PAUSE * 2 ** max(quick - 1, 0), _LONGEST_PAUSE))
                self.process = self._start()
        except KeyboardInterrupt:
            self.stop()

    def stop(self) -> None:
        self.process.stop()
        self._place.leave()


def stop_on_signal() -> None:
    """Let SIGTERM and SIGHUP end this process as an interrupt does, and so what it started."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, stop)


def free_port() -> int:
    """A port of the loopback interface that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _check_installed() -> None:
    if importlib.util.find_spec("flwr") is None:
        raise ParameterError("Flower is not installed; it comes with the extra 'flower'.")


def _check_port(channel: Channel) -> None:
    """Refuse a port that somebody listens on: it would be taken for the SuperLink."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            channel.host, channel.port, type=socket.SOCK_STREAM
        )[0]
        with socket.socket(family, kind, protocol) as probe:
            # The connections of a server that just ended do not count.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ParameterError(f"Port {channel.port} is in use by another program.") from None
        raise ParameterError(f"This machine cannot listen on {channel.address}.") from None


def _last_line(log: Path) -> str:
    """What a person reads there, without colours."""
    lines = re.sub(r"\x1b\[[0-9;]*m", "", log.read_text(errors="replace")[-4000:]).split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def _is_open(channel: Channel) -> bool:
    try:
        with socket.create_connection((channel.host, channel.port), timeout=1):
            return True
    except OSError:
        return False
