"""A made-up road network whose sensors see rush hours, jams that travel, and gaps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dpcore._checks import check_generator, check_index, exact
from dpcore.errors import ParameterError

__all__ = ["SensorData", "traffic"]


@dataclass(frozen=True)
class SensorData:
    """Readings of sensors on a graph.

    Attributes
    ----------
    series : ndarray of float64, shape (n_times, n_nodes, n_channels)
        Raw units; NaN where a reading is missing.
    adjacency : ndarray of float64, shape (n_nodes, n_nodes)
        Weights, 0 where there is no edge.
    channels : tuple of str
    step_minutes : int
    names : tuple of str
        Of the nodes; empty where they have none.

    Privacy
    -------
    None: it holds raw readings.

    Cost
    ----
    8 bytes for each reading and for each pair of nodes; arrays are kept, not copied.
    """

    series: npt.NDArray[np.float64]
    adjacency: npt.NDArray[np.float64]
    channels: tuple[str, ...]
    step_minutes: int
    names: tuple[str, ...] = ()


def traffic(
    n_nodes: int = 20, days: int = 7, seed: int = 0, *, missing: float = 0.02
) -> SensorData:
    """Speed (mph) and density (vehicles per mile) on a ring road with side roads, every 5 minutes.

    Two rush hours on weekdays and a flat top at weekends; sensors differ in level and timing;
    disturbances pass from a sensor to the ones upstream some steps later; incidents drop the speed
    suddenly and back up along the road. Speed falls with density.

    Parameters
    ----------
    n_nodes, days : int
    seed : int
        Another number is another world; the same is the same bits.
    missing : float
        Share of readings that are missing, in runs of an hour on average.

    Privacy
    -------
    The readings are made up and need none.

    Cost
    ----
    O(days * n_nodes + n_nodes**2); some 30 milliseconds for a week of 20 nodes.

    Examples
    --------
    >>> road = traffic(n_nodes=5, days=2, seed=1)
    >>> road.series.shape, road.channels, bool(np.nanmin(road.series) >= 0)
    ((576, 5, 2), ('speed', 'density'), True)
    """
    n_nodes = check_index(n_nodes, "n_nodes", least=2)
    n_times = 288 * check_index(days, "days", least=1)
    share = exact(missing, "missing")
    if not 0 <= share < 1:
        raise ParameterError("The 'missing' parameter must be at least 0 and below 1.")
    random = check_generator(seed, "seed")
    step = np.arange(n_times)
    hour, day = step % 288 / 12, step // 288
    weekend = np.isin(day % 7, (5, 6))[:, None]
    peak_hours = np.array([8.0, 17.5]) + random.normal(0, 0.4, (n_nodes, 2))
    heights = random.uniform(0.25, 0.75, (n_nodes, 2))
    bumps = np.exp(-0.5 * np.square((hour[:, None, None] - peak_hours) / 1.1)) * heights
    midday = 0.35 * np.exp(-0.5 * np.square((hour[:, None] - 14) / 3.5))
    base = 0.15 + np.where(weekend, midday, bumps.sum(axis=2))

    wave = np.zeros((n_times, n_nodes))
    shocks = random.normal(0, 0.035, (n_times, n_nodes))
    shocks += _incidents(random, n_times, n_nodes)
    for t in range(1, n_times):
        downstream = np.roll(wave[max(t - 2, 0)], -1)  # what happens ahead arrives later
        wave[t] = 0.86 * wave[t - 1] + 0.11 * downstream + shocks[t]
    load = np.clip(base * random.uniform(0.8, 1.2, n_nodes) + wave, 0.02, 1.3)
    free = random.uniform(58, 70, n_nodes)
    speed = free / (1 + np.exp(9 * (load - 0.72))) + 6 + random.normal(0, 1.0, load.shape)
    density = 110 * load + random.normal(0, 2.0, load.shape)
    series = np.stack([speed.clip(0, 85), density.clip(0, None)], axis=2)
    ends = random.random((n_times, n_nodes)) < 1 / 12
    gap = np.zeros(n_nodes, np.bool_)
    begins = random.random((n_times, n_nodes)) < missing / 12 / max(1 - missing, 1e-9)
    for t in range(n_times):
        gap = (gap & ~ends[t]) | (~gap & begins[t])
        series[t, gap] = np.nan

    adjacency = np.zeros((n_nodes, n_nodes))
    ring = np.arange(n_nodes)
    for reach, weight in ((1, 1.0), (2, 0.5)):
        adjacency[ring, (ring + reach) % n_nodes] = weight
        adjacency[(ring + reach) % n_nodes, ring] = weight
    np.fill_diagonal(adjacency, 0)
    return SensorData(series, adjacency, ("speed", "density"), 5)


def _incidents(random: np.random.Generator, n_times: int, n_nodes: int) -> npt.NDArray[np.float64]:
    """Sudden loads, about one per node and five days, that last half an hour."""
    shocks = np.zeros((n_times, n_nodes))
    for _ in range(max(1, n_times * n_nodes // 1440)):
        begin, node = int(random.integers(n_times)), int(random.integers(n_nodes))
        shocks[begin : begin + 6, node] += random.uniform(0.08, 0.2)
    return shocks
