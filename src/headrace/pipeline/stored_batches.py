"""A stored change log as a pipeline's batches: the same steps, rows and events, read from its files when asked for."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ..destinations.batch import Changes, EventBatch, Step, TableBatch
from ..destinations.parquet.manifest import DataFile, Manifest, StoredRows, StoredStep
from ..destinations.parquet.reader import changes_schema, read_changes, read_copied, read_rejected, row_schema
from ..destinations.parquet.storage import Storage
from ..destinations.rows import REJECTED_FIELDS, Rows
from ..events import Begin, Commit, Event, Relation
from ..lsn import Lsn
from ..pgoutput.row_events import PlacedEvent, merged_truncates, row_events
from ..schema import ReplicatedTableSchema
from ..spark.part import Read
from ..spark.rows import TaskRows, read_here

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["StoredReading"]

LOCAL_BYTES = 2 << 20
"""Up to so many bytes of Parquet are read in the driver: about what a pipeline decodes there itself."""

_Part = tuple[DataFile, tuple[DataFile, ...]]
"""A file with rows, and those that hold what its values could not."""
_Place = tuple[int, int]


@dataclass(frozen=True, slots=True)
class _FileReader:
    """Reads a part, in a task or here; of changes those committed from `since` on, and before `before`."""

    storage: Storage
    schema: ReplicatedTableSchema
    copied: bool
    since: int | None = None
    before: int | None = None

    def __call__(self, part: _Part) -> Iterator[Read]:
        file, beside = part
        rejected = self._beside(beside)
        read = read_copied if self.copied else read_changes
        for batch in read(self.storage, file, self.schema):
            yield Read(batch if self.copied else self._due(batch), rejected, batch.nbytes)
            rejected = None

    def _beside(self, files: Sequence[DataFile]) -> pa.RecordBatch | None:
        found = [batch for file in files for batch in read_rejected(self.storage, file)]
        if not found:
            return None
        table = pa.Table.from_batches(found).cast(REJECTED_FIELDS).combine_chunks()
        return self._due(table.to_batches()[0])

    def _due(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        lsn = batch["commit_lsn"]
        if self.since is not None:
            batch = batch.filter(pc.fill_null(pc.greater_equal(lsn, self.since), True))
            lsn = batch["commit_lsn"]
        return batch if self.before is None else batch.filter(pc.fill_null(pc.less(lsn, self.before), True))


@dataclass(frozen=True, slots=True)
class StoredReading:
    """How a log is read: where, with what, and between which commits."""

    storage: Storage
    spark: SparkSession | Any
    before: Lsn | None = None
    """Commits at this LSN or later are left out."""
    since: Mapping[int, Lsn] = field(default_factory=dict)
    """Per table, by OID: commits before this LSN are left out. A batch may begin before it."""

    def copy(self, manifest: Manifest) -> Iterator[tuple[ReplicatedTableSchema, Rows]]:
        """The rows of a part of an initial copy."""
        for step in manifest.steps:
            if isinstance(step, StoredRows):
                yield step.schema, self._rows(step, copied=True)

    def batch(self, end: Lsn, manifests: Sequence[Manifest]) -> EventBatch:
        """The batch that these manifests, of a table each, were written from."""
        end = end if self.before is None else min(end, self.before)
        tables = [self._table(manifest) for manifest in manifests]
        return EventBatch(end, tuple(table for table in tables if table.steps), partial(self._events, manifests))

    def _table(self, manifest: Manifest) -> TableBatch:
        due = list(self._due(manifest))
        steps: list[Step] = [
            Changes(step.schema, self._rows(step, copied=False)) if isinstance(step, StoredRows) else step
            for step in due
        ]
        start = max(manifest.start, self.since.get(manifest.schema.table.id, manifest.start))
        return TableBatch(_schema_before(due, manifest.schema), start, tuple(steps))

    def _due(self, manifest: Manifest) -> Iterator[StoredStep]:
        since = self.since.get(manifest.schema.table.id)
        for step in manifest.steps:
            first, last = _bounds(step)
            begun = self.before is None or first is None or first < self.before
            if begun and (since is None or last is None or last >= since):
                yield step

    def _rows(self, step: StoredRows, *, copied: bool) -> Rows:
        reader = self._reader(step, copied=copied)
        schema = row_schema(step.schema) if copied else changes_schema(step.schema)
        parts: list[_Part] = [(file, step.rejected if index == 0 else ()) for index, file in enumerate(step.files)]
        if self.spark is None or sum(file.bytes for file in step.files) <= LOCAL_BYTES:
            return read_here(self.spark, parts, reader, schema)
        return TaskRows(self.spark, [(part,) for part in parts], reader, schema, f"read {step.schema.table.name}")

    def _reader(self, step: StoredRows, *, copied: bool) -> _FileReader:
        bounds = (None, None) if copied else (self.since.get(step.schema.table.id), self.before)
        return _FileReader(self.storage, step.schema, copied, *bounds)

    def _events(self, manifests: Sequence[Manifest]) -> Iterator[Event]:
        placed = heapq.merge(*(self._placed(manifest) for manifest in manifests), key=itemgetter(0))
        return _bracketed(merged_truncates(event for _, event in placed))

    def _placed(self, manifest: Manifest) -> Iterator[tuple[_Place, PlacedEvent]]:
        last: _Place = (0, -1)
        for step in self._due(manifest):
            if isinstance(step, StoredRows):
                reader = self._reader(step, copied=False)
                for file in step.files:
                    for read in reader((file, ())):
                        for event in row_events(step.schema, read.rows):
                            last = (event.commit_lsn, event.tx_ordinal)
                            yield last, event
            else:
                # A relation has no ordinal: it stays behind what came before it.
                ordinal = -1 if isinstance(step, Relation) else step.tx_ordinal
                last = max(last, (int(step.commit_lsn), ordinal))
                yield last, step


def _bounds(step: StoredStep) -> tuple[int | None, int | None]:
    """The LSNs of its first and its last commit."""
    if not isinstance(step, StoredRows):
        return int(step.commit_lsn), int(step.commit_lsn)
    first, last = step.files[0].first, step.files[-1].last
    return first and first[0], last and last[0]


def _schema_before(steps: Sequence[StoredStep], schema: ReplicatedTableSchema) -> ReplicatedTableSchema:
    """The table as it was in front of the first step; `schema` is that behind the last."""
    step = steps[0] if steps else None
    if isinstance(step, StoredRows):
        return step.schema
    if isinstance(step, Relation):
        return step.old or step.new
    return schema if step is None else step.schemas[0]


def _bracketed(events: Iterable[PlacedEvent]) -> Iterator[Event]:
    """Between Begin and Commit, whose own positions a log does not keep: the commit's stands for them."""
    opened: Commit | None = None
    held: list[Event] = []
    for event in events:
        if opened is not None and opened.commit_lsn != event.commit_lsn:
            yield opened
            opened = None
        if isinstance(event, Relation):
            # It does not say whose commit it is: the event behind it does.
            if opened is None:
                held.append(event)
                continue
        elif opened is None:
            opened = Commit(event.commit_lsn, event.commit_lsn, event.xid, event.commit_time)
            yield Begin(event.commit_lsn, event.commit_lsn, event.xid, event.commit_time)
            yield from held
            held.clear()
        yield event
    if opened is not None:
        yield opened
    yield from held
