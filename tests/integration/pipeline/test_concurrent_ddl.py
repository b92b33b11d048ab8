"""DDL of several transactions at once: a description of a table that is out of date when it arrives changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import IsolationLevel
from structlog.testing import capture_logs

from headrace.destinations import MemoryDestination
from headrace.stores import MemoryStore
from pipelining import Piped, assert_equal_tables, piped, pipeline_config, until_equal

Connection = psycopg.Connection[Any]

pytestmark = pytest.mark.matrix


@contextmanager
def following(
    conninfo: str, connection: Connection, spark: Any, root: Path
) -> Iterator[tuple[Piped, MemoryDestination]]:
    connection.execute("CREATE PUBLICATION pub FOR ALL TABLES")
    destination = MemoryDestination()
    with piped(pipeline_config(conninfo, root), MemoryStore(), destination, spark) as running:
        running.until_ready()
        yield running, destination


@contextmanager
def transaction(conninfo: str, *statements: str, isolation: IsolationLevel | None = None) -> Iterator[Connection]:
    """Run statements in a transaction that is committed when the block ends."""
    with psycopg.connect(conninfo) as other:
        other.isolation_level = isolation
        for statement in statements:
            other.execute(statement)
        yield other


@pytest.mark.parametrize(
    ("statement", "after"),
    [
        ("ALTER TYPE mood ADD VALUE 'glad'", "app.t"),
        ("ALTER SCHEMA app RENAME TO shop", "shop.t"),
        ("SET LOCAL headrace.pending = '{{\"relations\": [{oid}]}}'; CREATE TABLE other (id int PRIMARY KEY)", "app.t"),
    ],
    ids=["type", "schema", "setting"],
)
def test_a_table_altered_before_the_description_arrives(
    conninfo: str, connection: Connection, spark: Any, tmp_path: Path, statement: str, after: str
) -> None:
    connection.execute("CREATE TYPE mood AS ENUM ('sad'); CREATE SCHEMA app")
    connection.execute("CREATE TABLE app.t (id int PRIMARY KEY, m mood); INSERT INTO app.t VALUES (1, 'sad')")
    row = connection.execute("SELECT 'app.t'::regclass::oid").fetchone()
    assert row is not None
    with following(conninfo, connection, spark, tmp_path) as (running, destination):
        with transaction(conninfo, statement.format(oid=row[0])):
            connection.execute("ALTER TABLE app.t ADD COLUMN added int DEFAULT 7")
            connection.execute("INSERT INTO app.t VALUES (2, 'sad', 22)")
            running.until_applied(connection)
        connection.execute(f"INSERT INTO {after} VALUES (3, 'sad', 33)")
        running.until_applied(connection)
        running.until_ready()
        assert_equal_tables(connection, destination, after)


def test_a_table_altered_under_an_earlier_snapshot(
    conninfo: str, connection: Connection, spark: Any, tmp_path: Path
) -> None:
    connection.execute("CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'x')")
    with following(conninfo, connection, spark, tmp_path) as (running, destination):
        with transaction(conninfo, "SELECT 1", isolation=IsolationLevel.REPEATABLE_READ) as other:
            connection.execute("ALTER TABLE t ADD COLUMN added int DEFAULT 7")
            connection.execute("INSERT INTO t VALUES (2, 'y', 22)")
            running.until_applied(connection)
            other.execute("ALTER TABLE t ADD COLUMN more int DEFAULT 8")
        connection.execute("INSERT INTO t VALUES (3, 'z', 33, 333)")
        until_equal(running, connection, destination, "public.t")


def test_a_role_without_rights_tells_of_no_rewrite(
    conninfo: str, connection: Connection, spark: Any, tmp_path: Path
) -> None:
    """What the event triggers leave for one another is in a setting that everybody may change."""
    connection.execute("CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'x')")
    row = connection.execute("SELECT 't'::regclass::oid").fetchone()
    assert row is not None
    with following(conninfo, connection, spark, tmp_path) as (running, destination):
        pending = f'{{"relations": [{row[0]}], "rewrites": {{"{row[0]}": 4}}}}'
        with capture_logs() as logs:
            with transaction(conninfo, f"SET LOCAL headrace.pending = '{pending}'", "CREATE TEMP TABLE mine (id int)"):
                pass
            connection.execute("INSERT INTO t VALUES (2, 'y')")
            running.until_applied(connection)
        assert_equal_tables(connection, destination, "public.t")
        assert "the table is copied again" not in [line["event"] for line in logs]


def test_a_rewrite_is_told_all_the_same(conninfo: str, connection: Connection, spark: Any, tmp_path: Path) -> None:
    connection.execute("CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 10)")
    with following(conninfo, connection, spark, tmp_path) as (running, destination):
        connection.execute("ALTER TABLE t ALTER v TYPE int USING v * 2")
        until_equal(running, connection, destination, "public.t")
