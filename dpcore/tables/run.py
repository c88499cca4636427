"""Tables from file to file: in constant memory, again after a crash, no noise used twice."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from dpcore._files import replacing, sync
from dpcore.errors import (
    DataError,
    DPCoreError,
    ParameterError,
    RepeatedReleaseError,
    WireFormatError,
)
from dpcore.local.schema import Numeric
from dpcore.noise import Noise
from dpcore.tables.counts import Counts
from dpcore.tables.description import facts
from dpcore.tables.files import Source, Text, Writer, bits_from_text, kind_of, sidecar
from dpcore.tables.keys import Record, Seal, Usage
from dpcore.tables.plan import TablePlan

__all__ = ["Job", "OutputError", "Progress", "count_file"]

Progress = Callable[[int, int | None], None]


class OutputError(DPCoreError, OSError):
    """The output cannot be written; nothing was released."""


@dataclass(frozen=True)
class Job:
    """What is the same for all files of a data set.

    Attributes
    ----------
    plan : TablePlan
    usage : Usage or None
        The record of what streams were used for; None for a key that is used once.
    kind, output_kind : str or None
        Formats, if not by the names of the files.
    values : bool
    extra : str
    force : bool
        Whether to write over what is there.
    progress : callable
        Called with the rows done and the rows in all, if known.
    """

    plan: TablePlan
    usage: Usage | None
    kind: str | None = None
    output_kind: str | None = None
    values: bool = False
    extra: str = "error"
    force: bool = False
    progress: Progress = lambda done, total: None

    def check(self, files: Iterable[tuple[str, str]]) -> None:
        """Refuse inputs and outputs, without a key, for what can be seen before the work begins."""
        for i, (where, output) in enumerate(files):
            kind, _ = self._kinds(where, output)
            if output != "-":
                self._check_target(Path(output))
            if where == "-":
                continue
            with self._open(where, kind) as source:
                if i == 0:
                    for numbers, _ in islice(self._numbers(source), 1):
                        self.plan.check_finite(numbers)

    def file(self, where: str, output: str, noise: Noise, pay: Callable[[], Noise]) -> bool:
        """Privatise one file with noise of its own; False if that was done before.

        `pay` gives the noise once it is paid for: it is called when the first rows were read and
        found good, so that nothing is charged for a file that is refused at once.
        """
        try:
            return self._file(where, output, noise, pay)
        except OSError as error:
            if isinstance(error, DPCoreError):
                raise
            raise OutputError(f"The output cannot be written ({error.strerror}).") from None

    def _file(self, where: str, output: str, noise: Noise, pay: Callable[[], Noise]) -> bool:
        kind, output_kind = self._kinds(where, output)
        name = self.plan.fingerprint(noise)
        if output == "-":
            self._to_pipe(where, kind, output_kind, noise, pay)
            return True
        target = Path(output)
        if self._is_done(where, target, output_kind, name):
            return False
        self._check_target(target)
        # Those of a folder; a single file is refused before where there is none.
        target.parent.mkdir(parents=True, exist_ok=True)
        with _locked_part(target) as part:
            looks = _looks(where)
            with pa.OSFile(str(part), "wb") as sink:
                seal = self._write(where, kind, sink, output_kind, noise, pay)
            sync(part)
            self._claim(where, noise, seal, looks)
            if output_kind == "csv":
                self._write_sidecar(target, noise)
            os.chmod(part, 0o666 & ~_umask())
            os.replace(part, target)
            sync(target.parent)
        return True

    def _kinds(self, where: str, output: str) -> tuple[str, str]:
        kind = kind_of(where, self.kind)
        return kind, kind_of(output, self.output_kind or (kind if output == "-" else None))

    def _check_target(self, target: Path) -> None:
        if target.is_dir():
            raise OutputError(f"The output '{target.name}' is a folder.")
        if target.exists() and not self.force:
            raise OutputError(f"The output '{target.name}' is there already; see --force.")

    def _write_sidecar(self, target: Path, noise: Noise) -> None:
        with replacing(sidecar(target)) as file:
            file.write(f"{self._metadata(noise)}\n".encode())
            file.flush()
            # A crash must not leave the new plan beside the codes of an old one.
            target.unlink(missing_ok=True)
            sync(target.parent)

    def _to_pipe(
        self, where: str, kind: str, output_kind: str, noise: Noise, pay: Callable[[], Noise]
    ) -> None:
        """Straight through with a key that is used once, else by way of a file.

        What has gone into a pipe cannot be taken back when the data turn out to be others than
        those that the stream was used for.
        """
        if sys.stdout is None:
            raise OutputError("The output cannot be written: it is closed.")
        with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as out:
            if self.usage is None:
                with pa.PythonFile(out, "w") as sink:
                    self._write(where, kind, sink, output_kind, noise, pay, pipe=True)
                return
            looks = _looks(where)
            with tempfile.NamedTemporaryFile(prefix="dpcore-") as spool:
                with pa.OSFile(spool.name, "wb") as sink:
                    seal = self._write(where, kind, sink, output_kind, noise, pay, pipe=True)
                self._claim(where, noise, seal, looks)
                shutil.copyfileobj(spool, out, 1 << 20)

    def _write(
        self,
        where: str,
        kind: str,
        sink: Any,
        output_kind: str,
        noise: Noise,
        pay: Callable[[], Noise],
        pipe: bool = False,
    ) -> Seal:
        """Read, seal, encode and write, each a batch ahead of the next."""
        plan, seal, row, paid = self.plan, self._seal(), 0, None
        schema = plan.arrow_schema(**self._facts(noise))
        with (
            self._open(where, kind) as source,
            Writer(sink, output_kind, schema, pipe) as writer,
            ThreadPoolExecutor(1) as reading,
            ThreadPoolExecutor(1) as sealing,
            ThreadPoolExecutor(1) as writing,
        ):
            sealed = written = _done()
            for numbers, dropped in _ahead(self._numbers(source), reading):
                if not len(numbers[0]):
                    continue
                if paid is None:
                    plan.check_finite(numbers)
                    paid = pay()
                sealed.result()
                sealed = sealing.submit(seal.update, numbers, dropped)
                batch = plan.encode(numbers, dropped, paid, row, values=self.values)
                written.result()
                written = writing.submit(writer.write, batch)
                row += len(numbers[0])
                self.progress(row, source.n_rows)
            sealed.result()
            written.result()
        return seal

    def _open(self, where: str, kind: str) -> Source:
        """The input, with the columns that the plan wants."""
        only = self.plan.names if self.extra == "drop" else None
        source = Source(where, kind, Text.of_data(self.plan), only, self.plan.row_bytes)
        try:
            self.plan.check_schema(source.schema, extra=self.extra)
        except BaseException:
            source.close()
            raise
        return source

    def _seal(self) -> Seal:
        return Seal([isinstance(attribute, Numeric) for attribute in self.plan.attributes])

    def _numbers(self, source: Source) -> Iterator[Any]:
        for batch in source:
            yield self.plan.read(batch, extra=self.extra)

    def _claim(self, where: str, noise: Noise, seal: Seal, looks: tuple[int, int]) -> None:
        if self.usage is None:
            return
        if _looks(where) != looks:
            raise DataError("The input changed while it was read; nothing was released.")
        record = Record(seal.digest(noise), seal.rows, seal.kept, *looks)
        try:
            self.usage.claim(self.plan.fingerprint(noise), record)
        except RepeatedReleaseError as error:
            shown = "the input" if where == "-" else f"'{Path(where).name}'"
            raise RepeatedReleaseError(str(error).replace("The input", shown, 1)) from None

    def _facts(self, noise: Noise) -> dict[str, Any]:
        """What the metadata say beside the plan; noise that is used once needs no name."""
        stream = None if self.usage is None else self.plan.fingerprint(noise)
        return {"values": self.values, "private": noise.private, "stream": stream}

    def _metadata(self, noise: Noise) -> str:
        return self.plan.metadata(**self._facts(noise))

    def _is_done(self, where: str, target: Path, output_kind: str, name: str) -> bool:
        """Whether the output is what this job would make of an input that looks as it did."""
        if self.force or self.usage is None or where == "-" or not target.is_file():
            return False
        record = self.usage.find(name)
        if record is None or (record.size, record.modified) != _looks(where):
            return False
        try:
            found = _facts_of(target, output_kind)
        except DPCoreError:
            return False
        wanted = {"digest": self.plan.digest, "values": self.values, "stream": name}
        return found is not None and wanted.items() <= found.items()


def _ahead(items: Iterator[Any], pool: ThreadPoolExecutor) -> Iterator[Any]:
    """The items, the next of which is made while one is used."""
    following = pool.submit(next, items, None)
    while (item := following.result()) is not None:
        following = pool.submit(next, items, None)
        yield item


def _done() -> Future[None]:
    future: Future[None] = Future()
    future.set_result(None)
    return future


def _looks(where: str) -> tuple[int, int]:
    if where == "-":
        return 0, 0
    found = os.stat(where)
    return found.st_size, found.st_mtime_ns


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


@contextmanager
def _locked_part(target: Path) -> Iterator[Path]:
    """An unfinished file beside the target, for its owner alone, that no other process writes."""
    part = target.with_name(f".{target.name}.part")
    # An interrupt may come between any two steps: what was opened is in here before it is locked.
    opened: list[int] = []
    try:
        _lock(part, opened)
        yield part
    except BaseException:
        _close(opened)
        _remove_abandoned(part)
        raise
    _close(opened)


def _lock(part: Path, opened: list[int]) -> None:
    try:
        while True:
            opened.append(os.open(part, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            fcntl.flock(opened[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Another process may have finished, and renamed the file, between the two calls.
            if part.exists() and os.path.samestat(os.fstat(opened[-1]), os.stat(part)):
                return
            _close(opened)
    except OSError as error:
        if error.errno == errno.EAGAIN:
            raise OutputError("The output is being written by another process.") from None
        raise


def _close(opened: list[int]) -> None:
    while opened:
        os.close(opened.pop())


def _remove_abandoned(part: Path) -> None:
    """Remove an unfinished file unless another process holds its lock."""
    with suppress(OSError):
        opened = [os.open(part, os.O_RDWR | os.O_CLOEXEC)]
        try:
            fcntl.flock(opened[0], fcntl.LOCK_EX | fcntl.LOCK_NB)
            part.unlink()
        finally:
            _close(opened)


def _facts_of(path: Path, kind: str) -> dict[str, Any] | None:
    if kind == "csv":
        beside = sidecar(path)
        # What is no UTF-8 is found to be damaged as what it was replaced by.
        return facts(beside.read_text("utf-8", "replace")) if beside.is_file() else None
    with Source(str(path), kind) as source:
        return facts(source.schema)


def count_file(
    where: str, kind: str, plan: TablePlan | None, values: bool, progress: Progress
) -> tuple[TablePlan, Counts]:
    """Counts of a result in a file or pipe, read batch by batch, and the plan it was made with.

    The plan, and whether the result holds values, are needed only where it has no metadata.
    """
    found = _facts_of(Path(where), kind) if kind == "csv" and where != "-" else None
    if found is not None:
        plan, values = plan or TablePlan.from_metadata(found), found["values"]
    text = None if plan is None else Text.of_result(plan, values)
    with Source(where, kind, text) as source:
        found = found or facts(source.schema)
        if plan is None:
            if found is None:
                raise ParameterError(
                    "The input has no metadata of dpcore: name the schema it was made with."
                )
            plan = TablePlan.from_metadata(found)
        if found is not None and found["digest"] != plan.digest:
            raise ParameterError("The input was made with another schema.")
        if sorted(source.schema.names) != sorted(plan.names):
            raise WireFormatError("The table must have the columns of its plan.")
        widths = {c.name: c.n_bytes for c in plan.columns if c.n_bytes and kind == "csv"}
        total = plan.count()
        for batch in source:
            total += plan.count(bits_from_text(batch, widths), values=values)
            progress(total.n_rows, source.n_rows)
    return plan, total
