"""Expiry of snapshots: old ones are forgotten, and the files that only they used are deleted some hours later."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ....config.iceberg import MaintenanceConfig
from ...lake.java_errors import java_errors
from ...lake.maintenance.held import HeldTable
from ...lake.places import file_io
from ..catalog import Catalog
from ..expired_files import ExpiredFiles
from ..reachable import unshared_files
from ..table import IcebergTable

__all__ = ["expire_snapshots", "expired_ids"]

# In one commit: each id is a call over the bridge, and the commit may have to be repeated.
_AT_ONCE = 1_000
_MS = 1_000


def expire_snapshots(catalog: Catalog, held: HeldTable, settings: MaintenanceConfig, now_ms: int) -> int:
    """Forget snapshots that are too old or too many, and delete files whose retention time is over.

    Needs no lock: the current snapshot stays. Returns how many snapshots expired. Raises DestinationFenced if a later
    run has written to the table.
    """
    opened: IcebergTable | None = held.table
    table = None if opened is None else catalog.load(held.name)
    if opened is None or table is None:
        return 0
    layout, java = opened.layout, catalog.java
    files = ExpiredFiles(java, table, file_io(layout), layout.name)
    with java_errors(f"expire snapshots of table {layout.name}"):
        opened.fence.admit(java.mapping(table.properties()), layout.name)
        metadata = json.loads(java.iceberg.TableMetadataParser.toJson(table.operations().current()))
        expired = expired_ids(metadata, settings, now_ms)
        for start in range(0, len(expired), _AT_ONCE):
            expiry = table.expireSnapshots().expireOlderThan(_oldest(settings, now_ms)).retainLast(1)
            # The oldest first: what is left is a chain at any time.
            for snapshot in expired[start : start + _AT_ONCE]:
                expiry.expireSnapshotId(snapshot)
            if files.has_listing:
                files.add(unshared_files(java, table, expiry.apply()), now_ms)
            # Without a listing nobody would find the lists: the files are left to the user's removal of orphan files.
            expiry.cleanExpiredFiles(False).commit()
            table.refresh()
        opened.fence.admit(java.mapping(table.properties()), layout.name)
    if files.has_listing:
        files.remove(settings, now_ms)
    return len(expired)


def expired_ids(metadata: Mapping[str, Any], settings: MaintenanceConfig, now_ms: int) -> list[int]:
    """Which of the current snapshot's ancestors go, oldest first; none that a branch or tag points to."""
    snapshots = {snapshot["snapshot-id"]: snapshot for snapshot in metadata.get("snapshots", [])}
    named = {reference["snapshot-id"] for reference in metadata.get("refs", {}).values()}
    ancestors = []
    snapshot = snapshots.get(metadata.get("current-snapshot-id"))
    while snapshot is not None:
        ancestors.append(snapshot)
        snapshot = snapshots.get(snapshot.get("parent-snapshot-id"))
    oldest = _oldest(settings, now_ms)
    expired = [
        snapshot["snapshot-id"]
        for place, snapshot in enumerate(ancestors)
        if place and (place >= settings.snapshots_kept or snapshot["timestamp-ms"] < oldest)
    ]
    return [snapshot for snapshot in reversed(expired) if snapshot not in named]


def _oldest(settings: MaintenanceConfig, now_ms: int) -> int:
    return now_ms - int(settings.snapshot_age_s * _MS)
