"""What maintenance does to an Iceberg table."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Iterable

from ....config.iceberg import MaintenanceConfig
from ...lake.java_errors import java_errors
from ...lake.maintenance.held import HeldTable
from ...lake.maintenance.schedule import Schedule
from ..catalog import Catalog
from .compaction import Compaction
from .expiry import expire_snapshots
from .orphans import remove_orphans

__all__ = ["Maintenance"]

_MS = 1_000


class _IcebergUpkeep:
    """Implements `Upkeep`."""

    def __init__(self, catalog: Catalog, settings: MaintenanceConfig) -> None:
        self._catalog, self._settings = catalog, settings
        self.enabled, self.interval_s = settings.enabled, settings.interval_s
        self.search_interval_s = settings.orphan_interval_s

    def version(self, held: HeldTable) -> int | None:
        table = held.table
        if table is None:
            return None
        with java_errors(f"look at table {'.'.join(held.name)}"):
            snapshot = table.java_table.currentSnapshot()
            return None if snapshot is None else int(snapshot.snapshotId())

    def compact(self, held: HeldTable, going: Callable[[], None]) -> int:
        compaction = Compaction.of(self._catalog, held, self._settings)
        return 0 if compaction is None else compaction.run(going)

    def expire(self, held: HeldTable) -> int:
        return expire_snapshots(self._catalog, held, self._settings, int(time.time() * _MS))

    def search(self, held: HeldTable) -> int:
        return remove_orphans(self._catalog, held, self._settings, datetime.datetime.now(datetime.UTC))


class Maintenance(Schedule):
    """Of Iceberg tables."""

    def __init__(
        self, catalog: Catalog, settings: MaintenanceConfig, tables: Callable[[], Iterable[HeldTable]]
    ) -> None:
        super().__init__(_IcebergUpkeep(catalog, settings), tables)
