"""Secure aggregation: a server learns the sum of many clients' vectors and nothing else of them.

The protocol is that of Bonawitz et al. (2017) with the sparse graphs of Bell et al. (2020), made of
parts that one can look at: a ring (`FixedPoint`), keys (`Identity`), two state machines that take
bytes and return bytes (`Client`, `Server`), and a driver that runs them in memory (`Cohort`).
Transport is left to others. Needs the extra ``secagg``.

1. *advertise*: each client signs two fresh public keys, one to seal messages, one for masks.
2. *share*: it splits its mask key and the seed of its self mask among its neighbours.
3. *mask*: it adds its noise, its self mask, and a mask for each neighbour, with opposite signs at
   the two ends, so that they cancel in the sum.
4. *confirm*: a committee signs who is left.
5. *unmask*: for those who are left their self masks are disclosed, for the others their mask keys,
   and never both for one client. There is no cheaper way for rounds in which nobody dropped out.

Who takes part is the server's choice: selection is not verifiable.

>>> import numpy as np
>>> from dpcore.secure import Cohort, Parameters
>>> parameters = Parameters(b"example", dimension=4, bound=1.0, max_clients=6, min_clients=4)
>>> result = Cohort(parameters, 6).round(np.full((6, 4), 0.5), dropouts={"mask": [2]})
>>> result.total, result.survivors
(array([2.5, 2.5, 2.5, 2.5]), (0, 1, 3, 4, 5))
"""

from dpcore.secure.client import Client
from dpcore.secure.graph import GraphSecurity, always_connected, choose_degree, security
from dpcore.secure.keys import Identity
from dpcore.secure.noise import (
    DistributedGaussian,
    distributed_gaussian,
    honest_survivors,
    share_sigma,
)
from dpcore.secure.parameters import Parameters
from dpcore.secure.ring import FixedPoint
from dpcore.secure.server import Aggregate, Server
from dpcore.secure.simulate import Cohort

__all__ = [
    "Aggregate",
    "Client",
    "Cohort",
    "DistributedGaussian",
    "FixedPoint",
    "GraphSecurity",
    "Identity",
    "Parameters",
    "Server",
    "always_connected",
    "choose_degree",
    "distributed_gaussian",
    "honest_survivors",
    "security",
    "share_sigma",
]
