"""Names of Iceberg tables: what would overwrite or mix is refused before anything is written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from structlog.testing import capture_logs

from headrace.destinations.contract import DestinationContext
from headrace.destinations.iceberg import IcebergDestination
from headrace.errors import ConfigError, DestinationRejected
from headrace.lsn import Lsn
from headrace.schema import ReplicatedTableSchema, TableName
from headrace.stores import MemoryStore
from headrace.stores.records import DestinationTableMetadata
from headrace.testing.example_tables import example_table
from headrace.testing.local_rows import LocalRows, local_rows
from lakehouse import iceberg_settings, lake, read_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

UPPER = example_table(1, "Orders", {"id": "int8"}, ("id",))
LOWER = example_table(2, "orders", {"id": "int8"}, ("id",))
OTHER = example_table(3, "other", {"id": "int8"}, ("id",))
WITH_OP = example_table(4, "logged", {"id": "int8", "_Headrace_op": "text"}, ("id",))
WITH_FLAG = example_table(5, "kept", {"id": "int8", "_headrace_deleted_at": "text"}, ("id",))
ROWS = LocalRows(pa.table({"id": pa.array([1, 2], pa.int64())}))


def _opened(
    warehouse: Path, spark: SparkSession, *tables: ReplicatedTableSchema, pipeline_id: int = 1, **settings: Any
) -> IcebergDestination:
    destination = IcebergDestination(iceberg_settings(warehouse, **settings))
    destination.startup(DestinationContext(pipeline_id, MemoryStore(), spark, tables))
    return destination


@pytest.mark.parametrize(
    ("tables", "settings", "told"),
    [
        ((LOWER, OTHER), {"table_name": "all"}, "public.orders and public.other have the same name"),
        (
            (LOWER,),
            {"tables": {"public.order": {"mode": "changelog"}}},
            "public.order, which is not in the publication",
        ),
        ((LOWER,), {"table_name": "{tabel}"}, "unknown words: tabel"),
    ],
)
def test_names_that_cannot_be_meant(
    tables: tuple[ReplicatedTableSchema, ...],
    settings: dict[str, Any],
    told: str,
    tmp_path: Path,
    spark: SparkSession,
) -> None:
    with pytest.raises(ConfigError, match=told) as raised:
        _opened(tmp_path / "warehouse", spark, *tables, **settings)
    assert raised.value.hint
    assert not (tmp_path / "warehouse").exists()


@pytest.mark.parametrize(
    ("tables", "settings"),
    [((UPPER, LOWER), {}), ((LOWER, OTHER), {"tables": {"public.other": {"name": "public.ORDERS"}}})],
)
def test_a_table_whose_name_differs_in_case_only_is_left_out(
    tables: tuple[ReplicatedTableSchema, ...], settings: dict[str, Any], tmp_path: Path, spark: SparkSession
) -> None:
    kept, left_out = tables
    destination = _opened(tmp_path / "warehouse", spark, *tables, **settings)
    destination.claim()
    destination.write_table_rows(kept, local_rows(kept, [{"id": 1}], spark=spark), 0)
    with pytest.raises(ConfigError, match=f"{kept.table.name} and {left_out.table.name} have the same name") as raised:
        destination.write_table_rows(left_out, local_rows(left_out, [{"id": 2}], spark=spark), 0)
    assert raised.value.hint
    destination.shutdown()
    assert read_table(tmp_path / "warehouse", f"public.{kept.table.name.name}").column("id").to_pylist() == [1]


@pytest.mark.parametrize(
    ("table", "mode", "column"),
    [(WITH_OP, "changelog", "_Headrace_op"), (WITH_FLAG, "soft_delete", "_headrace_deleted_at")],
)
def test_columns_named_like_ours_are_refused(
    table: ReplicatedTableSchema, mode: str, column: str, tmp_path: Path, spark: SparkSession
) -> None:
    told = f"table {table.table.name} has a column {column}, a name that mode {mode} needs"
    rows = LocalRows(pa.table({"id": pa.array([1], pa.int64()), column: ["x"]}))
    with pytest.raises(ConfigError, match=told) as raised:
        _opened(tmp_path / "early", spark, LOWER, table, mode=mode)
    assert "rename the column" in str(raised.value.hint)
    assert f'destination.tables."{table.table.name}".mode' in str(raised.value.hint)
    assert not (tmp_path / "early").exists()
    # One that is published later takes out itself only.
    destination = _opened(tmp_path / "late", spark, LOWER, mode=mode)
    with pytest.raises(ConfigError, match=told):
        destination.write_table_rows(table, rows, 0)
    destination.write_table_rows(LOWER, ROWS, 0)
    destination.shutdown()
    assert lake(tmp_path / "late").list_tables("public") == [("public", "orders")]
    # A mirror adds no columns.
    destination = _opened(tmp_path / "mirror", spark, table)
    destination.write_table_rows(table, rows, 0)
    destination.shutdown()
    assert read_table(tmp_path / "mirror", str(table.table.name)).to_pylist() == [{"id": 1, column: "x"}]


def test_a_table_of_somebody_else_is_left_alone(tmp_path: Path, spark: SparkSession) -> None:
    warehouse = tmp_path / "warehouse"
    first = _opened(warehouse, spark, LOWER)
    first.write_table_rows(LOWER, ROWS, 0)
    first.shutdown()
    catalog = lake(warehouse)
    catalog.create_table("public.other", pa.schema([("id", pa.int64())])).append(pa.table({"id": [7]}))
    second = _opened(warehouse, spark, LOWER, OTHER, pipeline_id=2)
    for table, whose in ((LOWER, "belongs to pipeline 1"), (OTHER, "was not made by Headrace")):
        for call in (
            lambda table=table: second.applied_lsn(table),
            lambda table=table: second.drop_table_for_copy(table),
            lambda table=table: second.write_table_rows(table, ROWS, 0),
        ):
            with pytest.raises(DestinationRejected, match=f"{table.table.name} exists and {whose}") as raised:
                call()
            assert "give another name" in str(raised.value.hint)
    second.shutdown()
    assert catalog.load_table("public.orders").scan().to_arrow()["id"].to_pylist() == [1, 2]
    assert catalog.load_table("public.other").scan().to_arrow()["id"].to_pylist() == [7]
    assert sorted(catalog.list_tables("public")) == [("public", "orders"), ("public", "other")]
    catalog.close()


def test_a_table_that_nobody_can_read_stops_no_other(tmp_path: Path, spark: SparkSession) -> None:
    """Where one of ours is not under its name, all of the catalog are looked through: also at its first copy, before
    which the store says that it is being made."""
    warehouse, store = tmp_path / "warehouse", MemoryStore()
    renamed = replace(OTHER, table=replace(OTHER.table, name=TableName("public", "renamed")))
    for schema in (LOWER, OTHER):
        store.store_destination_metadata(
            schema.table.id, DestinationTableMetadata(str(schema.table.name), Lsn(0), schema.mask)
        )
    first = _opened(warehouse, spark, OTHER)
    first.write_table_rows(OTHER, ROWS, 0)
    first.shutdown()
    # Given a table of somebody else whose metadata is gone, by name before all others
    catalog = lake(warehouse)
    catalog.create_namespace("a")
    catalog.create_table("a.broken", pa.schema([("id", pa.int64())]))
    for file in (warehouse / "a/broken/metadata").iterdir():
        file.unlink()
    # When a table is copied for the first time, and another is not under the name that its source has by now
    second = IcebergDestination(iceberg_settings(warehouse))
    second.startup(DestinationContext(1, store, spark, (LOWER, renamed)))
    with capture_logs() as logs:
        second.write_table_rows(LOWER, ROWS, 0)
        assert second.copied_parts(renamed) == {0}
    second.shutdown()
    # Then both are there, and the one that cannot be read was named
    assert catalog.load_table("public.orders").scan().to_arrow()["id"].to_pylist() == [1, 2]
    told = [entry["table"] for entry in logs if entry["event"] == "a table of the catalog cannot be read"]
    assert told == ["a.broken"]
    catalog.close()
