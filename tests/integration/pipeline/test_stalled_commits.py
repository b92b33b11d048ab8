"""Hand-off while commits stall: in the WAL, received and applied, but not yet visible to any snapshot."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from structlog.testing import capture_logs

from headrace.destinations.contract import Durability
from headrace.destinations.memory import MemoryDestination
from headrace.destinations.rows import Rows
from headrace.schema import ReplicatedTableSchema
from headrace.stores import MemoryStore
from headrace.testing import PostgresServer
from pipelining import destination_rows, piped, pipeline_config, source_rows, wait_equal

Connection = psycopg.Connection[Any]

WAITING = "waiting for transactions that write to the table"


class CountingDestination(MemoryDestination):
    """Counts copies."""

    def __init__(self) -> None:
        super().__init__()
        self.copies: Counter[str] = Counter()

    def write_table_rows(self, schema: ReplicatedTableSchema, rows: Rows, part: int) -> Durability:
        self.copies[schema.table.name.name] += 1
        return super().write_table_rows(schema, rows, part)


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A server whose sessions wait for a standby that does not exist, if they ask to wait at all."""
    settings = {"synchronous_commit": "local", "max_prepared_transactions": "5"}
    with PostgresServer(settings=settings) as running:
        yield running


@pytest.fixture
def source(server: PostgresServer) -> Iterator[str]:
    with server.database() as conninfo, psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
        connection.execute("SELECT pg_reload_conf()")
        connection.execute("CREATE TABLE t (id int PRIMARY KEY, note text)")
        connection.execute("INSERT INTO t SELECT n, 'copied' FROM generate_series(1, 50) n")
        connection.execute("CREATE PUBLICATION pub FOR TABLE t")
        yield conninfo
        answer(connection)


def answer(connection: Connection) -> None:
    """Let every commit that waits for a standby go on."""
    connection.execute("ALTER SYSTEM RESET synchronous_standby_names")
    connection.execute("SELECT pg_reload_conf()")


@contextmanager
def stalled(conninfo: str, kind: str) -> Iterator[int]:
    """A session whose last command, in a thread of its own, is a commit that waits for the standby: its process."""
    with psycopg.connect(conninfo, autocommit=True) as writer:
        last = "INSERT INTO t VALUES (777, 'stalled')"
        if kind == "prepared":
            writer.execute("BEGIN")
            writer.execute(last)
            writer.execute("PREPARE TRANSACTION 'stalled'")
            last = "COMMIT PREPARED 'stalled'"
        writer.execute("SET synchronous_commit = on")
        thread = threading.Thread(target=writer.execute, args=(last,))
        thread.start()
        try:
            yield writer.info.backend_pid
        finally:
            with psycopg.connect(conninfo, autocommit=True) as other:
                answer(other)
            thread.join(60)
            assert not thread.is_alive()


@pytest.mark.parametrize("kind", ["waiting", "paused", "prepared"])
def test_a_table_copied_while_a_commit_stalls_has_its_rows(source: str, spark: Any, tmp_path: Path, kind: str) -> None:
    """With segments released at once: no position that is kept in the spool reaches back to the commit."""
    config = pipeline_config(source, tmp_path, spool={"segment_age_ms": 20, "keep_seconds": 0})
    destination = CountingDestination()
    with (
        psycopg.connect(source, autocommit=True) as connection,
        capture_logs() as logs,
        piped(config, MemoryStore(), destination, spark) as running,
    ):
        running.until_ready()
        with stalled(source, kind) as pid:
            running.until(lambda: any("777" in row for row in destination_rows(destination, "public.t")))
            connection.execute("INSERT INTO t VALUES (1000, 'later')")
            wait_seen = len(source_rows(connection, "t"))
            running.until(lambda: len(destination_rows(destination, "public.t")) == wait_seen + 1)
            if kind == "paused":
                os.kill(pid, signal.SIGSTOP)
                answer(connection)
            try:
                running.pipeline.resync("public.t")
                running.until(lambda: WAITING in [line["event"] for line in logs] or destination.copies["t"] > 1)
            finally:
                os.kill(pid, signal.SIGCONT)
        running.until(lambda: destination.copies["t"] > 1)
        running.until_ready()
        wait_equal(running, connection, destination, "public.t")
        told = next(line for line in logs if line["event"] == WAITING)
        assert (told["pids"], told["prepared"]) == (([], ["stalled"]) if kind == "prepared" else ([pid], []))


def test_a_copy_does_not_wait_for_a_transaction_that_is_idle(source: str, spark: Any, tmp_path: Path) -> None:
    """Its commit is still to come, and comes by the stream."""
    config = pipeline_config(source, tmp_path, spool={"segment_age_ms": 20, "keep_seconds": 0})
    destination = CountingDestination()
    with (
        psycopg.connect(source, autocommit=True) as connection,
        psycopg.connect(source) as writer,
        piped(config, MemoryStore(), destination, spark) as running,
    ):
        running.until_ready()
        writer.execute("INSERT INTO t VALUES (777, 'open')")
        running.pipeline.resync("public.t")
        running.until(lambda: destination.copies["t"] > 1)
        running.until_ready()
        writer.commit()
        wait_equal(running, connection, destination, "public.t")
