"""A real cluster on this machine, data that are made on its workers, and the killing of those."""

import os
import signal
import time
import uuid
from pathlib import Path

import numpy as np
import pandas as pd
from distributed import Client, LocalCluster

import dpcore
from dpcore import local
from dpcore.tables import TablePlan

TIMEOUT = 120
KEY = bytes(range(100, 132))
NOISE = dpcore.Noise.from_key(KEY).stream("survey", 7)
MECHANISM = local.make("hm-j", 1.0)
PLAN = TablePlan({"x": {"lower": -1, "upper": 1}, "kind": {"categories": [0, 1, 2]}}, 4.0)


def start_cluster():
    """Two worker processes of one thread each."""
    cluster = LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=True,
        host="127.0.0.1",
        dashboard_address=None,
        scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},  # any port that is free
    )
    return cluster, Client(cluster, timeout=TIMEOUT)


def wait_until(found, seconds=TIMEOUT):
    """What `found` returns as soon as it is true."""
    end = time.monotonic() + seconds
    while not (result := found()):
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.02)
    return result


def kill(pid):
    os.kill(pid, signal.SIGKILL)


def values(start, stop):
    """Numbers from -1 to 1, a function of their places."""
    return np.sin(np.arange(start, stop) * 0.7)


def note_run(folder, number):
    """Leaves a file behind: which part was made, by which process."""
    (Path(folder) / f"{number}-{os.getpid()}-{uuid.uuid4().hex}").touch()


def runs(folder):
    """Parts and processes of everything that was made so far."""
    return [tuple(map(int, path.name.split("-")[:2])) for path in Path(folder).iterdir()]


def slow_block(block, folder, block_info=None):
    """A block of an array, made slowly."""
    [(start, stop)] = block_info[0]["array-location"]
    time.sleep(0.1)
    note_run(folder, start)
    return values(start, stop)


def slow_part(number, folder, rows):
    """A partition of a dataframe, made slowly."""
    time.sleep(0.1)
    note_run(folder, number)
    return part(number, rows)


def part(number, rows):
    place = np.arange(number * rows, (number + 1) * rows)
    return pd.DataFrame({"x": np.sin(place * 0.7), "kind": place % 3})
