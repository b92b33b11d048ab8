"""Cuts a table into ranges of its key, each to be read in its own transaction with a snapshot of its own.

No transaction on the source lives longer than one range, and what was read stays read after a crash. A change belongs
to the range that its key falls into, and is applied iff that range's snapshot does not show its transaction. So a key
must tell its range alone: the ranges of a partitioned table are cut across its partitions.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import psycopg
from psycopg import sql

from ..postgres.translation import translated_errors
from ..schema import Column, PgType, ReplicatedTableSchema, TableName
from .ranges import CopyOptions, CopyPlan, CopyRange, KeyBounds
from .relations import Heap, read_heaps

__all__ = ["plan_key_ranges", "range_key"]

# Types whose order is the same everywhere: no collation, no NaN.
_ORDERED = frozenset({"int2", "int4", "int8", "uuid", "timestamp", "timestamptz"})
_DEFAULTS = CopyOptions()

# So many blocks are looked at whatever the table's size, at least four for every bound: 1,000 blocks read at random
# take a second on a slow disk, and quantiles of their rows are near enough for pieces of equal size.
_SAMPLED_BLOCKS, _SAMPLED_PER_RANGE = 1_000, 4

_BOUNDS = """
SELECT found.bound::text FROM (
    SELECT DISTINCT pg_catalog.unnest(
        pg_catalog.percentile_disc(%(fractions)s::float8[]) WITHIN GROUP (ORDER BY {key}::{type})) AS bound
    FROM {table} TABLESAMPLE SYSTEM (%(percent)s) REPEATABLE (1)
) found ORDER BY found.bound
"""


def range_key(schema: ReplicatedTableSchema) -> Column | None:
    """The column that ranges can be cut by: the first of the primary key, if changes carry it and it has an order."""
    key = schema.table.key
    if not key or key[0] not in schema.identity or _plain(key[0].type).name not in _ORDERED or key[0].type.as_text:
        return None
    return key[0]


def _plain(type: PgType) -> PgType:
    return _plain(type.base) if type.base is not None else type


def plan_key_ranges(
    connection: psycopg.Connection[Any], schema: ReplicatedTableSchema, options: CopyOptions = _DEFAULTS
) -> CopyPlan | None:
    """Half-open ranges that hold every key once; None for a table that cannot be cut by key. Raises SourceError.

    The bounds are quantiles of a sample, so that neither gaps between keys nor missing statistics make one range large.
    """
    key = range_key(schema)
    heaps = read_heaps(connection, schema.table.id)
    if key is None or any(heap.foreign for heap in heaps):
        return None
    count = _wanted(heaps, options)
    type_name = _plain(key.type).name
    bounds = _quantiles(connection, schema.table.name, key.name, type_name, (count, heaps)) if count > 1 else []
    edges = [None, *bounds, None]
    rows, size = _total_rows(heaps), sum(heap.bytes for heap in heaps)
    ranges = tuple(
        CopyRange(
            schema.table.name,
            tuple(column.name for column in schema.columns),
            schema.row_filter,
            KeyBounds(key.name, type_name, lower, upper),
            descendants=_partitioned(schema, heaps),
            estimated_rows=None if rows is None else rows // (len(edges) - 1),
            estimated_bytes=size // (len(edges) - 1),
        )
        for lower, upper in pairwise(edges)
    )
    return CopyPlan(schema, ranges, one_snapshot=False)


def _partitioned(schema: ReplicatedTableSchema, heaps: tuple[Heap, ...]) -> bool:
    return [heap.name for heap in heaps] != [schema.table.name]


def _total_rows(heaps: tuple[Heap, ...]) -> int | None:
    known = [heap.rows for heap in heaps if heap.rows is not None]
    return sum(known) if len(known) == len(heaps) else None


def _wanted(heaps: tuple[Heap, ...], options: CopyOptions) -> int:
    by_rows = (_total_rows(heaps) or 0) / options.rows_per_range
    by_bytes = sum(heap.bytes for heap in heaps) / options.bytes_per_range
    return max(1, min(options.max_ranges, math.ceil(max(by_rows, by_bytes))))


def _quantiles(
    connection: psycopg.Connection[Any], table: TableName, key: str, type: str, size: tuple[int, tuple[Heap, ...]]
) -> list[str]:
    """At most `count` - 1 bounds, ascending, each the key of some row."""
    count, heaps = size
    sampled = max(_SAMPLED_BLOCKS, count * _SAMPLED_PER_RANGE)
    percent = min(100.0, 100.0 * sampled / max(1, sum(heap.blocks for heap in heaps)))
    source = sql.Identifier(table.schema, table.name)
    query = sql.SQL(_BOUNDS).format(
        key=sql.Identifier(key),
        type=sql.Identifier("pg_catalog", type),
        table=source if [heap.name for heap in heaps] != [table] else sql.SQL("ONLY ") + source,
    )
    fractions = [index / count for index in range(1, count)]
    with translated_errors("cannot sample the keys of a table"):
        rows = connection.execute(query, {"fractions": fractions, "percent": percent}).fetchall()
    return [bound for (bound,) in rows if bound is not None]
