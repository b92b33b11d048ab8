"""Spreads the ranges of a copy over tasks, so that never more connections are open than allowed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..initial_copy.ranges import CopyRange

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["copy_works", "spread"]


def copy_works(spark: SparkSession | Any, ranges: Sequence[CopyRange], connections: int) -> list[tuple[CopyRange, ...]]:
    """One task per range where the cluster cannot run more at once than allowed; else as many tasks as allowed."""
    master = str(spark.sparkContext.master)
    slots = int(spark.sparkContext.defaultParallelism)
    if master.startswith("local[") and slots <= connections:
        return [(part,) for part in ranges]
    return spread(ranges, connections)


def spread(ranges: Sequence[CopyRange], count: int) -> list[tuple[CopyRange, ...]]:
    """At most `count` lists of about equal size: each range, the largest first, to the list that has least."""
    lists: list[list[CopyRange]] = [[] for _ in range(min(count, len(ranges)))]
    sizes = [0] * len(lists)
    for part in sorted(ranges, key=lambda part: -part.estimated_bytes):
        least = sizes.index(min(sizes))
        lists[least].append(part)
        sizes[least] += part.estimated_bytes + 1
    return [tuple(parts) for parts in lists]
