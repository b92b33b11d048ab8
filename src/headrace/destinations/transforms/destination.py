"""The wrapper: a destination that is given something else than the source has, and knows nothing of it."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import cast

from ...errors import ConfigError, HeadraceError
from ...events import Delete, Event, Insert, Relation, Truncate, Update
from ...lsn import Lsn
from ...schema import ReplicatedTableSchema
from ..batch import Changes, EventBatch, Step, TableBatch
from ..contract import Destination, DestinationContext, Durability
from ..rows import Rows
from .contract import RowEvent, Transform, Transforms

__all__ = ["Transformed"]

_Version = tuple[ReplicatedTableSchema, tuple[str | None, ...]]

_EVENTS_AT_ONCE = 4_096
"""Events that are read ahead, so that a transform is called for many at a time."""


class Transformed:
    """Wraps a destination; innermost, so that all else around it works on what it gets."""

    def __init__(self, inner: Destination, transforms: Transforms) -> None:
        self.name = inner.name
        self.whole_batches = inner.whole_batches
        self._inner, self._transforms = inner, transforms
        self._lock = threading.Lock()
        self._found: dict[_Version, Transform | None] = {}

    def startup(self, context: DestinationContext) -> None:
        self._transforms.startup(context)
        self._inner.startup(replace(context, tables=tuple(self._target(schema) for schema in context.tables)))

    def claim(self) -> None:
        self._inner.claim()

    def applied_lsn(self, schema: ReplicatedTableSchema) -> Lsn | None:
        return self._inner.applied_lsn(self._named(schema))

    def copied_parts(self, schema: ReplicatedTableSchema) -> frozenset[int] | None:
        return self._inner.copied_parts(self._named(schema))

    def drop_table_for_copy(self, schema: ReplicatedTableSchema) -> None:
        self._inner.drop_table_for_copy(self._named(schema))

    def drop_table(self, schema: ReplicatedTableSchema) -> None:
        self._inner.drop_table(self._named(schema))

    def write_table_rows(self, schema: ReplicatedTableSchema, rows: Rows, part: int) -> Durability:
        transform = self._find(schema)
        if transform is None:
            return self._inner.write_table_rows(schema, rows, part)
        return self._inner.write_table_rows(transform.target, transform.rows(rows), part)

    def follows(self, relation: Relation) -> bool:
        old = None if relation.old is None else self._find(relation.old)
        new = self._find(relation.new)
        return (new is None or new.follows(old)) and self._inner.follows(self._relation(relation))

    def write_events(self, batch: EventBatch) -> Durability:
        tables = tuple(self._table(table) for table in batch.tables)
        inner = EventBatch(batch.end, tables, lambda: self._events(batch.events()), batch.unrecorded)
        return self._inner.write_events(inner)

    def flush(self) -> None:
        self._inner.flush()

    def shutdown(self) -> None:
        self._inner.shutdown()

    def _table(self, table: TableBatch) -> TableBatch:
        try:
            return TableBatch(self._target(table.schema), table.start, tuple(self._step(step) for step in table.steps))
        except HeadraceError as error:
            # Rows that are here are transformed at once. The other tables of the batch continue without this one.
            error.table_id = table.schema.table.id  # type: ignore[attr-defined]
            raise

    def _step(self, step: Step) -> Step:
        if isinstance(step, Relation):
            return self._relation(step)
        if isinstance(step, Truncate):
            return self._truncate(step)
        transform = self._find(step.schema)
        return step if transform is None else Changes(transform.target, transform.changes(step.rows))

    def _relation(self, relation: Relation) -> Relation:
        old = None if relation.old is None else self._target(relation.old)
        return replace(relation, old=old, new=self._target(relation.new))

    def _truncate(self, truncate: Truncate) -> Truncate:
        return replace(truncate, schemas=tuple(self._target(schema) for schema in truncate.schemas))

    def _events(self, events: Iterator[Event]) -> Iterator[Event]:
        """Begin and Commit stay, also around nothing."""
        while some := list(islice(events, _EVENTS_AT_ONCE)):
            yield from self._some_events(some)

    def _some_events(self, events: list[Event]) -> Iterable[Event]:
        result: list[Event | None] = list(events)
        by_transform: dict[int, tuple[Transform, list[int]]] = {}
        for i, event in enumerate(events):
            if isinstance(event, Relation):
                result[i] = self._relation(event)
            elif isinstance(event, Truncate):
                result[i] = self._truncate(event)
            elif isinstance(event, Insert | Update | Delete):
                transform = self._find(event.schema)
                if transform is not None:
                    by_transform.setdefault(id(transform), (transform, []))[1].append(i)
        for transform, places in by_transform.values():
            given = cast("list[RowEvent]", [events[i] for i in places])
            for i, made in zip(places, transform.events(given), strict=True):
                result[i] = made
        return (event for event in result if event is not None)

    def _named(self, schema: ReplicatedTableSchema) -> ReplicatedTableSchema:
        """For calls that ask for the table, not for its columns.

        A stored version may be one that the settings of today are wrong for: the table can still be copied anew.
        """
        try:
            return self._target(schema)
        except ConfigError:
            return schema

    def _target(self, schema: ReplicatedTableSchema) -> ReplicatedTableSchema:
        transform = self._find(schema)
        return schema if transform is None else transform.target

    def _find(self, schema: ReplicatedTableSchema) -> Transform | None:
        # What older rows show in a column makes no other schema, but counts here.
        version = (schema, tuple(column.missing for column in schema.columns))
        with self._lock:
            if version not in self._found:
                self._found[version] = self._transforms.of(schema)
            return self._found[version]
