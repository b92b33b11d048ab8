"""Rows on their way from tasks to DuckDB: few are handed over in memory, many by a file that both can reach."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from ...private_files import create_file
from ...remedies import errors_of_file
from ..rows import Rows

__all__ = ["Staged", "Staging", "pieces"]

_IN_MEMORY_BYTES = 4 << 20
"""What a task's result may hold: it travels through Spark's driver."""

_PIECE_BYTES = 64 << 20
"""What one statement takes. In a lake, each makes a file."""

_Each = Callable[[pa.RecordBatch], pa.RecordBatch]


@dataclass(frozen=True, slots=True, eq=False)
class Staged:
    """The rows of one task: here, or in a file of Arrow's stream format."""

    table: pa.Table | None
    path: str | None
    rows: int

    def reader(self) -> pa.RecordBatchReader:
        """A batch at a time, however many there are."""
        if self.table is not None:
            return self.table.to_reader()
        return pa.ipc.open_stream(pa.memory_map(self.path))


@dataclass(frozen=True, slots=True)
class _Stage:
    """Puts rows down, in a task."""

    directory: str
    schema: pa.Schema
    each: _Each | None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Staged:
        held: list[pa.RecordBatch] = []
        size = 0
        rows = batches if self.each is None else map(self.each, batches)
        for batch in rows:
            held.append(batch)
            size += batch.nbytes
            if size > _IN_MEMORY_BYTES:
                return self._to_file(held, rows)
        table = pa.Table.from_batches(held, self.schema)
        return Staged(table, None, len(table))

    def _to_file(self, held: list[pa.RecordBatch], rest: Iterator[pa.RecordBatch]) -> Staged:
        # A name of its own: a task may run twice at once.
        path = Path(self.directory) / f"{uuid.uuid4().hex}.arrow"
        try:
            with errors_of_file(str(path)):
                return Staged(None, str(path), self._write_file(path, held, rest))
        except BaseException:
            # The next attempt needs the space.
            path.unlink(missing_ok=True)
            raise

    def _write_file(self, path: Path, held: list[pa.RecordBatch], rest: Iterator[pa.RecordBatch]) -> int:
        count = 0
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        create_file(path)
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, self.schema, options=options) as writer:
            while held:
                count += _write(writer, held.pop(0))
            for batch in rest:
                count += _write(writer, batch)
        return count


def _write(writer: pa.RecordBatchWriter, batch: pa.RecordBatch) -> int:
    """In parts that a reader may hold: the folded changes of a table are one batch, however many."""
    rows = max(1, batch.num_rows * _IN_MEMORY_BYTES // max(1, batch.nbytes))
    for start in range(0, batch.num_rows, rows):
        writer.write_batch(batch.slice(start, rows))
    return int(batch.num_rows)


def pieces(staged: Sequence[Staged]) -> Iterator[pa.RecordBatchReader]:
    """The rows of all tasks, so many for each statement that takes them: DuckDB lets go of none before its end."""
    batches: Iterator[pa.RecordBatch] = (batch for one in staged if one.rows for batch in one.reader())
    for first in batches:
        yield pa.RecordBatchReader.from_batches(first.schema, _piece(first, batches))


def _piece(first: pa.RecordBatch, rest: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    size = first.nbytes
    yield first
    while size < _PIECE_BYTES and (batch := next(rest, None)) is not None:
        size += batch.nbytes
        yield batch


class Staging:
    """A directory for the files of one run, locked while it lives. Those of dead runs go when the next one begins."""

    def __init__(self, root: str | None, place: str, pipeline_id: int, *, shared: bool) -> None:
        """`place`: the database, since others of the same pipeline, or of another with its id, may use the same root.
        `shared`: whether tasks reach it. If they do not, rows are read here.
        """
        self._shared = shared
        above = Path(root) if root is not None else Path(tempfile.gettempdir())
        self._prefix = f"headrace-staging-{pipeline_id}-{hashlib.sha256(place.encode()).hexdigest()[:12]}-"
        self._lock: int | None = None
        self._above, self._own = above, above / f"{self._prefix}{uuid.uuid4().hex[:12]}"

    @property
    def path(self) -> str:
        return str(self._own)

    def open(self) -> None:
        self._above.mkdir(parents=True, exist_ok=True)
        self._clear()
        self._own.mkdir(mode=0o700, exist_ok=True)
        if self._lock is None:
            self._lock = _locked(self._own)

    def close(self) -> None:
        shutil.rmtree(self._own, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def put(self, rows: Rows, schema: pa.Schema, each: _Each | None = None) -> list[Staged]:
        """All rows; `each` makes of a batch one with `schema`."""
        stage = _Stage(str(self._own), schema, each)
        return rows.in_tasks(stage) if self._shared else [stage(rows.batches())]

    def discard(self, staged: Sequence[Staged]) -> None:
        for one in staged:
            if one.path is not None:
                Path(one.path).unlink(missing_ok=True)

    def _clear(self) -> None:
        """Remove the directories of runs that have ended. One that was replaced may still read its files."""
        for left in self._above.glob(f"{self._prefix}*"):
            lock = None if left == self._own else _locked(left)
            if lock is not None:
                shutil.rmtree(left, ignore_errors=True)
                os.close(lock)


def _locked(directory: Path) -> int | None:
    """A descriptor that holds the directory's lock; None: a live process has it, or the directory is gone."""
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor
