"""What ``dpcore demo`` shows: five systems, small, and a page about them.

Everything is made up on the spot or comes with scikit-learn. Parts whose packages are missing are
left out, and say so.
"""

from __future__ import annotations

import platform
import tempfile
import time
from pathlib import Path

from dpcore.demo import basics, collection, federation, page, prototypes, roads
from dpcore.demo.section import Context, Part, Section, missing_packages

__all__ = ["PARTS", "run"]

PARTS = (
    Part("local", "local collection", (), collection.run),
    Part("labels", "label proportions on a road network", ("sklearn",), roads.run_labels),
    Part("forecasts", "forecasts with private neighbours", ("sklearn", "torch"),
         roads.run_forecasts),
    Part("prototypes", "private prototypes", ("sklearn",), prototypes.run),
    Part("federation", "federated ADMM under secure aggregation", ("sklearn", "cryptography"),
         federation.run),
)  # fmt: skip
_PACKAGES = {"sklearn": "scikit-learn", "torch": "torch", "cryptography": "cryptography"}


def run(out: Path | str = "dpcore-report", *, quick: bool = False) -> Path:
    """Run all parts, print a table, and write a page; returns the page."""
    begin = time.perf_counter()
    plots = not missing_packages(("matplotlib",))
    if not plots:
        print("Figures are left out: they need matplotlib (pip install 'dpcore[demo]').")
    with tempfile.TemporaryDirectory() as folder:
        context = Context(Path(folder), quick, plots)
        sections = [_basics(context), *(_run_part(part, context) for part in PARTS)]
    print()
    for line in summary(sections):
        print(line)
    for section in sections:
        if section.skipped:
            print(f"{section.title}: {section.skipped}")
    seconds = time.perf_counter() - begin
    target = Path(out) / "index.html"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(page.render(sections, _about(seconds, quick), plots=plots), encoding="utf-8")
    print(f"\n{seconds:.0f} s in all. The report, with figures and what each guarantee does not")
    print(f"cover: {target}")
    return target


def summary(sections: list[Section]) -> list[str]:
    """Private against non-private quality as a table of text."""
    rows = [("system", "measured", "not private", "private", "epsilon", "baseline")]
    for section in sections:
        for quality in section.quality:
            plain, private, naive = quality.cells()
            rows.append((section.key, quality.what, plain, private, section.loss, naive))
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in rows]
    return [line.rstrip() for line in lines]


def _basics(context: Context) -> Section:
    context.begin("exact noise and a budget")
    section = basics.run(context)
    section.seconds = context.end()
    return section


def _run_part(part: Part, context: Context) -> Section:
    absent = missing_packages(part.needs)
    if absent:
        names = " and ".join(_PACKAGES[name] for name in absent)
        reason = f"left out, because {names} is not installed (pip install 'dpcore[demo]')."
        context.begin(part.title)
        context.end(f"[left out] {part.title}: needs {names}")
        return Section(part.key, part.title.capitalize(), "", skipped=reason)
    context.begin(part.title)
    section = part.run(context)
    section.seconds = context.end()
    return section


def _about(seconds: float, quick: bool) -> str:
    import numpy as np

    import dpcore
    from dpcore_ext.rng import level

    size = "A quick run, smaller than usual: " if quick else ""
    return (
        f"{size}dpcore {dpcore.__version__}, Python {platform.python_version()}, "
        f"NumPy {np.__version__}, SIMD level {level()}, {dpcore.get_num_threads()} threads, "
        f"{seconds:.0f} s, {time.strftime('%Y-%m-%d %H:%M')}"
    )
