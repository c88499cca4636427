"""Local randomisers on Dask arrays."""

from __future__ import annotations

import math
from typing import Any

import dask
import dask.array as da
import numpy as np
import numpy.typing as npt
from dask.base import tokenize

from dpcore import _charge
from dpcore._checks import INDEX_LIMIT
from dpcore._parallel import one_thread
from dpcore.errors import DataError, ParameterError
from dpcore.interop.dask.sealed import Sealed, check_private
from dpcore.local.base import Mechanism
from dpcore.local.categorical import GRR, OUE
from dpcore.noise import Noise

__all__ = ["encode", "estimate", "privatize"]

Randomiser = Mechanism | GRR | OUE

_SPLIT_EVERY = 16  # tables of counts that one task of the tree adds up


def encode(array: Any, mechanism: Randomiser, *, noise: Noise) -> Any:
    source = _checked(array, mechanism, noise)
    chunks, n_codes = array.chunks, _n_codes(mechanism)
    if isinstance(mechanism, OUE):
        chunks, n_codes = (*chunks, (mechanism.n_bytes,)), 256
    dtype = np.dtype(np.uint8 if n_codes <= 256 else np.uint16)
    return _map(_encode_block, array, mechanism, source, chunks, dtype)


def privatize(array: Any, mechanism: Mechanism, *, noise: Noise) -> Any:
    if not isinstance(mechanism, Mechanism):
        raise ParameterError("The 'mechanism' parameter must be one for numbers; see encode.")
    source = _checked(array, mechanism, noise)
    return _map(_privatize_block, array, mechanism, source, array.chunks, np.dtype(np.float64))


def estimate(codes: Any, mechanism: Randomiser, *, compute: bool = True) -> Any:
    _check_mechanism(mechanism)
    if isinstance(mechanism, OUE) and (codes.ndim != 2 or codes.numblocks[1] != 1):
        raise ParameterError("The 'codes' parameter must hold whole reports in every chunk.")
    n_counts = _n_codes(mechanism) + (not isinstance(mechanism, Mechanism))
    sealed = Sealed(repr(mechanism), mechanism)
    counts = codes.map_blocks(
        _count_block,
        sealed,
        n_counts,
        new_axis=codes.ndim,
        chunks=(*((1,) * n for n in codes.numblocks), (n_counts,)),
        name=f"dpcore-count-{tokenize(codes.name, sealed)}",
        meta=np.empty((0,) * (codes.ndim + 1), np.int64),
    )
    total = counts.sum(axis=tuple(range(codes.ndim)), split_every=_SPLIT_EVERY)
    result = dask.delayed(_estimate_counts)(total, sealed)
    return result.compute() if compute else result


def _checked(array: Any, mechanism: Any, noise: Any) -> Noise:
    """Refuse what could go wrong later; then charge the job. Nothing has run so far."""
    _check_mechanism(mechanism)
    if not isinstance(array, da.Array) or type(array._meta) is not np.ndarray:
        raise ParameterError("The 'array' parameter must be a Dask array of NumPy arrays.")
    if array.ndim == 0 or any(math.isnan(n) for n in array.shape):
        raise ParameterError(
            "The 'array' parameter must have known chunk sizes; see Array.compute_chunk_sizes."
        )
    if any(n != 1 for n in array.numblocks[1:]):
        raise ParameterError(
            "The 'array' parameter must be cut along its first axis only; see Array.rechunk."
        )
    if array.size == 0:
        raise ParameterError("The 'array' parameter must not be empty.")
    if array.size > INDEX_LIMIT:
        raise ParameterError("The 'array' parameter must have at most 2**62 elements.")
    categorical = isinstance(mechanism, GRR | OUE)
    if array.dtype.kind not in ("iu" if categorical else "iuf") or array.dtype.itemsize > 8:
        raise ParameterError("The 'array' parameter must be of a dtype that the mechanism takes.")
    if categorical and array.ndim != 1:
        raise ParameterError("The 'array' parameter must have 1 dimension.")
    source = check_private(noise)
    return _charge.prepay(source, mechanism.event, *mechanism._address)


def _check_mechanism(mechanism: Any) -> None:
    if not isinstance(mechanism, Mechanism | GRR | OUE):
        raise ParameterError(
            "The 'mechanism' parameter must be a mechanism of dpcore.local, GRR or OUE."
        )


def _n_codes(mechanism: Randomiser) -> int:
    return mechanism.n_outputs if isinstance(mechanism, Mechanism) else mechanism.n_categories


def _map(
    function: Any, array: Any, mechanism: Randomiser, source: Noise, chunks: Any, dtype: Any
) -> Any:
    # Public, and equal for equal noise: nothing that Dask shows depends on the key otherwise.
    sealed = Sealed(source.fingerprint(*mechanism._address), mechanism, noise=source)
    return array.map_blocks(
        function,
        sealed,
        name=f"dpcore{function.__name__.replace('_', '-')}-{tokenize(array.name, sealed)}",
        chunks=tuple(chunks),
        new_axis=1 if len(chunks) > array.ndim else None,
        meta=np.empty((0,) * len(chunks), dtype),
    )


def _encode_block(
    block: npt.NDArray[Any], sealed: Sealed, block_info: Any = None
) -> npt.NDArray[Any]:
    mechanism: Randomiser = sealed.shared
    place = block_info[0]["array-location"]
    # A block of another length would use noise that belongs to its neighbour.
    if block.shape != tuple(end - begin for begin, end in place):
        raise DataError("The 'array' parameter must have blocks of the sizes that it declares.")
    if block.size == 0:
        return np.empty(block_info[None]["chunk-shape"], block_info[None]["dtype"])
    start = place[0][0] * math.prod(block.shape[1:])
    with one_thread():
        return mechanism.encode(block, noise=sealed.noise, start=start)


def _privatize_block(
    block: npt.NDArray[Any], sealed: Sealed, block_info: Any = None
) -> npt.NDArray[np.float64]:
    mechanism: Mechanism = sealed.shared
    codes = _encode_block(block, sealed, block_info)
    return mechanism.outputs[codes] if codes.size else codes


def _count_block(block: npt.NDArray[Any], sealed: Sealed, n_counts: int) -> npt.NDArray[np.int64]:
    shape = (1,) * block.ndim + (n_counts,)
    if block.size == 0:
        return np.zeros(shape, np.int64)
    counts: npt.NDArray[np.int64] = sealed.shared.count(block)
    return counts.reshape(shape)


def _estimate_counts(counts: npt.NDArray[np.int64], sealed: Sealed) -> Any:
    return sealed.shared._estimate_counts(counts)
