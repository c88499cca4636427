"""Columns between Arrow and NumPy: what the randomiser reads, and what it writes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from dpcore.errors import DataError, ParameterError
from dpcore.local.base import Mechanism
from dpcore.local.categorical import GRR, OUE
from dpcore.local.schema import Categorical, Numeric
from dpcore_ext.pack import count as count_codes

__all__ = ["NULL", "Column", "Nulls"]

NULL = "null"
Nulls = npt.NDArray[np.bool_] | None


@dataclass(frozen=True, eq=False)
class Column:
    """One column of a plan, and what it is reported with.

    Attributes
    ----------
    attribute : Numeric or Categorical
    randomiser : Mechanism, GRR or OUE
    values : sequence or None
        Categories as the data have them, without the one for nulls.
    scale : tuple of float
        Centre and half width that outputs of the randomiser are in units of.
    on_null : str
    """

    attribute: Numeric | Categorical
    randomiser: Mechanism | GRR | OUE
    values: Any
    scale: tuple[float, float]
    on_null: str

    @property
    def name(self) -> str:
        return self.attribute.name

    @property
    def n_codes(self) -> int:
        made = self.randomiser
        return made.n_outputs if isinstance(made, Mechanism) else made.n_categories

    @property
    def n_bytes(self) -> int:
        """Bytes of a report made of bits, otherwise 0."""
        return self.randomiser.n_bytes if isinstance(self.randomiser, OUE) else 0

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(np.uint8 if self.n_codes <= 256 else np.uint16)

    @cached_property
    def outputs(self) -> npt.NDArray[np.float64]:
        """The number that each code stands for."""
        centre, half_width = self.scale
        assert isinstance(self.randomiser, Mechanism)
        return np.asarray(centre + self.randomiser.outputs * half_width)

    def arrow_type(self, values: bool) -> Any:
        import pyarrow as pa

        if self.n_bytes:
            return pa.binary(self.n_bytes)
        if not values:
            return pa.from_numpy_dtype(self.dtype)
        if isinstance(self.attribute, Numeric):
            return pa.float64()
        return pa.string() if isinstance(self.attribute.labels[0], str) else pa.int64()

    # What the randomiser reads

    def read(self, array: Any) -> tuple[npt.NDArray[Any], Nulls]:
        """Numbers as they are, or positions of categories; and which rows were null, if dropped."""
        if isinstance(self.attribute, Numeric):
            return self._read_numbers(array)
        return self._read_categories(array)

    def _read_numbers(self, array: Any) -> tuple[npt.NDArray[Any], Nulls]:
        import pyarrow as pa
        import pyarrow.compute as pc

        if pa.types.is_null(array.type) or pa.types.is_decimal(array.type):
            array = array.cast(pa.float64())
        kind = array.type
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
            raise ParameterError(f"The column '{self.name}' must be of a number type.")
        if pa.types.is_float16(kind):
            array = array.cast(pa.float32())
        nulls: Nulls = None
        if self.on_null == "drop":
            missing = pc.is_null(array, nan_is_null=True)
            if pc.any(missing).as_py():
                nulls = missing.to_numpy(zero_copy_only=False)
                middle = pa.scalar(0, array.type)
                array = pc.if_else(missing, middle, array)
        elif array.null_count:
            raise DataError(f"The column '{self.name}' must hold no nulls.")
        return array.to_numpy(zero_copy_only=True), nulls

    def _read_categories(self, array: Any) -> tuple[npt.NDArray[Any], Nulls]:
        import pyarrow as pa

        if pa.types.is_dictionary(array.type):
            # A null may be among the values as well as among the indices.
            values = array.dictionary
            if values.null_count or pa.types.is_null(values.type):
                array = array.dictionary_decode()
        if pa.types.is_null(array.type):
            array = array.cast(pa.string() if isinstance(self.values[0], str) else pa.int64())
        found = self._positions(array)
        n_null = array.null_count
        if n_null and self.on_null == "error":
            raise DataError(f"The column '{self.name}' must hold no nulls.")
        if found.null_count != n_null:
            raise DataError(f"The column '{self.name}' must hold listed categories only.")
        nulls: Nulls = None
        if n_null:
            if self.on_null == "drop":
                nulls = array.is_null().to_numpy(zero_copy_only=False)
            found = found.fill_null(pa.scalar(self._null_position, pa.int32()))
        return found.to_numpy(zero_copy_only=True), nulls

    @property
    def _null_position(self) -> int:
        labels: Any = self.attribute.labels if isinstance(self.attribute, Categorical) else ()
        return labels.index(NULL) if self.on_null == "category" else 0

    def _positions(self, array: Any) -> Any:
        """Positions in the list as an array of int32, null where not listed."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if pa.types.is_dictionary(array.type):
            return self._positions(array.dictionary).take(array.indices)
        textual = isinstance(self.values[0], str)
        kind = array.type
        if pa.types.is_boolean(kind) and not textual:
            array, kind = array.cast(pa.int8()), pa.int8()
        is_text = (
            pa.types.is_string(kind)
            or pa.types.is_large_string(kind)
            or pa.types.is_string_view(kind)
        )
        if not (is_text if textual else pa.types.is_integer(kind)):
            raise ParameterError(
                f"The column '{self.name}' must be of the type of its list of categories."
            )
        if textual:
            known = pa.array(self.values, pa.large_string())
            return pc.index_in(array.cast(pa.large_string()), value_set=known)
        # An unsigned integer above int64 is in no list: it must not raise with its value.
        wide = pa.uint64() if pa.types.is_uint64(kind) else pa.int64()
        listed = [v if wide == pa.int64() or v >= 0 else None for v in self.values]
        known = pa.array(listed, wide)
        return pc.index_in(array.cast(wide), value_set=known, skip_nulls=True)

    # What the randomiser writes

    def to_arrow(self, codes: npt.NDArray[Any], drawn: Nulls, values: bool) -> Any:
        """An Arrow array of codes, null where not drawn."""
        import pyarrow as pa

        n = len(codes)
        valid = None if drawn is None else pa.py_buffer(np.packbits(drawn, bitorder="little"))
        kind = self.arrow_type(False)
        data = np.ascontiguousarray(codes if self.n_bytes else codes.astype(self.dtype, copy=False))
        array = pa.Array.from_buffers(kind, n, [valid, pa.py_buffer(data)])
        if not values or self.n_bytes:
            return array
        return self._known(values=True).take(array)

    def _known(self, values: bool) -> Any:
        """What codes stand for, in order."""
        import pyarrow as pa

        if isinstance(self.attribute, Numeric):
            return pa.array(self.outputs)
        return pa.array(list(self.attribute.labels), self.arrow_type(values))

    # What the server reads

    def count(self, array: Any, values: bool) -> npt.NDArray[np.int64]:
        """Reports of every code, or set bits of every category."""
        given = _plain(array).drop_null()
        if isinstance(self.randomiser, OUE):
            return self.randomiser.supports(self._bits(given))
        codes = self._codes(given, values)
        if codes.size and (int(codes.min()) < 0 or int(codes.max()) >= self.n_codes):
            raise DataError(f"The column '{self.name}' must hold codes of its mechanism.")
        codes = np.ascontiguousarray(codes, self.dtype)
        table = np.zeros(1 << (8 * codes.itemsize), np.uint64)
        count_codes(codes, table)
        return table[: self.n_codes].astype(np.int64)

    def _codes(self, array: Any, values: bool) -> npt.NDArray[Any]:
        import pyarrow as pa
        import pyarrow.compute as pc

        if not values:
            if not pa.types.is_integer(array.type):
                raise ParameterError(f"The column '{self.name}' must hold codes, as integers.")
            return array.to_numpy(zero_copy_only=True)  # type: ignore[no-any-return]
        known = self._known(values)
        codes = pc.index_in(array.cast(known.type), value_set=known)
        if codes.null_count:
            raise DataError(f"The column '{self.name}' must hold outputs of its mechanism.")
        return codes.to_numpy(zero_copy_only=True)  # type: ignore[no-any-return]

    def _bits(self, array: Any) -> npt.NDArray[np.uint8]:
        """Reports as rows of bytes; not all engines know binaries of a fixed size."""
        import pyarrow as pa
        import pyarrow.compute as pc

        kind, fixed = array.type, self.arrow_type(False)
        varying = pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
        if varying and pc.all(pc.equal(pc.binary_length(array), self.n_bytes)).as_py():
            array = array.cast(fixed)
        if array.type != fixed:
            raise DataError(f"The column '{self.name}' must hold reports of {self.n_bytes} bytes.")
        assert isinstance(self.randomiser, OUE)
        data = np.frombuffer(array.buffers()[1] or b"", np.uint8)
        begin = array.offset * self.n_bytes
        rows = data[begin : begin + len(array) * self.n_bytes].reshape(-1, self.n_bytes)
        return self.randomiser.checked_reports(rows)


def _plain(array: Any) -> Any:
    """Views, which few functions of pyarrow take, as what they are views of."""
    import pyarrow as pa

    if pa.types.is_binary_view(array.type):
        return array.cast(pa.large_binary())
    if pa.types.is_string_view(array.type):
        return array.cast(pa.large_string())
    return array
