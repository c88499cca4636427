"""Learners with scikit-learn's conventions; each says in `privacy_` what it guarantees."""

from dpcore.learners.privatizer import LocalPrivatizer

__all__ = ["LocalPrivatizer"]
