"""Whole tables under local differential privacy: one plan, from any engine, with the same bytes.

>>> import numpy as np, pandas as pd
>>> import dpcore
>>> from dpcore.tables import TablePlan
>>> plan = TablePlan({"age": {"lower": 0, "upper": 100}, "fuel": {"categories": ["gas", "oil"]}}, 4)
>>> frame = pd.DataFrame({"age": np.full(100_000, 40.0), "fuel": ["gas", "oil"] * 50_000})
>>> reports = plan.privatize(frame)  # an Arrow table of codes
>>> low, high = plan.estimate(reports)["age"].interval(0.999999)
>>> bool(low < 40 < high)
True
"""

from dpcore.tables.counts import Counts
from dpcore.tables.plan import TablePlan, table_stream

__all__ = ["Counts", "TablePlan", "table_stream"]
