"""The cells of the tables: each is one baseline or one fit, and is measured on its own."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import numpy.typing as npt

import dpcore
from bench.repro.lstm.data import City
from dpcore.learners.forecast import (
    PrivateForecaster,
    average_day,
    last_value,
    nearest_window,
)
from dpcore.learners.forecast.exchange import OWN, UNIFORM
from dpcore.series import Bins

WIDTH = HORIZON = 12
SPEED = Bins.relative(80.0, 10)
COARSE = Bins((0.0, 25.0, 45.0, 60.0, 80.0))
STRIDES = {"metr_la": 3, "pems_bay": 5}
OUTAGE_STEPS, OUTAGE_SHARE = 72, 0.25

Floats = npt.NDArray[np.float64]
# Published noise has the scale 1 / epsilon; a replaced reading moves two counts, so that is the
# honest noise of twice the epsilon.
PAPER = 2.0

EXCHANGE: dict[str, Any] = {"model": "exchange"}
FREE = {**EXCHANGE, "epsilon": None}
COMPAT: dict[str, Any] = {"average": "proportions"}
LEFT = {**COMPAT, "output_norm": "none"}
RAW: dict[str, Any] = {"input_norm": "none"}
EMA: dict[str, Any] = {"bins": COARSE, "smoothing": 0.15}
ALL_INPUTS = ("neighbours", "own", "clock")

FITS: dict[str, dict[str, dict[str, Any]]] = {
    "honest": {
        "Local": {"model": "local"},
        "ToDense, no noise": FREE,
        "ToDense, eps 0.5": {**EXCHANGE, "epsilon": 0.5},
        "ToDense, eps 0.1": {**EXCHANGE, "epsilon": 0.1},
        "ToDense, eps 0.5, K 4, moving average": {**EXCHANGE, "epsilon": 0.5, **EMA},
        "own histogram": {"model": "local", "inputs": ("own",)},
        "clock": {"model": "local", "inputs": ("clock",)},
        "own histogram and clock": {"model": "local", "inputs": ("own", "clock")},
        "own, clock and neighbours, no noise": {**FREE, "inputs": ALL_INPUTS},
        "Local, not normalised": {"model": "local", **RAW},
        "ToDense, no noise, not normalised": {**FREE, **RAW},
        "ToDense, eps 0.5, not normalised": {**EXCHANGE, "epsilon": 0.5, **RAW},
    },
    "compat": {
        "Local": {"model": "local"},
        "ToDense, no noise": {**FREE, **COMPAT},
        "ToDense, eps 0.5": {**EXCHANGE, "epsilon": PAPER * 0.5, **COMPAT},
        "ToDense, eps 0.1": {**EXCHANGE, "epsilon": PAPER * 0.1, **COMPAT},
    },
    "compat, output left normalised": {
        "Local": {"model": "local", "output_norm": "none"},
        "ToDense, no noise": {**FREE, **LEFT},
        "ToDense, eps 0.5": {**EXCHANGE, "epsilon": PAPER * 0.5, **LEFT},
        "ToDense, eps 0.1": {**EXCHANGE, "epsilon": PAPER * 0.1, **LEFT},
    },
    "outages": {
        "Local with clock": {"model": "local", "inputs": ("clock",), **RAW},
        "ToDense with clock, no noise": {**FREE, "inputs": ("neighbours", "clock"), **RAW},
        "ToDense with clock, eps 0.5, K 4, moving average": {
            **EXCHANGE, "epsilon": 0.5, "inputs": ("neighbours", "clock"), **RAW, **EMA,
            "smoothing": 0.5,
        },
    },
}  # fmt: skip
CURVES = ("Local", "ToDense, no noise", "ToDense, eps 0.5", "ToDense, eps 0.1")
BASELINES = {"honest": ("persistence", "average day"), "compat": ("kNN", "persistence")}


def outages(city: City) -> Floats:
    """The readings of every node lost in blocks of six hours, a quarter of the time, at random."""
    random = np.random.default_rng(11)
    n_blocks = -(-len(city.masked) // OUTAGE_STEPS)
    lost = random.random((n_blocks, city.masked.shape[1])) < OUTAGE_SHARE
    series = city.masked.copy()
    series[np.repeat(lost, OUTAGE_STEPS, axis=0)[: len(series)]] = np.nan
    return series


def test_times(city: City) -> npt.NDArray[np.int64]:
    """Every window of the test part, stride 1, that lies in it with all that it predicts."""
    return np.arange(city.n_train + WIDTH - 1, len(city.masked) - HORIZON)


def following(series: Floats, times: npt.NDArray[np.int64]) -> Floats:
    """What came after each time: (n, n_nodes, horizon)."""
    view = np.lib.stride_tricks.sliding_window_view(series, HORIZON, axis=0)
    return view[times + 1]


def summary(error: Floats) -> dict[str, Any]:
    """Of squared standardised errors (n, n_nodes, horizon), NaN where nothing was read."""
    with np.errstate(invalid="ignore"):
        count = (~np.isnan(error)).sum(axis=0)
        total = np.nansum(error, axis=0)
    by_node = total.sum(axis=1) / np.maximum(count.sum(axis=1), 1)
    by_step = total.sum(axis=0) / np.maximum(count.sum(axis=0), 1)
    return {
        "mse": float(total.sum() / count.sum()),
        "by_step": [round(float(value), 5) for value in by_step],
        "by_node": [round(float(value), 6) for value in by_node],
    }


def baseline(city: City, mode: str, row: str) -> dict[str, Any]:
    raw = city.zeros if mode.startswith("compat") else city.masked
    mean, deviation = city.compat_scale if mode.startswith("compat") else city.honest_scale
    times = test_times(city)
    z = (raw - mean) / deviation
    filled = _bridge(z)
    if row == "kNN":
        found = nearest_window(filled, city.n_train, times)
    elif row == "persistence":
        found = last_value(filled, times)
    else:
        found = average_day(z, city.n_train, times)
    return summary(np.square(found - following(z, times)))


def fit(city: City, mode: str, row: str, *, quick: bool) -> dict[str, Any]:
    options = {"bins": SPEED, **FITS[mode][row]}
    compat = mode.startswith("compat")
    raw = city.zeros if compat else city.masked
    if mode == "outages":
        raw = outages(city)
    scale = city.compat_scale if compat else city.honest_scale
    forecaster = PrivateForecaster(
        **options,
        scale=scale,
        stride=STRIDES[city.name],
        n_epochs=3 if quick else 5,
        noise=dpcore.Noise.insecure(5),
    )
    forecaster.fit(raw, city.neighbours, n_train=city.n_train)
    times = test_times(city)
    truth = (city.zeros if compat else city.masked) - scale[0]
    predicted = (forecaster.predict(times) - scale[0]) / scale[1]
    error = np.square(predicted - following(truth / scale[1], times))
    result = summary(error)
    result["rmse_raw"] = float(np.sqrt(result["mse"]) * scale[1])
    result["validation"] = [
        round(float(value), 6) for value in next(iter(forecaster.validation_errors_.values()))
    ]
    if forecaster.sources_ is not None:
        kinds = forecaster.sources_[:, :, 0]
        result["without_neighbours"] = np.flatnonzero(
            np.isin(kinds[1:], (OWN, UNIFORM)).mean(axis=0) > 0.5
        ).tolist()
    if mode == "honest" and row in CURVES:
        node = max(range(len(city.neighbours)), key=lambda j: len(city.neighbours[j]))
        day = slice(0, 288)
        result["curve"] = {
            "node": node,
            "predicted": _rounded(predicted[day, node, -1] * scale[1] + scale[0]),
            "truth": _rounded(following(city.masked, times[day])[:, node, -1]),
        }
    if mode == "outages":
        blind = np.isnan(raw)
        gone = np.lib.stride_tricks.sliding_window_view(blind, WIDTH, axis=0).all(axis=2)
        error[~gone[times - WIDTH + 1]] = np.nan
        result["blind"] = summary(error)
    return result


def cells(name: str) -> list[tuple[str, str]]:
    """Mode and row of everything that is measured on a data set."""
    listed = [(mode, row) for mode, rows in BASELINES.items() for row in rows]
    for mode, rows in FITS.items():
        listed += [(mode, row) for row in rows]
    return listed


def run_cell(city: City, mode: str, row: str, *, quick: bool) -> dict[str, Any]:
    begin = time.perf_counter()
    if row in BASELINES.get(mode, ()):
        result = baseline(city, mode, row)
    else:
        result = fit(city, mode, row, quick=quick)
    return {**result, "seconds": round(time.perf_counter() - begin, 1)}


def _rounded(values: Floats) -> list[float | None]:
    return [None if np.isnan(value) else round(float(value), 1) for value in values]


def _bridge(z: Floats) -> Floats:
    """Gaps filled by the last reading, by 0 before any."""
    steps = np.arange(len(z))[:, None]
    last = np.maximum.accumulate(np.where(np.isnan(z), -1, steps), axis=0)
    filled = np.take_along_axis(z, last.clip(0), axis=0)
    filled[last < 0] = 0.0
    return filled
