"""The exceptions of dpcore; see `dpcore_ext.errors`, where the native layer finds them too."""

from dpcore_ext.errors import (
    DataError,
    DPCoreError,
    EntropyError,
    InsecureNoiseError,
    ParameterError,
    WireFormatError,
)

__all__ = [
    "DPCoreError",
    "DataError",
    "EntropyError",
    "InsecureNoiseError",
    "ParameterError",
    "WireFormatError",
]
