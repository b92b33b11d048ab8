"""Files and deletion vectors that tasks write, committed by Iceberg's Java API and read by Spark and pyiceberg."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.table import StaticTable

from folding import change_table, delete, insert, transactions, update
from headrace.destinations.fold import fold_table
from headrace.destinations.lake.data_files import write_data
from headrace.destinations.lake.deletion_vectors import write_vectors
from headrace.destinations.lake.files import DeletionVector, LiveFile, TableLayout, Written
from headrace.destinations.lake.merge import Merge
from headrace.destinations.lake.operations import live_file
from lake_files import schema_json

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UTC = dt.UTC
COLUMNS = pa.schema(
    [
        pa.field("i", pa.int32()),
        pa.field("b", pa.bool_()),
        pa.field("l", pa.int64()),
        pa.field("d", pa.decimal128(12, 2)),
        pa.field("s", pa.string()),
        pa.field("bin", pa.binary()),
        pa.field("dt", pa.date32()),
        pa.field("ts", pa.timestamp("us", "UTC")),
        pa.field("tsn", pa.timestamp("us")),
        pa.field("li", pa.list_(pa.string())),
        pa.field("m", pa.map_(pa.string(), pa.string())),
        pa.field("st", pa.struct([pa.field("a", pa.int32()), pa.field("b", pa.list_(pa.int32()))])),
    ]
)
ROWS: list[dict[str, Any]] = [
    {
        "i": -7,
        "b": True,
        "l": 2,
        "d": Decimal("-1.10"),
        "s": "a/b é=+ %",
        "bin": b"\x00\xff\x10",
        "dt": dt.date(1969, 12, 31),
        "ts": dt.datetime(1969, 12, 31, 23, 4, 5, 6, UTC),
        "tsn": dt.datetime(2100, 1, 2, 3, 4, 5, 123456, UTC).replace(tzinfo=None),
        "li": ["a", None],
        "m": [("k", "v"), ("n", None)],
        "st": {"a": 1, "b": [1, None]},
    },
    {"i": 7, "b": False, "l": -2, "d": Decimal("999.99"), "s": "", "bin": b"", "li": [], "m": [], "st": {}},
    {"s": "😀é"},
]
PARTITIONS = [
    *((name, "identity") for name in ("i", "b", "l", "d", "s", "bin", "dt", "ts", "tsn")),
    *((name, "bucket[5]") for name in ("i", "l", "d", "s", "bin", "dt", "ts", "tsn")),
    *((name, "truncate[2]") for name in ("i", "l", "d", "s", "bin")),
    *((name, period) for period in ("year", "month", "day") for name in ("dt", "ts", "tsn")),
    ("ts", "hour"),
    ("s", "void"),
]


class JavaTable:
    """A table on disk that only Java commits to."""

    def __init__(self, spark: SparkSession, directory: Path, columns: pa.Schema, spec: Sequence[tuple[str, str]] = ()):
        self.spark = spark
        # A catalog of its own per directory: Spark asks for its settings when it is first named.
        catalog = f"spark.sql.catalog.of_{directory.parent.name}"
        spark.conf.set(catalog, "org.apache.iceberg.spark.SparkCatalog")
        for name, value in (("type", "hadoop"), ("warehouse", directory.parent.as_uri()), ("cache-enabled", "false")):
            spark.conf.set(f"{catalog}.{name}", value)
        self.name = f"of_{directory.parent.name}.{directory.name}"
        self.iceberg = spark._jvm.org.apache.iceberg
        schema = self.iceberg.SchemaParser.fromJson(schema_json(columns))
        ids = {name: number for number, name in enumerate(columns.names, start=1)}
        fields = [
            {"name": f"p{at}", "source-id": ids[name], "transform": transform, "field-id": 1000 + at}
            for at, (name, transform) in enumerate(spec)
        ]
        partitions = self.iceberg.PartitionSpecParser.fromJson(schema, json.dumps({"spec-id": 0, "fields": fields}))
        properties = spark._jvm.java.util.HashMap()
        properties.put("format-version", "3")
        properties.put("write.delete.mode", "merge-on-read")
        tables = self.iceberg.hadoop.HadoopTables(spark._jsc.hadoopConfiguration())
        self.java = tables.create(schema, partitions, properties, directory.as_uri())
        self.ids = list(ids.values())

    @property
    def layout(self) -> TableLayout:
        schema = self.iceberg.SchemaParser.toJson(self.java.schema())
        spec = self.iceberg.PartitionSpecParser.toJson(self.java.spec())
        return TableLayout("t", f"{self.java.location()}/data", "headrace-1-", schema, spec, {})

    def commit(self, written: Written) -> None:
        delta = self.java.newRowDelta()
        if self.java.currentSnapshot() is not None:
            delta.validateFromSnapshot(self.java.currentSnapshot().snapshotId())
        for file in written.data:
            delta.addRows(self.parsed(file.json))
        for vector in written.vectors:
            delta.addDeletes(self.parsed(vector.json))
        for vector in written.replaced:
            delta.removeDeletes(self.parsed(vector.json))
        for path in written.emptied:
            delta.removeRows(self.file(path))
        delta.commit()

    def parsed(self, text: str) -> Any:
        mapper = self.iceberg.shaded.com.fasterxml.jackson.databind.ObjectMapper()
        return self.iceberg.ContentFileParser.fromJson(mapper.readTree(text), self.java.specs())

    def file(self, path: str) -> Any:
        tasks = self.java.newScan().planFiles().iterator()
        while tasks.hasNext():
            file = tasks.next().file()
            if file.location() == path:
                return file
        raise AssertionError(path)

    def files(self) -> list[LiveFile]:
        self.java.refresh()
        files, tasks = [], self.java.newScan().includeColumnStats().planFiles().iterator()
        while tasks.hasNext():
            task = tasks.next()
            file = live_file(self.described(task.file()), self.ids)
            for deletes in task.deletes():
                file = replace(file, vector=_vector(self.described(deletes)))
            files.append(file)
        return files

    def described(self, file: Any) -> dict[str, Any]:
        entry: dict[str, Any] = json.loads(self.iceberg.ContentFileParser.toJson(file, self.java.spec()))
        return entry

    def by_spark(self) -> pa.Table:
        return self.spark.table(self.name).toArrow()

    def by_pyiceberg(self) -> pa.Table:
        return StaticTable.from_metadata(self.java.operations().current().metadataFileLocation()).scan().to_arrow()


def _vector(entry: dict[str, Any]) -> DeletionVector:
    return DeletionVector(
        entry["referenced-data-file"],
        entry["file-path"],
        entry["content-offset"],
        entry["content-size-in-bytes"],
        entry["record-count"],
        json.dumps(entry),
    )


def in_order(rows: pa.Table) -> list[str]:
    return sorted(map(repr, rows.cast(COLUMNS).to_pylist()))


def test_every_transform_gives_the_partition_that_java_gives(spark: SparkSession, tmp_path: Path) -> None:
    ours = JavaTable(spark, tmp_path / "ours", COLUMNS, PARTITIONS)
    theirs = JavaTable(spark, tmp_path / "theirs", COLUMNS, PARTITIONS)
    rows = pa.Table.from_pylist(ROWS, schema=COLUMNS)

    ours.commit(write_data(ours.layout, iter(rows.to_batches())))
    spark.table(ours.name).coalesce(1).writeTo(theirs.name).option("fanout-enabled", "true").append()

    assert in_order(ours.by_spark()) == in_order(rows)
    assert sorted(file.partition_json for file in ours.files()) == sorted(
        file.partition_json for file in theirs.files()
    )


def test_bounds_are_those_that_java_gives(spark: SparkSession, tmp_path: Path) -> None:
    ours = JavaTable(spark, tmp_path / "ours", COLUMNS)
    theirs = JavaTable(spark, tmp_path / "theirs", COLUMNS)
    rows = pa.Table.from_pylist(ROWS, schema=COLUMNS)

    ours.commit(write_data(ours.layout, iter(rows.to_batches())))
    spark.table(ours.name).coalesce(1).writeTo(theirs.name).append()

    (mine,), (expected,) = ours.files(), theirs.files()
    assert mine.bounds == expected.bounds
    assert in_order(ours.by_pyiceberg()) == in_order(rows)


@pytest.mark.parametrize("partitions", [(), (("b", "identity"),)])
def test_vectors_are_read_by_others_and_theirs_by_us(
    spark: SparkSession, tmp_path: Path, partitions: tuple[tuple[str, str], ...]
) -> None:
    size = 200_000
    columns = pa.schema([pa.field("id", pa.int64()), pa.field("b", pa.bool_())])
    table = JavaTable(spark, tmp_path / "t", columns, partitions)
    rows = pa.table({"id": np.arange(size), "b": np.full(size, fill_value=True)})
    table.commit(write_data(table.layout, iter(rows.to_batches(max_chunksize=50_000))))

    # Ours, read by Spark and pyiceberg.
    (file,) = table.files()
    gone = np.concatenate((np.arange(0, 70_000, 7), np.arange(80_000, 150_000)))
    table.commit(Written(vectors=write_vectors(table.layout, [(file, gone)])))
    left = np.delete(np.arange(size), gone).tolist()
    assert sorted(table.by_spark()["id"].to_pylist()) == left
    assert sorted(table.by_pyiceberg()["id"].to_pylist()) == left

    # Spark's on top, read by us, and ours on top of that.
    spark.sql(f"DELETE FROM {table.name} WHERE id BETWEEN 199000 AND 199009")
    (file,) = table.files()
    assert file.vector is not None
    table.commit(Written(vectors=write_vectors(table.layout, [(file, np.array([size - 1]))]), replaced=(file.vector,)))
    kept = [number for number in left if not 199_000 <= number <= 199_009 and number != size - 1]
    assert sorted(table.by_spark()["id"].to_pylist()) == kept


def test_merged_changes_are_read_by_spark(spark: SparkSession, tmp_path: Path) -> None:
    row_type = pa.struct([pa.field("id", pa.int64()), pa.field("v", pa.string())])
    table = JavaTable(spark, tmp_path / "t", pa.schema(list(row_type)), [("id", "bucket[3]")])
    rows = pa.table({"id": np.arange(100), "v": pa.array([f"v{number}" for number in range(100)])})
    table.commit(write_data(table.layout, iter(rows.to_batches())))

    emptied = 0
    for change in (
        update({"id": 5, "v": "new"}),
        update({"id": 500, "v": None}, unchanged=["v"], old_key={"id": 6}),
        delete(id=5),
        insert(id=5, v="again"),
        delete(id=500),
    ):
        folded = fold_table(change_table(row_type, transactions([change])), ("id",))
        written = Merge(table.layout, tuple(table.files()), ("id",))(iter(folded.to_batches()))
        table.commit(written)
        emptied += len(written.emptied)
        if change.row == {"id": 500, "v": None}:
            assert table.by_spark().to_pylist().count({"id": 500, "v": "v6"}) == 1

    # The files of the one new row 5 and of row 500, when these were deleted.
    assert emptied == 2
    expected = {number: f"v{number}" for number in range(100) if number != 6} | {5: "again"}
    read = table.by_spark()
    assert dict(zip(read["id"].to_pylist(), read["v"].to_pylist(), strict=True)) == expected
    assert read.num_rows == len(expected)
