"""From a table at the source to one of the destination, in Iceberg's JSON: columns, identity, partitions, order."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from ...config.json_as import JsonAs
from ...errors import ConfigError, DestinationRejected
from ...schema import ReplicatedTableSchema

__all__ = ["JSON_TYPES", "iceberg_schema", "iceberg_type", "may_identify", "partition_spec", "sort_order"]

_TRANSFORM = re.compile(r"(?P<name>[a-z]+)\(\s*(?:(?P<number>\d+)\s*,\s*)?(?P<column>.+?)\s*\)")
_PERIODS = {"years": "year", "months": "month", "days": "day", "hours": "hour"}
_FIRST_PARTITION_ID = 1000
JSON_TYPES = frozenset({"json", "jsonb"})
_PRIMITIVES: tuple[tuple[Any, str], ...] = (
    (pa.types.is_boolean, "boolean"),
    (pa.types.is_int64, "long"),
    (pa.types.is_uint32, "long"),
    (pa.types.is_integer, "int"),
    (pa.types.is_float32, "float"),
    (pa.types.is_float64, "double"),
    (pa.types.is_date32, "date"),
    (pa.types.is_string, "string"),
    (pa.types.is_large_string, "string"),
    (pa.types.is_binary, "binary"),
    (pa.types.is_large_binary, "binary"),
)


def iceberg_schema(
    source: ReplicatedTableSchema, columns: pa.Schema, key: Sequence[str] | None, json_as: JsonAs
) -> dict[str, Any]:
    """Iceberg's JSON of a schema. Key columns are required and its identifier; all others may be NULL, because a value
    that its type cannot hold becomes NULL whatever the source says.
    """
    ids = iter(range(1, 1 << 30))
    required = set(key or ())
    comments = {column.name: column.comment for column in source.columns}
    variants = {
        column.name for column in source.columns if json_as is JsonAs.VARIANT and column.type.name in JSON_TYPES
    }
    # A key is compared by its text.
    variants -= required
    fields = []
    for number, column in zip(ids, columns, strict=False):
        entry: dict[str, Any] = {"id": number, "name": column.name, "required": column.name in required}
        entry["type"] = column.type
        if comments.get(column.name):
            entry["doc"] = comments[column.name]
        fields.append(entry)
    for entry in fields:
        entry["type"] = "variant" if entry["name"] in variants else iceberg_type(entry["type"], ids)
    identifiers = [entry["id"] for entry in fields if entry["required"] and may_identify(entry["type"])]
    whole = len(identifiers) == len(required)
    return {"type": "struct", "schema-id": 0, "identifier-field-ids": identifiers if whole else [], "fields": fields}


def may_identify(kind: str | Mapping[str, Any]) -> bool:
    """Tell whether Iceberg takes a column of this type for an identifier: no floating point, no list, no map."""
    return isinstance(kind, str) and kind not in ("float", "double")


def iceberg_type(kind: pa.DataType, ids: Iterator[int]) -> str | dict[str, Any]:
    """Iceberg's JSON of a type; fields within it get ids."""
    for matches, name in _PRIMITIVES:
        if matches(kind):
            return name
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz is None else "timestamptz"
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision}, {kind.scale})"
    if pa.types.is_list(kind):
        return _with_ids("list", {"element": kind.value_type}, ids, {"element-required": False})
    if pa.types.is_map(kind):
        return _with_ids("map", {"key": kind.key_type, "value": kind.item_type}, ids, {"value-required": False})
    if pa.types.is_struct(kind):
        numbered = [(next(ids), child) for child in kind]
        children = [
            {"id": number, "name": child.name, "required": False, "type": iceberg_type(child.type, ids)}
            for number, child in numbered
        ]
        return {"type": "struct", "fields": children}
    msg = f"Iceberg has no type for Arrow's {kind}"
    raise DestinationRejected(msg)


def _with_ids(
    name: str, parts: Mapping[str, pa.DataType], ids: Iterator[int], more: Mapping[str, Any]
) -> dict[str, Any]:
    numbers = {f"{part}-id": next(ids) for part in parts}
    return {"type": name, **numbers, **{part: iceberg_type(kind, ids) for part, kind in parts.items()}, **more}


@dataclass(frozen=True, slots=True)
class _Transform:
    column: str
    transform: str
    suffix: str


def partition_spec(fields: Iterable[str], schema: Mapping[str, Any], table: str) -> dict[str, Any]:
    """Iceberg's JSON of a partition spec, from `days(created_at)` and the like. Raises ConfigError."""
    ids = {field["name"]: field["id"] for field in schema["fields"]}
    parsed = [_transform(text, ids, table) for text in fields]
    return {
        "spec-id": 0,
        "fields": [
            {
                "name": item.column + item.suffix,
                "transform": item.transform,
                "source-id": ids[item.column],
                "field-id": _FIRST_PARTITION_ID + number,
            }
            for number, item in enumerate(parsed)
        ],
    }


def _transform(text: str, ids: Mapping[str, int], table: str) -> _Transform:
    found = _TRANSFORM.fullmatch(text)
    if text in ids:
        result = _Transform(text, "identity", "")
    elif found is None:
        raise _not_a(text, table, "partition_by", f"the table has no such column: it has {', '.join(ids)}")
    elif found["name"] in _PERIODS and not found["number"]:
        period = _PERIODS[found["name"]]
        result = _Transform(found["column"], period, f"_{period}")
    elif found["name"] in ("bucket", "truncate") and found["number"]:
        result = _Transform(
            found["column"], f"{found['name']}[{found['number']}]", f"_{found['name'].removesuffix('ate')}"
        )
    else:
        known = "years(c), months(c), days(c), hours(c), bucket(16, c), truncate(4, c), or a column"
        raise _not_a(text, table, "partition_by", f"write {known}")
    if result.column not in ids:
        raise _not_a(text, table, "partition_by", f"the table has no column {result.column}: it has {', '.join(ids)}")
    return result


def sort_order(fields: Iterable[str], schema: Mapping[str, Any], table: str) -> dict[str, Any]:
    """Iceberg's JSON of a sort order, from `column` and `-column`. Raises ConfigError."""
    ids = {field["name"]: field["id"] for field in schema["fields"]}
    order = []
    for text in fields:
        column = text if text in ids else text.removeprefix("-")
        if column not in ids:
            raise _not_a(text, table, "sort_by", f"the table has no such column: it has {', '.join(ids)}")
        # As Iceberg has it where nothing is said, and as the files are written.
        direction = ("asc", "nulls-first") if column == text else ("desc", "nulls-last")
        order.append(
            {"transform": "identity", "source-id": ids[column], "direction": direction[0], "null-order": direction[1]}
        )
    return {"order-id": 1 if order else 0, "fields": order}


def _not_a(text: str, table: str, setting: str, remedy: str) -> ConfigError:
    return ConfigError(f"destination.tables.{table}.{setting}: {text!r} cannot be used", detail=remedy, hint=remedy)
