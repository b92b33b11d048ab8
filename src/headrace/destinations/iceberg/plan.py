"""What is decided about a table before it is written: its name, mode, partitions and order."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ...config.iceberg import IcebergConfig, IcebergTableConfig
from ...config.table_mode import TableMode
from ...errors import ConfigError
from ...lsn import INVALID_LSN
from ...schema import ReplicatedTableSchema, TableName
from ..fold import fold_key
from ..names import destination_names
from .catalog import NewTable
from .changelog import BEFORE
from .evolution.column_record import COLUMNS, ColumnRecord
from .files import TableLayout
from .java import Java
from .record import PIPELINE, SCHEMA_VERSION, SOURCE, TABLE_ID
from .schema import iceberg_schema, partition_spec, sort_order, table_columns

__all__ = ["TABLE_PROPERTIES", "TablePlan", "make_plans", "sorted_by"]

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
"""Of every table that Headrace creates; settings may override them."""


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

    def check_columns(self, source: ReplicatedTableSchema) -> None:
        """Raise ConfigError for a column that is named like one of ours, by which the table tells what happened."""
        ours = {name.casefold() for name in table_columns(pa.schema([]), self.mode).names}
        for column in source.columns:
            if column.name.casefold() in ours:
                name = source.table.name
                raise ConfigError(
                    f"table {name} has a column {column.name}, a name that mode {self.mode.value} needs for its own",
                    hint="rename the column at the source, leave it out of the publication by a column list, or set "
                    f'destination.tables."{name}".mode to mirror, which adds no columns',
                )

    def new_table(self, source: ReplicatedTableSchema, rows: pa.Schema, pipeline_id: int) -> NewTable:
        self.check_columns(source)
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
                **TABLE_PROPERTIES,
                "write.target-file-size-bytes": str(self.settings.maintenance.target_file_bytes),
                "commit.retry.num-retries": str(self.settings.commit_retries),
                **({"comment": comment} if comment else {}),
                **self.settings.properties,
                PIPELINE: str(pipeline_id),
                SOURCE: name,
                TABLE_ID: str(source.table.id),
                SCHEMA_VERSION: str(INVALID_LSN),
                **({} if self.mode is TableMode.CHANGELOG else {COLUMNS: self.columns(schema, source)}),
            },
        )

    @staticmethod
    def columns(schema: Mapping[str, Any], source: ReplicatedTableSchema) -> str:
        """The record of which field is which column, of a table whose fields are called like them."""
        return ColumnRecord.by_name(schema, source.columns, BEFORE).text()

    def layout(self, java: Java, table: Any, file_prefix: str, io: Mapping[str, str]) -> TableLayout:
        """What tasks must know of the Java table."""
        name = ".".join(self.name)
        properties = java.mapping(table.properties())
        location = properties.get("write.data.path") or f"{table.location()}/data"
        order_json = java.iceberg.SortOrderParser.toJson(table.sortOrder())
        schema_json = java.iceberg.SchemaParser.toJson(table.schema())
        return TableLayout(
            name=name,
            data_location=location,
            file_prefix=file_prefix,
            schema_json=schema_json,
            spec_json=java.iceberg.PartitionSpecParser.toJson(table.spec()),
            io_properties={**io, **java.mapping(table.io().properties())},
            sort_by=sorted_by(order_json, schema_json),
            sort_order_id=json.loads(order_json)["order-id"],
            target_file_bytes=int(
                properties.get("write.target-file-size-bytes", self.settings.maintenance.target_file_bytes)
            ),
        )


def sorted_by(order_json: str, schema_json: str) -> tuple[tuple[str, bool], ...]:
    """Columns by which the table is sorted, by their names now, and whether descending. Other transforms than the
    column itself end it: only Headrace makes sort orders of these tables.
    """
    names = {field["id"]: field["name"] for field in json.loads(schema_json)["fields"]}
    columns = []
    for field in json.loads(order_json)["fields"]:
        if field["transform"] != "identity" or field["source-id"] not in names:
            break
        columns.append((names[field["source-id"]], field["direction"] == "desc"))
    return tuple(columns)


def make_plans(
    settings: IcebergConfig, tables: Iterable[TableName], formerly: Mapping[TableName, Sequence[str]] = {}
) -> dict[TableName, TablePlan]:
    """Plans by table. Raises ConfigError for names that collide and settings of tables that are not there.

    `formerly` are names that tables had before: settings under such a name are still theirs.
    """
    found = list(tables)
    configs = _configs(settings, found, formerly)
    unknown = settings.tables.keys() - {key for key, _ in configs.values()}
    named = {str(table): config.name for table, (_, config) in configs.items()} | dict.fromkeys(unknown)
    names = destination_names(found, settings.namespace, settings.table_name, named)
    return {
        table: TablePlan(name, configs[table][1].mode or settings.mode, configs[table][1], settings)
        if table in configs
        else TablePlan(name, settings.mode, IcebergTableConfig(), settings)
        for table, name in names.items()
    }


def _configs(
    settings: IcebergConfig, tables: Sequence[TableName], formerly: Mapping[TableName, Sequence[str]]
) -> dict[TableName, tuple[str, IcebergTableConfig]]:
    """The settings of single tables, and the name under which they are."""
    now, configs = {str(table) for table in tables}, {}
    for table in tables:
        keys = [str(table), *(name for name in formerly.get(table, ()) if name not in now)]
        key = next((key for key in keys if key in settings.tables), None)
        if key is not None:
            configs[table] = key, settings.tables[key]
    return configs
