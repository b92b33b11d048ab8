"""A store that forgets: for tests, trials and pipelines that copy everything anew at each start."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from ..lsn import Lsn
from ..schema import ReplicatedTableSchema
from ..schema_policy import Target
from ..table_state import TableState
from .contract import HISTORY_KEPT
from .copies import require_begun
from .moves import INIT, is_move, previous_state, require_known
from .records import (
    APPLY,
    CopyRecord,
    CopyStart,
    DestinationTableMetadata,
    Heartbeat,
    SchemaVersion,
    StateEntry,
    Worker,
)
from .requests import TableRequest

__all__ = ["MemoryStore"]


@dataclass(slots=True)
class _Table:
    """Everything kept for one table."""

    history: list[StateEntry] = field(default_factory=list)
    schemas: dict[Lsn, SchemaVersion] = field(default_factory=dict)
    metadata: DestinationTableMetadata | None = None
    copy: CopyStart | None = None
    copied: dict[int, CopyRecord] = field(default_factory=dict)

    @property
    def state(self) -> TableState | None:
        return self.history[-1].state if self.history else None

    def enter(self, state: TableState) -> None:
        self.history.append(StateEntry(state, datetime.now(UTC)))
        del self.history[:-HISTORY_KEPT]


class MemoryStore:
    """Implements `PipelineStore` in this process's memory. Each instance is a pipeline of its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tables: dict[int, _Table] = {}
        self._progress: dict[Worker, Lsn] = {}
        self._acknowledged: dict[int, Lsn] = {}
        self._requests: dict[int, TableRequest] = {}
        self._heartbeat: Heartbeat | None = None
        self._first_system_ids: dict[str, str] = {}

    def store_table_schema(self, schema: ReplicatedTableSchema, since: Lsn, target: Target | None = None) -> None:
        with self._lock:
            self._table(schema.table.id).schemas[since] = SchemaVersion(since, schema, target)

    def get_table_schema(self, table_id: int, at: Lsn) -> SchemaVersion | None:
        with self._lock:
            table = self._tables.get(table_id, _Table())
            return table.schemas.get(max((lsn for lsn in table.schemas if lsn <= at), default=Lsn()))

    def get_table_schemas(self) -> list[SchemaVersion]:
        with self._lock:
            return [table.schemas[lsn] for _, table in sorted(self._tables.items()) for lsn in sorted(table.schemas)]

    def prune_table_schemas(self, needed_from: Mapping[int, Lsn]) -> int:
        with self._lock:
            return sum(self._prune(table_id, lsn) for table_id, lsn in needed_from.items())

    def get_table_state(self, table_id: int) -> TableState | None:
        with self._lock:
            return self._tables.get(table_id, _Table()).state

    def get_table_states(self) -> dict[int, TableState]:
        with self._lock:
            return {table_id: table.state for table_id, table in self._tables.items() if table.state is not None}

    def get_table_state_history(self, table_id: int) -> list[StateEntry]:
        with self._lock:
            return list(self._tables.get(table_id, _Table()).history)

    def update_table_states(self, updates: Mapping[int, TableState]) -> None:
        with self._lock:
            moves = [i for i, to in updates.items() if is_move(self._tables.get(i, _Table()).state, to)]
            for table_id in moves:
                self._table(table_id).enter(updates[table_id])

    def rollback_table_state(self, table_id: int) -> TableState:
        with self._lock:
            history = self._tables.get(table_id, _Table()).history
            previous = previous_state(table_id, [entry.state for entry in history])
            history.pop()
            return previous

    def rollback_table_state_to_init(self, table_id: int) -> None:
        with self._lock:
            self._to_init(table_id)

    def get_progress(self, worker: Worker) -> Lsn | None:
        with self._lock:
            return self._progress.get(worker)

    def get_all_progress(self) -> dict[Worker, Lsn]:
        with self._lock:
            return dict(self._progress)

    def update_progress(self, worker: Worker, lsn: Lsn) -> Lsn:
        with self._lock:
            stored = self._progress[worker] = max(lsn, self._progress.get(worker, lsn))
            return stored

    def delete_progress(self, *workers: Worker) -> None:
        with self._lock:
            for worker in workers:
                self._progress.pop(worker, None)

    def acknowledge(self, applied: Mapping[int, Lsn]) -> None:
        with self._lock:
            self._acknowledged.update(applied)

    def get_acknowledged(self) -> dict[int, Lsn]:
        with self._lock:
            return dict(self._acknowledged)

    def get_destination_metadata(self, table_id: int) -> DestinationTableMetadata | None:
        with self._lock:
            return self._tables.get(table_id, _Table()).metadata

    def get_all_destination_metadata(self) -> dict[int, DestinationTableMetadata]:
        with self._lock:
            return {i: table.metadata for i, table in self._tables.items() if table.metadata is not None}

    def store_destination_metadata(self, table_id: int, metadata: DestinationTableMetadata) -> None:
        with self._lock:
            self._table(table_id).metadata = metadata

    def begin_copy(self, table_id: int, start: CopyStart) -> None:
        with self._lock:
            table = self._table(table_id)
            table.copy, table.copied = start, {}

    def get_copy(self, table_id: int) -> tuple[CopyStart, list[CopyRecord]] | None:
        with self._lock:
            table = self._tables.get(table_id, _Table())
            if table.copy is None:
                return None
            return table.copy, [record for _, record in sorted(table.copied.items())]

    def finish_copy_range(self, table_id: int, record: CopyRecord) -> None:
        with self._lock:
            table = self._tables.get(table_id, _Table())
            require_begun(table_id, table.copy is not None)
            table.copied[record.position] = record

    def raise_copy_lsn(self, table_id: int, snapshot_lsn: Lsn) -> Lsn:
        with self._lock:
            table = self._tables.get(table_id, _Table())
            require_begun(table_id, table.copy is not None)
            assert table.copy is not None
            table.copy = replace(table.copy, snapshot_lsn=max(snapshot_lsn, table.copy.snapshot_lsn))
            return table.copy.snapshot_lsn

    def ask(self, request: TableRequest) -> None:
        with self._lock:
            self._requests[request.table_id] = request

    def get_requests(self) -> list[TableRequest]:
        with self._lock:
            return [request for _, request in sorted(self._requests.items())]

    def withdraw_request(self, request: TableRequest) -> bool:
        with self._lock:
            stands = self._requests.get(request.table_id) == request
            if stands:
                del self._requests[request.table_id]
            return stands

    def store_heartbeat(self, heartbeat: Heartbeat) -> None:
        with self._lock:
            self._heartbeat = heartbeat

    def get_heartbeat(self) -> Heartbeat | None:
        with self._lock:
            return self._heartbeat

    def store_first_system_id(self, system_id: str, first: str) -> None:
        with self._lock:
            self._first_system_ids[system_id] = first

    def get_first_system_id(self, system_id: str) -> str | None:
        with self._lock:
            return self._first_system_ids.get(system_id)

    def prepare_for_copy(self, table_id: int) -> None:
        with self._lock:
            table = self._table(table_id)
            table.schemas.clear()
            table.copy = None
            table.copied.clear()
            self._progress.pop(Worker(table_id), None)
            self._acknowledged.pop(table_id, None)

    def reset_for_resync(self) -> int:
        with self._lock:
            moved = [table_id for table_id, table in self._tables.items() if table.state not in (None, INIT)]
            for table_id in moved:
                self._to_init(table_id)
            self._progress.pop(APPLY, None)
            return len(moved)

    def delete_table(self, table_id: int) -> None:
        with self._lock:
            self._tables.pop(table_id, None)
            self._requests.pop(table_id, None)
            self._acknowledged.pop(table_id, None)
            self._progress.pop(Worker(table_id), None)

    def close(self) -> None:
        """Nothing is held."""

    def _table(self, table_id: int) -> _Table:
        return self._tables.setdefault(table_id, _Table())

    def _to_init(self, table_id: int) -> None:
        table = self._tables.get(table_id, _Table())
        require_known(table_id, table.state)
        if table.state != INIT:
            table.enter(INIT)

    def _prune(self, table_id: int, lsn: Lsn) -> int:
        schemas = self._tables.get(table_id, _Table()).schemas
        needed = max((version for version in schemas if version <= lsn), default=Lsn())
        obsolete = [version for version in schemas if version < needed]
        for version in obsolete:
            del schemas[version]
        return len(obsolete)
