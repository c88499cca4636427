"""Federated learning over Flower, which carries bytes and decides nothing.

Everything that matters for privacy is the dpcore installed on a node: the randomisers, the secure
aggregation, the budget, and the memory of what was answered. All parties hold a copy of one file of
public parameters (`Agreement`). A `Node` answers for the clients whose data it holds, a
`ConsensusServer` or a `DescentServer` asks; they exchange bytes and know nothing of Flower. The
modules `transport` and `launch` put them into its apps and start its processes; ``dpcore federate``
is the command for it. Needs the extra ``flower`` and Python 3.11.

>>> from dpcore.interop.flower import Agreement
>>> agreement = Agreement.from_mapping({
...     "session": "study 7", "task": "fedsgd", "features": ["age"], "bounds": [[0, 100]],
...     "classes": [0, 1], "epsilon": 2.0, "rounds": 10, "clients": {"0": "00" * 32},
... })
>>> agreement.dimension, agreement.terms.group_size
(2, 100)
"""

from dpcore.interop.flower.agreement import Agreement
from dpcore.interop.flower.consensus import ConsensusMember, ConsensusServer
from dpcore.interop.flower.descent import DescentMember, DescentServer
from dpcore.interop.flower.node import Node, enrol, make_server

__all__ = [
    "Agreement",
    "ConsensusMember",
    "ConsensusServer",
    "DescentMember",
    "DescentServer",
    "Node",
    "enrol",
    "make_server",
]
