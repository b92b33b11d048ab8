"""Rows deleted while their files are written anew, found again in the new files: against a plain model of rows."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.destinations.iceberg.maintenance.lineage import LineageLayout, Source, live_rows, moved_positions, row_ids
from headrace.destinations.lake import data_files
from headrace.destinations.lake.data_files import write_data
from headrace.destinations.lake.deletion_vectors import read_positions, write_vectors
from headrace.destinations.lake.files import LiveFile, TableLayout
from headrace.destinations.lake.operations import live_file
from headrace.destinations.lake.places import file_io
from lake_files import LocalTable, local_layout

ROWS = pa.schema([pa.field("id", pa.int64()), pa.field("n", pa.int32())])


def positions(*values: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    return np.array(values, dtype=np.int64)


def test_moved_positions_are_certain_or_none() -> None:
    files = [positions(7, 5, 9), positions(2)]
    assert [list(found) for found in moved_positions(positions(9, 2, 7), files) or ()] == [[0, 2], [0]]
    assert moved_positions(positions(8), files) is None
    assert moved_positions(positions(2, 8), [positions(2, 2)]) is None
    assert moved_positions(positions(), []) == []


def test_names_of_lineage_give_way_to_columns_of_the_source() -> None:
    layout = local_layout(Path("/nowhere"), pa.schema([pa.field("_row_id", pa.int64())]))
    assert LineageLayout.of(layout).row_id == "__row_id"


class Table:
    """Source files with rows numbered as Iceberg does it; read by pyarrow and pyiceberg's Puffin reader."""

    def __init__(self, layout: TableLayout) -> None:
        self.layout, self.lineage = layout, LineageLayout.of(layout)
        self.row_ids: dict[int, int] = {}
        """By `id`: the model."""

    def source(self, number: int, values: list[int], deleted: list[int]) -> Source:
        ids = [number * 1000 + place for place in range(len(values))]
        (file,) = write_data(self.layout, iter([pa.RecordBatch.from_pydict({"id": ids, "n": values}, ROWS)])).data
        first = len(self.row_ids)
        written = self.deleted(live_file(json.loads(file.json), ()), [])
        self.row_ids |= {row["id"]: first + place for place, row in enumerate(self.rows(written))}
        return Source(self.deleted(written, deleted), first, sequence=number)

    def deleted(self, file: LiveFile, more: Iterable[int]) -> LiveFile:
        (vector,) = write_vectors(self.layout, [(file, positions(*sorted(more)))]) or (None,)
        return replace(file, vector=vector if vector is not None and vector.records else None)

    def rows(self, file: LiveFile) -> list[dict[str, Any]]:
        table = LocalTable(self.layout)
        table.live[file.path] = file
        return table.rows()

    def deleted_positions(self, file: LiveFile) -> set[int]:
        return set(read_positions(file_io(self.layout), file).tolist())


@st.composite
def _sources(draw: st.DrawFn) -> list[tuple[list[int], list[int], list[int]]]:
    """Of each source file: the values, positions deleted before it is read, and more deleted meanwhile."""
    made = []
    for values in draw(st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=12), min_size=1, max_size=4)):
        places = st.lists(st.integers(0, len(values) - 1), unique=True)
        made.append((values, draw(places), draw(places)))
    return made


@pytest.mark.parametrize("sort_by", [(), (("n", True),)], ids=["as they come", "sorted"])
@given(first=_sources(), second=_sources(), group_rows=st.integers(2, 12))
@settings(max_examples=15, deadline=None)
def test_rows_are_found_again(sort_by: Any, first: Any, second: Any, group_rows: int) -> None:
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        table = Table(local_layout(Path(directory), ROWS, sort_by=sort_by))
        made = [table.source(number + 1, values, before) for number, (values, before, _) in enumerate(first)]
        more = [table.source(number + 9, values, before) for number, (values, before, _) in enumerate(second)]
        # New files of few rows, several of them.
        patch.setattr(data_files, "_ROW_GROUP_ROWS", group_rows)
        table.lineage = replace(table.lineage, layout=replace(table.lineage.layout, target_file_bytes=1))
        moved = _compacted(table, made, [late for _, _, late in first])
        # Once more, with files that have their lineage as columns among others.
        _compacted(table, moved + more, [[0]] * len(moved) + [late for _, _, late in second])


def _compacted(table: Table, sources: list[Source], meanwhile: list[list[int]]) -> list[Source]:
    new = write_data(table.lineage.layout, live_rows(table.lineage, sources, lambda: None)).data
    gone, expected = [positions()], []
    for source, places in zip(sources, meanwhile, strict=True):
        late = sorted(set(places) - table.deleted_positions(source.file))
        gone.append(row_ids(table.lineage, source, positions(*late)))
        expected += [(row["id"], row["n"]) for row in table.rows(table.deleted(source.file, late))]
    files = [live_file(json.loads(file.json), ()) for file in new]
    ids = [row_ids(table.lineage, Source(file, -1, -1), np.arange(file.records)) for file in files]
    found = moved_positions(np.concatenate(gone), ids)
    assert found is not None
    files = [table.deleted(file, late.tolist()) for file, late in zip(files, found, strict=True)]
    rows = [row for file in files for row in table.rows(file)]
    assert sorted((row["id"], row["n"]) for row in rows) == sorted(expected)
    assert {row["id"]: row["_row_id"] for row in rows} == {key: table.row_ids[key] for key, _ in expected}
    assert all(row["_last_updated_sequence_number"] == row["id"] // 1000 for row in rows)
    # As Iceberg would number their rows, had they no ids of their own.
    return [Source(file, 10**6, 10**6) for file in files if file.live_records]


def test_nested_values_and_variants_stay_as_they_are(tmp_path: Path) -> None:
    columns = pa.schema(
        [
            pa.field("id", pa.int64()),
            pa.field("tags", pa.list_(pa.string())),
            pa.field("pairs", pa.map_(pa.string(), pa.string())),
            pa.field("price", pa.decimal128(10, 2)),
            pa.field("doc", pa.string()),
        ]
    )
    layout = local_layout(tmp_path, columns)
    schema = json.loads(layout.schema_json)
    assert schema["fields"][-1]["name"] == "doc"
    schema["fields"][-1]["type"] = "variant"
    layout = replace(layout, schema_json=json.dumps(schema))
    rows = [
        {"id": 1, "tags": ["a", None], "pairs": [("k", "v")], "price": Decimal("1.50"), "doc": '{"a": [1, null]}'},
        {"id": 2, "tags": None, "pairs": None, "price": None, "doc": None},
        {"id": 3, "tags": [], "pairs": [], "price": Decimal("-2.00"), "doc": '"text"'},
    ]
    (file,) = write_data(layout, iter(pa.Table.from_pylist(rows, columns).to_batches())).data
    lineage = LineageLayout.of(layout)
    source = Source(live_file(json.loads(file.json), ()), 0, 1)
    (moved,) = write_data(lineage.layout, live_rows(lineage, [source], lambda: None)).data
    before, after = (pq.read_table(path.removeprefix("file:")) for path in (file.path, moved.path))
    assert after.drop_columns(["_row_id", "_last_updated_sequence_number"]).equals(before)
    assert before.num_rows == 3
