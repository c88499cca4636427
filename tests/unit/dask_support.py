"""A real cluster on this machine, data that are made on its workers, and the killing of those."""

import functools
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

TIMEOUT = 600
HELD = 6
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


def wait_turn(folder):
    """Once HELD parts were made the others wait for a file 'go' beside the folder of runs.

    So a worker that is killed before the file is there dies in time, however slow the test is.
    """
    if len(runs(folder)) >= HELD:
        wait_until((Path(folder).parent / "go").exists)


def in_turn(function, folder, item):
    """The function of an item, as a part that waits for its turn."""
    wait_turn(folder)
    result = function(item)
    note_run(folder, 0)
    return result


class Gated:
    """An executor whose tasks wait for their turn."""

    def __init__(self, executor, folder):
        self.executor, self.folder = executor, str(folder)

    def map(self, function, items):
        return self.executor.map(functools.partial(in_turn, function, self.folder), items)


def slow_block(block, folder, block_info=None):
    """A block of an array, made slowly."""
    [(start, stop)] = block_info[0]["array-location"]
    wait_turn(folder)
    time.sleep(0.1)
    note_run(folder, start)
    return values(start, stop)


def slow_part(number, folder, rows):
    """A partition of a dataframe, made slowly."""
    wait_turn(folder)
    time.sleep(0.1)
    note_run(folder, number)
    return part(number, rows)


def part(number, rows):
    place = np.arange(number * rows, (number + 1) * rows)
    return pd.DataFrame({"x": np.sin(place * 0.7), "kind": place % 3})
