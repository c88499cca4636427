"""Noise for results that cannot be marked as not private."""

from __future__ import annotations

from dpcore._release import check_noise
from dpcore.errors import InsecureNoiseError
from dpcore.noise import Noise

__all__ = ["check_secure"]


def check_secure(noise: Noise | None, results: str) -> Noise:
    """The source given, or a secure new one; `results` names what cannot carry a mark."""
    source = check_noise(noise)
    if not source.private:
        raise InsecureNoiseError(
            f"Insecure noise is refused: {results} cannot be marked as not private."
        )
    return source
