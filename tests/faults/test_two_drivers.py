"""Two drivers of one pipeline, as real processes: a rolling restart, and a driver that is paused and replaced.

Whatever the first one still does, the destination becomes equal to the source, each change is in a log once, the
recorded position never goes back, and no file is deleted that a table or its successor needs.
"""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
import yaml

from awaiting import until
from delta_tables import DeltaLake, table_directory
from duckdb_reading import DuckDBFile, LakeReader
from headrace.destinations.parquet import LoggedTable, open_log
from headrace.destinations.parquet.layout import ManifestKind
from headrace.destinations.parquet.manifest import StoredRows
from headrace.destinations.parquet.reader import read_changes, read_copied
from headrace.lsn import Lsn
from headrace.postgres.connection import parse_conninfo
from headrace.testing import S3Server
from headrace.testing.postgres import PASSWORD
from lakehouse import canonical_rows, lake
from pipelining import destination_rows, source_rows
from started import Started, commands

pytestmark = [pytest.mark.spark, pytest.mark.faults]

Connection = psycopg.Connection[Any]
KINDS = ("duckdb", "ducklake", "parquet", "iceberg", "delta")
QUIET = {"maintenance": {"enabled": False}}
MIRRORED, LOGGED = "public.t", "public.j"
PATIENCE_S = 240.0


@dataclass(frozen=True)
class Place:
    """Where a pipeline writes to, read without it."""

    kind: str
    root: Path

    @property
    def options(self) -> dict[str, Any]:
        tables = {"tables": {LOGGED: {"mode": "changelog"}}}
        return {
            "duckdb": {"database": str(self.root / "it.duckdb"), **tables},
            "ducklake": {
                "catalog": {"uri": str(self.root / "lake.sqlite")},
                "data_path": str(self.root / "files"),
                **QUIET,
                **tables,
            },
            "parquet": {"location": str(self.root / "log")},
            "iceberg": {"warehouse": str(self.root / "warehouse"), **QUIET, **tables},
            "delta": {"warehouse": str(self.root / "warehouse"), **QUIET, **tables},
        }[self.kind]

    def rows(self, table: str) -> list[dict[str, Any]]:
        """The rows of a table, or of a log."""
        if self.kind == "duckdb":
            return DuckDBFile(self.root / "it.duckdb").rows(table)
        if self.kind == "ducklake":
            return LakeReader(f"sqlite:{self.root / 'lake.sqlite'}").rows(table)
        if self.kind == "delta":
            return list(DeltaLake(self.root / "warehouse").rows(table))
        if self.kind == "parquet":
            return list(_folded(self._log(table)).values())
        return list(canonical_rows(self._iceberg(table).scan().to_arrow()))

    def changes(self) -> list[tuple[int, int]]:
        """The changes that the log has, by commit and ordinal."""
        if self.kind == "parquet":
            return [
                (change["commit_lsn"], change["tx_ordinal"])
                for change in _stored(self._log(LOGGED), ManifestKind.CHANGES)
            ]
        rows = [row for row in self.rows(LOGGED) if row["_headrace_op"] in "IUD"]
        return [(int(row["_headrace_commit_lsn"]), int(row["_headrace_tx_ordinal"])) for row in rows]

    def position(self) -> Lsn:
        """Up to where the mirrored table is, by the destination's own record."""
        if self.kind in ("duckdb", "ducklake"):
            records = self.rows("headrace.tables_7")
            return next(Lsn.parse(row["lsn"]) for row in records if row["source_table"] == MIRRORED)
        if self.kind == "parquet":
            return max(name.end for name in self._log(MIRRORED).names if name.kind is ManifestKind.CHANGES)
        if self.kind == "delta":
            log = table_directory(self.root / "warehouse", *MIRRORED.split(".")) / "_delta_log"
            lines = [line for path in sorted(log.glob("*.json")) for line in path.read_text().splitlines()]
            return Lsn([action["txn"]["version"] for action in map(json.loads, lines) if "txn" in action][-1])
        snapshots = self._iceberg(MIRRORED).metadata.snapshots
        told = [s.summary["headrace.lsn"] for s in snapshots if s.summary and s.summary["headrace.lsn"]]
        return Lsn.parse(told[-1])

    def files(self) -> set[Path]:
        """All files but those that a file system makes for a moment, under another name, until they are complete."""
        return {path for path in self.root.rglob("*") if path.is_file() and ".tmp" not in path.name}

    def _log(self, table: str) -> LoggedTable:
        return open_log(str(self.root / "log")).table(table)

    def _iceberg(self, table: str) -> Any:
        catalog = lake(self.root / "warehouse")
        try:
            return catalog.load_table(table)
        finally:
            catalog.close()


def _stored(table: LoggedTable, kind: ManifestKind) -> Iterator[dict[str, Any]]:
    read = read_copied if kind is ManifestKind.COPY else read_changes
    for name in table.names:
        for step in table.manifest(name).steps if name.kind is kind else ():
            for file in step.files if isinstance(step, StoredRows) else ():
                for batch in read(table.storage, file, step.schema):
                    yield from batch.to_pylist()


def _folded(table: LoggedTable) -> dict[int, dict[str, Any]]:
    rows = {row["id"]: row for row in _stored(table, ManifestKind.COPY)}
    for change in _stored(table, ManifestKind.CHANGES):
        if change["op"] == "D":
            rows.pop(change["old"]["id"], None)
        else:
            rows[change["row"]["id"]] = change["row"]
    return rows


class Scene:
    """A source, a place, and drivers of one pipeline, each with a data directory of its own."""

    def __init__(
        self,
        connection: Connection,
        conninfo: str,
        root: Path,
        kind: str,
        s3: S3Server | None,
        start: Callable[..., Started],
    ) -> None:
        self.connection, self.place = connection, Place(kind, root / "place")
        self._conninfo, self._root, self._s3, self._start = conninfo, root, s3, start
        self.place.root.mkdir()
        for name in "tj":
            connection.execute(f"CREATE TABLE {name} (id serial PRIMARY KEY, note text)")
            connection.execute(f"INSERT INTO {name} (note) SELECT 'copied' FROM generate_series(1, 50)")
        connection.execute("CREATE PUBLICATION pub FOR TABLE t, j")

    def driver(self, name: str) -> Started:
        """Start a driver, and return at once. With a spool at a URI the store is in Postgres: all is shared."""
        at = parse_conninfo(self._conninfo)
        connection = {"host": at.host, "port": at.port, "name": at.name, "username": at.username, "password": PASSWORD}
        shared: dict[str, Any] = {}
        if self._s3 is not None:
            where = {"uri": f"s3://{self._s3.bucket}/{at.name}", "storage_options": self._s3.storage_options}
            shared = {"spool": {"segment_age_ms": 20, **where}, "store": {"kind": "postgres"}}
        values = {
            "id": 7,
            "publication_name": "pub",
            "slot_name": f"slot_{at.name}",
            "pg_connection": connection,
            "data_dir": str(self._root / name),
            "destination": {"kind": self.place.kind, **self.place.options},
            "spark": {"master": "local[1]", "short_lived": True, "driver_memory": "512m"},
            "batch": {"max_fill_ms": 50},
            "spool": {"segment_age_ms": 20},
            "receiver": {"status_interval_ms": 50},
            **shared,
        }
        path = self._root / f"{name}.yaml"
        path.write_text(yaml.safe_dump(values))
        return self._start("run", str(path))

    def change(self) -> None:
        for name in "tj":
            self.connection.execute(f"INSERT INTO {name} (note) SELECT 'streamed' FROM generate_series(1, 5)")
            self.connection.execute(f"UPDATE {name} SET note = note || 'u' WHERE id % 7 = 0")
            self.connection.execute(f"DELETE FROM {name} WHERE id = (SELECT min(id) FROM {name})")

    def is_equal(self) -> bool:
        """Whether the mirrored table equals its source, row for row; one that is being replaced cannot be read."""
        try:
            return destination_rows(self.place, MIRRORED) == source_rows(self.connection, MIRRORED)
        except Exception:  # noqa: BLE001 - each reader has errors of its own for a table that is not there yet
            return False

    def until_equal(self, driver: Started) -> None:
        driver.until(self.is_equal)

    def free_slot(self) -> None:
        """End the server's side of the connection that reads the slot, as a server does that hears nothing."""
        query = "SELECT pg_terminate_backend(active_pid, 10000) FROM pg_replication_slots WHERE active_pid IS NOT NULL"
        self.connection.execute(f"{query} AND database = current_database()")

    def until_received(self) -> None:
        """Everything committed before now is in the spool, whether it was applied or not."""
        (end,) = self.connection.execute("SELECT pg_current_wal_lsn()").fetchone() or (None,)
        query = "SELECT 1 FROM pg_replication_slots WHERE database = current_database() AND confirmed_flush_lsn >= %s"
        until(lambda: self.connection.execute(query, (end,)).fetchone(), PATIENCE_S)

    def check_log(self) -> None:
        changes = self.place.changes()
        assert len(changes) == len(set(changes)) > 0


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Server]:
    with S3Server() as server:
        yield server


@pytest.fixture
def scene(
    request: pytest.FixtureRequest, connection: Connection, conninfo: str, tmp_path: Path
) -> Iterator[Callable[[str, str], Scene]]:
    with commands() as start:

        def scene(kind: str, spool: str) -> Scene:
            server = request.getfixturevalue("s3") if spool == "s3" else None
            return Scene(connection, conninfo, tmp_path, kind, server, start)

        yield scene


def combinations(kinds: Sequence[str], *quick: tuple[str, str]) -> list[Any]:
    """Each kind of destination with every kind of spool; only those that are named are not long."""
    return [
        pytest.param(kind, spool, id=f"{kind}-{spool}", marks=() if (kind, spool) in quick else pytest.mark.long)
        for kind in kinds
        for spool in ("local", "s3")
    ]


def stop_in_order(driver: Started) -> None:
    driver.process.send_signal(signal.SIGTERM)
    assert driver.ended() == 0, "".join(driver.err)


@pytest.mark.parametrize(("kind", "spool"), combinations(KINDS))
def test_a_rolling_restart(scene: Callable[[str, str], Scene], kind: str, spool: str) -> None:
    it = scene(kind, spool)
    first = it.driver("one")
    first.until(lambda: it.is_equal() and first.ready())
    it.change()
    it.until_equal(first)
    # Given a successor that waits, while the first goes on
    second = it.driver("two")
    second.until(lambda: second.logged("waiting for another run to end", "application headrace"))
    it.change()
    it.until_equal(first)
    before = it.place.position()
    assert not second.ready()
    # When the first is told to stop
    it.change()
    stop_in_order(first)
    it.change()
    # Then the second goes on by itself
    it.until_equal(second)
    it.change()
    it.until_equal(second)
    stop_in_order(second)
    assert it.is_equal()
    assert it.place.position() > before
    it.check_log()


def is_of_first_run(name: str, names: set[str]) -> bool:
    """Whether a file has the epoch of the first driver in its name: the lowest of all."""
    epochs = [int(found[1]) for one in names if (found := re.search(r"-e(\d+)x", one))]
    return f"-e{min(epochs, default=0)}x" in name or re.search(r"-00000001", name) is not None


def paused_driver(it: Scene) -> tuple[Started, list[psutil.Process]]:
    """A driver that is paused with changes in its spool that it has not written, and its receiver after it."""
    driver = it.driver("one")
    driver.until(lambda: it.is_equal() and driver.ready())
    it.change()
    it.until_equal(driver)
    processes = [psutil.Process(driver.process.pid), *driver.children()]
    receiver = next(process for process in processes if "headrace.replication.child" in process.cmdline())
    for process in processes:
        if process != receiver:
            process.suspend()
    it.change()
    it.until_received()
    receiver.suspend()
    return driver, processes


def successor(it: Scene) -> Started:
    """A driver that has waited for the slot of a paused one, and got it."""
    driver = it.driver("two")
    driver.until(lambda: driver.logged("waiting for another run to end"))
    it.free_slot()
    return driver


@pytest.mark.parametrize(("kind", "spool"), combinations(KINDS[1:], ("parquet", "s3")))
def test_a_driver_that_is_paused_and_replaced(scene: Callable[[str, str], Scene], kind: str, spool: str) -> None:
    it = scene(kind, spool)
    first, processes = paused_driver(it)
    # Given a successor that took over and goes on
    second = successor(it)
    it.until_equal(second)
    it.change()
    it.until_equal(second)
    before, files = it.place.position(), it.place.files()
    # When the first wakes up
    for process in processes:
        process.resume()
    # Then it ends, says why, and has changed nothing
    assert first.ended() == 5, "".join(first.err)
    assert first.logged("another run of", "has taken over"), "".join(first.err)
    assert not first.logged('"state": "errored"')
    assert it.place.position() == before
    assert it.is_equal()
    # Of its own it may take back what it was about to commit.
    gone = {path.name for path in files - it.place.files()}
    assert not [name for name in gone if not is_of_first_run(name, {path.name for path in files})], gone
    it.change()
    it.until_equal(second)
    stop_in_order(second)
    assert it.is_equal()
    assert it.place.position() > before
    it.check_log()


@pytest.mark.parametrize(("kind", "spool"), combinations(("duckdb",)))
def test_a_paused_driver_that_has_a_duckdb_file_open(scene: Callable[[str, str], Scene], kind: str, spool: str) -> None:
    """Nobody else can write to its file: the successor waits for it, and says so."""
    it = scene(kind, spool)
    first, processes = paused_driver(it)
    second = successor(it)
    second.until(lambda: second.logged("waiting for another process that has the database open"))
    if spool == "s3":
        # When it wakes up, then it finds that the other run has the lease of the store.
        for process in processes:
            process.resume()
        assert first.ended() == 5, "".join(first.err)
        assert first.logged("another run of this pipeline has taken over the store")
    else:
        for process in processes:
            process.kill()
        first.ended()
    it.until_equal(second)
    it.change()
    it.until_equal(second)
    stop_in_order(second)
    assert it.is_equal()
    it.check_log()
