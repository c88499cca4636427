"""Mechanisms as bytes for devices that run the C core without Python.

The format is described in ``dpcore_ext/src/private/device.h``; ``dpcore/device.h`` is what a device
program includes, and ``make device`` builds the library that reads the bytes.
"""

from __future__ import annotations

import hashlib
import struct

import numpy as np

from dpcore_ext.encode import Rows

__all__ = ["TABLE_VERSION", "table_bytes"]

TABLE_VERSION = 1

_MAGIC = b"dpct"
_HEADER = struct.Struct("<4sBBBBIIddd32s")


def table_bytes(
    rows: Rows,
    *,
    kind: int,
    n_outputs: int,
    epsilon: float,
    bounds: tuple[float, float],
    digest: bytes,
) -> bytes:
    """The table of a mechanism: header, entries, cuts, and the SHA-256 of all that."""
    n_rows, n_columns = rows.entries.shape
    n_bits = n_columns.bit_length() - 1
    header = _HEADER.pack(
        _MAGIC, TABLE_VERSION, kind, n_bits, 0, n_outputs, n_rows - 1, epsilon, *bounds, digest
    )
    arrays = np.asarray(rows.entries, "<u4").tobytes() + np.asarray(rows.cuts, "<u8").tobytes()
    body = header + arrays
    return body + hashlib.sha256(body).digest()
