"""lake.variant_files, variant_schema: marked files, read by DuckDB and pyarrow; what pyiceberg is told."""

from __future__ import annotations

import io
import json
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    schema_to_pyarrow,
)
from pyiceberg.types import BinaryType, LongType

from headrace.destinations.lake.variant import VARIANT, variant_array
from headrace.destinations.lake.variant_files import VariantSink, marked_footer
from headrace.destinations.lake.variant_schema import (
    readable_schema,
    variant_columns,
    variant_paths,
    variant_statistics,
)

TEXTS = ['{"b": 1, "a": [1, 2.50, null, "é🚰"], "n": 12345678901234567890123}', "null", None, '"x"', "[]"]


def field(name: str, kind: pa.DataType, number: int | None) -> pa.Field:
    return pa.field(name, kind, metadata=None if number is None else {"PARQUET:field_id": str(number)})


def table(*, copies: int = 1) -> pa.Table:
    """A variant between others, and a group with a child of the same name that is none."""
    variants = variant_array(pa.array(TEXTS * copies))
    count = len(variants)
    decoy = pa.StructArray.from_arrays(
        [pa.array(range(count)), variants], fields=[field("w", pa.int64(), 5), field("v", VARIANT, 6)]
    )
    schema = pa.schema(
        [field("id", pa.int64(), 1), field("decoy", decoy.type, 4), field("v", VARIANT, 2), field("w", VARIANT, 3)]
    )
    return pa.Table.from_arrays([pa.array(range(count), pa.int64()), decoy, variants, variants], schema=schema)


def written(path: Path, rows: pa.Table, row_group_size: int = 1000) -> pq.FileMetaData:
    with pa.OSFile(str(path), "wb") as stream:
        sink = VariantSink(stream, {"v", "w"})
        writer = pq.ParquetWriter(sink, rows.schema, compression="zstd", write_page_index=True, store_schema=False)
        writer.write_table(rows, row_group_size=row_group_size)
        sink.finish(writer)
        assert sink.tell() == stream.tell()
    return writer.writer.metadata


@pytest.mark.parametrize("copies", [1, 2000])
def test_duckdb_reads_variants(tmp_path: Path, copies: int) -> None:
    rows = table(copies=copies)
    written(tmp_path / "t.parquet", rows)
    with duckdb.connect() as connection:
        found = connection.execute(
            "SELECT typeof(v), typeof(decoy), v::json, w.a[4], w.n::varchar FROM read_parquet(?) ORDER BY id",
            [str(tmp_path / "t.parquet")],
        ).fetchall()
    assert len(found) == len(TEXTS) * copies
    first = ("VARIANT", 'STRUCT(w BIGINT, v STRUCT(metadata BLOB, "value" BLOB))')
    text = '{"a":[1,2.50,null,"é🚰"],"b":1,"n":12345678901234567890123}'
    assert found[0] == found[-len(TEXTS)] == (*first, text, "é🚰", "12345678901234567890123")
    assert [row[2] for row in found[3:5]] == ['"x"', "[]"]


def test_pyarrow_reads_back_what_was_written(tmp_path: Path) -> None:
    rows = table(copies=100)
    written(tmp_path / "t.parquet", rows)
    file = pq.ParquetFile(tmp_path / "t.parquet")
    assert str(file.schema).count("(Variant(1))") == 2
    assert file.schema_arrow.field("v").metadata == {b"PARQUET:field_id": b"2"}
    assert file.read().equals(rows)
    assert file.read(columns=["id"]).column("id").equals(rows.column("id"))


def test_nothing_but_the_footer_waits() -> None:
    rows = table(copies=1000)
    stream = io.BytesIO()
    sink = VariantSink(pa.PythonFile(stream, "w"), {"v"})
    writer = pq.ParquetWriter(sink, rows.schema)
    writer.write_table(rows)
    before = stream.tell()
    assert before == sink.tell() > 1000
    sink.finish(writer)
    assert stream.tell() == sink.tell() < before + 10_000
    assert pq.read_table(pa.BufferReader(stream.getvalue())).equals(rows)


def footer_of(schema: pa.Schema) -> bytes:
    stream = io.BytesIO()
    pq.write_table(schema.empty_table(), stream, store_schema=False)
    data = stream.getvalue()
    return data[-8 - int.from_bytes(data[-8:-4], "little") : -8]


@pytest.mark.parametrize(
    ("schema", "columns", "message"),
    [
        (pa.schema([field("v", VARIANT, None)]), {"v"}, "column v has no field id"),
        (pa.schema([field("v", VARIANT, 1)]), {"v", "x"}, "of the columns v, x the footer has 1"),
        (pa.schema([field("s", pa.struct([field("v", VARIANT, 2)]), 1)]), {"v"}, "of the columns v the footer has 0"),
    ],
)
def test_a_column_that_cannot_be_marked_is_named(schema: pa.Schema, columns: set[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        marked_footer(footer_of(schema), columns)


def test_a_footer_is_marked_once() -> None:
    marked = marked_footer(footer_of(pa.schema([field("v", VARIANT, 1)])), {"v"})
    with pytest.raises(ValueError, match="marked already"):
        marked_footer(marked, {"v"})


def test_many_columns_of_many_kinds() -> None:
    kinds = [pa.int32(), pa.string(), pa.decimal128(30, 3), pa.timestamp("us", "UTC"), pa.list_(pa.string()), VARIANT,
             pa.map_(pa.string(), pa.int64()), pa.float64(), pa.bool_(), pa.date32()]  # fmt: skip
    schema = pa.schema([field(f"c{number}", kinds[number % len(kinds)], number + 1) for number in range(200)])
    variants = {column.name for column in schema if column.type.equals(VARIANT)}
    marked = marked_footer(footer_of(schema), variants)
    stream = b"PAR1" + marked + len(marked).to_bytes(4, "little") + b"PAR1"
    shown = str(pq.ParquetFile(pa.BufferReader(stream)).schema)
    assert {line.split()[3] for line in shown.splitlines() if "(Variant(1))" in line} == variants


def test_pyiceberg_is_told_of_binary_and_gives_no_bounds(tmp_path: Path) -> None:
    parts = [(1, "id", "long"), (2, "v", "variant"), (3, "w", "variant")]
    fields = [{"id": number, "name": name, "required": False, "type": kind} for number, name, kind in parts]
    text = json.dumps({"type": "struct", "schema-id": 0, "identifier-field-ids": [], "fields": fields})
    columns = variant_columns(text)
    assert columns == {"v": 2, "w": 3}
    schema = readable_schema(text)
    assert [column.field_type for column in schema.fields] == [LongType(), BinaryType(), BinaryType()]
    arrow = schema_to_pyarrow(schema, include_field_ids=True)
    rows = table().select(["id", "v", "w"])
    assert [column.metadata for column in rows.schema] == [column.metadata for column in arrow]
    statistics = data_file_statistics_from_parquet_metadata(
        written(tmp_path / "t.parquet", rows),
        {**compute_statistics_plan(schema, {}), **variant_statistics(columns)},
        {**parquet_path_to_id_mapping(schema), **variant_paths(columns)},
    ).to_serialized_dict()
    assert set(statistics["column_sizes"]) == {1, 2, 3}
    assert set(statistics["lower_bounds"]) == set(statistics["upper_bounds"]) == set(statistics["value_counts"]) == {1}
