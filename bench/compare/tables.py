"""dpcore privatize against pyarrow reading and writing the same file unchanged.

Both are processes of their own, from start to exit, on all CPUs. The file is one column of 5 x 10^7
float64 in row groups of 2^20, with pyarrow's default compression, on the disk of the temporary
folder.
"""

from __future__ import annotations

import atexit
import functools
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from bench.runner import Bound, Row
from dpcore import Noise, local
from dpcore.tables import TablePlan, table_stream

PACKAGES = ("numpy", "pyarrow")
N = 50_000_000
EPSILON = 2.0
MOST_MEGABYTES = 500
SEED = 3

MAKE = f"""
import sys
import numpy as np, pyarrow as pa, pyarrow.parquet as pq
generator, left = np.random.default_rng({SEED}), {N}
with pq.ParquetWriter(sys.argv[1], pa.schema([("x", pa.float64())])) as writer:
    while left:
        n = min(left, 1 << 20)
        writer.write_table(pa.table({{"x": generator.uniform(0, 100, n)}}), row_group_size=n)
        left -= n
"""

COPY = """
import sys
import pyarrow.parquet as pq
file, dictionary = pq.ParquetFile(sys.argv[1]), sys.argv[3] == "dictionary"
with pq.ParquetWriter(sys.argv[2], file.schema_arrow, use_dictionary=dictionary) as writer:
    for batch in file.iter_batches(batch_size=1 << 20):
        writer.write_batch(batch)
"""

# The peak of this very program: ru_maxrss would include that of the process it was started by.
PEAK = """
import re, sys
from dpcore.cli import main
code = main(sys.argv[1:])
print(re.search(r"VmHWM:\\s*(\\d+) kB", open("/proc/self/status").read())[1])
sys.exit(code)
"""


@functools.cache
def folder() -> Path:
    """A folder with the table and its schema, which goes when the program ends."""
    made = tempfile.TemporaryDirectory(prefix="dpcore-tables-")
    atexit.register(made.cleanup)
    path = Path(made.name)
    run("-c", MAKE, path / "in.parquet")
    (path / "schema.toml").write_text("[columns.x]\nlower = 0\nupper = 100\n")
    return path


def run(*arguments: Any) -> str:
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def arguments() -> list[Any]:
    here = folder()
    return [
        "privatize", here / "in.parquet", "--schema", here / "schema.toml", "--epsilon", EPSILON,
        "-o", here / "out.parquet", "--force",
    ]  # fmt: skip


def privatize() -> None:
    run("-m", "dpcore", *arguments())


def copy(dictionary: str) -> None:
    run("-c", COPY, folder() / "in.parquet", folder() / "copy.parquet", dictionary)


def check(_: Any = None) -> str:
    """The whole result against NumPy's call, and its estimate against the truth."""
    here = folder()
    table, x = pq.read_table(here / "out.parquet"), pq.read_table(here / "in.parquet")["x"]
    key = Noise.from_key((here / "in.parquet.dpcore-key").read_bytes())
    mechanism = local.make("hm-j", EPSILON, 0, 100)
    codes = mechanism.encode(x.to_numpy(), noise=table_stream(key, "in.parquet"))
    if not np.array_equal(table["x"].to_numpy(), codes):
        raise AssertionError("the command and NumPy give different codes")
    found = TablePlan.from_metadata(table).estimate(table)["x"]
    distance = abs(found.mean - float(np.mean(x.to_numpy()))) / found.standard_error
    if distance > 6:
        raise AssertionError("the estimated mean is off by more than six standard errors")
    return f"all {N} codes equal NumPy's, mean within {distance:.1f} standard errors"


def peak_megabytes() -> float:
    return int(run("-c", PEAK, *arguments()).split()[-1]) / 1e3


def single_thread_rows() -> list[Row]:
    return []


def all_cpu_rows() -> list[Row]:
    return [
        Row(
            f"dpcore privatize, 5 x 10^7 rows / pyarrow copy{text}",
            privatize,
            functools.partial(copy, dictionary),
            N / 1e6,
            N / 1e6,
            "M rows/s",
            check,
            limit=0.5,
            repeats=3,
        )
        for dictionary, text in (("dictionary", ""), ("plain", " without dictionaries"))
    ]


def bounds() -> list[Bound]:
    def checked() -> str:
        privatize()
        return check()

    return [
        Bound(
            "peak memory of dpcore privatize, 5 x 10^7 rows",
            peak_megabytes,
            "MB",
            checked,
            MOST_MEGABYTES,
        )
    ]
