"""A change log in Parquet files: tasks write them, and a manifest per commit says which of them count.

Nothing that is written counts until the manifest is there, which is written last and at once: by a rename where there
are directories, by one upload in an object store. A manifest's name tells its place and what it brings, so that a
restart lists names and opens nothing. Files of attempts that came to nothing are named by none, and removed at the next
start.

A run claims the log by a file that only one run can create. Then it marks each table's log with a manifest of its
epoch: what an earlier run publishes behind that does not count, however late it comes.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime

import structlog

from ...config.parquet import ParquetConfig
from ...errors import ConfigError, DestinationConflict, DestinationFenced, DestinationRejected
from ...events import Relation, Truncate
from ...lsn import INVALID_LSN, Lsn
from ...schema import NO_TABLE, ReplicatedTableSchema
from ..batch import Changes, EventBatch, TableBatch
from ..contract import DestinationContext, Durability, SourceIdentity
from ..rows import Rows
from .data_files import FileWriter, RowKind
from .layout import (
    EPOCHS,
    OWNER,
    ManifestKind,
    epoch_path,
    missing_sequences,
    new_attempt,
    new_directory,
    table_id_of,
)
from .manifest import (
    FORMAT,
    DataFile,
    Manifest,
    StoredRows,
    StoredStep,
    decode_record,
    encode_record,
    missing_manifests,
    to_json,
)
from .storage import Storage
from .table_log import TableLog, leftovers, log_of, manifest_names, read_log

__all__ = ["ParquetDestination"]

_log = structlog.get_logger("headrace.destinations")

_CLAIMS_AT_ONCE = 16
_EPOCH_HINT = "stop every run of the pipeline, then remove the file: the epoch is claimed again"
"""Tables whose logs are marked at a time: each takes two listings and an upload."""


class ParquetDestination:
    """Keeps every change. Its tables have no mode: to see current rows, replay the log elsewhere."""

    name = "parquet"
    whole_batches = False

    def __init__(self, settings: ParquetConfig) -> None:
        self._settings = settings
        self._storage = Storage(settings.location, dict(settings.storage_options))
        self._pipeline_id = 0
        self._context: DestinationContext | None = None
        self._epoch = 0
        self._lock = threading.Lock()
        self._directories: dict[int, str] = {}
        self._logs: dict[int, TableLog] = {}

    def startup(self, context: DestinationContext) -> None:
        """Raises ConfigError if the location is another pipeline's."""
        self._context, self._pipeline_id, self._epoch = context, context.pipeline_id, 0
        _check_owner(self._storage, context.pipeline_id)
        self._find_tables()

    def claim(self) -> None:
        assert self._context is not None, "claim comes after startup"
        _check_owner(self._storage, self._pipeline_id)
        if self._storage.read(OWNER) is None:
            content = {"format": FORMAT, "pipeline_id": self._pipeline_id, "contents": "a change log of headrace"}
            self._storage.publish(OWNER, encode_record(content))
        self._epoch = _claimed_epoch(self._storage, self._context)
        self._find_tables()
        with ThreadPoolExecutor(_CLAIMS_AT_ONCE) as pool:
            list(pool.map(self._claim_table, self._directories.values()))

    def _find_tables(self) -> None:
        found = {table_id_of(directory): directory for directory in self._storage.directories()}
        with self._lock:
            self._logs.clear()
            self._directories = {table_id: name for table_id, name in found.items() if table_id is not None}

    def _claim_table(self, directory: str) -> None:
        """Take over a table's log, then remove what can no longer be published to it."""
        names = manifest_names(self._storage, directory)
        self._warn_of_gaps(directory, missing_sequences(names))
        log = log_of(directory, names)
        if not log.gone:
            name = log.named(self._attempt(), ManifestKind.CLAIM)
            content = {"format": FORMAT, "pipeline_id": self._pipeline_id, "written_at": _now()}
            self._storage.publish(log.path(name), encode_record(content))
        self._storage.delete(leftovers(self._storage, directory))

    def _warn_of_gaps(self, directory: str, gaps: list[range]) -> None:
        """Say that manifests are missing. The pipeline continues: what it adds is right, and a new copy repairs it."""
        if gaps:
            known = self._context.tables if self._context is not None else ()
            names = {schema.table.id: str(schema.table.name) for schema in known}
            table = names.get(table_id_of(directory) or NO_TABLE, directory.rpartition(".")[0])
            error = missing_manifests(gaps, table, _shown(self._storage), directory)
            _log.warning(error.message, table=table, hint=error.hint)

    def _check_epoch(self) -> None:
        """Raise DestinationFenced if another run has claimed the log."""
        later = self._storage.read(epoch_path(self._epoch + 1)) if self._epoch else None
        if later is not None:
            msg = f"another run of pipeline {self._pipeline_id} has taken over the log at {_shown(self._storage)}"
            run_id = decode_record(later, self._storage.address(epoch_path(self._epoch + 1)), _EPOCH_HINT)["run_id"]
            detail = f"its epoch is {self._epoch + 1} ({run_id}), this run has {self._epoch}"
            raise DestinationFenced(msg, detail=detail)

    def _attempt(self) -> str:
        return new_attempt(self._epoch)

    def applied_lsn(self, schema: ReplicatedTableSchema) -> Lsn | None:
        return self._log(schema).applied

    def copied_parts(self, schema: ReplicatedTableSchema) -> frozenset[int] | None:
        return self._log(schema).parts

    def drop_table_for_copy(self, schema: ReplicatedTableSchema) -> None:
        """Begin another generation. Readers have the one before until the new copy's first rows are there."""
        log = self._log(schema)
        if not log.empty:
            self._publish(
                log, Manifest(log.named(self._attempt(), ManifestKind.BEGIN), schema, self._pipeline_id, _now())
            )

    def drop_table(self, schema: ReplicatedTableSchema) -> None:
        """Remove the table's files, and say that it is gone."""
        log = self._log(schema)
        if log.sequence == 0:
            return
        name = log.named(self._attempt(), ManifestKind.GONE)
        self._publish(log, Manifest(name, schema, self._pipeline_id, _now()))
        kept = log.path(name)
        self._storage.delete([path for path in self._storage.files(log.directory) if path != kept])

    def write_table_rows(self, schema: ReplicatedTableSchema, rows: Rows, part: int) -> Durability:
        log = self._log(schema)
        if part in log.parts:
            return Durability.DURABLE
        attempt = self._attempt()
        with self._discarded(log, attempt):
            stored = self._stored(log, attempt, schema, rows, "copy")
        count = len(stored.files) + len(stored.rejected)
        name = log.named(attempt, ManifestKind.COPY, part, count)
        self._publish(log, Manifest(name, schema, self._pipeline_id, _now(), INVALID_LSN, (stored,)))
        return Durability.DURABLE

    def follows(self, relation: Relation) -> bool:
        """A log that goes on without saying what existing rows have become could not be replayed."""
        return not relation.rewritten

    def write_events(self, batch: EventBatch) -> Durability:
        for part in batch.tables:
            self._write_changes(part, batch.end)
        return Durability.DURABLE

    def flush(self) -> None:
        pass

    def shutdown(self) -> None:
        pass

    def _write_changes(self, part: TableBatch, end: Lsn) -> None:
        log = self._log(part.schema)
        applied = log.applied or INVALID_LSN
        if end <= applied or not part.steps:
            return
        attempt = self._attempt()
        with self._discarded(log, attempt):
            steps = tuple(self._steps(part, log, attempt))
        rows = [step for step in steps if isinstance(step, StoredRows)]
        count = sum(len(step.files) + len(step.rejected) for step in rows)
        name = log.named(attempt, ManifestKind.CHANGES, int(end), count)
        start = max(part.start, applied)
        self._publish(log, Manifest(name, _last_schema(part), self._pipeline_id, _now(), start, steps))

    def _steps(self, part: TableBatch, log: TableLog, attempt: str) -> Iterator[StoredStep]:
        """Those behind what is in the log already."""
        for step in part.steps:
            if isinstance(step, Changes):
                stored = self._stored(log, attempt, step.schema, step.rows, "changes")
                if stored.files:
                    yield stored
            elif log.applied is None or step.commit_lsn >= log.applied:
                # A statement that emptied several tables is told in each of their logs.
                yield replace(step, schemas=_own(step, part)) if isinstance(step, Truncate) else step

    def _stored(
        self, log: TableLog, attempt: str, schema: ReplicatedTableSchema, rows: Rows, kind: RowKind
    ) -> StoredRows:
        files = self._written(log, attempt, rows, kind)
        # Known at no cost now that the rows were read.
        rejected = rows.rejected()
        found = [] if rejected is None else self._written(log, attempt, rejected, "rejected")
        return StoredRows(schema, tuple(files), tuple(found))

    def _written(self, log: TableLog, attempt: str, rows: Rows, kind: RowKind) -> list[DataFile]:
        write = FileWriter(
            self._storage,
            log.data,
            _file_prefix(log, attempt),
            kind,
            self._settings.compression.value,
            self._settings.target_file_bytes,
            int(log.applied or INVALID_LSN),
        )
        return [file for files in rows.in_tasks(write) for file in files]

    def _log(self, schema: ReplicatedTableSchema) -> TableLog:
        table_id = schema.table.id
        with self._lock:
            if table_id in self._logs:
                return self._logs[table_id]
            directory = self._directories.setdefault(table_id, new_directory(schema.table))
        log = read_log(self._storage, directory)
        with self._lock:
            return self._logs.setdefault(table_id, log)

    def _publish(self, log: TableLog, manifest: Manifest) -> None:
        """From here on it counts. If the answer is lost, the names tell next time whether it does."""
        table_id = manifest.schema.table.id
        self._check_epoch()
        with self._lock:
            self._logs.pop(table_id, None)
        self._commit(log.path(manifest.name), to_json(manifest))
        # Published behind the mark of another run, it does not count.
        self._check_epoch()
        with self._lock:
            self._logs[table_id] = log.after(manifest.name)

    def _commit(self, path: str, content: bytes) -> None:
        self._storage.publish(path, content)

    @contextmanager
    def _discarded(self, log: TableLog, attempt: str) -> Iterator[None]:
        """Within it, what an attempt has written is removed if it fails; a crash leaves that to the next start."""
        try:
            yield
        except BaseException:
            prefix = f"{_file_prefix(log, attempt)}-"
            files = self._storage.files(log.data)
            self._storage.delete([path for path in files if path.rpartition("/")[2].startswith(prefix)])
            raise


def _check_owner(storage: Storage, pipeline_id: int) -> None:
    known = storage.read(OWNER)
    hint = "remove the file if the location is this pipeline's: it is written again"
    owner = pipeline_id
    if known is not None:
        owner = decode_record(known, storage.address(OWNER), hint).get("pipeline_id", owner)
    if owner != pipeline_id:
        msg = f"the location {_shown(storage)} belongs to pipeline {owner}"
        raise ConfigError(msg, hint="give each pipeline a location of its own")


def _claimed_epoch(storage: Storage, context: DestinationContext) -> int:
    """Claim the next epoch. Raises DestinationConflict if another run was quicker."""
    epochs = sorted(path for path in storage.files(EPOCHS) if path.endswith(".json"))
    known = storage.read(epochs[-1]) if epochs else None
    record = {} if known is None else decode_record(known, storage.address(epochs[-1]), _EPOCH_HINT)
    before = SourceIdentity(**record["source"]) if record.get("source") else None
    if before is not None and context.source not in (None, before):
        msg = f"the log of pipeline {context.pipeline_id} belongs to {before}, not to {context.source}"
        raise DestinationRejected(
            msg, detail=_shown(storage), hint="give one of the two pipelines another id, and another location"
        )
    if before is not None:
        context.check_owner(str(before))
    epoch, source = int(record.get("epoch", 0)) + 1, context.source or before
    told = None if source is None else {"system_id": source.system_id, "database": source.database}
    content = {"epoch": epoch, "run_id": context.run_id, "source": told, "claimed_at": _now()}
    if not storage.create(epoch_path(epoch), encode_record(content)):
        msg = f"another run of pipeline {context.pipeline_id} claims the log at {_shown(storage)}"
        raise DestinationConflict(msg)
    return epoch


def _shown(storage: Storage) -> str:
    return storage.root.partition("?")[0]


def _file_prefix(log: TableLog, attempt: str) -> str:
    return f"{log.sequence + 1:010d}-{attempt}"


def _own(truncate: Truncate, part: TableBatch) -> tuple[ReplicatedTableSchema, ...]:
    return tuple(schema for schema in truncate.schemas if schema.table.id == part.schema.table.id)


def _last_schema(part: TableBatch) -> ReplicatedTableSchema:
    """What the table looks like behind the last step."""
    for step in reversed(part.steps):
        if isinstance(step, Relation):
            return step.new
        if isinstance(step, Changes):
            return step.schema
    return part.schema


def _now() -> str:
    return datetime.now(UTC).isoformat()
