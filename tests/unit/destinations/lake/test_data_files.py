"""data_files: what the files hold, how they are cut, named, sorted, split by partition and described."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.conversions import from_bytes
from pyiceberg.types import DecimalType, LongType, StringType

from headrace.destinations.lake import data_files
from headrace.destinations.lake.data_files import write_data
from headrace.destinations.lake.files import DataFile
from lake_files import LocalTable, local_layout

UTC = dt.UTC


def read(file: DataFile) -> pa.Table:
    return pq.read_table(file.path.removeprefix("file:"), partitioning=None)


def bounds(file: DataFile) -> dict[int, tuple[bytes, bytes]]:
    entry = json.loads(file.json)
    lower, upper = entry["lower-bounds"], entry["upper-bounds"]
    uppers = dict(zip(upper["keys"], upper["values"], strict=True))
    return {
        key: (bytes.fromhex(value), bytes.fromhex(uppers[key]))
        for key, value in zip(lower["keys"], lower["values"], strict=True)
        if key in uppers
    }


def test_every_type_with_field_ids_on_every_level(tmp_path: Path) -> None:
    row = {
        "i": 7,
        "d": Decimal("1.10"),
        "s": "é",
        "b": b"\0",
        "t": dt.datetime(2020, 1, 2, tzinfo=UTC),
        "l": ["a", None],
        "m": [("k", "v")],
        "r": {"x": 1, "y": [2]},
    }
    schema = pa.schema(
        [
            pa.field("i", pa.int16()),
            pa.field("d", pa.decimal128(10, 2)),
            pa.field("s", pa.string()),
            pa.field("b", pa.binary()),
            pa.field("t", pa.timestamp("us", "UTC")),
            pa.field("l", pa.list_(pa.string())),
            pa.field("m", pa.map_(pa.string(), pa.string())),
            pa.field("r", pa.struct([pa.field("x", pa.int32()), pa.field("y", pa.list_(pa.int32()))])),
        ]
    )
    rows = pa.Table.from_pylist([row, {}], schema=schema)
    widened = schema.set(0, pa.field("i", pa.int32()))

    (file,) = write_data(local_layout(tmp_path, widened), iter(rows.to_batches())).data

    assert read(file).to_pylist() == rows.to_pylist()
    parquet = pq.ParquetFile(file.path.removeprefix("file:"))
    ids = [int(field.metadata[b"PARQUET:field_id"]) for field in parquet.schema_arrow]
    assert ids == list(range(1, 9))
    inner = parquet.schema_arrow.field("r").type.field("y").type.value_field
    assert b"PARQUET:field_id" in inner.metadata
    assert parquet.schema.column(1).physical_type == "INT64"
    entry = json.loads(file.json)
    assert entry["record-count"] == file.records == 2
    assert entry["file-size-in-bytes"] == file.size == Path(file.path.removeprefix("file:")).stat().st_size
    counts = dict(zip(entry["null-value-counts"]["keys"], entry["null-value-counts"]["values"], strict=True))
    assert counts[1] == counts[2] == counts[3] == 1


def test_bounds_hold_all_values(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("n", pa.int64()), pa.field("s", pa.string()), pa.field("d", pa.decimal128(30, 3))])
    texts = ["a" * 30, "é" * 20, "z" * 16 + "\U0010ffff"]
    numbers = [Decimal("-12345678901234567890.123"), None, Decimal("0.001")]
    rows = pa.table([pa.array([5, None, -3]), texts, pa.array(numbers, pa.decimal128(30, 3))], schema=schema)

    (file,) = write_data(local_layout(tmp_path, schema), iter(rows.to_batches())).data

    found = bounds(file)
    assert [from_bytes(LongType(), value) for value in found[1]] == [-3, 5]
    lower, upper = (from_bytes(StringType(), value) for value in found[2])
    assert lower <= min(texts) <= max(texts) <= upper
    assert len(lower) == 16
    assert [from_bytes(DecimalType(30, 3), value) for value in found[3]] == [numbers[0], numbers[2]]


def test_columns_that_a_batch_lacks_are_null(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("a", pa.int64()), pa.field("b", pa.string())])

    (file,) = write_data(local_layout(tmp_path, schema), iter(pa.table({"a": [1]}).to_batches())).data

    assert read(file).to_pylist() == [{"a": 1, "b": None}]


def test_no_rows_no_file(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("a", pa.int64())])
    layout = local_layout(tmp_path, schema)

    assert write_data(layout, iter(())).data == ()
    assert write_data(layout, iter([pa.RecordBatch.from_pylist([], schema)])).data == ()
    assert list(tmp_path.iterdir()) == []


def test_small_batches_share_a_row_group_and_large_files_are_cut(tmp_path: Path) -> None:
    rows = pa.table({"a": np.random.default_rng(1).integers(0, 1 << 62, 300_000)})
    batches = rows.to_batches(max_chunksize=10_000)

    (whole,) = write_data(local_layout(tmp_path, rows.schema), iter(batches)).data
    cut = write_data(local_layout(tmp_path, rows.schema, target_file_bytes=1 << 20), iter(batches))

    metadata = pq.read_metadata(whole.path.removeprefix("file:"))
    assert metadata.num_row_groups == 3
    assert len(json.loads(whole.json)["split-offsets"]) == 3
    assert len(cut.data) == 3
    assert cut.rows == 300_000
    assert pa.concat_tables([read(file) for file in cut.data]).column("a").equals(rows.column("a"))


def test_a_large_batch_is_cut_into_row_groups(tmp_path: Path) -> None:
    rows = pa.table({"a": np.arange(400_000)})

    (file,) = write_data(local_layout(tmp_path, rows.schema), iter(rows.to_batches())).data

    metadata = pq.read_metadata(file.path.removeprefix("file:"))
    assert [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)] == [
        133_334,
        133_334,
        133_332,
    ]


def test_rows_are_sorted_with_nulls_as_iceberg_has_them(tmp_path: Path) -> None:
    rows = pa.table({"a": [2, None, 1, 1], "b": ["x", "y", None, "z"]})
    layout = local_layout(tmp_path, rows.schema, sort_by=(("a", False), ("b", True)), sort_order_id=1)

    (file,) = write_data(layout, iter(rows.to_batches())).data

    assert read(file).to_pylist() == [
        {"a": None, "b": "y"},
        {"a": 1, "b": "z"},
        {"a": 1, "b": None},
        {"a": 2, "b": "x"},
    ]
    assert json.loads(file.json)["sort-order-id"] == 1


TRANSFORMS = [
    ("region", 1, "identity", "r"),
    ("at_day", 2, "day", "d"),
    ("id_bucket", 3, "bucket[4]", "b"),
    ("region_trunc", 1, "truncate[1]", "t"),
    ("nothing", 1, "void", "v"),
]


def spec(*fields: tuple[str, int, str, str]) -> str:
    entries = [
        {"name": name, "source-id": source, "transform": transform, "field-id": 1000 + index}
        for index, (name, source, transform, _) in enumerate(fields)
    ]
    return json.dumps({"spec-id": 5, "fields": entries})


def test_rows_are_split_by_partition(tmp_path: Path) -> None:
    schema = pa.schema(
        [pa.field("region", pa.string()), pa.field("at", pa.timestamp("us", "UTC")), pa.field("id", pa.int64())]
    )
    before_1970 = dt.datetime(1969, 12, 31, 23, tzinfo=UTC)
    rows = pa.Table.from_pylist(
        [
            {"region": "a/b é", "at": before_1970, "id": 34},
            {"region": None, "at": None, "id": None},
            {"region": "a/b é", "at": before_1970, "id": 34},
        ],
        schema=schema,
    )

    written = write_data(local_layout(tmp_path, schema, spec_json=spec(*TRANSFORMS)), iter(rows.to_batches()))

    found = {json.dumps(json.loads(file.json)["partition"]): file for file in written.data}
    # Iceberg's specification: 34 hashes to 2017239379.
    first = found[json.dumps(["a/b é", "1969-12-31", 2017239379 % 4, "a", None])]
    assert first.records == 2
    assert "/region=a%2Fb+%C3%A9/at_day=1969-12-31/id_bucket=3/region_trunc=a/nothing=null/headrace-1-" in first.path
    assert found[json.dumps([None] * 5)].records == 1
    assert all(json.loads(file.json)["spec-id"] == 5 for file in written.data)


def test_many_partitions_do_not_wait_forever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_files, "_WAITING_BYTES", 4_000)
    rows = pa.table({"p": np.arange(2_000) % 40, "v": np.arange(2_000)})
    layout = local_layout(tmp_path, rows.schema, spec_json=spec(("p", 1, "identity", "")))
    table = LocalTable(layout)

    written = write_data(layout, iter(rows.to_batches(max_chunksize=100)))
    table.apply(written)

    assert len(written.data) > 40
    assert sorted(row["v"] for row in table.rows()) == list(range(2_000))
    assert all(row["p"] == row["v"] % 40 for row in table.rows())


def test_an_error_leaves_no_file(tmp_path: Path) -> None:
    rows = pa.table({"a": np.arange(200_000)})

    def broken() -> Iterator[pa.RecordBatch]:
        yield from rows.to_batches()
        msg = "the source went away"
        raise OSError(msg)

    with pytest.raises(OSError, match="went away"):
        write_data(local_layout(tmp_path, rows.schema), broken())

    assert list(tmp_path.iterdir()) == []


def test_names_are_fresh_in_each_call(tmp_path: Path) -> None:
    rows = pa.table({"a": [1]})
    layout: Any = local_layout(tmp_path, rows.schema)

    paths = {write_data(layout, iter(rows.to_batches())).data[0].path for _ in range(2)}

    assert len(paths) == 2
    assert all(path.startswith(f"file:{tmp_path}/headrace-1-") for path in paths)
