"""merge: random histories of a table, batch by batch, leave the files with the rows that a plain model has."""

from __future__ import annotations

import datetime as dt
import tempfile
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from folding import Change, change_table, delete, delete_row, insert, transactions, update
from headrace.destinations.fold import fold_table
from headrace.destinations.lake import merge as merging
from headrace.destinations.lake import reading
from headrace.destinations.lake.merge import Merge, rewrite_deleted
from headrace.destinations.soft_delete import DELETED, DELETED_AT, DELETED_FIELDS
from headrace.errors import DestinationError, RetryPolicy
from lake_files import LocalTable, local_layout

VALUES = [pa.field("n", pa.int32()), pa.field("doc", pa.string()), pa.field("tags", pa.list_(pa.string()))]
DAY = dt.date(1969, 12, 30)

# Columns of the key, and the key of a number.
KEYS: dict[str, tuple[list[pa.Field], Callable[[int], tuple[Any, ...]]]] = {
    "bigint": ([pa.field("id", pa.int64())], lambda n: ((n - 3) * 1_000_000_007,)),
    "pair of int": ([pa.field("a", pa.int32()), pa.field("b", pa.int32())], lambda n: (n % 3 - 1, n // 3)),
    "text": ([pa.field("id", pa.string())], lambda n: ("é" * 17 + "x" * n,)),
    "text and date": (
        [pa.field("a", pa.string()), pa.field("b", pa.date32())],
        lambda n: ("ab"[n % 2], DAY + dt.timedelta(days=n // 2)),
    ),
    "numeric": ([pa.field("id", pa.decimal128(20, 2))], lambda n: ((Decimal(n - 4) / 4).quantize(Decimal("0.01")),)),
    "double": ([pa.field("id", pa.float64())], lambda n: (float(n - 3) or -0.0,)),
    "bytea and bool": (
        [pa.field("a", pa.binary()), pa.field("b", pa.bool_())],
        lambda n: (bytes([255 - n // 2]), bool(n % 2)),
    ),
    "timestamptz": (
        [pa.field("id", pa.timestamp("us", "UTC"))],
        lambda n: (dt.datetime(1969, 12, 31, 23, 59, 59, n, ZoneInfo("UTC")),),
    ),
}


class Source:
    """A table with a key, in Postgres: makes changes that are possible, and knows its rows and the deleted ones."""

    def __init__(self, draw: st.DrawFn, kind: str) -> None:
        self.draw = draw
        fields, self.key_of = KEYS[kind]
        self.key = tuple(field.name for field in fields)
        self.row_type = pa.struct([*fields, *VALUES])
        self.rows: dict[int, dict[str, Any]] = {}
        self.gone: dict[int, dict[str, Any]] = {}
        self.made = 0

    def batch(self) -> list[Change]:
        count = self.draw(st.integers(1, 6))
        return transactions(*[[self.change(100 * (number + 1))] for number in range(count)])

    def change(self, lsn: int) -> Change:
        free = [n for n in range(8) if n not in self.rows]
        kinds = ["insert"] * 2 * bool(free) + ["update", "toast", "delete"] * bool(self.rows)
        kind = self.draw(st.sampled_from(kinds + ["move"] * bool(free and self.rows)))
        if kind == "insert":
            number = self.draw(st.sampled_from(free))
            self.gone.pop(number, None)
            self.rows[number] = self.new_row(number)
            return insert(**self.rows[number])
        number = self.draw(st.sampled_from(sorted(self.rows)))
        old = self.rows[number]
        if kind == "update":
            self.rows[number] = self.new_row(number)
            return update(self.rows[number])
        if kind == "toast":
            self.rows[number] = {**self.new_row(number), "doc": old["doc"], "tags": old["tags"]}
            return update({**self.rows[number], "doc": None, "tags": None}, unchanged=["doc", "tags"])
        del self.rows[number]
        self.gone[number] = {**old, DELETED_AT: dt.datetime.fromtimestamp(lsn / 1000, dt.UTC)}
        if kind == "delete":
            return delete(**self.identity(number))
        to = self.draw(st.sampled_from(free))
        self.gone.pop(to, None)
        self.rows[to] = {**old, **self.identity(to)}
        return update({**self.rows[to], "doc": None}, unchanged=["doc"], old_key=self.identity(number))

    def identity(self, number: int) -> dict[str, Any]:
        return dict(zip(self.key, self.key_of(number), strict=True))

    def new_row(self, number: int) -> dict[str, Any]:
        self.made += 1
        doc = self.draw(st.sampled_from([None, f"doc {self.made}"]))
        return {**self.identity(number), "n": self.made, "doc": doc, "tags": [doc, "x"] if doc else None}


def folded(source_type: pa.StructType, changes: list[Change], key: tuple[str, ...] | None) -> Iterator[pa.RecordBatch]:
    return iter(fold_table(change_table(source_type, changes), key).to_batches(max_chunksize=2))


def in_order(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in rows)


@pytest.mark.parametrize("kind", KEYS)
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_batches_leave_the_rows_of_the_source(kind: str, data: st.DataObject) -> None:
    source = Source(data.draw, kind)
    with tempfile.TemporaryDirectory() as directory:
        table = LocalTable(local_layout(Path(directory), pa.schema(list(source.row_type))))
        for _ in range(data.draw(st.integers(1, 6))):
            changes = source.batch()
            table.apply(Merge(table.layout, table.files, source.key)(folded(source.row_type, changes, source.key)))

            assert in_order(table.rows()) == in_order(list(source.rows.values()))


@settings(max_examples=15, deadline=None)
@given(data=st.data(), kind=st.sampled_from(["bigint", "pair of int", "text and date"]))
def test_soft_delete_keeps_the_last_row_of_each_deleted_key(data: st.DataObject, kind: str) -> None:
    source = Source(data.draw, kind)
    with tempfile.TemporaryDirectory() as directory:
        table = LocalTable(local_layout(Path(directory), pa.schema([*source.row_type, *DELETED_FIELDS])))
        for _ in range(data.draw(st.integers(1, 5))):
            before = set(source.gone) | set(source.rows)
            changes = source.batch()
            batches = folded(source.row_type, changes, source.key)
            table.apply(Merge(table.layout, table.files, source.key, soft_delete=True)(batches))
            # A row that came and went within a batch was never here.
            source.gone = {number: row for number, row in source.gone.items() if number in before}

            alive = [{**row, DELETED: False, DELETED_AT: None} for row in source.rows.values()]
            assert in_order([row for row in table.rows() if not row[DELETED]]) == in_order(alive)
            keys = [tuple(row[name] for name in source.key) for row in table.rows() if row[DELETED]]
            assert sorted(keys) == sorted(source.key_of(number) for number in source.gone)


@settings(max_examples=25, deadline=None)
@given(data=st.data(), soft_delete=st.booleans())
def test_without_key_as_many_equal_rows_go_as_were_deleted(data: st.DataObject, *, soft_delete: bool) -> None:
    row_type = pa.struct([pa.field("x", pa.float64()), *VALUES])
    values = st.fixed_dictionaries(
        {
            "x": st.sampled_from([None, 0.0, -0.0]),
            "n": st.sampled_from([None, 1]),
            "doc": st.sampled_from([None, "", "a"]),
            "tags": st.sampled_from([None, [], [None, "a"]]),
        }
    )
    with tempfile.TemporaryDirectory() as directory:
        columns = [*row_type, *(DELETED_FIELDS if soft_delete else [])]
        table = LocalTable(local_layout(Path(directory), pa.schema(columns)))
        rows: list[dict[str, Any]] = []
        for _ in range(data.draw(st.integers(1, 5))):
            taken = data.draw(st.integers(0, len(rows)))
            gone, rows = rows[:taken], rows[taken:]
            new = data.draw(st.lists(values, max_size=5))
            changes = transactions([*(delete_row(**row) for row in gone), *(insert(**row) for row in new)])
            batches = folded(row_type, changes, None) if changes else iter(())
            table.apply(Merge(table.layout, table.files, None, soft_delete, tuple(row_type.names))(batches))
            rows = data.draw(st.permutations(rows + new))

            live = [{name: row[name] for name in row_type.names} for row in table.rows() if not row.get(DELETED)]
            assert in_order(live) == in_order(rows)


SIMPLE = pa.struct([pa.field("id", pa.int64()), *VALUES])


def simple_table(directory: Path, count: int = 3, *, soft_delete: bool = False) -> LocalTable:
    fields = [*SIMPLE, *(DELETED_FIELDS if soft_delete else [])]
    table = LocalTable(local_layout(directory, pa.schema(fields)))
    rows = [{"id": number, "n": number, "doc": "d", "tags": None} for number in range(count)]
    table.append(pa.Table.from_pylist(rows, schema=pa.schema(list(SIMPLE))))
    return table


def merged(table: LocalTable, *changes: Change, soft_delete: bool = False) -> None:
    merge = Merge(table.layout, table.files, ("id",), soft_delete=soft_delete)
    table.apply(merge(folded(SIMPLE, transactions(list(changes)), ("id",))))


def test_a_file_whose_rows_are_all_deleted_leaves_the_table(tmp_path: Path) -> None:
    table = simple_table(tmp_path)

    merged(table, delete(id=0))
    (first,) = table.files
    merged(table, delete(id=1), delete(id=2))

    assert first.vector is not None
    assert table.files == ()


def test_soft_delete_says_when(tmp_path: Path) -> None:
    table = simple_table(tmp_path, 1, soft_delete=True)

    merged(table, delete(id=0), soft_delete=True)

    # The first transaction of a test commits at 100.
    at = dt.datetime(1970, 1, 1, 0, 0, 0, 100_000, dt.UTC)
    assert table.rows() == [{"id": 0, "n": 0, "doc": "d", "tags": None, DELETED: True, DELETED_AT: at}]


def test_truncate_of_a_table_that_keeps_deleted_rows(tmp_path: Path) -> None:
    table = simple_table(tmp_path, 3, soft_delete=True)
    merged(table, delete(id=0), soft_delete=True)
    of_the_delete = {row["id"]: row[DELETED_AT] for row in table.rows()}[0]
    all_deleted = table.files[-1]
    at = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)

    table.apply(rewrite_deleted(table.layout, table.files, at))

    assert {row["id"]: row[DELETED_AT] for row in table.rows()} == {0: of_the_delete, 1: at, 2: at}
    assert all(row[DELETED] for row in table.rows())
    # Nothing was to be changed in it.
    assert all_deleted in table.files


def test_a_missing_row_with_unsent_values_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    table = simple_table(tmp_path)
    before = table.paths()
    changes = [update({"id": 9, "n": 1, "doc": None, "tags": None}, unchanged=["doc"])]

    with pytest.raises(DestinationError, match=r"public.t lacks 1 rows") as caught:
        merged(table, *changes)

    assert "resync" in caught.value.hint
    assert "REPLICA IDENTITY FULL" in caught.value.hint
    assert "a filter left them out" in caught.value.detail
    assert caught.value.retry is RetryPolicy.MANUAL
    assert table.paths() == before


def test_files_are_taken_back_when_vectors_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = simple_table(tmp_path)
    before = table.paths()

    def refuse(*_: Any) -> None:
        msg = "no space"
        raise OSError(msg)

    monkeypatch.setattr(merging, "write_vectors", refuse)
    with pytest.raises(OSError, match="no space"):
        merged(table, update({"id": 1, "n": 5, "doc": "e", "tags": None}))

    assert table.paths() == before


def test_no_changes_write_nothing(tmp_path: Path) -> None:
    table = simple_table(tmp_path)
    before = table.paths()

    table.apply(Merge(table.layout, table.files, ("id",))(iter(())))

    assert table.paths() == before


def test_nothing_is_kept_in_memory_of_files_that_were_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    footers: reading._Kept[Any] = reading._Kept(1 << 30)
    columns: reading._Kept[Any] = reading._Kept(1 << 30)
    monkeypatch.setattr(reading, "_footers", footers)
    monkeypatch.setattr(reading, "_columns", columns)
    row_type = pa.struct([pa.field("id", pa.int64()), pa.field("n", pa.int64())])
    table = LocalTable(local_layout(tmp_path / "t", pa.schema(list(row_type))))
    other = LocalTable(local_layout(tmp_path / "other", pa.schema(list(row_type))))

    def merge(into: LocalTable, n: int) -> None:
        changes = transactions([update({"id": key, "n": n}) for key in range(5)])
        folded = fold_table(change_table(row_type, changes), ("id",))
        into.apply(Merge(into.layout, into.files, ("id",))(iter(folded.to_batches())))

    # Every merge replaces all rows, and thereby the files that held them.
    for n in range(20):
        for one in (table, other):
            merge(one, n)
    assert [row["n"] for row in table.rows()] == [19] * 5
    # Of each table the file that the last merge found; the one that it wrote was not read.
    assert (len(footers), len(columns)) == (2, 2)
