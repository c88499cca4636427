"""Learners with scikit-learn's conventions; each says in `privacy_` what it guarantees."""

from dpcore.learners.privatizer import LocalPrivacy, LocalPrivatizer

__all__ = ["LocalPrivacy", "LocalPrivatizer"]
