"""What secure aggregation costs against users and words: ``python -m bench.secure_costs``.

Writes bench/results/secure_costs.md. Times are CPU times of one thread; 10 % of the clients drop
out before they send their vectors.
"""

from __future__ import annotations

import time
from collections import defaultdict
from pathlib import Path

import numpy as np

import dpcore
from bench.runner import RESULTS
from dpcore.secure import Client, Identity, Parameters, Server, choose_degree

CASES = [
    (10, 10**3), (10, 10**5), (30, 10**3), (30, 10**5), (100, 10**3), (100, 10**4), (100, 10**5),
    (300, 10**3), (300, 10**4), (1000, 10**3), (1000, 10**4),
]  # fmt: skip
COMPLETE_UP_TO = 100


def cost(n: int, d: int, degree: int | None) -> tuple[float, ...]:
    """Milliseconds and bytes sent per client, seconds and bytes received of the server."""
    server_kind = "malicious" if degree is None else "curious"
    parameters = Parameters(
        b"costs", dimension=d, bound=8, max_clients=n, min_clients=n // 2 + 2, degree=degree,
        server=server_kind,
    )  # fmt: skip
    identities = [Identity() for _ in range(n)]
    directory = {i: one.public for i, one in enumerate(identities)}
    clients = [Client(i, one, directory, parameters) for i, one in enumerate(identities)]
    server = Server(parameters, directory, 1)
    x = np.zeros(d)
    spent: dict[str, float] = defaultdict(float)
    sent = received = 0

    def timed(who: str, call, *arguments):  # type: ignore[no-untyped-def]
        begin = time.process_time()
        result = call(*arguments)
        spent[who] += time.process_time() - begin
        return result

    inbox = dict.fromkeys(range(n), timed("server", server.begin))
    while server.stage != "done":
        stage = server.stage
        for number, text in inbox.items():
            if stage == "mask" and number % 10 == 0:
                continue
            received += len(text)
            arguments = (text, x) if stage == "mask" else (text,)
            answer = timed("client", getattr(clients[number], stage), *arguments)
            if answer is not None:
                sent += len(answer)
                timed("server", server.accept, number, answer)
        inbox = timed("server", server.advance)
    assert not server.result().words.any()
    return spent["client"] / n * 1e3, spent["server"], sent / n, received / n


def main() -> Path:
    dpcore.set_num_threads(1)
    lines = [
        "# Cost of a round against users and words",
        "",
        "64-bit words, 10 % dropouts before the vectors are sent, CPU time of one thread. Up to "
        f"{COMPLETE_UP_TO} users everybody masks with everybody (malicious server); beyond, the "
        "degree is `choose_degree(n, server='curious', corrupt=0.05)`.",
        "",
        "| users | words | degree | client, ms | server, s | client sends, KB | receives, KB |",
        "|---|---|---|---|---|---|---|",
    ]
    for n, d in CASES:
        degree = None
        if n > COMPLETE_UP_TO:
            degree = choose_degree(n, server="curious", corrupt=0.05)
        client, server, sent, received = cost(n, d, degree)
        lines.append(
            f"| {n} | {d} | {degree or n - 1} | {client:.3g} | {server:.3g} | {sent / 1e3:.4g} "
            f"| {received / 1e3:.4g} |"
        )
        print(lines[-1], flush=True)
    dpcore.set_num_threads(None)
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / "secure_costs.md"
    path.write_text("\n".join(lines) + "\n")
    return path


if __name__ == "__main__":
    print(main())
