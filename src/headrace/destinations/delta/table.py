"""One Delta table: its live files, and commits that hold rows, deletes, schema and the pipeline's record at once."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import structlog

from ...errors import DestinationConflict, DestinationError, DestinationRejected
from ...lsn import Lsn
from ..lake.contract import Wrapping
from ..lake.files import LiveFile, TableLayout, Written
from ..lake.java_errors import CommitStateUnknown, TableGone
from ..lake.operations import Files, Operation, key_ids
from ..lake.places import file_io
from ..lake.record import LSN, PARTS, Record
from .java import Commit, DeltaJava, delta_errors
from .log_state import LogState, live_file, relative_path
from .schema import delta_schema, lake_schema, largest_id
from .statistics import statistics_text, wide

__all__ = ["MAX_COLUMN_ID", "DeltaTable", "lake_schema_json", "read_state"]

_log = structlog.get_logger("headrace.destinations.delta")

MAX_COLUMN_ID = "delta.columnMapping.maxColumnId"
# With more commits of others than this, the whole table is read instead of them.
_MOST_COMMITS = 200
_SCHEMAS_KEPT = 256


@dataclass(frozen=True, slots=True)
class _Pending:
    """What a commit makes of the table."""

    files: dict[str, Mapping[str, Any]]
    metadata: Mapping[str, Any]
    schema_json: str


class DeltaTable:
    """A table as it was when last refreshed. Used by one thread at a time."""

    def __init__(
        self, java: DeltaJava, log: Any, state: LogState, layout: TableLayout, wrapping: Wrapping, source: str
    ) -> None:
        """`source` tells the pipeline and the source's table: the application whose transactions are ours."""
        self._java, self._log, self._state, self._application = java, log, state, source
        self.layout, self.key, self.fence = layout, wrapping.key, wrapping.fence
        self.keys = key_ids(layout.schema_json, wrapping.key)
        self._snapshot: Any = None
        self._foreign = state.version
        self._known: Files | None = None

    @property
    def state(self) -> LogState:
        return self._state

    @property
    def table_id(self) -> str:
        return str(self._state.metadata["id"])

    @property
    def version(self) -> int:
        return self._state.version

    def is_ours_since(self, version: int) -> bool:
        """Whether all commits after a version are ours."""
        return self._foreign <= version

    def is_as_laid_out(self) -> bool:
        """Whether the layout has the schema that the table has, as of the last refresh."""
        return lake_schema_json(self._state.metadata, self.layout.name) == self.layout.schema_json

    def properties(self) -> dict[str, str]:
        return dict(self._state.properties)

    def last_field_id(self) -> int:
        return int(self._state.properties.get(MAX_COLUMN_ID, 0))

    def pinned_fields(self) -> frozenset[int]:
        return frozenset()

    def record(self) -> Record:
        applied = self._state.applied
        lsn = {LSN: str(Lsn(applied))} if applied else {}
        return Record.read({**self._state.properties, **lsn}, None)

    def files(self) -> Files:
        """The live files as of the last refresh."""
        if self._known is None or self._known.snapshot != self._state.version:
            live = {path: self._live(path, entry) for path, entry in self._state.files.items()}
            self._known = Files(self._state.version, live)
        return self._known

    def refresh(self) -> None:
        """Take in what others committed."""
        with delta_errors(f"look at table {self.layout.name}"):
            self._snapshot = self._java.updated(self._log)
            version = int(self._snapshot.version())
        if version == self._state.version:
            return
        if version < 0:
            msg = f"table {self.layout.name} is there no more"
            raise TableGone(msg)
        before = self._state
        self._state, self._foreign = self._read(version), version
        if self._state.metadata["id"] != before.metadata["id"]:
            msg = f"table {self.layout.name} was replaced by another"
            raise TableGone(msg)
        self._carry(before)

    def set_property(self, name: str, value: str) -> None:
        metadata = {**self._state.metadata, "configuration": {**self._state.properties, name: value}}
        self._commit([], metadata)

    def commit(self, planned: Files, operations: Iterable[Operation], record: Record) -> None:
        """All operations and the record, or nothing: as one version, whatever happened in between.

        `planned` are the files that the operations were made for. Raises DestinationConflict if another writer has
        replaced one of them meanwhile: refresh, and do the work again.
        """
        self._check_planned(planned)
        pending = self._pending(operations)
        configuration = dict(pending.metadata["configuration"])
        configuration |= {PARTS: record.summary()[PARTS]}
        metadata = {**pending.metadata, "configuration": configuration}
        self._commit(self._actions(pending.files, record.lsn), metadata)

    def add(self, written: Written, properties: Mapping[str, str | None]) -> None:
        """Files and properties (None: removed), or nothing; the record stays."""
        pending = self._pending([Operation(written)])
        configuration = {**self._state.properties, **properties}
        kept = {name: value for name, value in configuration.items() if value is not None}
        metadata = {**self._state.metadata, "configuration": kept}
        self._commit(self._actions(pending.files, None, keeps_record=True), metadata)

    def replace_files(self, planned: Files, written: Written) -> None:
        """Put files in the place of others that hold the same rows. Raises DestinationConflict as `commit` does."""
        self._check_planned(planned)
        pending = self._pending([Operation(written)])
        self._commit(self._actions(pending.files, None, keeps_record=True, changes_data=False), None)

    def _check_planned(self, planned: Files) -> None:
        if planned.snapshot != self._state.version:
            msg = f"table {self.layout.name} was refreshed while it was written"
            raise DestinationConflict(msg)

    def _pending(self, operations: Iterable[Operation]) -> _Pending:
        pending = _Pending(dict(self._state.files), self._state.metadata, self.layout.schema_json)
        for operation in operations:
            if operation.alteration is not None:
                pending = self._altered(pending, operation.alteration.schema_json, operation.alteration.properties)
            if operation.truncate:
                pending.files.clear()
            self._apply(pending, operation.written)
        return pending

    def _altered(self, pending: _Pending, schema_json: str, properties: Mapping[str, str | None]) -> _Pending:
        configuration = dict(pending.metadata["configuration"])
        description = pending.metadata.get("description")
        for name, value in properties.items():
            if name == "comment":
                description = value
            elif value is None:
                configuration.pop(name, None)
            else:
                configuration[name] = value
        schema, before = json.loads(schema_json), json.loads(self.layout.schema_json)
        last = max(int(configuration.get(MAX_COLUMN_ID, 0)), largest_id(schema))
        metadata = {
            **pending.metadata,
            "schemaString": delta_schema(schema, before),
            "configuration": {**configuration, MAX_COLUMN_ID: str(last)},
        }
        metadata.pop("description", None)
        return _Pending(
            pending.files, {**metadata, "description": description} if description else metadata, schema_json
        )

    def _apply(self, pending: _Pending, written: Written) -> None:
        now = int(time.time() * 1000)
        for file in written.data:
            entry = json.loads(file.json)
            pending.files[file.path] = {
                "path": relative_path(self._state.location, file.path),
                "partitionValues": {},
                "size": file.size,
                "modificationTime": now,
                "dataChange": True,
                "stats": statistics_text(entry, pending.schema_json, self.keys),
            }
        for vector in written.vectors:
            before = pending.files[vector.referenced]
            pending.files[vector.referenced] = {
                **before,
                "stats": wide(before["stats"]),
                "deletionVector": json.loads(vector.json),
            }
        for path in written.emptied:
            del pending.files[path]

    def _actions(
        self,
        files: Mapping[str, Mapping[str, Any]],
        lsn: Lsn | None,
        *,
        keeps_record: bool = False,
        changes_data: bool = True,
    ) -> list[dict[str, Any]]:
        """From the files there are to those that are to be."""
        now, before, actions = int(time.time() * 1000), self._state.files, []
        if not keeps_record and (lsn is not None or self._state.applied):
            applied = 0 if lsn is None else int(lsn)
            actions.append({"txn": {"appId": self._application, "version": applied, "lastUpdated": now}})
        for path, entry in before.items():
            if files.get(path) is not entry:
                actions.append({"remove": _removal(entry, now, changes_data=changes_data)})
        for path, entry in files.items():
            if before.get(path) is not entry:
                actions.append({"add": {**entry, "dataChange": changes_data}})
        return actions

    def _commit(self, actions: list[dict[str, Any]], metadata: Mapping[str, Any] | None) -> None:
        """Commit, and know the table as it is then.

        A changed epoch is a change of metadata: every commit that was planned before is in conflict with it.
        """
        marks = self.fence.admit(self._state.properties, self.layout.name)
        if metadata is not None and marks:
            metadata = {**metadata, "configuration": {**metadata["configuration"], **marks}}
        changed = metadata is not None and metadata != self._state.metadata
        marker = uuid.uuid4().hex
        commit, base = Commit(marker, self._application, metadata if changed else None), self._base()
        try:
            with delta_errors(f"commit to table {self.layout.name}"):
                version = self._java.commit(self._log, base, actions, commit)
        except Exception as error:  # noqa: BLE001 - whatever it is, the commit may have taken place
            version = self._landed(marker, error)
        self._snapshot = None
        try:
            self._advance(version, None if changed else actions)
        except Exception as error:  # noqa: BLE001 - the commit took place; the next refresh reads it
            _log.warning("committed, but not read back yet", table=self.layout.name, error=type(error).__name__)

    def _advance(self, version: int, actions: Sequence[Mapping[str, Any]] | None) -> None:
        """Know the table as our commit left it. `actions`: all that it did; None: the log tells."""
        before = self._state
        if version == before.version + 1 and actions is not None:
            self._state = before.after(version, actions, self._application)
        else:
            self._state = self._read(version)
        if version != before.version + 1:
            self._foreign = version - 1
        self._carry(before)

    def _base(self) -> Any:
        """The snapshot that the commit was made for."""
        if self._snapshot is None:
            with delta_errors(f"look at table {self.layout.name}"):
                snapshot = self._java.updated(self._log)
                version = int(snapshot.version())
            if version != self._state.version:
                msg = f"another writer committed to table {self.layout.name} meanwhile"
                raise DestinationConflict(msg)
            self._snapshot = snapshot
        return self._snapshot

    def _landed(self, marker: str, error: Exception) -> int:
        """Return the version under which a commit that failed is in the log all the same.

        Raises `error` where it proves that nothing was committed: Delta itself refused the commit, and the log does not
        have it. Otherwise CommitStateUnknown: a write whose answer was lost may reach the log later.
        """
        found = self._version_of(marker)
        if found is not None:
            return found
        refused = isinstance(error, (DestinationConflict, DestinationRejected))
        if refused and not isinstance(error, CommitStateUnknown):
            raise error
        msg = f"whether the commit to table {self.layout.name} took place is not known"
        detail = (error.detail or error.message) if isinstance(error, DestinationError) else type(error).__name__
        raise CommitStateUnknown(msg, detail=detail) from None

    def _version_of(self, marker: str) -> int | None:
        """The version of the commit with a marker; None: the log has none. Raises CommitStateUnknown if it cannot be
        read.
        """
        try:
            with delta_errors(f"look at table {self.layout.name}"):
                self._snapshot = None
                last = int(self._java.updated(self._log).version())
            for version in range(self._state.version + 1, last + 1):
                for action in self._read_commit(version):
                    if action.get("commitInfo", {}).get("userMetadata") == marker:
                        return version
        except Exception as error:  # noqa: BLE001 - whatever it is, the commit may have taken place
            msg = f"whether the commit to table {self.layout.name} took place is not known"
            detail = error.detail if isinstance(error, DestinationError) else type(error).__name__
            raise CommitStateUnknown(msg, detail=detail) from None
        return None

    def _read(self, version: int) -> LogState:
        """The table at a version: by the commits since, or as a whole where they are many, or not to be had."""
        if self._state.version < version <= self._state.version + _MOST_COMMITS:
            try:
                state, restored = self._state, False
                for number in range(state.version + 1, version + 1):
                    actions = self._read_commit(number)
                    state = state.after(number, actions, self._application)
                    restored = restored or any(map(_is_restore, actions))
                return _as_restored(state, self.layout, self._application) if restored else state
            except OSError:
                pass
        with delta_errors(f"read table {self.layout.name}"):
            return read_state(self._java, self._log, self.layout, self._application)

    def _read_commit(self, version: int) -> list[dict[str, Any]]:
        return _read_commit(self.layout, version)

    def _carry(self, before: LogState) -> None:
        """Keep what is known of files that are still the same."""
        known = self._known
        if known is None or known.snapshot != before.version:
            return
        live = {
            path: known.live[path] if before.files.get(path) is entry else self._live(path, entry)
            for path, entry in self._state.files.items()
        }
        self._known = Files(self._state.version, live)

    def _live(self, path: str, entry: Mapping[str, Any]) -> LiveFile:
        return live_file(self._state.location, path, entry, self.layout.schema_json, self.keys)


def _removal(entry: Mapping[str, Any], now: int, *, changes_data: bool) -> dict[str, Any]:
    removal: dict[str, Any] = {
        "path": entry["path"],
        "deletionTimestamp": now,
        "dataChange": changes_data,
        "extendedFileMetadata": True,
        "partitionValues": entry.get("partitionValues") or {},
        "size": entry["size"],
    }
    kept = ("deletionVector", "tags", "baseRowId", "defaultRowCommitVersion", "stats")
    return removal | {name: entry[name] for name in kept if entry.get(name) is not None}


def read_state(java: DeltaJava, log: Any, layout: TableLayout, application: str) -> LogState:
    """All of a table as it is now. What its checksum file does not tell, Spark puts together: dear for a large one."""
    snapshot = java.updated(log)
    version = int(snapshot.version())
    known = _checksum(layout, version)
    state = LogState(layout.data_location, version, json.loads(snapshot.metadata().json())["metaData"])
    listed, transactions = known.get("allFiles"), known.get("setTransactions")
    files = {state.whole_path(entry["path"]): entry for entry in (java.files(snapshot) if listed is None else listed)}
    if transactions is None:
        applied = java.transaction(snapshot, application)
    else:
        applied = next((one["version"] for one in transactions if one["appId"] == application), None)
    return _as_restored(replace(state, files=files, applied=applied), layout, application)


def _as_restored(state: LogState, layout: TableLayout, application: str) -> LogState:
    """With the position that the rows have after a RESTORE, which leaves transactions on record as they were.

    Found by the commits since our last one, newest first. Where they are many, or gone from the log, the record counts.
    """
    version, left = state.version, _MOST_COMMITS
    while version >= 0 and left:
        try:
            actions = _read_commit(layout, version)
        except OSError:
            return state
        ours = [action["txn"] for action in actions if action.get("txn", {}).get("appId") == application]
        if ours:
            return replace(state, applied=ours[-1]["version"])
        restores = [action["commitInfo"] for action in actions if _is_restore(action)]
        if restores:
            target = restores[-1].get("operationParameters", {}).get("version")
            if target is None:
                # To a time: to which version that was, the log does not say.
                return replace(state, applied=None)
            version, left = int(target), _MOST_COMMITS
        else:
            version, left = version - 1, left - 1
    return state if left == 0 else replace(state, applied=None)


def _is_restore(action: Mapping[str, Any]) -> bool:
    return bool(action.get("commitInfo", {}).get("operation") == "RESTORE")


def _read_commit(layout: TableLayout, version: int) -> list[dict[str, Any]]:
    # Not splitlines: JSON leaves U+2028 and others as they are, in names and in bounds of texts.
    return [json.loads(line) for line in _log_file(layout, version, "json").split("\n") if line]


def _checksum(layout: TableLayout, version: int) -> dict[str, Any]:
    """What Delta wrote beside a version: all of a small table's files, and whose transactions it has."""
    try:
        found: dict[str, Any] = json.loads(_log_file(layout, version, "crc"))
    except (OSError, ValueError):
        return {}
    return found


def _log_file(layout: TableLayout, version: int, suffix: str) -> str:
    path = f"{layout.data_location}/_delta_log/{version:020d}.{suffix}"
    with file_io(layout).new_input(path).open() as source:
        return bytes(source.read()).decode()


def lake_schema_json(metadata: Mapping[str, Any], table: str) -> str:
    return _lake_schema_json(metadata["schemaString"], table)


@lru_cache(maxsize=_SCHEMAS_KEPT)
def _lake_schema_json(text: str, table: str) -> str:
    return json.dumps(lake_schema(text, table), ensure_ascii=False)
