"""The claimed ordering of the mechanisms against the numbers, tables and plots."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np

EXPECTED = Path(__file__).parent / "expected.json"
NEW, OLD = ("three-outputs", "pm-sub", "hm-tp"), ("laplace", "duchi", "pm", "hm")
# What publications claim: each of these has errors no larger than each of those.
CLAIMS = [(new, old) for new in NEW for old in OLD] + [("hm-tp", "three-outputs")]
CLEAR = 3.0  # standard errors


def compare(results: dict[str, Any]) -> list[dict[str, Any]]:
    """For each claim, over all settings: the mean relative difference, its error, a verdict."""
    rows = []
    for new, old in CLAIMS:
        differences = []
        for task in results["tasks"].values():
            by = {(e["loss"], e["epsilon"], e["mechanism"]): e["errors"] for e in task["errors"]}
            for loss, epsilon, mechanism in by:
                if mechanism == new:
                    ours, theirs = by[loss, epsilon, new], by[loss, epsilon, old]
                    scale = np.mean(theirs)
                    differences.append(np.subtract(ours, theirs) / scale)
        means = np.array([d.mean() for d in differences])
        own = np.array([d.std(ddof=1) ** 2 / len(d) for d in differences])
        error = math.sqrt(own.sum()) / len(means)
        value = float(means.mean())
        verdict = "open"
        if abs(value) > CLEAR * error:
            verdict = "confirmed" if value < 0 else "refuted"
        wins = int((means < 0).sum())
        rows.append(
            {
                "claim": f"{new} has lower errors than {old}",
                "difference": value,
                "standard error": error,
                "settings won": wins,
                "settings": len(means),
                "verdict": verdict,
            }
        )
    return rows


def ranks(results: dict[str, Any]) -> dict[str, float]:
    """Mean place of each mechanism over all settings, 1 being the best."""
    places: dict[str, list[int]] = {}
    for task in results["tasks"].values():
        settings: dict[tuple[str, float], list[tuple[float, str]]] = {}
        for e in task["errors"]:
            settings.setdefault((e["loss"], e["epsilon"]), []).append(
                (float(np.mean(e["errors"])), e["mechanism"])
            )
        for found in settings.values():
            for place, (_, mechanism) in enumerate(sorted(found), 1):
                places.setdefault(mechanism, []).append(place)
    return dict(sorted(((m, float(np.mean(p))) for m, p in places.items()), key=lambda x: x[1]))


def drift(results: dict[str, Any]) -> list[str]:
    """Claims whose verdict is the opposite of the recorded one."""
    if not EXPECTED.exists():
        return ["expected.json is missing"]
    expected = json.loads(EXPECTED.read_text())["verdicts"]
    opposite = {"confirmed": "refuted", "refuted": "confirmed"}
    return [
        f"{row['claim']}: {row['verdict']}, recorded {expected[row['claim']]}"
        for row in compare(results)
        if row["verdict"] == opposite.get(expected[row["claim"]])
    ]


def markdown(results: dict[str, Any]) -> str:
    lines = ["# LDP-FedSGD by mechanism", ""]
    lines += ["A quick run: indicative.", ""] if results["quick"] else []
    lines += [
        "Every record is a device that reports once. Errors are means over random splits, the same "
        "for all mechanisms; differences are relative to the second mechanism of a claim.",
        "",
        "## The claimed ordering",
        "",
        "| claim | difference | standard error | settings won | verdict |",
        "|---|---|---|---|---|",
    ]
    for row in compare(results):
        lines.append(
            f"| {row['claim']} | {100 * row['difference']:+.2f} % "
            f"| {100 * row['standard error']:.2f} % "
            f"| {row['settings won']} of {row['settings']} | {row['verdict']} |"
        )
    listed = ", ".join(f"{name} {place:.2f}" for name, place in ranks(results).items())
    lines += ["", f"Mean place over all settings, 1 is best: {listed}.", ""]
    for name, task in results["tasks"].items():
        references = ", ".join(f"{k} {v:.4f}" for k, v in task["references"].items())
        lines += [
            f"## {name}",
            "",
            f"{task['records']} records, {task['features']} features, {task['repeats']} splits. "
            f"{references}.",
            "",
            f"![{name}]({name}.png)",
            "",
        ]
        mechanisms = list(dict.fromkeys(e["mechanism"] for e in task["errors"]))
        lines += [
            f"| loss | epsilon | {' | '.join(mechanisms)} |",
            f"|---|---|{'---|' * len(mechanisms)}",
        ]
        settings = dict.fromkeys((e["loss"], e["epsilon"]) for e in task["errors"])
        for loss, epsilon in settings:
            own = {
                e["mechanism"]: float(np.mean(e["errors"]))
                for e in task["errors"]
                if (e["loss"], e["epsilon"]) == (loss, epsilon)
            }
            best = min(own.values())
            cells = " | ".join(
                f"**{own[m]:.4f}**" if own[m] == best else f"{own[m]:.4f}" for m in mechanisms
            )
            lines.append(f"| {loss} | {epsilon:g} | {cells} |")
        lines.append("")
    return "\n".join(lines)


def plots(results: dict[str, Any], folder: Path) -> None:
    from matplotlib.figure import Figure

    for name, task in results["tasks"].items():
        losses = list(dict.fromkeys(e["loss"] for e in task["errors"]))
        figure = Figure(figsize=(4 * len(losses), 3.6), layout="constrained")
        for axis, loss in zip(figure.subplots(1, len(losses)), losses, strict=True):
            for mechanism in dict.fromkeys(e["mechanism"] for e in task["errors"]):
                own = [
                    e for e in task["errors"] if e["loss"] == loss and e["mechanism"] == mechanism
                ]
                axis.semilogx(
                    [e["epsilon"] for e in own],
                    [np.mean(e["errors"]) for e in own],
                    "o-",
                    label=mechanism,
                )
            axis.set_title(f"{name}, {loss}")
            axis.set_xlabel("epsilon")
        figure.axes[0].set_ylabel("error")
        figure.axes[-1].legend(fontsize="x-small")
        figure.savefig(folder / f"{name}.png", dpi=100)
