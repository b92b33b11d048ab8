"""Parquet files, written by tasks: changes as they came, cut where the day of their commits changes."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ...pgoutput.changes import CHANGE_FIELDS
from .manifest import DataFile
from .storage import Storage

__all__ = ["COPIED", "FileWriter", "RowKind", "change_rows", "copied_rows", "stored_schema"]

COPIED = "R"
"""The operation of a row that was there when the table was copied; the others are I, U and D."""

_NOTHING = pa.field("_headrace_nothing", pa.bool_())
"""Stands in the struct of a table without columns: Parquet has no empty one."""

_EPOCH = date(1970, 1, 1)

RowKind = str
"""`copy`, `changes` or `rejected`: also the directory that such files lie in."""


@dataclass(frozen=True, slots=True)
class FileWriter:
    """What a task does with its batches; pickled. Names are fresh in each call."""

    storage: Storage
    directory: str
    attempt: str
    """The beginning of the files' names."""
    kind: RowKind
    compression: str
    target_bytes: int
    since: int = 0
    """Changes before this commit LSN are in the log already."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> list[DataFile]:
        written: list[DataFile] = []
        opened: _OpenFile | None = None
        with contextlib.ExitStack() as stack:
            for place, batch in self._placed(batches):
                if opened is not None and (opened.place != place or opened.size >= self.target_bytes):
                    written.append(opened.closed())
                    opened = None
                if opened is None:
                    path = f"{self.directory}/{place}/{self.attempt}-{uuid.uuid4().hex}.parquet"
                    opened = _OpenFile.open(stack, self.storage, path, place, batch.schema, self.compression)
                opened.write(batch)
            if opened is not None:
                written.append(opened.closed())
        return written

    def _placed(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[str, pa.RecordBatch]]:
        for batch in batches:
            if self.kind == "copy":
                yield "copy", _as_changes(batch)
                continue
            kept = self._due(batch)
            if not kept.num_rows:
                continue
            if self.kind == "rejected":
                yield "rejected", kept
                continue
            for day, run in _days(kept):
                yield f"changes/commit_date={day.isoformat()}", _storable(run)

    def _due(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        lsns = pc.fill_null(batch["commit_lsn"], np.iinfo(np.int64).max)
        due = pc.greater_equal(lsns, self.since)
        return batch if pc.all(due).as_py() is not False else batch.filter(due)


class _OpenFile:
    """A file that is being written, and what is known of it so far."""

    def __init__(self, path: str, place: str, sink: Any, writer: pq.ParquetWriter, files: contextlib.ExitStack) -> None:
        self.path, self.place = path, place
        self._sink, self._writer, self._files = sink, writer, files
        self._rows = 0
        self._first: tuple[int, int] | None = None
        self._last: tuple[int, int] | None = None
        self._times: list[Any] = []

    @classmethod
    def open(
        cls, stack: contextlib.ExitStack, storage: Storage, path: str, place: str, schema: pa.Schema, compression: str
    ) -> _OpenFile:
        files = stack.enter_context(contextlib.ExitStack())
        sink = files.enter_context(storage.output(path))
        writer = files.enter_context(pq.ParquetWriter(sink, schema, compression=compression, write_page_checksum=True))
        return cls(path, place, sink, writer, files)

    @property
    def size(self) -> int:
        return int(self._sink.tell())

    def write(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)
        self._rows += batch.num_rows
        if not self.place.startswith("changes"):
            return
        lsns, ordinals = batch["commit_lsn"], batch["tx_ordinal"]
        self._first = self._first or (lsns[0].as_py(), ordinals[0].as_py())
        self._last = (lsns[-1].as_py(), ordinals[-1].as_py())
        times = pc.min_max(batch["commit_time"]).as_py()
        self._times += [times["min"], times["max"]]

    def closed(self) -> DataFile:
        self._writer.close()
        size = self.size
        self._files.close()
        times = (min(self._times).isoformat(), max(self._times).isoformat()) if self._times else None
        return DataFile(self.path, self._rows, size, self._first, self._last, times)


def _days(batch: pa.RecordBatch) -> Iterator[tuple[date, pa.RecordBatch]]:
    """Runs of changes committed on one day (UTC): in order, whatever the source's clock did."""
    days: npt.NDArray[np.int32] = batch["commit_time"].cast(pa.date32()).cast(pa.int32()).to_numpy()
    starts = [0, *(np.flatnonzero(np.diff(days)) + 1).tolist()]
    for start, end in zip(starts, [*starts[1:], len(days)], strict=True):
        yield _EPOCH + timedelta(days=int(days[start])), batch.slice(start, end - start)


def stored_schema(rows: pa.Schema) -> pa.Schema:
    """The columns of a file: those of changes, for source rows of this schema."""
    row = pa.struct(list(rows) or [_NOTHING])
    return pa.schema(
        [*(field.with_nullable(True) for field in CHANGE_FIELDS), pa.field("row", row), pa.field("old", row)]
    )


def _as_changes(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Rows of a copy with the columns of changes: what they have no value for is NULL."""
    schema = stored_schema(rows.schema)
    children = rows.columns or [pa.nulls(rows.num_rows, pa.bool_())]
    row = pa.StructArray.from_arrays(children, fields=list(schema.field("row").type))
    given = {"op": pa.repeat(pa.scalar(COPIED, pa.string()), rows.num_rows), "row": row}
    columns = [given.get(field.name) for field in schema]
    filled = [pa.nulls(rows.num_rows, f.type) if c is None else c for c, f in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(filled, schema=schema)


def _storable(changes: pa.RecordBatch) -> pa.RecordBatch:
    row_type = changes.schema.field("row").type
    schema = stored_schema(pa.schema(list(row_type)))
    columns = dict(zip(changes.schema.names, changes.columns, strict=True))
    if not row_type.num_fields:
        columns |= {side: _with_nothing(columns[side]) for side in ("row", "old")}
    return pa.RecordBatch.from_arrays([columns[field.name] for field in schema], schema=schema)


def _with_nothing(rows: pa.StructArray) -> pa.StructArray:
    return pa.StructArray.from_arrays([pa.nulls(len(rows), pa.bool_())], fields=[_NOTHING], mask=rows.is_null())


def copied_rows(stored: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Rows of a copy as they were before they were stored; `schema` is theirs."""
    if not len(schema):
        return pa.RecordBatch.from_struct_array(pa.array([{}] * stored.num_rows, pa.struct([])))
    return pa.RecordBatch.from_arrays(_children(stored["row"], schema), schema=schema)


def change_rows(stored: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Changes as they came; `schema` is that of `Changes.rows`."""
    columns = [
        _struct(stored[field.name], field.type) if field.name in ("row", "old") else stored[field.name].cast(field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _struct(stored: pa.StructArray, wanted: pa.StructType) -> pa.StructArray:
    children = _children(stored, pa.schema(list(wanted)))
    if not children:
        return pa.array([None if absent else {} for absent in stored.is_null().to_pylist()], wanted)
    return pa.StructArray.from_arrays(children, fields=list(wanted), mask=stored.is_null())


def _children(stored: pa.StructArray, schema: pa.Schema) -> list[pa.Array]:
    # By position: two columns' names may differ in case only, or be anything else that trips a lookup.
    return [child.cast(field.type) for child, field in zip(stored.flatten(), schema, strict=False)]
