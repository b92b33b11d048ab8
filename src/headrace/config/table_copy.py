"""Settings of the initial copy: which tables are copied, and how a table is cut."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field, field_validator, model_validator

from ..schema import TableName
from .section import Section
from .spool import MEBIBYTE

__all__ = ["CopyConfig", "TableSyncCopyConfig", "TableSyncCopyType"]


class TableSyncCopyType(StrEnum):
    """Which tables are copied; those that are not are created empty and streamed."""

    INCLUDE_ALL_TABLES = "include_all_tables"
    SKIP_ALL_TABLES = "skip_all_tables"
    INCLUDE_TABLES = "include_tables"
    SKIP_TABLES = "skip_tables"


_LISTED = (TableSyncCopyType.INCLUDE_TABLES, TableSyncCopyType.SKIP_TABLES)


class TableSyncCopyConfig(Section):
    """Which tables are copied before they are streamed."""

    type: TableSyncCopyType = Field(
        default=TableSyncCopyType.INCLUDE_ALL_TABLES,
        description="All tables, none, only the listed ones, or all but those. A table that is not copied is created "
        "at the destination all the same, and gets the changes made from then on. Default: all.",
    )
    tables: tuple[str, ...] = Field(
        default=(),
        description="For include_tables and skip_tables: names as `schema.table`, unquoted, as the publication has "
        "them. Default none.",
    )

    @field_validator("tables")
    @classmethod
    def _qualified(cls, tables: tuple[str, ...]) -> tuple[str, ...]:
        if any(not all(name.partition(".")[::2]) for name in tables):
            msg = "give every table as schema.table"
            raise ValueError(msg)
        return tables

    @model_validator(mode="after")
    def _tables_where_they_count(self) -> TableSyncCopyConfig:
        if (self.type in _LISTED) != bool(self.tables):
            verb = "must be given" if self.type in _LISTED else "must be left out"
            msg = f"tables {verb} with type {self.type.value}"
            raise ValueError(msg)
        return self

    def copies(self, table_name: TableName) -> bool:
        """Whether this table's rows are copied."""
        if self.type not in _LISTED:
            return self.type is TableSyncCopyType.INCLUDE_ALL_TABLES
        return (str(table_name) in self.tables) == (self.type is TableSyncCopyType.INCLUDE_TABLES)


class CopyConfig(Section):
    """How a table is cut into ranges that are copied side by side."""

    rows_per_range: int = Field(
        default=250_000,
        ge=1,
        description="Rows, as the server estimates them, at which a range is cut. Default 250,000: about a second of "
        "one connection.",
    )
    bytes_per_range: int = Field(
        default=64 * MEBIBYTE,
        ge=8192,
        description="Bytes on the source's disk, TOAST included, at which a range is cut, whichever limit comes first. "
        "Default 64 MiB: a connection's start does not count, and a failed range is no loss.",
    )
    key_ranges_over_bytes: int | None = Field(
        default=10 * 1024 * MEBIBYTE,
        ge=0,
        description="Tables larger than this are cut by key, where the key is an integer, a uuid or a timestamp; each "
        "range then has a snapshot of its own, and a restart goes on with the ranges that are left. Smaller ones are "
        "copied under one snapshot, which holds back vacuum on the source. None never cuts by key. Default 10 GiB.",
    )
