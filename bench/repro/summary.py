"""The recorded reproductions on one page: ``python -m bench.repro.summary --write``.

Everything on it is read from bench/results; what a run did not record is said to be missing.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from bench.repro.admm import report as admm
from bench.repro.ldp import report as ldp
from bench.repro.llp import report as llp
from bench.repro.lstm import report as lstm
from bench.repro.lstm.data import SETS
from bench.repro.lvq.cells import COLUMNS, MODELS, N_RUNS, PAPER_RATE
from bench.repro.lvq.report import EXPECTED as LVQ_EXPECTED
from bench.repro.lvq.report import SEEDS as LVQ_SEEDS
from bench.repro.lvq.report import TITLES
from bench.runner import RESULTS
from dpcore._files import replace_bytes

PAGE = Path(__file__).parents[1] / "REPRODUCTIONS.md"
MISSING = "not recorded"
# For runs of before they were written down; each is a constant of the code that ran.
SEEDS = {
    "ldp": "0 to {last} for splits, orders and noise",
    "llp": "0 to {last} for noise, 0 for all choices",
    "lstm": "0 for weights and order, 5 for noise, 11 for outages",
    "lvq": LVQ_SEEDS,
    "admm": "0 to {last} for splits, schedule and noise",
}


def read(name: str) -> dict[str, Any]:
    return dict(json.loads((RESULTS / name).read_text()))


def origin(name: str, machine: dict[str, Any] | None, seeds: str, seconds: float | None) -> str:
    """Where, with what and how long: one line below each heading."""
    if machine is None:
        made = f"Machine and versions: {MISSING}"
    else:
        packages = ", ".join(f"{key} {value}" for key, value in machine["packages"].items())
        made = f"{machine['cpu']}, {machine['cpus']} CPUs, Python {machine['python']}, {packages}"
    time = f"run time: {MISSING}" if seconds is None else f"run time: {seconds:,.0f} s"
    return (
        f"{made}; {time}; seeds: {seeds}. Again: `dpcore reproduce {name} --data DIR`. "
        f"All tables: [bench/results/{name}](results/{name})."
    )


def seeds_of(name: str, last: int = 0) -> str:
    return SEEDS[name].format(last=last)


def ldp_section() -> list[str]:
    results = read("ldp/results.json")
    last = max(task["repeats"] for task in results["tasks"].values()) - 1
    lines = [
        "## Numbers from devices (`ldp`)",
        "",
        "LDP-FedSGD with eight mechanisms on Adult, WISDM and made-up data, epsilon 0.5 to 4. The "
        "paper's figures are curves without numbers; what can be compared is the ordering that it "
        "claims.",
        "",
        origin("ldp", results["machine"], seeds_of("ldp", last), results.get("seconds")),
        "",
        "| the paper claims | difference of errors here | verdict |",
        "|---|---|---|",
    ]
    for row in ldp.compare(results):
        lines.append(
            f"| {row['claim']} | {100 * row['difference']:+.1f} % "
            f"± {100 * row['standard error']:.1f} | {row['verdict']} |"
        )
    return lines


def llp_section() -> list[str]:
    results = read("llp/results.json")
    cities = results["cities"]
    seconds = [city.get("seconds") for city in cities.values()]
    known = None if None in seconds else float(sum(seconds))
    last = max(city["draws of judged rows"] for city in cities.values()) - 1
    lines = [
        "## Label proportions on road networks (`llp`)",
        "",
        "Accuracy in percent. The paper's cities are not public, so that its levels cannot be met; "
        "the shapes can.",
        "",
        origin("llp", results["machine"], seeds_of("llp", last), known),
        "",
        "| | the paper | " + " | ".join(cities) + " |",
        "|---|---|" + "---|" * len(cities),
    ]

    def row(label: str, paper: str, *path: str) -> str:
        found = []
        for city in cities.values():
            value = city
            for key in path:
                value = value[key]
            found.append(f"{value['mean']:.1f}")
        return f"| {label} | {paper} | " + " | ".join(found) + " |"

    lines += [
        row("LLP, b = 32, K = 16, published search", "67", "main", "relative", "LLP, search"),
        row("LLP, monotone labels (dpcore)", "", "main", "relative", "LLP, monotone"),
    ]
    for epsilon, paper in (("0.01", "32"), ("0.05", "48"), ("0.1", "63")):
        for name in ("p-LLP, literal, own noisy", "p-LLP 2/eps, monotone"):
            label = "published search, own table noisy" if "literal" in name else "dpcore"
            shown = paper if "literal" in name else ""
            lines.append(
                row(f"p-LLP, epsilon {epsilon}, {label}", shown, "epsilon", "relative", name,
                    epsilon)
            )  # fmt: skip
    lines += ["", *(f"- {name}: {llp.WHY[name]}" for name in ("epsilon", "level"))]
    return lines


def lstm_section() -> list[str]:
    results = {name: read(f"lstm/{name}.json") for name in SETS}
    times = [
        cell["seconds"]
        for result in results.values()
        for rows in result["cells"].values()
        for cell in rows.values()
    ]
    machine = next(iter(results.values())).get("machine")
    return [
        "## Forecasts from private histograms (`lstm`)",
        "",
        "Mean squared error of speed in standard deviations over one hour. *Compat* does as the "
        "paper, *honest* masks missing readings and gives epsilon its true noise.",
        "",
        origin("lstm", machine, seeds_of("lstm"), sum(times)),
        "",
        *lstm.published_table(results),
        "",
        "Only the kNN row is reproduced. The published order of the other rows appears where the "
        "output is left in the space of the normalised window; see the tables.",
    ]


def lvq_section() -> list[str]:
    results = read("lvq/table1.json")
    cells, paper = results["cells"], LVQ_EXPECTED["paper"]
    seconds = sum(cell["seconds"] for cell in cells.values())
    lines = [
        "## Private prototypes (`lvq`)",
        "",
        "Test error, mean (deviation): dpcore's defaults / the paper's recipe as printed, run here "
        f"/ the paper. The paper states no learning rate (here {PAPER_RATE} d / 4); features of "
        "Motion were recomputed, so its printed errors are no standard. n: runs, where fewer than "
        "25.",
        "",
        "dpcore's learner is not the paper's: its transfer function is logistic (the paper's is "
        "the identity), its start and its steps differ, and its few constants were chosen on these "
        "three public sets. [What differs, and how much it matters](repro/lvq/README.md).",
        "",
        origin("lvq", results["machine"], LVQ_SEEDS, seconds),
        "",
        "| data | model | " + " | ".join(TITLES[column] for column in COLUMNS) + " |",
        "|---" * (2 + len(COLUMNS)) + "|",
    ]

    def entry(name: str, weight: str = "") -> str:
        if name not in cells:
            return "not run"
        cell = cells[name]
        spread = [] if cell["deviation"] is None else [f"{cell['deviation']:.3f}"]
        few = [] if cell["runs"] == N_RUNS else [f"n {cell['runs']}"]
        said = ", ".join(spread + few)
        return f"{weight}{cell['mean']:.3f}{weight}" + (f" ({said})" if said else "")

    for dataset, models in paper.items():
        for model in MODELS:
            row = [
                f"{entry(f'{dataset}-ours-{model}-{column}', '**')} / "
                f"{entry(f'{dataset}-paper-{model}-{column}')} / "
                "{:.3f} ({:.3f})".format(*models[model][column])
                for column in COLUMNS
            ]
            lines.append(f"| {dataset} | {model} | " + " | ".join(row) + " |")
    return lines


def admm_section() -> list[str]:
    results = read("admm/results.json")
    lines = [
        "## Federated ADMM (`admm`)",
        "",
        "Accuracy on Adult, 100 users, 20 rounds, delta 1e-3. The paper's figures are curves "
        "without numbers, its epsilon is that of one round, and it does not state rho.",
        "",
        origin("admm", results["machine"], seeds_of("admm", results["repeats"] - 1),
               results.get("seconds")),
        "",
        "| | the paper | here | |",
        "|---|---|---|---|",
    ]  # fmt: skip
    alone = results["local only"]["100"]
    lines += [
        f"| all data in one place | not printed | {results['central']:.4f} | |",
        f"| 100 users, each alone | lower, falling with the number of users | {alone:.4f} | |",
    ]
    for name, paper in (
        ("as published, rho 1", "near centralised, above alone"),
        ("as published, rho 10", ""),
        ("as published, rho 100", ""),
        ("relaxed, tail mean", ""),
        ("gradients", ""),
    ):
        found = admm.row(results, name)
        lines.append(
            f"| epsilon 0.1 per round: {name} | {paper} | {found['accuracy']:.4f} "
            f"| true epsilon of all rounds {found['total epsilon']:.3g} |"
        )
    held = [f"{name}: {value:.4f} ; at least {least:.4f}: {'holds' if value >= least else 'missed'}"
            for name, value, least, _ in admm.bars(results)]  # fmt: skip
    return [*lines, "", *(f"- {line}" for line in held)]


def page() -> str:
    head = [
        "# Reproductions",
        "",
        "What the papers print beside what dpcore measures. This page is written by "
        "`python -m bench.repro.summary --write` from the results in `bench/results`, and a test "
        "compares them. Nothing is left out where a paper is not met.",
        "",
    ]
    sections = (ldp_section, llp_section, lstm_section, lvq_section, admm_section)
    return "\n".join(head + [line for make in sections for line in [*make(), ""]])


def main(given: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench.repro.summary", description=__doc__)
    parser.add_argument("--write", action="store_true", help="to bench/REPRODUCTIONS.md")
    if parser.parse_args(given).write:
        replace_bytes(PAGE, page().encode())
    else:
        print(page(), end="")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
