"""The initial copy of one table, from Init to FinishedCopy.

Under one snapshot: 1. remove what an earlier copy left at the destination; 2. DataSync is stored; 3. note where the
spool ends, and outlast the transactions that are committing; 4. lock the table, take and export a snapshot; 5. plan
ranges, store schema, snapshot and metadata; 6. tasks read the ranges and the destination takes the rows; 7.
FinishedCopy is stored.

By key ranges the snapshot is released after planning, and steps 4 and 6 are repeated for a few ranges at a time: the
snapshot is stored, the rows are written as a part with a number, the part is stored as finished. After a crash the
destination says which of the parts that were begun it has.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import psycopg
import structlog

from ..config.pipeline import PipelineConfig, PipelineMode
from ..destinations.contract import Durability
from ..errors import KeyRangesOvertaken, SourceConflict, SourceSchemaError
from ..initial_copy.held_reader import SMALL_BYTES, TooLarge
from ..initial_copy.key_ranges import plan_key_ranges
from ..initial_copy.plan import plan_copy
from ..initial_copy.ranges import CopyOptions, CopyPlan, CopyRange
from ..lsn import INVALID_LSN
from ..postgres.catalog import current_name, require_all_rows, table_schemas
from ..postgres.locks import prepared_names, table_writers
from ..postgres.publications import published_tables
from ..postgres.snapshots import ExportedSnapshot, export_snapshot
from ..schema import ReplicatedTableSchema
from ..schema_change import has_types_of_users
from ..spark.copy_reader import CopyReader, HeldCopyReader, row_schema
from ..spark.rows import LocalRows, TaskRows, read_here
from ..stores.records import CopyBounds, CopyRecord, CopyStart, DestinationTableMetadata
from ..table_state import State
from .copy_records import copy_start, handoff_of, has_all_parts, is_of_copy, part_number, ranges_left
from .copy_sessions import CopySessions
from .copy_works import copy_works
from .engine import Engine, Stopped
from .failpoint import reach
from .tables import Table

__all__ = ["TableCopy"]

_BEGUN, _ABANDONED = -1, -2
"""Row counts of ranges whose snapshot is stored: the rows may be at the destination; they are known not to be."""

_MEMORY_PATIENCE_S = 60.0
"""Seconds a range waits for memory. Not longer: a snapshot is held, and tasks bound what they take by themselves."""

_WRITERS_FIRST_POLL_S = 0.02
_WRITERS_POLL_S = 0.5
"""Seconds between looks at the writers: most commit within milliseconds, others take hours."""

_log = structlog.get_logger("headrace.copy")


class TableCopy:
    """Copies tables. Several threads may use it."""

    def __init__(self, engine: Engine, sessions: CopySessions) -> None:
        self._engine = engine
        self._sessions = sessions
        config = engine.config.initial_copy
        self._options = CopyOptions(
            rows_per_range=config.rows_per_range,
            bytes_per_range=config.bytes_per_range,
            key_ranges_over_bytes=config.key_ranges_over_bytes,
        )

    def run(self, table: Table) -> None:
        try:
            self._run(table)
        except SourceSchemaError as error:
            # A schema is renamed whatever is locked in it, and so is a partition before it is locked. The next attempt
            # looks all names up anew.
            hint = "nothing to do if it was renamed: it is copied again; if it is gone for good, unpublish it"
            raise SourceConflict(error.message, detail=error.detail, sqlstate=error.sqlstate, hint=hint) from None

    def _run(self, table: Table) -> None:
        started = time.monotonic()
        known = self._resumable(table)
        if known is None:
            self._begin(table)
            self._copy(table)
        else:
            if table.state.state is State.ERRORED:
                self._engine.tables.move([table], State.DATA_SYNC)
            table.position = table.written = known[0].start_lsn
            self._resume(table, *known)
        self._finish(table, started)

    def _resumable(self, table: Table) -> tuple[CopyStart, list[CopyRecord]] | None:
        """What is known of a copy by key ranges that was interrupted; None: start over."""
        known = self._engine.store.get_copy(table.id)
        if table.state.state is State.INIT or known is None or known[0].one_snapshot or table.whole_only:
            return None
        start, records = known
        parts = self._engine.destination.copied_parts(table.schema) or frozenset()
        if not has_all_parts(records, parts):
            msg = "the destination was put back to an earlier state: the copy starts over"
            _log.warning(msg, table=table.name, parts=sorted(parts))
            return None
        if not is_of_copy(records, parts):
            # The rows of such parts are older than the snapshot that the store would get for them.
            msg = "the destination has parts of a copy that the store does not know: the copy starts over"
            _log.warning(msg, table=table.name, parts=sorted(parts))
            return None
        return start, [record for record in records if record.rows >= 0] + self._arrived(table, records, parts)

    def _arrived(self, table: Table, records: Sequence[CopyRecord], parts: frozenset[int]) -> list[CopyRecord]:
        """Of the part that was being written, its ranges, if the destination has it; else it is written anew.

        A part bears the number of its first range. Only one is begun at a time.
        """
        begun = [record for record in records if record.rows == _BEGUN]
        here = bool(begun) and part_number(begun) in parts
        settled = [replace(record, rows=0 if here else _ABANDONED) for record in begun]
        for record in settled:
            self._engine.store.finish_copy_range(table.id, record)
        return settled if here else []

    def _begin(self, table: Table) -> None:
        engine = self._engine
        if table.state.state is not State.INIT:
            engine.tables.start_over(table)
        reach("copy.before_drop", table.name)
        if self._stands(table):
            engine.destination.drop_table_for_copy(table.schema)
        engine.store.prepare_for_copy(table.id)
        reach("copy.after_drop", table.name)
        engine.tables.move([table], State.DATA_SYNC)
        reach("copy.after_data_sync", table.name)
        # Catch-up begins here. `_outlast_writers` makes sure that the snapshot shows everything committed before.
        table.position = table.written = engine.batches.end() or INVALID_LSN
        engine.announce()

    def _stands(self, table: Table) -> bool:
        """Whether something of ours is at the destination, by the store's record or, if that was lost, by its own."""
        known = self._engine.store.get_destination_metadata(table.id) is not None
        return known or self._holds(table.schema)

    def _holds(self, schema: ReplicatedTableSchema) -> bool:
        destination = self._engine.destination
        return bool(destination.copied_parts(schema)) or destination.applied_lsn(schema) is not None

    def _copy(self, table: Table) -> None:
        self._outlast_writers(table)
        table.described_at = time.monotonic()
        with ExitStack() as stack:
            held = self._held(stack, table)
            plan = self._plan(table, held)
            start = copy_start(plan, table.position, held.lsn)
            self._engine.store.begin_copy(table.id, start)
            reach("copy.after_snapshot", table.name)
            self._progress(table, plan, 0)
            if plan.one_snapshot:
                self._part(table, held, {0: None}, plan.ranges)
        if not plan.one_snapshot:
            self._ranges(table, list(enumerate(plan.ranges)))

    def _outlast_writers(self, table: Table) -> None:
        """Wait for the transactions that write to the table now and that the copy could miss.

        A transaction is received as soon as its commit record is flushed, but no snapshot shows it before it has left
        the server's list of running transactions: later while it waits for a synchronous standby, or while its process
        is stopped. It holds its locks until then. So once all writers seen here are over, the next snapshot shows
        every commit that lies before the position where catch-up begins.

        A transaction whose session is idle has not committed: its changes will come. It is waited for only where even
        those may be missing from the stream.
        """
        every = table.wait_for_writers or has_types_of_users(table.schema)
        if not every and self._engine.config.mode is PipelineMode.COPY_ONLY:
            return
        ids, told, delay = [table.id, *table.schema.table.leaves], 0, _WRITERS_FIRST_POLL_S
        with self._sessions.lent() as session:
            writers = table_writers(session, ids, committing=not every)
            while writers:
                if len(writers) != told and delay >= _WRITERS_POLL_S:
                    told = len(writers)
                    self._tell_writers(session, table, writers)
                if self._engine.stopping.wait(delay):
                    raise Stopped
                delay = min(2 * delay, _WRITERS_POLL_S)
                now = table_writers(session, ids, committing=not every)
                writers = {name: pid for name, pid in writers.items() if name in now}
        table.wait_for_writers = False

    def _tell_writers(self, session: psycopg.Connection[Any], table: Table, writers: Mapping[str, int | None]) -> None:
        pids = [pid for pid in writers.values() if pid is not None]
        prepared = prepared_names(session, writers)
        _log.info(
            "waiting for transactions that write to the table",
            table=table.name,
            count=len(writers),
            pids=pids,
            prepared=prepared,
        )

    def _plan(self, table: Table, held: ExportedSnapshot) -> CopyPlan:
        engine = self._engine
        schema = self._schema(table, held)
        if not schema.columns:
            msg = f"nothing of table {table.name} is published: it has no columns that are sent"
            hint = "add a column to the table, and it is copied by itself; or take it out of the publication"
            raise SourceConflict(msg, hint=hint)
        table.become(schema)
        options = self._options
        whole = table.whole_only or engine.tables.was_copied(table)
        if whole or engine.destination.copied_parts(schema) is None:
            options = replace(options, key_ranges_over_bytes=None)
        copies = _copies(engine.config, schema)
        if copies:
            require_all_rows(held.connection, schema.table)
        plan = plan_copy(held.connection, schema, options)
        if not copies:
            plan = replace(plan, ranges=(), one_snapshot=True)
        engine.store.store_table_schema(schema, INVALID_LSN)
        # Not by a later name: settings that a table has under the first are still its own.
        name = engine.tables.policies.heard_of(table.id, str(schema.table.name))[0]
        engine.store.store_destination_metadata(table.id, DestinationTableMetadata(name, INVALID_LSN, schema.mask))
        if self._holds(schema):
            # Of a table that left, was renamed and came back: a destination looks for former names of known ones only.
            engine.destination.drop_table_for_copy(schema)
        return plan

    def _schema(self, table: Table, held: ExportedSnapshot) -> ReplicatedTableSchema:
        """The table as the snapshot shows it: it may have changed since the publication was read."""
        name = self._engine.config.publication_name
        for schema in published_tables(held.connection, name, table.id):
            known = replace(schema, table=schema.table.with_text_of(table.schema.table))
            # A column that has left the key gets its own type back.
            texts = {column.attnum for column in known.key_columns if column.type.as_text}
            return replace(schema, table=schema.table.with_text(texts))
        msg = f"table {table.name} is not in publication {name}"
        # It may be back before the publication is looked at again: then nobody else would notice.
        raise SourceConflict(msg, hint="nothing to do: it is copied when it is back, and forgotten otherwise")

    def _held(self, stack: ExitStack, table: Table) -> ExportedSnapshot:
        """A snapshot with the table locked, whatever it is called by now."""
        config = self._engine.config
        session = stack.enter_context(self._sessions.lent())
        while True:
            found = current_name(session, table.id)
            lock = [found or table.schema.table.name]
            try:
                return stack.enter_context(
                    export_snapshot(config.pg_connection, lock=lock, pipeline=config.id, session=session)
                )
            except SourceSchemaError:
                if found is None:
                    raise
                self._engine.check_stop()

    def _require_unaltered(self, table: Table, held: ExportedSnapshot) -> None:
        """The ranges of a copy must be of one schema."""
        version = self._engine.store.get_table_schema(table.id, INVALID_LSN)
        now = table_schemas(held.connection, [table.id]).get(table.id)
        if version is None or now is None or now.with_text_of(version.schema.table) != version.schema.table:
            msg = f"table {table.name} was altered while it was copied by key ranges"
            raise KeyRangesOvertaken(msg)

    def _resume(self, table: Table, start: CopyStart, records: list[CopyRecord]) -> None:
        with ExitStack() as stack:
            held = self._held(stack, table)
            self._require_unaltered(table, held)
            template = plan_key_ranges(held.connection, table.schema, replace(self._options, max_ranges=1))
        if template is None:
            msg = f"table {table.name} cannot be cut by key any more"
            raise KeyRangesOvertaken(msg)
        left = ranges_left(template, start, records)
        _log.info("going on with a copy", table=table.name, ranges=len(left), done=len(records))
        self._progress(table, replace(template, ranges=tuple(part for _, part in left)), len(records))
        self._ranges(table, left)

    def _progress(self, table: Table, plan: CopyPlan, done: int) -> None:
        rows = [part.estimated_rows for part in plan.ranges]
        estimate = None if None in rows else sum(row or 0 for row in rows)
        table.copy.begin(len(plan.ranges) + done, estimate, done)
        self._engine.metrics.copy_planned(table.schema.table.name, len(plan.ranges) + done, done)

    def _ranges(self, table: Table, left: list[tuple[int, CopyRange]]) -> None:
        """A few ranges at a time, under a snapshot of their own that is released when their rows are durable."""
        config = self._engine.config
        known = self._engine.store.get_copy(table.id)
        assert known is not None
        bounds = known[0].ranges
        step = config.max_copy_connections_per_table
        for first in range(0, len(left), step):
            self._engine.check_stop()
            some = left[first : first + step]
            with ExitStack() as stack:
                held = self._held(stack, table)
                self._require_unaltered(table, held)
                # The position first: what this snapshot does not show must never count as seen.
                self._engine.store.raise_copy_lsn(table.id, held.lsn)
                self._part(table, held, {number: bounds[number] for number, _ in some}, [part for _, part in some])
            reach("copy.after_range", table.name)

    def _part(
        self,
        table: Table,
        held: ExportedSnapshot,
        bounds: Mapping[int, CopyBounds | None],
        ranges: Sequence[CopyRange],
    ) -> None:
        """Copy ranges under the held snapshot, which is stored before and confirmed after the destination has them."""
        engine, name = self._engine, table.schema.table.name
        records = [CopyRecord(number, bound, str(held.snapshot), _BEGUN) for number, bound in bounds.items()]
        for record in records:
            engine.store.finish_copy_range(table.id, record)
        rows = self._rows(table, held, ranges)
        reach("copy.before_write", name)
        if engine.destination.write_table_rows(table.schema, rows, part_number(records)) is Durability.ACCEPTED:
            engine.destination.flush()
        reach("copy.after_write", name)
        report = rows.report()
        rows.close()
        for index, record in enumerate(records):
            engine.store.finish_copy_range(table.id, replace(record, rows=0 if index else report.rows))
        table.copy.part_done(report, len(ranges))
        engine.metrics.copied(name, report.rows, report.bytes, len(ranges))
        if report.rejected:
            engine.metrics.quarantined(name, report.rejected)

    def _rows(self, table: Table, held: ExportedSnapshot, ranges: Sequence[CopyRange]) -> LocalRows | TaskRows:
        engine, schema = self._engine, table.schema
        engine.memory.wait_until_resumed(_MEMORY_PATIENCE_S)
        if sum(part.estimated_bytes for part in ranges) <= SMALL_BYTES:
            here = HeldCopyReader(held.connection, schema, quarantine=engine.config.quarantine)
            try:
                return read_here(engine.spark, ranges, here, row_schema(schema))
            except TooLarge:
                _log.debug("more rows than it seemed: tasks read them", table=table.name)
        reader = CopyReader(
            engine.config.pg_connection, schema, held.name, engine.config.id, quarantine=engine.config.quarantine
        )
        works = copy_works(engine.spark, ranges, engine.config.max_copy_connections_per_table)
        rows = TaskRows(engine.spark, works, reader, row_schema(schema), f"copy of {schema.table.name}")
        table.copy.watch(rows.reports, len(ranges) / max(1, len(works)))
        return rows

    def _finish(self, table: Table, started: float) -> None:
        engine = self._engine
        reach("copy.before_finished", table.name)
        metadata = engine.store.get_destination_metadata(table.id)
        assert metadata is not None
        engine.store.store_destination_metadata(table.id, metadata.applied())
        known = engine.store.get_copy(table.id)
        assert known is not None
        table.handoff = handoff_of(table.schema, *known)
        table.copied = table.own_progress = True
        engine.tables.move([table], State.FINISHED_COPY)
        reach("copy.after_finished", table.name)
        table.copy.end()
        view = table.copy.view()
        engine.metrics.copy_finished(table.schema.table.name, view.seconds)
        seconds = round(time.monotonic() - started, 2)
        _log.info("copied", table=table.name, rows=view.rows, bytes=view.bytes, seconds=seconds)


def _copies(config: PipelineConfig, schema: ReplicatedTableSchema) -> bool:
    """Whether rows that exist already are wanted; if not, the table is created empty."""
    return config.mode is not PipelineMode.STREAM_ONLY and config.table_sync_copy.copies(schema.table.name)
