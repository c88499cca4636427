"""Polars: a lazy query over Parquet whose rows are randomised on the way.

python bench/examples/tables_polars.py
"""

import tempfile
from pathlib import Path

import numpy as np
import polars as pl

import dpcore
import dpcore.interop.polars
from dpcore.tables import TablePlan, table_stream

plan = TablePlan(
    {"age": {"lower": 0, "upper": 100}, "fuel": {"categories": ["gas", "oil", "none"]}},
    epsilon=3.0,
)
noise = table_stream(dpcore.Noise.from_key(bytes(range(32))), "survey")

generator, n = np.random.default_rng(0), 300_000
frame = pl.DataFrame(
    {
        "age": generator.uniform(20, 60, n),
        "fuel": generator.choice(["gas", "oil", "none"], n, p=[0.6, 0.3, 0.1]),
    }
)
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder, "survey.parquet")
    frame.write_parquet(path, row_group_size=20_000)
    lazy = pl.scan_parquet(path).dp.privatize(plan, noise=noise)
    streamed, at_once = lazy.collect(engine="streaming"), lazy.collect()

assert streamed.equals(at_once)
assert streamed.equals(frame.dp.privatize(plan, noise=noise))
result = streamed.dp.estimate(plan)
low, high = result["age"].interval(0.95)
print("same bytes from both engines and from the frame in memory")
print(f"mean age {result['age'].mean:.2f}, 95 % interval {low:.2f} to {high:.2f}")
print("shares of fuel", np.round(result["fuel"].frequencies, 3).tolist())
