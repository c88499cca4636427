"""Small figures as SVG, wide enough for a phone."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dpcore.demo.section import Figure

__all__ = ["BLUE", "GREY", "ORANGE", "drawing"]

BLUE, ORANGE, GREY = "#1f5fa8", "#c8571b", "#7a7a7a"
_SIZE = (4.6, 3.0)  # inches: 10 points stay legible when the page is 360 pixels wide


@contextmanager
def drawing(
    figures: list[Figure],
    title: str,
    caption: str,
    *,
    shape: tuple[int, int] = (1, 1),
    size: tuple[float, float] = _SIZE,
) -> Iterator[Any]:
    """An axis (or an array of them) to draw on; the figure is appended when the block ends."""
    import matplotlib as mpl
    from matplotlib.figure import Figure as Canvas

    style = {"svg.fonttype": "path", "svg.hashsalt": title, "font.size": 10}
    with mpl.rc_context(style):
        canvas = Canvas(figsize=size, layout="constrained")
        axes = canvas.subplots(*shape)
        if shape == (1, 1):
            axes.spines[["top", "right"]].set_visible(False)
        yield axes
        out = io.BytesIO()
        canvas.savefig(out, format="svg", metadata={"Date": None})
    figures.append(Figure(out.getvalue(), title, caption))
