"""Tables from file to file: in constant memory, again after a crash, no noise used twice."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from dpcore._files import replace_bytes, sync
from dpcore.errors import DPCoreError, ParameterError, RepeatedReleaseError
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

    def file(self, where: str, output: str, noise: Noise) -> bool:
        """Privatise one file with noise of its own; False if that was done before."""
        try:
            return self._file(where, output, noise)
        except OSError as error:
            if isinstance(error, DPCoreError):
                raise
            raise OutputError(f"The output cannot be written ({error.strerror}).") from None

    def _file(self, where: str, output: str, noise: Noise) -> bool:
        kind = kind_of(where, self.kind)
        output_kind = kind_of(output, self.output_kind or (kind if output == "-" else None))
        name = self.plan.fingerprint(noise)
        if output == "-":
            self._to_pipe(where, kind, output_kind, noise, name)
            return True
        target = Path(output)
        if self._is_done(where, target, output_kind, name):
            return False
        if target.exists() and not self.force:
            raise OutputError(f"The output '{target.name}' is there already; see --force.")
        with _locked_part(target) as part:
            with pa.OSFile(str(part), "wb") as sink:
                seal = self._write(where, kind, sink, output_kind, noise)
            sync(part)
            self._claim(where, noise, name, seal)
            if output_kind == "csv":
                replace_bytes(sidecar(target), f"{self._metadata(noise)}\n".encode())
            os.chmod(part, 0o666 & ~_umask())
            os.replace(part, target)
            sync(target.parent)
        return True

    def _to_pipe(self, where: str, kind: str, output_kind: str, noise: Noise, name: str) -> None:
        """Straight through with a key that is used once, else by way of a file.

        What has gone into a pipe cannot be taken back when the data turn out to be others than
        those that the stream was used for.
        """
        with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as out:
            if self.usage is None:
                with pa.PythonFile(out, "w") as sink:
                    self._write(where, kind, sink, output_kind, noise, pipe=True)
                return
            with tempfile.NamedTemporaryFile(prefix="dpcore-") as spool:
                with pa.OSFile(spool.name, "wb") as sink:
                    seal = self._write(where, kind, sink, output_kind, noise, pipe=True)
                self._claim(where, noise, name, seal)
                shutil.copyfileobj(spool, out, 1 << 20)

    def _write(
        self,
        where: str,
        kind: str,
        sink: Any,
        output_kind: str,
        noise: Noise,
        pipe: bool = False,
    ) -> Seal:
        """Read, seal, encode and write, each a batch ahead of the next."""
        plan, seal, row = self.plan, Seal(), 0
        schema = plan.arrow_schema(values=self.values, private=noise.private)
        only = plan.names if self.extra == "drop" else None
        with Source(where, kind, Text.of_data(plan), only) as source:
            plan.check_names(source.schema.names, extra=self.extra)
            with (
                Writer(sink, output_kind, schema, pipe) as writer,
                ThreadPoolExecutor(1) as reading,
                ThreadPoolExecutor(1) as sealing,
                ThreadPoolExecutor(1) as writing,
            ):
                sealed = written = _done()
                for numbers, dropped in _ahead(self._numbers(source), reading):
                    sealed.result()
                    sealed = sealing.submit(seal.update, numbers, dropped)
                    batch = plan.encode(numbers, dropped, noise, row, values=self.values)
                    written.result()
                    written = writing.submit(writer.write, batch)
                    row += len(numbers[0])
                    self.progress(row, source.n_rows)
                sealed.result()
                written.result()
        return seal

    def _numbers(self, source: Source) -> Iterator[Any]:
        for batch in source:
            yield self.plan.read(batch, extra=self.extra)

    def _claim(self, where: str, noise: Noise, name: str, seal: Seal) -> None:
        if self.usage is None:
            return
        size, modified = (0, 0) if where == "-" else _looks(where)
        record = Record(seal.digest(noise), seal.rows, seal.kept, size, modified)
        try:
            self.usage.claim(name, record)
        except RepeatedReleaseError as error:
            shown = "the input" if where == "-" else f"'{Path(where).name}'"
            raise RepeatedReleaseError(str(error).replace("The input", shown, 1)) from None

    def _metadata(self, noise: Noise) -> str:
        return self.plan.metadata(values=self.values, private=noise.private)

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
        wanted = {"digest": self.plan.digest, "values": self.values}
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
    try:
        while True:
            handle = os.open(part, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Another process may have finished, and renamed the file, between the two calls.
            if part.exists() and os.path.samestat(os.fstat(handle), os.stat(part)):
                break
            os.close(handle)
    except OSError as error:
        if error.errno == errno.EAGAIN:
            raise OutputError("The output is being written by another process.") from None
        raise
    try:
        yield part
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    finally:
        os.close(handle)


def _facts_of(path: Path, kind: str) -> dict[str, Any] | None:
    if kind == "csv":
        beside = sidecar(path)
        return facts(beside.read_text()) if beside.is_file() else None
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
        widths = {c.name: c.n_bytes for c in plan.columns if c.n_bytes and kind == "csv"}
        total = plan.count()
        for batch in source:
            total += plan.count(bits_from_text(batch, widths), values=values)
            progress(total.n_rows, source.n_rows)
    return plan, total
