"""What a transform function makes of a table: the columns that it returns, and of which columns each is made.

A Python function cannot be looked into. It is called in the driver with a few sample rows, then with each column left
out, NULL, and with other values: a column of the result that is missing then, or differs, is made of that column.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from ...errors import ConfigError, DestinationRejected
from ...schema import PgType, ReplicatedTableSchema
from .hook import Hook
from .hooked_table import Origin
from .table_transform import row_schema

__all__ = ["Probe", "probe"]

_ROWS = 2
_OTHER = 8
"""The first of the numbers that other values are made of; all of them have one digit."""
_TEXTS = {
    "json": '{"a": %d}', "jsonb": '{"a": %d}', "uuid": "0a0b0c0d-0000-4000-8000-00000000000%d", "numeric": "%d.5",
    "time": "0%d:00:00", "timetz": "0%d:00:00+00", "interval": "0%d:00:00", "inet": "10.0.0.%d", "cidr": "10.%d.0.0/16",
    "xml": "<a>%d</a>",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Probe:
    """The result for sample rows: its schema, and the origin of each column.

    `indispensable`: columns without which the function fails.
    """

    made: pa.Schema
    origins: tuple[Origin, ...]
    indispensable: frozenset[str]


def probe(hook: Hook, schema: ReplicatedTableSchema) -> Probe:
    """Try the function. Raises ConfigError if it fails for sample rows and for rows of NULL, or returns no batch."""
    key = {column.name for column in (*schema.identity, *schema.table.key)}
    given = _sample(schema)
    try:
        result = hook.sampled(given, schema)
    except DestinationRejected:
        # It may rely on values that samples do not have.
        given = _with_nulls(given, set(given.schema.names) - key)
        try:
            result = hook.sampled(given, schema)
        except DestinationRejected as error:
            raise ConfigError(error.message, detail=error.detail, hint=error.hint) from None
        everything = frozenset(given.schema.names)
        nothing = _Reads({name: set() for name in result.schema.names}, {*everything})
        return Probe(result.schema, _origins(given, result, key, nothing), everything)
    unsteady = _differing(result, hook.sampled(given, schema))
    if unsteady:
        msg = f"{hook.of(schema)} returns other values in column {unsteady[0]} each time"
        hint = "compute columns of the row alone, without time or chance: after a crash a batch is computed again"
        raise ConfigError(msg, hint=hint)
    found, indispensable = _reads(hook, schema, given, result)
    return Probe(result.schema, _origins(given, result, key, found), frozenset(indispensable))


@dataclass(frozen=True, slots=True)
class _Reads:
    """For each column of the result the given ones that it depends on; and those that make the function fail."""

    by_column: dict[str, set[str]]
    failing: set[str]


def _reads(
    hook: Hook, schema: ReplicatedTableSchema, given: pa.RecordBatch, result: pa.RecordBatch
) -> tuple[_Reads, set[str]]:
    found = _Reads({name: set() for name in result.schema.names}, set())
    indispensable, other = set[str](), _sample(schema, first=_OTHER)
    for column in given.schema.names:
        for trial in (given.drop_columns([column]), _with(given, column, None), _with(given, column, other[column])):
            try:
                differing = _differing(result, hook.sampled(trial, schema))
            except DestinationRejected:
                found.failing.add(column)
                indispensable.update([column] if trial.num_columns < given.num_columns else [])
                continue
            for name in differing:
                found.by_column[name].add(column)
    return found, indispensable


def _differing(expected: pa.RecordBatch, found: pa.RecordBatch) -> list[str]:
    there = set(found.schema.names)
    return [
        name
        for name in expected.schema.names
        if name not in there or found.num_rows != expected.num_rows or not found[name].equals(expected[name])
    ]


def _origins(given: pa.RecordBatch, result: pa.RecordBatch, key: set[str], reads: _Reads) -> tuple[Origin, ...]:
    origins = []
    for name in result.schema.names:
        same_as, own = _same_as(given, result, key, name), reads.by_column[name]
        if same_as is not None and own <= {same_as}:
            origins.append(Origin(same_as, frozenset([same_as]), frozenset([same_as])))
        else:
            origins.append(Origin(None, frozenset(own), frozenset(own | reads.failing)))
    return tuple(origins)


def _same_as(given: pa.RecordBatch, result: pa.RecordBatch, key: set[str], name: str) -> str | None:
    """The given column that the function hands on as this one: the very same memory."""
    column = result[name]
    names: list[str] = given.schema.names
    for source in names:
        if _buffers(given[source]) == _buffers(column):
            return source
    # The function may rebuild a key; that its values stay is checked in every batch.
    return name if name in key and name in names and column.equals(given[name]) else None


def _buffers(column: pa.Array) -> tuple[Any, ...]:
    found = tuple(None if buffer is None else (buffer.address, buffer.size) for buffer in column.buffers())
    return (str(column.type), column.offset, len(column), found)


def _with(batch: pa.RecordBatch, name: str, column: pa.Array | None) -> pa.RecordBatch:
    at = batch.schema.get_field_index(name)
    field = batch.schema.field(at)
    return batch.set_column(at, field, pa.nulls(batch.num_rows, field.type) if column is None else column)


def _with_nulls(batch: pa.RecordBatch, names: set[str]) -> pa.RecordBatch:
    columns = [
        pa.nulls(batch.num_rows, column.type) if name in names else column
        for name, column in zip(batch.schema.names, batch.columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _sample(schema: ReplicatedTableSchema, first: int = 1) -> pa.RecordBatch:
    fields = row_schema(schema)
    columns = [
        pa.array([_value(column.type, field.type, n) for n in range(first, first + _ROWS)], field.type)
        for column, field in zip(schema.columns, fields, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=fields)


def _value(pg_type: PgType, kind: pa.DataType, n: int) -> object:
    if pg_type.base is not None:
        return _value(pg_type.base, kind, n)
    if pa.types.is_list(kind):
        return [_value(pg_type.element or pg_type, kind.value_type, n)]
    if pa.types.is_map(kind):
        return [(f"key {n}", f"value {n}")]
    if pa.types.is_string(kind):
        return _TEXTS.get(pg_type.name, f"{pg_type.name} %d " * n).replace("%d", str(n))
    if pa.types.is_decimal(kind):
        return Decimal(n).scaleb(-kind.scale)
    if pa.types.is_timestamp(kind):
        return datetime(2000, 1, n, tzinfo=UTC if kind.tz else None)
    return _PLAIN[str(kind)](n)


_PLAIN: dict[str, Callable[[int], object]] = {
    "bool": lambda n: n % 2 == 1, "int16": int, "int32": int, "int64": int, "float": lambda n: n + 0.5,
    "double": lambda n: n + 0.5, "binary": lambda n: bytes([n]) * n, "date32[day]": lambda n: date(2000, 1, n),
}  # fmt: skip
