"""Spark: mapInArrow with rows addressed by a column, and counts that are added up.

pip install pyspark pandas; python bench/examples/tables_spark.py
"""

import os
import sys

os.environ["PYSPARK_PYTHON"] = sys.executable  # or the workers take another Python
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")

from pyspark.sql import SparkSession

import dpcore
from dpcore.interop.spark import COUNTS_DDL, count, counts_of, ddl, randomise
from dpcore.tables import TablePlan, table_stream

spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.setLogLevel("ERROR")

# A table whose rows have an id. A partition that is lost is computed again with the same noise.
frame = spark.range(200_000).selectExpr("id", "20.0 + id % 41 as age").repartition(8)
frame = frame.selectExpr("id", "cast(age as double) as age")

plan = TablePlan({"age": {"lower": 0, "upper": 100}}, epsilon=2.0)
noise = plan.open(table_stream(dpcore.Noise.from_key(bytes(range(32))), "survey"))
reports = frame.mapInArrow(randomise(plan, noise, rows="id"), ddl(plan))
counts = sum(counts_of(reports.mapInArrow(count(plan), COUNTS_DDL).collect()))
spark.stop()

estimate = plan.estimate(counts)["age"]
low, high = estimate.interval(0.95)
print(f"mean age {estimate.mean:.2f}, 95 % interval {low:.2f} to {high:.2f}, truth 40.00")
