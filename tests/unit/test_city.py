"""The simulated city: files that SUMO wrote, a simulation where SUMO is at hand, and keeping it."""

import builtins
import importlib.util
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from dpcore.data import SensorData, load_sensors, save_sensors, simulate_city, traffic
from dpcore.data.city import _run, _write_trips, read_network, read_streets
from dpcore.errors import DataError, ParameterError

# Written by simulate_city(*ASKED, **HOW), version 1.28.0.
VECTORS = Path(__file__).parents[1] / "vectors"
NETWORK, STREETS = VECTORS / "sumo_city.net.xml", VECTORS / "sumo_streets.xml"
ASKED, HOW = (4, 4000, 1), {"hours": 1, "step_minutes": 15}
NAMES = ("-11", "-15", "-3", "11", "15", "3")

needs_sumo = pytest.mark.skipif(
    importlib.util.find_spec("sumo") is None, reason="eclipse-sumo is not installed"
)


def test_streets_of_a_network_meet_where_vehicles_can_pass():
    network = read_network(NETWORK)
    assert network.streets == NAMES
    # Three roads that meet in one junction: each street meets the two it leads into or comes from.
    assert np.array_equal(network.adjacency, network.adjacency.T)
    assert network.adjacency.sum(axis=1).tolist() == [2.0] * 6
    # Dead ends let vehicles turn back, which makes no neighbours.
    for street in ("3", "11", "15"):
        a, b = NAMES.index(street), NAMES.index(f"-{street}")
        assert network.adjacency[a, b] == 0
        assert np.array_equal(network.middles[a], network.middles[b])


def test_edge_data_become_density_and_speed_and_empty_streets_have_none():
    series = read_streets(STREETS, NAMES, 4)
    assert series.shape == (4, 6, 2)
    # <edge id="-11" density="0.29" speed="11.27"/> stands first; "-15" is not in that interval.
    np.testing.assert_allclose(series[0, 0], [0.29, 3.6 * 11.27])
    assert series[0, 1, 0] == 0
    assert np.isnan(series[0, 1, 1])
    assert np.array_equal(series[:, :, 0] == 0, np.isnan(series[:, :, 1]))
    assert np.array_equal(read_streets(STREETS, NAMES[::-1], 4), series[:, ::-1], equal_nan=True)
    assert np.array_equal(read_streets(STREETS, NAMES[:2], 4), series[:, :2], equal_nan=True)


def test_files_that_are_not_whole_are_refused(tmp_path):
    with pytest.raises(DataError):
        read_streets(STREETS, NAMES, 5)
    cut = tmp_path / "cut.xml"
    cut.write_bytes(STREETS.read_bytes()[:-50])
    with pytest.raises(DataError):
        read_streets(cut, NAMES, 4)
    with pytest.raises(DataError):
        read_network(STREETS)


def test_most_trips_fall_into_rush_hours_and_are_a_function_of_the_seed(tmp_path):
    network = read_network(NETWORK)
    _write_trips(tmp_path / "a.xml", network, 4000, 24, seed=3)
    _write_trips(tmp_path / "b.xml", network, 4000, 24, seed=3)
    text = (tmp_path / "a.xml").read_text()
    assert text == (tmp_path / "b.xml").read_text()
    hours = np.array([int(part.split('"')[0]) for part in text.split('depart="')[1:]]) / 3600
    assert (np.diff(hours) >= 0).all()
    rush = np.isin(hours.astype(int), (7, 8, 16, 17, 18)).mean()
    assert 0.5 < rush < 0.8
    _write_trips(tmp_path / "c.xml", network, 4000, 1, seed=3)
    assert (tmp_path / "c.xml").read_text().count("<trip") == (hours < 1).sum()


@pytest.mark.parametrize("data", [
    traffic(n_nodes=3, days=1, seed=2, missing=0.1),
    SensorData(read_streets(STREETS, NAMES, 4), np.ones((6, 6)), ("density", "speed"), 15, NAMES),
])  # fmt: skip
def test_what_is_saved_is_loaded_as_it_was(tmp_path, data):
    save_sensors(tmp_path / "kept.npz", data)
    assert os.listdir(tmp_path) == ["kept.npz"]
    again = load_sensors(tmp_path / "kept.npz")
    assert np.array_equal(again.series, data.series, equal_nan=True)
    assert np.array_equal(again.adjacency, data.adjacency)
    assert (again.channels, again.step_minutes, again.names) == (
        data.channels, data.step_minutes, data.names,
    )  # fmt: skip
    masked = load_sensors(tmp_path / "kept.npz", zero_is_missing=True)
    assert not (masked.series[:, :, 0] == 0).any()
    with pytest.raises(ParameterError):
        save_sensors(tmp_path / "kept.csv", data)


@pytest.mark.parametrize("options", [
    {"n_roads": 2}, {"n_trips": 0}, {"seed": -1}, {"hours": 25}, {"hours": 0},
    {"step_minutes": 7}, {"step_minutes": 0},
])  # fmt: skip
def test_wrong_options_are_refused(options):
    with pytest.raises(ParameterError):
        simulate_city(**options)


def test_without_sumo_the_error_says_what_to_install(monkeypatch):
    def refuse(name, *rest, real=builtins.__import__, **more):
        if name == "sumo":
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ImportError, match=r"install dpcore\[sumo\]"):
        simulate_city(4, 100, hours=1)


def test_a_program_that_fails_says_why():
    with pytest.raises(RuntimeError, match="failed: no such road"):
        _run([sys.executable, "-c", "import sys; sys.exit('no such road')"])


@needs_sumo
def test_a_simulation_can_be_repeated_and_is_what_was_recorded(tmp_path, capsys):
    day = simulate_city(*ASKED, **HOW, folder=tmp_path, progress=True)
    assert capsys.readouterr().err.startswith("sumo: simulated 1:00")
    assert (day.channels, day.step_minutes, day.names) == (("density", "speed"), 15, NAMES)
    again = simulate_city(*ASKED, **HOW)
    assert np.array_equal(day.series, again.series, equal_nan=True)
    assert np.array_equal(day.adjacency, read_network(tmp_path / "city.net.xml").adjacency)
    # Another version of SUMO may drive differently.
    if "sumo 1.28.0" in (tmp_path / "streets.xml").read_text()[:200]:
        assert np.array_equal(day.series, read_streets(STREETS, NAMES, 4), equal_nan=True)
        assert np.array_equal(day.adjacency, read_network(NETWORK).adjacency)


@needs_sumo
def test_another_seed_is_another_city_and_mornings_fill_it():
    night = simulate_city(10, 4000, 1, hours=9)
    other = simulate_city(10, 4000, 2, hours=1)
    assert night.names != other.names or not np.array_equal(night.adjacency, other.adjacency)
    density, speed = night.series[:, :, 0], night.series[:, :, 1]
    assert density[90:108].mean() > 5 * density[:36].mean()
    assert np.isnan(speed[:36]).mean() > np.isnan(speed[90:108]).mean()
    assert 5 < np.nanmean(speed) < 60
