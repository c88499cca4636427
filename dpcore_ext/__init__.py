"""The native core of dpcore: everything that `dpcore` may use of it, and nothing else."""

from dpcore_ext import cluster, encode, errors, labeling, pack, recurrent, rng, sample, secagg

__all__ = [
    "cluster",
    "encode",
    "errors",
    "labeling",
    "pack",
    "recurrent",
    "rng",
    "sample",
    "secagg",
]
