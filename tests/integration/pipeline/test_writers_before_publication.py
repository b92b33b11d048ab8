"""Transactions that wrote to a table before it was published, and are open while it is copied: no row is lost.

The server sends nothing that they wrote before the publication had the table. So the copy must wait for their end.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest
from structlog.testing import capture_logs
from structlog.typing import EventDict

from headrace.config.pipeline import PipelineConfig
from headrace.pipeline import life
from headrace.stores import MemoryStore
from headrace.table_state import State
from headrace.testing.durable_destination import DurableDestination
from pipelining import Piped, piped, pipeline_config, wait_equal

Connection = psycopg.Connection[Any]
A, T = "public.a", "public.t"
WAITING = "waiting for transactions that write to the table"


def create_tables(connection: Connection) -> None:
    for name in "at":
        connection.execute(f"CREATE TABLE {name} (id serial PRIMARY KEY, note text)")
        connection.execute(f"INSERT INTO {name} (note) SELECT 'copied' FROM generate_series(1, 20)")
    connection.execute("CREATE PUBLICATION pub FOR TABLE a")


def until_copied_or_waiting(running: Piped, logs: Sequence[EventDict]) -> None:
    """Wait until the copy waits for the writer; or, if it does not, until the table is Ready."""

    def decided() -> bool:
        waits = any(entry["event"] == WAITING and entry["table"] == T for entry in logs)
        return waits or running.states().get(T) is State.READY

    running.until(decided)


def insert_and_compare(running: Piped, connection: Connection, destination: DurableDestination) -> None:
    running.until_ready()
    connection.execute("INSERT INTO a (note) VALUES ('streamed'); INSERT INTO t (note) VALUES ('streamed')")
    wait_equal(running, connection, destination, A, T)


def test_a_store_that_is_lost(conninfo: str, connection: Connection, spark: Any, tmp_path: Path) -> None:
    create_tables(connection)
    config, destination = pipeline_config(conninfo, tmp_path), DurableDestination(tmp_path / "destination.db")
    with piped(config, MemoryStore(), destination, spark) as running:
        running.until_ready()
    # Given a slot and a spool whose store is lost, and a writer that began before the table was published
    with psycopg.connect(conninfo) as writer:
        writer.execute("INSERT INTO t (note) VALUES ('written before')")
        connection.execute("ALTER PUBLICATION pub ADD TABLE t")
        with capture_logs() as logs, piped(config, MemoryStore(), destination, spark) as running:
            until_copied_or_waiting(running, logs)
            writer.commit()
            insert_and_compare(running, connection, destination)


class PublishingSource(life.Source):
    """Lets a writer begin, and then publishes the table it has written to, as soon as the slot has been prepared."""

    writer: Connection
    connection: Connection

    def prepare_slot(self, *args: Any) -> Any:
        found = super().prepare_slot(*args)
        self.writer.execute("INSERT INTO t (note) VALUES ('written before')")
        self.connection.execute("ALTER PUBLICATION pub ADD TABLE t")
        return found


def test_a_table_that_is_published_during_the_first_start(
    conninfo: str, connection: Connection, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_tables(connection)
    config: PipelineConfig = pipeline_config(conninfo, tmp_path)
    destination = DurableDestination(tmp_path / "destination.db")
    with psycopg.connect(conninfo) as writer, capture_logs() as logs:
        monkeypatch.setattr(PublishingSource, "writer", writer, raising=False)
        monkeypatch.setattr(PublishingSource, "connection", connection, raising=False)
        monkeypatch.setattr(life, "Source", PublishingSource)
        with piped(config, MemoryStore(), destination, spark) as running:
            until_copied_or_waiting(running, logs)
            writer.commit()
            insert_and_compare(running, connection, destination)
