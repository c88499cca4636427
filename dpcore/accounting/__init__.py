"""Privacy accounting: events, what they cost together, and a budget that cannot be overspent.

>>> from dpcore import accounting
>>> week = accounting.GaussianEvent(mechanism="gaussian", noise_multiplier=20.0)
>>> round(accounting.compose([week] * 52).epsilon(delta=1e-6), 4)
1.5769
"""

from dpcore._events import (
    Event,
    GaussianEvent,
    PureEvent,
    SampledGaussianEvent,
    ZCDPEvent,
)
from dpcore.accounting.composition import Composition, compose, verify, zcdp_epsilon
from dpcore.accounting.ledger import Entry, Ledger
from dpcore.accounting.privacy import Privacy
from dpcore.accounting.sampled import calibrate_noise

__all__ = [
    "Composition",
    "Entry",
    "Event",
    "GaussianEvent",
    "Ledger",
    "Privacy",
    "PureEvent",
    "SampledGaussianEvent",
    "ZCDPEvent",
    "calibrate_noise",
    "compose",
    "verify",
    "zcdp_epsilon",
]
