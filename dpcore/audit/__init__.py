"""Audits: does a mechanism keep what it claims?

>>> from dpcore import audit, local
>>> audit.mechanism(local.GRR(1.0, n_categories=3), trials=50_000).passed
True
"""

from dpcore.audit.learners import from_estimator, learner
from dpcore.audit.mechanisms import mechanism
from dpcore.audit.result import Audit

__all__ = ["Audit", "from_estimator", "learner", "mechanism"]
