"""Orphans: files under a table's location that no snapshot names, left by crashes and failed attempts."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from typing import Any

import pyarrow.fs as pa_fs
import structlog
from pyiceberg.io.pyarrow import PyArrowFileIO

from ....config.iceberg import MaintenanceConfig
from ....errors import DestinationError
from ...lake.files import TableLayout
from ...lake.java_errors import java_errors
from ...lake.maintenance.held import HeldTable
from ...lake.places import earlier_runs, file_io
from ..catalog import Catalog
from ..java import Java

__all__ = ["is_orphan", "remove_orphans"]

_log = structlog.get_logger("headrace.destinations.iceberg")

# With a shorter age, the stream's own files must not be on their way while they are looked for.
_SAFE_AGE_S = 3600.0
# What Iceberg and we write. Not the whole location: another table may lie below it (namespace a.b beside table a.b).
_DIRECTORIES = ("data", "metadata")


def remove_orphans(catalog: Catalog, held: HeldTable, settings: MaintenanceConfig, now: datetime.datetime) -> int:
    """Remove files that nobody names: those of this pipeline's earlier runs at once, all others when old enough.

    None while the table is copied: its files are named at the end, and that may be days after the first was written.
    """
    layout = None if held.table is None else held.table.layout
    table = None if layout is None else catalog.load(held.name)
    if layout is None or table is None:
        return 0
    with nullcontext() if settings.orphan_age_s >= _SAFE_AGE_S else held.lock:
        # What is begun from now on is young when the files are listed.
        return 0 if held.copying else _remove(catalog.java, layout, table, settings, now)


def _remove(java: Java, layout: TableLayout, table: Any, settings: MaintenanceConfig, now: datetime.datetime) -> int:
    with java_errors(f"list the files of table {layout.name}"):
        table.refresh()
        location = str(table.location())
        live = _current_files(java, table)
    file_system, listed = _listed(layout, location)
    # After the listing: what was committed until now is known to be in use.
    with java_errors(f"list the files of table {layout.name}"):
        table.refresh()
        named = _named_files(java, table)
    _check_comparable(layout, location, live, listed)
    oldest = now - datetime.timedelta(seconds=settings.orphan_age_s)
    orphans = [
        info for place, info in listed.items() if place not in named and is_orphan(info, layout.file_prefix, oldest)
    ]
    for orphan in orphans:
        file_system.delete_file(orphan.path)
    if orphans:
        _log.info("orphan files removed", table=layout.name, files=len(orphans), bytes=sum(o.size for o in orphans))
    return len(orphans)


def is_orphan(info: pa_fs.FileInfo, file_prefix: str, oldest: datetime.datetime) -> bool:
    """Whether a file that no snapshot names may go: an earlier run's never will be named."""
    earlier = info.base_name.startswith(earlier_runs(file_prefix)) and not info.base_name.startswith(file_prefix)
    return earlier or (info.mtime is not None and info.mtime < oldest)


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
                listed[_place(info.path)] = info
    return file_system, listed


def _current_files(java: Java, table: Any) -> set[str]:
    snapshot = table.currentSnapshot()
    return set() if snapshot is None else set(_content(java, table, snapshot.allManifests(table.io())))


def _named_files(java: Java, table: Any) -> set[str]:
    """All files of all snapshots, and all metadata that is or was current."""
    reachable, io = java.iceberg.ReachableFileUtil, table.io()
    named = {_place(path) for path in reachable.metadataFileLocations(table, False)}
    named |= {_place(path) for path in reachable.manifestListLocations(table)}
    named |= {_place(path) for path in reachable.statisticsFilesLocations(table)}
    named.add(_place(reachable.versionHintLocation(table)))
    # Equal by path: snapshots share most manifests.
    manifests = java.iceberg.relocated.com.google.common.collect.Sets.newHashSet()
    for snapshot in table.snapshots():
        manifests.addAll(snapshot.allManifests(io))
    named |= {_place(manifest.path()) for manifest in manifests}
    return named | set(_content(java, table, manifests))


def _content(java: Java, table: Any, manifests: Iterable[Any]) -> Iterator[str]:
    for manifest in manifests:
        paths = java.list_of(java.iceberg.ManifestFiles.readPaths(manifest, table.io(), table.specs()))
        yield from (_place(path) for path in java.texts(paths))


def _check_comparable(layout: TableLayout, location: str, live: set[str], listed: Iterable[str]) -> None:
    """Raise unless every file in use was found: else two spellings of a location would make all of them orphans."""
    below = tuple(f"{_place(location)}/{directory}/" for directory in _DIRECTORIES)
    missing = {path for path in live if path.startswith(below)}.difference(listed)
    if missing:
        msg = f"the listing of table {layout.name} lacks {len(missing)} files that are in use: no orphans are removed"
        raise DestinationError(msg, detail=f"one of them is {min(missing)}")


def _place(location: str) -> str:
    """Without scheme and leading slashes: `file:/a` is `file:///a` is `/a`, and `s3a://b/c` is `s3://b/c` is `b/c`."""
    return re.sub(r"^[A-Za-z][A-Za-z0-9+.-]*:", "", location).lstrip("/").rstrip("/")
