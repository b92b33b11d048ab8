"""Settings that all destinations with tables have: names, modes, and what single tables do differently."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from .form import Form
from .section import Section
from .table_mode import TableMode

__all__ = ["DestinationTableConfig", "OnTableRename", "SourceTable", "TableDestinationConfig"]

SourceTable = Annotated[str, Form(r"^[^.]+\..+$", "must be named as schema.table")]
"""A table's name at the source, as schema.table."""


class OnTableRename(StrEnum):
    """What becomes of a table's name when its source is renamed, or moved to another schema."""

    RENAME = "rename"
    KEEP = "keep"


class DestinationTableConfig(Section):
    """What one table does differently."""

    name: Annotated[str | None, Form(r"^[^.]+(\.[^.]+)+$", "must be given as namespace.table")] = Field(
        default=None,
        description="The table's name at the destination, as namespace.table. Default none: by the patterns.",
    )
    mode: TableMode | None = Field(
        default=None,
        description="mirror: the current rows; changelog: every change as a row; soft_delete: the current rows, and "
        "deleted ones with a flag. Default none: the destination's.",
    )


class TableDestinationConfig(Section):
    """What destinations with tables have in common."""

    def directories(self) -> Mapping[str, str]:
        """The places it writes to, by the setting that names each: `check` looks at those on this machine."""
        return {}

    def place(self) -> tuple[str, str]:
        """Where it keeps what it knows of a pipeline, which only one destination of the pipeline can: the setting that
        names it, and the same text however that is written.
        """
        raise NotImplementedError

    namespace: str = Field(
        default="{schema}",
        min_length=1,
        description="The namespace of a table; `{schema}` and `{table}` stand for the source's. Default {schema}.",
    )
    table_name: str = Field(
        default="{table}",
        min_length=1,
        description="The name of a table within its namespace, with the same words. Default {table}.",
    )
    mode: TableMode = Field(
        default=TableMode.MIRROR, description="What tables hold that say nothing else. Default mirror."
    )
    tables: Mapping[SourceTable, DestinationTableConfig] = Field(
        default={}, description="What single tables do differently, by their name at the source, as schema.table."
    )
    on_table_rename: OnTableRename = Field(
        default=OnTableRename.RENAME,
        description="Whether a table follows when its source is renamed or moved to another schema, by the patterns, "
        "or keeps its name. One with a name of its own keeps it. Default rename.",
    )
