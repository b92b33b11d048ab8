"""Tables whose source left the publication, by a destination's own methods and by a pipeline that drops them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
import pytest

from headrace.destinations.contract import Destination, DestinationContext
from headrace.destinations.iceberg import IcebergDestination
from headrace.lsn import Lsn
from headrace.pipeline import discovery
from headrace.stores import MemoryStore
from headrace.stores.records import DestinationTableMetadata
from headrace.testing.durable_destination import DurableDestination
from headrace.testing.example_tables import example_table
from headrace.testing.local_rows import Inserted, LocalRows, batch_of, transaction
from lakehouse import Lake, iceberg_settings, lake
from pipelining import piped, pipeline_config, wait_equal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

A = example_table(1, "a", {"id": "int8"}, ("id",))
B = example_table(2, "b", {"id": "int8"}, ("id",))


@dataclass(frozen=True)
class Site:
    """A destination, and how its tables are looked at."""

    destination: Destination
    store: MemoryStore
    exists: Callable[[str], bool]
    reader: Any

    def ids(self, table: str) -> list[int]:
        return sorted(row["id"] for row in self.reader.rows(table))


@pytest.fixture(params=["iceberg", "durable"])
def site(request: pytest.FixtureRequest, tmp_path: Path, spark: SparkSession) -> Iterator[Site]:
    store = MemoryStore()
    destination: Any
    if request.param == "iceberg":
        destination = IcebergDestination(iceberg_settings(tmp_path))
        destination.startup(DestinationContext(1, store, spark, (A, B)))
        # Opened while it is empty: pyiceberg keeps reading the state of SQLite in which it first found a row.
        catalog = lake(tmp_path)
        destination.claim()
        yield Site(destination, store, catalog.table_exists, Lake(catalog))
    else:
        destination = DurableDestination(tmp_path / "destination.db")
        destination.startup(DestinationContext(1, store, spark, (A, B)))
        destination.claim()
        yield Site(destination, store, lambda name: name in destination.tables(), destination)
    destination.shutdown()


def _copy(destination: Destination, store: MemoryStore, schema: Any, *ids: int) -> None:
    destination.write_table_rows(schema, LocalRows(pa.table({"id": pa.array(ids, pa.int64())})), 0)
    metadata = DestinationTableMetadata(str(schema.table.name), Lsn(0), schema.mask)
    store.store_destination_metadata(schema.table.id, metadata.applied())


def test_a_table_is_dropped_with_all_that_is_known_of_it(site: Site, spark: SparkSession) -> None:
    destination, store = site.destination, site.store
    for schema in (A, B):
        _copy(destination, store, schema, 1, 2)
        batch = batch_of(transaction(Lsn(100), Inserted(schema, {"id": 3})), end=Lsn(110), spark=spark)
        destination.write_events(batch)
    # Twice: after a crash it is asked for again.
    for _ in range(2):
        destination.drop_table(A)
        assert not site.exists("public.a")
        assert destination.applied_lsn(A) is None
        assert not destination.copied_parts(A)
    assert site.ids("public.b") == [1, 2, 3]
    assert destination.applied_lsn(B) == Lsn(110)
    # Should the source come again, it is a table like any other.
    store.delete_table(A.table.id)
    _copy(destination, store, A, 7)
    assert site.ids("public.a") == [7]
    assert destination.applied_lsn(A) is None


def test_dropping_a_table_that_never_was(site: Site) -> None:
    site.destination.drop_table(A)
    assert not site.exists("public.a")
    _copy(site.destination, site.store, A, 1)
    assert site.ids("public.a") == [1]


def test_a_pipeline_drops_tables_that_leave(
    conninfo: str,
    connection: psycopg.Connection[Any],
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(discovery, "INTERVAL_S", 0.5)
    for table in "ab":
        connection.execute(f"CREATE TABLE {table} (id int PRIMARY KEY); INSERT INTO {table} VALUES (1)")
    connection.execute("CREATE PUBLICATION pub FOR TABLE a, b")
    warehouse = tmp_path / "warehouse"
    config = pipeline_config(conninfo, tmp_path, on_table_removed="drop")
    with piped(config, MemoryStore(), IcebergDestination(iceberg_settings(warehouse)), spark) as running:
        running.until_ready()
        connection.execute("ALTER PUBLICATION pub DROP TABLE b")
        running.until(lambda: list(running.status.tables) == ["public.a"])
        assert not lake(warehouse).table_exists("public.b")
        assert list(warehouse.glob("public/b/**/*.parquet")) == []
        connection.execute("INSERT INTO a VALUES (2)")
        wait_equal(running, connection, Lake(lake(warehouse)), "public.a")
        connection.execute("INSERT INTO b VALUES (2)")
        connection.execute("ALTER PUBLICATION pub ADD TABLE b")
        running.until(lambda: "public.b" in running.status.tables)
        running.until_ready()
        wait_equal(running, connection, Lake(lake(warehouse)), "public.a", "public.b")


def test_a_table_that_left_and_comes_back_under_another_name_is_copied(
    conninfo: str,
    connection: psycopg.Connection[Any],
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What was kept of it, under its former name, is found when its copy begins, and is not the copy."""
    monkeypatch.setattr(discovery, "INTERVAL_S", 0.5)
    for table in "ab":
        connection.execute(f"CREATE TABLE {table} (id int PRIMARY KEY); INSERT INTO {table} VALUES (1)")
    connection.execute("CREATE PUBLICATION pub FOR TABLE a, b")
    warehouse, store = tmp_path / "warehouse", MemoryStore()
    config = pipeline_config(conninfo, tmp_path)
    with piped(config, store, IcebergDestination(iceberg_settings(warehouse)), spark) as running:
        running.until_ready()
        connection.execute("ALTER PUBLICATION pub DROP TABLE b")
        running.until(lambda: list(running.status.tables) == ["public.a"])
    connection.execute("ALTER TABLE b RENAME TO c; ALTER TABLE c ADD v text; INSERT INTO c VALUES (2, 'x')")
    connection.execute("ALTER PUBLICATION pub ADD TABLE c")
    with piped(config, store, IcebergDestination(iceberg_settings(warehouse)), spark) as running:
        running.until_ready("public.c")
        wait_equal(running, connection, Lake(lake(warehouse)), "public.c")
