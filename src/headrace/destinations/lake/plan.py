"""What is decided about a table before it is written: its name, mode, partitions and order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from ...config.json_as import JsonAs
from ...config.table_mode import TableMode
from ...lsn import INVALID_LSN
from ...schema import ReplicatedTableSchema
from ..change_log import BEFORE
from ..fold import fold_key
from ..table_plans import check_columns, table_columns
from .compaction_settings import CompactionSettings
from .contract import NewTable
from .evolution.column_record import COLUMNS, ColumnRecord
from .record import PIPELINE, SCHEMA_VERSION, SOURCE, TABLE_ID
from .schema import iceberg_schema, partition_spec, sort_order

__all__ = ["LakeSettings", "TablePlan"]


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
    settings: LakeSettings
    defaults: Mapping[str, str]
    """Properties of every table that Headrace creates; settings may override them."""
    has_own_name: bool = False
    """Whether settings name this very table, not a pattern."""
    partition_by: tuple[str, ...] = ()
    sort_by: tuple[str, ...] = ()
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
            spec=partition_spec(self.partition_by, schema, name),
            sort_order=sort_order(self.sort_by, schema, name),
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
