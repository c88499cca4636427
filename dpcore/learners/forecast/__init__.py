"""Forecasting from private neighbour histograms: the models, the exchange, the learner, baselines.

`HistogramLSTM` needs torch, which is imported when it is first asked for.
"""

from typing import Any

from dpcore.learners.forecast.baselines import average_day, last_value, nearest_window
from dpcore.learners.forecast.exchange import (
    ReleasedCounts,
    bucket_counts,
    neighbour_histograms,
    release_counts,
)
from dpcore.learners.forecast.forecaster import PrivateForecaster

__all__ = [
    "HistogramLSTM",
    "PrivateForecaster",
    "ReleasedCounts",
    "average_day",
    "bucket_counts",
    "last_value",
    "nearest_window",
    "neighbour_histograms",
    "release_counts",
]


def __getattr__(name: str) -> Any:
    if name == "HistogramLSTM":
        from dpcore.learners.forecast.model import HistogramLSTM

        return HistogramLSTM
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
