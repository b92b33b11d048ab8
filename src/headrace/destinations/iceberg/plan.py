"""What is decided about a table before it is written: its name, mode, partitions and order."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ...config.iceberg import IcebergConfig, IcebergTableConfig
from ...config.table_mode import TableMode
from ...errors import DestinationRejected
from ...schema import ReplicatedTableSchema, TableName
from ..fold import fold_key
from ..names import destination_names
from .catalog import NewTable
from .files import TableLayout
from .java import Java
from .record import PIPELINE, SOURCE
from .schema import iceberg_schema, partition_spec, sort_order, table_columns

__all__ = ["TablePlan", "make_plans"]

_PROPERTIES = {
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


@dataclass(frozen=True, slots=True)
class TablePlan:
    """One table's part of the settings."""

    name: tuple[str, ...]
    mode: TableMode
    config: IcebergTableConfig
    settings: IcebergConfig

    def key(self, source: ReplicatedTableSchema) -> tuple[str, ...] | None:
        """The columns by which rows are found; none in a change log, where no row is ever looked for."""
        return () if self.mode is TableMode.CHANGELOG else fold_key(source)

    def new_table(self, source: ReplicatedTableSchema, rows: pa.Schema, pipeline_id: int) -> NewTable:
        columns = table_columns(rows, self.mode)
        schema = iceberg_schema(source, columns, self.key(source), self.settings.json_as)
        name = str(source.table.name)
        comment = source.table.comment
        return NewTable(
            name=self.name,
            schema=schema,
            spec=partition_spec(self.config.partition_by, schema, name),
            sort_order=sort_order(self.config.sort_by, schema, name),
            properties={
                **_PROPERTIES,
                "write.target-file-size-bytes": str(self.settings.maintenance.target_file_bytes),
                "commit.retry.num-retries": str(self.settings.commit_retries),
                **({"comment": comment} if comment else {}),
                **self.settings.properties,
                PIPELINE: str(pipeline_id),
                SOURCE: name,
            },
        )

    def layout(self, java: Java, table: Any, file_prefix: str, io: Mapping[str, str]) -> TableLayout:
        """What tasks must know of the Java table."""
        name = ".".join(self.name)
        properties = java.mapping(table.properties())
        location = properties.get("write.data.path") or f"{table.location()}/data"
        order = table.sortOrder()
        schema_json = java.iceberg.SchemaParser.toJson(table.schema())
        _check_columns(self.config.sort_by, schema_json, name)
        return TableLayout(
            name=name,
            data_location=location,
            file_prefix=file_prefix,
            schema_json=schema_json,
            spec_json=java.iceberg.PartitionSpecParser.toJson(table.spec()),
            io_properties={**io, **java.mapping(table.io().properties())},
            sort_by=tuple((column.removeprefix("-"), column.startswith("-")) for column in self.config.sort_by),
            sort_order_id=int(order.orderId()),
            target_file_bytes=int(
                properties.get("write.target-file-size-bytes", self.settings.maintenance.target_file_bytes)
            ),
        )


def _check_columns(sort_by: Iterable[str], schema_json: str, name: str) -> None:
    names = {field["name"] for field in json.loads(schema_json)["fields"]}
    missing = [column for column in sort_by if column.removeprefix("-") not in names]
    if missing:
        msg = f"table {name} has no column {missing[0]}, by which it is to be sorted"
        raise DestinationRejected(msg, hint="correct sort_by, or resync the table")


def make_plans(settings: IcebergConfig, tables: Iterable[TableName]) -> dict[TableName, TablePlan]:
    """Plans by table. Raises ConfigError for names that collide and settings of tables that are not there."""
    named = {name: config.name for name, config in settings.tables.items()}
    names = destination_names(tables, settings.namespace, settings.table_name, named)
    plans = {}
    for table, name in names.items():
        config = settings.tables.get(str(table), IcebergTableConfig())
        plans[table] = TablePlan(name, config.mode or settings.mode, config, settings)
    return plans
