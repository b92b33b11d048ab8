"""Cutting heaps into ctid ranges, without a server."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import SourceSchemaError
from headrace.initial_copy.plan import plan_ctid_ranges
from headrace.initial_copy.ranges import CopyOptions, CopyRange, CtidBounds
from headrace.initial_copy.relations import Heap
from headrace.schema import Column, PgType, ReplicatedTableSchema, ReplicationMask, TableName, TableSchema

NAME = TableName("public", "t")
SCHEMA = ReplicatedTableSchema(
    TableSchema(1, NAME, (Column("a", 1, PgType(23, "int4")), Column("b", 2, PgType(25, "text")))),
    ReplicationMask(frozenset({1, 2})),
)
MIB = 1 << 20


def heap(blocks: int, rows: int | None = None, toast: int = 0, name: str = "t") -> Heap:
    return Heap(TableName("public", name), False, blocks, blocks * 8192 + toast, rows)


def bounds(*heaps: Heap, **options: int) -> list[CtidBounds]:
    plan = plan_ctid_ranges(SCHEMA, heaps, CopyOptions(**options))
    return [part.bounds for part in plan.ranges if isinstance(part.bounds, CtidBounds)]


def test_64_mib_where_rows_are_few() -> None:
    parts = plan_ctid_ranges(SCHEMA, (heap(4 * 8192, 1000),)).ranges
    assert [part.estimated_bytes for part in parts] == [64 * MIB] * 4
    assert [part.estimated_rows for part in parts] == [250] * 4


def test_250_000_rows_where_rows_are_small() -> None:
    parts = plan_ctid_ranges(SCHEMA, (heap(8192, 1_000_000),)).ranges
    assert [part.estimated_rows for part in parts] == [250_000] * 4


def test_size_alone_decides_without_statistics() -> None:
    parts = plan_ctid_ranges(SCHEMA, (heap(2 * 8192, None),)).ranges
    assert [part.estimated_rows for part in parts] == [None, None]


def test_toasted_values_count() -> None:
    assert len(plan_ctid_ranges(SCHEMA, (heap(100, 1000, toast=640 * MIB),)).ranges) == 11


def test_a_range_has_a_block_at_least() -> None:
    assert bounds(heap(2, 10_000_000)) == [CtidBounds(None, 1), CtidBounds(1, None)]


def test_empty_and_small_tables_are_one_range_without_bounds() -> None:
    for blocks in (0, 1, 100):
        plan = plan_ctid_ranges(SCHEMA, (heap(blocks, 0),))
        assert [part.bounds for part in plan.ranges] == [None]
        assert plan.one_snapshot


def test_a_foreign_leaf_is_read_whole() -> None:
    leaves = (replace(heap(0, 10_000_000, name="far"), foreign=True), heap(8192 * 3, 10, name="near"))
    plan = plan_ctid_ranges(SCHEMA, leaves)
    assert [part.relation.name for part in plan.ranges] == ["near", "near", "near", "far"]
    assert plan.ranges[-1].bounds is None


def test_a_partitioned_table_without_partitions_is_read_as_empty() -> None:
    assert plan_ctid_ranges(SCHEMA, ()).ranges == (CopyRange(NAME, ("a", "b")),)


def test_the_largest_come_first() -> None:
    plan = plan_ctid_ranges(SCHEMA, (heap(10, 1, name="a"), heap(8192, 1, name="b"), heap(50, 1, name="c")))
    assert [part.relation.name for part in plan.ranges] == ["b", "c", "a"]


def test_ranges_are_capped_but_every_leaf_has_one() -> None:
    assert len(bounds(heap(1 << 27))) == 1024
    leaves = tuple(heap(1 << 20, name=f"p{n}") for n in range(30))
    parts = plan_ctid_ranges(SCHEMA, leaves, CopyOptions(max_ranges=20)).ranges
    assert sorted({part.relation.name for part in parts}) == sorted(leaf.name.name for leaf in leaves)
    assert len(parts) == 30


def test_nothing_to_send_is_an_error() -> None:
    with pytest.raises(SourceSchemaError, match=r"public\.t"):
        plan_ctid_ranges(replace(SCHEMA, mask=ReplicationMask(frozenset())), (heap(1),))


@given(st.integers(0, 5000), st.one_of(st.none(), st.integers(0, 10**9)), st.integers(1, 50), st.integers(1, 10**9))
def test_every_block_is_in_exactly_one_range(blocks: int, rows: int | None, most: int, size: int) -> None:
    options = CopyOptions(rows_per_range=1000, bytes_per_range=size, max_ranges=most)
    parts = plan_ctid_ranges(SCHEMA, (heap(blocks, rows),), options).ranges
    if len(parts) == 1:
        assert parts[0].bounds is None
        return
    edges = sorted((part.bounds.first or 0, part.bounds.end or 0) for part in parts)  # type: ignore[union-attr]
    assert len(parts) <= most
    assert (edges[0][0], edges[-1][1]) == (0, 0)
    assert [end for _, end in edges[:-1]] == [first for first, _ in edges[1:]]
    assert all(first < end for first, end in edges[:-1])
