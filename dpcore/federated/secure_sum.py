"""The seam to secure aggregation: sums of integer messages that nobody sees one by one."""

from __future__ import annotations

import os

import numpy as np

from dpcore.errors import ParameterError
from dpcore.federated.consensus import Index, Integers, Summation
from dpcore.federated.shares import log2_limit

__all__ = ["secure_sum"]

_LEAST_USERS = 3


def secure_sum(n: int, d: int, *, barrier: int) -> Summation:
    """A summation by secure aggregation between n users and a server, all in this process.

    Parameters
    ----------
    n, d : int
        Users, and length of a message.
    barrier : int
        Users in the smallest round, and the fewest whose sum is disclosed. Noise is planned for the
        honest ones among so many, so a sum of fewer might hold fewer honest shares than planned.
    """
    from dpcore.secure.parameters import Parameters
    from dpcore.secure.simulate import Cohort

    if barrier < _LEAST_USERS:
        raise ParameterError("The 'secure' parameter needs three or more users in every round.")
    parameters = Parameters(
        b"dpcore/federated/" + os.urandom(16),
        dimension=d,
        bound=1 << (log2_limit(n) + 2),  # a change is the difference of two messages, with noise
        fraction_bits=0,
        ring_bits=64,
        max_clients=n,
        min_clients=barrier,
        min_survivors=barrier,
    )
    cohort = Cohort(parameters, n)

    def add(units: Integers, users: Index) -> Integers:
        vectors = np.zeros((n, d), np.int64)
        vectors[users] = units
        absent = np.setdiff1d(np.arange(n), users).tolist()
        result = cohort.round(vectors, dropouts={"advertise": absent})
        return np.asarray(parameters.fixed_point.unwrap(result.words)).copy()

    return add
