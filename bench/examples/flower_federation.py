"""A federation as it is started on many machines, here on one: three nodes with two clients each.

    python -m bench.examples.flower_federation FOLDER

Six clients, of which each holds some records in a file of its own, learn a classifier by consensus
ADMM. The server sees sums of noisy vectors, Flower carries bytes, connections are TLS, and only
nodes whose keys the server was given may connect. Killed anywhere and started again with the same
folder, all go on where they were. Takes some minutes: Flower needs seconds for each message.
"""

from __future__ import annotations

import datetime
import ipaddress
import json
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import numpy as np

DPCORE = [sys.executable, "-m", "dpcore"]
NODES = ((0, 1), (2, 3), (4, 5))  # clients by node

AGREEMENT = """\
session = "example"
task = "admm"
features = ["age", "dose"]
bounds = [[0, 100], [0, 5]]
label = "cured"
classes = [0, 1]
epsilon = 4.0
rounds = 3
barrier = 4
max_delay = 3
patience = 30.0

[admm]
rho = 8.0
beta = 0.1
server = "curious"  # it follows the protocol: more than half of a round's clients must stay

[clients]
"""


def make_certificate(folder: Path) -> None:
    """A certificate for the loopback address that signs itself; elsewhere ask your authority."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.timezone.utc)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=30))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    (folder / "server.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (folder / "server.key").touch(mode=0o600)
    (folder / "server.key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )


def make_keys(folder: Path, nodes: tuple[tuple[int, ...], ...]) -> dict[int, str]:
    """Every node makes keys and tells only the public halves, in hexadecimal by client."""
    keys = {}
    for node, clients in enumerate(nodes):
        command = [*DPCORE, "federate", "keys", "--folder", str(folder / f"node-{node}")]
        for number in clients:
            command += ["--client", str(number)]
        printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        for line in printed.splitlines():
            if not line.startswith("#"):
                number, _, key = line.partition(" = ")
                keys[int(number)] = key.strip('"')
    return keys


def server_command(folder: Path, port: int, n_nodes: int) -> list[str]:
    """The server, with a certificate of its own and the public keys of the nodes."""
    command = [*DPCORE, "federate", "server", str(folder / "federation.toml")]
    command += ["--folder", str(folder / "server"), "--port", str(port)]
    command += ["--authority", str(folder / "server.crt")]
    command += ["--certificate", str(folder / "server.crt"), "--key", str(folder / "server.key")]
    for node in range(n_nodes):
        command += ["--node", str(folder / f"node-{node}" / "node.key.pub")]
    return command


def client_command(folder: Path, node: int, clients: tuple[int, ...], port: int) -> list[str]:
    """A node, with the agreement, the files of its clients, and the certificate to trust."""
    command = [*DPCORE, "federate", "client", str(folder / "federation.toml")]
    command += ["--folder", str(folder / f"node-{node}"), "--server", f"127.0.0.1:{port}"]
    command += ["--authority", str(folder / "server.crt")]
    for number in clients:
        command += ["--data", f"{number}={folder / f'{number}.csv'}"]
    return command


def write_data(path: Path, seed: int) -> None:
    generator = np.random.default_rng(seed)
    age, dose = generator.uniform(0, 100, 100), generator.uniform(0, 5, 100)
    cured = (dose / 5 - age / 100 + 0.1 * generator.normal(size=100) > 0).astype(int)
    rows = "\n".join(f"{a},{b},{c}" for a, b, c in zip(age, dose, cured, strict=True))
    path.write_text(f"age,dose,cured\n{rows}\n")


def main(folder: Path) -> None:
    from dpcore.interop.flower.launch import free_port

    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "federation.toml").exists():
        make_certificate(folder)
        keys = make_keys(folder, NODES)
        for number in keys:
            write_data(folder / f"{number}.csv", number)
        lines = "".join(f'{number} = "{key}"\n' for number, key in keys.items())
        (folder / "federation.toml").write_text(AGREEMENT + lines)
    port = free_port()
    with ExitStack() as stack:
        commands = [server_command(folder, port, len(NODES))]
        commands += [client_command(folder, i, clients, port) for i, clients in enumerate(NODES)]
        processes = []
        for command in commands:
            processes.append(subprocess.Popen(command))
            stack.callback(processes[-1].terminate)
            time.sleep(1.0)
        processes[0].wait()
    model = json.loads((folder / "server" / "model.json").read_text())
    print("coef", model["coef"], "intercept", model["intercept"])
    print("privacy", model["privacy"])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
