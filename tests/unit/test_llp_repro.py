"""The experiments: their loader, their bars, and that what is recorded is what they wrote."""

import json

import numpy as np
import pytest

from bench.repro.llp import report
from bench.repro.llp.__main__ import FOLDER, verdict
from bench.repro.llp.data import find, load
from bench.repro.llp.run import LITERAL, Study


@pytest.fixture(scope="module")
def recorded():
    return json.loads((FOLDER / "results.json").read_text())


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    """Two weeks of 14 made-up junctions in a file of the documented kind, and a file of another."""
    folder = tmp_path_factory.mktemp("data")
    random = np.random.default_rng(0)
    t = np.arange(2 * 672) * 2 * np.pi / 96
    size = random.uniform(20, 90, 14)
    mean = size * (1.2 - np.cos(t)[:, None] + 0.3 * np.sin(2 * t)[:, None]).clip(0.1)
    count = random.poisson(mean).astype(np.int16)
    count[700:705, 3] = -1
    count[:200, 5] = -1  # too much is missing
    latlon = np.column_stack([52 + random.normal(0, 0.01, 14), 4 + random.normal(0, 0.01, 14)])
    latlon[7] = 0  # no position
    (folder / "town").mkdir()
    np.savez(folder / "town/made_up.npz", count=count, latlon=latlon, step_minutes=15)
    np.savez(folder / "other.npz", speed=count)
    return folder


def test_files_are_found_by_what_they_hold(directory):
    assert [path.name for path in find(directory)] == ["made_up.npz"]


def test_nodes_are_chosen_by_flow_and_completeness(directory):
    [path] = find(directory)
    city = load(path, 3)
    assert len(city.targets) == 3
    assert city.series.shape == (672, len(city.neighbours))
    assert [len(city.neighbours[j]) for j in city.targets] == [3, 3, 3]
    means = np.nanmean(city.series[:, city.targets], axis=0)
    assert (np.diff(means) > 0).all()
    assert np.isnan(city.series).sum() <= 5


def test_a_study_measures_noise_free_and_private_networks(directory):
    [path] = find(directory)
    study = Study(load(path, 2), n_folds=3, n_draws=2, n_bar_draws=2)
    free = study.accuracy("relative", epsilon=None)
    private = study.accuracy("relative", epsilon=5.0)
    literal = study.accuracy("relative", epsilon=None, **LITERAL)
    assert free["mean"] > 40
    assert free["std"] == 0
    assert abs(private["mean"] - free["mean"]) < 10
    assert literal["mean"] > 20
    assert study.pooled_knn("relative")["mean"] > 40


def test_the_reasons_are_those_that_the_checks_support(recorded):
    for city in recorded["cities"].values():
        found = city["reasons"]
        by_own = found["loss by clusters"]
        assert all(by_own["noisy"][k] > 2.5 * by_own["exact"][k] for k in by_own["exact"])
        for name, row in found["clipping by bins"].items():
            assert (row["clipped"] > row["unclipped"]) == (name == "equal fifths")
        for row in found["free labels"].values():
            assert row["search, 500 starts"] < row["monotone"]
            assert row["loss of monotone above that of search, %"] > 0


def test_the_recorded_bars_hold_and_the_recorded_page_is_theirs(recorded, capsys):
    assert not recorded["quick"]
    assert len(recorded["cities"]) == 2
    assert len(report.check(recorded)) == 8
    assert verdict(recorded) == 0
    assert capsys.readouterr().out.count("holds") == 8
    assert (FOLDER / "README.md").read_text() == report.markdown(recorded)


def test_a_missed_bar_and_a_changed_number_are_seen(recorded):
    changed = json.loads(json.dumps(recorded))
    [city, *_] = changed["cities"]
    changed["cities"][city]["main"]["relative"]["p-LLP 2/eps, monotone"]["mean"] -= 3
    assert report.drift(changed)
    assert verdict(changed) == 1
