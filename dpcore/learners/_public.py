"""What should be public and was read off the private data: said aloud."""

from __future__ import annotations

import sys
import warnings
from types import FrameType

__all__ = ["InferredPublicWarning", "warn_inferred"]


class InferredPublicWarning(UserWarning):
    """Something that should be public was read off the private data, which leaks."""


def warn_inferred(name: str, leaked: str) -> None:
    """Warn that a parameter is missing and what is therefore read off the data."""
    warnings.warn(
        f"The '{name}' parameter is missing, so {leaked} is read off the data; the privacy "
        f"guarantee does not cover that. State '{name}' from public knowledge.",
        InferredPublicWarning,
        stacklevel=_caller_level(),
    )


def _caller_level() -> int:
    """The `stacklevel` for which a warning of the calling function names the line of the user."""
    frame, level = sys._getframe(1), 1
    while frame.f_back is not None and _package(frame) in ("dpcore", "sklearn"):
        frame, level = frame.f_back, level + 1
    return level


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]
