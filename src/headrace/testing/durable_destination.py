"""A destination in a SQLite file that survives kill -9 and tells exactly what it was given.

Per table it has the current rows (kept by applying folded changes, as real destinations do), the rows of the initial
copy, and a log of every change as it came. Nothing in it is unique: a change that is applied twice shows.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from ..destinations.batch import Changes, EventBatch, TableBatch
from ..destinations.contract import DestinationContext, Durability
from ..destinations.existing_rows import existing_value
from ..destinations.fold import folded
from ..destinations.rows import Rows
from ..errors import DestinationError, DestinationFenced, DestinationRejected, RetryPolicy
from ..events import Relation, Truncate
from ..lsn import Lsn
from ..schema import ReplicatedTableSchema, TableName
from ..schema_change import schema_change
from .canonical import canonical_text, canonical_texts, object_text
from .durable_merge import insert_rows, merge

__all__ = ["DurableDestination", "LoggedChange", "Seam"]

Seam = Callable[[str, str], None]
"""Called with a method of the contract and the table's name; may raise, or end the process."""

_BUSY_SECONDS = 30.0
_TABLES = """
CREATE TABLE IF NOT EXISTS tables (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_lsn INTEGER, shape TEXT
);
CREATE TABLE IF NOT EXISTS owner (
    pipeline_id INTEGER PRIMARY KEY, epoch INTEGER NOT NULL, run_id TEXT NOT NULL, source TEXT
);
CREATE TABLE IF NOT EXISTS state (table_id INTEGER NOT NULL, key TEXT NOT NULL, row TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS state_key ON state (table_id, key);
CREATE TABLE IF NOT EXISTS parts (table_id INTEGER NOT NULL, part INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS copied (table_id INTEGER NOT NULL, row TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS copied_table ON copied (table_id);
CREATE TABLE IF NOT EXISTS change_log (
    table_id INTEGER NOT NULL, op TEXT NOT NULL, commit_lsn INTEGER NOT NULL, tx_ordinal INTEGER NOT NULL,
    xid INTEGER NOT NULL, unchanged TEXT, row TEXT, old TEXT
);
CREATE INDEX IF NOT EXISTS change_log_table ON change_log (table_id);
CREATE TABLE IF NOT EXISTS quarantine (
    table_id INTEGER NOT NULL, key TEXT, column_name TEXT NOT NULL, text TEXT NOT NULL,
    commit_lsn INTEGER, tx_ordinal INTEGER
);
CREATE INDEX IF NOT EXISTS quarantine_table ON quarantine (table_id);
"""
_HOLDERS = ("state", "parts", "copied", "change_log", "quarantine")


@dataclass(frozen=True, slots=True)
class LoggedChange:
    """A change as it came: op is I, U, D, or T for a truncate. `row` has canonical values; `old` only what was sent."""

    op: str
    commit_lsn: Lsn
    tx_ordinal: int
    xid: int
    row: dict[str, Any] | None
    old: dict[str, Any] | None
    unchanged: tuple[str, ...]


class DurableDestination:
    """A write is one SQLite transaction, with its LSN; when it returns it is on disk.

    `before_commit` and `after_commit` are called around each COMMIT. Several processes may open the file, to read it
    while another writes. A part of a copy that came before is left out, and so is a batch that ends at or before the
    applied LSN. One that only overlaps it is the pipeline's mistake, and written, so that the log shows it.
    """

    name = "durable"
    whole_batches = False

    def __init__(self, path: Path | str, before_commit: Seam | None = None, after_commit: Seam | None = None) -> None:
        self._path = Path(path)
        self._before_commit = before_commit or _nothing
        self._after_commit = after_commit or _nothing
        # Reentrant: a seam may look at what is there.
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._context: DestinationContext | None = None
        self._epoch: int | None = None

    def startup(self, context: DestinationContext) -> None:
        self._context = context
        with self._reading():
            pass

    def claim(self) -> None:
        context = self._context
        assert context is not None, "claim comes after startup"
        source = None if context.source is None else str(context.source)
        with self._transaction("the record of its owner") as connection:
            query = "SELECT epoch, source FROM owner WHERE pipeline_id = ?"
            epoch, before = connection.execute(query, (context.pipeline_id,)).fetchone() or (0, None)
            if source is not None and before is not None and source != before:
                msg = f"pipeline {context.pipeline_id} at {self._path} belongs to {before}, not to {source}"
                raise DestinationRejected(msg, hint="give one of the two pipelines another id")
            if before is not None:
                context.check_owner(before)
            row = (context.pipeline_id, epoch + 1, context.run_id, source or before)
            connection.execute("INSERT OR REPLACE INTO owner VALUES (?, ?, ?, ?)", row)
        self._epoch = epoch + 1

    def applied_lsn(self, schema: ReplicatedTableSchema) -> Lsn | None:
        with self._reading() as connection:
            return _applied(connection, schema.table.id)

    def copied_parts(self, schema: ReplicatedTableSchema) -> frozenset[int] | None:
        with self._reading() as connection:
            return _parts(connection, schema.table.id)

    def drop_table_for_copy(self, schema: ReplicatedTableSchema) -> None:
        with self._writing("drop_table_for_copy", schema) as connection:
            for holder in _HOLDERS:
                connection.execute(f"DELETE FROM {holder} WHERE table_id = ?", (schema.table.id,))
            connection.execute("DELETE FROM tables WHERE id = ?", (schema.table.id,))

    def drop_table(self, schema: ReplicatedTableSchema) -> None:
        self.drop_table_for_copy(schema)

    def write_table_rows(self, schema: ReplicatedTableSchema, rows: Rows, part: int) -> Durability:
        with self._writing("write_table_rows", schema) as connection:
            if part not in _parts(connection, schema.table.id):
                _create(connection, schema)
                connection.execute("INSERT INTO parts VALUES (?, ?)", (schema.table.id, part))
                _copy(connection, schema, rows)
                _record_shape(connection, schema)
        return Durability.DURABLE

    def follows(self, relation: Relation) -> bool:
        """Rows are kept as text, which is another for some types that are only wider."""
        return not relation.rewritten and (
            relation.old is None or not schema_change(relation.old, relation.new).retyped
        )

    def write_events(self, batch: EventBatch) -> Durability:
        for part in batch.tables:
            with self._writing("write_events", part.schema) as connection:
                applied = _applied(connection, part.schema.table.id)
                if applied is None or applied < batch.end:
                    _create(connection, part.schema)
                    _write_steps(connection, part)
                    parameters = (int(batch.end), part.schema.table.id)
                    connection.execute("UPDATE tables SET applied_lsn = ? WHERE id = ?", parameters)
        return Durability.DURABLE

    def flush(self) -> None:
        pass

    def shutdown(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
            self._connection = None

    def tables(self) -> list[str]:
        with self._reading() as connection:
            return [name for (name,) in connection.execute("SELECT name FROM tables ORDER BY name")]

    def rows(self, table: str | TableName) -> list[dict[str, Any]]:
        """The current rows, canonical, in no order."""
        return [json.loads(row) for (row,) in self._select(table, "SELECT row FROM state")]

    def shape(self, table: str | TableName) -> tuple[list[str], list[str] | None]:
        """The columns of its rows, and by which of them rows are found; None: by all."""
        with self._reading() as connection:
            found = connection.execute("SELECT shape FROM tables WHERE name = ?", (str(table),)).fetchall()
        if not found:
            msg = f"{self._path} has no table {table}"
            raise KeyError(msg)
        columns, key = json.loads(found[-1][0])
        return [name for _, name in columns], key

    def copied(self, table: str | TableName) -> list[dict[str, Any]]:
        """The rows of the initial copy, as they came."""
        return [json.loads(row) for (row,) in self._select(table, "SELECT row FROM copied")]

    def change_log(self, table: str | TableName) -> list[LoggedChange]:
        """Every change since the copy, in the order in which they came."""
        query = "SELECT op, commit_lsn, tx_ordinal, xid, row, old, unchanged FROM change_log"
        return [
            LoggedChange(op, Lsn(lsn), ordinal, xid, _loaded(row), _loaded(old), tuple(_loaded(unchanged) or ()))
            for op, lsn, ordinal, xid, row, old, unchanged in self._select(table, query)
        ]

    def quarantine(self, table: str | TableName) -> list[dict[str, Any]]:
        """Values that were rejected, with the fields of `REJECTED_FIELDS`."""
        query = "SELECT key, column_name, text, commit_lsn, tx_ordinal FROM quarantine"
        names = ("key", "column", "text", "commit_lsn", "tx_ordinal")
        return [dict(zip(names, values, strict=True)) for values in self._select(table, query)]

    def _select(self, table: str | TableName, query: str) -> list[tuple[Any, ...]]:
        with self._reading() as connection:
            ids = connection.execute("SELECT id FROM tables WHERE name = ?", (str(table),)).fetchall()
            if not ids:
                msg = f"{self._path} has no table {table}"
                raise KeyError(msg)
            return connection.execute(f"{query} WHERE table_id = ? ORDER BY rowid", ids[-1]).fetchall()

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            if self._connection is None:
                self._connection = _opened(self._path)
            yield self._connection

    @contextmanager
    def _writing(self, method: str, schema: ReplicatedTableSchema) -> Iterator[sqlite3.Connection]:
        table = str(schema.table.name)
        with self._transaction(f"table {table}") as connection:
            self._check_epoch(connection)
            yield connection
            self._before_commit(method, table)
        self._after_commit(method, table)

    def _check_epoch(self, connection: sqlite3.Connection) -> None:
        if self._context is None:
            return  # used without a pipeline
        if self._epoch is None:
            msg = f"{self._path} is written to before it was claimed"
            raise DestinationError(msg, hint="this is a bug in headrace", retry=RetryPolicy.NONE)
        pipeline_id = self._context.pipeline_id
        (epoch,) = connection.execute("SELECT epoch FROM owner WHERE pipeline_id = ?", (pipeline_id,)).fetchone()
        if epoch != self._epoch:
            msg = f"another run of pipeline {pipeline_id} has taken over {self._path}"
            raise DestinationFenced(msg, detail=f"its epoch is {epoch}, this run has {self._epoch}")

    @contextmanager
    def _transaction(self, what: str) -> Iterator[sqlite3.Connection]:
        with self._reading() as connection:
            try:
                connection.execute("BEGIN IMMEDIATE")
                yield connection
                connection.execute("COMMIT")
            except sqlite3.Error as error:
                msg = f"cannot write {what} to {self._path}"
                raise DestinationError(msg, detail=str(error)) from error
            finally:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")


def _nothing(method: str, table: str) -> None:
    del method, table


def _opened(path: Path) -> sqlite3.Connection:
    # Every thread may use the connection: the lock admits one at a time.
    connection = sqlite3.connect(path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    # Asked first: who only reads must not wait for a writer.
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'tables'").fetchall():
        connection.executescript(f"BEGIN IMMEDIATE; {_TABLES} COMMIT;")
    return connection


def _applied(connection: sqlite3.Connection, table_id: int) -> Lsn | None:
    found = connection.execute("SELECT applied_lsn FROM tables WHERE id = ?", (table_id,)).fetchone()
    return None if found is None or found[0] is None else Lsn(found[0])


def _parts(connection: sqlite3.Connection, table_id: int) -> frozenset[int]:
    return frozenset(part for (part,) in connection.execute("SELECT part FROM parts WHERE table_id = ?", (table_id,)))


def _create(connection: sqlite3.Connection, schema: ReplicatedTableSchema) -> None:
    connection.execute(
        "INSERT INTO tables (id, name) VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET name = excluded.name",
        (schema.table.id, str(schema.table.name)),
    )


def _copy(connection: sqlite3.Connection, schema: ReplicatedTableSchema, rows: Rows) -> None:
    table_id = schema.table.id
    for batch in rows.batches():
        texts = insert_rows(connection, schema, batch)
        connection.executemany("INSERT INTO copied VALUES (?, ?)", ((table_id, text) for text in texts))
    _quarantine(connection, schema, rows)


def _write_steps(connection: sqlite3.Connection, part: TableBatch) -> None:
    for step in part.steps:
        if isinstance(step, Changes):
            _log(connection, step)
            _record_shape(connection, step.schema)
            merge(connection, step.schema, folded(step))
            _quarantine(connection, step.schema, step.rows)
        elif isinstance(step, Truncate):
            table_id = part.schema.table.id
            connection.execute("DELETE FROM state WHERE table_id = ?", (table_id,))
            values = (table_id, "T", int(step.commit_lsn), step.tx_ordinal, step.xid, None, None, None)
            connection.execute("INSERT INTO change_log VALUES (?, ?, ?, ?, ?, ?, ?, ?)", values)
        else:
            _create(connection, step.new)
            _alter(connection, step)


def _log(connection: sqlite3.Connection, changes: Changes) -> None:
    for batch in changes.rows.batches():
        statement = "INSERT INTO change_log VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
        connection.executemany(statement, _logged(changes.schema, batch))


def _logged(schema: ReplicatedTableSchema, batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    table_id = schema.table.id
    names = [column.name for column in schema.columns]
    every = frozenset(range(len(names)))
    key = frozenset(names.index(column.name) for column in schema.identity)
    place = (batch[name].to_pylist() for name in ("op", "commit_lsn", "tx_ordinal", "xid"))
    rows = (canonical_texts(batch[name].flatten()) for name in ("row", "old"))
    fields = zip(*place, batch["unchanged"].to_pylist(), batch["old_kind"].to_pylist(), *rows, strict=True)
    for op, lsn, ordinal, xid, unchanged, kind, row, old in fields:
        left_out = canonical_text([names[i] for i in unchanged]) if unchanged else None
        sent = None if op == "D" else _object(names, row, every.difference(unchanged or ()))
        had = None if kind is None else _object(names, old, every if kind == "O" else key)
        yield table_id, op, lsn, ordinal, xid, left_out, sent, had


def _object(names: list[str], texts: tuple[str, ...], positions: frozenset[int]) -> str:
    if len(positions) == len(names):
        return object_text(names, texts)
    chosen = sorted(positions)
    return object_text([names[i] for i in chosen], [texts[i] for i in chosen])


def _alter(connection: sqlite3.Connection, relation: Relation) -> None:
    """Give the rows the new names; a new column shows what the source shows in rows older than it.

    It may have been done already: which column is which, the record says, not the relation.
    """
    table_id, found_by = relation.new.table.id, relation.new.found_by
    (recorded,) = connection.execute("SELECT shape FROM tables WHERE id = ?", (table_id,)).fetchone()
    if recorded == _shape(relation.new):
        return
    names = {} if recorded is None else dict(json.loads(recorded)[0])
    columns = [(column.name, names.get(column.attnum)) for column in relation.new.columns]
    existing = {
        column.name: next(canonical_texts([pa.repeat(existing_value(column), 1)]))[0] for column in relation.new.columns
    }
    found = connection.execute("SELECT rowid, row FROM state WHERE table_id = ?", (table_id,)).fetchall()
    for rowid, text in found:
        old = json.loads(text)
        row = {new: json.loads(existing[new]) if name is None else old[name] for new, name in columns}
        values = [row[column.name] for column in found_by]
        connection.execute(
            "UPDATE state SET key = ?, row = ? WHERE rowid = ?", (canonical_text(values), canonical_text(row), rowid)
        )
    _record_shape(connection, relation.new)


def _record_shape(connection: sqlite3.Connection, schema: ReplicatedTableSchema) -> None:
    connection.execute("UPDATE tables SET shape = ? WHERE id = ?", (_shape(schema), schema.table.id))


def _shape(schema: ReplicatedTableSchema) -> str:
    """Which names the columns have in the rows, and by which of them rows are found."""
    return canonical_text([[[c.attnum, c.name] for c in schema.columns], [c.name for c in schema.found_by]])


def _quarantine(connection: sqlite3.Connection, schema: ReplicatedTableSchema, rows: Rows) -> None:
    rejected = rows.rejected()
    for batch in () if rejected is None else rejected.batches():
        values = zip(*(column.to_pylist() for column in batch.columns), strict=True)
        connection.executemany(
            "INSERT INTO quarantine VALUES (?, ?, ?, ?, ?, ?)", ((schema.table.id, *row) for row in values)
        )


def _loaded(text: str | None) -> Any:
    return None if text is None else json.loads(text)
