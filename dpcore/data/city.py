"""A simulated day in a generated city: SUMO drives, streets are read every five minutes."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import numpy.typing as npt

from dpcore._checks import check_index
from dpcore.data.road import SensorData
from dpcore.errors import DataError, ParameterError

__all__ = ["Network", "read_network", "read_streets", "simulate_city"]

CHANNELS = ("density", "speed")
_COMMUTERS = 0.7
_LEAST_ROADS = 4


@dataclass(frozen=True)
class Network:
    """The streets of a network of SUMO; a road with two directions is two streets.

    Attributes
    ----------
    streets : tuple of str
        Their names, in alphabetical order.
    adjacency : ndarray of float64, shape (n_streets, n_streets)
        1 where a vehicle can pass from one of two streets into the other; turning back does not
        count.
    middles : ndarray of float64, shape (n_streets, 2)
        Points half-way between the ends, in metres.
    """

    streets: tuple[str, ...]
    adjacency: npt.NDArray[np.float64]
    middles: npt.NDArray[np.float64]


def simulate_city(
    n_roads: int = 40,
    n_trips: int = 28_000,
    seed: int = 0,
    *,
    hours: int = 24,
    step_minutes: int = 5,
    folder: str | Path | None = None,
    progress: bool = False,
) -> SensorData:
    """Density (vehicles per km) and speed (km/h) of every street over one simulated day.

    A random network of roads with traffic lights, in which most trips lead from the outskirts to
    the centre before noon and back after, with rush hours at eight and half past five. Vehicles
    choose the way that is fastest when they set out and look for a better one on the way. Needs the
    extra ``sumo``. `save_sensors` keeps the result and `load_sensors` reads it: a day is simulated
    once.

    Parameters
    ----------
    n_roads : int
        How often the generator adds a road; some 2.6 streets come of each.
    n_trips : int
        Vehicles in 24 hours; 700 for each of `n_roads` jam the centre in rush hours.
    seed : int
        Another number is another city and another day; the same is the same numbers, by the same
        version of SUMO.
    hours : int
        Simulated hours from midnight.
    step_minutes : int
    folder : path, optional
        Where to leave what SUMO read and wrote; it is thrown away by default.
    progress : bool
        Print a line after each simulated hour to the standard error.

    Returns
    -------
    SensorData
        A street without vehicles has density 0 and no speed (NaN).

    Privacy
    -------
    Simulated vehicles need none. In an exchange of real ones, which speeds are missing tells which
    streets were empty: fill in the speed limit before releasing anything of them.

    Cost
    ----
    Half a minute to three for 100 streets and 28,000 trips, on one core: jams take time.

    Examples
    --------
    >>> day = simulate_city(10, 500, hours=1)  # doctest: +SKIP
    >>> day.series.shape, day.channels  # doctest: +SKIP
    ((12, 20, 2), ('density', 'speed'))
    """
    n_roads = check_index(n_roads, "n_roads", least=_LEAST_ROADS)
    n_trips = check_index(n_trips, "n_trips", least=1)
    seed = check_index(seed, "seed", limit=2**31)
    hours = check_index(hours, "hours", least=1, limit=25)
    step_minutes = check_index(step_minutes, "step_minutes", least=1, limit=61)
    if 60 % step_minutes:
        raise ParameterError("The 'step_minutes' parameter must divide an hour.")
    programs = _programs()
    with tempfile.TemporaryDirectory(prefix="dpcore-city-") as temporary:
        place = Path(temporary) if folder is None else Path(folder)
        place.mkdir(parents=True, exist_ok=True)
        _generate(programs / "netgenerate", place / "city.net.xml", n_roads, seed)
        network = read_network(place / "city.net.xml")
        _write_trips(place / "trips.xml", network, n_trips, hours, seed)
        _drive(programs / "sumo", place, hours, step_minutes, seed, progress)
        series = read_streets(place / "streets.xml", network.streets, hours * 60 // step_minutes)
    return SensorData(series, network.adjacency, CHANNELS, step_minutes, network.streets)


def read_network(path: str | Path) -> Network:
    """The streets of a ``.net.xml`` file of SUMO and which of them meet.

    Parameters
    ----------
    path : path
    """
    root = _parse(path)
    junctions = {
        each.get("id"): (float(each.get("x", "nan")), float(each.get("y", "nan")))
        for each in root.iter("junction")
    }
    ends = {
        str(each.get("id")): (each.get("from"), each.get("to"))
        for each in root.iter("edge")
        if each.get("function") is None
    }
    if not ends or any(end not in junctions for pair in ends.values() for end in pair):
        raise DataError("The file must be a network of SUMO with streets between junctions.")
    streets = tuple(sorted(ends))
    place = {street: i for i, street in enumerate(streets)}
    adjacency = np.zeros((len(streets), len(streets)))
    for each in root.iter("connection"):
        a, b = place.get(each.get("from", "")), place.get(each.get("to", ""))
        if a is not None and b is not None and a != b and each.get("dir") != "t":
            adjacency[a, b] = adjacency[b, a] = 1.0
    middles = [np.mean([junctions[end] for end in ends[street]], axis=0) for street in streets]
    return Network(streets, adjacency, np.array(middles))


def read_streets(
    path: str | Path, streets: tuple[str, ...], n_times: int
) -> npt.NDArray[np.float64]:
    """Density and speed (n_times, n_streets, 2) of a file that SUMO wrote as ``edgeData``.

    Parameters
    ----------
    path : path
    streets : tuple of str
        Names of the columns; others in the file are left out.
    n_times : int
        Intervals that must be there. A street that is not listed in one was empty: density 0,
        speed NaN. Speeds come in metres per second and are returned in km/h.
    """
    place = {street: i for i, street in enumerate(streets)}
    series = np.full((n_times, len(streets), 2), np.nan)
    series[:, :, 0] = 0.0
    intervals = _parse(path).findall("interval")
    if len(intervals) != n_times:
        raise DataError("The file must hold one interval of edge data for every step.")
    for t, interval in enumerate(intervals):
        for edge in interval.iter("edge"):
            column = place.get(edge.get("id", ""))
            if column is not None and float(edge.get("density", 0)) > 0 and edge.get("speed"):
                series[t, column] = float(edge.get("density", 0)), 3.6 * float(edge.get("speed", 0))
    return series


def _programs() -> Path:
    try:
        import sumo
    except ImportError:
        raise ImportError("Simulating a city needs eclipse-sumo: install dpcore[sumo].") from None
    return Path(sumo.SUMO_HOME) / "bin"


def _generate(program: Path, target: Path, n_roads: int, seed: int) -> None:
    _run([
        program, "--rand", "--rand.iterations", n_roads, "--rand.min-distance", 250,
        "--rand.max-distance", 600, "--rand.connectivity", 0.97, "--default.lanenumber", 1,
        "--default-junction-type", "traffic_light", "--no-turnarounds.except-deadend",
        "--seed", seed, "--output-file", target,
    ])  # fmt: skip


def _demand(hour: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """How many set out at an hour of the day, up to a factor."""

    def bump(middle: float, width: float) -> npt.NDArray[np.float64]:
        return np.exp(-0.5 * np.square((hour - middle) / width))

    return 0.08 + bump(8.0, 0.9) + 0.9 * bump(17.5, 1.2) + 0.3 * bump(13.0, 2.5)


def _write_trips(target: Path, network: Network, n_trips: int, hours: int, seed: int) -> None:
    """Trips in the order of their departures; those after the simulated hours are left out."""
    random = np.random.default_rng(seed)
    seconds = np.arange(86_400)
    weight = _demand(seconds / 3600)
    departures = np.sort(random.choice(seconds, n_trips, p=weight / weight.sum()))
    distance = np.square(network.middles - network.middles.mean(axis=0)).sum(axis=1)
    centre = np.exp(-2 * distance / distance.mean())
    work, home = centre / centre.sum(), (1 - centre) / (1 - centre).sum()
    count = len(network.streets)
    anywhere = np.full(count, 1 / count)
    lines = ["<routes>", '<vType id="car" sigma="0.5" speedDev="0.1"/>']
    for number, departure in enumerate(departures):
        commutes = random.random() < _COMMUTERS
        ends = (home, work) if commutes else (anywhere, anywhere)
        begin, end = (int(random.choice(count, p=p)) for p in ends)
        if commutes and departure >= 43_200:
            begin, end = end, begin
        if begin != end and departure < hours * 3600:
            lines.append(
                f'<trip id="{number}" type="car" depart="{departure}" departLane="best" '
                f'departSpeed="max" from="{network.streets[begin]}" to="{network.streets[end]}"/>'
            )
    target.write_text("\n".join([*lines, "</routes>"]) + "\n", encoding="utf-8")


def _drive(
    program: Path, place: Path, hours: int, step_minutes: int, seed: int, progress: bool
) -> None:
    measured = place / "measured.add.xml"
    measured.write_text(
        f'<additional><edgeData id="streets" file="streets.xml" period="{60 * step_minutes}" '
        'excludeEmpty="true" writeAttributes="density speed"/></additional>\n',
        encoding="utf-8",
    )
    command = [
        program, "--net-file", place / "city.net.xml", "--route-files", place / "trips.xml",
        "--additional-files", measured, "--end", hours * 3600, "--seed", seed,
        "--time-to-teleport", 180, "--max-depart-delay", 900, "--ignore-route-errors",
        "--device.rerouting.probability", 1, "--device.rerouting.period", 300,
        "--no-warnings", "--no-step-log", "--duration-log.disable",
    ]  # fmt: skip
    _run(command, place / "streets.xml" if progress else None)


def _run(command: list[Any], growing: Path | None = None) -> None:
    """Run a program of SUMO, and say how far the file is that it writes, hour by hour."""
    name, hour, began = Path(command[0]).name, 0, time.monotonic()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            [str(each) for each in command],
            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
        )  # fmt: skip
        try:
            while process.poll() is None:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=0.2)
                reached = 0 if growing is None else _seconds_written(growing) // 3600
                if reached > hour:
                    hour, spent = reached, time.monotonic() - began
                    line = f"{name}: simulated {hour}:00, {spent:.0f} s"
                    print(line, file=sys.stderr, flush=True)
        finally:
            process.kill()
            process.wait()
        if process.returncode:
            output.seek(0)
            said = " ".join(output.read().decode(errors="replace").split())
            raise RuntimeError(f"{name} failed: {said[-500:]}")


def _seconds_written(path: Path) -> int:
    """End of the last interval in a file that is being written, 0 before there is one."""
    if not path.exists():
        return 0
    with open(path, "rb") as file:
        file.seek(max(0, path.stat().st_size - 2**16))
        ends = re.findall(rb'<interval begin="[\d.]+" end="(\d+)', file.read())
    return int(ends[-1]) if ends else 0


def _parse(path: str | Path) -> Any:
    try:
        return ElementTree.parse(path).getroot()
    except ElementTree.ParseError:
        raise DataError("The file must be complete XML as SUMO writes it.") from None
