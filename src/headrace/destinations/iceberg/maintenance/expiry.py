"""Expiry of snapshots: old ones are forgotten, with the files that only they used."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ....config.iceberg import MaintenanceConfig
from ...lake.java_errors import java_errors
from ..catalog import Catalog

__all__ = ["expire_snapshots", "expired_ids"]

# In one commit: each id is a call over the bridge, and the commit may have to be repeated.
_AT_ONCE = 1_000
_MS = 1_000


def expire_snapshots(catalog: Catalog, name: tuple[str, ...], settings: MaintenanceConfig, now_ms: int) -> int:
    """Forget snapshots that are too old or too many. Needs no lock: the current one stays. Returns how many it was."""
    table = catalog.load(name)
    if table is None:
        return 0
    with java_errors(f"expire snapshots of table {'.'.join(name)}"):
        metadata = json.loads(catalog.java.iceberg.TableMetadataParser.toJson(table.operations().current()))
        expired = expired_ids(metadata, settings, now_ms)
        for start in range(0, len(expired), _AT_ONCE):
            # Iceberg has a short cut for what is only too old: it removes each file that an expired snapshot took out
            # of the table, also a Puffin file of which other vectors are in use, if somebody else wrote it so.
            # Snapshots given by id take the way that compares all files in use.
            expiry = table.expireSnapshots().expireOlderThan(_oldest(settings, now_ms)).retainLast(1)
            # The oldest first: what is left is a chain at any time.
            for snapshot in expired[start : start + _AT_ONCE]:
                expiry.expireSnapshotId(snapshot)
            expiry.commit()
            table.refresh()
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
