"""Which field of a table is which column of its source: kept in a table property, with every change of it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ....schema import Column

__all__ = ["COLUMNS", "ColumnRecord", "RecordedColumn"]

COLUMNS = "headrace.columns"
"""The property."""


@dataclass(frozen=True, slots=True)
class RecordedColumn:
    """`before` is the field of a change log that holds the column's old value. `live` is false for a column that a
    change log keeps though the source has it no more, or has it with another type.
    """

    attnum: int
    id: int
    before: int | None = None
    live: bool = True

    def json(self) -> dict[str, Any]:
        entry: dict[str, Any] = {"attnum": self.attnum, "id": self.id}
        if self.before is not None:
            entry["before"] = self.before
        return entry if self.live else {**entry, "live": False}


@dataclass(frozen=True, slots=True)
class ColumnRecord:
    """All columns of a source that a table has, and had."""

    columns: tuple[RecordedColumn, ...] = ()

    @classmethod
    def read(cls, text: str) -> ColumnRecord:
        return cls(
            tuple(
                RecordedColumn(entry["attnum"], entry["id"], entry.get("before"), entry.get("live", True))
                for entry in json.loads(text)
            )
        )

    @classmethod
    def by_name(cls, schema: Mapping[str, Any], columns: Iterable[Column], before: str | None = None) -> ColumnRecord:
        """Of a table whose fields are called like these columns; `before` names the struct of old values."""
        fields = {field["name"]: field for field in schema["fields"]}
        olds = {} if before is None or before not in fields else _children(fields[before])
        return cls(
            tuple(
                RecordedColumn(column.attnum, fields[column.name]["id"], olds.get(column.name))
                for column in columns
                if column.name in fields
            )
        )

    def text(self) -> str:
        return json.dumps([column.json() for column in self.columns], separators=(",", ":"))

    def ids(self) -> dict[int, int]:
        """Fields by attnum, of columns that the source has."""
        return {column.attnum: column.id for column in self.columns if column.live}


def _children(field: Mapping[str, Any]) -> dict[str, int]:
    return {child["name"]: child["id"] for child in field["type"]["fields"]}
