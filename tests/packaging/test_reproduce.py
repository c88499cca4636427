"""The command that runs experiments again, what it keeps when stopped, and the page of results."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.repro import summary
from bench.repro.ldp import __main__ as ldp
from bench.repro.ldp import run
from bench.repro.ldp.data import synthetic
from bench.repro.lvq import report as lvq
from bench.repro.lvq.cells import Store, all_cells
from bench.repro.resume import Parts, fingerprint
from dpcore import cli

ROOT = Path(__file__).parents[2]


def test_the_page_is_that_of_the_recorded_results():
    assert summary.PAGE.read_text() == summary.page(), "python -m bench.repro.summary --write"


def test_the_table_of_prototypes_is_that_of_the_recorded_runs():
    folder, cells = summary.RESULTS / "lvq", all_cells()
    store = Store(folder / "runs")
    text = (folder / "table1.md").read_text()
    assert text == lvq.markdown(cells, store), "python -m bench.repro.lvq --data DIR"
    found = {cell.name: lvq.summary(cell, store) for cell in cells}
    assert json.loads((folder / "table1.json").read_text())["cells"] == found
    assert "- mnist: mnist.npz\n- motion: har_features.npz\n- segment: segment.csv.gz" in text
    assert "0.450 (DP 0.75), 0.950 (DP 1.5), 1.679 (DP 2.5)" in text
    assert "without clipping or noise" in text
    assert "at most 100 iterations" in text


def test_the_page_says_how_our_prototypes_differ():
    text = "\n".join(summary.lvq_section())
    assert "logistic (the paper's is the identity), its start and its steps differ" in text
    assert "chosen on these three public sets" in text
    cells = summary.read("lvq/table1.json")["cells"]
    ours, paper = (cells[f"mnist-{block}-glvq-dp-0.75"] for block in ("ours", "paper"))
    assert (
        f"| **{ours['mean']:.3f}** ({ours['deviation']:.3f}) / "
        f"{paper['mean']:.3f} ({paper['deviation']:.3f}) / 0.189 (0.004) |"
    ) in text


def test_a_changed_result_changes_the_page(monkeypatch, tmp_path):
    before = summary.page()
    results = json.loads((summary.RESULTS / "admm/results.json").read_text())
    results["central"] += 0.01
    real = summary.read
    monkeypatch.setattr(summary, "read", lambda name: results if "admm" in name else real(name))
    assert summary.page() != before


def test_the_page_has_all_experiments_with_seeds_versions_and_times():
    text = summary.page()
    for name in ("ldp", "llp", "lstm", "lvq", "admm"):
        [part] = [part for part in text.split("\n## ") if f"(`{name}`)" in part]
        assert "seeds: " in part
        assert "run time: " in part
        assert "numpy" in part or "versions: not recorded" in part


def test_what_is_missing_is_said_in_a_sentence(capsys, tmp_path):
    assert cli.main(["reproduce", "admm"]) == 1
    assert "needs --data" in capsys.readouterr().err
    assert cli.main(["reproduce", "admm", "--data", str(tmp_path), "--out", str(tmp_path)]) == 1
    assert "must hold Adult" in capsys.readouterr().err


def test_without_the_source_tree_the_command_says_what_it_needs(tmp_path):
    """As from a wheel: only the two packages are found."""
    for package in ("dpcore", "dpcore_ext"):
        os.symlink(ROOT / package, tmp_path / package)
    program = (
        f"import sys; home, tree = {str(tmp_path)!r}, {str(ROOT)!r}\n"
        "sys.path = [home, *(place for place in sys.path if place != tree)]\n"
        "from dpcore.cli import main; sys.exit(main(['reproduce', 'ldp', '--quick']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=900,
        check=False,
    )
    assert done.returncode == 1
    assert "needs the source tree" in done.stderr
    assert "Traceback" not in done.stderr


def test_parts_are_made_once_and_again_for_other_data(tmp_path):
    made = []

    def make(value):
        made.append(value)
        return {"value": value}

    parts = Parts(tmp_path / "parts", "data 1")
    assert parts("a", lambda: make(1)) == {"value": 1}
    again = Parts(tmp_path / "parts", "data 1")
    assert again("a", lambda: make(2)) == {"value": 1}
    assert again("b", lambda: make(3)) == {"value": 3}
    other = Parts(tmp_path / "parts", "data 2")
    assert other("a", lambda: make(4)) == {"value": 4}
    assert made == [1, 3, 4]
    other.finish()
    assert not (tmp_path / "parts").exists()
    assert fingerprint([1.0]) != fingerprint([2.0])


@pytest.mark.slow
def test_a_stopped_experiment_goes_on(tmp_path, monkeypatch, capsys):
    """Stopped in the middle by an error, the second run keeps what the first one made."""
    monkeypatch.setattr(ldp, "load", lambda _: [synthetic(n=4000, d=4)])
    out = tmp_path / "out"
    real, calls = run.error, []

    def fails_later(*given):
        calls.append(given)
        if len(calls) == 20:
            raise KeyboardInterrupt
        return real(*given)

    monkeypatch.setattr(run, "error", fails_later)
    with pytest.raises(KeyboardInterrupt):
        ldp.main(["--quick", "--out", str(out)])
    assert not (out / "results.json").exists()
    monkeypatch.setattr(run, "error", real)
    assert cli.main(["reproduce", "ldp", "--quick", "--out", str(out)]) == 0
    assert capsys.readouterr().out.count("kept from before") == 1
    results = json.loads((out / "results.json").read_text())
    assert results["quick"]
    assert results["seconds"] > 0
    assert results["machine"]["packages"]["numpy"]
    [task] = results["tasks"].values()
    assert task["seeds"] == [0, 1]
    assert len(task["errors"]) == 3 * 2 * 8
    assert not (out / "parts").exists()
    assert (out / "README.md").read_text().startswith("# LDP-FedSGD")
