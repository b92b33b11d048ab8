"""The tables themselves: made, renamed, replaced, and never one that somebody else made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from ...errors import DestinationConflict, DestinationRejected
from ...schema import ReplicatedTableSchema
from ...stores.contract import StateStore
from ..table_plans import PlannedTable, table_columns
from .columns import column_names, definitions, quoted, sql_type
from .database import Session
from .failures import blamed
from .places import literal
from .plans import check_table
from .record import RecordedColumn, Records, TableRecord
from .renamed import renamed_schema

__all__ = ["Move", "Tables"]


@dataclass(frozen=True, slots=True)
class Move:
    """A table that is to have another name, and its source."""

    record: TableRecord
    source: ReplicatedTableSchema
    name: tuple[str, str]


class Tables:
    """Of one database. All methods are for within a transaction."""

    def __init__(self, database: str, records: Records, store: StateStore) -> None:
        self._database, self._records, self._store = database, records, store

    def sql(self, name: tuple[str, str]) -> str:
        return quoted(self._database, *name)

    def create(
        self,
        session: Session,
        source: ReplicatedTableSchema,
        plan: PlannedTable,
        name: tuple[str, str],
        rows: pa.Schema,
    ) -> TableRecord:
        """A new table for rows of this schema. Raises if the name is taken by what is not ours to replace."""
        check_table(source, plan)
        self._claim(session, source, name)
        session.run(f"CREATE SCHEMA IF NOT EXISTS {quoted(self._database, name[0])}")
        names = column_names(source)
        columns_there = renamed_schema(table_columns(rows, plan.mode), names)
        session.run(f"CREATE TABLE {self.sql(name)} ({definitions(columns_there)})")
        self._describe(session, source, name)
        attnums = {column.name: column.attnum for column in source.columns}
        columns = tuple(RecordedColumn(attnums[field.name], names[field.name], sql_type(field.type)) for field in rows)
        return TableRecord(source.table.id, str(source.table.name), name, plan.mode, columns)

    def drop(self, session: Session, record: TableRecord) -> None:
        session.run(f"DROP TABLE IF EXISTS {self.sql(record.name)}")
        self._records.forget(session, record.table_id)

    def move(self, session: Session, moves: Sequence[Move]) -> dict[int, TableRecord]:
        """All renames of a batch at once: tables may have exchanged their names. The new records, by source."""
        wanted = {_folded(move.name) for move in moves}
        for move in moves:
            if _folded(move.record.name) in wanted:
                # Out of the way first, of another table or of the same name in other letters.
                aside = (move.record.name[0], f"_headrace_moving_{move.record.table_id}")
                self._records.save(session, self._renamed(session, move.record, aside))
        moved = {}
        for move in moves:
            with blamed(move.source):
                record = self._records.of(session, move.record.table_id) or move.record
                self._claim(session, move.source, move.name)
                renamed = self._renamed(session, record, move.name)
                moved[record.table_id] = replace(renamed, source=str(move.source.table.name))
                self._records.save(session, moved[record.table_id])
        return moved

    def _renamed(self, session: Session, record: TableRecord, name: tuple[str, str]) -> TableRecord:
        if record.name[0] == name[0]:
            session.run(f"ALTER TABLE {self.sql(record.name)} RENAME TO {quoted(name[1])}")
        else:
            # DuckDB has no way to move a table to another schema but to write it anew.
            session.run(f"CREATE SCHEMA IF NOT EXISTS {quoted(self._database, name[0])}")
            session.run(f"CREATE TABLE {self.sql(name)} AS FROM {self.sql(record.name)}")
            session.run(f"DROP TABLE {self.sql(record.name)}")
        return replace(record, name=name)

    def _claim(self, session: Session, source: ReplicatedTableSchema, name: tuple[str, str]) -> None:
        """See that the name is free. A table whose source is no longer in the pipeline makes room."""
        text = ".".join(name)
        taken = self._records.named(session, name)
        if taken is not None and taken.table_id == source.table.id:
            return
        if taken is not None:
            if self._store.get_table_state(taken.table_id) is not None:
                msg = f"the name {text}, for table {source.table.name}, still belongs to table {taken.source}"
                raise DestinationConflict(msg)
            self.drop(session, taken)
        elif self.exists(session, name):
            owner = self._records.owner(session, name)
            whose = "was not made by Headrace" if owner is None else f"belongs to pipeline {owner}"
            hint = f'drop it, or give another name with destination.tables."{source.table.name}".name'
            raise DestinationRejected(f"the table {text} exists and {whose}", hint=hint)

    def exists(self, session: Session, name: tuple[str, str]) -> bool:
        found = session.rows(
            "SELECT 1 FROM information_schema.tables WHERE table_catalog = ? AND lower(table_schema) = lower(?) "
            "AND lower(table_name) = lower(?)",
            [self._database, *name],
        )
        return bool(found)

    def _describe(self, session: Session, source: ReplicatedTableSchema, name: tuple[str, str]) -> None:
        if source.table.comment:
            session.run(f"COMMENT ON TABLE {self.sql(name)} IS {literal(source.table.comment)}")
        for column in source.columns:
            if column.comment:
                place = f"{self.sql(name)}.{quoted(column_names(source)[column.name])}"
                session.run(f"COMMENT ON COLUMN {place} IS {literal(column.comment)}")


def _folded(name: tuple[str, str]) -> tuple[str, ...]:
    return tuple(part.casefold() for part in name)
