"""One table's part of a batch: read before the transaction, written within it.

Whatever the batch alters comes first (see `alteration`), then the steps in their order, in the columns of its end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from ...config.table_mode import TableMode
from ...errors import TableSchemaChanged
from ...events import Relation, Truncate
from ...lsn import Lsn
from ...schema import ReplicatedTableSchema
from ..batch import Changes, Step, TableBatch
from ..change_log import change_log_schema, logged_changes, logged_truncate
from ..fold import fold_key, folded
from .alteration import Alteration, CannotAlter, altered_log, altered_table
from .columns import WantedColumn, column_names, quoted, wanted_columns
from .database import Session
from .existing import existing_default
from .log_rows import LogTable
from .merge import TableMerge, truncate
from .quarantine import rejections
from .record import TableRecord
from .renamed import Renamed, renamed_schema
from .staging import Staged, Staging, pieces

__all__ = ["ReadPart", "TableWriter", "alteration", "read_part"]


@dataclass(frozen=True, slots=True)
class ReadPart:
    """The steps that have an effect; those of changes with their rows, which are read."""

    part: TableBatch
    steps: tuple[tuple[Step, tuple[Staged, ...]], ...]
    rejected: pa.Table | None

    @property
    def relations(self) -> list[Relation]:
        return [step for step, _ in self.steps if isinstance(step, Relation)]

    @property
    def staged(self) -> list[Staged]:
        return [one for _, rows in self.steps for one in rows]


def read_part(part: TableBatch, mode: TableMode, applied: Lsn | None, staging: Staging) -> ReadPart:
    """Read the rows. A relation before `applied` was followed already."""
    steps: list[tuple[Step, tuple[Staged, ...]]] = []
    try:
        for step in _since_truncate(part.steps) if mode is TableMode.MIRROR else part.steps:
            if isinstance(step, Changes):
                steps.append((step, tuple(_read(step, mode, staging))))
            elif isinstance(step, Truncate) or applied is None or step.commit_lsn >= applied:
                steps.append((step, ()))
        rejected = rejections([step.rows for step in part.steps if isinstance(step, Changes)])
    except BaseException:
        staging.discard([one for _, rows in steps for one in rows])
        raise
    return ReadPart(part, tuple(steps), rejected)


def _read(step: Changes, mode: TableMode, staging: Staging) -> list[Staged]:
    if mode is TableMode.CHANGELOG:
        schema = change_log_schema(pa.schema(list(step.rows.arrow_schema.field("row").type)))
        columns = renamed_schema(schema, column_names(step.schema))
        # The version is known later.
        return staging.put(step.rows, columns, Renamed(columns, partial(logged_changes, schema=schema, version=0)))
    rows = folded(step)
    return staging.put(rows, rows.arrow_schema)


def _since_truncate(steps: Sequence[Step]) -> Sequence[Step]:
    """What came before the last truncate leaves nothing but the table's columns."""
    last = max((index for index, step in enumerate(steps) if isinstance(step, Truncate)), default=0)
    return [*(step for step in steps[:last] if isinstance(step, Relation)), *steps[last:]]


def alteration(
    session: Session,
    record: TableRecord,
    relations: Sequence[Relation],
    *,
    nested: bool,
    kept: frozenset[int] = frozenset(),
) -> tuple[Alteration, Mapping[int, str | None]]:
    """What these relations, which follow each other, make of the table; and what older rows show in columns that came.

    Raises CannotAlter.
    """
    if record.mode is TableMode.CHANGELOG:
        statements: list[str] = []
        columns = record.columns
        for relation in relations:
            altered = altered_log(columns, wanted_columns(relation.new))
            statements += altered.statements
            columns = altered.columns
        return Alteration(tuple(statements), columns), {}
    there = {column.attnum for column in record.columns}
    came: dict[int, WantedColumn] = {}
    for relation in relations:
        # As it was when it came: a rewrite of the table forgets what older rows showed.
        for column in wanted_columns(relation.new):
            came.setdefault(column.attnum, column)
    wanted = wanted_columns(relations[-1].new)
    types = {column.attnum: column.type for column in wanted}
    existing = {
        attnum: existing_default(session, column, types.get(attnum, column.type), nested=nested)
        for attnum, column in came.items()
        if attnum not in there
    }
    return altered_table(record.columns, wanted, lambda column: existing[column.attnum], kept), existing


@dataclass(frozen=True, slots=True)
class TableWriter:
    """Writes what was read into the table of a record."""

    session: Session
    table: str
    """In SQL."""
    record: TableRecord
    nested_defaults: bool

    def write(self, read: ReadPart) -> TableRecord:
        """The record as it is then, but for the LSN."""
        record, existing, aside = self._altered(read)
        for step, rows in read.steps:
            if isinstance(step, Relation):
                record = replace(record, schema_version=step.commit_lsn)
            elif record.mode is TableMode.CHANGELOG:
                self._log(record, step, rows, read.part.schema)
            elif isinstance(step, Truncate):
                truncate(self.session, self.table, step.commit_time, soft_delete=record.mode is TableMode.SOFT_DELETE)
            else:
                self._merge(record, step, rows, existing)
        if aside:
            record = self._without_aside(record)
        return record

    def _altered(self, read: ReadPart) -> tuple[TableRecord, Mapping[int, str | None], bool]:
        relations = read.relations
        if not relations:
            return self.record, {}, False
        kept = frozenset() if self.record.mode is TableMode.CHANGELOG else frozenset(_key_columns(read))
        source = relations[-1].new
        try:
            altered, existing = alteration(self.session, self.record, relations, nested=self.nested_defaults, kept=kept)
        except CannotAlter as error:
            msg = f"table {self.record.text} cannot be altered as table {source.table.name} of the source was"
            raise TableSchemaChanged(msg, detail=str(error)) from None
        for statement in altered.statements:
            self.session.run(f"ALTER TABLE {self.table} {statement}")
        if altered.filled:
            self.session.run(f"UPDATE {self.table} SET {', '.join(altered.filled)}")
        record = replace(self.record, columns=altered.columns, source=str(source.table.name))
        aside = record.mode is not TableMode.CHANGELOG and not all(column.live for column in altered.columns)
        return record, existing, aside

    def _merge(
        self, record: TableRecord, step: Changes, rows: Sequence[Staged], existing: Mapping[int, str | None]
    ) -> None:
        merge = TableMerge(self.session, self.table, record.columns, existing, record.mode is TableMode.SOFT_DELETE)
        merge.apply(step.schema, pieces(rows))

    def _log(
        self, record: TableRecord, step: Changes | Truncate, rows: Sequence[Staged], known: ReplicatedTableSchema
    ) -> None:
        log, version = LogTable(self.session, self.table, record.columns), int(record.schema_version)
        if isinstance(step, Changes):
            for logged in pieces(rows):
                log.add(step.schema, logged, version)
            return
        log.add_truncate(known, lambda schema: logged_truncate(step, schema, version))

    def _without_aside(self, record: TableRecord) -> TableRecord:
        """Columns were kept because rows were found by them. To drop them now, the table is written anew."""
        columns = tuple(column for column in record.columns if column.live)
        aside = ", ".join(quoted(column.name) for column in record.columns if not column.live)
        database_and_schema, _, _ = self.table.rpartition(quoted(record.name[1]))
        new = quoted(f"_headrace_new_{record.table_id}")
        self.session.run(f"CREATE TABLE {database_and_schema}{new} AS SELECT * EXCLUDE ({aside}) FROM {self.table}")
        self.session.run(f"DROP TABLE {self.table}")
        self.session.run(f"ALTER TABLE {database_and_schema}{new} RENAME TO {quoted(record.name[1])}")
        return replace(record, columns=columns)


def _key_columns(read: ReadPart) -> Iterator[int]:
    """By which rows are found, in any version that the batch has changes of."""
    for step, _ in read.steps:
        if isinstance(step, Changes):
            for name in fold_key(step.schema) or ():
                yield step.schema.table.column(name).attnum
