"""A store restored from a backup that knows another copy of a table than the one that the destination has."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from duckdb_reading import DuckDBFile, duckdb_settings
from headrace.config.pipeline import PipelineConfig
from headrace.destinations.contract import Destination
from headrace.destinations.duckdb import DuckDBDestination
from headrace.destinations.iceberg import IcebergDestination
from headrace.pipeline import PipelineState
from headrace.pipeline.engine import Stopped
from headrace.pipeline.failpoint import FAILPOINTS
from headrace.stores.sqlite import SqliteStore
from lakehouse import Lake, iceberg_settings, lake
from pipelining import Piped, assert_equal_tables, piped, pipeline_config
from reaching import once_at

Connection = psycopg.Connection[Any]

BAG, LOG, KEYED = "public.bag", "public.journal", "public.keyed"
NEVER = "never"
RESYNC_POINTS = [
    point for point in FAILPOINTS if point.startswith(("copy.", "catchup.")) and point != "copy.after_range"
]


class Restored:
    """A pipeline with a store that is saved while it works, and restored while it does not."""

    def __init__(self, conninfo: str, connection: Connection, spark: Any, root: Path, kind: str = "duckdb") -> None:
        self.connection, self.spark, self.root, self.kind = connection, spark, root, kind
        self.config: PipelineConfig = pipeline_config(
            conninfo,
            root,
            # The spool has everything since the first copy, so nothing but the store is behind.
            spool={"segment_age_ms": 20, "keep_seconds": 3600},
            initial_copy={"rows_per_range": 10, "key_ranges_over_bytes": 1},
        )

    def open(self) -> Destination:
        tables = {LOG: {"mode": "changelog"}}
        if self.kind == "duckdb":
            return DuckDBDestination(duckdb_settings(self.root / "shop.duckdb", tables=tables))
        return IcebergDestination(iceberg_settings(self.root / "lake", tables=tables))

    @property
    def reader(self) -> Any:
        return DuckDBFile(self.root / "shop.duckdb") if self.kind == "duckdb" else Lake(lake(self.root / "lake"))

    def live(self, work: Callable[[Piped], None]) -> None:
        store = SqliteStore(self.root / "store.db", 1)
        with closing(store), piped(self.config, store, self.open(), self.spark) as running:
            work(running)

    def save_store(self) -> None:
        path = self.root / "backup.db"
        path.unlink(missing_ok=True)
        with closing(sqlite3.connect(self.root / "store.db")) as live, closing(sqlite3.connect(path)) as backup:
            live.backup(backup)

    def restore_store(self) -> None:
        for suffix in ("-wal", "-shm"):
            (self.root / f"store.db{suffix}").unlink(missing_ok=True)
        shutil.copy(self.root / "backup.db", self.root / "store.db")

    def change(self, number: int) -> None:
        self.connection.execute(f"INSERT INTO bag VALUES ({number}, 'new'), ({number}, 'new')")
        self.connection.execute("DELETE FROM bag WHERE ctid = (SELECT min(ctid) FROM bag)")
        self.connection.execute(f"INSERT INTO journal VALUES ({number}, 'new')")
        self.connection.execute(f"INSERT INTO keyed VALUES ({number}, 'new')")
        self.connection.execute(f"UPDATE keyed SET note = 'changed {number}' WHERE id % 7 = {number % 7}")

    def assert_equal(self) -> None:
        assert_equal_tables(self.connection, self.reader, BAG, KEYED)
        log = self.reader.rows(LOG)
        changes = [(row["_headrace_commit_lsn"], row["_headrace_tx_ordinal"]) for row in log if row["_headrace_xid"]]
        assert len(set(changes)) == len(changes), "a change is in the log twice"
        assert _replayed(log) == sorted(self.connection.execute("SELECT id, note FROM journal").fetchall())


def _replayed(log: list[dict[str, Any]]) -> list[tuple[int, str]]:
    """The rows that a log of inserts comes to; rows that are there twice are there twice."""
    rows: list[tuple[int, str]] = []
    for row in sorted(log, key=lambda row: (row["_headrace_commit_lsn"] or 0, row["_headrace_tx_ordinal"] or 0)):
        if row["_headrace_op"] == "T":
            rows.clear()
        else:
            rows.append((row["id"], row["note"]))
    return sorted(rows)


@pytest.fixture(autouse=True)
def tables(connection: Connection) -> None:
    connection.execute("CREATE TABLE bag (a int, b text)")
    connection.execute("ALTER TABLE bag REPLICA IDENTITY FULL")
    connection.execute("INSERT INTO bag SELECT n % 3, 'copied' FROM generate_series(1, 12) n")
    connection.execute("CREATE TABLE journal (id int, note text)")
    connection.execute("ALTER TABLE journal REPLICA IDENTITY FULL")
    connection.execute("INSERT INTO journal SELECT n, 'copied' FROM generate_series(1, 5) n")
    connection.execute("CREATE TABLE keyed (id int PRIMARY KEY, note text)")
    connection.execute("INSERT INTO keyed SELECT n, repeat('x', 400) FROM generate_series(1, 200) n")
    connection.execute("ANALYZE")
    connection.execute("CREATE PUBLICATION pub FOR TABLE bag, journal, keyed")


def _resync(restored: Restored, running: Piped, saved_at: str, stopped_at: str) -> None:
    """Copy all tables again; save the store at one point, and stop at another, or some time later."""

    def stop() -> None:
        running.pipeline.stop(timeout=0)
        raise Stopped

    running.until(lambda: running.status.state is PipelineState.RUNNING)
    running.until_ready()
    if saved_at == NEVER:
        restored.save_store()
    # A copy and the stream both have what is committed from here to the copy's snapshot.
    with once_at(stopped_at, stop) if saved_at == NEVER else once_at(saved_at, restored.save_store):
        for table in (BAG, LOG):
            running.pipeline.resync(table)
        restored.change(1002)
        if stopped_at != NEVER:
            running.until(lambda: running.pipeline.wait(0.02))
            return
        running.until((restored.root / "backup.db").exists)
        running.until_ready()
        restored.change(1003)
        running.until_applied(restored.connection)


def _resync_and_restore(restored: Restored, saved_at: str, stopped_at: str) -> None:
    restored.live(lambda running: running.until_ready())
    restored.live(lambda running: _resync(restored, running, saved_at, stopped_at))
    restored.change(1004)
    restored.restore_store()

    def go_on(running: Piped) -> None:
        restored.change(1005)
        running.until_ready()
        running.until_applied(restored.connection)
        running.until_ready()

    restored.live(go_on)
    restored.assert_equal()


def test_a_store_of_before_a_copy_that_was_cut_short(
    conninfo: str, connection: Connection, spark: Any, tmp_path: Path
) -> None:
    """No change was acknowledged before: only the copies tell that the destination is ahead."""
    restored = Restored(conninfo, connection, spark, tmp_path)
    _resync_and_restore(restored, saved_at=NEVER, stopped_at="copy.after_write")


@pytest.mark.parametrize("saved_at", ["copy.after_drop", "copy.after_write"])
def test_a_store_of_the_middle_of_a_copy(
    conninfo: str, connection: Connection, spark: Any, tmp_path: Path, saved_at: str
) -> None:
    _resync_and_restore(Restored(conninfo, connection, spark, tmp_path), saved_at, stopped_at=NEVER)


def test_a_store_of_the_middle_of_a_copy_by_key_ranges(
    conninfo: str, connection: Connection, spark: Any, tmp_path: Path
) -> None:
    """What the destination has of the later ranges is older than a new snapshot of them."""
    restored = Restored(conninfo, connection, spark, tmp_path)

    def copy_and_save(running: Piped) -> None:
        with once_at("copy.after_range", restored.save_store) as reached:
            running.until_ready()
        assert reached["copy.after_range"] > 1
        restored.change(1001)
        running.until_applied(connection)

    restored.live(copy_and_save)
    restored.change(1002)
    restored.restore_store()

    def go_on(running: Piped) -> None:
        running.until_ready()
        running.until_applied(connection)

    restored.live(go_on)
    restored.assert_equal()


@pytest.mark.long
@pytest.mark.faults
@pytest.mark.parametrize("kind", ["duckdb", "iceberg"])
def test_a_store_of_every_point_of_a_copy(
    conninfo: str, connection: Connection, spark: Any, tmp_path: Path, kind: str
) -> None:
    for number, (saved_at, stopped_at) in enumerate(
        [*((point, NEVER) for point in RESYNC_POINTS), *((NEVER, point) for point in RESYNC_POINTS)]
    ):
        connection.execute(
            f"TRUNCATE keyed; TRUNCATE bag; TRUNCATE journal; INSERT INTO bag VALUES ({number}, 'first')"
        )
        root = tmp_path / str(number)
        root.mkdir()
        restored = Restored(conninfo, connection, spark, root, kind)
        _resync_and_restore(restored, saved_at, stopped_at)
        connection.execute("SELECT pg_drop_replication_slot(%s)", (restored.config.slot_name,))
