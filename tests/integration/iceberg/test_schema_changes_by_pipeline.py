"""Iceberg tables under a running pipeline whose source changes: logs of changes, copies that take the place of others,
and crashes around the commit that alters a table."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from crashing import CrashedLife
from headrace.destinations.iceberg import IcebergDestination
from headrace.destinations.iceberg.table import IcebergTable
from headrace.destinations.lake.java_errors import CommitStateUnknown
from headrace.destinations.lake.operations import Operation
from headrace.pipeline.failpoint import set_hook
from headrace.stores import MemoryStore
from headrace.stores.records import SchemaStatus
from headrace.stores.sqlite import SqliteStore
from headrace.testing.faulty_destination import FaultyDestination
from lakehouse import Lake, iceberg_settings, lake, read_table
from pipelining import PATIENCE_S, Piped, destination_rows, piped, pipeline_config, source_rows, wait_equal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Connection = psycopg.Connection[Any]
T = "public.t"


@pytest.fixture
def warehouse(tmp_path: Path, connection: Connection) -> Path:
    connection.execute("CREATE TABLE t (id int PRIMARY KEY, a int, s text)")
    connection.execute("INSERT INTO t SELECT n, n, 's' || n FROM generate_series(1, 3) n")
    connection.execute("CREATE PUBLICATION pub FOR TABLE t")
    return tmp_path / "warehouse"


def _execute(connection: Connection, *statements: str) -> None:
    """In one transaction."""
    with connection.transaction():
        for statement in statements:
            connection.execute(statement)


def test_a_log_of_changes_has_all_that_happened(
    conninfo: str, connection: Connection, spark: SparkSession, tmp_path: Path, warehouse: Path
) -> None:
    """Every column there ever was, and which version of the table each row was of. A row that is inserted in the
    transaction of a statement has its commit's LSN, which is the version."""
    destination = IcebergDestination(iceberg_settings(warehouse, mode="changelog"))
    with piped(pipeline_config(conninfo, tmp_path), MemoryStore(), destination, spark) as running:
        running.until_ready()
        connection.execute("UPDATE t SET s = 'x' WHERE id = 1")
        _execute(connection, "ALTER TABLE t ADD b int DEFAULT 7", "INSERT INTO t VALUES (4, 4, 's4', 8)")
        connection.execute("DELETE FROM t WHERE id = 2")
        # What it logged before a volatile default is history: nothing is copied again.
        _execute(connection, "ALTER TABLE t ADD r float8 DEFAULT random() * 0", "INSERT INTO t (id) VALUES (5)")
        _execute(connection, "ALTER TABLE t DROP a, DROP r", "INSERT INTO t (id, s) VALUES (6, 's6')")
        # A name is taken again, and a column becomes what no number can be read as.
        _execute(
            connection,
            "ALTER TABLE t ADD a date",
            "ALTER TABLE t ALTER b TYPE text USING 'n' || b",
            "INSERT INTO t VALUES (7, 's7', 'n9', '2026-01-02')",
        )
        connection.execute("UPDATE t SET id = 70 WHERE id = 7")
        connection.execute("TRUNCATE t")
        running.until_applied(connection)
        rows = read_table(warehouse, T).to_pylist()
    first = {row["id"]: row["_headrace_commit_lsn"] for row in rows if row["_headrace_op"] == "I"}
    versions = {0: 0, 1: first[4], 2: first[5], 3: first[6], 4: first[7]}
    columns = ("id", "s", "a_2", "a", "b_4", "b", "r")
    known = [
        (*(row[name] for name in columns), row["_headrace_op"], row["_headrace_schema_version"])
        for row in sorted(rows, key=lambda row: (row["_headrace_commit_lsn"] or 0, row["_headrace_tx_ordinal"] or 0))
    ]
    day = dt.date(2026, 1, 2)
    assert sorted(known[:3]) == [(n, f"s{n}", n, None, None, None, None, "R", 0) for n in (1, 2, 3)]
    assert known[3:] == [
        (1, "x", 1, None, None, None, None, "U", versions[0]),
        (4, "s4", 4, None, 8, None, None, "I", versions[1]),
        (2, None, None, None, None, None, None, "D", versions[1]),
        (5, None, None, None, 7, None, 0.0, "I", versions[2]),
        (6, "s6", None, None, 7, None, None, "I", versions[3]),
        (7, "s7", None, day, None, "n9", None, "I", versions[4]),
        (70, "s7", None, day, None, "n9", None, "U", versions[4]),
        (None, None, None, None, None, None, None, "T", versions[4]),
    ]
    (moved,) = [row["_headrace_before"] for row in rows if row["id"] == 70]
    assert moved["id"] == 7


def test_a_table_is_copied_again_while_others_stream(
    conninfo: str, connection: Connection, spark: SparkSession, tmp_path: Path, warehouse: Path
) -> None:
    """And its old rows are read until the copy is complete."""
    connection.execute("CREATE TABLE busy (id int PRIMARY KEY); ALTER PUBLICATION pub ADD TABLE busy")
    again, go_on = threading.Event(), threading.Event()

    def fail(method: str, table: str | None) -> None:
        if method == "drop_table_for_copy":
            again.set()
        if again.is_set() and (method, table) == ("write_table_rows", T):
            assert go_on.wait(PATIENCE_S)

    destination = FaultyDestination(IcebergDestination(iceberg_settings(warehouse)), fail)
    with piped(pipeline_config(conninfo, tmp_path), MemoryStore(), destination, spark) as running:
        running.until_ready()
        tables = Lake(lake(warehouse))
        old = destination_rows(tables, T)
        connection.execute("ALTER TABLE t ADD r float8 DEFAULT random()")
        assert again.wait(PATIENCE_S)
        connection.execute("INSERT INTO busy SELECT generate_series(1, 10)")
        running.until(lambda: len(tables.rows("public.busy")) == 10)
        assert destination_rows(tables, T) == old
        go_on.set()
        running.until(lambda: destination_rows(tables, T) == source_rows(connection, T))


ALTERED = (
    "INSERT INTO t VALUES (4, 4, 'before')",
    "ALTER TABLE t RENAME a TO n",
    "ALTER TABLE t ALTER n TYPE bigint",
    "ALTER TABLE t ADD b text DEFAULT 'new', DROP s",
    "UPDATE t SET n = 5000000000 WHERE id = 1",
    "DELETE FROM t WHERE id = 2",
    "INSERT INTO t VALUES (5, 5, 'after')",
)


@pytest.fixture(autouse=True)
def no_point_stays() -> Iterator[None]:
    yield
    set_hook(None)


def _alterations(warehouse: Path) -> list[str]:
    """The columns' names, from schema to schema that the table ever had."""
    return [",".join(field.name for field in one.fields) for one in lake(warehouse).load_table(T).metadata.schemas]


@pytest.mark.parametrize("point", ["alter.after_applying", "alter.before_applied"])
def test_a_crash_around_the_commit_that_alters(
    conninfo: str,
    connection: Connection,
    spark: SparkSession,
    tmp_path: Path,
    warehouse: Path,
    point: str,
) -> None:
    config = pipeline_config(conninfo, tmp_path)
    config.directory.mkdir(parents=True, exist_ok=True)
    life = CrashedLife(config, tmp_path, spark, IcebergDestination(iceberg_settings(warehouse)))
    set_hook(life.reached)
    life.pipeline.start()
    Piped(life.pipeline).until_ready()
    life.arm(point, 1)
    _execute(connection, *ALTERED)
    assert life.crashed.wait(PATIENCE_S)
    assert life.pipeline.stop(PATIENCE_S)
    set_hook(None)
    (metadata,) = life.store.get_all_destination_metadata().values()
    assert metadata.status is SchemaStatus.APPLYING
    life.store.close()
    committed = point == "alter.before_applied"
    assert ("id,n,b" in _alterations(warehouse)) == committed
    # What happens meanwhile is not of the version that the crash was about.
    connection.execute("ALTER TABLE t RENAME n TO m")
    connection.execute("INSERT INTO t VALUES (6, 6, 'later')")
    store = SqliteStore(config.store_path, config.id)
    with piped(config, store, IcebergDestination(iceberg_settings(warehouse)), spark) as running:
        wait_equal(running, connection, Lake(lake(warehouse)), T)
        (metadata,) = store.get_all_destination_metadata().values()
        assert metadata.status is SchemaStatus.APPLIED
    store.close()
    assert _alterations(warehouse)[-1] == "id,m,b"
    assert lake(warehouse).load_table(T).schema().identifier_field_names() == {"id"}


def test_the_answer_to_the_commit_that_alters_is_lost(
    conninfo: str,
    connection: Connection,
    spark: SparkSession,
    tmp_path: Path,
    warehouse: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody knows whether it took place: the table tells, and nothing is applied twice."""
    inner, lost = IcebergTable.commit, threading.Event()

    def commit(self: IcebergTable, planned: Any, operations: Iterable[Operation], record: Any) -> None:
        listed = list(operations)
        inner(self, planned, listed, record)
        if any(operation.alteration is not None for operation in listed) and not lost.is_set():
            lost.set()
            raise CommitStateUnknown("the connection was lost")

    monkeypatch.setattr(IcebergTable, "commit", commit)
    destination = IcebergDestination(iceberg_settings(warehouse))
    with piped(pipeline_config(conninfo, tmp_path), MemoryStore(), destination, spark) as running:
        running.until_ready()
        _execute(connection, *ALTERED)
        connection.execute("INSERT INTO t VALUES (6, 6, 'later')")
        wait_equal(running, connection, Lake(lake(warehouse)), T)
        assert lost.is_set()
    assert _alterations(warehouse).count("id,n,b") == 1
