"""The experiment on a small data set of the same form: it stops, goes on, and judges."""

import gzip
import json

import numpy as np
import pytest

from bench.repro.lvq.__main__ import main
from bench.repro.lvq.cells import Cell, Store, all_cells
from bench.repro.lvq.data import SEGMENT_RANGES, load
from bench.repro.lvq.report import EXPECTED, bars, summary


@pytest.fixture
def folder(tmp_path):
    """Seven well separated classes under the names of the Segment attributes."""
    rng = np.random.default_rng(0)
    lower, upper = np.array(list(SEGMENT_RANGES.values()), dtype=float).T
    centres = rng.uniform(0.2, 0.8, (7, 19))
    y = np.repeat(np.arange(1, 8), 60)
    x = lower + (upper - lower) * np.clip(rng.normal(centres[y - 1], 0.02), 0, 1)
    path = tmp_path / "data" / "image_segmentation" / "segment.csv.gz"
    path.parent.mkdir(parents=True)
    with gzip.open(path, "wt") as file:
        file.write(",".join([*SEGMENT_RANGES, "class"]) + "\n")
        for row, label in zip(x, y, strict=True):
            file.write(",".join([*(repr(float(v)) for v in row), str(label)]) + "\n")
    return tmp_path


def command(folder, *more):
    return main(
        [
            *("--data", str(folder / "data"), "--out", str(folder / "out"), "--quick"),
            *("--datasets", "segment", "--only", "segment-ours", *more),
        ]
    )


def test_a_stopped_run_goes_on_and_is_not_repeated(folder, capsys):
    assert command(folder, "--seconds", "0") == 2
    assert "goes on from here" in capsys.readouterr().out
    assert command(folder) == 0
    store = Store(folder / "out" / "runs")
    cell = Cell("segment", "ours", "glvq", "dp-2.5")
    before = store.read(cell)
    assert len(before["errors"]) == 2
    assert before["epsilon"] <= 2.5
    assert command(folder) == 0
    assert store.read(cell) == before
    table = json.loads((folder / "out" / "table1.json").read_text())
    assert table["cells"][cell.name]["runs"] == 2
    text = (folder / "out" / "table1.md").read_text()
    assert "logistic" in text
    assert "not run" in text


def test_results_of_other_data_are_not_mixed_in(folder):
    store = Store(folder / "out" / "runs")
    cell = Cell("segment", "ours", "glvq", "dp-0.75")
    store.write(cell, {"errors": {"0": 0.1}, "seconds": 1, "epsilon": 1, "source": "elsewhere"})
    with pytest.raises(SystemExit, match="other data"):
        command(folder)


def test_bars_can_fail(tmp_path):
    store = Store(tmp_path)
    cells = all_cells(("segment",))
    for cell in cells:
        content = store.read(cell) | {"errors": {"0": 0.05, "1": 0.07}, "source": "x"}
        store.write(cell, content)
    assert bars(cells, store)[1]
    worse = Cell("segment", "ours", "gmlvq", "dp-0.75")
    store.write(worse, store.read(worse) | {"errors": {"0": 0.25, "1": 0.27}})
    lines, held = bars(cells, store)
    assert not held
    assert sum("FAILS" in line for line in lines) == 1
    assert summary(worse, store)["mean"] == pytest.approx(0.26)


def test_folds_have_the_roles_of_the_paper(folder):
    data = load("segment", folder / "data")
    seen = np.zeros(len(data.y), int)
    for run in range(5):
        train, test = data.split(run)
        assert len(train) == 4 * len(test)
        assert not set(train) & set(test)
        seen[test] += 1
    assert (seen == 1).all()
    assert EXPECTED["paper"]["mnist"]["gmlvq"]["dp-1.5"] == [0.1721, 0.0067]
