"""What the database itself says of a pipeline's tables: in a table of its own, written in the transaction of the rows.

A pipeline has a table of its own, so that two of them, in a lake say, never write to the same one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace

from ...config.table_mode import TableMode
from ...errors import DestinationFenced, DestinationRejected
from ...lsn import INVALID_LSN, Lsn
from ...schema import OWN_SCHEMA
from ..change_log import position_of_copy
from ..contract import DestinationContext, SourceIdentity
from ..copied_parts import read_parts, write_parts
from .columns import quoted
from .database import Session

__all__ = ["RecordedColumn", "Records", "TableRecord"]

_PREFIX = "tables_"


@dataclass(frozen=True, slots=True)
class RecordedColumn:
    """Which column of the source a column is, by `attnum`. One that is not `live` is left of former times, in a log."""

    attnum: int
    name: str
    type: str
    live: bool = True


@dataclass(frozen=True, slots=True)
class TableRecord:
    """One table. `lsn` None: no events yet. `stale`: a new copy is to replace what it holds, or be added to a log."""

    table_id: int
    source: str
    name: tuple[str, str]
    mode: TableMode
    columns: tuple[RecordedColumn, ...]
    lsn: Lsn | None = None
    parts: frozenset[int] = frozenset()
    schema_version: Lsn = INVALID_LSN
    """Since which commit the source has looked as the table does; 0/0: since it was copied. Of a log whose source was,
    or is to be, copied again: the copy's position in it."""
    stale: bool = False

    @property
    def text(self) -> str:
        return ".".join(self.name)

    def outdated(self) -> TableRecord:
        """As it is when a new copy is to come."""
        if self.stale:
            return self
        version = position_of_copy(self.lsn, self.schema_version)
        return replace(self, lsn=None, parts=frozenset(), schema_version=version, stale=True)


class Records:
    """The records of one pipeline. All methods are for whoever has the session.

    Nobody else writes them under our epoch, so what was read once is remembered: a lake is slow to ask. When a
    transaction fails, `forget_all` must be called before anybody asks again.

    The epoch stands in a table of one row. Every transaction that writes reads it, and changes a row that a claim
    changes too, so that of a write and a claim at the same time one fails: `advance` does for the tables of a batch,
    and `touch` for everything else.
    """

    def __init__(self, pipeline_id: int, database: str) -> None:
        self._database = database
        self._pipeline_id = pipeline_id
        self._owner = quoted(database, OWN_SCHEMA, f"pipeline_{pipeline_id}")
        self._epoch = 0
        self._table = quoted(database, OWN_SCHEMA, f"{_PREFIX}{pipeline_id}")
        self._known: dict[int, TableRecord] | None = None

    def open(self, session: Session) -> None:
        """Make the table, if it is not there."""
        session.run(f"CREATE SCHEMA IF NOT EXISTS {quoted(self._database, OWN_SCHEMA)}")
        session.run(
            f"CREATE TABLE IF NOT EXISTS {self._table} (table_id BIGINT, source_table VARCHAR, schema_name VARCHAR, "
            "table_name VARCHAR, mode VARCHAR, columns VARCHAR, lsn VARCHAR, copied_parts VARCHAR, "
            "schema_version VARCHAR, stale BOOLEAN)"
        )

    def claim(self, session: Session, context: DestinationContext) -> None:
        """Raise the epoch. Raises DestinationRejected if the pipeline of this id has another source."""
        session.run(
            f"CREATE TABLE IF NOT EXISTS {self._owner} (epoch BIGINT, writes BIGINT, run_id VARCHAR, "
            "system_id VARCHAR, database_name VARCHAR)"
        )
        found = session.rows(f"SELECT epoch, system_id, database_name FROM {self._owner}")
        before = SourceIdentity(*found[0][1:]) if found and found[0][1] is not None else None
        if before is not None and context.source not in (None, before):
            msg = f"the tables of pipeline {self._pipeline_id} belong to {before}, not to {context.source}"
            raise DestinationRejected(msg, hint="give one of the two pipelines another id, or another database")
        if before is not None:
            context.check_owner(str(before))
        source = context.source or before
        values = [context.run_id, *((None, None) if source is None else (source.system_id, source.database))]
        self._known, self._epoch = None, (found[0][0] if found else 0) + 1
        if found:
            # `writes` and `lsn` too: DuckDB finds a conflict only where two transactions update the same column.
            kept = f"epoch = {self._epoch}, writes = writes + 1, run_id = ?, system_id = ?, database_name = ?"
            session.run(f"UPDATE {self._owner} SET {kept}", values)
            session.run(f"UPDATE {self._table} SET lsn = lsn")
        else:
            session.run(f"INSERT INTO {self._owner} VALUES ({self._epoch}, 0, ?, ?, ?)", values)

    def check(self, session: Session) -> None:
        """Raise DestinationFenced if another run has claimed the database."""
        found = session.rows(f"SELECT epoch, run_id FROM {self._owner}")
        if not found or found[0][0] != self._epoch:
            msg = f"another run of pipeline {self._pipeline_id} has taken over the database {self._database}"
            detail = f"its epoch is {found[0][0]} ({found[0][1]}), this run has {self._epoch}" if found else None
            raise DestinationFenced(msg, detail=detail)

    def touch(self, session: Session) -> None:
        """Make the transaction fail if another run claims the database before it is committed."""
        session.run(f"UPDATE {self._owner} SET writes = writes + 1")

    def of(self, session: Session, table_id: int) -> TableRecord | None:
        return self._all(session).get(table_id)

    def named(self, session: Session, name: tuple[str, str]) -> TableRecord | None:
        """The one whose table has this name; names that differ in case only are one to DuckDB."""
        return next((one for one in self._all(session).values() if _is_same(one.name, name)), None)

    def forget_all(self) -> None:
        """What is remembered may not be so."""
        self._known = None

    def owner(self, session: Session, name: tuple[str, str]) -> int | None:
        """Which other pipeline made the table of this name; None: none of those that left a record."""
        others = session.rows(
            "SELECT table_name FROM duckdb_tables() WHERE database_name = ? AND schema_name = ? "
            "AND regexp_full_match(table_name, ?)",
            [self._database, OWN_SCHEMA, f"{_PREFIX}[0-9]+"],
        )
        for (table,) in others:
            where = "lower(schema_name) = lower(?) AND lower(table_name) = lower(?)"
            if session.rows(f"SELECT 1 FROM {quoted(self._database, OWN_SCHEMA, table)} WHERE {where}", list(name)):
                return int(table.removeprefix(_PREFIX))
        return None

    def save(self, session: Session, record: TableRecord) -> None:
        self.forget(session, record.table_id)
        places = ", ".join("?" * len(_values(record)))
        session.run(f"INSERT INTO {self._table} VALUES ({places})", _values(record))
        self._all(session)[record.table_id] = record

    def advance(self, session: Session, tables: Iterable[int], lsn: Lsn) -> None:
        """All at once: it is done with every batch."""
        known, some = self._all(session), [int(table) for table in tables]
        if some:
            ids = ", ".join(map(str, some))
            session.run(f"UPDATE {self._table} SET lsn = ? WHERE table_id IN ({ids})", [str(lsn)])
            known.update((table, replace(known[table], lsn=lsn)) for table in some)

    def forget(self, session: Session, table_id: int) -> None:
        if self._all(session).pop(table_id, None) is not None:
            session.run(f"DELETE FROM {self._table} WHERE table_id = ?", [table_id])

    def _all(self, session: Session) -> dict[int, TableRecord]:
        if self._known is None:
            found = (_record(row) for row in session.rows(f"SELECT * FROM {self._table}"))
            self._known = {record.table_id: record for record in found}
        return self._known


def _is_same(one: tuple[str, str], other: tuple[str, str]) -> bool:
    return [part.casefold() for part in one] == [part.casefold() for part in other]


def _values(record: TableRecord) -> list[object]:
    columns = [[getattr(column, field.name) for field in fields(column)] for column in record.columns]
    return [
        record.table_id,
        record.source,
        *record.name,
        record.mode.value,
        json.dumps(columns, ensure_ascii=False),
        None if record.lsn is None else str(record.lsn),
        write_parts(record.parts),
        str(record.schema_version),
        record.stale,
    ]


def _record(row: tuple[object, ...]) -> TableRecord:
    table_id, source, schema, table, mode, columns, lsn, parts, version, stale = row
    return TableRecord(
        table_id=int(str(table_id)),
        source=str(source),
        name=(str(schema), str(table)),
        mode=TableMode(str(mode)),
        columns=tuple(RecordedColumn(*column) for column in json.loads(str(columns))),
        lsn=None if lsn is None else Lsn.parse(str(lsn)),
        parts=read_parts(str(parts)),
        schema_version=Lsn.parse(str(version)),
        stale=bool(stale),
    )
