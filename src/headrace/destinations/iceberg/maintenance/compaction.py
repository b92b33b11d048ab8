"""Compaction that never loses against the stream.

Files are read and written anew with no lock held, as long as that takes. Only then the table is locked, for a moment:
rows that the stream deleted meanwhile are deleted in the new files too, by vectors committed together with them. So no
stream of changes, however dense, makes the work be in vain.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import structlog

from ....config.iceberg import MaintenanceConfig
from ....errors import DestinationConflict
from ...lake.data_files import write_data
from ...lake.deletion_vectors import Positions, deleted_since, read_positions, write_vectors
from ...lake.files import DataFile, DeletionVector, LiveFile, TableLayout, Written
from ...lake.java_errors import CommitStateUnknown, java_errors
from ...lake.leftovers import PendingFiles, discard
from ...lake.maintenance.groups import Group, choose_groups
from ...lake.maintenance.held import HeldTable
from ...lake.operations import Files, live_file
from ...lake.places import file_io
from ...lake.reading import OpenedFile, forget_replaced
from ...lake.record import PIPELINE
from ..catalog import Catalog
from ..java import Java
from ..layout import sorted_by
from ..table import IcebergTable
from .lineage import LineageLayout, Source, live_rows, moved_positions, row_ids

__all__ = ["Compaction", "Rewritten"]

_log = structlog.get_logger("headrace.destinations.iceberg")


@dataclass(frozen=True, slots=True)
class Rewritten:
    """Files that hold the rows of others, as of a snapshot; not in the table yet."""

    sources: tuple[Source, ...]
    data: tuple[DataFile, ...]


class Compaction:
    """One table as of one snapshot: its groups, and their way into new files."""

    def __init__(self, java: Java, held: HeldTable, seen: IcebergTable, settings: MaintenanceConfig) -> None:
        self._java, self._held, self._seen, self._settings = java, held, seen, settings
        self._lineage = LineageLayout.of(seen.layout)

    @classmethod
    def of(cls, catalog: Catalog, held: HeldTable, settings: MaintenanceConfig) -> Compaction | None:
        """Of the table as it is now; None if there is none."""
        seen = _own_view(catalog, held)
        return None if seen is None else cls(catalog.java, held, seen, settings)

    def groups(self) -> list[Group]:
        live = self._seen.files().live.values()
        # Tables that only grow, such as change logs, are never merged into: nobody else forgets for them.
        forget_replaced(self._seen.layout, live)
        return choose_groups(live, self._settings)

    def run(self, going: Callable[[], None]) -> int:
        """Write all groups anew. `going` is called often and raises to end it. Returns how many groups it was."""
        return sum(self.commit(self.rewrite(sources, going)) for sources in self.sources())

    def sources(self) -> list[tuple[Source, ...]]:
        """The groups, as they are read: older rows first."""
        groups = self.groups()
        if not groups:
            return []
        lineage = self._sources({file.path for group in groups for file in group})
        return [
            tuple(sorted((lineage[file.path] for file in group), key=lambda source: source.first_row_id))
            for group in groups
            if all(file.path in lineage for file in group)
        ]

    def rewrite(self, sources: tuple[Source, ...], going: Callable[[], None]) -> Rewritten:
        """Without the lock. When it raises, it has removed what it wrote."""
        lineage = self._lineage
        return Rewritten(sources, write_data(lineage.layout, live_rows(lineage, sources, going)).data)

    def commit(self, rewritten: Rewritten) -> bool:
        """Put the new files in the place of the others. If that cannot be, remove them: false."""
        layout = self._lineage.layout
        pending = [Written(data=rewritten.data)]
        try:
            with PendingFiles(layout, pending), self._held.lock:
                emptied = self._replace(rewritten)
        except CommitStateUnknown:
            raise
        except DestinationConflict as error:
            _log.info("another writer came between; not compacted", table=layout.name, detail=error.detail)
            return False
        # Of all files, those that could not be committed; else those that have no row left, and were not.
        discard(layout, pending if emptied is None else [Written(data=emptied)])
        return emptied is not None

    def _replace(self, rewritten: Rewritten) -> tuple[DataFile, ...] | None:
        """Commit, and return the new files that have no row left and were left out. None: it cannot be done."""
        table = self._held.table
        if table is None or table.table_id != self._seen.table_id:
            return None
        table.refresh()
        if _schema_id(table) != _schema_id(self._seen):
            return None
        now = table.files()
        gone = self._gone(table, now, rewritten.sources)
        moved = None if gone is None else self._moved(gone, rewritten.data)
        there = [now.live[source.file.path] for source in rewritten.sources if source.file.path in now.live]
        if moved is None or not there:
            return None
        pairs = list(zip(rewritten.data, moved, strict=True))
        emptied = tuple(file for file, positions in pairs if len(positions) == file.records)
        self._commit_replacement(table, now, there, [pair for pair in pairs if len(pair[1]) < pair[0].records])
        return emptied

    def _moved(self, gone: Positions, data: Sequence[DataFile]) -> list[Positions] | None:
        if not len(gone):
            return [gone] * len(data)
        return moved_positions(gone, [self._ids(file) for file in data])

    def _commit_replacement(
        self, table: IcebergTable, now: Files, there: Sequence[LiveFile], added: Sequence[tuple[DataFile, Positions]]
    ) -> None:
        layout = self._lineage.layout
        vectors = write_vectors(
            layout, [(live_file(json.loads(file.json), ()), positions) for file, positions in added if len(positions)]
        )
        written = Written(
            data=tuple(file for file, _ in added),
            vectors=vectors,
            replaced=tuple(file.vector for file in there if file.vector is not None),
            emptied=tuple(file.path for file in there),
        )
        with PendingFiles(layout, [Written(vectors=vectors)]):
            table.replace_files(now, written)

    def _gone(self, table: IcebergTable, now: Files, sources: Sequence[Source]) -> Positions | None:
        """Ids of the rows deleted since they were read. None if a file left the table and its rows may be elsewhere."""
        io, ids = file_io(self._lineage.layout), [np.empty(0, dtype=np.int64)]
        ours: bool | None = None
        for source in sources:
            file, current = source.file, now.live.get(source.file.path)
            if current is not None and _same(current.vector, file.vector):
                continue
            then = read_positions(io, file)
            if current is None:
                # By a commit of the stream a file leaves when no row of it is left.
                ours = self._only_ours_since(table) if ours is None else ours
                deleted = np.setdiff1d(np.arange(file.records), then) if ours else None
            else:
                deleted = deleted_since(then, read_positions(io, current))
            if deleted is None:
                return None
            ids.append(row_ids(self._lineage, source, deleted))
        return np.concatenate(ids)

    def _only_ours_since(self, table: IcebergTable) -> bool:
        """Whether all commits since the snapshot that was read are the stream's."""
        seen = self._seen.files().snapshot
        with java_errors(f"read the history of table {table.layout.name}"):
            snapshot = table.java_table.currentSnapshot()
            while snapshot is not None and int(snapshot.snapshotId()) != seen:
                parent = snapshot.parentId()
                if PIPELINE not in self._java.mapping(snapshot.summary()) or parent is None:
                    return False
                snapshot = table.java_table.snapshot(parent)
        return snapshot is not None

    def _ids(self, file: DataFile) -> Positions:
        lineage = self._lineage
        with closing(OpenedFile(lineage.layout, live_file(json.loads(file.json), ()))) as opened:
            column = opened.read([lineage.row_id], list(range(opened.metadata.num_row_groups)))[0]
        return np.asarray(column.to_numpy(), dtype=np.int64)

    def _sources(self, paths: set[str]) -> dict[str, Source]:
        """What Iceberg knows of the files' rows. A file without row ids is left out."""
        live, found = self._seen.files().live, {}
        with java_errors(f"list the files of table {self._seen.layout.name}"):
            tasks, answer = self._seen.scan()
            for place, task in enumerate(answer.get("file-scan-tasks", [])):
                path, first = task["data-file"]["file-path"], task["data-file"].get("first-row-id")
                if path in paths and first is not None:
                    file = tasks.get(place).file()
                    found[path] = Source(live[path], first, int(file.dataSequenceNumber()))
        return found


def _own_view(catalog: Catalog, held: HeldTable) -> IcebergTable | None:
    """The table loaded once more, so that it can be read without the lock, with its schema as it is now."""
    table = held.table
    loaded = None if table is None else catalog.load(held.name)
    if table is None or loaded is None:
        return None
    iceberg = catalog.java.iceberg
    with java_errors(f"read table {table.layout.name}"):
        schema_json = iceberg.SchemaParser.toJson(loaded.schema())
        layout: TableLayout = replace(
            table.layout,
            schema_json=schema_json,
            spec_json=iceberg.PartitionSpecParser.toJson(loaded.spec()),
            sort_by=sorted_by(iceberg.SortOrderParser.toJson(loaded.sortOrder()), schema_json),
        )
    return IcebergTable(catalog.java, loaded, layout, (), table.fence)


def _same(one: DeletionVector | None, other: DeletionVector | None) -> bool:
    # Iceberg's description of a vector has not the same text as ours.
    if one is None or other is None:
        return one is other
    return (one.path, one.offset) == (other.path, other.offset)


def _schema_id(table: IcebergTable) -> Any:
    with java_errors(f"read the schema of table {table.layout.name}"):
        return int(table.java_table.schema().schemaId())
