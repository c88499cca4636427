"""``dpcore federate keys|server|client``: federated learning over Flower."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from dpcore.commands import Commands, add_command

_NODE_KEY = "node.key"
_FOLDER = (
    "folder for this party's keys and memory: keep it secret, and do not put it back to an earlier "
    "state"
)
_SERVER_TEXT = """\
example:
  dpcore federate server study.toml --folder coordinator --host 0.0.0.0 \\
      --certificate server.crt --key server.key --authority ca.crt \\
      --node site-a.pub --node site-b.pub

The certificate must name the host that clients connect to, and 127.0.0.1 where --host is
0.0.0.0. Killed and started again like this, the server goes on where it was.
"""
_CLIENT_TEXT = """\
example:
  dpcore federate client study.toml --folder site-a --authority ca.crt \\
      --server coordinator.example:8000 --data 0=ward-1.csv --data 1=ward-2.csv

The folder is the one in which 'dpcore federate keys' made the keys. Killed and started again
like this, the client goes on where it was.
"""


def add(commands: Commands) -> None:
    federate = add_command(commands, "federate", run, "learn with others, without showing data")
    parts = federate.add_subparsers(required=True, metavar="part", dest="part")

    keys = _add_part(parts, "keys", "make the keys of a node, and print their public halves")
    keys.add_argument("--folder", required=True, type=Path, help=_FOLDER)
    keys.add_argument(
        "--client",
        required=True,
        type=int,
        action="append",
        metavar="N",
        help="number of a client whose data this node holds; may be given again",
    )

    server = _add_part(parts, "server", "run the rounds and write the model", _SERVER_TEXT)
    client = _add_part(parts, "client", "answer for the clients of this machine", _CLIENT_TEXT)
    for part in (server, client):
        part.add_argument("agreement", type=Path, help="TOML file of the terms that all agreed on")
        part.add_argument("--folder", required=True, type=Path, help=_FOLDER)
        part.add_argument(
            "--authority",
            type=Path,
            metavar="FILE",
            help="certificate of the authority that signed the server's",
        )
        part.add_argument(
            "--insecure", action="store_true", help="no TLS and no node keys: for trials only"
        )
    server.add_argument(
        "--host",
        default="127.0.0.1",
        help="address to listen on (default: %(default)s, which only this machine reaches)",
    )
    server.add_argument(
        "--port", type=int, default=8000, help="port to listen on (default: %(default)s)"
    )
    server.add_argument(
        "--certificate", type=Path, metavar="FILE", help="certificate of this server"
    )
    server.add_argument(
        "--key", type=Path, metavar="FILE", help="private key of the server's certificate"
    )
    server.add_argument(
        "--node",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="public key (node.key.pub) of a node that may connect; may be given again",
    )
    server.add_argument(
        "--timeout", type=float, metavar="SECONDS", help="give up after this time (default: never)"
    )
    client.add_argument(
        "--server", required=True, metavar="HOST:PORT", help="address of the server"
    )
    client.add_argument(
        "--data",
        required=True,
        action="append",
        metavar="N=FILE",
        help="data of client N, a .npz, .csv or .parquet file; may be given again",
    )
    client.add_argument(
        "--ledger",
        type=Path,
        metavar="FILE",
        help="one budget for the data of all clients here (default: one for each client)",
    )
    for name in ("--epsilon", "--delta"):
        client.add_argument(
            name, type=float, help="budget of a new ledger (default: what the agreement needs)"
        )


def _add_part(parts: Commands, name: str, text: str, more: str = "") -> argparse.ArgumentParser:
    return parts.add_parser(
        name,
        help=text,
        description=text.capitalize() + ".",
        epilog=more,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def run(given: argparse.Namespace) -> int:
    return {"keys": _keys, "server": _server, "client": _client}[given.part](given)


def _keys(given: argparse.Namespace) -> int:
    from dpcore.interop.flower.launch import make_node_key
    from dpcore.interop.flower.member import make_keys
    from dpcore.interop.flower.node import client_folder

    print("# for the section [clients] of the agreement")
    for number in given.client:
        print(f'{number} = "{make_keys(client_folder(given.folder, number)).hex()}"')
    print(f"# for the server: {make_node_key(given.folder / _NODE_KEY)}")
    return 0


def _server(given: argparse.Namespace) -> int:
    from dpcore._files import replace_bytes
    from dpcore.errors import RefusedError
    from dpcore.interop.flower.agreement import Agreement
    from dpcore.interop.flower.launch import ServerProcess, stop_on_signal

    channel = _channel(given, given.host, given.port)
    _check_files("certificate", given.certificate)
    _check_files("key", given.key)
    _check_files("node", *given.node)
    terms = Agreement.from_file(given.agreement)
    given.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    copy = given.folder / "federation.toml"
    if not copy.exists():
        replace_bytes(copy, given.agreement.read_bytes())
    if Agreement.from_file(copy).digest != terms.digest:
        raise RefusedError("This folder belongs to another agreement.")
    stop_on_signal()
    try:
        with ServerProcess(
            given.folder,
            channel,
            certificate=given.certificate,
            key=given.key,
            node_keys=given.node,
        ) as server:
            server.begin()
            _say(f"listening on {channel.address}, waiting for clients; stop with Ctrl-C")
            print(server.wait(given.timeout, _say))
    except KeyboardInterrupt:
        return 130
    return 0


def _client(given: argparse.Namespace) -> int:
    from dpcore.errors import ParameterError
    from dpcore.interop.flower.agreement import Agreement
    from dpcore.interop.flower.data import load
    from dpcore.interop.flower.launch import NodeProcess, stop_on_signal
    from dpcore.interop.flower.node import enrol

    files = {}
    for text in given.data:
        number, found, path = text.partition("=")
        if not found or not number.isdecimal():
            raise ParameterError("The '--data' option must be like 3=file.csv.")
        files[int(number)] = Path(path)
    host, _, port = given.server.rpartition(":")
    if not host or not port.isdecimal():
        raise ParameterError("The '--server' option must be like host:8000.")
    channel = _channel(given, host, int(port))
    terms = Agreement.from_file(given.agreement)
    _check_keys(given, [number for number in files if number in terms.clients])
    budget = {"ledger": given.ledger, "epsilon": given.epsilon, "delta": given.delta}
    enrol(given.folder, given.agreement, files, **budget)
    for path in files.values():
        load(path, terms)  # what is wrong with the data shows here, not in the middle of a round
    stop_on_signal()
    _say(f"answering for clients {', '.join(map(str, sorted(files)))}; stop with Ctrl-C")
    key = None if given.insecure else given.folder / _NODE_KEY
    NodeProcess(given.folder, channel, key=key).keep(_say)
    return 0


def _check_keys(given: argparse.Namespace, numbers: list[int]) -> None:
    """Refuse a folder without keys: new ones would not be those that the agreement names."""
    from dpcore.errors import ParameterError
    from dpcore.interop.flower.node import client_folder

    owners = {f"client {n}": client_folder(given.folder, n) / "identity.key" for n in numbers}
    if not given.insecure:
        owners["this node"] = given.folder / _NODE_KEY
    for owner, path in owners.items():
        if not path.is_file():
            raise ParameterError(
                f"There are no keys of {owner} in this folder; make them with dpcore federate keys."
            )


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _check_files(option: str, *paths: Path | None) -> None:
    from dpcore.errors import ParameterError

    for path in paths:
        if path is not None and not path.is_file():
            raise ParameterError(f"There is no file {path}, which '--{option}' names.")


def _channel(given: argparse.Namespace, host: str, port: int) -> Any:
    from dpcore.interop.flower.launch import Channel

    _check_files("authority", given.authority)
    return Channel(host.strip("[]"), port, given.authority, given.insecure)
