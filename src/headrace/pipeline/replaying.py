"""Writes a stored change log to a destination, through the same contract as a pipeline: copies, then batch by batch.

A destination that keeps its LSN goes on where it stands, so a replay that was cut off is just started again. A log that
was begun anew since, by another copy, is replayed from its beginning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import groupby

import pyarrow.compute as pc

from ..destinations.batch import EventBatch
from ..destinations.contract import Destination, DestinationContext
from ..destinations.parquet.layout import ManifestKind, ManifestName
from ..destinations.parquet.manifest import DataFile, StoredRows
from ..destinations.parquet.reader import LoggedTable, ParquetLog, read_changes
from ..errors import ConfigError, DestinationRejected, TableNotFound
from ..events import Relation, Truncate
from ..lsn import INVALID_LSN, Lsn
from ..schema import ReplicatedTableSchema, TableName
from ..stores.copies import CopyStore
from ..stores.records import CopyRecord, CopyStart
from .stored_batches import StoredReading

__all__ = ["Positions", "Replay", "Replayed", "Until"]

Positions = dict[TableName, Lsn | None]
"""Up to where each table was replayed: the end of its own last batch; None: none of its changes were written."""


Until = Lsn | datetime
"""The last commit that is replayed: by its LSN, or the last before the first that was committed after a moment."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """How far a replay is, in commits of the log; `table` is None for batches of several."""

    done: int
    total: int
    table: str | None = None


@dataclass(frozen=True, slots=True)
class _Commit:
    """A manifest that is due, of a table."""

    table: LoggedTable
    name: ManifestName


class Replay:
    """One run. The destination is started and shut down here."""

    def __init__(
        self,
        log: ParquetLog,
        destination: Destination,
        context: DestinationContext,
        copies: CopyStore,
        *,
        progress: Callable[[Replayed], None] = lambda _: None,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        """The log's tables are put into the context. `copies` keeps which copy of the log each was begun with.

        `stopping` ends the run between two commits.
        """
        self._log = log
        self._destination = destination
        self._context = context
        self._known_copies = copies
        self._progress = progress
        self._stopping = stopping

    def run(self, *, until: Until | None = None, fresh: bool = False) -> Positions:
        """Replay, and return how far each table is. `fresh`: write all tables anew.

        Raises ConfigError for an `until` that the log does not reach back to, and what the destination raises.
        """
        tables = self._log.tables()
        if not tables:
            msg = f"the log at {self._log.storage.root.partition('?')[0]} has no tables"
            raise TableNotFound(msg, hint="run the pipeline that writes it first")
        before = None if until is None else _before(tables, until)
        reading = StoredReading(self._log.storage, self._context.spark, before)
        schemas = tuple(_first_schema(table) for table in tables)
        self._destination.startup(replace(self._context, tables=schemas))
        try:
            self._destination.claim()
            return self._run(reading, dict(zip(schemas, tables, strict=True)), fresh)
        finally:
            self._destination.shutdown()

    def _run(self, reading: StoredReading, tables: dict[ReplicatedTableSchema, LoggedTable], fresh: bool) -> Positions:
        applied = {table.schema.table.id: self._begun(schema, table, fresh) for schema, table in tables.items()}
        copies = [commit for schema, table in tables.items() for commit in self._copies(schema, table, applied)]
        changes = [commit for table in tables.values() for commit in _changes(table, reading.before, applied)]
        reading = replace(reading, since={table: lsn for table, lsn in applied.items() if lsn is not None})
        total, done = len(copies) + len(changes), 0
        reached: Positions = {table.name: applied[table.schema.table.id] for table in tables.values()}
        for commit in copies:
            if self._stopping():
                return reached
            self._progress(Replayed(done, total, str(commit.table.name)))
            for schema, rows in reading.copy(commit.table.manifest(commit.name)):
                self._destination.write_table_rows(schema, rows, commit.name.value)
            done += 1
        for end, commits in _batched(changes):
            if self._stopping():
                break
            self._progress(Replayed(done, total, str(commits[0].table.name) if len(commits) == 1 else None))
            manifests = [commit.table.manifest(commit.name) for commit in commits]
            # All of a batch's tables in one call only where they are asked for so.
            parts = [manifests] if self._destination.whole_batches else [[manifest] for manifest in manifests]
            for part in parts:
                self._write(reading.batch(end, part))
            position = end if reading.before is None else min(end, reading.before)
            reached |= {commit.table.name: position for commit in commits}
            done += len(commits)
        self._destination.flush()
        self._progress(Replayed(done, total))
        return reached

    def _begun(self, schema: ReplicatedTableSchema, table: LoggedTable, fresh: bool) -> Lsn | None:
        """Up to where the destination has the table; None: it is to be copied, or its copy to be gone on with."""
        applied, parts = self._destination.applied_lsn(schema), self._destination.copied_parts(schema)
        # What is there of another copy, or of one that is not known, says nothing about this log.
        if fresh or not self._is_known(table) or (applied is None and not parts):
            self._destination.drop_table_for_copy(schema)
            self._remember(table)
            return None
        return applied

    def _is_known(self, table: LoggedTable) -> bool:
        """Whether the destination's rows are of the copy that the log begins with."""
        known = self._known_copies.get_copy(table.schema.table.id)
        return known is not None and [record.snapshot for record in known[1]] == [_copy_name(table)]

    def _remember(self, table: LoggedTable) -> None:
        start = CopyStart(INVALID_LSN, INVALID_LSN, one_snapshot=True)
        self._known_copies.begin_copy(table.schema.table.id, start)
        self._known_copies.finish_copy_range(table.schema.table.id, CopyRecord(0, None, _copy_name(table), 0))

    def _copies(
        self, schema: ReplicatedTableSchema, table: LoggedTable, applied: dict[int, Lsn | None]
    ) -> Iterator[_Commit]:
        if applied[table.schema.table.id] is not None:
            return
        have = self._destination.copied_parts(schema) or frozenset()
        for name in table.names:
            if name.kind is ManifestKind.COPY and name.value not in have:
                yield _Commit(table, name)

    def _write(self, batch: EventBatch) -> None:
        for relation in (step for part in batch.tables for step in part.steps if isinstance(step, Relation)):
            if not self._destination.follows(relation):
                name = relation.new.table.name
                msg = f"table {name} was altered at {relation.commit_lsn} in a way that the destination cannot follow"
                hint = "replay up to before that with --until, or into a destination that can"
                raise DestinationRejected(msg, hint=hint, table_id=relation.new.table.id)
        if batch.tables:
            self._destination.write_events(batch)


def _first_schema(table: LoggedTable) -> ReplicatedTableSchema:
    """The table as its log begins."""
    manifest = table.manifest(table.names[0])
    rows = next((step for step in manifest.steps if isinstance(step, StoredRows)), None)
    return manifest.schema if rows is None else rows.schema


def _copy_name(table: LoggedTable) -> str:
    """What tells a generation of a log from every other: the name of its first manifest, which is never written twice.

    A new copy looks back, so its LSNs do not tell it from the one before.
    """
    return str(min(table.names, key=lambda name: name.sequence))


def _start(table: LoggedTable) -> Lsn | None:
    """Where the changes of the log begin; None: it has none."""
    first = next((name for name in table.names if name.kind is ManifestKind.CHANGES), None)
    return None if first is None else table.manifest(first).start


def _changes(table: LoggedTable, before: Lsn | None, applied: dict[int, Lsn | None]) -> Iterator[_Commit]:
    known = applied[table.schema.table.id]
    reached = None
    for name in table.names:
        if name.kind is not ManifestKind.CHANGES or (known is not None and name.end <= known):
            continue
        # Of batches that end behind the last commit wanted, the first may still have some before it.
        if before is not None and reached is not None and reached >= before:
            return
        reached = name.end
        yield _Commit(table, name)


def _batched(commits: list[_Commit]) -> Iterator[tuple[Lsn, list[_Commit]]]:
    """In the batches that they were written from: all that end at one position."""
    ordered = sorted(commits, key=lambda commit: (commit.name.value, commit.table.schema.table.id))
    for _, group in groupby(ordered, key=lambda commit: commit.name.value):
        batch = list(group)
        yield batch[0].name.end, batch


def _before(tables: list[LoggedTable], until: Until) -> Lsn | None:
    """The LSN of the first commit that is left out."""
    if isinstance(until, datetime):
        _require_copied(tables, until)
        later = [lsn for table in tables for lsn in _commits_after(table, until)]
        return min(later, default=None)
    before = Lsn(until + 1)
    for table in tables:
        start = _start(table)
        if start is not None and before < start:
            raise _too_early(table, str(until), str(start))
    return before


def _require_copied(tables: list[LoggedTable], until: datetime) -> None:
    for table in tables:
        for name in table.names:
            if name.kind is ManifestKind.COPY:
                written = datetime.fromisoformat(table.manifest(name).written_at)
                if written > until:
                    raise _too_early(table, until.isoformat(), written.isoformat())


def _too_early(table: LoggedTable, wanted: str, begins: str) -> ConfigError:
    msg = f"the log of {table.name} does not reach back to {wanted}: its copy is of {begins}"
    return ConfigError(msg, hint=f"give an --until from {begins} on")


def _commits_after(table: LoggedTable, until: datetime) -> Iterator[Lsn]:
    """LSNs of commits after a moment, the first of each file and statement."""
    for manifest in table.manifests():
        for step in manifest.steps:
            if isinstance(step, Truncate) and step.commit_time > until:
                yield step.commit_lsn
            elif isinstance(step, StoredRows):
                for file in step.files:
                    yield from _first_after(table, step.schema, file, until)


def _first_after(table: LoggedTable, schema: ReplicatedTableSchema, file: DataFile, until: datetime) -> Iterator[Lsn]:
    if file.commit_times is None or datetime.fromisoformat(file.commit_times[1]) <= until:
        return
    for batch in read_changes(table.storage, file, schema):
        later = pc.min(batch["commit_lsn"].filter(pc.greater(batch["commit_time"], until))).as_py()
        if later is not None:
            yield Lsn(later)
