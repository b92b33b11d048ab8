"""The DuckDB destination: one transaction per batch, with the rows of all its tables and their LSNs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from ...config.duckdb import DuckDBConfig, DuckLakeConfig
from ...config.table_mode import TableMode
from ...errors import DestinationRejected, PipelineStateError
from ...events import Relation
from ...lsn import INVALID_LSN, Lsn
from ...remedies import RESYNC
from ...schema import ReplicatedTableSchema
from ...schema_change import copy_reason
from ..batch import Changes, EventBatch, TableBatch
from ..change_log import change_log_schema, logged_copy
from ..contract import DestinationContext, Durability
from ..rows import Rows
from ..soft_delete import flagged_live
from ..table_plans import table_columns
from .alteration import CannotAlter
from .columns import column_names, listed, wanted_columns
from .database import Database, Place, Session
from .failures import blamed
from .lake import Lake
from .log_rows import LogTable, copied_again
from .maintenance import Maintenance
from .places import DatabaseFile, MotherDuck
from .plans import TablePlans, check_table
from .quarantine import Quarantine, rejections
from .record import RecordedColumn, Records, TableRecord
from .renamed import Renamed, renamed_schema
from .staging import Staged, Staging, pieces
from .table_batch import ReadPart, TableWriter, alteration, read_part
from .tables import Move, Tables

__all__ = ["DuckDBDestination"]

_ROWS = "_headrace_rows"


@dataclass(frozen=True, slots=True)
class _Open:
    """What there is between startup and shutdown."""

    context: DestinationContext
    database: Database
    records: Records
    tables: Tables
    plans: TablePlans
    quarantine: Quarantine
    staging: Staging
    maintenance: Maintenance | None


class DuckDBDestination:
    """Implements `Destination`: see `docs/destinations/duckdb.md` and `ducklake.md`."""

    whole_batches = True

    def __init__(self, settings: DuckDBConfig | DuckLakeConfig) -> None:
        self._settings = settings
        self._place = _place(settings)
        self.name = "ducklake" if isinstance(settings, DuckLakeConfig) else "duckdb"
        # Defaults that are lists or maps are more than DuckLake can keep.
        self._nested_defaults = self.name == "duckdb"
        self._open: _Open | None = None

    def startup(self, context: DestinationContext) -> None:
        settings, name = self._settings, self._place.name
        plans = TablePlans(settings, context)
        database = _database(settings, self._place)
        records, quarantine = Records(context.pipeline_id, name), Quarantine(context.pipeline_id, name)
        shared = settings.staging is not None or _on_this_machine(context.spark)
        staging = Staging(_staging_root(settings), settings.place()[1], context.pipeline_id, shared=shared)
        database.on_failure = records.forget_all
        # Nobody else reads what lies there.
        database.overflow = staging.path
        # Another run may need the file until it ends: it is opened for good by the claim.
        database.probe()
        maintenance = None
        if isinstance(settings, DuckLakeConfig) and settings.maintenance.enabled:
            maintenance = Maintenance(database, settings, records.check)
        tables = Tables(name, records, context.store)
        self._open = _Open(context, database, records, tables, plans, quarantine, staging, maintenance)

    def claim(self) -> None:
        opened = self._opened
        opened.database.open()
        with opened.database.transaction("claim the database") as session:
            opened.records.open(session)
            opened.quarantine.open(session)
            opened.records.claim(session, opened.context)
        opened.staging.open()
        if opened.maintenance is not None:
            opened.maintenance.start()

    def applied_lsn(self, schema: ReplicatedTableSchema) -> Lsn | None:
        record = self._record(schema)
        return None if record is None else record.lsn

    def copied_parts(self, schema: ReplicatedTableSchema) -> frozenset[int] | None:
        record = self._record(schema)
        return frozenset() if record is None else record.parts

    def drop_table_for_copy(self, schema: ReplicatedTableSchema) -> None:
        opened = self._opened
        with self._transaction("prepare a copy") as session:
            record = opened.records.of(session, schema.table.id)
            if record is not None:
                # Readers see its rows until the first part of the copy takes their place.
                opened.records.save(session, record.outdated())
            if record is None or not self._goes_on(record, schema):
                opened.quarantine.forget(session, schema.table.id)

    def drop_table(self, schema: ReplicatedTableSchema) -> None:
        opened = self._opened
        with self._transaction("drop a table") as session:
            record = opened.records.of(session, schema.table.id)
            if record is not None:
                opened.tables.drop(session, record)
            opened.quarantine.forget(session, schema.table.id)
        opened.plans.forget(schema)

    def write_table_rows(self, schema: ReplicatedTableSchema, rows: Rows, part: int) -> Durability:
        opened = self._opened
        record = self._record(schema)
        if record is not None and part in record.parts:
            return Durability.DURABLE
        mode = opened.plans.of(schema).mode if record is None or record.stale else record.mode
        position = INVALID_LSN if record is None or record.mode is not mode else record.schema_version
        # The rows are read without the lock, however many: batches need not wait for them.
        columns = renamed_schema(table_columns(rows.arrow_schema, mode), column_names(schema))
        staged = opened.staging.put(rows, columns, Renamed(columns, _copied(mode, rows.arrow_schema, position)))
        try:
            rejected = rejections([rows])
            doing = f"copy table {schema.table.name}"
            with self._transaction(doing) as session, blamed(schema, self._place.secrets):
                table = self._copied_into(session, schema, rows.arrow_schema)
                self._insert(session, schema, table, staged)
                opened.quarantine.add(session, schema, rejected)
                opened.records.save(session, replace(table, parts=table.parts | {part}))
        finally:
            opened.staging.discard(staged)
        return Durability.DURABLE

    def follows(self, relation: Relation) -> bool:
        """See the docs, Schema changes. A log of changes goes on, whatever happens."""
        opened = self._opened
        plan = opened.plans.of(relation.new)
        record = self._record(relation.new)
        if (plan.mode if record is None else record.mode) is TableMode.CHANGELOG:
            return True
        if relation.rewritten or copy_reason(relation) is not None:
            return False
        check_table(relation.new, plan)
        try:
            with opened.database.look("look at a table") as session:
                for there in self._versions(relation, record):
                    alteration(session, there, [relation], nested=self._nested_defaults)
        except CannotAlter:
            return False
        return True

    def write_events(self, batch: EventBatch) -> Durability:
        opened = self._opened
        # Nobody else works on these tables under our epoch: what is found here is so in the transaction too.
        with opened.database.look("read the record of the pipeline") as session:
            ids = [part.schema.table.id for part in batch.tables]
            records = {table: record for table in ids if (record := opened.records.of(session, table)) is not None}
        parts = [part for part in batch.tables if _is_new(records.get(part.schema.table.id), batch.end)]
        read: list[ReadPart] = []
        try:
            for part in parts:
                record = records.get(part.schema.table.id)
                mode = opened.plans.of(part.schema).mode if record is None else record.mode
                with blamed(part.schema):
                    read.append(read_part(part, mode, None if record is None else record.lsn, opened.staging))
            if read:
                with opened.database.transaction("write a batch") as session:
                    opened.records.check(session)
                    self._write(session, read, records, batch.end)
                    if any(part.schema.table.id not in records for part in parts):
                        # Of these the claim of another run changes nothing that this batch changes.
                        opened.records.touch(session)
        finally:
            opened.staging.discard([one for part in read for one in part.staged])
        return Durability.DURABLE

    def flush(self) -> None:
        """Every commit is durable."""

    def shutdown(self) -> None:
        opened, self._open = self._open, None
        if opened is not None:
            if opened.maintenance is not None:
                opened.maintenance.stop()
            opened.staging.close()
            opened.database.close()

    def maintain(self) -> None:
        """Do what maintenance does, now. Only a lake has any."""
        maintenance = self._opened.maintenance
        if maintenance is not None:
            maintenance.maintain()

    @contextmanager
    def _transaction(self, doing: str) -> Iterator[Session]:
        """A transaction that is committed only under our epoch."""
        opened = self._opened
        with opened.database.transaction(doing) as session:
            opened.records.check(session)
            yield session
            opened.records.touch(session)

    def _write(self, session: Session, read: Sequence[ReadPart], records: Mapping[int, TableRecord], end: Lsn) -> None:
        opened = self._opened
        there: dict[int, TableRecord] = {}
        for part in read:
            with blamed(part.part.schema, self._place.secrets):
                there[part.part.schema.table.id] = self._found(session, part.part, records)
        there |= self._moved(session, read, there)
        for part in read:
            source = part.part.schema
            with blamed(source, self._place.secrets):
                before = there[source.table.id]
                writer = TableWriter(session, opened.tables.sql(before.name), before, self._nested_defaults)
                after = writer.write(part)
                opened.quarantine.add(session, source, part.rejected)
                if after != before:
                    opened.records.save(session, after)
        opened.records.advance(session, [part.part.schema.table.id for part in read], end)

    def _moved(
        self, session: Session, read: Sequence[ReadPart], there: dict[int, TableRecord]
    ) -> dict[int, TableRecord]:
        opened = self._opened
        moves = []
        for part in read:
            if part.relations:
                source = part.relations[-1].new
                with blamed(source, self._place.secrets):
                    record = there[source.table.id]
                    name = opened.plans.name(source, record.name)
                    if name != record.name:
                        moves.append(Move(record, source, name))
        return opened.tables.move(session, moves) if moves else {}

    def _found(self, session: Session, part: TableBatch, records: Mapping[int, TableRecord]) -> TableRecord:
        """The table's record; for one that was never copied a new table."""
        opened, source = self._opened, part.schema
        record = records.get(source.table.id)
        if record is not None and not record.stale:
            return record
        copied = opened.context.store.get_destination_metadata(source.table.id) is not None
        for step in () if copied or record is not None else part.steps:
            if isinstance(step, Changes):
                rows = pa.schema(list(step.rows.arrow_schema.field("row").type))
                plan, name = opened.plans.of(step.schema), opened.plans.name(step.schema, None)
                made = opened.tables.create(session, step.schema, plan, name, rows)
                opened.records.save(session, made)
                return made
        msg = f"the table for {source.table.name} is missing"
        raise DestinationRejected(msg, hint=f"copy it again: {RESYNC}")

    def _copied_into(self, session: Session, source: ReplicatedTableSchema, rows: pa.Schema) -> TableRecord:
        opened = self._opened
        record = opened.records.of(session, source.table.id)
        if record is not None and not record.stale:
            return record
        name = opened.plans.name(source, None if record is None else record.name)
        if record is not None and self._goes_on(record, source) and opened.tables.exists(session, record.name):
            check_table(source, opened.plans.of(source))
            if name != record.name:
                record = opened.tables.move(session, [Move(record, source, name)])[source.table.id]
            return copied_again(session, opened.tables.sql(name), record, source)
        if record is not None:
            opened.tables.drop(session, record)
        return opened.tables.create(session, source, opened.plans.of(source), name, rows)

    def _goes_on(self, record: TableRecord, source: ReplicatedTableSchema) -> bool:
        """Whether the table is a log of changes and is to stay one: what it has cannot be had again."""
        return record.mode is self._opened.plans.of(source).mode is TableMode.CHANGELOG

    def _insert(
        self, session: Session, source: ReplicatedTableSchema, record: TableRecord, staged: Sequence[Staged]
    ) -> None:
        table = self._opened.tables.sql(record.name)
        for rows in pieces(staged):
            if record.mode is TableMode.CHANGELOG:
                LogTable(session, table, record.columns).add(source, rows)
                continue
            names = listed(rows.schema.names)
            with session.given(_ROWS, rows):
                session.run(f"INSERT INTO {table} ({names}) SELECT {names} FROM {_ROWS}")

    def _versions(self, relation: Relation, record: TableRecord | None) -> list[TableRecord]:
        """The table as it is; and as it will be by what comes before the relation in the same batch."""
        found = [] if record is None or record.stale else [record]
        if relation.old is None:
            return found
        columns = tuple(RecordedColumn(one.attnum, one.name, one.type) for one in wanted_columns(relation.old))
        plan = self._opened.plans.of(relation.old)
        source = relation.old.table
        return [*found, TableRecord(source.id, str(source.name), ("", ""), plan.mode, columns)]

    def _record(self, schema: ReplicatedTableSchema) -> TableRecord | None:
        opened = self._opened
        with opened.database.look("read the record of the pipeline") as session:
            return opened.records.of(session, schema.table.id)

    @property
    def _opened(self) -> _Open:
        if self._open is None:
            msg = f"the destination {self.name} is not open"
            raise PipelineStateError(msg)
        return self._open


def _place(settings: DuckDBConfig | DuckLakeConfig) -> Place:
    if isinstance(settings, DuckLakeConfig):
        return Lake(settings)
    return MotherDuck(settings) if settings.is_motherduck else DatabaseFile(settings)


def _database(settings: DuckDBConfig | DuckLakeConfig, place: Place) -> Database:
    if isinstance(settings, DuckLakeConfig):
        return Database(place, 0, release=False)
    return Database(place, settings.lock_timeout_s, release=settings.release)


def _staging_root(settings: DuckDBConfig | DuckLakeConfig) -> str | None:
    if settings.staging is not None or isinstance(settings, DuckLakeConfig) or settings.is_motherduck:
        return settings.staging
    return str(Path(settings.database).absolute().parent)


def _on_this_machine(spark: Any) -> bool:
    """Whether tasks see the driver's files."""
    return spark is None or str(spark.sparkContext.master).startswith("local")


def _copied(mode: TableMode, rows: pa.Schema, position: Lsn) -> Callable[[pa.RecordBatch], pa.RecordBatch] | None:
    """What becomes of a batch of copied rows."""
    if mode is TableMode.CHANGELOG:
        return partial(logged_copy, schema=change_log_schema(rows), position=position)
    return flagged_live if mode is TableMode.SOFT_DELETE else None


def _is_new(record: TableRecord | None, end: Lsn) -> bool:
    return record is None or record.lsn is None or record.lsn < end
