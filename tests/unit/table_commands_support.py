"""Schemas and tables as files, and the commands that read and write them."""

import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet as pq

from dpcore import Noise, cli
from dpcore.tables import table_stream

N = 4000
COMMAND = [sys.executable, "-m", "dpcore"]
ONE = "[columns.x]\nlower = 0\nupper = 100\n"
MIXED = """
epsilon = 6.0
[columns.x]
lower = 0
upper = 100
[columns.fuel]
categories = ["gas", "oil", "NA"]
[columns.code]
categories = 30
"""


def write_schemas():
    Path("one.toml").write_text(ONE)
    Path("mixed.toml").write_text(MIXED)


def table(n=N, seed=0):
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "x": rng.uniform(20, 60, n),
            "fuel": rng.choice(["gas", "oil", "NA"], n),
            "code": rng.integers(0, 30, n),
        }
    )


def write(data, path):
    kind = Path(path).suffix
    if kind == ".parquet":
        pq.write_table(data, path, row_group_size=999)
    elif kind == ".csv":
        pa.csv.write_csv(data, path)
    else:
        with pa.ipc.new_file(path, data.schema) as writer:
            writer.write_table(data, max_chunksize=777)


def read(path):
    if path.endswith(".parquet"):
        return pq.read_table(path)
    return pa.ipc.open_file(path).read_all()


def run(*arguments, code=0):
    assert cli.main([str(argument) for argument in arguments]) == code


def privatize(source, output, *more, schema="one.toml", code=0):
    run("privatize", source, "--schema", schema, "-o", output, *more, code=code)


def noise(name, key="in.parquet.dpcore-key", file=None):
    return table_stream(Noise.from_key(Path(key).read_bytes()), name, file)


def write_big(path, n, seed=0):
    rng = np.random.default_rng(seed)
    with pq.ParquetWriter(path, pa.schema([("x", pa.float64())]), use_dictionary=False) as writer:
        for _ in range(n // 500_000):
            writer.write_table(pa.table({"x": rng.uniform(0, 100, 500_000)}))
