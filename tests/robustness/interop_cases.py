"""Valid small calls of what connects dpcore to other packages; see `cases`."""

from __future__ import annotations

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import torch
from surface import Case, function

import dpcore
from dpcore import local, tables
from dpcore.interop import arrow, dask, flower, numba, spark
from dpcore.interop import torch as private_torch
from dpcore.interop.flower.agreement import ConsensusTerms
from dpcore.secure import Identity

NOISE = dpcore.Noise.from_key(bytes(range(32))).stream("robust")
MECHANISM = local.Duchi(1.0)
COLUMNS = {"a": {"lower": 0, "upper": 1}}
PLAN = tables.TablePlan(COLUMNS, 1.0)
TABLE = pa.table({"a": [0.25, 0.5]})
FRAME = dd.from_pandas(pd.DataFrame({"a": [0.25, 0.5]}), npartitions=1)
ARRAY = da.from_array(np.array([0.25, 0.5]), chunks=1)
KEYS = {number: Identity().public for number in range(4)}
AGREEMENT = {
    "session": "robust",
    "task": "admm",
    "features": ("x",),
    "bounds": ((0.0, 1.0),),
    "clients": KEYS,
    "epsilon": 1.0,
    "rounds": 2,
    "terms": ConsensusTerms(),
    "classes": (0, 1),
}


class Client:
    """What `Workers` asks of a client of Dask."""

    def submit(self, function, *arguments, **options):
        return function(*arguments)


CLIENT = Client()


def optimizer(**given):
    linear = torch.nn.Linear(2, 1)
    inner = torch.optim.SGD(linear.parameters(), lr=0.1)
    asked = given.pop("optimizer")
    known = isinstance(asked, str) and asked == "sgd"
    return private_torch.DPOptimizer(inner if known else asked, **given)


def gradients(**given):
    linear = torch.nn.Linear(2, 1)
    private_torch.per_sample_gradients(linear, torch.nn.functional.mse_loss, **given)


INTEROP: dict[str, Case] = {
    "dpcore.tables.TablePlan": function(tables.TablePlan, schema=COLUMNS, epsilon=1.0),
    "dpcore.tables.table_stream": function(tables.table_stream, noise=NOISE, name="survey"),
    "dpcore.interop.arrow.batches": Case(lambda data: list(arrow.batches(data)), {"data": TABLE}),
    "dpcore.interop.arrow.reader": function(arrow.reader, data=TABLE),
    "dpcore.interop.arrow.chunks": function(arrow.chunks, data=TABLE["a"]),
    "dpcore.interop.arrow.decode": function(
        arrow.decode, mechanism=MECHANISM, codes=pa.array([0, 1], pa.uint8())
    ),
    "dpcore.interop.arrow.encode": function(arrow.encode, mechanism=MECHANISM, data=TABLE["a"]),
    "dpcore.interop.arrow.estimate": function(
        arrow.estimate, mechanism=MECHANISM, codes=pa.array([0, 1], pa.uint8())
    ),
    "dpcore.interop.dask.Workers": function(dask.Workers, client=CLIENT),
    "dpcore.interop.dask.encode": function(
        dask.encode, array=ARRAY, mechanism=MECHANISM, noise=NOISE
    ),
    "dpcore.interop.dask.estimate": function(
        dask.estimate, data=da.from_array(np.array([0, 1], np.uint8)), how=MECHANISM
    ),
    "dpcore.interop.dask.privatize": function(dask.privatize, data=FRAME, how=PLAN, noise=NOISE),
    "dpcore.interop.flower.Agreement": function(flower.Agreement, **AGREEMENT),
    "dpcore.interop.numba.Encoder": function(numba.Encoder, mechanism=MECHANISM),
    "dpcore.interop.spark.count": function(spark.count, plan=PLAN),
    "dpcore.interop.spark.counts_of": function(spark.counts_of, collected=[]),
    "dpcore.interop.spark.ddl": function(spark.ddl, plan=PLAN),
    "dpcore.interop.spark.randomise": function(spark.randomise, plan=PLAN, noise=NOISE, rows="row"),
    "dpcore.interop.torch.DPOptimizer": Case(
        optimizer,
        {
            "optimizer": "sgd",
            "clip": 1.0,
            "delta": 1e-5,
            "steps": 5,
            "sampling_rate": 1.0,
            "n_records": 100,
            "epsilon": None,
            "noise_multiplier": 2.0,
            "noise": None,
        },
    ),
    "dpcore.interop.torch.Encode": function(private_torch.Encode, mechanism=MECHANISM),
    "dpcore.interop.torch.Gaussian": Case(
        private_torch.Gaussian, {"noise": None, "sensitivity": 1.0, "epsilon": 1.0, "delta": 1e-6}
    ),
    "dpcore.interop.torch.Laplace": Case(
        private_torch.Laplace, {"noise": None, "sensitivity": 1.0, "epsilon": 1.0}
    ),
    "dpcore.interop.torch.Mask": function(private_torch.Mask, keys=[bytes(32)], negative=[False]),
    "dpcore.interop.torch.per_sample_gradients": Case(
        gradients, {"x": torch.zeros(3, 2), "y": torch.zeros(3, 1), "chunk_size": None}
    ),
    "TablePlan.privatize": function(PLAN.privatize, data=TABLE),
    "TablePlan.count": function(PLAN.count, data=PLAN.privatize(TABLE)),
    "TablePlan.estimate": function(PLAN.estimate, data=PLAN.privatize(TABLE)),
    "Sampler.laplace": function(numba.Sampler.laplace, epsilon=1.0, sensitivity=1.0),
}
