"""What only a look at the publication tells, or not even that: a table out of it for a moment, a root renamed."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headrace.destinations.memory import MemoryDestination
from headrace.pipeline import discovery
from headrace.stores import MemoryStore
from headrace.table_state import State
from pipelining import piped, pipeline_config, until_equal, wait_equal
from reaching import once_at


@pytest.fixture
def no_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discovery, "INTERVAL_S", 3600.0)


def execute_elsewhere(conninfo: str, statement: str) -> None:
    """In a session of its own: a hook runs in the pipeline's threads."""
    with psycopg.connect(conninfo, autocommit=True) as other:
        other.execute(statement)


@pytest.mark.usefixtures("no_looks")
def test_a_copy_that_finds_its_table_not_published_is_tried_again(
    conninfo: str, connection: psycopg.Connection[Any], spark: Any, tmp_path: Path
) -> None:
    connection.execute("CREATE TABLE t (id int PRIMARY KEY); CREATE PUBLICATION pub FOR TABLE t")
    connection.execute("INSERT INTO t VALUES (1), (2)")
    leave = partial(execute_elsewhere, conninfo, "ALTER PUBLICATION pub DROP TABLE t")
    destination = MemoryDestination()
    with (
        once_at("copy.after_data_sync", leave),
        piped(pipeline_config(conninfo, tmp_path), MemoryStore(), destination, spark) as running,
    ):
        running.until(lambda: running.states() == {"public.t": State.ERRORED})
        connection.execute("ALTER PUBLICATION pub ADD TABLE t")
        running.until_ready()
        connection.execute("INSERT INTO t VALUES (3)")
        wait_equal(running, connection, destination, "public.t")


def test_a_schema_that_is_renamed_under_a_copy(
    conninfo: str, connection: psycopg.Connection[Any], spark: Any, tmp_path: Path
) -> None:
    """No lock on a table keeps its schema's name: the copy is made again by the new one."""
    connection.execute(
        "CREATE SCHEMA shop; CREATE TABLE shop.t (id int PRIMARY KEY); INSERT INTO shop.t VALUES (1), (2)"
    )
    connection.execute("CREATE PUBLICATION pub FOR TABLE shop.t")
    rename = partial(execute_elsewhere, conninfo, "ALTER SCHEMA shop RENAME TO store")
    destination = MemoryDestination()
    with (
        once_at("copy.after_snapshot", rename) as reached,
        piped(pipeline_config(conninfo, tmp_path), MemoryStore(), destination, spark) as running,
    ):
        running.until_ready("store.t")
        connection.execute("INSERT INTO store.t VALUES (3)")
        wait_equal(running, connection, destination, "store.t")
    assert reached["copy.after_snapshot"]


def test_a_root_that_is_renamed_is_followed_without_the_event_trigger(
    conninfo: str, connection: psycopg.Connection[Any], spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server describes a table again where that of a change was altered: here a partition, which was not."""
    monkeypatch.setattr(discovery, "INTERVAL_S", 0.3)
    connection.execute("CREATE TABLE t (id int PRIMARY KEY) PARTITION BY RANGE (id)")
    connection.execute("CREATE TABLE t_1 PARTITION OF t FOR VALUES FROM (0) TO (100)")
    connection.execute("CREATE PUBLICATION pub FOR TABLE t WITH (publish_via_partition_root = true)")
    connection.execute("INSERT INTO t VALUES (1), (2)")
    destination = MemoryDestination()
    config = pipeline_config(conninfo, tmp_path, source={"install": "never"})
    with piped(config, MemoryStore(), destination, spark) as running:
        running.until_ready()
        connection.execute("INSERT INTO t VALUES (3)")
        wait_equal(running, connection, destination, "public.t")
        connection.execute("ALTER TABLE t RENAME TO renamed")
        connection.execute("INSERT INTO renamed VALUES (4)")
        running.until(lambda: running.states() == {"public.renamed": State.READY})
        connection.execute("INSERT INTO renamed VALUES (5)")
        wait_equal(running, connection, destination, "public.renamed")


@pytest.mark.parametrize("then", ["ALTER TABLE t DROP CONSTRAINT t_pkey",
                                  "ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (id, n)"])  # fmt: skip
def test_a_key_that_goes_while_whole_rows_are_sent_is_noticed_without_the_event_trigger(
    conninfo: str,
    connection: psycopg.Connection[Any],
    spark: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    then: str,
) -> None:
    """By the former key, two rows that are equal in it would be taken for one."""
    monkeypatch.setattr(discovery, "INTERVAL_S", 0.3)
    connection.execute("CREATE TABLE t (id int PRIMARY KEY, n int); ALTER TABLE t REPLICA IDENTITY FULL")
    connection.execute("CREATE PUBLICATION pub FOR TABLE t; INSERT INTO t VALUES (1, 1), (2, 2)")
    destination = MemoryDestination()
    config = pipeline_config(conninfo, tmp_path, source={"install": "never"})
    with piped(config, MemoryStore(), destination, spark) as running:
        running.until_ready()
        connection.execute(then)
        connection.execute("INSERT INTO t VALUES (1, 2), (1, 3); DELETE FROM t WHERE n = 3")
        until_equal(running, connection, destination, "public.t")
        running.until_ready()
        connection.execute("INSERT INTO t VALUES (2, 4)")
        wait_equal(running, connection, destination, "public.t")
