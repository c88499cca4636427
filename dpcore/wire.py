"""Messages that carry the codes of local randomisers, a few bits each, from clients to a server.

A message is a header, the public parameters of the mechanism, the packed codes and a checksum;
integers are little-endian and nothing is aligned or padded:

========  =====================  ===================================================================
offset    type                   field
========  =====================  ===================================================================
0         4 bytes                magic, ``dpcr``
4         u8                     version, 1
5         u8                     kind: the number of the mechanism, not interpreted here
6         u8                     n_bits, 1 to 16
7         u8                     reserved, 0
8         u64                    count: the number of codes
16        u64                    payload length in bytes: ceil(count * n_bits / 8)
24        u32                    parameter length in bytes
28        bytes                  parameters: opaque here
...       bytes                  payload: read as one little-endian integer, it has code i in bits
                                 i * n_bits to (i + 1) * n_bits - 1, and zeros above the last code
...       u32                    CRC-32, as of zlib, of all bytes before it
========  =====================  ===================================================================

There is exactly one message for given contents. The checksum finds accidents, not forgery: whoever
can send messages can also compute it. Authenticate the channel, and judge what a client reports by
what the mechanism can output.

>>> import dpcore.wire
>>> data = dpcore.wire.pack([3, 0, 2, 3], kind=7, n_bits=2)
>>> message = dpcore.wire.unpack(data)
>>> message.kind, message.codes().tolist(), message.counts().tolist()
(7, [3, 0, 2, 3], [1, 0, 1, 2])
"""

from __future__ import annotations

import operator
import struct
import zlib
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from dpcore._release import check_out
from dpcore.errors import DataError, ParameterError, WireFormatError
from dpcore_ext import pack as _native

__all__ = ["MAX_BITS", "VERSION", "Message", "n_bits_for", "pack", "unpack"]

VERSION = 1
MAX_BITS = _native.MAX_BITS

_MAGIC = b"dpcr"
_HEADER = struct.Struct("<4sBBBBQQI")
_CHECKSUM = struct.Struct("<I")

BytesLike: TypeAlias = bytes | bytearray | memoryview | npt.NDArray[Any]
Codes: TypeAlias = npt.NDArray[np.uint8] | npt.NDArray[np.uint16]


@dataclass(frozen=True, slots=True)
class Message:
    """The contents of one message; `unpack` makes it.

    Attributes
    ----------
    kind : int
        Number of the mechanism.
    n_bits : int
        Bits per code.
    count : int
        Number of codes.
    parameters : bytes
        Public parameters of the mechanism, opaque here.
    payload : memoryview
        The packed codes: a read-only view into the bytes that were unpacked.

    Privacy
    -------
    As private as the codes: nothing is encrypted, and whoever has the bytes reads all of them.

    Cost
    ----
    The payload is not copied: the bytes that were unpacked stay in memory with the message.

    Examples
    --------
    >>> message = unpack(pack([5, 1, 5], kind=1, n_bits=3))
    >>> message.codes()
    array([5, 1, 5], dtype=uint8)
    """

    kind: int
    n_bits: int
    count: int
    parameters: bytes
    payload: memoryview

    def codes(self) -> Codes:
        """The codes: an array of uint8 up to 8 bits and of uint16 above.

        Cost
        ----
        One pass over the payload, and one or two bytes per code for the result.

        Examples
        --------
        >>> unpack(pack([700], kind=1, n_bits=10)).codes()
        array([700], dtype=uint16)
        """
        codes: Codes = np.empty(self.count, _code_dtype(self.n_bits))
        _native.unpack(self.payload, self.n_bits, codes)
        return codes

    def counts(self, out: npt.NDArray[np.int64] | None = None) -> npt.NDArray[np.int64]:
        """How often each of the 2**n_bits codes occurs, counted without unpacking.

        Parameters
        ----------
        out : ndarray of int64, shape (2**n_bits,), optional
            Counts to add to, of earlier messages for instance; zeros by default.

        Returns
        -------
        ndarray of int64, shape (2**n_bits,)
            `out`, or a new array. Codes that the mechanism cannot output are counted as well: a
            sender is free to report them.

        Cost
        ----
        One pass over the payload, and 8 * 2**n_bits bytes for the result.

        Examples
        --------
        >>> total = unpack(pack([1, 1, 0], kind=1, n_bits=1)).counts()
        >>> unpack(pack([0, 0], kind=1, n_bits=1)).counts(out=total)
        array([3, 2])
        """
        shape = (1 << self.n_bits,)
        counts = np.zeros(shape, np.int64) if out is None else check_out(out, shape, np.int64)
        _native.count_packed(self.payload, self.n_bits, self.count, counts.view(np.uint64))
        return counts


def n_bits_for(n_outputs: int) -> int:
    """The least n_bits with room for the codes 0, ..., n_outputs - 1.

    Parameters
    ----------
    n_outputs : int
        Number of outputs of a mechanism, 1 to 65536.

    Privacy
    -------
    A calculation with public numbers; no data are read.

    Cost
    ----
    A few operations on integers.

    Examples
    --------
    >>> n_bits_for(2), n_bits_for(5), n_bits_for(256)
    (1, 3, 8)
    """
    return max(1, (_check_between(n_outputs, "n_outputs", 1, 1 << MAX_BITS) - 1).bit_length())


def pack(codes: npt.ArrayLike, *, kind: int, n_bits: int, parameters: BytesLike = b"") -> bytes:
    """One message with the codes, in the format that the module describes.

    Parameters
    ----------
    codes : array_like of integers, one dimension
        Outputs of a randomiser, below 2**n_bits. Arrays of uint8 (up to 8 bits) and of uint16 are
        packed as they are; others are checked and copied first.
    kind : int
        Number of the mechanism, 0 to 255.
    n_bits : int
        Bits per code, 1 to 16; see `n_bits_for`.
    parameters : bytes-like
        Public parameters of the mechanism, shorter than 2**32 bytes.

    Returns
    -------
    bytes
        The message: 32 bytes, the parameters, and n_bits bytes for every 8 codes.

    Privacy
    -------
    Post-processing of the codes: the message is as private as they are. Their number, the
    parameters and whether all codes are below 2**n_bits are visible.

    Cost
    ----
    Less than a nanosecond per code from arrays of uint8 or uint16, and the checksum of the bytes.

    Examples
    --------
    >>> pack([1, 0, 1, 1], kind=1, n_bits=1).hex(" ", -4)
    '64706372 01010100 04000000 00000000 01000000 00000000 00000000 0ddc193e eb'
    """
    n_bits = _check_between(n_bits, "n_bits", 1, MAX_BITS)
    kind = _check_between(kind, "kind", 0, 255)
    block = _byte_view(parameters, "parameters")
    if len(block) >> 32:
        raise ParameterError("The 'parameters' parameter must be shorter than 2**32 bytes.")
    array = _check_codes(codes, n_bits)
    payload = np.empty(_packed_size(array.size, n_bits), np.uint8)
    _native.pack(array, n_bits, payload)
    header = _HEADER.pack(_MAGIC, VERSION, kind, n_bits, 0, array.size, payload.size, len(block))
    checksum = zlib.crc32(payload.data, zlib.crc32(block, zlib.crc32(header)))
    return b"".join([header, block, payload.data, _CHECKSUM.pack(checksum)])


def unpack(data: BytesLike) -> Message:
    """The contents of a message, checked, without copying the codes.

    Parameters
    ----------
    data : bytes-like
        Exactly one message. The result holds a view into it, so a bytearray cannot be resized
        while the result lives, and must not be overwritten.

    Returns
    -------
    Message

    Raises
    ------
    WireFormatError
        If the bytes are not a message that `pack` of this version writes, in any respect. Lengths
        are compared with the data before they are used: a header cannot cause an allocation that
        is larger than the message.

    Privacy
    -------
    Errors say what is wrong with the format and give nothing of the contents.

    Cost
    ----
    One checksum over the data.

    Examples
    --------
    >>> unpack(b"GET / HTTP/1.1")
    Traceback (most recent call last):
        ...
    dpcore_ext.errors.WireFormatError: The message does not begin like one of dpcore.
    """
    view = _byte_view(data, "data")
    # A later version may change everything but the first five bytes, so these are judged alone.
    if view[:4] != _MAGIC[: len(view)]:
        raise WireFormatError("The message does not begin like one of dpcore.")
    if len(view) > 4 and view[4] != VERSION:
        raise WireFormatError(
            "The message is of a newer version than this dpcore reads."
            if view[4] > VERSION
            else "The message is of a version that no dpcore writes."
        )
    if len(view) < _HEADER.size + _CHECKSUM.size:
        raise WireFormatError("The message is truncated: its header is not complete.")
    _, _, kind, n_bits, reserved, count, n_payload, n_parameters = _HEADER.unpack_from(view)
    begin = _HEADER.size + n_parameters
    end = begin + n_payload
    if len(view) < end + _CHECKSUM.size:
        raise WireFormatError("The message is truncated: it is shorter than its header says.")
    if len(view) > end + _CHECKSUM.size:
        raise WireFormatError("The message is too long: bytes follow its checksum.")
    # From here on the lengths are right. What follows the checksum's test is not damage but the
    # work of another writer.
    if zlib.crc32(view[:end]) != _CHECKSUM.unpack_from(view, end)[0]:
        raise WireFormatError("The message is damaged: its checksum does not match.")
    if reserved:
        raise WireFormatError("The message has reserved bits set.")
    if not 1 <= n_bits <= MAX_BITS:
        raise WireFormatError("The message has codes of other than 1 to 16 bits.")
    if n_payload != _packed_size(count, n_bits):
        raise WireFormatError("The message has a payload that does not fit its number of codes.")
    if count * n_bits % 8 and view[end - 1] >> count * n_bits % 8:
        raise WireFormatError("The message has padding bits set above its last code.")
    return Message(
        kind=kind,
        n_bits=n_bits,
        count=count,
        parameters=bytes(view[_HEADER.size : begin]),
        payload=view[begin:end],
    )


def _packed_size(count: int, n_bits: int) -> int:
    return (count * n_bits + 7) // 8


def _code_dtype(n_bits: int) -> type[Any]:
    return np.uint8 if n_bits <= 8 else np.uint16


def _check_between(value: Any, name: str, least: int, most: int) -> int:
    try:
        number = least - 1 if isinstance(value, bool | np.bool_) else operator.index(value)
    except TypeError:
        number = least - 1
    if not least <= number <= most:
        raise ParameterError(f"The '{name}' parameter must be an integer from {least} to {most}.")
    return number


def _check_codes(codes: npt.ArrayLike, n_bits: int) -> Codes:
    """The codes as a contiguous array that the native packer takes."""
    try:
        array: npt.NDArray[Any] = np.asarray(codes)
    except ValueError:
        raise ParameterError("The 'codes' parameter must be an array of integers.") from None
    if array.ndim != 1:
        raise ParameterError("The 'codes' parameter must have 1 dimension(s).")
    if array.dtype.kind not in "biu" and array.size:
        raise ParameterError("The 'codes' parameter must be of an integer dtype.")
    if array.dtype == np.uint16 or (array.dtype == np.uint8 and n_bits <= 8):
        return np.ascontiguousarray(array)
    if array.size and (int(array.min()) < 0 or int(array.max()) >> n_bits):
        raise DataError("The 'codes' parameter must hold codes below 2**n_bits.")
    return np.ascontiguousarray(array, dtype=_code_dtype(n_bits))


def _byte_view(data: Any, name: str) -> memoryview:
    """A read-only view of a contiguous buffer of bytes."""
    try:
        view = memoryview(data)
        if view.itemsize == 1:  # an array of objects, say, has bytes as well
            return view.cast("B").toreadonly() if view.nbytes else memoryview(b"")
    except (TypeError, ValueError, BufferError, NotImplementedError):
        pass
    raise ParameterError(f"The '{name}' parameter must be a contiguous bytes-like object.")
