"""The exceptions of dpcore; see `dpcore_ext.errors`, where the native layer finds them too."""

from dpcore_ext.errors import (
    BudgetExceededError,
    DataError,
    DPCoreError,
    EntropyError,
    InsecureNoiseError,
    LedgerError,
    ParameterError,
    ProtocolError,
    RefusedError,
    RepeatedReleaseError,
    RoundAbortedError,
    WireFormatError,
)

__all__ = [
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
]
