"""The exceptions of dpcore, and the table from native status codes to them."""

from __future__ import annotations

__all__ = [
    "STATUS",
    "BudgetExceededError",
    "DPCoreError",
    "DataError",
    "EntropyError",
    "InsecureNoiseError",
    "LedgerError",
    "ParameterError",
    "ProtocolError",
    "RefusedError",
    "RepeatedReleaseError",
    "RoundAbortedError",
    "WireFormatError",
    "raise_status",
]


class DPCoreError(Exception):
    """Base of every exception that dpcore raises on purpose.

    Messages name the parameter at fault and what it must be; they never contain a data value, a
    key or anything derived from either.
    """


class ParameterError(DPCoreError, ValueError):
    """A parameter is outside what the function accepts."""


class DataError(DPCoreError, ValueError):
    """The data are not of the documented kind: not finite, or outside the fixed-point range."""


class WireFormatError(DPCoreError, ValueError):
    """Bytes received are not a message that this version of dpcore writes."""


class BudgetExceededError(DPCoreError, RuntimeError):
    """A release does not fit what is left of a privacy budget; it was not made."""


class LedgerError(DPCoreError, OSError):
    """A ledger cannot be read or written, or a file is not one; nothing was released."""


class RepeatedReleaseError(DPCoreError, RuntimeError):
    """A release that may be drawn once only was asked for again."""


class ProtocolError(DPCoreError, RuntimeError):
    """A protocol between several parties cannot go on."""


class RefusedError(ProtocolError):
    """A party was asked for what could expose its data; it sent nothing and kept its state."""


class RoundAbortedError(ProtocolError):
    """A round ended without a result; nothing can be learned from what was sent."""


class EntropyError(DPCoreError, OSError):
    """The operating system gave no randomness; dpcore has no weaker source to fall back on."""


class InsecureNoiseError(DPCoreError, RuntimeError):
    """Reproducible noise would have repeated itself, for instance in a forked process."""


STATUS: dict[int, tuple[type[DPCoreError], str]] = {
    1: (EntropyError, "The operating system gave no randomness; nothing was released."),
    2: (ParameterError, "The 'level' parameter must be a SIMD level that this CPU has."),
    3: (DataError, "The '{name}' parameter must hold finite numbers only."),
    4: (
        DataError,
        "The '{name}' parameter must hold numbers below 2**62 units of the resolution; "
        "choose a coarser resolution.",
    ),
    5: (DataError, "The '{name}' parameter must hold codes below 2**n_bits."),
}


def raise_status(status: int, name: str = "x") -> None:
    """Raise the exception of a native status code; do nothing for 0."""
    if status:
        kind, text = STATUS[status]
        raise kind(text.format(name=name))
