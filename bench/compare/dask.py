"""Codes and estimates of a large array on a Dask cluster: two workers against one."""

from __future__ import annotations

from functools import cache
from typing import Any

import dask.array as da
import numpy as np
import numpy.typing as npt
from distributed import Client, LocalCluster

import dpcore
from bench.runner import Row
from dpcore import local
from dpcore.interop import dask as private_dask
from dpcore.local import Estimate

PACKAGES = ("numpy", "dask", "distributed")
N, CHUNK = 192_000_000, 16_000_000  # 64 MB a block, as Dask advises

NOISE = dpcore.Noise.from_key(bytes(range(32))).stream("bench")
MECHANISM = local.make("hm-j", epsilon=1.0)


def block(number: int) -> npt.NDArray[np.float32]:
    """Values from -1 to 1, made where they are used."""
    values = np.random.Generator(np.random.SFC64(number)).random(CHUNK, np.float32)
    return 2 * values - 1


def make_block(_: Any, block_info: Any = None) -> npt.NDArray[np.float32]:
    return block(block_info[0]["chunk-location"][0])


@cache
def client(n_workers: int) -> Client:
    """A cluster of processes with one thread each; it ends with this process."""
    cluster = LocalCluster(
        n_workers=n_workers,
        threads_per_worker=1,
        host="127.0.0.1",
        dashboard_address=None,
        scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},  # any port that is free
    )
    return Client(cluster, set_as_default=False)


def codes() -> da.Array:
    places = da.zeros(N, chunks=CHUNK, dtype=np.bool_)
    values = places.map_blocks(make_block, dtype=np.float32, meta=np.empty(0, np.float32))
    return private_dask.encode(values, MECHANISM, noise=NOISE)


def run(n_workers: int) -> Any:
    estimate = private_dask.estimate(codes(), MECHANISM, compute=False)
    return client(n_workers).compute(estimate).result()


def check(found: Estimate) -> str:
    """Against one process that encodes block by block."""
    counts = np.zeros(MECHANISM.n_outputs, np.int64)
    for number in range(N // CHUNK):
        own = MECHANISM.encode(block(number), noise=NOISE, start=number * CHUNK)
        counts += MECHANISM.count(own)
        if number == 7 and (client(2).compute(codes().blocks[7]).result() != own).any():
            raise AssertionError("the codes of a block differ from those of one process")
    if not found == run(1) == MECHANISM._estimate_counts(counts):
        raise AssertionError("the estimates of two workers, one and none differ")
    return "equal to one worker and to none, bit for bit"


def single_thread_rows() -> list[Row]:
    return []


def all_cpu_rows() -> list[Row]:
    return [
        Row(
            "Dask, encode and estimate 192 million values, two workers / one worker",
            lambda: run(2),
            lambda: run(1),
            N / 1e6,
            N / 1e6,
            "M values/s",
            check,
            limit=1.5,
            repeats=7,
        )
    ]
