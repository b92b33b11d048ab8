"""What Delta's log says of a file's values, from what a task found, and back to the bounds that a lookup goes by."""

from __future__ import annotations

import datetime
import decimal
import json
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from pyiceberg.conversions import from_bytes, to_bytes
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DateType,
    DecimalType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
)

from ..lake.columns import column_plan, physical_name

__all__ = ["key_bounds", "statistics_text", "wide"]

# Those of which every reader has the same order. Of floating point it is NaN's place that is not certain.
_ORDERED = (IntegerType, LongType, DateType, DecimalType, StringType, TimestampType, TimestamptzType)
_TIMES = (TimestampType, TimestamptzType)
# As many as Delta itself keeps; the table's key is told whatever its place.
_COLUMNS = 32
_SCHEMAS_KEPT = 256
# More than any decimal has.
_DIGITS = decimal.Context(prec=80)
_EPOCH = datetime.datetime(1970, 1, 1)  # noqa: DTZ001 - times without a zone, or in UTC
_EPOCH_DAY = datetime.date(1970, 1, 1)


def statistics_text(entry: Mapping[str, Any], schema_json: str, keys: Iterable[int]) -> str:
    """Delta's statistics of a file, as its log has them: a text. `entry` is what the task says of the file."""
    names, chosen = _physical_names(schema_json), _chosen(schema_json) | set(keys)
    schema = column_plan(schema_json).iceberg
    records = int(entry["record-count"])
    nulls = {names[number]: count for number, count in _pairs(entry, "null-value-counts") if number in chosen}
    bounds: dict[str, dict[str, Any]] = {"minValues": {}, "maxValues": {}}
    lower, upper = dict(_pairs(entry, "lower-bounds")), dict(_pairs(entry, "upper-bounds"))
    for number in sorted(chosen & lower.keys() & upper.keys()):
        kind = _kind(schema, number)
        values = None if kind is None else _told(kind, bytes.fromhex(lower[number]), bytes.fromhex(upper[number]))
        if values is not None:
            bounds["minValues"][names[number]], bounds["maxValues"][names[number]] = values
    parts = ", ".join(f"{json.dumps(name)}: {_json(values)}" for name, values in bounds.items())
    return f'{{"numRecords": {records}, {parts}, "nullCount": {_json(nulls)}, "tightBounds": true}}'


def wide(statistics: str) -> str:
    """The same for a file of which rows are deleted: its bounds may be those of rows that are gone."""
    for spelling in ('"tightBounds": true', '"tightBounds":true'):
        if spelling in statistics:
            return statistics.replace(spelling, '"tightBounds": false')
    return statistics if '"tightBounds"' in statistics else f'{statistics.rstrip()[:-1]}, "tightBounds": false}}'


def key_bounds(statistics: Mapping[str, Any], schema_json: str, keys: Iterable[int]) -> dict[int, tuple[bytes, bytes]]:
    """Bounds by field id, of these fields, in Iceberg's single-value form; whoever wrote the file."""
    names, schema = _physical_names(schema_json), column_plan(schema_json).iceberg
    lower, upper = statistics.get("minValues") or {}, statistics.get("maxValues") or {}
    found = {}
    for number in keys:
        name, kind = names.get(number), _kind(schema, number)
        if kind is not None and name in lower and name in upper:
            pair = _read(kind, lower[name]), _read(kind, upper[name])
            if pair[0] is not None and pair[1] is not None:
                # Times are told in milliseconds, cut off.
                above = pair[1] + 999 if isinstance(kind, _TIMES) else pair[1]
                found[number] = to_bytes(kind, pair[0]), to_bytes(kind, above)
    return found


def _told(kind: PrimitiveType, lower: bytes, upper: bytes) -> tuple[Any, Any] | None:
    try:
        low, high = _value(kind, lower), _value(kind, upper)
        if isinstance(kind, DateType):
            return _day(low), _day(high)
        if isinstance(kind, _TIMES):
            zone = "Z" if isinstance(kind, TimestamptzType) else ""
            # Up to the next millisecond, so that it is above for those too who take it literally.
            return _time(low, zone), _time(-(-high // 1000) * 1000, zone)
    except (OverflowError, ValueError):
        # Years that Python's dates, and other readers', do not have.
        return None
    return low, high


def _value(kind: PrimitiveType, raw: bytes) -> Any:
    return from_bytes(kind, raw)


def _day(days: int) -> str:
    return (_EPOCH_DAY + datetime.timedelta(days=days)).isoformat()


def _time(microseconds: int, zone: str) -> str:
    moment = _EPOCH + datetime.timedelta(microseconds=microseconds)
    return moment.isoformat(timespec="milliseconds") + zone


def _read(kind: PrimitiveType, value: Any) -> Any:
    """A bound as Iceberg's conversion takes it; None if it cannot be used."""
    try:
        if isinstance(kind, DateType):
            return (datetime.date.fromisoformat(value) - _EPOCH_DAY).days
        if isinstance(kind, _TIMES):
            moment = datetime.datetime.fromisoformat(value.replace("Z", "+00:00"))
            plain = moment.astimezone(datetime.UTC).replace(tzinfo=None) if moment.tzinfo else moment
            return (plain - _EPOCH) // datetime.timedelta(microseconds=1)
        if isinstance(kind, DecimalType):
            return decimal.Decimal(str(value)).quantize(decimal.Decimal(1).scaleb(-kind.scale), context=_DIGITS)
        if isinstance(kind, StringType):
            return value if isinstance(value, str) else None
        return int(value)
    except (ArithmeticError, AttributeError, TypeError, ValueError):
        return None


def _pairs(entry: Mapping[str, Any], name: str) -> Iterable[tuple[int, Any]]:
    found = entry.get(name) or {"keys": [], "values": []}
    return zip(found["keys"], found["values"], strict=True)


def _kind(schema: Schema, number: int) -> PrimitiveType | None:
    field: NestedField | None = next((field for field in schema.fields if field.field_id == number), None)
    return field.field_type if field is not None and isinstance(field.field_type, _ORDERED) else None


@lru_cache(maxsize=_SCHEMAS_KEPT)
def _physical_names(schema_json: str) -> dict[int, str]:
    return {field["id"]: physical_name(field) for field in json.loads(schema_json)["fields"]}


@lru_cache(maxsize=_SCHEMAS_KEPT)
def _chosen(schema_json: str) -> frozenset[int]:
    return frozenset(
        field["id"] for field in json.loads(schema_json)["fields"][:_COLUMNS] if isinstance(field["type"], str)
    )


def _json(values: Mapping[str, Any]) -> str:
    # Decimals as the numbers they are: a float would round them.
    members = (f"{json.dumps(name)}: {_number(value)}" for name, value in values.items())
    return f"{{{', '.join(members)}}}"


def _number(value: Any) -> str:
    return f"{value:f}" if isinstance(value, decimal.Decimal) else json.dumps(value)
