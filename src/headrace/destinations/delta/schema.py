"""Delta's schemas, and the form in which the lake destinations plan and write: fields with ids, as Iceberg's JSON.

Columns are mapped by name (`delta.columnMapping.mode`): a field has an id for life, and files know it by its physical
name, which never changes. So a rename or drop touches nothing but the schema.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from typing import Any

from ...errors import DestinationRejected
from ..lake.columns import physical_name

__all__ = ["delta_schema", "lake_schema", "largest_id"]

_METADATA = "delta-metadata"
_ID = "delta.columnMapping.id"
_PHYSICAL = "delta.columnMapping.physicalName"
_CHANGES = "delta.typeChanges"
_COMMENT = "comment"
# Parts of lists and maps have no ids in Delta; where one is asked for, any that no column has will do.
_FIRST_PART_ID = 1 << 29

_FROM_DELTA = {
    "boolean": "boolean",
    "byte": "int",
    "short": "int",
    "integer": "int",
    "long": "long",
    "float": "float",
    "double": "double",
    "date": "date",
    "string": "string",
    "binary": "binary",
    "timestamp": "timestamptz",
    "timestamp_ntz": "timestamp",
}
_TO_DELTA = {lake: delta for delta, lake in _FROM_DELTA.items() if delta not in ("byte", "short")}


def lake_schema(text: str, table: str) -> dict[str, Any]:
    """From Delta's JSON. Raises DestinationRejected for columns that no source has."""
    parts = itertools.count(_FIRST_PART_ID)
    fields = [_field(field, parts, table) for field in json.loads(text)["fields"]]
    return {"type": "struct", "schema-id": 0, "mapped-columns": True, "fields": fields}


def _field(field: Mapping[str, Any], parts: Iterator[int], table: str) -> dict[str, Any]:
    metadata = field.get("metadata") or {}
    if _ID not in metadata:
        msg = f"column {field['name']} of table {table} has no id"
        raise DestinationRejected(msg, hint="leave delta.columnMapping.mode at name, or copy the table again")
    entry: dict[str, Any] = {
        "id": metadata[_ID],
        "name": field["name"],
        "required": False,
        "type": _type(field["type"], parts, table),
        "physical-name": metadata.get(_PHYSICAL, field["name"]),
        _METADATA: metadata,
    }
    return {**entry, "doc": metadata[_COMMENT]} if metadata.get(_COMMENT) else entry


def _type(kind: Any, parts: Iterator[int], table: str) -> Any:
    if isinstance(kind, str):
        if kind.startswith("decimal("):
            return kind.replace(",", ", ").replace("  ", " ")
        if kind in _FROM_DELTA:
            return _FROM_DELTA[kind]
    elif kind["type"] == "struct":
        return {"type": "struct", "fields": [_field(field, parts, table) for field in kind["fields"]]}
    elif kind["type"] == "array":
        element = {"element-id": next(parts), "element-required": False}
        return {"type": "list", **element, "element": _type(kind["elementType"], parts, table)}
    elif kind["type"] == "map":
        ids = {"key-id": next(parts), "value-id": next(parts), "value-required": False}
        pair = {part: _type(kind[f"{part}Type"], parts, table) for part in ("key", "value")}
        return {"type": "map", **ids, **pair}
    msg = f"table {table} has a column of type {kind}, which Headrace did not make"
    raise DestinationRejected(msg, hint="drop the column, or give the source's table another name")


def delta_schema(schema: Mapping[str, Any], before: Mapping[str, Any] | None = None) -> str:
    """Delta's JSON. `before` is the schema that the table has: a type that changed is noted, as readers need it."""
    old = {} if before is None else dict(_by_id(before))
    return json.dumps(_delta_struct(schema, old), ensure_ascii=False)


def _by_id(level: Mapping[str, Any]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for field in level["fields"]:
        yield field["id"], field
        if isinstance(field["type"], dict) and field["type"]["type"] == "struct":
            yield from _by_id(field["type"])


def _delta_struct(level: Mapping[str, Any], old: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    fields = []
    for field in level["fields"]:
        metadata = dict(field.get(_METADATA, {}))
        metadata |= {_ID: field["id"], _PHYSICAL: physical_name(field)}
        metadata.pop(_COMMENT, None)
        if field.get("doc"):
            metadata[_COMMENT] = field["doc"]
        kind, before = _delta_type(field["type"], old), old.get(field["id"])
        was = kind if before is None else _delta_type(before["type"], {})
        if isinstance(kind, str) and isinstance(was, str) and was != kind:
            metadata[_CHANGES] = [*metadata.get(_CHANGES, []), {"fromType": was, "toType": kind}]
        fields.append({"name": field["name"], "type": kind, "nullable": True, "metadata": metadata})
    return {"type": "struct", "fields": fields}


def _delta_type(kind: Any, old: Mapping[int, Mapping[str, Any]]) -> Any:
    if isinstance(kind, str):
        return kind.replace(" ", "") if kind.startswith("decimal") else _TO_DELTA[kind]
    if kind["type"] == "struct":
        return _delta_struct(kind, old)
    if kind["type"] == "list":
        return {"type": "array", "elementType": _delta_type(kind["element"], old), "containsNull": True}
    return {
        "type": "map",
        "keyType": _delta_type(kind["key"], old),
        "valueType": _delta_type(kind["value"], old),
        "valueContainsNull": True,
    }


def largest_id(schema: Mapping[str, Any]) -> int:
    """The largest id of a column."""
    return max((number for number, _ in _by_id(schema)), default=0)
