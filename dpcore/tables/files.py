"""Tables in files and pipes: Parquet, CSV and Arrow, read and written batch by batch."""

from __future__ import annotations

import csv
import io
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.ipc
import pyarrow.parquet as pq

from dpcore.errors import DataError, ParameterError
from dpcore.local.schema import Numeric
from dpcore.tables.plan import TablePlan

__all__ = ["KINDS", "Source", "Text", "Writer", "bits_from_text", "kind_of", "sidecar", "tables_in"]

KINDS = ("parquet", "csv", "arrow")
_SUFFIXES = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".arrow": "arrow",
    ".ipc": "arrow",
    ".feather": "arrow",
}
_BESIDE = (".dpcore.json", ".dpcore-key", ".dpcore-key.streams")
_CELLS = 1 << 20  # values held at a time, and the rows that are worth a call
_LEAST_ROWS = 1 << 15
_BATCH_BYTES = 1 << 24
_READ_AHEAD = 1 << 20  # bytes
_CSV_BLOCK = 1 << 22
_ENDS = b"\r\n"
_NULLS = ("", "NA", "N/A", "NaN", "nan", "null", "NULL")
_HEX = np.frombuffer("".join(f"{i:02x}" for i in range(256)).encode(), np.uint8).reshape(256, 2)
_NIBBLE = np.full(256, 255, np.uint8)
_NIBBLE[np.frombuffer(b"0123456789abcdef", np.uint8)] = np.arange(16)


def kind_of(path: str, given: str | None) -> str:
    """The format of a file, by what was given or by its name."""
    found = given or _SUFFIXES.get(Path(path).suffix.lower())
    if found is None:
        raise ParameterError(
            "The format must be given where no name ends in .parquet, .csv or .arrow."
        )
    return found


def tables_in(folder: Path) -> list[str]:
    """The tables below a folder, by path; files whose name begins with . or _ are none."""
    found = []
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_dir() or any(part[0] in "._" for part in name.split("/")):
            continue
        if path.name.endswith(_BESIDE):
            continue
        if path.suffix.lower() not in _SUFFIXES:
            raise ParameterError(f"The file '{name}' in the folder is of no format known here.")
        found.append(name)
    if not found:
        raise ParameterError("The folder must hold at least one table.")
    return found


def sidecar(path: Path) -> Path:
    """Where the metadata of a CSV file are."""
    return path.with_name(path.name + ".dpcore.json")


@contextmanager
def _translated(what: str) -> Iterator[None]:
    """Troubles of pyarrow without its messages, which contain values."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, DataError | ParameterError):
            raise
        raise DataError(f"The input cannot be read as {what}.") from None


@dataclass(frozen=True)
class Text:
    """What a file of text does not say: types of columns, and which cells are nulls.

    Attributes
    ----------
    types : dict
        By column.
    nulls : dict or None
        By column of text, what stands for a null beside the empty cell; not what is a category of
        that column. None for what the command wrote: there, only an empty cell without quotes is.
    """

    types: dict[str, Any]
    nulls: dict[str, list[str]] | None

    @staticmethod
    def of_data(plan: TablePlan) -> Text:
        """For data to be privatised."""
        types, nulls = {}, {}
        for column in plan.columns:
            if isinstance(column.attribute, Numeric):
                types[column.name] = pa.float64()
            elif isinstance(column.values[0], str):
                types[column.name] = pa.string()
                nulls[column.name] = [text for text in _NULLS if text not in column.values]
            else:
                types[column.name] = pa.int64()
        return Text(types, nulls)

    @staticmethod
    def of_result(plan: TablePlan, values: bool) -> Text:
        """For what the command wrote."""
        types = {
            column.name: pa.string() if column.n_bytes else column.arrow_type(values)
            for column in plan.columns
        }
        return Text(types, None)

    def options(self) -> dict[str, Any]:
        """How pyarrow finds nulls; it knows one list for all columns, so `mark` does the rest."""
        if self.nulls is None:
            return {
                "null_values": [""],
                "strings_can_be_null": True,
                "quoted_strings_can_be_null": False,
            }
        return {"null_values": list(_NULLS), "strings_can_be_null": False}

    def mark(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with the nulls of columns of text."""
        for name, texts in (self.nulls or {}).items():
            i = batch.schema.get_field_index(name)
            missing = pc.is_in(batch.column(i), value_set=pa.array(texts, pa.string()))
            if pc.any(missing).as_py():
                marked = pc.if_else(missing, pa.scalar(None, pa.string()), batch.column(i))
                batch = batch.set_column(i, name, marked)
        return batch


class Source:
    """A table to be read, from a path or from a pipe.

    Parameters
    ----------
    where, kind : str
    text : Text, optional
        What a file of text does not say.
    only : tuple of str, optional
        Columns to read; all by default.
    row_bytes : int
        What a row takes in the hands of the caller, if that is more than a few values: batches
        have fewer rows then.

    Attributes
    ----------
    schema : pyarrow.Schema
    n_rows : int or None
        Known before reading for Parquet only.
    """

    def __init__(
        self,
        where: str,
        kind: str,
        text: Text | None = None,
        only: tuple[str, ...] | None = None,
        row_bytes: int = 0,
    ) -> None:
        self.kind, self.n_rows = kind, None
        self._text, self._only, self._row_bytes = text or Text({}, None), only, row_bytes
        self._opened: list[Any] = []
        if where != "-" and not os.path.isfile(where):
            raise ParameterError("There is no such input file.")
        open_kind = {"parquet": self._parquet, "csv": self._csv, "arrow": self._arrow}[kind]
        try:
            with _translated(kind):
                self.schema, self._batches = open_kind(where)
        except BaseException:
            self.close()
            raise

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """The batches, of about a million values, or 16 MB of results, at most."""
        step = self._rows(self.schema)
        with _translated(self.kind):
            for batch in self._batches:
                for a in range(0, max(1, batch.num_rows), step):
                    yield batch.slice(a, step)

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        for thing in self._opened:
            thing.close()

    def _parquet(self, where: str) -> Any:
        if where == "-":
            raise ParameterError("Parquet cannot be read from a pipe: its index is at its end.")
        # Without pre-buffering, which would hold the whole file.
        file = pq.ParquetFile(where, buffer_size=_READ_AHEAD, pre_buffer=False)
        self._opened.append(file)
        self.n_rows = file.metadata.num_rows
        schema = file.schema_arrow
        columns = None
        if self._only is not None:
            # By index, because a name that is there twice is for the caller to refuse.
            wanted = [field for field in schema if field.name in self._only]
            columns = [field.name for field in wanted]
            schema = pa.schema(wanted, schema.metadata)
        return schema, file.iter_batches(batch_size=self._rows(schema), columns=columns)

    def _rows(self, schema: pa.Schema) -> int:
        """Rows of a batch."""
        kinds = [field.type for field in schema]
        bits: int = sum(kind.byte_width for kind in kinds if pa.types.is_fixed_size_binary(kind))
        rows = max(_LEAST_ROWS, _CELLS // max(1, len(kinds)))
        return max(1, min(rows, _BATCH_BYTES // max(1, bits, self._row_bytes)))

    def _arrow(self, where: str) -> Any:
        if where == "-":
            reader = pa.ipc.open_stream(_stdin())
            return reader.schema, reader
        file = pa.memory_map(where)
        self._opened.append(file)
        if file.read(6) == b"ARROW1":
            opened = pa.ipc.open_file(file)
            batches = (opened.get_batch(i) for i in range(opened.num_record_batches))
            return opened.schema, batches
        file.seek(0)
        reader = pa.ipc.open_stream(file)
        return reader.schema, reader

    def _csv(self, where: str) -> Any:
        raw: Any = _stdin() if where == "-" else open(where, "rb")  # noqa: SIM115
        if where != "-":
            self._opened.append(raw)
        begin = raw.read(_CSV_BLOCK)
        names = _header(begin)
        types, only = self._text.types, self._only
        if types and not set(types) & set(names):
            # The first line may be data, which no message must contain.
            raise DataError("The input must have a header with the columns of the schema.")
        convert = pa.csv.ConvertOptions(
            column_types=types,
            include_columns=None if only is None else [name for name in names if name in only],
            **self._text.options(),
        )
        options = pa.csv.ReadOptions(block_size=_CSV_BLOCK)
        # In a table of one column an empty line is a null, which must not get lost. At the end of
        # the file it is none: editors leave such lines.
        parse = pa.csv.ParseOptions(ignore_empty_lines=len(names) > 1)

        def batches() -> Iterator[pa.RecordBatch]:
            try:
                rewound = _Rewound(begin, raw, trim=len(names) == 1)
                stream = pa.PythonFile(rewound, "r")
                for batch in pa.csv.open_csv(stream, options, parse, convert):
                    yield self._text.mark(batch)
            except pa.ArrowInvalid as error:
                place = re.match(r"In CSV column #(\d+)", str(error))
                if place is None or int(place[1]) >= len(names):
                    raise
                name = names[int(place[1])]
                raise DataError(
                    f"The column '{name}' must hold what the schema says of it."
                ) from None

        return pa.schema([(name, types.get(name, pa.null())) for name in names]), batches()


def _header(begin: bytes) -> list[str]:
    try:
        text = begin.decode("utf-8-sig", "ignore")
        names = next(csv.reader(io.StringIO(text)), [])
    except csv.Error:
        names = []
    if not names:
        raise DataError("The input cannot be read as csv: it has no header.")
    return names


def _stdin() -> IO[bytes]:
    if sys.stdin is None:
        raise DataError("The input cannot be read: it is closed.")
    return sys.stdin.buffer


class _Rewound(io.RawIOBase):
    """A pipe of which the beginning was read already; `trim` takes empty lines off its end."""

    def __init__(self, begin: bytes, rest: IO[bytes], trim: bool) -> None:
        self._begin, self._rest, self._trim = begin, rest, trim

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        if self._trim:
            self._fill(size)
        elif not self._begin:
            return self._rest.read(size)
        cut = len(self._begin) if size < 0 else size
        part, self._begin = self._begin[:cut], self._begin[cut:]
        return part

    def _fill(self, size: int) -> None:
        """Read on until so many bytes are known not to be empty lines at the end."""
        while size < 0 or len(self._begin.rstrip(_ENDS)) < size:
            more = self._rest.read(_READ_AHEAD)
            if not more:
                lines = self._begin.rstrip(_ENDS)
                self._begin = lines + b"\n" if lines != self._begin else lines
                self._trim = False
                return
            self._begin += more


class Writer:
    """A table to be written, batch by batch."""

    def __init__(self, sink: Any, kind: str, schema: pa.Schema, pipe: bool) -> None:
        self._text = kind == "csv"
        if kind == "parquet":
            # Codes are few and random: neither statistics nor dictionaries tell a reader much.
            self._writer = pq.ParquetWriter(sink, schema, write_statistics=False)
        elif kind == "arrow":
            make = pa.ipc.new_stream if pipe else pa.ipc.new_file
            self._writer = make(sink, schema)
        else:
            self._writer = pa.csv.CSVWriter(sink, _as_text(schema.empty_table()).schema)

    def write(self, batch: pa.RecordBatch) -> None:
        if batch.num_rows:
            self._writer.write(_as_text(batch) if self._text else batch)

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *exception: object) -> None:
        # On the way out of a failure too: pyarrow would do it later, when the file is closed.
        self._writer.close()


def _as_text(batch: Any) -> Any:
    """Bits as hexadecimal digits, which is what CSV can hold."""
    for i, field in enumerate(batch.schema):
        if pa.types.is_fixed_size_binary(field.type):
            text = pa.field(field.name, pa.string(), field.nullable)
            batch = batch.set_column(i, text, _hexadecimal(batch.column(i)))
    return batch


def _hexadecimal(column: Any) -> Any:
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    made = [_hexadecimal_array(chunk) for chunk in chunks]
    return pa.chunked_array(made, pa.string()) if isinstance(column, pa.ChunkedArray) else made[0]


def _hexadecimal_array(array: Any) -> Any:
    width = array.type.byte_width
    data = np.frombuffer(array.buffers()[1] or b"", np.uint8)
    data = data[array.offset * width : (array.offset + len(array)) * width]
    ends = np.arange(len(array) + 1, dtype=np.int32) * (2 * width)
    text = pa.py_buffer(np.ascontiguousarray(_HEX[data]))
    valid = pa.py_buffer(
        np.packbits(array.is_valid().to_numpy(zero_copy_only=False), bitorder="little")
    )
    return pa.Array.from_buffers(pa.string(), len(array), [valid, pa.py_buffer(ends), text])


def bits_from_text(batch: Any, widths: dict[str, int]) -> Any:
    """The batch with hexadecimal digits in these columns as bytes of these widths again."""
    for name, width in widths.items():
        array = batch.column(name)
        given = array.drop_null()
        digits = np.frombuffer("".join(given.to_pylist()).encode("ascii", "replace"), np.uint8)
        nibbles = _NIBBLE[digits]
        right = len(digits) == 2 * width * len(given) and (nibbles < 16).all()
        if not right or any(len(text) != 2 * width for text in given.to_pylist()):
            raise DataError(f"The column '{name}' must hold reports of {width} bytes.")
        valid = array.is_valid().to_numpy(zero_copy_only=False)
        data = np.zeros((len(array), width), np.uint8)
        data[valid] = (nibbles[::2] << 4 | nibbles[1::2]).reshape(-1, width)
        buffers = [pa.py_buffer(np.packbits(valid, bitorder="little")), pa.py_buffer(data)]
        made = pa.Array.from_buffers(pa.binary(width), len(array), buffers)
        batch = batch.set_column(batch.schema.get_field_index(name), name, made)
    return batch
