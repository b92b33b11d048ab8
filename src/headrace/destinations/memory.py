"""Keeps everything in memory, to be looked at: for tests and first trials. Up to some 100,000 rows."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from ..errors import TableNotFound
from ..events import Delete, Event, Insert, Relation, Truncate, Update
from ..lsn import INVALID_LSN, Lsn
from ..schema import ReplicatedTableSchema, TableName
from .batch import Changes, EventBatch, TableBatch
from .changed_rows import ReadChanges, ReadStep, changed
from .contract import DestinationContext, Durability
from .rows import REJECTED_FIELDS, Rows

__all__ = ["MemoryDestination"]


@dataclass(slots=True)
class _Table:
    name: TableName
    rows: pa.Table | None = None
    """None: only changes came so far."""
    steps: list[ReadStep] = field(default_factory=list)
    """Not applied to `rows` yet: that is done when somebody looks."""
    shape: ReplicatedTableSchema | None = None
    """What the rows look like after the steps."""
    rejected: pa.Table = field(default_factory=REJECTED_FIELDS.empty_table)
    parts: set[int] = field(default_factory=set)
    applied: Lsn | None = None


@dataclass(frozen=True, slots=True)
class _Read:
    """What a batch brings for one table."""

    schema: ReplicatedTableSchema
    steps: list[ReadStep]
    rejected: list[pa.Table]


class MemoryDestination:
    """Rows, events and the quarantine, per table. What it holds outlives a pipeline, but not the process."""

    name = "memory"
    whole_batches = False

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tables: dict[int, _Table] = {}
        self._events: list[Event] = []

    def tables(self) -> list[TableName]:
        with self._lock:
            return sorted(table.name for table in self._tables.values())

    def rows(self, table: str | TableName) -> pa.Table:
        """The table's rows as they are now. Raises TableNotFound."""
        with self._lock:
            found = self._find(table)
            rows = found.rows
            if rows is None:
                rows = next((_no_rows(step) for step in found.steps if isinstance(step, ReadChanges)), pa.table({}))
            found.rows, found.steps = changed(rows, found.steps), []
            return found.rows

    def events(self) -> list[Event]:
        """All events in the order in which they came: that of commits per table, not across tables."""
        with self._lock:
            return list(self._events)

    def quarantine(self, table: str | TableName) -> pa.Table:
        """The values that are NULL in `rows` because no Arrow value is equal to them. Raises TableNotFound."""
        with self._lock:
            return self._find(table).rejected

    def startup(self, context: DestinationContext) -> None:
        pass

    def claim(self) -> None:
        """Cannot fence: runs that share this object look the same to it."""

    def applied_lsn(self, schema: ReplicatedTableSchema) -> Lsn | None:
        with self._lock:
            table = self._tables.get(schema.table.id)
            return None if table is None else table.applied

    def copied_parts(self, schema: ReplicatedTableSchema) -> frozenset[int] | None:
        with self._lock:
            table = self._tables.get(schema.table.id)
            return frozenset() if table is None else frozenset(table.parts)

    def drop_table_for_copy(self, schema: ReplicatedTableSchema) -> None:
        """The events stay: they are what was received, whatever became of it."""
        with self._lock:
            self._tables.pop(schema.table.id, None)

    def drop_table(self, schema: ReplicatedTableSchema) -> None:
        self.drop_table_for_copy(schema)

    def write_table_rows(self, schema: ReplicatedTableSchema, rows: Rows, part: int) -> Durability:
        copied = pa.Table.from_batches(rows.batches(), rows.arrow_schema)
        rejected = list(_rejected(rows))
        with self._lock:
            table = self._table(schema)
            if part in table.parts:
                return Durability.DURABLE
            table.parts.add(part)
            table.shape = schema
            table.rows = copied if table.rows is None else pa.concat_tables([table.rows, copied])
            table.rejected = pa.concat_tables([table.rejected, *rejected])
        return Durability.DURABLE

    def follows(self, relation: Relation) -> bool:
        return not relation.rewritten

    def write_events(self, batch: EventBatch) -> Durability:
        with self._lock:
            applied = {part.schema.table.id: self._applied(part.schema) for part in batch.tables}
        # Everything is read before anything is kept: a batch that cannot be read leaves nothing behind.
        parts = [_read(part, applied[part.schema.table.id]) for part in batch.tables]
        events = [event for event in batch.events() if _is_new(event, applied)]
        with self._lock:
            self._events += events
            for part in parts:
                table = self._table(part.schema)
                relations = [step for step in part.steps if isinstance(step, Relation)]
                table.name = relations[-1].new.table.name if relations else table.name
                table.steps += _from_what_is_there(table, part.steps)
                table.rejected = pa.concat_tables([table.rejected, *part.rejected])
                table.applied = max(batch.end, applied[part.schema.table.id])
        return Durability.DURABLE

    def flush(self) -> None:
        pass

    def shutdown(self) -> None:
        pass

    def _find(self, name: str | TableName) -> _Table:
        # The newest first: a table that was dropped and created again has another id.
        for table in reversed(self._tables.values()):
            if str(table.name) == str(name):
                return table
        msg = f"nothing was written for table {name}"
        raise TableNotFound(msg)

    def _table(self, schema: ReplicatedTableSchema) -> _Table:
        table = self._tables.setdefault(schema.table.id, _Table(schema.table.name))
        table.name = schema.table.name
        return table

    def _applied(self, schema: ReplicatedTableSchema) -> Lsn:
        table = self._tables.get(schema.table.id)
        return INVALID_LSN if table is None or table.applied is None else table.applied


def _read(part: TableBatch, applied: Lsn) -> _Read:
    """The steps at or behind `applied`; what stands before it is here already."""
    read = _Read(part.schema, [], [])
    for step in part.steps:
        if isinstance(step, Changes):
            table = pa.Table.from_batches(step.rows.batches(), step.rows.arrow_schema)
            read.steps.append(ReadChanges(step.schema, _since(table, applied)))
            read.rejected.extend(_since(rejected, applied) for rejected in _rejected(step.rows))
        elif step.commit_lsn >= applied:
            read.steps.append(step)
    return read


def _from_what_is_there(table: _Table, steps: list[ReadStep]) -> Iterator[ReadStep]:
    """The steps, each relation with what the rows look like before it: it may have been followed already."""
    for step in steps:
        if isinstance(step, ReadChanges):
            table.shape = step.schema
        elif isinstance(step, Relation):
            yield replace(step, old=table.shape or step.old)
            table.shape = step.new
            continue
        yield step


def _since(table: pa.Table, applied: Lsn) -> pa.Table:
    return table.filter(pc.greater_equal(table["commit_lsn"], int(applied)))


def _rejected(rows: Rows) -> Iterator[pa.Table]:
    rejected = rows.rejected()
    if rejected is not None:
        yield pa.Table.from_batches(rejected.batches(), REJECTED_FIELDS)


def _is_new(event: Event, applied: dict[int, Lsn]) -> bool:
    if isinstance(event, Insert | Update | Delete):
        tables = {event.schema.table.id}
    elif isinstance(event, Truncate):
        tables = {schema.table.id for schema in event.schemas}
    else:
        tables = {event.new.table.id} if isinstance(event, Relation) else set(applied)
    return any(event.commit_lsn >= applied.get(table, event.commit_lsn) for table in tables)


def _no_rows(changes: ReadChanges) -> pa.Table:
    row_type = changes.table.schema.field("row").type
    return pa.schema([row_type.field(i) for i in range(row_type.num_fields)]).empty_table()
