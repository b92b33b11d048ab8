"""Which snapshots expire, by a table's metadata."""

from __future__ import annotations

from typing import Any

from headrace.config.iceberg import MaintenanceConfig
from headrace.destinations.iceberg.maintenance.expiry import expired_ids


def metadata(count: int, **more: Any) -> dict[str, Any]:
    """Snapshots 1, 2, … of seconds 1, 2, …; the last is current."""
    snapshots = [
        {"snapshot-id": n, "timestamp-ms": n * 1000, **({"parent-snapshot-id": n - 1} if n > 1 else {})}
        for n in range(1, count + 1)
    ]
    return {"snapshots": snapshots, "current-snapshot-id": count, "refs": {"main": {"snapshot-id": count}}, **more}


def test_too_many() -> None:
    assert expired_ids(metadata(5), MaintenanceConfig(snapshots_kept=3), 5000) == [1, 2]
    assert expired_ids(metadata(5), MaintenanceConfig(snapshots_kept=5), 5000) == []


def test_too_old_but_never_the_current() -> None:
    assert expired_ids(metadata(5), MaintenanceConfig(snapshot_age_s=2), 5000) == [1, 2]
    assert expired_ids(metadata(5), MaintenanceConfig(snapshot_age_s=0), 10**9) == [1, 2, 3, 4]


def test_not_what_a_tag_or_another_branch_has() -> None:
    refs = {"main": {"snapshot-id": 5}, "audit": {"snapshot-id": 2}}
    assert expired_ids(metadata(5, refs=refs), MaintenanceConfig(snapshots_kept=1), 5000) == [1, 3, 4]
    aside = metadata(5)
    aside["snapshots"][3]["parent-snapshot-id"] = 2
    assert expired_ids(aside, MaintenanceConfig(snapshots_kept=1), 5000) == [1, 2, 4]


def test_a_table_without_snapshots() -> None:
    empty = {"snapshots": [], "current-snapshot-id": -1, "refs": {}}
    assert expired_ids(empty, MaintenanceConfig(snapshots_kept=1), 5000) == []
    assert expired_ids({}, MaintenanceConfig(), 5000) == []
