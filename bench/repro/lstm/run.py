"""The cells of the tables: each is one baseline or one fit, and is measured on its own."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import numpy.typing as npt

import dpcore
from bench.repro.lstm.data import SMALL, City, Fold
from dpcore.learners.forecast import (
    PrivateForecaster,
    average_day,
    last_value,
    nearest_window,
)
from dpcore.learners.forecast.exchange import OWN, UNIFORM

WIDTH = HORIZON = 12
OUTAGE_STEPS, OUTAGE_SHARE = 72, 0.25
SEEDS = {"weights and order": 0, "noise": 5, "outages": 11}

Floats = npt.NDArray[np.float64]
# Published noise has the scale 1 / epsilon; a replaced reading moves two counts of each channel, so
# that is the honest noise of twice the epsilon, times the number of channels.
PAPER = 2.0

EXCHANGE: dict[str, Any] = {"model": "exchange"}
FREE = {**EXCHANGE, "epsilon": None}
COMPAT: dict[str, Any] = {"average": "proportions"}
LEFT = {**COMPAT, "output_norm": "none"}
RAW: dict[str, Any] = {"input_norm": "none"}
EMA: dict[str, Any] = {"bins": "coarse", "smoothing": 0.15}
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
        "ToDense, eps 0.5": {**EXCHANGE, "epsilon": 0.5, **COMPAT},
        "ToDense, eps 0.1": {**EXCHANGE, "epsilon": 0.1, **COMPAT},
    },
    "compat, output left normalised": {
        "Local": {"model": "local", "output_norm": "none"},
        "ToDense, no noise": {**FREE, **LEFT},
        "ToDense, eps 0.5": {**EXCHANGE, "epsilon": 0.5, **LEFT},
        "ToDense, eps 0.1": {**EXCHANGE, "epsilon": 0.1, **LEFT},
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
BASELINES = {
    "honest": ("persistence", "average day", "constant"),
    "compat": ("kNN", "persistence", "constant"),
}


def outages(city: City) -> Floats:
    """The readings of every node lost in blocks of six hours, a quarter of the time, at random."""
    random = np.random.default_rng(SEEDS["outages"])
    n_blocks = -(-len(city.masked) // OUTAGE_STEPS)
    lost = random.random((n_blocks, city.masked.shape[1])) < OUTAGE_SHARE
    series = city.masked.copy()
    series[np.repeat(lost, OUTAGE_STEPS, axis=0)[: len(series)]] = np.nan
    return series


def test_times(fold: Fold) -> npt.NDArray[np.int64]:
    """Every window of the test part, stride 1, that lies in it with all that it predicts."""
    return np.arange(fold.begin + WIDTH - 1, fold.end - HORIZON)


def following(series: Floats, times: npt.NDArray[np.int64]) -> Floats:
    """What came after each time: (n, n_nodes, n_channels, horizon)."""
    view = np.lib.stride_tricks.sliding_window_view(series, HORIZON, axis=0)
    return view[times + 1]


def summary(error: Floats) -> dict[str, Any]:
    """Of squared standardised errors (n, n_nodes, n_channels, horizon), NaN if nothing was read."""
    with np.errstate(invalid="ignore"):
        count = (~np.isnan(error)).sum(axis=0)
        total = np.nansum(error, axis=0)

    def mean(*axes: int) -> list[float]:
        return list(total.sum(axis=axes) / np.maximum(count.sum(axis=axes), 1))

    found: dict[str, Any] = {
        "mse": float(total.sum() / count.sum()),
        "by_step": [round(float(value), 5) for value in mean(0, 1)],
        "by_node": [round(float(value), 6) for value in mean(1, 2)],
    }
    if error.shape[2] > 1:
        found["by_channel"] = [round(float(value), 6) for value in mean(0, 2)]
    return found


def baseline(city: City, mode: str, row: str) -> dict[str, Any]:
    compat = mode.startswith("compat")
    raw = city.zeros if compat else city.masked
    errors = []
    for fold in city.folds:
        mean, deviation = city.scale(fold, compat=compat)
        times = test_times(fold)
        z = (raw - mean) / deviation
        flat = z.reshape(len(z), -1)
        if row == "kNN":
            found = nearest_window(_bridge(flat), fold.train, times)
        elif row == "persistence":
            found = last_value(_bridge(flat), times)
        elif row == "constant":
            found = np.zeros((len(times), flat.shape[1], HORIZON))
        else:
            found = average_day(flat, int(fold.train.sum()), times)
        truth = following(z, times)
        errors.append(np.square(found.reshape(truth.shape) - truth))
    return summary(np.concatenate(errors))


def fit(city: City, mode: str, row: str, *, quick: bool) -> dict[str, Any]:
    compat = mode.startswith("compat")
    raw = city.zeros if compat else city.masked
    if mode == "outages":
        raw = outages(city)
    parts = [_fit_fold(city, fold, raw, mode, row, quick=quick) for fold in city.folds]
    error = np.concatenate([part["error"] for part in parts])
    result = summary(error)
    if len(parts) == 1:
        if error.shape[2] == 1:
            result["rmse_raw"] = float(np.sqrt(result["mse"]) * parts[0]["scale"][1][0])
        result["validation"] = parts[0]["validation"]
    else:
        result["folds"] = [
            {"by_node": summary(part["error"])["by_node"], "validation": part["validation"]}
            for part in parts
        ]
    if parts[0]["without_neighbours"] is not None:
        result["without_neighbours"] = parts[0]["without_neighbours"]
    if mode == "honest" and row in CURVES:
        result["curve"] = _curve(city, parts)
    if mode == "outages":
        blind = np.isnan(raw)
        gone = np.lib.stride_tricks.sliding_window_view(blind, WIDTH, axis=0).all(axis=3)
        times = np.concatenate([test_times(fold) for fold in city.folds])
        error[~gone[times - WIDTH + 1]] = np.nan
        result["blind"] = summary(error)
    return result


def _fit_fold(
    city: City, fold: Fold, raw: Floats, mode: str, row: str, *, quick: bool
) -> dict[str, Any]:
    compat, setting = mode.startswith("compat"), city.setting
    options = dict(FITS[mode][row])
    fine = options.pop("bins", "fine") == "fine"
    if compat and options.get("epsilon") is not None:
        options["epsilon"] *= PAPER * raw.shape[2]
    scale = city.scale(fold, compat=compat)
    forecaster = PrivateForecaster(
        setting.bins if fine else setting.coarse,
        **options,
        scale=scale,
        stride=setting.stride,
        batch_size=setting.batch_size,
        validation=setting.validation,
        n_epochs=3 if quick else setting.n_epochs,
        random_state=SEEDS["weights and order"],
        noise=dpcore.Noise.insecure(SEEDS["noise"]),
    )
    forecaster.fit(raw, city.neighbours, train_steps=fold.train)
    times = test_times(fold)
    truth = (city.zeros if compat else city.masked) - scale[0]
    predicted = forecaster.predict(times)
    standardised = (predicted - scale[0][:, None]) / scale[1][:, None]
    found = next(iter(forecaster.validation_errors_.values()))
    alone = None
    if forecaster.sources_ is not None:
        kinds = forecaster.sources_[1:, :, 0]
        alone = np.flatnonzero(np.isin(kinds, (OWN, UNIFORM)).mean(axis=0) > 0.5).tolist()
    return {
        "error": np.square(standardised - following(truth / scale[1], times)),
        "predicted": predicted,
        "scale": scale,
        "validation": [round(float(value), 6) for value in found],
        "without_neighbours": alone,
    }


def _curve(city: City, parts: list[dict[str, Any]]) -> dict[str, Any]:
    """The last channel, one hour ahead, at the node with most neighbours, for a day."""
    node = max(range(len(city.neighbours)), key=lambda j: len(city.neighbours[j]))
    times = np.concatenate([test_times(fold) for fold in city.folds])[:288]
    predicted = np.concatenate([part["predicted"] for part in parts])[:288, node, -1, -1]
    curve = {
        "node": node,
        "predicted": _rounded(predicted),
        "truth": _rounded(following(city.masked, times)[:, node, -1, -1]),
    }
    if len(parts) > 1:
        curve["steps"] = (times + HORIZON).tolist()
    return curve


def cells(name: str) -> list[tuple[str, str]]:
    """Mode and row of everything that is measured on a data set.

    The small sets have the published rows and the controls. A single day has no average one, and
    in its stead the mean that readings are standardised by.
    """
    listed = [(mode, row) for mode, rows in BASELINES.items() for row in rows]
    for mode, rows in FITS.items():
        listed += [(mode, row) for row in rows]
    if name in SMALL:
        listed = [
            (mode, row)
            for mode, row in listed
            if mode in ("honest", "compat") and "not normalised" not in row
        ]
    left_out = "average day" if name == "sumo_day" else "constant"
    return [cell for cell in listed if cell[1] != left_out]


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
