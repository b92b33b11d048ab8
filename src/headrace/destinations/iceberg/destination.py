"""The Iceberg destination: tasks write the files, one commit per table and batch adds them and records the LSN."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import pyarrow as pa
import structlog

from ...config.iceberg import IcebergConfig
from ...config.table_mode import TableMode
from ...errors import DestinationConflict, DestinationRejected, PipelineStateError
from ...events import Truncate
from ...lsn import Lsn
from ...schema import ReplicatedTableSchema, TableName
from ..batch import Changes, EventBatch, Step, TableBatch
from ..contract import DestinationContext, Durability
from ..fold import folded
from ..rows import Rows
from .attempt import Attempt
from .catalog import Catalog, catalog_packages
from .changelog import CopiedRows, LoggedChanges, changelog_schema, log_truncate
from .data_files import write_data
from .files import TableLayout, Written
from .java import CommitStateUnknown, Java, TableGone, java_errors
from .live_rows import LiveRows
from .maintenance import Maintenance
from .merge import Merge, rewrite_deleted
from .plan import TablePlan, make_plans
from .quarantine import Quarantine
from .record import Record
from .table import Files, IcebergTable, Operation

__all__ = ["IcebergDestination"]

_log = structlog.get_logger("headrace.destinations.iceberg")


@dataclass(slots=True, eq=False)
class _Held:
    """A table, once it was looked for. Its lock is held while it is written, and while maintenance commits."""

    plan: TablePlan
    lock: threading.RLock = field(default_factory=threading.RLock)
    table: IcebergTable | None = None

    @property
    def name(self) -> tuple[str, ...]:
        return self.plan.name


@dataclass(frozen=True, slots=True)
class _Open:
    """What there is between startup and shutdown."""

    context: DestinationContext
    catalog: Catalog
    quarantine: Quarantine
    maintenance: Maintenance
    file_prefix: str


class IcebergDestination:
    """Implements `Destination`: see `docs/destinations/iceberg.md`."""

    name = "iceberg"
    whole_batches = False

    def __init__(self, settings: IcebergConfig) -> None:
        self._settings = settings
        self.packages = catalog_packages(settings)
        self._lock = threading.Lock()
        self._held: dict[TableName, _Held] = {}
        self._open: _Open | None = None

    def startup(self, context: DestinationContext) -> None:
        names = [schema.table.name for schema in context.tables]
        self._held = {name: _Held(plan) for name, plan in make_plans(self._settings, names).items()}
        catalog = Catalog(Java(context.spark), self._settings)
        # What a crash leaves behind is told by the run in its name: only one run of a pipeline writes at a time.
        prefix = f"headrace-{context.pipeline_id}-{uuid.uuid4().hex[:12]}-"
        quarantine = Quarantine(catalog, self._settings, context.pipeline_id, prefix)
        maintenance = Maintenance(catalog, self._settings.maintenance, self._tables)
        self._open = _Open(context, catalog, quarantine, maintenance, prefix)
        maintenance.start()

    def applied_lsn(self, schema: ReplicatedTableSchema) -> Lsn | None:
        record = self._record(schema)
        return None if record is None else record.lsn

    def copied_parts(self, schema: ReplicatedTableSchema) -> frozenset[int] | None:
        record = self._record(schema)
        return frozenset() if record is None else record.parts

    def drop_table_for_copy(self, schema: ReplicatedTableSchema) -> None:
        held, opened = self._table(schema), self._opened
        with held.lock:
            if self._found(held, schema) is not None:
                opened.catalog.drop(held.plan.name)
            held.table = None
            opened.quarantine.forget(schema.table.id)

    def write_table_rows(self, schema: ReplicatedTableSchema, rows: Rows, part: int) -> Durability:
        held = self._table(schema)

        def write() -> None:
            table = self._found(held, schema) or self._created(held, schema, rows.arrow_schema)
            record = table.record()
            if part in record.parts:
                return
            task = self._copy_task(held.plan, table.layout, rows.arrow_schema)
            copied = replace(record, parts=record.parts | {part})
            with Attempt(table, copied, record_anyway=True) as attempt:
                attempt.add(Operation(_added(rows.in_tasks(task))))
                self._opened.quarantine.add_copied(schema, rows, part)

        self._retried(held, write)
        return Durability.DURABLE

    def write_events(self, batch: EventBatch) -> Durability:
        for part in batch.tables:
            self._write_table(part, batch.end)
        return Durability.DURABLE

    def flush(self) -> None:
        """Every commit is durable."""

    def shutdown(self) -> None:
        opened, self._open = self._open, None
        if opened is not None:
            opened.maintenance.stop()
            opened.catalog.close()

    def maintain(self, table: TableName) -> None:
        """Compact the table, expire its snapshots and remove its orphan files, now."""
        self._opened.maintenance.maintain(self._held[table])

    def _tables(self) -> list[_Held]:
        with self._lock:
            return list(self._held.values())

    def _write_table(self, part: TableBatch, end: Lsn) -> None:
        held = self._table(part.schema)

        def write() -> None:
            table = self._found(held, part.schema) or self._missing(held, part)
            record = table.record()
            if record.lsn is not None and record.lsn >= end:
                return
            with Attempt(table, replace(record, lsn=end)) as attempt:
                for operation in _operations(held.plan.mode, table, attempt.planned, part):
                    attempt.add(operation)
                for step in part.steps:
                    if isinstance(step, Changes):
                        self._opened.quarantine.add_changes(step, end)

        self._retried(held, write)

    def _retried(self, held: _Held, write: Callable[[], None]) -> None:
        """Again from the start when another writer's commit came between, a user's compaction say."""
        for attempt in range(self._settings.commit_retries + 1):
            with held.lock:
                try:
                    return write()
                except CommitStateUnknown:
                    raise
                except DestinationConflict as error:
                    if attempt == self._settings.commit_retries:
                        raise
                    name = ".".join(held.plan.name)
                    _log.info("another writer came between; doing it again", table=name, detail=error.detail)
        return None

    def _copy_task(self, plan: TablePlan, layout: TableLayout, rows: pa.Schema) -> Callable[..., Written]:
        if plan.mode is TableMode.CHANGELOG:
            return CopiedRows(layout, changelog_schema(rows))
        return LiveRows(layout) if plan.mode is TableMode.SOFT_DELETE else partial(write_data, layout)

    def _record(self, schema: ReplicatedTableSchema) -> Record | None:
        held = self._table(schema)
        with held.lock:
            table = self._found(held, schema)
            return None if table is None else table.record()

    def _table(self, schema: ReplicatedTableSchema) -> _Held:
        name = schema.table.name
        with self._lock:
            if name not in self._held:
                plans = make_plans(self._settings, [*self._held, name])
                self._held[name] = _Held(plans[name])
            return self._held[name]

    def _found(self, held: _Held, schema: ReplicatedTableSchema) -> IcebergTable | None:
        """The table as it is now; None if there is none. Raises if it is not ours."""
        if held.table is not None:
            try:
                held.table.refresh()
                return held.table
            except TableGone:
                held.table = None
        opened = self._opened
        table = opened.catalog.load(held.plan.name)
        if table is None:
            return None
        found = self._wrapped(held, schema, table)
        owner = found.record().pipeline_id
        if owner != opened.context.pipeline_id:
            whose = "was not made by Headrace" if owner is None else f"belongs to pipeline {owner}"
            msg = f"the Iceberg table {'.'.join(held.plan.name)} exists and {whose}"
            remedy = f'drop it, or give another name with destination.tables."{schema.table.name}".name'
            raise DestinationRejected(msg, hint=remedy)
        held.table = found
        return found

    def _created(self, held: _Held, schema: ReplicatedTableSchema, rows: pa.Schema) -> IcebergTable:
        opened = self._opened
        new = held.plan.new_table(schema, rows, opened.context.pipeline_id)
        held.table = self._wrapped(held, schema, opened.catalog.create(new))
        return held.table

    def _wrapped(self, held: _Held, schema: ReplicatedTableSchema, table: object) -> IcebergTable:
        opened = self._opened
        java = opened.catalog.java
        with java_errors(f"read table {'.'.join(held.plan.name)}"):
            layout = held.plan.layout(java, table, opened.file_prefix, opened.catalog.io_properties)
        return IcebergTable(java, table, layout, held.plan.key(schema))

    def _missing(self, held: _Held, part: TableBatch) -> IcebergTable:
        """For a table that was never copied; one that was, and is gone, was dropped by somebody.

        A new one in its place would lack all rows that did not change since.
        """
        copied = self._opened.context.store.get_destination_metadata(part.schema.table.id) is not None
        for step in () if copied else part.steps:
            if isinstance(step, Changes):
                return self._created(held, part.schema, pa.schema(list(step.rows.arrow_schema.field("row").type)))
        msg = f"the Iceberg table {'.'.join(held.plan.name)} is missing"
        raise DestinationRejected(msg, hint=f"copy it again: headrace resync PIPELINE.YAML {part.schema.table.name}")

    @property
    def _opened(self) -> _Open:
        if self._open is None:
            msg = "the Iceberg destination is not open"
            raise PipelineStateError(msg)
        return self._open


def _operations(mode: TableMode, table: IcebergTable, planned: Files, part: TableBatch) -> Iterator[Operation]:
    """The steps of a batch, one after the other: each is made for the files that the one before leaves."""
    if mode is TableMode.CHANGELOG:
        yield from (Operation(_logged(table.layout, step)) for step in part.steps)
        return
    files = planned
    for step in _since_truncate(part.steps) if mode is TableMode.MIRROR else part.steps:
        if isinstance(step, Changes):
            merge = Merge(table.layout, tuple(files.live.values()), table.key, mode is TableMode.SOFT_DELETE)
            operation = Operation(_added(folded(step).in_tasks(merge)))
        elif isinstance(step, Truncate) and mode is TableMode.MIRROR:
            files, operation = Files(planned.snapshot), Operation(Written(), truncate=True)
        elif isinstance(step, Truncate):
            operation = Operation(rewrite_deleted(table.layout, tuple(files.live.values()), step.commit_time))
        else:
            continue
        yield operation
        files = files.after(operation.written, table.keys)


def _since_truncate(steps: Sequence[Step]) -> Sequence[Step]:
    """What came before the last truncate leaves nothing."""
    last = max((index for index, step in enumerate(steps) if isinstance(step, Truncate)), default=0)
    return steps[last:]


def _logged(layout: TableLayout, step: Step) -> Written:
    if isinstance(step, Changes):
        schema = changelog_schema(pa.schema(list(step.rows.arrow_schema.field("row").type)))
        return _added(step.rows.in_tasks(LoggedChanges(layout, schema)))
    return log_truncate(layout, step) if isinstance(step, Truncate) else Written()


def _added(results: Sequence[Written]) -> Written:
    """What the tasks of one table wrote, together."""
    return Written(
        data=tuple(file for written in results for file in written.data),
        vectors=tuple(vector for written in results for vector in written.vectors),
        replaced=tuple(vector for written in results for vector in written.replaced),
        emptied=tuple(path for written in results for path in written.emptied),
        rows=sum(written.rows for written in results),
    )
