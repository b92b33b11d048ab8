"""What the database itself says of a pipeline's tables: in a table of its own, written in the transaction of the rows.

A pipeline has a table of its own, so that two of them, in a lake say, never write to the same one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace

from ...config.table_mode import TableMode
from ...lsn import INVALID_LSN, Lsn
from ...schema import OWN_SCHEMA
from ..change_log import position_of_copy
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

    Nobody else writes them, so what was read once is remembered: a lake is slow to ask. When a transaction fails,
    `forget_all` must be called before anybody asks again.
    """

    def __init__(self, pipeline_id: int, database: str) -> None:
        self._database = database
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
        mode=TableMode(mode),
        columns=tuple(RecordedColumn(*column) for column in json.loads(str(columns))),
        lsn=None if lsn is None else Lsn.parse(str(lsn)),
        parts=read_parts(str(parts)),
        schema_version=Lsn.parse(str(version)),
        stale=bool(stale),
    )
