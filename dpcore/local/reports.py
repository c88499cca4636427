"""What the devices of a `dpcore.local.Tuple` send, as arrays and as bytes."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dpcore import wire
from dpcore._checks import check_instance
from dpcore.errors import ParameterError, WireFormatError
from dpcore.local.base import Estimate
from dpcore.local.categorical import Frequencies

if TYPE_CHECKING:
    from dpcore.local.tuples import Tuple

__all__ = ["BITS", "CODES", "INDICES", "PAIRS", "Reports", "TupleEstimate"]

# Messages: kinds of dpcore.wire, and the parts that a Reports object is sent in.
_KIND = 32
_FORMAT = 1
PAIRS, INDICES, CODES, BITS = range(4)
_LENGTH = struct.Struct("<Q")
_PART = struct.Struct("<BBIQ16s")  # format, part, attribute, number of devices, digest


@dataclass(frozen=True, eq=False)
class Reports:
    """What devices send: k (attribute, code) pairs each.

    Attributes
    ----------
    collector : Tuple
        The public parameters.
    index, code : ndarray, shape (n_devices, k)
        Attributes reported, and their codes; the code is 0 where the report consists of bits.
    bits : dict of int to ndarray
        For every attribute sent as `OUE` bits: the packed bits of the devices that reported it, in
        the order of the devices.

    Privacy
    -------
    epsilon-local-DP of every record, as of `Tuple`. Number and order of the devices, and which
    attributes each drew, are visible.

    Cost
    ----
    1 or 2 bytes for each attribute number and for each code, k of both per device, and the packed
    bits; for the wire see `to_bytes`.
    """

    collector: Tuple
    index: npt.NDArray[Any]
    code: npt.NDArray[Any]
    bits: Mapping[int, npt.NDArray[np.uint8]]

    def __len__(self) -> int:
        return len(self.index)

    @staticmethod
    def join(parts: Sequence[Reports]) -> Reports:
        """The reports of all parts, in their order."""
        if not parts or any(part.collector != parts[0].collector for part in parts):
            raise ParameterError("The 'parts' parameter must hold reports of one collector.")
        return Reports(
            parts[0].collector,
            np.concatenate([part.index for part in parts]),
            np.concatenate([part.code for part in parts]),
            {j: np.concatenate([part.bits[j] for part in parts]) for j in parts[0].bits},
        )

    def to_bytes(self) -> bytes:
        """The reports as messages of `dpcore.wire`, each behind its length in 8 bytes.

        Attribute and code make one number, so a pair takes `Tuple.n_bits`; the attributes are left
        out where all are reported, and are a message of their own where 16 bits do not hold both.
        """
        plan = self.collector
        plan._check(self)
        message = []
        for part, attribute, n_bits in plan._parts:
            if part == BITS:
                codes = self.bits[attribute].reshape(-1)
            elif part == PAIRS:
                codes = (plan._offsets[self.index] + self.code).astype(np.uint16).reshape(-1)
            else:
                codes = (self.index if part == INDICES else self.code).reshape(-1)
            parameters = _PART.pack(_FORMAT, part, attribute, len(self), plan._digest[:16])
            packed = wire.pack(np.asarray(codes), kind=_KIND, n_bits=n_bits, parameters=parameters)
            message += [_LENGTH.pack(len(packed)), packed]
        return b"".join(message)

    @staticmethod
    def from_bytes(data: bytes | bytearray | memoryview, collector: Tuple) -> Reports:
        """The reports in a message that the same collector, anywhere, encoded.

        Raises
        ------
        WireFormatError
            If the bytes are anything else: truncated, damaged, of another version, schema,
            mechanism or epsilon, or with contents that no device of this collector sends.
        """
        from dpcore.local.tuples import Tuple  # it imports this module

        check_instance(collector, "collector", Tuple)
        found: dict[tuple[int, int], npt.NDArray[Any]] = {}
        n, sections = -1, _sections(data)
        for part, attribute, n_bits in collector._parts:
            opened = next(sections, None)
            if opened is None:
                raise WireFormatError("The message is truncated: a part is missing.")
            if (
                opened.kind != _KIND
                or opened.n_bits != n_bits
                or len(opened.parameters) != _PART.size
            ):
                raise WireFormatError("The message was packed by another collector.")
            form, *where, count, digest = _PART.unpack(opened.parameters)
            if form != _FORMAT:
                raise WireFormatError("The message is of another version than this dpcore reads.")
            if where != [part, attribute] or digest != collector._digest[:16]:
                raise WireFormatError("The message was packed by another collector.")
            n = count if n < 0 else n
            if count != n or (part != BITS and opened.count != n * collector.k):
                raise WireFormatError("The message has parts that do not fit each other.")
            found[part, attribute] = opened.codes()
        if next(sections, None) is not None:
            raise WireFormatError("The message is too long: bytes follow its last part.")
        try:
            reports = collector._assemble(n, found)
            collector._check(reports)
        except ValueError as error:
            raise WireFormatError("The message has contents that no device sends.") from error
        return reports


@dataclass(frozen=True, eq=False)
class TupleEstimate:
    """Estimates by attribute: `Estimate` for a number, `Frequencies` for a category.

    Privacy
    -------
    Post-processing of the reports: free.

    Cost
    ----
    Three numbers for a numeric attribute and 16 bytes per category for others, however many reports
    there were.
    """

    attributes: Mapping[str, Estimate | Frequencies]
    count: int

    def __getitem__(self, name: str) -> Any:
        return self.attributes[name]

    @property
    def means(self) -> dict[str, float]:
        """Estimated means of the numeric attributes."""
        return {n: e.mean for n, e in self.attributes.items() if isinstance(e, Estimate)}


def _sections(data: bytes | bytearray | memoryview) -> Iterator[wire.Message]:
    """The messages behind their lengths."""
    try:
        view = memoryview(data).cast("B").toreadonly()
    except (TypeError, ValueError):
        raise ParameterError("The 'data' parameter must be a bytes-like object.") from None
    while len(view):
        if len(view) < _LENGTH.size:
            raise WireFormatError("The message is truncated: a length is not complete.")
        end = _LENGTH.size + _LENGTH.unpack_from(view)[0]
        if len(view) < end:
            raise WireFormatError("The message is truncated: it is shorter than a length says.")
        yield wire.unpack(view[_LENGTH.size : end])
        view = view[end:]
