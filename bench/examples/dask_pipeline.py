"""Private reports of a table and a network of sensors on a Dask cluster with TLS.

    python -m bench.examples.dask_pipeline FOLDER

writes a data set of 400 000 rows to FOLDER/rows, randomises it on two workers, writes the reports
to FOLDER/reports, and prints estimates. The key and the ledgers are files in FOLDER: run again, it
makes the same reports at no further cost.
"""

from __future__ import annotations

import sys
from pathlib import Path

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
from distributed import Client, LocalCluster
from distributed.security import Security

import dpcore
from dpcore.interop import dask as private_dask
from dpcore.learners import LabelProportionNetwork
from dpcore.series import Bins
from dpcore.tables import TablePlan, table_stream
from dpcore.tables.keys import load_key

N_FILES, N_ROWS = 8, 50_000
SCHEMA = {
    "age": {"lower": 0, "upper": 100},
    "fuel": {"categories": ["gas", "oil", "wood"]},
}


def write_rows(folder: Path) -> None:
    """The data set: in practice it is there already, and never changes."""
    folder.mkdir()
    for number in range(N_FILES):
        random = np.random.default_rng(number)
        columns = {
            "age": random.uniform(20, 60, N_ROWS),
            "fuel": random.choice(["gas", "oil", "wood"], N_ROWS, p=[0.5, 0.3, 0.2]),
        }
        pd.DataFrame(columns).to_parquet(folder / f"{number}.parquet")


def survey(folder: Path, noise: dpcore.Noise) -> None:
    plan = TablePlan(SCHEMA, epsilon=4.0)
    rows = dd.read_parquet(folder / "rows")
    with dpcore.Ledger(folder / "survey.sqlite", epsilon=4.0) as ledger:
        # Charged here, in this process, once for the whole job, before anything runs.
        reports = private_dask.privatize(rows, plan, noise=table_stream(noise, "rows"))
    print(f"survey: spent epsilon {ledger.spent[0]:.3f}")
    reports.to_parquet(folder / "reports")
    result = private_dask.estimate(dd.read_parquet(folder / "reports"), plan)
    low, high = result["age"].interval(0.95)
    print(f"age: mean {result['age'].mean:.2f}, 95 % interval {low:.2f} to {high:.2f}")
    for name, share in zip(SCHEMA["fuel"]["categories"], result["fuel"].frequencies, strict=True):
        print(f"fuel: {name} {share:.3f}")


def sensors(folder: Path, noise: dpcore.Noise, workers: private_dask.Workers) -> None:
    day = 50 + 40 * np.sin(np.arange(2880) * 2 * np.pi / 96)
    series = day[:, None] + np.random.default_rng(0).normal(0, 5, (2880, 8))
    ring = [[(j - 1) % 8, (j + 1) % 8] for j in range(8)]
    network = LabelProportionNetwork(
        Bins.relative(100.0), epsilon=1.0, noise=noise.stream("sensors"), period="November"
    )
    with dpcore.Ledger(folder / "sensors.sqlite", epsilon=1.0) as ledger:
        network.fit(series, ring, executor=workers)
    print(f"sensors: spent epsilon {ledger.spent[0]:.3f}")
    print(f"sensors: mean accuracy {network.score().mean():.3f}, {network.n_bytes_} bytes sent")


def main(folder: Path) -> None:
    if not (folder / "rows").exists():
        write_rows(folder / "rows")
    noise = load_key(folder / "noise.key")  # made, for its owner alone, if it is not there
    # The key of a stream travels to the workers: nobody else may listen. Dask's own pages, which
    # are not encrypted, are left out.
    security = Security.temporary()
    dask.config.set({f"distributed.{part}.http.routes": [] for part in ("scheduler", "worker")})
    with (
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            host="tls://127.0.0.1",
            security=security,
            dashboard_address=None,
            scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},
        ) as cluster,
        Client(cluster) as client,
    ):
        print(f"cluster: {client.scheduler.address.split(':')[0]}")
        survey(folder, noise)
        sensors(folder, noise, private_dask.Workers(client))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
