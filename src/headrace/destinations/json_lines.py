"""Events as lines of JSON: whole numbers, finite floats, booleans and texts are JSON's own, the rest is text."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa

from ..events import UNCHANGED, Begin, Commit, Delete, Event, Insert, Relation, Row, Truncate, TruncateOptions, Update
from ..lsn import Lsn
from ..pgtypes.python_values import python_rows
from ..schema import Column, ReplicatedTableSchema
from .existing_rows import existing_values

__all__ = ["copy_object", "drop_object", "event_object", "json_line", "json_value", "rejected_object"]

_Object = dict[str, Any]


def json_line(thing: _Object) -> str:
    """An object as a line, with its end."""
    return json.dumps(thing, ensure_ascii=False, separators=(",", ":")) + "\n"


def drop_object(schema: ReplicatedTableSchema) -> _Object:
    """What was told of the table is void."""
    return {"kind": "drop", **_table(schema)}


def copy_object(schema: ReplicatedTableSchema, part: int) -> _Object:
    """What stands before the rows of a part of a copy."""
    return {"kind": "copy", **_table(schema), "part": part, **_shape(schema)}


def rejected_object(schema: ReplicatedTableSchema, value: Mapping[str, Any]) -> _Object:
    """A value (`REJECTED_FIELDS`) that its type does not hold, and that is null in the row."""
    told: _Object = {"kind": "rejected", "table": str(schema.table.name), "column": value["column"]}
    # Not strict: a key's text may have characters that JSON would escape.
    told |= {"text": value["text"], "key": value["key"] and json.loads(value["key"], strict=False)}
    if value["commit_lsn"] is not None:
        told |= {"commit_lsn": str(Lsn(value["commit_lsn"])), "tx_ordinal": value["tx_ordinal"]}
    return told


def event_object(event: Event) -> _Object:
    """The event as a JSON object."""
    if isinstance(event, Relation):
        return _relation(event)
    place: _Object = {"commit_lsn": str(event.commit_lsn)}
    if isinstance(event, Commit):
        place["end_lsn"] = str(event.end_lsn)
    elif not isinstance(event, Begin):
        place |= {"tx_ordinal": event.tx_ordinal, "start_lsn": str(event.start_lsn)}
    place |= {"xid": event.xid, "commit_time": json_value(event.commit_time)}
    return {"kind": type(event).__name__.lower(), **_content(event), **place}


def _content(event: Event) -> _Object:
    if isinstance(event, Truncate):
        options = [option.name for option in TruncateOptions if option in event.options]
        return {"tables": [str(schema.table.name) for schema in event.schemas], "options": options}
    if not isinstance(event, Insert | Update | Delete):
        return {}
    content: _Object = {"table": str(event.schema.table.name)}
    if not isinstance(event, Delete):
        content |= _row(event.row)
    if not isinstance(event, Insert) and event.old is not None:
        content["old"] = _row(event.old)["row"]
        content["old_kind"] = event.old_kind.name.lower() if event.old_kind else None
    return content


def _row(row: Row) -> _Object:
    """`row` without the TOASTed values that were not sent; those are named under `unchanged`."""
    sent = {name: json_value(value) for name, value in row.items() if value is not UNCHANGED}
    unchanged = [name for name, value in row.items() if value is UNCHANGED]
    return {"row": sent, "unchanged": unchanged} if unchanged else {"row": sent}


def _relation(event: Relation) -> _Object:
    renamed = event.old is not None and event.old.table.name != event.new.table.name
    return {
        "kind": "relation",
        **_table(event.new),
        **({"was": str(event.old.table.name)} if event.old is not None and renamed else {}),
        **_shape(event.new),
        "first": event.old is None,
        "commit_lsn": str(event.commit_lsn),
        "start_lsn": str(event.start_lsn),
    }


def _table(schema: ReplicatedTableSchema) -> _Object:
    return {"table": str(schema.table.name), "oid": schema.table.id}


def _shape(schema: ReplicatedTableSchema) -> _Object:
    """A column is the same as long as its `attnum` is; rows from before it show its `missing`."""
    columns = []
    for column in schema.columns:
        described: _Object = {"name": column.name, "type": column.type.name, "attnum": column.attnum}
        columns.append(described if column.missing is None else {**described, "missing": _missing(column)})
    return {"columns": columns, "identity": [column.name for column in schema.identity]}


def _missing(column: Column) -> Any:
    (row,) = python_rows(pa.table({"missing": existing_values(column, 1)}))
    return json_value(row["missing"])


def json_value(value: object) -> Any:
    """A value as JSON has it; what JSON cannot say exactly is text, as Postgres prints it."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else _NOT_FINITE.get(value, "NaN")
    if isinstance(value, bytes):
        return "\\x" + value.hex()
    if isinstance(value, datetime):
        return (value if value.tzinfo is None else value.astimezone(UTC)).isoformat()
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {str(name): json_value(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [json_value(item) for item in value]
    return f"{value:f}" if isinstance(value, Decimal) else str(value)


_NOT_FINITE = {math.inf: "Infinity", -math.inf: "-Infinity"}
