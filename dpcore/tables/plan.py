"""The plan of a table: its columns, bounds and categories, how private, and what follows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from dpcore import local
from dpcore._charge import ledger_in_force, prepay
from dpcore._checks import (
    check_choice,
    check_flag,
    check_index,
    check_instance,
    check_list,
    check_name,
    check_positive,
)
from dpcore._events import PureEvent
from dpcore._release import check_noise, check_start
from dpcore.errors import DataError, ParameterError, WireFormatError
from dpcore.local.base import Mechanism
from dpcore.local.reports import Reports, TupleEstimate
from dpcore.local.schema import Attribute, Categorical, Numeric, check_schema
from dpcore.local.tuples import Tuple
from dpcore.noise import Noise
from dpcore.tables import description
from dpcore.tables.columns import NULL, Column, Nulls
from dpcore.tables.counts import Counts
from dpcore.tables.rows import Seen, check_rows, privatize_rows

__all__ = ["MECHANISMS", "ON_NULL", "TablePlan", "check_plan", "table_stream"]

ON_NULL = ("error", "drop", "category")
_EXTRA = ("error", "drop")
MECHANISMS = (*local.NAMES, "auto")


def table_stream(noise: Noise, name: str, file: str | None = None) -> Noise:
    """The pinned stream of a data set, or of one file of a data set that is a directory.

    All engines and the command line address the noise of a row by it and by the index of the row:
    ``noise.stream("table", name)``, with ``.stream("file", file)`` for a file in a directory, by
    its path below the directory with forward slashes.

    A name is for one data set only. A plan of one numeric column does not put the name of that
    column into the address: two such columns with the same bounds and epsilon need two streams.
    The command line refuses the second; Python code has to see to it itself.

    Privacy
    -------
    No data are read. The stream fixes the noise of a row by its index: a name that serves for two
    data sets gives both the same noise, and the guarantee does not hold for the two together.

    Cost
    ----
    One or two keys are derived, whatever the number of rows.

    Examples
    --------
    >>> table_stream(Noise.from_key(bytes(32)), "survey.parquet")
    <dpcore.Noise: secure, pinned stream>
    """
    stream = check_instance(noise, "noise", Noise).stream("table", name)
    return stream if file is None else stream.stream("file", file)


class TablePlan:
    """How the rows of a table are randomised, each by itself, and how results are estimated.

    Parameters
    ----------
    schema : mapping or sequence
        The columns, all public: a mapping of names to ``{"lower": ..., "upper": ...}`` or
        ``{"categories": [...]}`` (also under the key ``"columns"``), or a sequence of
        `dpcore.local.Numeric` and `dpcore.local.Categorical`.
    epsilon : float
        Privacy loss of a whole row.
    mechanism : str
        For numbers: a name of `dpcore.local.NAMES`, or "auto".
    k : int, optional
        Columns that each row reports; see `dpcore.local.Tuple` for the default.
    on_null : {"error", "drop", "category"}
        What becomes of nulls: they are refused; the rows that have one (or a NaN) are left out; or
        they count as the category "null", which every categorical column then has, while numeric
        columns refuse them.
    **options
        Further parameters of the mechanism, such as n_levels.

    Attributes
    ----------
    attributes : tuple of Numeric and Categorical
        The columns as reported: with the category "null" where nulls count as one.
    names : tuple of str
    digest : str
        Equal for equal plans only.
    event : PureEvent
        What one row costs.

    Privacy
    -------
    epsilon-local-DP of every row by itself, as of `dpcore.local.Tuple`. It covers one row: rows
    about the same person add up. That a row is there, at its place, is not protected; nor is that
    it had a null where such rows are refused or dropped.

    Cost
    ----
    One pass. For a single numeric column of float32 or float64 the randomiser reads the Arrow
    buffer itself, at some 2 ns per row; otherwise some 20 ns per value.

    Notes
    -----
    A plan of one numeric column uses ``dpcore.local.make(mechanism, epsilon, lower, upper)``; any
    other uses ``dpcore.local.Tuple(plan.attributes, epsilon, mechanism, k=k)``. Their `encode`,
    with the same noise and start, gives the same codes.

    Examples
    --------
    >>> import pyarrow as pa, dpcore
    >>> from dpcore import local
    >>> plan = TablePlan({"age": {"lower": 0, "upper": 100}}, epsilon=2.0)
    >>> noise = table_stream(dpcore.Noise.from_key(bytes(range(32))), "survey")
    >>> table = pa.table({"age": [31.0, 44.0, 58.0, 29.0]})
    >>> parts = [plan.privatize(table.slice(a, 2), noise=noise, start=a) for a in (0, 2)]
    >>> pa.concat_tables(parts) == plan.privatize(table, noise=noise)
    True
    >>> codes = local.make("hm-j", 2.0, 0, 100).encode([31.0, 44.0, 58.0, 29.0], noise=noise)
    >>> bool((codes == plan.privatize(table, noise=noise)["age"].to_numpy()).all())
    True
    """

    def __init__(
        self,
        schema: Mapping[str, Any] | Sequence[Attribute],
        epsilon: float,
        mechanism: str = "hm-j",
        *,
        k: int | None = None,
        on_null: str = "error",
        **options: Any,
    ) -> None:
        self.on_null = check_choice(on_null, "on_null", ON_NULL)
        check_choice(check_name(mechanism, "mechanism"), "mechanism", MECHANISMS)
        k = None if k is None else check_index(k, "k", least=1)
        self.epsilon = float(check_positive(epsilon, "epsilon"))
        given = check_schema(
            description.attributes(schema) if isinstance(schema, Mapping) else schema
        )
        self._given, self._asked = given, (mechanism, k, options)
        self.attributes = tuple(self._with_null(attribute) for attribute in given)
        self.names = tuple(attribute.name for attribute in given)
        try:
            self.collector = self._collector(mechanism, k, options)
        except TypeError:
            raise ParameterError(
                "The 'options' parameter must hold parameters of the mechanism."
            ) from None
        self.columns = tuple(self._column(j) for j in range(len(given)))

    def _with_null(self, attribute: Attribute) -> Attribute:
        if self.on_null != "category" or isinstance(attribute, Numeric):
            return attribute
        labels = [str(label) for label in attribute.labels]
        return Categorical(attribute.name, labels if NULL in labels else [*labels, NULL])

    def _collector(self, mechanism: str, k: int | None, options: dict[str, Any]) -> Any:
        first = self.attributes[0]
        if len(self.attributes) == 1 and isinstance(first, Numeric) and mechanism != "auto":
            if k not in (None, 1):
                raise ParameterError("The 'k' parameter must be at most the number of attributes.")
            return local.make(mechanism, self.epsilon, first.lower, first.upper, **options)
        return Tuple(self.attributes, self.epsilon, mechanism, k=k, **options)

    def _column(self, j: int) -> Column:
        attribute, made = self.attributes[j], self.collector
        values = None if isinstance(attribute, Numeric) else self._given[j].labels  # type: ignore[union-attr]
        if isinstance(made, Mechanism):
            return Column(attribute, made, values, (0.0, 1.0), self.on_null)
        if isinstance(attribute, Numeric):
            scale = (attribute.centre, attribute.half_width)
            return Column(attribute, made._numeric, values, scale, self.on_null)
        return Column(attribute, made.categorical[j], values, (0.0, 1.0), self.on_null)

    @classmethod
    def from_toml(cls, path: Any, *, epsilon: float | None = None, **changes: Any) -> TablePlan:
        """A plan from a file of TOML (or JSON, by its name); arguments replace what it says."""
        return cls.from_description(description.load(path), epsilon=epsilon, **changes)

    @classmethod
    def from_description(
        cls, given: Mapping[str, Any], *, epsilon: float | None = None, **changes: Any
    ) -> TablePlan:
        """A plan from a mapping such as `description` gives."""
        return cls(**description.arguments(given, epsilon=epsilon, **changes))

    @property
    def description(self) -> dict[str, Any]:
        """Everything public about the plan, as `from_description` and a TOML file have it."""
        mechanism, k, options = self._asked
        known = {"epsilon": self.epsilon, "mechanism": mechanism, "on_null": self.on_null}
        return {
            **known,
            **({} if k is None else {"k": k}),
            **({"options": options} if options else {}),
            "columns": description.columns(self._given),
        }

    @property
    def k(self) -> int:
        """Columns that each row reports."""
        return 1 if isinstance(self.collector, Mechanism) else self.collector.k

    @cached_property
    def row_bytes(self) -> int:
        """Bytes that a row takes while it is privatised: what is read of it, and its report."""
        return sum(8 + (column.n_bytes or column.dtype.itemsize) for column in self.columns)

    @property
    def event(self) -> PureEvent:
        return self.collector.event  # type: ignore[no-any-return]

    @cached_property
    def digest(self) -> str:
        made = self.collector
        law = made._fingerprint if isinstance(made, Mechanism) else made._digest
        known = repr((description.FORMAT, self.names, self.on_null, type(made).__name__)).encode()
        return hashlib.sha256(known + law).hexdigest()

    # Devices

    def open(self, noise: Noise | None = None, *, files: Sequence[str] | None = None) -> Noise:
        """A source for one release of this plan, in as many batches as there are.

        Reserves the cost on the ledger in force, once; a pinned stream keeps its address, any
        other source gives a stream of its own. `files` are the names of the files of a data set
        that is a folder, about different people, each with the stream of its name: the folder is
        charged again when a file has another name, which gives its rows other noise.
        """
        purpose = self._purpose
        if files is not None:
            names = [check_name(name, "files") for name in check_list(files, "files")]
            purpose = ("table folder", *purpose, *sorted(names))
        paid = prepay(check_noise(noise), self.event, *purpose)
        return paid if paid.pinned else paid.release("table")

    @property
    def _purpose(self) -> tuple[Any, ...]:
        """What the collector draws its noise for: its address, next to key, stream and row."""
        made = self.collector
        if isinstance(made, Mechanism):
            return "local", made._fingerprint
        return "local tuple", made._digest.hex()

    def fingerprint(self, noise: Noise) -> str:
        """A public name of the noise that the plan draws from a pinned stream.

        Plans that would draw the same noise have the same name, whatever they call their columns.
        """
        return noise.fingerprint(*self._purpose)

    def privatize(
        self,
        data: Any,
        *,
        noise: Noise | None = None,
        start: int = 0,
        rows: str | None = None,
        extra: str = "error",
        values: bool = False,
    ) -> Any:
        """Randomise every row of a table.

        Parameters
        ----------
        data : object with __arrow_c_stream__ or __arrow_c_array__
            A table or batch of pyarrow, Polars, pandas, DuckDB and others.
        noise : Noise, optional
            Source of randomness; a secure one by default. See `table_stream`.
        start : int
            Index of the first row in the release.
        rows : str, optional
            A column with the index of every row in the release, in any order, instead of start. It
            is not part of the result. An index that comes twice is refused, in one call: two rows
            would share noise. Who calls this batch by batch has to see to it across the calls.
        extra : {"error", "drop"}
            What becomes of columns that are not in the schema.
        values : bool
            Whether to write the numbers and categories that codes stand for, instead of codes;
            reports made of bits stay what they are.

        Returns
        -------
        pyarrow.Table
            A column for every column of the schema, of codes as uint8 or uint16 (or of bits as
            fixed-size binary), null where a row does not report it. The public parameters are in
            the metadata, so that `estimate` needs nothing else.
        """
        import pyarrow as pa

        from dpcore.interop.arrow import batches, reader

        check_flag(values, "values")
        first, stream, source = check_start(start, 0), reader(data), check_noise(noise)
        schema = stream.schema
        if rows is not None:
            if check_name(rows, "rows") in self.names:
                raise ParameterError("The 'rows' parameter must not name a column of the schema.")
            if schema.names.count(rows) != 1:
                raise ParameterError("The 'rows' parameter must name a column that is there once.")
            schema = schema.remove(schema.get_field_index(rows))
        self.check_schema(schema, extra=extra)
        parts = batches(stream)
        begin = [next(parts)]
        if ledger_in_force() is not None and not source.is_prepaid:
            # What is refused must cost nothing. A stream can be read once: its first batch tells.
            seen = Seen()
            for batch in batches(data) if isinstance(data, pa.Table) else begin:
                self._check_batch(batch, rows, seen, extra)
        source = self.open(source)
        made, seen = [], Seen()
        for batch in chain(begin, parts):
            if rows is None:
                made.append(self.privatize_batch(batch, source, first, extra=extra, values=values))
                first += batch.num_rows
            else:
                made.append(
                    privatize_rows(self, batch, source, rows, seen, extra=extra, values=values)
                )
        return pa.Table.from_batches(made, self.arrow_schema(values=values, private=source.private))

    def _check_batch(self, batch: Any, rows: str | None, seen: Seen, extra: str) -> None:
        if rows is not None:
            seen.add(np.sort(check_rows(batch, rows)), rows)
            batch = batch.drop_columns([rows])
        numbers, _ = self.read(batch, extra=extra)
        self.check_finite(numbers)

    def privatize_batch(
        self, batch: Any, noise: Noise, start: int, *, extra: str = "error", values: bool = False
    ) -> Any:
        """One record batch, whose first row has the index start, with noise that `open` gave."""
        numbers, dropped = self.read(batch, extra=extra)
        return self.encode(numbers, dropped, noise, start, values=values)

    def read(self, batch: Any, *, extra: str = "error") -> tuple[list[npt.NDArray[Any]], Nulls]:
        """What the randomiser reads of a record batch: numbers and positions, and rows to drop."""
        self.check_names(batch.schema.names, extra=extra)
        numbers, dropped = [], None
        for column in self.columns:
            own, nulls = column.read(batch.column(column.name))
            numbers.append(own)
            if nulls is not None:
                dropped = nulls if dropped is None else dropped | nulls
        return numbers, dropped

    def check_schema(self, schema: Any, *, extra: str = "error") -> None:
        """Refuse a table by the names and types of its columns."""
        import pyarrow as pa

        self.check_names(schema.names, extra=extra)
        for column in self.columns:
            column.read(pa.nulls(0, schema.field(column.name).type))

    def check_finite(self, numbers: Sequence[npt.NDArray[Any]]) -> None:
        """Refuse what `read` gave if `encode` would, which is after the charge."""
        for name, own in zip(self.names, numbers, strict=True):
            if not np.isfinite(own).all():
                raise DataError(f"The column '{name}' must hold finite numbers only.")

    def check_names(self, names: Sequence[str], *, extra: str = "error") -> None:
        """Refuse a table without every column of the schema, or with others, by their names."""
        check_choice(extra, "extra", _EXTRA)
        for name in names:
            if name not in self.names and extra == "error":
                raise ParameterError(f"The column '{name}' is not in the schema.")
        for name in self.names:
            if list(names).count(name) != 1:
                fault = "must not occur twice" if name in names else "is missing"
                raise ParameterError(f"The column '{name}' {fault}.")

    def encode(
        self,
        numbers: list[npt.NDArray[Any]],
        dropped: Nulls,
        noise: Noise,
        start: int,
        *,
        values: bool = False,
    ) -> Any:
        """A record batch of reports from what `read` gave, with noise that `open` gave."""
        import pyarrow as pa

        n, schema = len(numbers[0]), self.arrow_schema(values=values, private=noise.private)
        first = check_start(start, n)
        if n == 0:
            return pa.RecordBatch.from_pylist([], schema)
        if isinstance(self.collector, Mechanism):
            codes = self._named(
                0, lambda: self.collector.encode(numbers[0], noise=noise, start=first)
            )
            arrays = [self.columns[0].to_arrow(np.asarray(codes), None, values)]
        else:
            reports = self.collector.encode_numbers(
                lambda j, a, b: self._numbers(j, numbers[j][a:b]), n, noise, first
            )
            arrays = self._spread(reports, values)
        batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
        return batch if dropped is None else batch.filter(pa.array(~dropped))

    def _numbers(self, j: int, column: npt.NDArray[Any]) -> npt.NDArray[Any]:
        attribute = self.attributes[j]
        if isinstance(attribute, Categorical):
            return column
        return self._named(j, lambda: attribute.to_numbers(column))  # type: ignore[no-any-return]

    def _named(self, j: int, call: Any) -> Any:
        """The result of a call that refuses numbers which are not finite, by their column."""
        try:
            return call()
        except DataError:
            name = self.names[j]
            raise DataError(f"The column '{name}' must hold finite numbers only.") from None

    def spread(self, reports: Reports, *, values: bool = False) -> Any:
        """Reports of `dpcore.local.Tuple` as a record batch."""
        import pyarrow as pa

        schema = self.arrow_schema(values=values)
        return pa.RecordBatch.from_arrays(self._spread(reports, values), schema=schema)

    def _spread(self, reports: Reports, values: bool) -> list[Any]:
        index, code = np.asarray(reports.index), np.asarray(reports.code)
        n, d = len(index), len(self.columns)
        drawn = None
        if self.k < d:
            codes, drawn = np.zeros((d, n), code.dtype), np.zeros((d, n), np.bool_)
            for slot in range(self.k):
                where = index[:, slot], np.arange(n)
                codes[where], drawn[where] = code[:, slot], True
        else:
            codes = code.T
        arrays = []
        for j, column in enumerate(self.columns):
            own, given = codes[j], None if drawn is None else drawn[j]
            if column.n_bytes:
                bits = np.asarray(reports.bits[j])
                own = np.zeros((n, column.n_bytes), np.uint8)
                own[... if given is None else given] = bits
            arrays.append(column.to_arrow(own, given, values))
        return arrays

    # The result, and what the server makes of it

    def arrow_schema(
        self, *, values: bool = False, private: bool = True, stream: str | None = None
    ) -> Any:
        """The schema of results, with everything public in its metadata."""
        import pyarrow as pa

        fields = [
            pa.field(c.name, c.arrow_type(values), self.k < len(self.names)) for c in self.columns
        ]
        text = self.metadata(values=values, private=private, stream=stream)
        return pa.schema(fields, {description.KEY: text.encode()})

    def metadata(
        self, *, values: bool = False, private: bool = True, stream: str | None = None
    ) -> str:
        """Everything public about a result, as JSON; `stream` is what `fingerprint` gave."""
        facts = {
            "format": description.FORMAT,
            "digest": self.digest,
            "values": values,
            "private": private,
            **({} if stream is None else {"stream": stream}),
        }
        return json.dumps({**facts, "plan": self.description})

    @classmethod
    def from_metadata(cls, data: Any) -> TablePlan:
        """The plan that a result, its Arrow schema or the JSON of `metadata` was made with."""
        facts = description.facts(data)
        if facts is None:
            raise WireFormatError("The table has no metadata of dpcore.")
        plan = cls.from_description(facts["plan"])
        if plan.digest != facts["digest"]:
            raise WireFormatError("The table was made by another version of its plan.")
        return plan

    def count(self, data: Any = None, *, values: bool | None = None) -> Counts:
        """Counts of a result; of nothing, zeros.

        Parameters
        ----------
        data : object with __arrow_c_stream__ or __arrow_c_array__, optional
            What `privatize` gave, or a part of it.
        values : bool, optional
            Whether it holds values instead of codes, where its metadata were lost.
        """
        from dpcore.interop.arrow import batches

        if values is not None:
            check_flag(values, "values")
        zeros = tuple(np.zeros(column.n_codes, np.int64) for column in self.columns)
        total = Counts(self.digest, 0, zeros, (0,) * len(zeros))
        for batch in () if data is None else batches(data):
            total += self._count(batch, values)
        return total

    def _count(self, batch: Any, values: bool | None) -> Counts:
        facts = description.facts(batch.schema) or {"digest": self.digest, "values": bool(values)}
        if facts["digest"] != self.digest:
            raise WireFormatError("The table was made with another plan.")
        if sorted(batch.schema.names) != sorted(self.names):
            raise WireFormatError("The table must have the columns of its plan.")
        codes, reported, drawn = [], [], np.zeros(batch.num_rows, np.int32)
        for column in self.columns:
            array = batch.column(column.name)
            reported.append(len(array) - array.null_count)
            if array.null_count:
                drawn += array.is_valid().to_numpy(zero_copy_only=False)
            else:
                drawn += 1
            codes.append(column.count(array, bool(facts["values"])))
        if (drawn != self.k).any():
            raise DataError(f"The table must have reports of {self.k} columns in every row.")
        private = bool(facts.get("private", True))
        return Counts(self.digest, batch.num_rows, tuple(codes), tuple(reported), private)

    def estimate(self, data: Any, *, values: bool | None = None) -> TupleEstimate:
        """Means and frequencies of all columns, with their standard errors.

        Parameters
        ----------
        data : Counts, or object with __arrow_c_stream__ or __arrow_c_array__
            What `count` or `privatize` gave; a stream is read batch by batch.

        Privacy
        -------
        Post-processing of the reports.
        """
        if values is not None:
            check_flag(values, "values")
        counts = data if isinstance(data, Counts) else self.count(data, values=values)
        sizes = [column.n_codes for column in self.columns]
        if counts.digest != self.digest or [len(own) for own in counts.codes] != sizes:
            raise ParameterError("The counts to estimate from must be of this plan.")
        if counts.n_rows == 0:
            raise ParameterError("The 'data' parameter must not be empty.")
        if isinstance(self.collector, Mechanism):
            one = self.collector._estimate_counts(counts.codes[0])
            return TupleEstimate({self.names[0]: one}, counts.n_rows)
        return self.collector.estimate_counts(counts.codes, counts.reported, counts.n_rows)  # type: ignore[no-any-return]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TablePlan) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"<TablePlan: {self.k} of {len(self.names)} columns, epsilon={self.epsilon!r}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return TablePlan.from_description, (self.description,)


def check_plan(plan: Any) -> TablePlan:
    if not isinstance(plan, TablePlan):
        raise ParameterError("The 'plan' parameter must be a dpcore.tables.TablePlan.")
    return plan
