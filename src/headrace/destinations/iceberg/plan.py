"""What is decided about an Iceberg table before it is written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ...config.iceberg import IcebergConfig, IcebergTableConfig
from ...schema import TableName
from ..lake.plan import TablePlan
from ..table_plans import plan_tables

__all__ = ["TABLE_PROPERTIES", "make_plans"]

TABLE_PROPERTIES = {
    "format-version": "3",
    # For statements of others: the same kind of deletes that Headrace writes.
    "write.delete.mode": "merge-on-read",
    "write.update.mode": "merge-on-read",
    "write.merge.mode": "merge-on-read",
    "write.parquet.compression-codec": "zstd",
    # A commit a second makes 86,400 of them a day.
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "20",
    "commit.manifest.min-count-to-merge": "30",
}
"""Of every Iceberg table that Headrace creates."""


def make_plans(
    settings: IcebergConfig, tables: Iterable[TableName], formerly: Mapping[TableName, Sequence[str]] = {}
) -> dict[TableName, TablePlan]:
    """As `plan_tables`, with what only Iceberg tables have."""
    defaults = {
        **TABLE_PROPERTIES,
        "write.target-file-size-bytes": str(settings.maintenance.target_file_bytes),
        "commit.retry.num-retries": str(settings.commit_retries),
    }
    found = {}
    for table, plan in plan_tables(settings, tables, formerly).items():
        own = plan.config if isinstance(plan.config, IcebergTableConfig) else IcebergTableConfig()
        found[table] = TablePlan(
            plan.name,
            plan.mode,
            settings,
            defaults,
            has_own_name=own.name is not None,
            partition_by=own.partition_by,
            sort_by=own.sort_by,
        )
    return found
