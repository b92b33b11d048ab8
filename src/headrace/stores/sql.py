"""The store on any SQL database: every statement and what it means, once.

A `Database` brings the connection, transactions and the few words in which databases differ. Statements are written
with `?` for parameters and `@` in front of table names, which the database replaces by its own placeholders and schema.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Protocol, TypeVar

from ..lsn import Lsn
from ..schema import ReplicatedTableSchema
from ..schema_policy import Target
from ..table_state import TableState
from . import encoding
from .contract import HISTORY_KEPT
from .moves import INIT, is_move, previous_state, require_known
from .records import (
    APPLY,
    CopyRecord,
    CopyStart,
    DestinationTableMetadata,
    Heartbeat,
    SchemaStatus,
    SchemaVersion,
    StateEntry,
    Worker,
)
from .requests import RequestKind, TableRequest
from .sql_copies import CopyOfTable

__all__ = ["Database", "Execute", "Row", "SqlStore"]

T = TypeVar("T")
Row = tuple[Any, ...]
Execute = Callable[..., list[Row]]
"""`execute(statement, *parameters)`: the rows it gives, none for a statement that gives none."""

# The current state of a table is the one with the highest step.
_STATES = (
    "SELECT s.table_id, s.state, CAST(s.detail AS TEXT) FROM @table_state s JOIN "
    "(SELECT table_id, max(step) AS step FROM @table_state WHERE pipeline_id = ? GROUP BY table_id) newest "
    "ON newest.table_id = s.table_id AND newest.step = s.step WHERE s.pipeline_id = ?"
)
_SCHEMAS = "SELECT snapshot_lsn, CAST(definition AS TEXT) FROM @table_schema WHERE pipeline_id = ?"
_METADATA = (
    "SELECT table_id, destination_table_id, snapshot_lsn, CAST(mask AS TEXT), status, previous_snapshot_lsn "
    "FROM @destination_table WHERE pipeline_id = ?"
)
_STORE_SCHEMA = (
    "INSERT INTO @table_schema (pipeline_id, table_id, snapshot_lsn, definition) VALUES (?, ?, ?, ?) "
    "ON CONFLICT (pipeline_id, table_id, snapshot_lsn) DO UPDATE SET definition = excluded.definition"
)
_OBSOLETE = (
    "FROM @table_schema WHERE pipeline_id = ? AND table_id = ? AND snapshot_lsn < "
    "(SELECT max(snapshot_lsn) FROM @table_schema WHERE pipeline_id = ? AND table_id = ? AND snapshot_lsn <= ?)"
)
_ENTER_STATE = (
    "INSERT INTO @table_state (pipeline_id, table_id, step, state, detail, entered_at) VALUES (?, ?, ?, ?, ?, ?)"
)
_UPDATE_PROGRESS = (
    "INSERT INTO @progress AS stored (pipeline_id, table_id, lsn) VALUES (?, ?, ?) "
    "ON CONFLICT (pipeline_id, table_id) DO UPDATE SET lsn = excluded.lsn WHERE excluded.lsn > stored.lsn"
)
_ACKNOWLEDGE = (
    "INSERT INTO @acknowledged (pipeline_id, table_id, lsn) VALUES (?, ?, ?) "
    "ON CONFLICT (pipeline_id, table_id) DO UPDATE SET lsn = excluded.lsn"
)
_STORE_METADATA = (
    "INSERT INTO @destination_table "
    "(pipeline_id, table_id, destination_table_id, snapshot_lsn, mask, status, previous_snapshot_lsn) "
    "VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (pipeline_id, table_id) DO UPDATE SET "
    "destination_table_id = excluded.destination_table_id, snapshot_lsn = excluded.snapshot_lsn, "
    "mask = excluded.mask, status = excluded.status, previous_snapshot_lsn = excluded.previous_snapshot_lsn"
)
_STORE_HEARTBEAT = (
    "INSERT INTO @heartbeat (pipeline_id, report) VALUES (?, ?) "
    "ON CONFLICT (pipeline_id) DO UPDATE SET report = excluded.report"
)
_STORE_FIRST_SYSTEM_ID = (
    "INSERT INTO @upgraded_source (pipeline_id, system_id, first_system_id) VALUES (?, ?, ?) "
    "ON CONFLICT (pipeline_id, system_id) DO UPDATE SET first_system_id = excluded.first_system_id"
)
_ASK = (
    "INSERT INTO @table_request (pipeline_id, table_id, kind) VALUES (?, ?, ?) "
    "ON CONFLICT (pipeline_id, table_id) DO UPDATE SET kind = excluded.kind"
)

_COPY = ("table_copy", "copied_range")


class Database(Protocol):
    """A place with the store's tables, safe to use from several threads. Raises StoreError for what the medium does."""

    def read(self, work: Callable[[Execute], T]) -> T:
        """Run one statement."""

    def write(self, pipeline_id: int, work: Callable[[Execute], T]) -> T:
        """Run `work` in a transaction, alone for this pipeline. May call it again if nothing was committed."""

    def lsn_parameter(self, lsn: Lsn) -> str:
        """An LSN in the form in which this database stores and orders it."""

    def lsn_result(self, value: str) -> Lsn: ...

    def time_result(self, value: Any) -> datetime: ...

    def close(self) -> None: ...


class SqlStore:
    """Implements `PipelineStore` on a database."""

    def __init__(self, database: Database, pipeline_id: int) -> None:
        self._database = database
        self._pipeline = pipeline_id
        self._lsn = database.lsn_parameter

    def store_table_schema(self, schema: ReplicatedTableSchema, since: Lsn, target: Target | None = None) -> None:
        definition = encoding.encode_schema(schema, target)
        self._write(_STORE_SCHEMA, self._pipeline, schema.table.id, self._lsn(since), definition)

    def get_table_schema(self, table_id: int, at: Lsn) -> SchemaVersion | None:
        newest = f"{_SCHEMAS} AND table_id = ? AND snapshot_lsn <= ? ORDER BY snapshot_lsn DESC LIMIT 1"
        rows = self._read(newest, self._pipeline, table_id, self._lsn(at))
        return self._version(rows[0]) if rows else None

    def get_table_schemas(self) -> list[SchemaVersion]:
        rows = self._read(f"{_SCHEMAS} ORDER BY table_id, snapshot_lsn", self._pipeline)
        return [self._version(row) for row in rows]

    def prune_table_schemas(self, needed_from: Mapping[int, Lsn]) -> int:
        def prune(execute: Execute) -> int:
            count = 0
            for table_id, lsn in needed_from.items():
                which = (self._pipeline, table_id, self._pipeline, table_id, self._lsn(lsn))
                count += execute(f"SELECT count(*) {_OBSOLETE}", *which)[0][0]
                execute(f"DELETE {_OBSOLETE}", *which)
            return count

        return self._database.write(self._pipeline, prune)

    def get_table_state(self, table_id: int) -> TableState | None:
        return self._database.read(lambda execute: self._current(execute, table_id))

    def get_table_states(self) -> dict[int, TableState]:
        return self._database.read(self._all_current)

    def get_table_state_history(self, table_id: int) -> list[StateEntry]:
        rows = self._read(
            "SELECT state, CAST(detail AS TEXT), entered_at FROM @table_state "
            "WHERE pipeline_id = ? AND table_id = ? ORDER BY step",
            self._pipeline,
            table_id,
        )
        at = self._database.time_result
        return [StateEntry(encoding.decode_state(name, detail), at(entered)) for name, detail, entered in rows]

    def update_table_states(self, updates: Mapping[int, TableState]) -> None:
        def move(execute: Execute) -> None:
            for table_id, to in updates.items():
                if is_move(self._current(execute, table_id), to):
                    self._enter(execute, table_id, to)

        self._database.write(self._pipeline, move)

    def rollback_table_state(self, table_id: int) -> TableState:
        def roll_back(execute: Execute) -> TableState:
            rows = self._latest(execute, table_id, 2)
            previous = previous_state(table_id, [encoding.decode_state(*row[1:]) for row in reversed(rows)])
            where = "WHERE pipeline_id = ? AND table_id = ? AND step = ?"
            execute(f"DELETE FROM @table_state {where}", self._pipeline, table_id, rows[0][0])
            return previous

        return self._database.write(self._pipeline, roll_back)

    def rollback_table_state_to_init(self, table_id: int) -> None:
        def start_over(execute: Execute) -> None:
            current = self._current(execute, table_id)
            require_known(table_id, current)
            if current != INIT:
                self._enter(execute, table_id, INIT)

        self._database.write(self._pipeline, start_over)

    def get_progress(self, worker: Worker) -> Lsn | None:
        return self._database.read(lambda execute: self._progress(execute, worker))

    def get_all_progress(self) -> dict[Worker, Lsn]:
        rows = self._read("SELECT table_id, lsn FROM @progress WHERE pipeline_id = ?", self._pipeline)
        return {Worker(table_id or None): self._database.lsn_result(lsn) for table_id, lsn in rows}

    def update_progress(self, worker: Worker, lsn: Lsn) -> Lsn:
        def move(execute: Execute) -> Lsn:
            execute(_UPDATE_PROGRESS, self._pipeline, _table_of(worker), self._lsn(lsn))
            return self._progress(execute, worker) or lsn

        return self._database.write(self._pipeline, move)

    def delete_progress(self, *workers: Worker) -> None:
        def forget(execute: Execute) -> None:
            for worker in workers:
                execute(
                    "DELETE FROM @progress WHERE pipeline_id = ? AND table_id = ?", self._pipeline, _table_of(worker)
                )

        self._database.write(self._pipeline, forget)

    def acknowledge(self, applied: Mapping[int, Lsn]) -> None:
        def keep(execute: Execute) -> None:
            for table_id, lsn in applied.items():
                execute(_ACKNOWLEDGE, self._pipeline, table_id, self._lsn(lsn))

        self._database.write(self._pipeline, keep)

    def get_acknowledged(self) -> dict[int, Lsn]:
        rows = self._read("SELECT table_id, lsn FROM @acknowledged WHERE pipeline_id = ?", self._pipeline)
        return {table_id: self._database.lsn_result(lsn) for table_id, lsn in rows}

    def get_destination_metadata(self, table_id: int) -> DestinationTableMetadata | None:
        rows = self._read(f"{_METADATA} AND table_id = ?", self._pipeline, table_id)
        return self._metadata(rows[0]) if rows else None

    def get_all_destination_metadata(self) -> dict[int, DestinationTableMetadata]:
        return {row[0]: self._metadata(row) for row in self._read(_METADATA, self._pipeline)}

    def store_destination_metadata(self, table_id: int, metadata: DestinationTableMetadata) -> None:
        previous = metadata.previous_snapshot_lsn
        self._write(
            _STORE_METADATA,
            self._pipeline,
            table_id,
            metadata.destination_table_id,
            self._lsn(metadata.snapshot_lsn),
            encoding.encode_mask(metadata.mask),
            metadata.status.value,
            None if previous is None else self._lsn(previous),
        )

    def begin_copy(self, table_id: int, start: CopyStart) -> None:
        self._of_copy(table_id, lambda copy: copy.begin(start))

    def get_copy(self, table_id: int) -> tuple[CopyStart, list[CopyRecord]] | None:
        # Two statements, which must speak of the same copy: hence not a read.
        return self._of_copy(table_id, lambda copy: copy.get())

    def finish_copy_range(self, table_id: int, record: CopyRecord) -> None:
        self._of_copy(table_id, lambda copy: copy.finish(record))

    def raise_copy_lsn(self, table_id: int, snapshot_lsn: Lsn) -> Lsn:
        return self._of_copy(table_id, lambda copy: copy.raise_lsn(snapshot_lsn))

    def ask(self, request: TableRequest) -> None:
        self._write(_ASK, self._pipeline, request.table_id, request.kind.value)

    def get_requests(self) -> list[TableRequest]:
        rows = self._read(
            "SELECT kind, table_id FROM @table_request WHERE pipeline_id = ? ORDER BY table_id", self._pipeline
        )
        return [TableRequest(RequestKind(kind), table_id) for kind, table_id in rows]

    def withdraw_request(self, request: TableRequest) -> bool:
        where = "WHERE pipeline_id = ? AND table_id = ? AND kind = ?"
        which = (self._pipeline, request.table_id, request.kind.value)

        def withdraw(execute: Execute) -> bool:
            stands = bool(execute(f"SELECT 1 FROM @table_request {where}", *which))
            execute(f"DELETE FROM @table_request {where}", *which)
            return stands

        return self._database.write(self._pipeline, withdraw)

    def store_heartbeat(self, heartbeat: Heartbeat) -> None:
        self._write(_STORE_HEARTBEAT, self._pipeline, encoding.encode_heartbeat(heartbeat))

    def get_heartbeat(self) -> Heartbeat | None:
        rows = self._read("SELECT CAST(report AS TEXT) FROM @heartbeat WHERE pipeline_id = ?", self._pipeline)
        return encoding.decode_heartbeat(rows[0][0]) if rows else None

    def store_first_system_id(self, system_id: str, first: str) -> None:
        self._write(_STORE_FIRST_SYSTEM_ID, self._pipeline, system_id, first)

    def get_first_system_id(self, system_id: str) -> str | None:
        where = "WHERE pipeline_id = ? AND system_id = ?"
        rows = self._read(f"SELECT first_system_id FROM @upgraded_source {where}", self._pipeline, system_id)
        return rows[0][0] if rows else None

    def prepare_for_copy(self, table_id: int) -> None:
        self._forget(table_id, "table_schema", "progress", "acknowledged", *_COPY)

    def reset_for_resync(self) -> int:
        def reset(execute: Execute) -> int:
            moved = [table_id for table_id, state in self._all_current(execute).items() if state != INIT]
            for table_id in moved:
                self._enter(execute, table_id, INIT)
            execute("DELETE FROM @progress WHERE pipeline_id = ? AND table_id = ?", self._pipeline, _table_of(APPLY))
            return len(moved)

        return self._database.write(self._pipeline, reset)

    def delete_table(self, table_id: int) -> None:
        kept = ("table_state", "table_schema", "destination_table", "progress", "acknowledged", "table_request", *_COPY)
        self._forget(table_id, *kept)

    def close(self) -> None:
        self._database.close()

    def _read(self, statement: str, *parameters: object) -> list[Row]:
        return self._database.read(lambda execute: execute(statement, *parameters))

    def _write(self, statement: str, *parameters: object) -> None:
        self._database.write(self._pipeline, lambda execute: execute(statement, *parameters))

    def _of_copy(self, table_id: int, work: Callable[[CopyOfTable], T]) -> T:
        database = self._database
        return database.write(
            self._pipeline,
            lambda execute: work(CopyOfTable(execute, self._lsn, database.lsn_result, self._pipeline, table_id)),
        )

    def _forget(self, table_id: int, *tables: str) -> None:
        def forget(execute: Execute) -> None:
            for table in tables:
                execute(f"DELETE FROM @{table} WHERE pipeline_id = ? AND table_id = ?", self._pipeline, table_id)

        self._database.write(self._pipeline, forget)

    def _latest(self, execute: Execute, table_id: int, count: int) -> Sequence[Row]:
        """The newest steps of a table as (step, state, detail), newest first."""
        return execute(
            "SELECT step, state, CAST(detail AS TEXT) FROM @table_state "
            "WHERE pipeline_id = ? AND table_id = ? ORDER BY step DESC LIMIT ?",
            self._pipeline,
            table_id,
            count,
        )

    def _current(self, execute: Execute, table_id: int) -> TableState | None:
        rows = self._latest(execute, table_id, 1)
        return encoding.decode_state(*rows[0][1:]) if rows else None

    def _all_current(self, execute: Execute) -> dict[int, TableState]:
        rows = execute(_STATES, self._pipeline, self._pipeline)
        return {table_id: encoding.decode_state(name, detail) for table_id, name, detail in rows}

    def _enter(self, execute: Execute, table_id: int, state: TableState) -> None:
        rows = self._latest(execute, table_id, 1)
        step = rows[0][0] + 1 if rows else 1
        detail, now = encoding.encode_state_detail(state), datetime.now(UTC).isoformat()
        execute(_ENTER_STATE, self._pipeline, table_id, step, state.state.value, detail, now)
        old = "DELETE FROM @table_state WHERE pipeline_id = ? AND table_id = ? AND step <= ?"
        execute(old, self._pipeline, table_id, step - HISTORY_KEPT)

    def _progress(self, execute: Execute, worker: Worker) -> Lsn | None:
        stored = "SELECT lsn FROM @progress WHERE pipeline_id = ? AND table_id = ?"
        rows = execute(stored, self._pipeline, _table_of(worker))
        return self._database.lsn_result(rows[0][0]) if rows else None

    def _version(self, row: Row) -> SchemaVersion:
        lsn, text = self._database.lsn_result(row[0]), row[1]
        return SchemaVersion(lsn, encoding.decode_schema(text), encoding.decode_target(text))

    def _metadata(self, row: Row) -> DestinationTableMetadata:
        _, destination_table_id, snapshot, mask, status, previous = row
        lsn = self._database.lsn_result
        return DestinationTableMetadata(
            destination_table_id=destination_table_id,
            snapshot_lsn=lsn(snapshot),
            mask=encoding.decode_mask(mask),
            status=SchemaStatus(status),
            previous_snapshot_lsn=None if previous is None else lsn(previous),
        )


def _table_of(worker: Worker) -> int:
    """The apply loop is kept under 0, the OID that no table has."""
    return worker.table_id or 0
