"""The Iceberg destination: its catalog, its plans and its maintenance, put into what all lake formats share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from ...config.iceberg import IcebergConfig
from ...config.table_mode import TableMode
from ...schema import TableName
from ..contract import DestinationContext
from ..lake.destination import LakeDestination
from ..lake.maintenance.held import HeldTable
from ..lake.plan import TablePlan
from .catalog import Catalog, catalog_packages
from .java import Java
from .maintenance import Maintenance
from .plan import TABLE_PROPERTIES, make_plans

__all__ = ["IcebergDestination"]


class _Iceberg:
    """Implements `Lake`."""

    name = "iceberg"

    def __init__(self, settings: IcebergConfig) -> None:
        self._settings = settings
        self.commit_retries = settings.commit_retries

    def catalog(self, context: DestinationContext) -> Catalog:
        return Catalog(Java(context.spark), self._settings)

    def plans(
        self, tables: Iterable[TableName], formerly: Mapping[TableName, Sequence[str]]
    ) -> dict[TableName, TablePlan]:
        return make_plans(self._settings, tables, formerly)

    def quarantine_plan(self, pipeline_id: int) -> TablePlan:
        name = ("headrace", f"quarantine_{pipeline_id}")
        return TablePlan(name, TableMode.CHANGELOG, self._settings, TABLE_PROPERTIES)

    def maintenance(
        self, catalog: Catalog, tables: Callable[[], Iterable[HeldTable]], quarantine: HeldTable
    ) -> Maintenance:
        return Maintenance(catalog, self._settings.maintenance, lambda: [*tables(), quarantine])


class IcebergDestination(LakeDestination):
    """See `docs/destinations/iceberg.md`."""

    def __init__(self, settings: IcebergConfig) -> None:
        super().__init__(settings, _Iceberg(settings))
        self.packages = catalog_packages(settings)
        self.spark_conf: Mapping[str, str] = {}
