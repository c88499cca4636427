"""Federated learning of linear models: protocols, solvers and simulation.

The estimators that run them are in `dpcore.learners`.

>>> from dpcore.federated import LOSSES
>>> sorted(LOSSES)
['hinge', 'huber', 'huber_hinge', 'logistic', 'squared']
"""

from dpcore.federated.history import History
from dpcore.federated.losses import LOSSES, Loss, custom_loss, make_loss
from dpcore.federated.schedule import Delays, Schedule, simulate

__all__ = [
    "LOSSES",
    "Delays",
    "History",
    "Loss",
    "Schedule",
    "custom_loss",
    "make_loss",
    "simulate",
]
