"""The files that the snapshots of an Iceberg table refer to, in a form in which locations can be compared."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from .java import Java

__all__ = ["comparable", "current_files", "reachable_files", "unshared_files"]


def comparable(location: str) -> str:
    """Return a location without scheme and leading slashes.

    `file:/a` is `file:///a` is `/a`, and `s3a://b/c` is `s3://b/c` is `b/c`.
    """
    return re.sub(r"^[A-Za-z][A-Za-z0-9+.-]*:", "", location).lstrip("/").rstrip("/")


def current_files(java: Java, table: Any) -> set[str]:
    """Return the data files and delete files of the current snapshot of a Java table."""
    snapshot = table.currentSnapshot()
    return set() if snapshot is None else set(_content(java, table, snapshot.allManifests(table.io())))


def reachable_files(java: Java, table: Any) -> Iterator[str]:
    """Yield all files of all snapshots of a Java table, and its current and former metadata files.

    Manifest by manifest: a large table has millions of files.
    """
    reachable, io = java.iceberg.ReachableFileUtil, table.io()
    yield from (comparable(path) for path in reachable.metadataFileLocations(table, False))
    yield from (comparable(path) for path in reachable.manifestListLocations(table))
    yield from (comparable(path) for path in reachable.statisticsFilesLocations(table))
    yield comparable(reachable.versionHintLocation(table))
    # Equal by path: snapshots share most manifests.
    manifests = _sets(java).newHashSet()
    for snapshot in table.snapshots():
        manifests.addAll(snapshot.allManifests(io))
    yield from (comparable(manifest.path()) for manifest in manifests)
    yield from _content(java, table, manifests)


def unshared_files(java: Java, table: Any, snapshots: Iterable[Any]) -> list[str]:
    """Return all files that only these snapshots of a Java table refer to, as the table spells their locations.

    In the JVM, so that only those are handed over. Other than Iceberg's own cleanup of files it leaves none out when a
    manifest cannot be read: it raises.
    """
    chosen, io, sets = {int(snapshot.snapshotId()) for snapshot in snapshots}, table.io(), _sets(java)
    theirs, others, found = sets.newHashSet(), sets.newHashSet(), []
    for snapshot in table.snapshots():
        if int(snapshot.snapshotId()) in chosen:
            found.append(str(snapshot.manifestListLocation()))
            theirs.addAll(snapshot.allManifests(io))
        else:
            others.addAll(snapshot.allManifests(io))
    theirs.removeAll(others)
    found += [str(manifest.path()) for manifest in theirs]
    content = sets.newHashSet()
    for manifest in theirs:
        content.addAll(_paths(java, table, manifest))
    for manifest in others:
        if content.isEmpty():
            break
        content.removeAll(sets.newHashSet(_paths(java, table, manifest)))
    statistics = (*table.statisticsFiles(), *table.partitionStatisticsFiles())
    found += [str(one.path()) for one in statistics if int(one.snapshotId()) in chosen]
    return found + java.texts(content)


def _content(java: Java, table: Any, manifests: Iterable[Any]) -> Iterator[str]:
    for manifest in manifests:
        yield from (comparable(path) for path in java.texts(_paths(java, table, manifest)))


def _paths(java: Java, table: Any, manifest: Any) -> Any:
    return java.list_of(java.iceberg.ManifestFiles.readPaths(manifest, table.io(), table.specs()))


def _sets(java: Java) -> Any:
    return java.iceberg.relocated.com.google.common.collect.Sets
