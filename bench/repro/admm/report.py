"""Bars, tables and plots of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

EXPECTED = Path(__file__).parent / "expected.json"
AT = 0.1  # the epsilon per round at which the bars are judged


def row(results: dict[str, Any], name: str) -> dict[str, Any]:
    [found] = [r for r in results["by epsilon"] if r["per round"] == AT and r["name"] == name]
    return found


def bars(results: dict[str, Any]) -> list[tuple[str, float, float, bool]]:
    """Name, value, least value, and whether it is a stretch."""
    local = {int(n): score for n, score in results["local only"].items()}
    ours = row(results, "relaxed, tail mean")["accuracy"]
    logged = max(
        row(results, name)["accuracy"]
        for name in ("relaxed, tail mean, log", "gradients, 40 rounds, log")
    )
    central, central_log = results["central"], results["central, log"]
    return [
        ("centralised accuracy", central, 0.84, False),
        ("noisy ADMM over local-only, 100 users", ours, local[100], False),
        ("noisy ADMM within 2.5 points of centralised", ours, central - 0.025, False),
        ("noisy ADMM within 1 point of centralised", ours, central - 0.01, True),
        (
            "logarithmic gains: within 1 point of their centralised",
            logged,
            central_log - 0.01,
            True,
        ),
    ]


def drift(results: dict[str, Any]) -> list[str]:
    """Recorded numbers that this run left."""
    if not EXPECTED.exists():
        return ["expected.json is missing"]
    expected = json.loads(EXPECTED.read_text())
    now = summary(results)
    return [
        f"{name}: {now.get(name, float('nan')):.4f}, recorded {value:.4f}"
        for name, value in expected["values"].items()
        if not abs(now.get(name, float("nan")) - value) <= expected["tolerance"]
    ]


def summary(results: dict[str, Any]) -> dict[str, float]:
    values = {"central": results["central"], "central, log": results["central, log"]}
    values |= {f"local only, {n}": score for n, score in results["local only"].items()}
    for r in results["by epsilon"]:
        values[f"{r['name']}, {r['per round']:g} per round"] = r["accuracy"]
    return values


def markdown(results: dict[str, Any]) -> str:
    lines = [
        "# Consensus ADMM on Adult",
        "",
        f"{results['rows']} complete rows, 30 000 to train and 10 000 to test, mean of "
        f"{results['repeats']} splits. 103 columns and an intercept, rows of norm 1, beta = 0.1. "
        f"Majority class {results['majority']:.4f}. "
        + ("A quick run: indicative." if results["quick"] else ""),
        "",
        "| | value | at least | |",
        "|---|---|---|---|",
    ]
    for name, value, least, stretch in bars(results):
        verdict = "holds" if value >= least else "missed"
        lines.append(f"| {name} | {value:.4f} | {least:.4f} | {verdict}{' (stretch)' * stretch} |")
    lines += ["", "## Every user alone", "", "| users | accuracy |", "|---|---|"]
    lines += [f"| {n} | {score:.4f} |" for n, score in results["local only"].items()]
    lines += [
        "",
        "![local only](users.png)",
        "",
        "## 100 users, 20 rounds",
        "",
        "Without noise: "
        + ", ".join(f"rho {rho}: {score:.4f}" for rho, score in results["without noise"].items())
        + ".",
        "",
        "The first column is what publications state: the classical formula for one round. The "
        "true total of a row is beside it: that of the protocol which was run, counting the noisy "
        "models of single users as published (ADMM), or the noisy sums (gradients). inf: beyond "
        "about 25, where delta does not cover the distance between sampled and ideal laws.",
        "",
        "| epsilon of one round | true total, delta 1e-3 | | accuracy | spread |",
        "|---|---|---|---|---|",
    ]
    for r in results["by epsilon"]:
        lines.append(
            f"| {r['per round']:g} | {r['total epsilon']:.4f} | {r['name']} | {r['accuracy']:.4f} "
            f"| {r['spread']:.4f} |"
        )
    names = [name for name in results["totals"][0] if name != "per round"]
    lines += [
        "",
        "![accuracy against epsilon](epsilon.png)",
        "",
        "## What the same noise costs, by accounting",
        "",
        f"| epsilon of one round | {' | '.join(names)} |",
        f"|---|{'---|' * len(names)}",
    ]
    for r in results["totals"]:
        values = " | ".join(f"{r[name]:.4f}" for name in names)
        lines.append(f"| {r['per round']:g} | {values} |")
    return "\n".join(lines) + "\n"


def plots(results: dict[str, Any], folder: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    axis = figure.subplots()
    users = [int(n) for n in results["local only"]]
    axis.semilogx(users, list(results["local only"].values()), "o-", label="local only")
    axis.axhline(results["central"], color="black", linestyle="--", label="centralised")
    axis.set_xlabel("users")
    axis.set_ylabel("test accuracy")
    axis.legend()
    figure.savefig(folder / "users.png", dpi=110)

    figure = Figure(figsize=(11, 4.5), layout="constrained")
    for axis, key, label in zip(
        figure.subplots(1, 2, sharey=True),
        ("per round", "total epsilon"),
        ("epsilon of one round, as published", "true epsilon of all rounds, delta 1e-3"),
        strict=True,
    ):
        for name in dict.fromkeys(r["name"] for r in results["by epsilon"]):
            own = [r for r in results["by epsilon"] if r["name"] == name]
            axis.semilogx([r[key] for r in own], [r["accuracy"] for r in own], "o-", label=name)
        axis.axhline(results["central"], color="black", linestyle="--", label="centralised")
        alone = {int(n): score for n, score in results["local only"].items()}[100]
        axis.axhline(alone, color="grey", linestyle=":", label="local only, 100 users")
        axis.set_xlabel(label)
    figure.axes[0].set_ylabel("test accuracy")
    figure.axes[1].legend(fontsize="small")
    figure.savefig(folder / "epsilon.png", dpi=110)
