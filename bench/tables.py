"""The tables of the README, from recorded results: ``python -m bench.tables --write README.md``.

A table stands between ``<!-- table: NAME -->`` and ``<!-- end of NAME -->``; everything else is
left alone. A test compares the tables with the results.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

from bench.repro import summary
from bench.repro.admm import report as admm
from bench.repro.ldp import report as ldp
from bench.repro.lstm import report as lstm
from bench.repro.lstm.data import SETS
from bench.repro.lvq.report import EXPECTED as LVQ_EXPECTED
from bench.runner import RESULTS, origin
from dpcore._files import replace_bytes

HERE = Path(__file__).parent
README = HERE.parent / "README.md"
GMLVQ = "private GMLVQ epoch, 14,000 x 784, rank 60, lots of 1400"
# Suite, beginning of the row's name, what is done, the peer.
SPEED = (
    ("noise", "discrete Laplace, epsilon 1 / NumPy", "Laplace noise", "NumPy, not secure"),
    ("noise", "discrete Laplace, epsilon 1 / OpenDP", "Laplace noise", "OpenDP"),
    (
        "noise",
        "Gaussian release, sigma 10 / NumPy",
        "Gaussian noise on integers",
        "NumPy, not secure",
    ),
    ("noise", "discrete Gaussian, sigma 10 / OpenDP", "discrete Gaussian noise", "OpenDP"),
    ("noise", "ChaCha20 keystream / OpenSSL", "ChaCha20 keystream", "OpenSSL"),
    ("noise", "Generator.random on ChaCha20", "NumPy generator on ChaCha20", "randomgen"),
    ("local", "encode optimal(16) / vectorised", "reports of devices", "vectorised NumPy"),
    ("llp", "k-means, 10^6 x 5, K 64, 1 thread", "k-means", "scikit-learn"),
    ("forecast", "training, 74 nodes, B 64, H 16, 1", "LSTM of 74 nodes", "torch, node by node"),
    ("lvq", f"{GMLVQ} / Opacus", "epoch of private GMLVQ", "Opacus"),
    ("lvq", f"{GMLVQ} / torch.func", "epoch of private GMLVQ", "torch.func"),
    ("federated", "ADMM round", "ADMM round of 1000 users", "SciPy, user by user"),
    ("secure", "masks of 100 peers, 10^6 32-bit", "masks of secure sums", "Flower"),
    ("secure", "secret sharing", "secret sharing, 67 of 100", "PyCryptodome"),
)


def peers() -> list[str]:
    """What others have; a test checks that what dpcore is said to have exists."""
    content = json.loads((HERE / "peers.json").read_text())
    names = ["dpcore", *content["peers"]]
    lines = ["| | " + " | ".join(names) + " |", "|---" * (1 + len(names)) + "|"]
    for row in content["rows"]:
        ours = row.get("dpcore_says", "**yes**") if row["dpcore"] else "no"
        cells = [ours, *("-" if cell == "no" else cell for cell in row["peers"])]
        lines.append(f"| {row['what']} | " + " | ".join(cells) + " |")
    noise = json.loads((RESULTS / "noise.json").read_text())
    lines += ["", content["note"]]
    lines += [f"Not compared for speed: {text}" for text in noise.get("left_out", [])]
    return lines


def short(value: float) -> str:
    """Three digits, without powers of ten."""
    return f"{float(f'{value:.3g}'):,.0f}" if value >= 100 else f"{value:.3g}"


def speed() -> list[str]:
    """The main rows of all comparisons."""
    payloads = {name: json.loads((RESULTS / f"{name}.json").read_text()) for name, *_ in SPEED}
    lines = [
        "| | beside | dpcore | other | unit | times as fast |",
        "|---|---|---|---|---|---|",
    ]
    for suite, begin, what, peer in SPEED:
        [row] = [row for row in payloads[suite]["rows"] if row["name"].startswith(begin)]
        low, _, high = map(short, row["ratio_quartiles"])
        lines.append(
            f"| {what} | {peer} | {short(row['ours'])} | {short(row['peer'])} | {row['unit']} "
            f"| **{short(row['ratio'])}** ({low} to {high}) |"
        )
    here = payloads["noise"]["machine"]
    return [
        *lines,
        "",
        "One thread. Speeds are the best of several runs that alternate, and so is their ratio; in "
        "brackets the quartiles of the ratios of single runs, which other work on the machine "
        f"blurs. {origin(here)} All rows, and how each result was checked in the same run: "
        "[bench/RESULTS.md](bench/RESULTS.md).",
    ]


def reproductions() -> list[str]:
    """One or two lines of each experiment."""
    lines = ["| experiment | the paper | its method, run here | dpcore |", "|---|---|---|---|"]
    found = Counter(row["verdict"] for row in ldp.compare(summary.read("ldp/results.json")))
    claims = ", ".join(f"{found[word]} {word}" for word in ("confirmed", "open", "refuted"))
    lines.append(f"| orderings of local mechanisms | {sum(found.values())} claims | {claims} | |")
    cities = summary.read("llp/results.json")["cities"]

    def both(*path: str) -> str:
        values = []
        for city in cities.values():
            value: Any = city
            for key in path:
                value = value[key]
            values.append(f"{value['mean']:.0f} %")
        return " and ".join(values)

    lines.append(
        "| label proportions, epsilon 0.1, other cities, accuracy | 63 % "
        f"| {both('epsilon', 'relative', 'p-LLP, literal, own noisy', '0.1')} "
        f"| {both('epsilon', 'relative', 'p-LLP 2/eps, monotone', '0.1')} |"
    )
    row = "ToDense, eps 0.5"
    for name in (name for name in SETS if name not in lstm.BESIDE):
        cells = summary.read(f"lstm/{name}.json")["cells"]
        paper, alone = (lstm.PUBLISHED[name][lstm.ROWS.index(key)] for key in (row, "Local"))
        here = [
            f"{cells[mode][row]['mse']:.3f}; {cells[mode]['Local']['mse']:.3f}"
            for mode in ("compat", "honest")
        ]
        lines.append(
            f"| forecasts on {SETS[name][1]}, epsilon 0.5, squared error; without neighbours "
            f"| {paper:.3f}; {alone:.3f} | {here[0]} | {here[1]} |"
        )
    cells = summary.read("lvq/table1.json")["cells"]
    for dataset in ("mnist", "segment"):
        paper = LVQ_EXPECTED["paper"][dataset]["gmlvq"]["dp-1.5"][0]
        lines.append(
            f"| private GMLVQ on {dataset}, epsilon 1.5, test error | {paper:.3f} "
            f"| {cells[f'{dataset}-paper-gmlvq-dp-1.5']['mean']:.3f} "
            f"| {cells[f'{dataset}-ours-gmlvq-dp-1.5']['mean']:.3f} |"
        )
    results = summary.read("admm/results.json")
    published, gradients = (admm.row(results, n) for n in ("as published, rho 1", "gradients"))
    lines.append(
        "| federated ADMM on Adult, 100 users, accuracy (centralised "
        f"{results['central']:.3f}, each alone {results['local only']['100']:.3f}); true epsilon "
        "of all rounds | near centralised, above each alone "
        f"| {published['accuracy']:.3f}; {published['total epsilon']:.2f} "
        f"| {gradients['accuracy']:.3f}; {gradients['total epsilon']:.2f} |"
    )
    return [
        *lines,
        "",
        "dpcore's own methods differ from the papers', and their few constants were chosen on "
        "these public data sets. Where a paper is met, where it is not, and why: "
        "[bench/REPRODUCTIONS.md](bench/REPRODUCTIONS.md).",
    ]


TABLES = {"peers": peers, "speed": speed, "reproductions": reproductions}


def fill(text: str) -> str:
    """The text with its tables made anew."""
    for name, make in TABLES.items():
        begin, end = f"<!-- table: {name} -->", f"<!-- end of {name} -->"
        pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
        if len(pattern.findall(text)) != 1:
            raise SystemExit(f"the page must hold one table of the name {name}")
        body = "\n".join([begin, "", *make(), "", end])
        text = pattern.sub(lambda _, body=body: body, text)
    return text


def main(given: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench.tables", description=__doc__)
    parser.add_argument("--write", type=Path, nargs="?", const=README, metavar="FILE")
    target: Path | None = parser.parse_args(given).write
    if target is None:
        for make in TABLES.values():
            print("\n".join(make()), end="\n\n")
    else:
        replace_bytes(target, fill(target.read_text()).encode())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
