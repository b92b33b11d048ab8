"""lookup: rows are found whatever the key's type, and what is left out by bounds never holds one."""

from __future__ import annotations

import math
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.destinations.lake import data_files, reading
from headrace.destinations.lake.bounds import sought_values
from headrace.destinations.lake.deletion_vectors import write_vectors
from headrace.destinations.lake.lookup import find, may_hold
from lake_files import LocalTable, local_layout

COLUMNS: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "smallint": (pa.int32(), st.integers(-5, 5)),
    "bigint": (pa.int64(), st.integers(-(1 << 63), (1 << 63) - 1)),
    "text": (pa.string(), st.text(st.characters(codec="utf-8"), max_size=40)),
    "bytea": (pa.binary(), st.binary(max_size=20)),
    "numeric": (pa.decimal128(10, 2), st.decimals(-99, 99, places=2)),
    "long numeric": (pa.decimal128(38, 2), st.decimals(-(10**30), 10**30, places=2)),
    "date": (pa.date32(), st.dates()),
    "timestamp": (pa.timestamp("us"), st.datetimes()),
    "double": (pa.float64(), st.floats(allow_nan=False)),
    "bool": (pa.bool_(), st.booleans()),
}


def positions(table: LocalTable, needles: pa.Table) -> dict[str, list[tuple[int, int]]]:
    found = find(table.layout, table.files, needles)
    return {one.file.path: list(zip(one.positions.tolist(), one.needles.tolist(), strict=True)) for one in found}


@settings(max_examples=60, deadline=None)
@given(data=st.data(), kinds=st.lists(st.sampled_from(sorted(COLUMNS)), min_size=1, max_size=3))
def test_every_row_with_a_key_is_found(data: st.DataObject, kinds: list[str]) -> None:
    names = [f"k{index}" for index in range(len(kinds))]
    schema = pa.schema([pa.field(name, COLUMNS[kind][0]) for name, kind in zip(names, kinds, strict=True)])
    keys = st.tuples(*(COLUMNS[kind][1] for kind in kinds))
    files = data.draw(st.lists(st.lists(keys, min_size=1, max_size=8), min_size=1, max_size=3))
    stored = [key for file in files for key in file]
    sought = data.draw(st.lists(st.one_of(st.sampled_from(stored), keys), min_size=1, max_size=5, unique=True))

    with tempfile.TemporaryDirectory() as directory:
        table = LocalTable(local_layout(Path(directory), schema))
        for file in files:
            table.append(as_table(schema, file))
        found = positions(table, as_table(schema, sought))

        for live, rows in zip(table.files, files, strict=True):
            expected = [(at, needle) for at, key in enumerate(rows) for needle, one in enumerate(sought) if one == key]
            assert found.get(live.path, []) == expected


def as_table(schema: pa.Schema, keys: list[tuple[Any, ...]]) -> pa.Table:
    columns = [pa.array(values, field.type) for values, field in zip(zip(*keys, strict=True), schema, strict=True)]
    return pa.Table.from_arrays(columns, schema=schema)


def test_row_groups_without_a_key_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_files, "_ROW_GROUP_ROWS", 100)
    rows = pa.table({"id": np.arange(1_000), "v": np.arange(1_000)})
    table = LocalTable(local_layout(tmp_path, rows.schema))
    written = data_files.write_data(table.layout, iter(rows.to_batches(max_chunksize=100)))
    table.apply(written)
    read: list[list[int]] = []
    original = reading.OpenedFile.read

    def spied(self: reading.OpenedFile, names: list[str], groups: list[int]) -> list[pa.ChunkedArray]:
        assert list(names) == ["id"]
        read.append(list(groups))
        return original(self, names, groups)

    monkeypatch.setattr(reading.OpenedFile, "read", spied)
    found = positions(table, pa.table({"id": [250, 205, 999, 5_000]}))

    assert list(found.values()) == [[(205, 1), (250, 0), (999, 2)]]
    assert read == [[2], [9]]


def test_files_whose_bounds_lie_between_two_keys_are_left_out(tmp_path: Path) -> None:
    table = LocalTable(local_layout(tmp_path, pa.schema([pa.field("id", pa.int64())])))
    for start in (0, 100, 200):
        table.append(pa.table({"id": np.arange(start, start + 10)}))
    sought = {"id": sought_values(pa.chunked_array([[5, 205]]))}

    assert [may_hold(table.layout, file, sought) for file in table.files] == [True, False, True]


def test_bounds_of_a_column_before_it_was_widened(tmp_path: Path) -> None:
    table = LocalTable(local_layout(tmp_path, pa.schema([pa.field("id", pa.int32())])))
    table.append(pa.table({"id": pa.array([-1, 7], pa.int32())}))
    table.layout = local_layout(tmp_path, pa.schema([pa.field("id", pa.int64())]))

    assert list(positions(table, pa.table({"id": [7, 1 << 40]})).values()) == [[(1, 0)]]


def test_a_column_is_known_by_its_field_id(tmp_path: Path) -> None:
    table = LocalTable(local_layout(tmp_path, pa.schema([pa.field("old", pa.int64()), pa.field("id", pa.int64())])))
    table.append(pa.table({"old": [1, 2], "id": [2, 1]}))
    table.layout = local_layout(tmp_path, pa.schema([pa.field("id", pa.int64()), pa.field("other", pa.int64())]))

    assert list(positions(table, pa.table({"id": [2]})).values()) == [[(1, 0)]]


def test_a_file_without_field_ids_is_read_by_name(tmp_path: Path) -> None:
    table = LocalTable(local_layout(tmp_path, pa.schema([pa.field("id", pa.int64())])))
    table.append(pa.table({"id": [1, 2]}))
    (file,) = table.files
    other = f"{file.path}.imported"
    pq.write_table(pa.table({"x": [0, 0], "id": [2, 1]}), other.removeprefix("file:"))
    table.live = {other: replace(file, path=other)}

    assert list(positions(table, pa.table({"id": [2]})).values()) == [[(0, 0)]]


def test_deleted_rows_are_not_found(tmp_path: Path) -> None:
    table = LocalTable(local_layout(tmp_path, pa.schema([pa.field("id", pa.int64())])))
    table.append(pa.table({"id": [1, 2, 1]}))
    (file,) = table.files
    (vector,) = write_vectors(table.layout, [(file, np.array([0]))])
    table.live[file.path] = replace(file, vector=vector)

    assert positions(table, pa.table({"id": [1]})) == {file.path: [(2, 0)]}


def test_the_two_zeros_are_one_key_and_nan_equals_itself(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("a", pa.float64()), pa.field("b", pa.int64())])
    table = LocalTable(local_layout(tmp_path, schema))
    table.append(pa.table({"a": [0.0, -0.0, math.nan], "b": [1, 1, 1]}))
    one = LocalTable(local_layout(tmp_path, pa.schema([pa.field("a", pa.float64())])))
    one.append(pa.table({"a": [0.0, -0.0, math.nan]}))

    expected = [[(0, 0), (1, 0), (2, 1)]]
    assert list(positions(table, pa.table({"a": [-0.0, math.nan], "b": [1, 1]})).values()) == expected
    assert list(positions(one, pa.table({"a": [-0.0, math.nan]})).values()) == expected


def test_what_is_kept_of_small_files_is_bounded_by_the_memory_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given room for the keys of some 30 files, by the memory that each takes; by their bytes alone, for all of them
    columns: reading._Kept[pa.ChunkedArray] = reading._Kept(64 << 10)
    footers: reading._Kept[pq.FileMetaData] = reading._Kept(256 << 10)
    monkeypatch.setattr(reading, "_columns", columns)
    monkeypatch.setattr(reading, "_footers", footers)
    table = LocalTable(local_layout(tmp_path, pa.schema([pa.field("id", pa.int64())])))
    for start in range(0, 600, 3):
        table.append(pa.table({"id": [start, start + 1, start + 2]}))
    # When all 200 are looked through, twice
    needles = pa.table({"id": np.arange(1, 600, 3)})
    expected = {file.path: [(1, place)] for place, file in enumerate(table.files)}
    assert positions(table, needles) == positions(table, needles) == expected
    # Then
    assert 10 < len(columns) <= 32
    serialized = pq.ParquetFile(table.files[0].path.removeprefix("file:")).metadata.serialized_size
    assert 10 < len(footers) <= (256 << 10) // (serialized * 9)
