"""The tasks of a copy: one that fails runs again alone, and none waits for an ALTER TABLE that waits for the copy."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.destinations.contract import Durability
from headrace.destinations.null import NullDestination
from headrace.destinations.rows import Rows
from headrace.initial_copy import session
from headrace.schema import ReplicatedTableSchema
from headrace.stores import MemoryStore
from headrace.testing.durable_destination import DurableDestination
from pipelining import piped, pipeline_config, source_rows, wait_equal
from reaching import once_at

Connection = psycopg.Connection[Any]

ROWS = 60_000
RANGES = {"rows_per_range": 6_000}


class Files(NullDestination):
    """Each task writes a file; those that are named in the answer count."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.root = root
        self.copies: list[list[str]] = []

    def write_table_rows(self, schema: ReplicatedTableSchema, rows: Rows, part: int) -> Durability:
        root, arrow_schema = str(self.root), rows.arrow_schema

        def write(batches: Iterator[pa.RecordBatch]) -> str:
            name = f"{root}/{secrets.token_hex(8)}.parquet"
            with pq.ParquetWriter(name, arrow_schema) as writer:
                for batch in batches:
                    writer.write_batch(batch)
            return name

        self.copies.append(rows.in_tasks(write))
        return Durability.DURABLE

    def rows(self) -> list[int]:
        (files,) = self.copies
        return sorted(pa.concat_tables(pq.read_table(name, columns=["id"]) for name in files)["id"].to_pylist())


def test_a_task_that_fails_runs_again_alone(conninfo: str, connection: Connection, spark: Any, tmp_path: Path) -> None:
    connection.execute("CREATE TABLE a (id int PRIMARY KEY, filler text); CREATE PUBLICATION pub FOR TABLE a")
    connection.execute("INSERT INTO a SELECT n, repeat('x', 500) FROM generate_series(1, %s) n", (ROWS,))
    connection.execute("VACUUM ANALYZE a")
    destination = Files(tmp_path)
    ended = """
        SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
        WHERE application_name = 'headrace_copy_1' AND datname = current_database() AND query LIKE 'COPY%%'
    """
    config = pipeline_config(conninfo, tmp_path / "data", initial_copy=RANGES)
    with piped(config, MemoryStore(), destination, spark) as running:
        terminated = 0

        def some_task_was_ended() -> bool:
            nonlocal terminated
            row = connection.execute(ended).fetchone()
            terminated += row[0] if row else 0
            return terminated > 0

        running.until(some_task_was_ended)
        running.until_ready()
        table = running.status.tables["public.a"]
    # One call of the destination, and the table never failed: Spark ran the range again.
    assert len(destination.copies) == 1
    assert len(destination.copies[0]) == table.copy.ranges >= 10
    assert table.attempts == 0
    assert table.copy.rows == ROWS
    assert destination.rows() == list(range(1, ROWS + 1))


def test_a_copy_gives_way_to_an_alter_table(
    conninfo: str, connection: Connection, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The destination reads the ranges in this process: here the patience of their sessions can be shortened.
    monkeypatch.setattr(session, "COPYING", replace(session.COPYING, lock_ms=300))
    connection.execute("CREATE TABLE a (id int PRIMARY KEY, v text); CREATE PUBLICATION pub FOR TABLE a")
    # Too large to be read where the snapshot is held.
    connection.execute("INSERT INTO a SELECT n, repeat('x', 1000) FROM generate_series(1, 500) n")
    alter = threading.Thread(target=_alter, args=(conninfo,), daemon=True)

    def queue() -> None:
        # The driver holds its lock: the ALTER queues behind it, and the tasks of the copy behind the ALTER.
        alter.start()
        until_blocked(connection)

    destination = DurableDestination(tmp_path / "destination.db")
    config = pipeline_config(conninfo, tmp_path)
    with once_at("copy.after_snapshot", queue), piped(config, MemoryStore(), destination, spark) as running:
        running.until_ready(timeout=90)
        alter.join(30)
        assert not alter.is_alive()
        wait_equal(running, connection, destination, "public.a")
    assert '"added"' in source_rows(connection, "a")[0]


def _alter(conninfo: str) -> None:
    with psycopg.connect(conninfo, autocommit=True) as other:
        other.execute("ALTER TABLE a ADD COLUMN added int DEFAULT 7")


def until_blocked(connection: Connection) -> None:
    query = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'a'::regclass"
    while (connection.execute(query).fetchone() or (0,))[0] == 0:
        pass
