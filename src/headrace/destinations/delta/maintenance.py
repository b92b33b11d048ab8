"""Maintenance of Delta tables: compaction that never loses against the stream, and files that nobody names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa
import structlog

from ...config.delta import DeltaMaintenanceConfig
from ...errors import DestinationConflict
from ..lake.columns import column_plan
from ..lake.data_files import write_data
from ..lake.deletion_vectors import Positions, deleted_since, read_positions, write_vectors
from ..lake.files import DataFile, LiveFile, TableLayout, Written
from ..lake.java_errors import CommitStateUnknown
from ..lake.leftovers import PendingFiles, discard
from ..lake.maintenance.groups import Group, choose_groups
from ..lake.maintenance.held import HeldTable
from ..lake.places import file_io
from ..lake.reading import forget_replaced, read_rows
from .java import DeltaJava
from .table import DeltaTable
from .unnamed_files import remove_unnamed

__all__ = ["DeltaUpkeep"]

_log = structlog.get_logger("headrace.destinations.delta")

# Rows that are read at once.
_ROWS_AT_ONCE = 1 << 17


class DeltaUpkeep:
    """Implements `Upkeep`."""

    def __init__(self, java: DeltaJava, settings: DeltaMaintenanceConfig) -> None:
        self._java, self._settings = java, settings
        self.enabled, self.interval_s = settings.enabled, settings.interval_s
        self.search_interval_s = settings.search_interval_s

    def version(self, held: HeldTable) -> int | None:
        table: DeltaTable | None = held.table
        return None if table is None else table.version

    def compact(self, held: HeldTable, going: Callable[[], None]) -> int:
        """Files are written anew with no lock held; what the stream deletes meanwhile is deleted in them too."""
        with held.lock:
            table: DeltaTable | None = held.table
            if table is None:
                return 0
            table.refresh()
            layout, files, version = table.layout, table.files(), table.version
        forget_replaced(layout, files.live.values())
        groups = choose_groups(files.live.values(), self._settings)
        return sum(_Rewriting(held, layout, group, version).run(going) for group in groups)

    def expire(self, held: HeldTable) -> None:
        """Delta forgets versions of its log by itself."""

    def search(self, held: HeldTable) -> int:
        """Remove files that nobody names. None while the table is copied: its files are named at the end, and that may
        be days after the first was written.
        """
        return remove_unnamed(self._java, held, self._settings.retention_s)


@dataclass(frozen=True, slots=True)
class _Rewriting:
    """One group of files on its way into new ones."""

    held: HeldTable
    layout: TableLayout
    group: Group
    version: int
    """Of which the group's files are."""

    def run(self, going: Callable[[], None]) -> bool:
        """When it raises or cannot be done, it has removed what it wrote."""
        positions = [_live_positions(self.layout, file) for file in self.group]
        written = write_data(self.layout, self._rows(positions, going))
        try:
            with PendingFiles(self.layout, [written]), self.held.lock:
                emptied = self._replace(positions, written.data)
        except CommitStateUnknown:
            raise
        except DestinationConflict as error:
            _log.info("another writer came between; not compacted", table=self.layout.name, detail=error.detail)
            return False
        # Of all files, those that could not be committed; else those that have no row left, and were not.
        discard(self.layout, [written] if emptied is None else [Written(data=emptied)])
        return emptied is not None

    def _rows(self, positions: Sequence[Positions], going: Callable[[], None]) -> Iterator[pa.RecordBatch]:
        names = column_plan(self.layout.schema_json).arrow.names
        for file, live in zip(self.group, positions, strict=True):
            for start in range(0, len(live), _ROWS_AT_ONCE):
                going()
                yield from read_rows(self.layout, file, live[start : start + _ROWS_AT_ONCE], names).to_batches()

    def _replace(self, positions: Sequence[Positions], data: Sequence[DataFile]) -> tuple[DataFile, ...] | None:
        """Commit, and return the new files that have no row left and were left out. None: it cannot be done."""
        table: DeltaTable | None = self.held.table
        if table is None:
            return None
        table.refresh()
        if table.layout.schema_json != self.layout.schema_json or not table.is_as_laid_out():
            return None
        now = table.files()
        gone = self._gone(table, now.live, positions)
        if gone is None:
            return None
        sizes = np.cumsum([0, *(file.records for file in data)])
        moved = [gone[(gone >= first) & (gone < last)] - first for first, last in pairwise(sizes)]
        emptied = tuple(file for file, at in zip(data, moved, strict=True) if len(at) == file.records)
        kept = [(file, at) for file, at in zip(data, moved, strict=True) if len(at) < file.records]
        fresh = [(_as_live(file), at) for file, at in kept if len(at)]
        vectors = write_vectors(self.layout, fresh)
        written = Written(
            data=tuple(file for file, _ in kept),
            vectors=vectors,
            emptied=tuple(file.path for file in self.group if file.path in now.live),
        )
        with PendingFiles(self.layout, [Written(vectors=vectors)]):
            table.replace_files(now, written)
        return emptied

    def _gone(
        self, table: DeltaTable, live: Mapping[str, LiveFile], positions: Sequence[Positions]
    ) -> Positions | None:
        """Rows of the new files, in their order, that the stream deleted since. None: a file left the table by another
        writer's doing, and its rows may be elsewhere.
        """
        io, start, found = file_io(self.layout), 0, [np.empty(0, dtype=np.int64)]
        for file, read in zip(self.group, positions, strict=True):
            current = live.get(file.path)
            if current is not None:
                deleted = deleted_since(read_positions(io, file), read_positions(io, current))
            else:
                # By a commit of the stream a file leaves when no row of it is left.
                deleted = read if table.is_ours_since(self.version) else None
            if deleted is None:
                return None
            found.append(np.searchsorted(read, deleted) + start)
            start += len(read)
        return np.concatenate(found)


def _live_positions(layout: TableLayout, file: LiveFile) -> Positions:
    return np.setdiff1d(np.arange(file.records), read_positions(file_io(layout), file), assume_unique=True)


def _as_live(file: DataFile) -> LiveFile:
    return LiveFile(file.path, file.size, file.records, 0, "[]", {})
