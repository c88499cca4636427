"""The experiments: their loader, a cell of each kind, their bars, and what is recorded."""

import copy
import json

import numpy as np
import pytest
import torch

from bench.repro.lstm import report, run
from bench.repro.lstm.__main__ import FOLDER, measure
from bench.repro.lstm.data import SETS, find, folds, load, simulated_day
from dpcore.data import SensorData, save_sensors, traffic


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
    (fold,) = city.folds
    assert city.scale(fold, compat=False)[0] > city.scale(fold, compat=True)[0]
    assert [each.tolist() for each in city.neighbours] == [[1], [0, 2], [1, 3], [2]]
    assert np.array_equal(np.flatnonzero(fold.train), np.arange(round(0.8 * 288 * 21)))
    assert (fold.begin, fold.end) == (round(0.8 * 288 * 21), 288 * 21)


def test_every_step_of_a_day_is_tested_on_once_and_never_trained_on_in_its_fold():
    parts = folds(288, "sumo_day")
    assert [part.begin for part in parts[1:]] == [part.end for part in parts[:-1]]
    assert (parts[0].begin, parts[-1].end) == (0, 288)
    for part in parts:
        assert not part.train[part.begin : part.end + 12].any()
        assert part.train.sum() >= 288 - 58 - 12
        times = run.test_times(part)
        assert times.min() - 11 == part.begin
        assert times.max() + 12 == part.end - 1


@pytest.fixture(scope="module")
def day(tmp_path_factory):
    """A made-up day of two channels on five streets, kept as a simulated one is."""
    road = traffic(n_nodes=5, days=1, seed=3, missing=0.05)
    path = tmp_path_factory.mktemp("day") / "sumo_day.npz"
    save_sensors(path, SensorData(road.series[:, :, ::-1], road.adjacency, ("density", "speed"), 5))
    assert simulated_day(path) == path
    assert find(path.parent) == {"sumo_day": path}
    return load("sumo_day", path)


@pytest.mark.parametrize(
    ("mode", "row"), [("compat", "kNN"), ("honest", "persistence"), ("honest", "ToDense, eps 0.5")]
)
def test_a_cell_of_a_day_has_folds_and_channels(day, mode, row):
    torch.set_num_threads(1)
    found = run.run_cell(day, mode, row, quick=True)
    assert len(found["by_channel"]) == 2
    assert len(found["by_node"]) == 5
    assert np.mean(found["by_channel"]) == pytest.approx(found["mse"], rel=0.1)
    if row in run.CURVES:
        assert len(found["folds"]) == 5
        assert all(len(part["validation"]) == 5 for part in found["folds"])
        by_fold = np.mean([part["by_node"] for part in found["folds"]], axis=0)
        np.testing.assert_allclose(by_fold, found["by_node"], rtol=0.2)
        assert np.all(np.diff(found["curve"]["steps"]) > 0)
        assert len(found["curve"]["steps"]) == len(found["curve"]["truth"]) == 5 * 58 - 2 - 5 * 23


def test_published_noise_has_the_scale_that_the_published_epsilon_gives(day, monkeypatch):
    asked = []

    class Stop(Exception):
        pass

    def forecaster(*bins, epsilon, **options):
        asked.append(epsilon)
        raise Stop

    monkeypatch.setattr(run, "PrivateForecaster", forecaster)
    for mode in ("honest", "compat"):
        with pytest.raises(Stop):
            run.fit(day, mode, "ToDense, eps 0.5", quick=True)
    # A replaced reading moves two counts in each of two channels.
    assert asked == [0.5, 0.5 * 2 * 2]


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
    assert capsys.readouterr().out.count("holds") == 34
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
