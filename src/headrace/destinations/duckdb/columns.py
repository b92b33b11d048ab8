"""Columns as DuckDB has them: the SQL type of an Arrow type, which types widen, names in quotes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from ...pgtypes.registry import conversion_for
from ...schema import Column, ReplicatedTableSchema, quote_identifier

__all__ = [
    "WantedColumn",
    "column_names",
    "definitions",
    "is_nested",
    "listed",
    "quoted",
    "sql_type",
    "wanted_columns",
    "widens",
]

_PLAIN = {
    pa.bool_(): "BOOLEAN",
    pa.int16(): "SMALLINT",
    pa.int32(): "INTEGER",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.string(): "VARCHAR",
    pa.binary(): "BLOB",
    pa.date32(): "DATE",
}
_WIDENINGS = frozenset(
    {("SMALLINT", "INTEGER"), ("SMALLINT", "BIGINT"), ("INTEGER", "BIGINT"), ("FLOAT", "DOUBLE")},
)
_DECIMAL = re.compile(r"DECIMAL\((\d+), (\d+)\)")


@dataclass(frozen=True, slots=True)
class WantedColumn:
    """A column of the source, as the table is to have it."""

    source: Column
    type: str
    name: str

    @property
    def attnum(self) -> int:
        return self.source.attnum


def wanted_columns(source: ReplicatedTableSchema) -> tuple[WantedColumn, ...]:
    names = column_names(source)
    return tuple(
        WantedColumn(column, sql_type(conversion_for(column.type, column.typmod).arrow_type), names[column.name])
        for column in source.columns
    )


def column_names(source: ReplicatedTableSchema) -> dict[str, str]:
    """What the source's columns are called here. To DuckDB names that differ in case only are one: the second column of
    such a name has its attnum behind it.
    """
    taken = {column.name.casefold() for column in source.columns}
    names, seen = {}, set()
    for column in source.columns:
        name = column.name
        if name.casefold() in seen:
            name = f"{name}_{column.attnum}"
            while name.casefold() in taken:
                name = f"{name}_"
            taken.add(name.casefold())
        seen.add(column.name.casefold())
        names[column.name] = name
    return names


def sql_type(kind: pa.DataType) -> str:
    """The type that holds every value of the Arrow type."""
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision}, {kind.scale})"
    if pa.types.is_timestamp(kind):
        return "TIMESTAMP" if kind.tz is None else "TIMESTAMP WITH TIME ZONE"
    if pa.types.is_list(kind):
        return f"{sql_type(kind.value_type)}[]"
    if pa.types.is_map(kind):
        return f"MAP({sql_type(kind.key_type)}, {sql_type(kind.item_type)})"
    if pa.types.is_struct(kind):
        return f"STRUCT({definitions(pa.schema(list(kind)))})"
    return _PLAIN[kind]


def widens(old: str, new: str) -> bool:
    """Whether a column of the one type can become one of the other, with every value as it was."""
    before, after = _DECIMAL.fullmatch(old), _DECIMAL.fullmatch(new)
    if before is not None and after is not None:
        return before[2] == after[2] and int(before[1]) <= int(after[1])
    return (old, new) in _WIDENINGS


def is_nested(kind: str) -> bool:
    """Whether the type is a list, a map or a struct."""
    return kind.endswith("[]") or kind.startswith(("MAP(", "STRUCT("))


def quoted(*parts: str) -> str:
    return ".".join(map(quote_identifier, parts))


def definitions(columns: pa.Schema) -> str:
    """For CREATE TABLE. Nothing is NOT NULL: a value that no type holds becomes NULL and is put aside."""
    return ", ".join(f"{quoted(field.name)} {sql_type(field.type)}" for field in columns)


def listed(names: Iterable[str]) -> str:
    return ", ".join(map(quoted, names))
