"""Collections and learners on a real Dask cluster, some of whose workers are killed."""

import base64
import functools
import pickle
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from dask_support import (
    KEY,
    MECHANISM,
    NOISE,
    PLAN,
    TIMEOUT,
    Gated,
    kill,
    part,
    runs,
    slow_block,
    slow_part,
    start_cluster,
    values,
    wait_until,
)

import dpcore
from bench.examples import dask_pipeline
from dpcore.errors import DataError, RepeatedReleaseError
from dpcore.interop import dask as private_dask
from dpcore.learners import LabelProportionNetwork
from dpcore.learners.forecast import bucket_counts, neighbour_histograms, release_counts
from dpcore.series import Bins
from dpcore.tables import TablePlan, table_stream

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def client():
    cluster, client = start_cluster()
    with cluster, client:
        yield client


@pytest.fixture
def new_client():
    """Of workers none of which was started, for a dead one, inside of another test's ledger."""
    cluster, client = start_cluster()
    with cluster, client:
        yield client


@pytest.fixture
def workers(client):
    """Process ids by address, once both workers are there."""
    client.wait_for_workers(2, timeout=TIMEOUT)
    return client.run(lambda: __import__("os").getpid())


def test_an_array_on_a_cluster_is_that_of_one_process(client):
    array = da.from_array(values(0, 60_000), chunks=15_000)
    codes = private_dask.encode(array, MECHANISM, noise=NOISE)
    assert np.array_equal(codes.compute(), MECHANISM.encode(values(0, 60_000), noise=NOISE))


# Learners

RING = [np.array([(j - 1) % 20, (j + 1) % 20]) for j in range(20)]


def readings(n=300, n_nodes=20, n_channels=2):
    x = np.random.default_rng(5).uniform(0, 80, (n, n_nodes, n_channels))
    x[np.random.default_rng(6).random(x.shape) < 0.2] = np.nan
    x[48:72, 3] = np.nan
    return x


def test_histograms_exchanged_over_workers_are_those_of_one_process(client, tmp_path):
    bins = [Bins.relative(80.0, 10)] * 2
    counts = bucket_counts(readings(), bins, 12)
    executor = private_dask.Workers(client)
    ledgers, sent = [], []
    for number, where in enumerate((None, executor)):
        with dpcore.Ledger(tmp_path / f"{number}.sqlite", epsilon=3.0) as ledger:
            sent.append(release_counts(counts, bins, 12, epsilon=1.0, noise=NOISE, executor=where))
        ledgers.append([(e.part, e.event, e.key) for e in ledger.entries])
    assert ledgers[0] == ledgers[1]
    assert len(ledgers[0]) > 40
    here, there = sent
    assert np.array_equal(here.counts, there.counts)
    assert np.array_equal(here.sizes, there.sizes)
    assert (here.events, here.private) == (there.events, there.private)
    for options in ({}, {"smoothing": 0.3}, {"average": "proportions", "max_age": 0}):
        joined = neighbour_histograms(here, RING, counts, **options)
        found = neighbour_histograms(there, RING, counts, **options, executor=executor)
        assert all(np.array_equal(a, b) for a, b in zip(joined, found, strict=True))
        assert len(np.unique(found[1])) >= 3


def test_tasks_of_an_exchange_charge_nothing_where_they_run(tmp_path):
    """An executor of this very process, in which a ledger is in force that has room for one."""
    bins = [Bins.relative(80.0, 10)] * 2
    counts = bucket_counts(readings(), bins, 12)
    with (
        dpcore.Ledger(tmp_path / "l.sqlite", epsilon=1.0) as ledger,
        ThreadPoolExecutor(2) as executor,
    ):
        first = release_counts(counts, bins, 12, epsilon=1.0, noise=NOISE, executor=executor)
        charged = ledger.entries
        again = release_counts(counts, bins, 12, epsilon=1.0, noise=NOISE, executor=executor)
        with pytest.raises(RepeatedReleaseError):
            release_counts(
                counts, bins, 12, epsilon=1.0, noise=NOISE.stream("b"), executor=executor
            )
    assert np.array_equal(first.counts, again.counts)
    assert ledger.entries == charged


def test_a_forecaster_with_workers_is_that_of_one_process(client):
    forecasts = []
    for executor in (None, private_dask.Workers(client)):
        forecaster = dpcore.learners.PrivateForecaster(
            [Bins.relative(80.0, 10)] * 2, epsilon=1.0, n_epochs=1, validation=0.2, noise=NOISE
        )
        forecaster.fit(readings(), RING, n_train=290, executor=executor)
        forecaster.extend(readings(60), executor=executor)
        forecasts.append(forecaster.predict([270, 295, 350]))
    assert np.array_equal(*forecasts)


def network(noise=NOISE, **options):
    defaults = {"epsilon": 1.0, "n_clusters": 12, "noise": noise}
    return LabelProportionNetwork(Bins.relative(100.0), **defaults | options)


def days(n_nodes, n_times=1500):
    day = 50 + 40 * np.sin(np.arange(n_times) * 2 * np.pi / 96)
    return day[:, None] + np.random.default_rng(0).normal(0, 5, (n_times, n_nodes))


def models(fitted):
    """Everything that was learned, as bytes."""
    names = ("cluster_centers_", "labelings_", "losses_", "votes_")
    return [[getattr(model, name).tobytes() for name in names] for model in fitted.models_]


@pytest.mark.parametrize("model", ["proportions", "centroid"])
def test_a_network_on_workers_is_that_of_one_process(client, tmp_path, model):
    executor, ring = private_dask.Workers(client), [[1, 4], [0, 2], [1, 3], [2, 4], [3, 0]]
    here = network(model=model).fit(days(5), ring)
    with dpcore.Ledger(tmp_path / "l.sqlite", epsilon=2.0) as ledger:
        there = network(model=model)
        there.build(days(5), ring).exchange()
        before = ledger.entries
        there.train(executor=executor)
    assert ledger.entries == before
    assert there.tables_ == here.tables_
    assert np.array_equal(there.predict(), here.predict())
    assert model == "centroid" or models(there) == models(here)
    part = network(model=model).build(days(5), ring).exchange()
    part.train(nodes=[3], executor=executor)
    assert [m is not None for m in part.models_] == [False, False, False, True, False]


def test_a_failing_task_raises_here_and_leaves_the_cluster_usable(client):
    workers = private_dask.Workers(client)
    with pytest.raises(DataError, match="'x'"):
        workers.map(MECHANISM.encode, [[0.1], [np.nan], [0.2]])
    assert [int(n) for n in workers.map(np.square, range(5))] == [0, 1, 4, 9, 16]


# Killed workers


def test_an_array_survives_the_death_of_a_worker(client, workers, tmp_path):
    source = da.map_blocks(
        slow_block, da.zeros(24_000, chunks=1000), str(tmp_path / "runs"), dtype=float
    )
    (tmp_path / "runs").mkdir()
    with dpcore.Ledger(tmp_path / "l.sqlite", epsilon=1.0) as ledger:
        codes = private_dask.encode(source, MECHANISM, noise=NOISE)
        before = ledger.entries
        future = client.compute(codes)
        done = wait_until(lambda: len(runs(tmp_path / "runs")) >= 6 and runs(tmp_path / "runs"))
        kill(done[0][1])
        (tmp_path / "go").touch()
        found = future.result(timeout=TIMEOUT)
    assert done[0][1] in workers.values()
    assert np.array_equal(found, MECHANISM.encode(values(0, 24_000), noise=NOISE))
    assert ledger.entries == before
    assert len(before) == 1
    made = [number for number, _ in runs(tmp_path / "runs")]
    assert len(set(made)) == 24
    assert len(made) > 24, "no block was made twice: the worker died too late to matter"


def test_a_dataframe_survives_the_death_of_a_worker(client, workers, tmp_path):
    (tmp_path / "runs").mkdir()
    make = functools.partial(slow_part, folder=str(tmp_path / "runs"), rows=500)
    frame = dd.from_map(make, range(16), meta=part(0, 0))
    with dpcore.Ledger(tmp_path / "l.sqlite", epsilon=4.0) as ledger:
        reports = private_dask.privatize(frame, PLAN, noise=NOISE, lengths=[500] * 16)
        before = ledger.entries
        future = client.compute(reports)
        done = wait_until(lambda: len(runs(tmp_path / "runs")) >= 5 and runs(tmp_path / "runs"))
        kill(done[0][1])
        (tmp_path / "go").touch()
        found = future.result(timeout=TIMEOUT)
    assert done[0][1] in workers.values()
    table = PLAN.privatize(
        pd.concat([part(i, 500) for i in range(16)], ignore_index=True), noise=NOISE
    )
    assert pa.Table.from_pandas(found, preserve_index=False).cast(table.schema).equals(table)
    assert ledger.entries == before
    assert len(before) == 1
    assert len(runs(tmp_path / "runs")) > 16


def test_a_network_survives_the_death_of_a_worker(client, workers, tmp_path):
    def holders(dask_scheduler=None):
        return [
            worker.address
            for task in dask_scheduler.tasks.values()
            if "dpcore-task" in str(task.key) and task.state == "memory"
            for worker in task.who_has
        ]

    here = network(n_init=600).fit(days(8), [[]] * 8)
    with dpcore.Ledger(tmp_path / "l.sqlite", epsilon=1.0) as ledger:
        there = network(n_init=600).build(days(8), [[]] * 8).exchange()
        before = ledger.entries
        (tmp_path / "runs").mkdir()
        executor = Gated(private_dask.Workers(client), tmp_path / "runs")
        thread = threading.Thread(target=there.train, kwargs={"executor": executor})
        thread.start()
        done = wait_until(lambda: client.run_on_scheduler(holders))
        kill(workers[done[0]])
        (tmp_path / "go").touch()
        thread.join(TIMEOUT)
    assert not thread.is_alive()
    assert len(runs(tmp_path / "runs")) > 8, "no node was fitted twice: the worker died too late"
    assert ledger.entries == before
    assert there.tables_ == here.tables_
    assert models(there) == models(here)


# The example


@pytest.mark.slow
def test_the_example_runs_and_gives_the_reports_of_one_process(tmp_path):
    program = [sys.executable, "-m", "bench.examples.dask_pipeline", str(tmp_path)]
    done = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "cluster: tls"
    assert "survey: spent epsilon 4.000" in lines
    assert "sensors: spent epsilon 1.000" in lines
    assert (tmp_path / "noise.key").stat().st_mode & 0o777 == 0o600
    noise = dpcore.Noise.from_key((tmp_path / "noise.key").read_bytes())
    rows = pq.read_table(tmp_path / "rows")
    plan = TablePlan(dask_pipeline.SCHEMA, epsilon=4.0)
    whole = plan.privatize(rows, noise=table_stream(noise, "rows"))
    reports = pa.concat_tables(
        pq.read_table(tmp_path / "reports" / f"part.{i}.parquet").select(plan.names)
        for i in range(len(list((tmp_path / "reports").glob("*.parquet"))))
    )
    assert reports.replace_schema_metadata().cast(whole.schema).equals(whole)
    assert whole.num_rows == dask_pipeline.N_FILES * dask_pipeline.N_ROWS


# Secrets


def spellings(secret):
    return {
        secret.hex(),
        secret.hex()[:16],
        repr(secret)[2:-1],
        repr(secret[:8])[2:-1],
        str(list(secret))[1:-1],
        base64.b64encode(secret).decode()[:16],
    }


def shown(node):
    """A graph and all of its arguments, which Dask itself shows in part only."""
    if isinstance(node, dict):
        inside = [part for pair in node.items() for part in pair]
    elif isinstance(node, list | tuple):
        inside = list(node)
    else:
        inside = [getattr(node, "args", ()), getattr(node, "kwargs", {})]
        inside = [part for part in inside if part]
    return "\n".join([repr(node), *map(shown, inside)])


def test_neither_keys_nor_data_show_in_names_graphs_displays_and_logs(new_client):
    def names(dask_scheduler=None):
        return [shown({key: task.run_spec}) for key, task in dask_scheduler.tasks.items()]

    stream = pickle.loads(pickle.dumps(NOISE)).__reduce__()[1][0]
    bad = da.map_blocks(
        lambda block: np.where(np.arange(len(block)) < 2, 0.24681357, np.nan),
        da.zeros(40, chunks=10),
        dtype=float,
    )
    good = private_dask.encode(da.from_array(values(0, 40), chunks=10), MECHANISM, noise=NOISE)
    codes = private_dask.encode(bad, MECHANISM, noise=NOISE)
    reports = private_dask.privatize(
        dd.from_map(slow_part, [0], folder="/nowhere", rows=2, meta=part(0, 0)),
        PLAN,
        noise=NOISE,
        lengths=[2],
    )
    seen = [repr(good), str(good.dask), shown(dict(good.dask)), *map(str, good.__dask_keys__())]
    seen += [repr(reports), str(reports.dask), shown(dict(reports.dask)), good._repr_html_()]
    kept = new_client.persist(good)
    given = da.from_array(np.array([0.24681357, np.nan] * 20), chunks=10)
    given = private_dask.encode(given, MECHANISM, noise=NOISE)
    futures = [new_client.compute(codes), new_client.compute(given), new_client.compute(reports)]
    logged = [repr(future.exception(timeout=TIMEOUT)) for future in futures]
    with pytest.raises(DataError) as caught:
        private_dask.Workers(new_client).map(MECHANISM.encode, [[0.24681357, np.nan]])
    logged.append(str(caught.value))
    logs = {**new_client.get_worker_logs(), "scheduler": new_client.get_scheduler_logs()}
    logged += [message for log in logs.values() for _, message in log]
    seen += logged + new_client.run_on_scheduler(names)
    assert "Compute Failed" in "\n".join(logged)
    # Arrays that were given to Dask are part of its graph, but not of its logs.
    assert "0.2468" not in "\n".join(logged)
    text = "\n".join(seen)
    assert "dpcore-encode-block" in text
    assert kept.shape == (40,)
    open_key = shown(dict(dask.delayed(len)(KEY).dask))
    assert any(secret in open_key for secret in spellings(KEY)), "the search finds nothing"
    for secret in spellings(KEY) | spellings(stream):
        assert secret not in text
