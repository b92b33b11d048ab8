"""Cuts a table into ranges of ctids, the default: any table, read in the order it lies on disk.

All ranges are read under one exported snapshot. The first is open below and the last above, so that neither growth nor
stale sizes leave a row out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import psycopg

from ..errors import SourceSchemaError
from ..schema import ReplicatedTableSchema
from .key_ranges import plan_key_ranges
from .ranges import CopyOptions, CopyPlan, CopyRange, CtidBounds
from .relations import Heap, keep_in_place, read_heaps

__all__ = ["plan_copy", "plan_ctid_ranges"]

_DEFAULTS = CopyOptions()


def plan_copy(
    connection: psycopg.Connection[Any], schema: ReplicatedTableSchema, options: CopyOptions = _DEFAULTS
) -> CopyPlan:
    """The ranges of a table's copy: of keys for a large table whose key allows it, else of ctids.

    Give it the connection that holds the exported snapshot: ctid ranges then also lock the table against rewrites for
    as long as the snapshot is held. Raises SourceError.
    """
    heaps = read_heaps(connection, schema.table.id)
    over = options.key_ranges_over_bytes
    if over is not None and sum(heap.bytes for heap in heaps) > over:
        plan = plan_key_ranges(connection, schema, options)
        if plan is not None:
            return plan
    keep_in_place(connection, heaps)
    return plan_ctid_ranges(schema, heaps, options)


def plan_ctid_ranges(
    schema: ReplicatedTableSchema, heaps: tuple[Heap, ...], options: CopyOptions = _DEFAULTS
) -> CopyPlan:
    columns = tuple(column.name for column in schema.columns)
    if not columns:
        msg = f"nothing of table {schema.table.name} is published: it has no columns that are sent"
        raise SourceSchemaError(msg, hint="add a column to the table or to the publication's column list")
    whole = CopyRange(schema.table.name, columns, schema.row_filter)
    # A partitioned table without partitions holds nothing, yet it is copied: its destination must come to be.
    counts = _capped([_wanted(heap, options) for heap in heaps], options.max_ranges)
    ranges = [part for heap, count in zip(heaps, counts, strict=True) for part in _cut(whole, heap, count)] or [whole]
    ranges.sort(key=lambda part: -part.estimated_bytes)
    return CopyPlan(schema, tuple(ranges), one_snapshot=True)


def _wanted(heap: Heap, options: CopyOptions) -> int:
    """How many ranges the heap should have by its size and its rows."""
    if heap.foreign:
        return 1
    by_rows = (heap.rows or 0) / options.rows_per_range
    by_bytes = heap.bytes / options.bytes_per_range
    return max(1, min(heap.blocks, math.ceil(max(by_rows, by_bytes))))


def _capped(counts: list[int], most: int) -> list[int]:
    total = sum(counts)
    return counts if total <= most else [max(1, count * most // total) for count in counts]


def _cut(whole: CopyRange, heap: Heap, count: int) -> Iterator[CopyRange]:
    """Equal pieces; one piece has no bounds at all."""
    edges = [heap.blocks * index // count for index in range(count + 1)]
    for index in range(count):
        share = (edges[index + 1] - edges[index]) / heap.blocks if heap.blocks else 1
        bounds = CtidBounds(edges[index] if index else None, edges[index + 1] if index < count - 1 else None)
        yield replace(
            whole,
            relation=heap.name,
            bounds=bounds if count > 1 else None,
            estimated_rows=None if heap.rows is None else round(heap.rows * share),
            estimated_bytes=round(heap.bytes * share),
        )
