"""Store, spool and destination, each lost or restored to an earlier state, alone and together.

The destination is equal to the source afterwards. Or the pipeline ends with an error, and is equal once its hint is
followed. It never continues with rows that are missing, doubled or outdated.
"""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import psycopg
import pytest

from awaiting import until
from delta_tables import DeltaLake
from duckdb_reading import DuckDBFile
from headrace.config.pipeline import PipelineConfig
from headrace.errors import HeadraceError, SpoolGap
from headrace.lsn import INVALID_LSN, Lsn
from headrace.pipeline.build import build_destination, build_store
from headrace.postgres.connection import parse_conninfo
from headrace.spool import Spool
from headrace.testing.postgres import PASSWORD
from killing import Child
from lakehouse import Lake, lake
from pipelining import Piped, assert_equal_tables, piped, pipeline_config

pytestmark = pytest.mark.faults

Connection = psycopg.Connection[Any]

PARTS = ("store", "spool", "destination")
MIRRORS = ("public.keyed", "public.bag", "public.settings")
LOG = "public.journal"
SOURCE = """
CREATE TABLE keyed (id int PRIMARY KEY, note text, gone int, old_name int);
INSERT INTO keyed SELECT n, 'copied', n, n FROM generate_series(1, 20) n;
CREATE TABLE bag (a int, b text);
ALTER TABLE bag REPLICA IDENTITY FULL;
INSERT INTO bag SELECT n % 3, 'same' FROM generate_series(1, 10) n;
CREATE TABLE settings (id int PRIMARY KEY, value text);
INSERT INTO settings VALUES (1, 'quiet');
CREATE TABLE journal (id int PRIMARY KEY, note text);
INSERT INTO journal SELECT n, 'copied' FROM generate_series(1, 5) n;
CREATE PUBLICATION pub FOR TABLE keyed, bag, settings, journal;
"""


class Place:
    """A kind of destination under a directory: its settings, and how to read it."""

    def __init__(self, kind: str, root: Path) -> None:
        self.kind, self.root = kind, root

    def settings(self) -> dict[str, Any]:
        modes = {LOG: {"mode": "changelog"}}
        if self.kind == "duckdb":
            self.root.mkdir(exist_ok=True)
            return {"kind": "duckdb", "database": str(self.root / "shop.duckdb"), "tables": modes}
        upkeep = {"enabled": False}
        return {"kind": self.kind, "warehouse": str(self.root), "maintenance": upkeep, "tables": modes}

    def rows(self, table: str) -> Any:
        readers: dict[str, Callable[[], Any]] = {
            "duckdb": lambda: DuckDBFile(self.root / "shop.duckdb"),
            "iceberg": lambda: Lake(lake(self.root)),
            "delta": lambda: DeltaLake(self.root),
        }
        return readers[self.kind]().rows(table)


@dataclass
class History:
    """A pipeline that was backed up, went on, and was stopped; its files may be had as of both moments."""

    conninfo: str
    connection: Connection
    spark: Any
    root: Path
    place: Place
    keep_seconds: int
    backup_lsn: Lsn = INVALID_LSN
    changes: int = 70
    store_database: str | None = None
    """The database of a Postgres store; None: the store is a SQLite file."""

    def live(self, work: Callable[[Piped], None], **settings: Any) -> None:
        """One life of the pipeline. Raises what ends it."""
        config = self.config(**settings)
        config.directory.mkdir(parents=True, exist_ok=True)
        with (
            closing(build_store(config)) as store,
            piped(config, store, build_destination(config), self.spark) as running,
        ):
            work(running)

    def die(self, work: Callable[[], None]) -> None:
        """One life of the pipeline in processes of its own, which are killed while it works."""
        file = self.root / "config.pickle"
        file.write_bytes(pickle.dumps(self.config()))
        child = Child(file, self.root)
        child.until("ready")
        work()
        child.kill()
        until(lambda: not self._slot_is_active())

    def _slot_is_active(self) -> bool:
        query = "SELECT active FROM pg_replication_slots WHERE slot_name = %s"
        return self.connection.execute(query, (self.config().slot_name,)).fetchone() == (True,)

    def config(self, **settings: Any) -> PipelineConfig:
        spool = {"segment_age_ms": 20, "keep_seconds": self.keep_seconds}
        if self.store_database:
            database = self.connection.info.dsn.replace(self.connection.info.dbname, self.store_database)
            connection = parse_conninfo(f"{database} password={PASSWORD}")
            settings |= {"store": {"kind": "postgres"}, "store_pg_connection": connection}
        settings |= {"spool": spool, "destination": self.place.settings()}
        return pipeline_config(self.conninfo, self.root / "data", **settings)

    def save(self, moment: str) -> None:
        for part in PARTS:
            for path in self._paths(part):
                if path.exists():
                    _copy(path, self.root / moment / part / path.name)
        if self.store_database:
            self._create_database(f"{self.store_database}_{moment}", self.store_database)

    def put(self, states: Mapping[str, str]) -> None:
        """Make the files as they were at moments, by part; "lost" removes them. The slot is as it was at the end."""
        for part, moment in states.items():
            for path in self._paths(part):
                shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
                saved = self.root / moment / part / path.name
                if saved.exists():
                    _copy(saved, path)
        if self.store_database and "store" in states:
            moment = states["store"]
            self.connection.execute(f"DROP DATABASE {self.store_database}")
            template = "template1" if moment == "lost" else f"{self.store_database}_{moment}"
            self._create_database(self.store_database, template)
        slot = self.config().slot_name
        self.connection.execute("SELECT pg_drop_replication_slot(%s)", (slot,))
        self.connection.execute("SELECT pg_copy_logical_replication_slot(%s, %s)", (self.slot_kept, slot))

    def _create_database(self, name: str, template: str) -> None:
        self.connection.execute(f"CREATE DATABASE {name} TEMPLATE {template}")

    @property
    def slot_kept(self) -> str:
        """A slot that stays where the pipeline's own was at the end."""
        return f"kept_{self.connection.info.dbname}"

    def _paths(self, part: str) -> list[Path]:
        directory = self.config().directory
        if part == "store":
            return [directory / f"store.db{suffix}" for suffix in ("", "-wal", "-shm")]
        return [directory / "spool"] if part == "spool" else [self.place.root]

    def assert_equal(self) -> None:
        assert_equal_tables(self.connection, self.place, *MIRRORS)
        log = self.place.rows(LOG)
        changes = [(row["_headrace_commit_lsn"], row["_headrace_tx_ordinal"]) for row in log if row["_headrace_xid"]]
        assert len(set(changes)) == len(changes), "a change is in the log twice"
        assert replayed(log) == {row[0]: row[1] for row in self.connection.execute("SELECT id, note FROM journal")}


def replayed(log: list[dict[str, Any]]) -> dict[int, str]:
    """What a log says the table is now."""
    rows: dict[int, str] = {}
    for row in sorted(log, key=lambda row: (row["_headrace_commit_lsn"] or 0, row["_headrace_tx_ordinal"] or 0)):
        if row["_headrace_op"] == "T":
            rows.clear()
        elif row["_headrace_op"] == "D":
            del rows[row["id"]]
        else:
            assert row["_headrace_op"] != "I" or row["id"] not in rows, f"{row['id']} is inserted twice"
            rows[row["id"]] = row["note"]
    return rows


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        shutil.copy(source, target)


def change(connection: Connection, first: int) -> None:
    connection.execute(f"INSERT INTO keyed (id, note) VALUES ({first}, 'new')")
    connection.execute(f"UPDATE keyed SET note = 'changed {first}' WHERE id <= 3")
    connection.execute(f"DELETE FROM keyed WHERE id = {first // 10 + 10}")
    connection.execute(f"INSERT INTO bag VALUES ({first}, 'same'), ({first}, 'same')")
    connection.execute("DELETE FROM bag WHERE ctid = (SELECT min(ctid) FROM bag)")
    connection.execute(f"INSERT INTO journal VALUES ({first}, 'new')")
    connection.execute(f"UPDATE journal SET note = 'changed {first}' WHERE id = 1")
    connection.execute(f"DELETE FROM journal WHERE id = {first - 10}")


def make_history(history: History, *, killed: bool = False) -> None:
    """Let the pipeline work, be backed up, work on and stop, or be killed."""
    connection = history.connection
    connection.execute(SOURCE)
    if history.store_database:
        connection.execute(f"CREATE DATABASE {history.store_database}")

    def begin(running: Piped) -> None:
        running.until_ready()
        change(connection, 30)
        running.until_applied(connection)
        history.backup_lsn = min(table.position for table in running.status.tables.values())

    def go_on(running: Piped) -> None:
        running.until_ready()
        for changes in (alter, alter_again):
            changes(connection)
            running.until_applied(connection)
        spool = Spool.open(history.config().spool_config())
        running.until(lambda: history.keep_seconds > 0 or spool.segments()[0].start > history.backup_lsn)

    def go_on_and_die() -> None:
        alter(connection)
        alter_again(connection)

    history.live(begin)
    history.save("backup")
    history.die(go_on_and_die) if killed else history.live(go_on)
    history.save("end")
    copied = "SELECT pg_copy_logical_replication_slot(%s, %s)"
    connection.execute(copied, (history.config().slot_name, history.slot_kept))
    # What the pipeline has not seen, and finds at its next start
    change(connection, 70)


def alter(connection: Connection) -> None:
    change(connection, 40)
    connection.execute("ALTER TABLE keyed ADD COLUMN more int DEFAULT 7, DROP COLUMN gone")
    connection.execute("TRUNCATE bag")
    change(connection, 50)


def alter_again(connection: Connection) -> None:
    connection.execute("UPDATE keyed SET more = id WHERE id > 5")
    connection.execute("ALTER TABLE keyed RENAME COLUMN old_name TO new_name")
    connection.execute("ALTER TABLE keyed ADD COLUMN last text")
    connection.execute("UPDATE keyed SET last = 'l', new_name = -id WHERE id % 2 = 0")
    change(connection, 60)


def recover(history: History, states: Mapping[str, str]) -> HeadraceError | None:
    """Start with these files, do what an error's hint says, and compare; return the error."""
    history.put(states)

    def converge(running: Piped) -> None:
        history.changes += 10
        change(history.connection, history.changes)
        running.until_ready()
        running.until_applied(history.connection)
        running.until_ready()

    error: HeadraceError | None = None
    try:
        history.live(converge)
    except HeadraceError as caught:
        error = caught
    if error is not None:
        assert "invalidated_slot_behavior to recreate" in error.hint
        history.live(converge, invalidated_slot_behavior="recreate")
    history.assert_equal()
    return error


def states(**moments: str) -> dict[str, str]:
    return {**dict.fromkeys(PARTS, "end"), **moments}


ALL_STATES = [dict(zip(PARTS, moments, strict=True)) for moments in product(("end", "backup", "lost"), repeat=3)][1:]


def recover_from_all(history: History) -> None:
    for moments in ALL_STATES:
        error = recover(history, moments)
        assert error is None or isinstance(error, SpoolGap), moments


def test_parts_that_are_lost_or_restored(conninfo: str, connection: Connection, spark: Any, tmp_path: Path) -> None:
    history = History(conninfo, connection, spark, tmp_path, Place("duckdb", tmp_path / "destination"), 600)
    make_history(history)
    # The spool still has what the earlier store and destination lack.
    assert recover(history, states(store="backup")) is None
    assert recover(history, states(store="backup", destination="backup")) is None
    assert recover(history, states(store="lost")) is None
    assert recover(history, dict.fromkeys(PARTS, "lost")) is None
    # The server has forgotten what an earlier spool lacks.
    assert isinstance(recover(history, states(store="backup", spool="backup")), SpoolGap)


FORMS = [
    ("duckdb", 0, "stopped"),
    ("duckdb", 600, "stopped"),
    ("duckdb", 0, "killed"),
    ("duckdb", 600, "killed"),
    ("iceberg", 0, "stopped"),
    ("iceberg", 600, "killed"),
    ("delta", 0, "stopped"),
    ("delta", 600, "killed"),
]


@pytest.mark.long
@pytest.mark.parametrize("form", FORMS, ids=lambda form: "-".join(map(str, form)))
def test_every_combination(
    conninfo: str, connection: Connection, spark: Any, tmp_path: Path, form: tuple[str, int, str]
) -> None:
    kind, keep_seconds, end = form
    history = History(conninfo, connection, spark, tmp_path, Place(kind, tmp_path / "destination"), keep_seconds)
    make_history(history, killed=end == "killed")
    recover_from_all(history)


@pytest.mark.long
@pytest.mark.parametrize("keep_seconds", [0, 600], ids=["released", "in the spool"])
def test_a_postgres_store(conninfo: str, connection: Connection, spark: Any, tmp_path: Path, keep_seconds: int) -> None:
    history = History(conninfo, connection, spark, tmp_path, Place("duckdb", tmp_path / "destination"), keep_seconds)
    history.store_database = f"store_{connection.info.dbname}"
    make_history(history)
    for moment in ("backup", "lost"):
        for destination in ("end", "backup"):
            recover(history, states(store=moment, destination=destination))
