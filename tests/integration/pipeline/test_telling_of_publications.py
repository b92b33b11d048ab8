"""What the event trigger tells brings the next look at the publication forward; and what is said of who joins."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from structlog.testing import capture_logs

from headrace.destinations.memory import MemoryDestination
from headrace.pipeline import discovery
from headrace.stores import MemoryStore
from pipelining import Piped, piped, pipeline_config, wait_equal

Connection = psycopg.Connection[Any]


@pytest.fixture
def destination() -> MemoryDestination:
    return MemoryDestination()


@pytest.fixture
def running(
    conninfo: str,
    connection: Connection,
    spark: Any,
    tmp_path: Path,
    destination: MemoryDestination,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Piped]:
    """A pipeline that by itself looks at the publication once in an hour."""
    monkeypatch.setattr(discovery, "INTERVAL_S", 3600.0)
    connection.execute("CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE b (id int PRIMARY KEY)")
    connection.execute("CREATE PUBLICATION pub FOR TABLE a")
    with piped(pipeline_config(conninfo, tmp_path), MemoryStore(), destination, spark) as piping:
        piping.until_ready()
        yield piping


def test_a_table_added_to_the_publication(running: Piped, connection: Connection, destination: Any) -> None:
    connection.execute("INSERT INTO b VALUES (1)")
    connection.execute("ALTER PUBLICATION pub ADD TABLE b")
    connection.execute("INSERT INTO b VALUES (2)")
    running.until(lambda: "public.b" in running.status.tables)
    running.until_ready("public.a", "public.b")
    wait_equal(running, connection, destination, "public.a", "public.b")
    connection.execute("ALTER PUBLICATION pub DROP TABLE b")
    running.until(lambda: "public.b" not in running.status.tables)


def test_a_table_created_where_all_are_published(running: Piped, connection: Connection, destination: Any) -> None:
    connection.execute("DROP PUBLICATION pub")
    connection.execute("CREATE PUBLICATION pub FOR ALL TABLES")
    running.until(lambda: "public.b" in running.status.tables)
    connection.execute("CREATE TABLE c AS SELECT 1 AS id")
    running.until(lambda: "public.c" in running.status.tables)
    running.until_ready()
    wait_equal(running, connection, destination, "public.a", "public.b", "public.c")


def test_of_a_table_without_identity_is_said_what_check_says(
    running: Piped, connection: Connection, destination: Any
) -> None:
    with capture_logs() as logs:
        connection.execute("CREATE TABLE keyless (note text)")
        connection.execute("ALTER PUBLICATION pub ADD TABLE keyless")
        running.until(lambda: any("not quite ready" in entry["event"] for entry in logs))
    (said,) = [entry for entry in logs if "not quite ready" in entry["event"]]
    assert "public.keyless has no replica identity" in said["found"]
    assert "REPLICA IDENTITY FULL" in said["hint"]
    running.until(lambda: "public.keyless" in running.status.tables)
    connection.execute("INSERT INTO keyless VALUES ('comes all the same')")
    running.until_ready()
    wait_equal(running, connection, destination, "public.keyless")
