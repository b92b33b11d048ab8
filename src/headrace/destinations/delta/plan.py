"""What is decided about a Delta table before it is written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ...config.delta import DeltaConfig
from ...config.table_mode import TableMode
from ...schema import TableName
from ..lake.plan import TablePlan
from ..table_plans import plan_tables

__all__ = ["make_plans", "quarantine_plan"]


def make_plans(
    settings: DeltaConfig, tables: Iterable[TableName], formerly: Mapping[TableName, Sequence[str]] = {}
) -> dict[TableName, TablePlan]:
    defaults = _properties(settings)
    return {
        table: TablePlan(
            plan.name,
            plan.mode,
            settings,
            defaults,
            has_own_name=plan.config is not None and plan.config.name is not None,
            shows_defaults=False,
        )
        for table, plan in plan_tables(settings, tables, formerly).items()
    }


def quarantine_plan(settings: DeltaConfig, pipeline_id: int) -> TablePlan:
    name = ("headrace", f"quarantine_{pipeline_id}")
    return TablePlan(name, TableMode.CHANGELOG, settings, _properties(settings))


def _properties(settings: DeltaConfig) -> dict[str, str]:
    return {
        "delta.columnMapping.mode": "name",
        "delta.enableDeletionVectors": "true",
        "delta.enableTypeWidening": "true",
        # A checkpoint is a job of Spark's, in between the commits: seldom enough, with a commit a second.
        "delta.checkpointInterval": "100",
        "delta.deletedFileRetentionDuration": f"interval {round(settings.maintenance.retention_s)} seconds",
        # A commit a second makes 86,400 files of the log a day, and each is a version that can be read.
        "delta.logRetentionDuration": f"interval {round(min(settings.maintenance.retention_s, 2 * 86_400))} seconds",
    }
