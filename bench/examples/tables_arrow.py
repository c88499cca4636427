"""One plan, many engines: the same bytes from NumPy, pyarrow, pandas and DuckDB.

python bench/examples/tables_arrow.py
"""

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa

import dpcore
from dpcore import local
from dpcore.tables import TablePlan, table_stream

plan = TablePlan({"age": {"lower": 0, "upper": 100}}, epsilon=2.0)
key = dpcore.Noise.from_key(bytes(range(32)))  # read yours from a file that only you can read
noise = table_stream(key, "survey")

ages = np.random.default_rng(0).uniform(20, 60, 500_000)
frame = pd.DataFrame({"age": ages})
codes = local.make("hm-j", 2.0, 0, 100).encode(ages, noise=noise)

results = {
    "pyarrow": plan.privatize(pa.table({"age": ages}), noise=noise),
    "pandas": plan.privatize(frame, noise=noise),
    "DuckDB": plan.privatize(duckdb.sql("select age from frame"), noise=noise),
}
for engine, reports in results.items():
    assert np.array_equal(reports["age"].to_numpy(), codes), engine

# The server may get parts in any order: counts add up.
parts = [plan.count(batch) for batch in results["pandas"].to_batches(max_chunksize=100_000)]
estimate = plan.estimate(sum(parts))["age"]
low, high = estimate.interval(confidence=0.95)
print(f"same bytes from NumPy, {', '.join(results)}")
print(
    f"mean age {estimate.mean:.2f}, 95 % interval {low:.2f} to {high:.2f}, truth {ages.mean():.2f}"
)
