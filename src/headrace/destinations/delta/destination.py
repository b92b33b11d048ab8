"""The Delta destination: its catalog, its plans and its maintenance, put into what all lake formats share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ...config.delta import DeltaConfig
from ...config.table_destination import OnTableRename
from ...schema import TableName
from ..contract import DestinationContext
from ..lake.destination import LakeDestination
from ..lake.maintenance.held import HeldTable
from ..lake.maintenance.schedule import Schedule
from ..lake.plan import TablePlan
from .catalog import DeltaCatalog
from .java import PACKAGES, SPARK_CONF, DeltaJava
from .maintenance import DeltaUpkeep
from .paths import is_local
from .plan import make_plans, quarantine_plan

__all__ = ["DeltaDestination"]


class _Delta:
    """Implements `Lake`."""

    name = "delta"

    def __init__(self, settings: DeltaConfig) -> None:
        self._settings = settings
        self.commit_retries = settings.commit_retries

    def catalog(self, context: DestinationContext) -> DeltaCatalog:
        return DeltaCatalog(DeltaJava(context.spark), self._settings, context.pipeline_id)

    def plans(
        self, tables: Iterable[TableName], formerly: Mapping[TableName, Sequence[str]]
    ) -> dict[TableName, TablePlan]:
        return make_plans(self._settings, tables, formerly)

    def quarantine_plan(self, pipeline_id: int) -> TablePlan:
        return quarantine_plan(self._settings, pipeline_id)

    def maintenance(self, catalog: Any, tables: Callable[[], Iterable[HeldTable]], quarantine: HeldTable) -> Schedule:
        return Schedule(DeltaUpkeep(catalog.java, self._settings.maintenance), lambda: [*tables(), quarantine])


class DeltaDestination(LakeDestination):
    """See `docs/destinations/delta.md`."""

    def __init__(self, settings: DeltaConfig) -> None:
        if not is_local(settings.warehouse):
            # A table is its directory, and an object store has none that could be renamed.
            settings = settings.model_copy(update={"on_table_rename": OnTableRename.KEEP})
        super().__init__(settings, _Delta(settings))
        self.packages = PACKAGES
        self.spark_conf: Mapping[str, str] = SPARK_CONF
