"""Orphans: files under a table's location that no snapshot names, left by crashes and failed attempts."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import pyarrow.fs as pa_fs
import structlog
from pyiceberg.io.pyarrow import PyArrowFileIO

from ....config.iceberg import MaintenanceConfig
from ....errors import DestinationError
from ...lake.fence import is_of_earlier_run
from ...lake.files import TableLayout, Written
from ...lake.java_errors import java_errors
from ...lake.maintenance.held import HeldTable
from ...lake.places import file_io
from ..catalog import Catalog
from ..expired_files import ExpiredFiles
from ..java import Java
from ..reachable import comparable, current_files, reachable_files

__all__ = ["remove_orphans"]

_log = structlog.get_logger("headrace.destinations.iceberg")

# With a shorter age, the stream's own files must not be on their way while they are looked for.
_SAFE_AGE_S = 3600.0
# What Iceberg and we write. Not the whole location: another table may lie below it (namespace a.b beside table a.b).
_DIRECTORIES = ("data", "metadata")


def remove_orphans(catalog: Catalog, held: HeldTable, settings: MaintenanceConfig, now: datetime.datetime) -> int:
    """Remove files that nobody names: all when old enough, and at once those of runs of this pipeline that can commit
    to the table no more, because it has the epoch of this one.

    None while the table is copied: its files are named at the end, and that may be days after the first was written.
    """
    layout = None if held.table is None else held.table.layout
    table = None if layout is None else catalog.load(held.name)
    if layout is None or table is None:
        return 0
    with nullcontext() if settings.orphan_age_s >= _SAFE_AGE_S else held.lock:
        # What is begun from now on is young when the files are listed.
        return 0 if held.copying else _Search(catalog.java, held, layout, table).remove(settings, now)


@dataclass(frozen=True, slots=True)
class _Search:
    """One search below one table. `table` is Java's, loaded for it alone."""

    java: Java
    held: HeldTable
    layout: TableLayout
    table: Any

    def remove(self, settings: MaintenanceConfig, now: datetime.datetime) -> int:
        with java_errors(f"list the files of table {self.layout.name}"):
            self.table.refresh()
            location = str(self.table.location())
            live = current_files(self.java, self.table)
        file_system, listed = _listed(self.layout, location)
        # After the listing: what was committed until now is known to be in use.
        named = self._named()
        earlier = {
            place
            for place, info in listed.items()
            if place not in named and is_of_earlier_run(info.base_name, self.layout.file_prefix)
        }
        fenced = bool(earlier) and self._fenced()
        if fenced:
            # And what earlier runs committed until they were kept from it.
            named = self._named()
        _check_comparable(self.layout, location, live, listed)
        oldest = now - datetime.timedelta(seconds=settings.orphan_age_s)
        orphans = [
            info
            for place, info in listed.items()
            if place not in named and ((fenced and place in earlier) or self._is_abandoned(info, oldest))
        ]
        for orphan in orphans:
            file_system.delete_file(orphan.path)
        if orphans:
            size = sum(orphan.size for orphan in orphans)
            _log.info("orphan files removed", table=self.layout.name, files=len(orphans), bytes=size)
        return len(orphans)

    def _is_abandoned(self, info: pa_fs.FileInfo, oldest: datetime.datetime) -> bool:
        """Whether a file that no snapshot names is too old to be on its way into a commit.

        Those of later runs are spared at any age: this run may be the one that was replaced.
        """
        later = is_of_earlier_run(self.layout.file_prefix, info.base_name)
        return info.mtime is not None and info.mtime < oldest and not later

    def _named(self) -> set[str]:
        """Return the files of all snapshots, and those of expired ones that are kept for readers."""
        with java_errors(f"list the files of table {self.layout.name}"):
            self.table.refresh()
            named = set(reachable_files(self.java, self.table))
        # After the snapshots: a file is listed before the last snapshot that refers to it expires.
        return named | ExpiredFiles(self.java, self.table, file_io(self.layout), self.layout.name).pending()

    def _fenced(self) -> bool:
        """Keep earlier runs from committing to the table, if that was not done yet, before their files are removed."""
        with self.held.lock:
            table = self.held.table
            if table is None:
                return False
            table.refresh()
            if not table.fence.has_marked(table.properties()):
                table.add(Written(), {})
            return bool(table.fence.has_marked(table.properties()))


def _listed(layout: TableLayout, location: str) -> tuple[pa_fs.FileSystem, dict[str, pa_fs.FileInfo]]:
    """The files there are, by what is the same in all spellings of their location."""
    io = file_io(layout)
    if not isinstance(io, PyArrowFileIO):
        msg = f"cannot list the files of table {layout.name}: {type(io).__name__} has no listing"
        raise DestinationError(msg, hint="remove the property py-io-impl, or remove orphan files with Spark")
    scheme, host, path = PyArrowFileIO.parse_location(location)
    file_system = io.fs_by_scheme(scheme, host)
    listed = {}
    for directory in _DIRECTORIES:
        selector = pa_fs.FileSelector(f"{path.rstrip('/')}/{directory}", allow_not_found=True, recursive=True)
        for info in file_system.get_file_info(selector):
            if info.type == pa_fs.FileType.File:
                listed[comparable(info.path)] = info
    return file_system, listed


def _check_comparable(layout: TableLayout, location: str, live: set[str], listed: Iterable[str]) -> None:
    """Raise unless every file in use was found: else two spellings of a location would make all of them orphans."""
    below = tuple(f"{comparable(location)}/{directory}/" for directory in _DIRECTORIES)
    missing = {path for path in live if path.startswith(below)}.difference(listed)
    if missing:
        msg = f"the listing of table {layout.name} lacks {len(missing)} files that are in use: no orphans are removed"
        raise DestinationError(msg, detail=f"one of them is {min(missing)}")
