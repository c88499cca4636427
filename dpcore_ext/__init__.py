"""The native core of dpcore: everything that `dpcore` may use of it, and nothing else."""

from dpcore_ext import encode, errors, pack, rng, sample

__all__ = ["encode", "errors", "pack", "rng", "sample"]
