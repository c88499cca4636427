"""What should be public and was read off the private data: said aloud."""

from __future__ import annotations

import warnings

__all__ = ["InferredPublicWarning", "warn_inferred"]


class InferredPublicWarning(UserWarning):
    """Something that should be public was read off the private data, which leaks."""


def warn_inferred(name: str, leaked: str) -> None:
    """Warn that a parameter is missing and what is therefore read off the data."""
    warnings.warn(
        f"The '{name}' parameter is missing, so {leaked} is read off the data; the privacy "
        f"guarantee does not cover that. State '{name}' from public knowledge.",
        InferredPublicWarning,
        stacklevel=5,
    )
