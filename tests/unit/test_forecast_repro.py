"""The experiments: their loader, a cell of each kind, their bars, and what is recorded."""

import copy
import json

import numpy as np
import pytest
import torch

from bench.repro.lstm import report, run
from bench.repro.lstm.__main__ import FOLDER, measure
from bench.repro.lstm.data import SETS, find, load


@pytest.fixture(scope="module")
def recorded():
    return {name: json.loads((FOLDER / f"{name}.json").read_text()) for name in SETS}


@pytest.fixture(scope="module")
def city(tmp_path_factory):
    """Three weeks of four made-up sensors in a file of the documented kind."""
    folder = tmp_path_factory.mktemp("data")
    random = np.random.default_rng(0)
    hour = np.arange(288 * 21)[:, None] / 12
    speed = 55 - 20 * np.exp(-np.square((hour % 24 - 8) / 2)) + random.normal(0, 3, (288 * 21, 4))
    speed[100:130, 1] = 0
    (folder / "la").mkdir()
    adjacency = np.eye(4) + np.diag([1, 1, 1], 1) + np.diag([1, 1, 1], -1)
    np.savez(folder / "la/metr_la_made_up_full.npz", speed=speed.round(1), adj=adjacency)
    np.savez(folder / "la/metr_la_other.npz", speed=speed)
    found = find(folder)
    assert [path.name for path in found.values()] == ["metr_la_made_up_full.npz"]
    return load("metr_la", found["metr_la"])


def test_zeros_are_missing_in_one_form_and_readings_in_the_other(city):
    assert np.isnan(city.masked[100:130, 1]).all()
    assert (city.zeros[100:130, 1] == 0).all()
    assert city.honest_scale[0] > city.compat_scale[0]
    assert [each.tolist() for each in city.neighbours] == [[1], [0, 2], [1, 3], [2]]
    assert city.n_train == round(0.8 * 288 * 21)


@pytest.mark.parametrize(
    ("mode", "row"),
    [
        ("compat", "kNN"),
        ("honest", "average day"),
        ("honest", "ToDense, eps 0.5"),
        ("compat, output left normalised", "ToDense, no noise"),
        ("outages", report.HELPS),
    ],
)
def test_a_cell_of_each_kind(city, mode, row):
    torch.set_num_threads(1)
    found = run.run_cell(city, mode, row, quick=True)
    assert 0 < found["mse"] < 3
    assert len(found["by_step"]) == 12
    assert len(found["by_node"]) == 4
    assert np.mean(found["by_node"]) == pytest.approx(found["mse"], rel=0.05)
    assert ("blind" in found) == (mode == "outages")
    assert ("curve" in found) == (mode == "honest" and row in run.CURVES)


def test_outages_take_a_quarter_in_blocks(city):
    lost = np.isnan(run.outages(city)) & ~np.isnan(city.masked)
    assert 0.15 < lost.mean() < 0.35
    blocks = lost[: 84 * 72, 0].reshape(84, 72).mean(axis=1)
    assert set(blocks) == {0, 1}


def test_recorded_cells_are_not_measured_again(city, tmp_path, monkeypatch):
    monkeypatch.setattr("bench.repro.lstm.__main__.load", lambda *_, **__: city)
    listed = [("compat", "persistence"), ("honest", "persistence")]
    monkeypatch.setattr(run, "cells", lambda name: listed)
    target = tmp_path / "metr_la.json"
    measure("metr_la", tmp_path, target, quick=True)
    content = json.loads(target.read_text())
    content["cells"]["compat"]["persistence"]["mse"] = 123.0
    del content["cells"]["honest"]["persistence"]
    target.write_text(json.dumps(content))
    again = measure("metr_la", tmp_path, target, quick=True)
    assert again["cells"]["compat"]["persistence"]["mse"] == 123.0
    assert 0 < again["cells"]["honest"]["persistence"]["mse"] < 3
    assert [path.name for path in tmp_path.iterdir()] == ["metr_la.json"]


def test_the_recorded_bars_hold_and_the_recorded_page_is_theirs(recorded, capsys):
    assert report.verdict(recorded, quick=False) == 0
    assert capsys.readouterr().out.count("holds") == 22
    assert (FOLDER / "README.md").read_text() == report.markdown(recorded)


def test_a_missed_bar_and_a_changed_number_are_seen(recorded, capsys):
    changed = copy.deepcopy(recorded)
    changed["metr_la"]["cells"]["compat"]["kNN"]["mse"] *= 1.2
    assert report.verdict(changed, quick=False) == 1
    text = capsys.readouterr().out
    assert "MISSED" in text
    assert "changed: metr_la, compat, kNN" in text
    incomplete = copy.deepcopy(recorded)
    del incomplete["pems_bay"]["cells"]["outages"]
    assert report.verdict(incomplete, quick=False) == 1
