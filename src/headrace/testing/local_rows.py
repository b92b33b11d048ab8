"""Rows and batches made by hand, read without Spark: what a test hands to a destination.

    batch = batch_of(
        transaction(Lsn(100), Inserted(schema, {"id": 1, "name": "a"}), Deleted(schema, {"id": 2})), end=Lsn(200)
    )

A batch made here is like one of a pipeline: the same steps, and the same events between Begin and Commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from itertools import groupby
from typing import Any, TypeVar

import pyarrow as pa

from ..destinations.batch import Changes, EventBatch, Step, TableBatch
from ..destinations.rows import REJECTED_FIELDS, BatchFunction, RejectedFunction, Rows
from ..errors import SparkUnavailable
from ..events import (
    UNCHANGED,
    Begin,
    Commit,
    Delete,
    Event,
    Insert,
    OldRowKind,
    Relation,
    Truncate,
    TruncateOptions,
    Update,
)
from ..events import Row as EventRow
from ..lsn import INVALID_LSN, Lsn
from ..pgoutput.changes import CHANGE_FIELDS
from ..pgtypes.registry import conversion_for
from ..schema import ReplicaIdentity, ReplicatedTableSchema

__all__ = [
    "COMMIT_TIME",
    "Altered",
    "Deleted",
    "Happening",
    "Inserted",
    "LocalRows",
    "RetriedRows",
    "Truncated",
    "Updated",
    "arrow_schema_of",
    "batch_of",
    "batch_per_table",
    "changes_of",
    "local_rows",
    "retried",
    "transaction",
]

_Result = TypeVar("_Result")
COMMIT_TIME = datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)
"""When every transaction made here was committed."""
_PART_ROWS = 1_000
"""Rows of one part: few, so that a test with some thousand rows has several parts."""
_TASKS = 4


@dataclass(frozen=True, slots=True, eq=False)
class LocalRows:
    """`Rows` over a table in memory. `dataframe` needs a Spark session."""

    table: pa.Table
    rejections: pa.Table | None = None
    spark: Any = None
    part_rows: int = _PART_ROWS
    given: pa.Table | None = None
    """The rows as they were read, where they are others by now."""

    @property
    def arrow_schema(self) -> pa.Schema:
        return self.table.schema

    def dataframe(self) -> Any:
        if self.spark is None:
            msg = "these rows have no Spark session"
            raise SparkUnavailable(msg, hint="give LocalRows a session, or the suite a `spark` fixture")
        from ..spark.jobs import spark_schema  # noqa: PLC0415

        return self.spark.createDataFrame(self.table, spark_schema(self.table.schema))

    def in_tasks(self, write: Callable[[Iterator[pa.RecordBatch]], _Result]) -> list[_Result]:
        # What cannot be pickled, or relies on being called in this process, must not pass here and fail on Spark.
        from pyspark import cloudpickle  # noqa: PLC0415

        def sent(value: Any) -> Any:
            return cloudpickle.loads(cloudpickle.dumps(value))

        # At once, as ranges of a table are read.
        with ThreadPoolExecutor(_TASKS) as threads:
            return list(threads.map(lambda part: sent(sent(write)(iter([part]))), self.batches()))

    def batches(self) -> Iterator[pa.RecordBatch]:
        yield from self.table.to_batches(max_chunksize=self.part_rows)

    def mapped(self, function: BatchFunction, schema: pa.Schema, rejected: RejectedFunction) -> Rows:
        return self._made(_mapped(self.table, function, schema), rejected)

    def together(self, function: Callable[[pa.Table], pa.Table], schema: pa.Schema) -> Rows:
        result = function(self.table)
        assert result.schema.equals(schema), "the function's result has another schema than it was said to have"
        # One part, as with Spark: who folds changes finds all those of a file in one place.
        return LocalRows(result.combine_chunks(), spark=self.spark, part_rows=max(1, len(result)))

    def rejected(self) -> Rows | None:
        return None if self.rejections is None else LocalRows(self.rejections, spark=self.spark)

    def _made(self, table: pa.Table, rejected: RejectedFunction) -> Rows:
        given = self.table if self.given is None else self.given
        rejections = self.rejections
        if rejections is not None:
            values = rejected(_in_one_batch(rejections), _in_one_batch(given))
            rejections = pa.Table.from_batches([values], REJECTED_FIELDS)
        return replace(self, table=table, rejections=rejections, given=given)


@dataclass(frozen=True, slots=True, eq=False)
class RetriedRows(LocalRows):
    """Each part is written twice, and only what the second writing returned counts: Spark gives up on a task, or has it
    run a second time beside the first (speculation).
    """

    def in_tasks(self, write: Callable[[Iterator[pa.RecordBatch]], _Result]) -> list[_Result]:
        LocalRows.in_tasks(self, write)
        return LocalRows.in_tasks(self, write)

    def together(self, function: Callable[[pa.Table], pa.Table], schema: pa.Schema) -> RetriedRows:
        result = LocalRows.together(self, function, schema)
        assert isinstance(result, LocalRows)
        return RetriedRows(result.table, spark=self.spark, part_rows=result.part_rows)


@dataclass(frozen=True, slots=True)
class Inserted:
    schema: ReplicatedTableSchema
    row: EventRow


@dataclass(frozen=True, slots=True)
class Updated:
    """`old` is the old key, if it changed; or the whole old row, of a table with REPLICA IDENTITY FULL."""

    schema: ReplicatedTableSchema
    row: EventRow
    old: EventRow | None = None


@dataclass(frozen=True, slots=True)
class Deleted:
    schema: ReplicatedTableSchema
    old: EventRow


@dataclass(frozen=True, slots=True)
class Truncated:
    schemas: tuple[ReplicatedTableSchema, ...]


@dataclass(frozen=True, slots=True)
class Altered:
    old: ReplicatedTableSchema | None
    new: ReplicatedTableSchema


Happening = Inserted | Updated | Deleted | Truncated | Altered
"""What may happen in a transaction, without its place there."""


def arrow_schema_of(schema: ReplicatedTableSchema) -> pa.Schema:
    """The Arrow schema that the copied rows of a table have."""
    return pa.schema([(c.name, conversion_for(c.type, c.typmod).arrow_type) for c in schema.columns])


def local_rows(
    schema: ReplicatedTableSchema,
    rows: Sequence[Mapping[str, object]],
    *,
    rejected: Sequence[Mapping[str, object]] = (),
    spark: Any = None,
) -> LocalRows:
    """Rows of an initial copy; `rejected` has the fields of `REJECTED_FIELDS`."""
    table = pa.Table.from_pylist(rows, schema=arrow_schema_of(schema))
    return LocalRows(table, _rejections(rejected), spark)


def transaction(commit_lsn: Lsn, *happenings: Happening, xid: int | None = None) -> tuple[Event, ...]:
    """The events of one transaction, with Begin and Commit."""
    own_xid = int(commit_lsn) % 2**32 if xid is None else xid
    place: dict[str, Any] = {"xid": own_xid, "commit_time": COMMIT_TIME}
    events: list[Event] = [Begin(commit_lsn, commit_lsn, **place)]
    ordinal = 0
    for happening in happenings:
        if isinstance(happening, Altered):
            events.append(Relation(commit_lsn, commit_lsn, happening.old, happening.new))
            continue
        events.append(_event(happening, dict(start_lsn=commit_lsn, commit_lsn=commit_lsn, tx_ordinal=ordinal, **place)))
        ordinal += 1
    return (*events, Commit(commit_lsn, Lsn(commit_lsn + 1), **place))


def _event(happening: Inserted | Updated | Deleted | Truncated, place: dict[str, Any]) -> Event:
    if isinstance(happening, Truncated):
        return Truncate(**place, schemas=happening.schemas, options=TruncateOptions(0))
    schema = happening.schema
    if isinstance(happening, Inserted):
        return Insert(**place, schema=schema, row=happening.row)
    kind = OldRowKind.FULL if schema.table.replica_identity is ReplicaIdentity.FULL else OldRowKind.KEY
    if isinstance(happening, Deleted):
        return Delete(**place, schema=schema, old=happening.old, old_kind=kind)
    old = happening.old
    return Update(**place, schema=schema, row=happening.row, old=old, old_kind=None if old is None else kind)


def batch_of(
    *transactions: Sequence[Event],
    end: Lsn,
    start: Lsn = INVALID_LSN,
    rejected: Sequence[Mapping[str, object]] = (),
    spark: Any = None,
) -> EventBatch:
    """A batch of these transactions. `rejected` belongs to the first changes of the first table."""
    events = tuple(event for part in transactions for event in part)
    schemas: dict[int, ReplicatedTableSchema] = {}
    for event in events:
        schemas.update((schema.table.id, schema) for schema in _schemas_of(event))
    tables = []
    for table_id, schema in schemas.items():
        steps = tuple(_steps(events, table_id, _rejections(rejected), spark))
        tables.append(TableBatch(schema, start, steps))
        rejected = ()
    return EventBatch(end, tuple(tables), lambda: iter(events))


def retried(batch: EventBatch) -> EventBatch:
    """The batch with changes whose every task runs twice."""

    def retried_step(step: Step) -> Step:
        if not isinstance(step, Changes):
            return step
        rows = step.rows
        assert isinstance(rows, LocalRows)
        return replace(step, rows=RetriedRows(rows.table, rows.rejections, rows.spark))

    tables = (replace(table, steps=tuple(map(retried_step, table.steps))) for table in batch.tables)
    return replace(batch, tables=tuple(tables))


def batch_per_table(batch: EventBatch) -> Iterator[EventBatch]:
    """The batch as destinations get it that do not ask for whole ones: each table's part, with its events."""
    for part in batch.tables:
        yield replace(batch, tables=(part,), read_events=partial(_events_of, batch, part.schema.table.id))


def _events_of(batch: EventBatch, table_id: int) -> Iterator[Event]:
    for event in batch.events():
        if isinstance(event, Begin | Commit) or table_id in {schema.table.id for schema in _schemas_of(event)}:
            yield event


def changes_of(schema: ReplicatedTableSchema, events: Iterable[Insert | Update | Delete], spark: Any = None) -> Changes:
    """The changes of one table and schema version, as a batch has them."""
    row = pa.struct(list(arrow_schema_of(schema)))
    fields = pa.schema([*CHANGE_FIELDS, pa.field("row", row), pa.field("old", row)])
    table = pa.Table.from_pylist([_change(schema, event) for event in events], schema=fields)
    return Changes(schema, LocalRows(table, spark=spark))


def _change(schema: ReplicatedTableSchema, event: Insert | Update | Delete) -> dict[str, object]:
    new: EventRow = {} if isinstance(event, Delete) else event.row
    old = None if isinstance(event, Insert) else event.old
    kind = None if isinstance(event, Insert) else event.old_kind
    unchanged = [i for i, column in enumerate(schema.columns) if new.get(column.name) is UNCHANGED]
    return {
        "op": type(event).__name__[0],
        "commit_lsn": int(event.commit_lsn),
        "tx_ordinal": event.tx_ordinal,
        "xid": event.xid,
        "commit_time": event.commit_time,
        "start_lsn": int(event.start_lsn),
        "unchanged": unchanged or None,
        "old_kind": None if kind is None else kind.value,
        "row": None if isinstance(event, Delete) else {n: None if v is UNCHANGED else v for n, v in new.items()},
        "old": old,
    }


def _steps(events: Iterable[Event], table_id: int, rejections: pa.Table | None, spark: Any) -> Iterator[Step]:
    own = [event for event in events if any(s.table.id == table_id for s in _schemas_of(event))]

    def version(event: Event) -> ReplicatedTableSchema | None:
        return event.schema if isinstance(event, Insert | Update | Delete) else None

    for schema, group in groupby(own, version):
        if schema is None:
            yield from (event for event in group if isinstance(event, Relation | Truncate))
            continue
        changes = changes_of(schema, [event for event in group if isinstance(event, Insert | Update | Delete)])
        assert isinstance(changes.rows, LocalRows)
        yield Changes(schema, LocalRows(changes.rows.table, rejections, spark))
        rejections = None


def _schemas_of(event: Event) -> tuple[ReplicatedTableSchema, ...]:
    if isinstance(event, Insert | Update | Delete):
        return (event.schema,)
    if isinstance(event, Truncate):
        return event.schemas
    return (event.new,) if isinstance(event, Relation) else ()


def _rejections(rejected: Sequence[Mapping[str, object]]) -> pa.Table | None:
    return pa.Table.from_pylist(rejected, schema=REJECTED_FIELDS) if rejected else None


def _in_one_batch(table: pa.Table) -> pa.RecordBatch:
    return pa.RecordBatch.from_struct_array(table.to_struct_array().combine_chunks())


def _mapped(table: pa.Table, function: BatchFunction, schema: pa.Schema) -> pa.Table:
    return pa.Table.from_batches((function(batch) for batch in table.to_batches()), schema)
