"""Tables of files, in any format: tasks write the files, one commit per table and batch adds them with the LSN."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, TypeVar

import pyarrow as pa
import structlog

from ...config.table_destination import TableDestinationConfig
from ...config.table_mode import TableMode
from ...errors import (
    DestinationConflict,
    DestinationError,
    DestinationRejected,
    PipelineStateError,
    UnrepresentableValue,
)
from ...events import Relation
from ...lsn import INVALID_LSN, Lsn
from ...remedies import RESYNC
from ...schema import ReplicatedTableSchema, TableName
from ..batch import Changes, EventBatch, TableBatch
from ..change_log import change_log_schema, position_of_copy
from ..contract import DestinationContext, Durability
from ..rows import Rows
from .attempt import Attempt
from .batch_steps import BatchSteps, altered_layout, together
from .changelog import CopiedRows, log_copy_again
from .contract import LakeCatalog, LakeTable
from .data_files import write_data
from .evolution.alteration import Alteration
from .fence import Fence, PipelineRecord
from .files import TableLayout, Written
from .following import definition, follows, is_replaceable, replacement
from .held_tables import Held, HeldTables
from .java_errors import CommitStateUnknown
from .leftovers import PendingFiles, discard
from .live_rows import LiveRows
from .maintenance.held import HeldTable
from .operations import Operation
from .plan import TablePlan
from .quarantine import Quarantine
from .record import COPY_AGAIN, Record, version_of
from .variant_schema import variant_columns

__all__ = ["Lake", "LakeDestination", "LakeMaintenance"]

_Result = TypeVar("_Result")

_log = structlog.get_logger("headrace.destinations")


class LakeMaintenance(Protocol):
    """Looks after the tables from `start` to `stop`, beside the stream."""

    def start(self, check: Callable[[], None]) -> None:
        """`check` raises DestinationFenced when another run has replaced this one."""

    def stop(self) -> None: ...

    def maintain(self, held: HeldTable) -> None:
        """Everything, now, in this thread."""


class Lake(Protocol):
    """A table format, with its settings."""

    name: str
    commit_retries: int

    def catalog(self, context: DestinationContext) -> LakeCatalog: ...

    def plans(
        self, tables: Iterable[TableName], formerly: Mapping[TableName, Sequence[str]]
    ) -> dict[TableName, TablePlan]: ...

    def quarantine_plan(self, pipeline_id: int) -> TablePlan: ...

    def maintenance(
        self, catalog: Any, tables: Callable[[], Iterable[HeldTable]], quarantine: HeldTable
    ) -> LakeMaintenance: ...


@dataclass(frozen=True, slots=True)
class _Open:
    """What there is between startup and shutdown."""

    context: DestinationContext
    catalog: LakeCatalog
    tables: HeldTables
    quarantine: Quarantine
    maintenance: LakeMaintenance
    fence: Fence
    record: PipelineRecord


@dataclass(frozen=True, slots=True)
class _Copy:
    """Where a part of a copy goes. With an alteration it replaces all that the table holds, or goes on with a log."""

    table: LakeTable
    layout: TableLayout
    position: Lsn
    """In a log."""
    alteration: Alteration | None = None


class LakeDestination:
    """Implements `Destination` for one table format."""

    whole_batches = False

    def __init__(self, settings: TableDestinationConfig, lake: Lake) -> None:
        self._settings, self._lake = settings, lake
        self.name = lake.name
        self._open: _Open | None = None

    def startup(self, context: DestinationContext) -> None:
        tables = HeldTables(self._settings, context, self._lake.plans)
        catalog = self._lake.catalog(context)
        fence = Fence(context.pipeline_id)
        tables.open(catalog, fence)
        plan = self._lake.quarantine_plan(context.pipeline_id)
        quarantine = Quarantine(catalog, plan, context.pipeline_id, fence)
        maintenance = self._lake.maintenance(catalog, tables.all, quarantine)
        record = PipelineRecord(catalog, replace(plan, name=("headrace", f"pipeline_{context.pipeline_id}")), fence)
        self._open = _Open(context, catalog, tables, quarantine, maintenance, fence, record)
        # A catalog that cannot be read is told now.
        quarantine.open()

    def claim(self) -> None:
        opened = self._opened
        opened.record.claim(opened.context)
        opened.tables.claimed()
        opened.quarantine.open()
        opened.maintenance.start(opened.record.check)

    def applied_lsn(self, schema: ReplicatedTableSchema) -> Lsn | None:
        record = self._record(schema)
        return None if record is None else record.lsn

    def copied_parts(self, schema: ReplicatedTableSchema) -> frozenset[int] | None:
        record = self._record(schema)
        return frozenset() if record is None else record.parts

    def drop_table_for_copy(self, schema: ReplicatedTableSchema) -> None:
        self._opened.record.check()
        tables = self._opened.tables
        held = tables.of(schema)

        def mark() -> bool:
            # The record of before goes with the rows of before.
            held.recorded = None
            table = tables.found(held, schema)
            kept = table is not None and is_replaceable(held.plan, table, schema)
            if table is not None and kept:
                # Readers see its rows until those of the new copy take their place.
                table.add(Written(), {COPY_AGAIN: "true"})
            elif table is not None:
                tables.drop(held)
            return kept and held.plan.mode is TableMode.CHANGELOG

        goes_on = self._retried(held, mark)
        with held.lock:
            self._opened.quarantine.forget(schema.table.id, rows_stay=goes_on)

    def drop_table(self, schema: ReplicatedTableSchema) -> None:
        self._opened.record.check()
        tables = self._opened.tables
        held = tables.of(schema)
        with held.lock:
            if tables.found(held, schema) is not None:
                tables.drop(held)
            tables.forget(schema)
            self._opened.quarantine.forget(schema.table.id)

    def write_table_rows(self, schema: ReplicatedTableSchema, rows: Rows, part: int) -> Durability:
        self._opened.record.check()
        tables = self._opened.tables
        held = tables.of(schema)

        def begun() -> _Copy | None:
            tables.found(held, schema)
            tables.follow_name(held, [schema.table.name])
            table = held.table or tables.found(held, schema)
            if table is None:
                table = tables.created(held, schema, rows.arrow_schema)
            elif table.record().is_blank and not table.record().stale:
                # Made for a copy that ended before its first rows, perhaps by other columns.
                table.add(Written(), {COPY_AGAIN: "true"})
            record = table.record()
            held.copying = part not in record.parts
            if not held.copying:
                return None
            if record.stale:
                return self._replacing(held, table, schema, rows)
            return _Copy(table, table.layout, version_of(table.properties()))

        copy = self._retried(held, begun)
        if copy is not None:
            try:
                self._copy(held, copy, schema, rows, part)
            finally:
                held.copying = False
        return Durability.DURABLE

    def _replacing(self, held: Held, table: LakeTable, schema: ReplicatedTableSchema, rows: Rows) -> _Copy:
        if not is_replaceable(held.plan, table, schema):
            self._opened.tables.drop(held)
            created = self._opened.tables.created(held, schema, rows.arrow_schema)
            return _Copy(created, created.layout, INVALID_LSN)
        in_log = held.plan.mode is TableMode.CHANGELOG
        position = position_of_copy(table.record().left, version_of(table.properties())) if in_log else INVALID_LSN
        altered = replacement(held.plan, definition(table, schema), schema, position)
        return _Copy(table, altered_layout(table.layout, altered), position, altered)

    def _copy(self, held: Held, copy: _Copy, schema: ReplicatedTableSchema, rows: Rows, part: int) -> None:
        """The rows are written without the lock, however many: maintenance and its commits need not wait for them."""
        layout, table_id, replacing = copy.layout, copy.table.table_id, copy.alteration is not None
        results = rows.in_tasks(self._copy_task(held.plan, copy, rows.arrow_schema))
        goes_on = replacing and held.plan.mode is TableMode.CHANGELOG
        written = together([*results, log_copy_again(layout, copy.position)] if goes_on else results)

        def commit() -> None:
            found = self._opened.tables.found(held, schema)
            if found is None or found.table_id != table_id or found.record().stale != replacing:
                msg = f"the table {layout.name} was dropped while rows were copied into it"
                raise DestinationError(msg)
            self._opened.fence.admit(found.properties(), held.text)
            record = found.record()
            if part in record.parts:
                self._forgo(found, written, part)
                return
            copied = replace(record, parts=record.parts | {part}, stale=False, left=None)
            found.commit(found.files(), [Operation(written, replacing and not goes_on, copy.alteration)], copied)

        with PendingFiles(layout, [written]):
            self._opened.quarantine.add_copied(
                schema, rows, part, self._lost(schema, variant_columns(layout.schema_json), [written])
            )
            self._retried(held, commit)
        if replacing:
            with held.lock:
                self._look_again(held, schema)

    def _forgo(self, table: LakeTable, written: Written, part: int) -> None:
        """Remove rows of a part that the table has: an earlier attempt's commit was carried out after all.

        Raises DestinationError if another run may have written it.
        """
        if not table.files().live.keys().isdisjoint(file.path for file in written.data):
            # The very commit that was said to have failed.
            return
        if not self._opened.fence.has_marked(table.properties()):
            msg = f"another run has copied part {part} of table {table.layout.name}"
            raise DestinationError(msg, hint="nothing to do: the copy goes on with the next part")
        discard(table.layout, [written])

    def follows(self, relation: Relation) -> bool:
        """A log of changes goes on, whatever happens."""
        tables = self._opened.tables
        held = tables.of(relation.new)
        if held.plan.mode is TableMode.CHANGELOG:
            return True
        with held.lock:
            return follows(held.plan, tables.found(held, relation.new), relation)

    def write_events(self, batch: EventBatch) -> Durability:
        self._opened.record.check()
        for part in batch.tables:
            if not self._write_table(part, batch.end):
                batch.unrecorded.add(part.schema.table.id)
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
        self._opened.record.check()
        self._opened.maintenance.maintain(self._opened.tables.named(table))

    def _write_table(self, part: TableBatch, end: Lsn) -> bool:
        """Write a table's part of a batch; False if it came to nothing, so that the record stands where it stood."""
        tables = self._opened.tables
        held = tables.of(part.schema)
        relations = [step for step in part.steps if isinstance(step, Relation)]

        def write() -> bool:
            table = tables.found(held, part.schema) or self._missing(held, part)
            self._opened.fence.admit(table.properties(), held.text)
            record = table.record()
            if record.lsn is not None and record.lsn >= end:
                return True
            held.require_not_put_back(record)
            _check_follows(table, record, part)
            new = [step for step in relations if record.lsn is None or step.commit_lsn >= record.lsn]
            if new:
                # Before the rows: that it cannot be, a name that is taken say, must not come too late.
                tables.follow_name(held, [relation.new.table.name for relation in new])
                table = held.table or tables.found(held, part.schema) or table
            with Attempt(table, replace(record, lsn=end)) as attempt:
                steps = BatchSteps(held.plan, table, attempt.planned, record.lsn)
                for operation in steps.operations(part):
                    attempt.add(operation)
                lost = self._lost(part.schema, steps.variants, attempt.written)
                changes = [step for step in part.steps if isinstance(step, Changes)]
                self._opened.quarantine.add_changes(changes, end, lost)
            if relations:
                self._look_again(held, relations[-1].new)
            if attempt.committed:
                held.recorded = end
            return attempt.committed

        return self._retried(held, write)

    def _look_again(self, held: Held, schema: ReplicatedTableSchema) -> None:
        """After the table was altered: what is kept of it is of before."""
        held.table = None
        self._opened.tables.found(held, schema)

    def _lost(
        self, schema: ReplicatedTableSchema, variants: Iterable[str], written: Sequence[Written]
    ) -> tuple[str, ...]:
        """The columns in which JSON may be lost, if any was. Raises if that is to be an error."""
        if not any(one.lost for one in written):
            return ()
        columns = tuple(variants)
        if not self._opened.context.quarantine:
            msg = f"table {schema.table.name} has JSON in {', '.join(columns)} that no VARIANT holds"
            hint = f"set on_unrepresentable to quarantine, or destination.json_as to string, restart and run: {RESYNC}"
            raise UnrepresentableValue(msg, hint=hint)
        return columns

    def _retried(self, held: Held, write: Callable[[], _Result]) -> _Result:
        """Again from the start when another writer's commit came between, a user's compaction say."""
        for _ in range(self._lake.commit_retries):
            try:
                with held.lock:
                    return write()
            except CommitStateUnknown:
                raise
            except DestinationConflict as error:
                name = ".".join(held.plan.name)
                _log.info("another writer came between; doing it again", table=name, detail=error.detail)
        with held.lock:
            return write()

    def _copy_task(self, plan: TablePlan, copy: _Copy, rows: pa.Schema) -> Callable[..., Written]:
        if plan.mode is TableMode.CHANGELOG:
            return CopiedRows(copy.layout, change_log_schema(rows), copy.position)
        return LiveRows(copy.layout) if plan.mode is TableMode.SOFT_DELETE else partial(write_data, copy.layout)

    def _record(self, schema: ReplicatedTableSchema) -> Record | None:
        tables = self._opened.tables
        held = tables.of(schema)
        with held.lock:
            table = tables.found(held, schema)
            return None if table is None else table.record()

    def _missing(self, held: Held, part: TableBatch) -> LakeTable:
        """For a table that was never copied; one that was, and is gone, was dropped by somebody.

        A new one in its place would lack all rows that did not change since.
        """
        copied = self._opened.context.store.get_destination_metadata(part.schema.table.id) is not None
        for step in () if copied else part.steps:
            if isinstance(step, Changes):
                rows = pa.schema(list(step.rows.arrow_schema.field("row").type))
                return self._opened.tables.created(held, step.schema, rows)
        msg = f"the table {'.'.join(held.plan.name)} is missing"
        raise DestinationRejected(msg, hint=f"copy it again: {RESYNC}")

    @property
    def _opened(self) -> _Open:
        if self._open is None:
            msg = "the destination is not open"
            raise PipelineStateError(msg)
        return self._open


def _check_follows(table: LakeTable, record: Record, part: TableBatch) -> None:
    """Raise if another run has applied some of the batch: what it has must not be applied again."""
    if record.lsn is not None and INVALID_LSN < part.start < record.lsn:
        msg = f"another run has written to table {table.layout.name}, up to {record.lsn}, since this batch was begun"
        raise DestinationError(msg, hint="nothing to do: the table goes on from there")
