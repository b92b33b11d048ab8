"""A destination, or the store, that was put back to an earlier state: nothing is missing afterwards."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pytest
from pyiceberg.catalog import load_catalog
from structlog.testing import capture_logs

from delta_tables import DeltaLake, delta_settings, table_directory
from duckdb_reading import DuckDBFile, duckdb_settings
from headrace.destinations.contract import Destination
from headrace.destinations.delta import DeltaDestination
from headrace.destinations.duckdb import DuckDBDestination
from headrace.destinations.iceberg import IcebergDestination
from headrace.errors import TableNotFound
from headrace.spool import Spool
from headrace.stores.sqlite import SqliteStore
from headrace.testing.durable_destination import DurableDestination
from lakehouse import Lake, iceberg_settings, lake
from pipelining import Piped, assert_equal_tables, destination_rows, piped, pipeline_config, source_rows, wait_equal

Connection = psycopg.Connection[Any]

T = "public.t"
PUT_BACK = "the destination was put back to an earlier state: "
FROM_SPOOL, AGAIN = PUT_BACK + "the table is caught up from the spool", PUT_BACK + "the table is copied again"


@pytest.fixture(autouse=True)
def table(connection: Connection) -> None:
    connection.execute("CREATE TABLE t (id int PRIMARY KEY, note text)")
    connection.execute("INSERT INTO t SELECT n, 'copied' FROM generate_series(1, 5) n")
    connection.execute("CREATE PUBLICATION pub FOR TABLE t")


def change(connection: Connection, first: int) -> None:
    connection.execute(f"INSERT INTO t VALUES ({first}, 'new')")
    connection.execute(f"UPDATE t SET note = 'changed {first}' WHERE id = 1")


def told(logs: list[Any]) -> list[str]:
    return [line["event"] for line in logs if str(line["event"]).startswith(PUT_BACK)]


def until_same(running: Piped, connection: Connection, reader: Any) -> None:
    def same() -> bool:
        try:
            return destination_rows(reader, T) == source_rows(connection, "t")
        except (TableNotFound, duckdb.CatalogException):
            return False

    running.until(same)
    running.until_ready()
    wait_equal(running, connection, reader, T)


class Put:
    """A kind of destination: how to open it, to read it, and to put it back to where it stood at `mark`."""

    def __init__(self, kind: str, root: Path, spark: Any) -> None:
        self.kind, self.spark, self.root = kind, spark, root / kind
        self.marked: Any = None

    def open(self) -> Destination:
        if self.kind == "duckdb":
            return DuckDBDestination(duckdb_settings(self.root))
        if self.kind == "iceberg":
            return IcebergDestination(iceberg_settings(self.root))
        return DeltaDestination(delta_settings(self.root))

    @property
    def reader(self) -> Any:
        readers: dict[str, Callable[[], Any]] = {
            "duckdb": lambda: DuckDBFile(self.root),
            "iceberg": lambda: Lake(lake(self.root)),
            "delta": lambda: DeltaLake(self.root),
        }
        return readers[self.kind]()

    def mark(self) -> None:
        if self.kind == "duckdb":
            shutil.copy(self.root, f"{self.root}.backup")
        elif self.kind == "iceberg":
            snapshot = self._iceberg().current_snapshot()
            assert snapshot is not None
            self.marked = snapshot.snapshot_id
        else:
            self.marked = self.spark.sql(f"DESCRIBE HISTORY {self._delta()} LIMIT 1").collect()[0]["version"]

    def put_back(self) -> None:
        if self.kind == "duckdb":
            shutil.copy(f"{self.root}.backup", self.root)
        elif self.kind == "iceberg":
            session = self.spark.newSession()
            settings = {
                "": "org.apache.iceberg.spark.SparkCatalog",
                ".type": "jdbc",
                ".uri": f"jdbc:sqlite:{self.root}/catalog.db?busy_timeout=60000",
                ".jdbc.schema-version": "V1",
                ".warehouse": self.root.as_uri(),
                ".cache-enabled": "false",
            }
            for key, value in settings.items():
                session.conf.set(f"spark.sql.catalog.headrace{key}", value)
            session.sql(f"CALL headrace.system.rollback_to_snapshot('{T}', {self.marked})").collect()
        else:
            self.spark.sql(f"RESTORE TABLE {self._delta()} TO VERSION AS OF {self.marked}").collect()

    def _iceberg(self) -> Any:
        catalog = load_catalog("headrace", type="sql", uri=f"sqlite:///{self.root}/catalog.db")
        return catalog.load_table(T)

    def _delta(self) -> str:
        return f"delta.`{table_directory(self.root, 'public', 't')}`"


@pytest.mark.parametrize("kept", [True, False], ids=["in the spool", "not in the spool"])
@pytest.mark.parametrize("kind", ["duckdb", "iceberg", "delta"])
def test_a_destination_that_was_put_back_while_stopped(
    conninfo: str, connection: Connection, spark: Any, tmp_path: Path, kind: str, kept: bool
) -> None:
    """By a file put back, a rollback to a snapshot, or RESTORE."""
    settings = {"segment_age_ms": 20, "keep_seconds": 600 if kept else 0}
    config, store = pipeline_config(conninfo, tmp_path, spool=settings), SqliteStore(tmp_path / "store.db", 1)
    put = Put(kind, tmp_path, spark)
    with piped(config, store, put.open(), spark) as running:
        running.until_ready()
        change(connection, 10)
        running.until_applied(connection)
        marked = running.status.tables[T].position
    put.mark()
    with piped(config, store, put.open(), spark) as running:
        for first in (20, 30, 40):
            change(connection, first)
            running.until_applied(connection)
        spool = Spool.open(config.spool_config())
        running.until(lambda: kept or spool.segments()[0].start > marked)
    assert_equal_tables(connection, put.reader, T)
    put.put_back()
    assert len(put.reader.rows(T)) == 6
    change(connection, 50)
    with capture_logs() as logs, piped(config, store, put.open(), spark) as running:
        until_same(running, connection, put.reader)
    assert told(logs) == [FROM_SPOOL if kept else AGAIN]
    # And it is no news any more.
    with capture_logs() as logs, piped(config, store, put.open(), spark) as running:
        running.until_ready()
        change(connection, 60)
        wait_equal(running, connection, put.reader, T)
    assert told(logs) == []
    store.close()


@pytest.mark.parametrize("kind", ["iceberg", "delta"])
def test_a_table_that_is_put_back_while_the_pipeline_runs(
    conninfo: str, connection: Connection, spark: Any, tmp_path: Path, kind: str
) -> None:
    config, store = pipeline_config(conninfo, tmp_path), SqliteStore(tmp_path / "store.db", 1)
    put = Put(kind, tmp_path, spark)
    with capture_logs() as logs, piped(config, store, put.open(), spark) as running:
        running.until_ready()
        change(connection, 10)
        running.until_applied(connection)
        put.mark()
        change(connection, 20)
        running.until_applied(connection)
        put.put_back()
        change(connection, 30)
        until_same(running, connection, put.reader)
    assert told(logs) == [FROM_SPOOL]
    store.close()


def test_a_destination_that_lost_the_table(conninfo: str, connection: Connection, spark: Any, tmp_path: Path) -> None:
    config, store = pipeline_config(conninfo, tmp_path), SqliteStore(tmp_path / "store.db", 1)
    put = Put("duckdb", tmp_path, spark)
    with piped(config, store, put.open(), spark) as running:
        running.until_ready()
    put.root.unlink()
    with capture_logs() as logs, piped(config, store, put.open(), spark) as running:
        until_same(running, connection, put.reader)
    assert told(logs) == [AGAIN]
    store.close()


def test_a_store_that_was_put_back_follows_the_destination(
    conninfo: str, connection: Connection, spark: Any, tmp_path: Path
) -> None:
    """The destination is ahead, and wins: nothing is applied twice, nothing is copied."""
    config, path = pipeline_config(conninfo, tmp_path), tmp_path / "store.db"
    destination = DurableDestination(tmp_path / "destination.db")
    store = SqliteStore(path, 1)
    with piped(config, store, destination, spark) as running:
        running.until_ready()
        change(connection, 10)
        running.until_applied(connection)
    store.close()
    shutil.copy(path, tmp_path / "backup.db")
    store = SqliteStore(path, 1)
    with piped(config, store, destination, spark) as running:
        change(connection, 20)
        running.until_applied(connection)
    store.close()
    shutil.copy(tmp_path / "backup.db", path)
    store = SqliteStore(path, 1)
    with capture_logs() as logs, piped(config, store, destination, spark) as running:
        change(connection, 30)
        wait_equal(running, connection, destination, T)
    assert told(logs) == []
    assert "copied" not in [line["event"] for line in logs]
    store.close()
