"""Arrow in, Arrow out: randomisers on the columns of any engine, without copies.

Everything that has ``__arrow_c_stream__`` or ``__arrow_c_array__`` is taken: arrays, batches and
tables of pyarrow, series and frames of Polars and pandas, relations of DuckDB.

>>> import pandas as pd
>>> import dpcore
>>> from dpcore import local
>>> from dpcore.interop import arrow
>>> mechanism = local.make("hm-j", epsilon=2.0, lower=0, upper=100)
>>> codes = arrow.encode(mechanism, pd.Series([40.0] * 100_000))
>>> low, high = arrow.estimate(mechanism, codes).interval(0.999999)
>>> bool(low < 40 < high)
True
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dpcore._charge import ledger_in_force, prepay
from dpcore._release import check_start
from dpcore.errors import DataError, DPCoreError, ParameterError
from dpcore.interop._secure import check_secure
from dpcore.local.base import Estimate, Mechanism, check_finite
from dpcore.noise import Noise

__all__ = ["batches", "chunks", "decode", "encode", "estimate", "reader"]


def batches(data: Any) -> Iterator[pa.RecordBatch]:
    """The record batches of a table, batch or stream of any engine, one at a time, at least one.

    Privacy
    -------
    None: the data pass as they are.

    Cost
    ----
    One batch at a time; nothing is copied here, though the engine may copy to export.
    """
    stream = reader(data)
    batch = _next(stream)
    yield pa.RecordBatch.from_pylist([], stream.schema) if batch is None else batch
    while batch is not None:
        batch = _next(stream)
        if batch is not None:
            yield batch


def _next(stream: pa.RecordBatchReader) -> pa.RecordBatch | None:
    with _engine():
        return next(stream, None)


@contextmanager
def _engine() -> Iterator[None]:
    """Troubles of an engine without its messages, which contain values."""
    try:
        yield
    except (DPCoreError, MemoryError):
        raise
    except Exception:
        raise DataError("The 'data' parameter cannot be read: its engine failed.") from None


def reader(data: Any) -> pa.RecordBatchReader:
    """A table, batch or stream of any engine as a stream of pyarrow, whose schema can be read.

    Privacy
    -------
    None: the data pass as they are.

    Cost
    ----
    Nothing is copied here, though the engine may copy to export.
    """
    with _engine(), suppress(TypeError, pa.ArrowException):
        if isinstance(data, pa.Table):
            return data.to_reader()
        if isinstance(data, pa.RecordBatchReader):
            return data
        if hasattr(data, "__arrow_c_array__"):
            batch = pa.record_batch(data)
            return pa.RecordBatchReader.from_batches(batch.schema, [batch])
        if hasattr(data, "__arrow_c_stream__"):
            return pa.RecordBatchReader.from_stream(data)
    raise ParameterError(
        "The 'data' parameter must be a table with the Arrow interface __arrow_c_stream__ or "
        "__arrow_c_array__."
    )


def chunks(data: Any) -> list[pa.Array]:
    """The arrays of a column of any engine.

    Privacy
    -------
    None: the data pass as they are.

    Cost
    ----
    A stream is read to its end; nothing is copied here, though the engine may copy to export.
    """
    if isinstance(data, pa.ChunkedArray):
        return data.chunks  # type: ignore[no-any-return]
    if isinstance(data, pa.Array):
        return [data]
    with _engine(), suppress(TypeError, pa.ArrowException):
        if hasattr(data, "__arrow_c_stream__"):
            return pa.chunked_array(data).chunks  # type: ignore[no-any-return]
        if hasattr(data, "__arrow_c_array__"):
            return [pa.array(data)]
    raise ParameterError(
        "The 'data' parameter must be a column with the Arrow interface __arrow_c_stream__ or "
        "__arrow_c_array__."
    )


def encode(
    mechanism: Mechanism, data: Any, *, noise: Noise | None = None, start: int = 0
) -> pa.Array:
    """`Mechanism.encode` of a column of numbers, as an Arrow array of codes.

    Parameters
    ----------
    mechanism : Mechanism
    data : object with __arrow_c_stream__ or __arrow_c_array__
        float32 and float64 are read where they are; integers and decimals are copied. No nulls.
    noise, start
        As for `Mechanism.encode`, which gives the same codes. Insecure noise is refused: an array
        of Arrow cannot be marked.

    Privacy
    -------
    As for `Mechanism.encode`: epsilon-local-DP of every value by itself.

    Cost
    ----
    One pass, and memory for the codes.
    """
    _check(mechanism)
    parts = [_numbers(chunk) for chunk in chunks(data)]
    n, source = sum(map(len, parts)), check_secure(noise, "an Arrow array")
    first = check_start(start, n)
    if n == 0:
        return pa.array([], pa.from_numpy_dtype(mechanism._dtype))
    if len(parts) > 1 and ledger_in_force() is not None:
        # The first chunk would be charged before the last is looked at.
        for part in parts:
            check_finite(part)
    if len(parts) > 1 and not source.pinned:
        # All chunks are one release.
        source = prepay(source, mechanism.event, "local", mechanism._fingerprint).release("arrow")
    codes = []
    for part in parts:
        if len(part):
            codes.append(np.asarray(mechanism.encode(part, noise=source, start=first)))
            first += len(part)
    return pa.array(codes[0] if len(codes) == 1 else np.concatenate(codes))


def decode(mechanism: Mechanism, codes: Any) -> pa.Array:
    """`Mechanism.decode` of a column of codes.

    Privacy
    -------
    Post-processing of the codes.

    Cost
    ----
    One pass, and 8 bytes for each code; chunks are joined first where there are several.
    """
    _check(mechanism)
    return pa.array(mechanism.decode(_codes(codes)))


def estimate(mechanism: Mechanism, codes: Any) -> Estimate:
    """`Mechanism.estimate` of a column of codes.

    Privacy
    -------
    Post-processing of the codes.

    Cost
    ----
    One pass that counts codes; chunks are joined first where there are several.
    """
    _check(mechanism)
    return mechanism.estimate(_codes(codes))


def _check(mechanism: Any) -> None:
    if not isinstance(mechanism, Mechanism):
        raise ParameterError("The 'mechanism' parameter must be one of dpcore.local.")


def _numbers(array: pa.Array) -> npt.NDArray[Any]:
    kind = array.type
    if pa.types.is_decimal(kind):
        array = array.cast(pa.float64())
    elif not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        raise ParameterError("The 'data' parameter must be of an integer, float or decimal type.")
    if array.null_count:
        raise DataError("The 'data' parameter must hold no nulls.")
    return array.to_numpy(zero_copy_only=True)  # type: ignore[no-any-return]


def _codes(data: Any) -> npt.NDArray[Any]:
    parts = [_numbers(chunk) for chunk in chunks(data)]
    return np.concatenate(parts) if len(parts) != 1 else parts[0]
