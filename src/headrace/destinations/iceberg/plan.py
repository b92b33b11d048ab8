"""What is decided about a table before it is written: its name, mode, partitions and order."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from ...config.iceberg import IcebergConfig, IcebergTableConfig, JsonAs
from ...config.table_destination import DestinationTableConfig
from ...config.table_mode import TableMode
from ...lsn import INVALID_LSN
from ...schema import ReplicatedTableSchema, TableName
from ..change_log import BEFORE
from ..fold import fold_key
from ..table_plans import check_columns, plan_tables, table_columns
from .compaction_settings import CompactionSettings
from .evolution.column_record import COLUMNS, ColumnRecord
from .files import TableLayout
from .java import Java
from .lake import NewTable
from .record import PIPELINE, SCHEMA_VERSION, SOURCE, TABLE_ID
from .schema import iceberg_schema, partition_spec, sort_order

__all__ = ["TABLE_PROPERTIES", "LakeSettings", "TablePlan", "make_plans", "sorted_by"]

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


class LakeSettings(Protocol):
    """What the settings of all lake formats have."""

    @property
    def json_as(self) -> JsonAs: ...

    @property
    def properties(self) -> Mapping[str, str]: ...

    @property
    def maintenance(self) -> CompactionSettings: ...

    @property
    def commit_retries(self) -> int: ...


@dataclass(frozen=True, slots=True)
class TablePlan:
    """One table's part of the settings."""

    name: tuple[str, ...]
    mode: TableMode
    config: IcebergTableConfig
    settings: LakeSettings
    defaults: Mapping[str, str]
    """Properties of every table that Headrace creates; settings may override them."""
    shows_defaults: bool = True
    """Whether rows that are there can show a value in a column that is added."""

    def key(self, source: ReplicatedTableSchema) -> tuple[str, ...] | None:
        """The columns by which rows are found; none in a change log, where no row is ever looked for."""
        return () if self.mode is TableMode.CHANGELOG else fold_key(source)

    def new_table(self, source: ReplicatedTableSchema, rows: pa.Schema, pipeline_id: int) -> NewTable:
        check_columns(source, self.mode)
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
                **self.defaults,
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
    """As `plan_tables`, with what only Iceberg tables have."""
    defaults = {
        **TABLE_PROPERTIES,
        "write.target-file-size-bytes": str(settings.maintenance.target_file_bytes),
        "commit.retry.num-retries": str(settings.commit_retries),
    }
    return {
        table: TablePlan(plan.name, plan.mode, _own(plan.config), settings, defaults)
        for table, plan in plan_tables(settings, tables, formerly).items()
    }


def _own(config: DestinationTableConfig | None) -> IcebergTableConfig:
    return config if isinstance(config, IcebergTableConfig) else IcebergTableConfig()
