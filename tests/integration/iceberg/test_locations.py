"""Where tables lie: each in a directory of its own, whatever its name is and was."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.destinations.contract import DestinationContext
from headrace.destinations.iceberg import IcebergDestination
from headrace.lsn import Lsn
from headrace.schema import ReplicatedTableSchema, TableName
from headrace.stores import MemoryStore
from headrace.testing.example_tables import example_table
from headrace.testing.local_rows import Altered, Inserted, batch_of, local_rows, transaction
from lakehouse import iceberg_settings, lake, read_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDERS = example_table(1, "orders", {"id": "int8"}, ("id",))
OLD = replace(ORDERS, table=replace(ORDERS.table, name=TableName("public", "orders_old")))
NEW = example_table(2, "orders", {"id": "int8"}, ("id",))
MAINTENANCE = {"enabled": False, "orphan_age_s": 3600}


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    return tmp_path / "warehouse"


def _opened(warehouse: Path, spark: SparkSession, *tables: ReplicatedTableSchema) -> IcebergDestination:
    destination = IcebergDestination(iceberg_settings(warehouse))
    destination.startup(DestinationContext(1, MemoryStore(), spark, tables))
    return destination


def _ids(warehouse: Path, name: str) -> list[Any]:
    return sorted(read_table(warehouse, ("public", name))["id"].to_pylist())


def _locations(warehouse: Path) -> Iterator[str]:
    catalog = lake(warehouse)
    for name in catalog.list_tables("public"):
        yield catalog.load_table(name).location()
    catalog.close()


def test_a_table_that_takes_the_name_of_another_leaves_its_files_alone(warehouse: Path, spark: SparkSession) -> None:
    # Given a table that was renamed, and a new one under its name, written by an earlier run.
    destination = _opened(warehouse, spark, ORDERS)
    destination.write_table_rows(ORDERS, local_rows(ORDERS, [{"id": 1}, {"id": 2}]), 0)
    destination.write_events(batch_of(transaction(Lsn(100), Altered(ORDERS, OLD)), end=Lsn(200)))
    destination.write_table_rows(NEW, local_rows(NEW, [{"id": 3}]), 0)
    destination.shutdown()
    # When orphans are looked for in both.
    destination = _opened(warehouse, spark, OLD, NEW)
    for table in (OLD, NEW):
        assert destination.applied_lsn(table) == (Lsn(200) if table is OLD else None)
        destination.maintain(table.table.name)
    # Then both have their rows, and go on.
    inserted = (Inserted(OLD, {"id": 9}),), (Inserted(NEW, {"id": 9}),)
    for changes in inserted:
        destination.write_events(batch_of(transaction(Lsn(300), *changes), end=Lsn(400)))
    destination.shutdown()
    assert _ids(warehouse, "orders_old") == [1, 2, 9]
    assert _ids(warehouse, "orders") == [3, 9]
    assert len(set(_locations(warehouse))) == 2


def test_a_warehouse_with_a_space_and_letters_beyond_ascii(tmp_path: Path, spark: SparkSession) -> None:
    # Given
    warehouse = tmp_path / "my läke 100%"
    destination = _opened(warehouse, spark, ORDERS)
    # When
    destination.write_table_rows(ORDERS, local_rows(ORDERS, [{"id": 1}, {"id": 2}]), 0)
    destination.write_events(batch_of(transaction(Lsn(100), Inserted(ORDERS, {"id": 9})), end=Lsn(200)))
    destination.shutdown()
    # Then all is in it, and others read it there.
    assert list(tmp_path.iterdir()) == [warehouse]
    assert list((warehouse / "public/orders/data").iterdir())
    assert _ids(warehouse, "orders") == [1, 2, 9]
    assert sorted(row.id for row in _session(spark, warehouse).table("headrace.public.orders").collect()) == [1, 2, 9]


def _session(spark: SparkSession, warehouse: Path) -> SparkSession:
    """Another session, with the catalog by its own name: its tables are listed under it."""
    session = spark.newSession()
    settings = {
        "": "org.apache.iceberg.spark.SparkCatalog",
        ".type": "jdbc",
        ".uri": f"jdbc:sqlite:{warehouse}/catalog.db?busy_timeout=30000",
        ".jdbc.schema-version": "V1",
        ".warehouse": f"file://{warehouse}",
    }
    for key, value in settings.items():
        session.conf.set(f"spark.sql.catalog.headrace{key}", value)
    return session
