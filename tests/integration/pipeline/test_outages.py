"""What goes away while a pipeline runs, and comes back: its receiver, its source, and the pipeline itself in a copy."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa

from headrace.destinations.contract import Durability
from headrace.destinations.rows import Rows
from headrace.pipeline import Pipeline, PipelineState
from headrace.schema import ReplicatedTableSchema
from headrace.stores import MemoryStore
from headrace.table_state import State
from headrace.testing import PostgresServer
from headrace.testing.durable_destination import DurableDestination
from pipelining import piped, pipeline_config, wait_equal

Connection = psycopg.Connection[Any]

A = "public.a"


def create_table(connection: Connection) -> None:
    connection.execute("CREATE TABLE a (id serial PRIMARY KEY, note text)")
    connection.execute("INSERT INTO a (note) SELECT 'copied' FROM generate_series(1, 1000)")
    connection.execute("CREATE PUBLICATION pub FOR TABLE a")


def change(connection: Connection) -> None:
    connection.execute("INSERT INTO a (note) SELECT 'streamed' FROM generate_series(1, 10)")
    connection.execute("UPDATE a SET note = note || 'u' WHERE id % 100 = 1")


def assert_no_change_twice(destination: DurableDestination) -> None:
    places = [(change.commit_lsn, change.tx_ordinal) for change in destination.change_log(A)]
    assert len(places) == len(set(places)) > 0


def test_a_receiver_that_is_killed_is_started_again(
    conninfo: str, connection: Connection, spark: Any, tmp_path: Path
) -> None:
    create_table(connection)
    destination = DurableDestination(tmp_path / "destination.db")
    with piped(pipeline_config(conninfo, tmp_path), MemoryStore(), destination, spark) as running:
        running.until_ready()
        life = running.pipeline._life
        assert life is not None
        reception = life.reception
        for restarts in (1, 2):
            change(connection)
            pid = reception.pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            change(connection)
            running.until(lambda restarts=restarts: reception.restarts == restarts)
            wait_equal(running, connection, destination, A)
            assert reception.pid not in (None, pid)
    assert_no_change_twice(destination)


def test_a_source_that_is_restarted(spark: Any, tmp_path: Path) -> None:
    with ExitStack() as stack:
        server = stack.enter_context(PostgresServer())
        conninfo = stack.enter_context(server.database())
        connection = stack.enter_context(psycopg.connect(conninfo, autocommit=True))
        create_table(connection)
        destination = DurableDestination(tmp_path / "destination.db")
        with piped(pipeline_config(conninfo, tmp_path), MemoryStore(), destination, spark) as running:
            running.until_ready()
            # A crash, and a shutdown in order.
            for how in (signal.SIGQUIT, signal.SIGINT):
                change(connection)
                connection.close()
                server.restart(how)
                connection = stack.enter_context(psycopg.connect(conninfo, autocommit=True))
                change(connection)
                wait_equal(running, connection, destination, A)
            assert running.states() == {A: State.READY}
        assert_no_change_twice(destination)


class Stuck(DurableDestination):
    """Its tasks take the rows of a copy and do not come to an end before the file `go_on` is there."""

    def __init__(self, path: Path, began: Path, go_on: Path) -> None:
        super().__init__(path)
        self._began, self._go_on = began, go_on

    def write_table_rows(self, schema: ReplicatedTableSchema, rows: Rows, part: int) -> Durability:
        began, go_on = self._began, self._go_on

        def hold(batches: Iterator[pa.RecordBatch]) -> int:
            count = sum(batch.num_rows for batch in batches)
            began.touch()
            while not go_on.exists():
                time.sleep(0.1)
            return count

        rows.in_tasks(hold)
        return super().write_table_rows(schema, rows, part)


def test_a_stop_does_not_wait_for_a_copy(conninfo: str, connection: Connection, spark: Any, tmp_path: Path) -> None:
    create_table(connection)
    # So many that tasks read them: what the driver reads itself is soon done.
    connection.execute("INSERT INTO a (note) SELECT repeat('copied', 10) FROM generate_series(1, 10000)")
    store, path, began, go_on = MemoryStore(), tmp_path / "destination.db", tmp_path / "began", tmp_path / "go_on"
    config = pipeline_config(conninfo, tmp_path)
    with Pipeline(config, store, Stuck(path, began, go_on), spark=spark) as pipeline:
        pipeline.start()
        while not began.exists():
            assert not pipeline.wait(0.05)
        # Without a time limit a stop waits for what is under way; these tasks would run for ever.
        assert pipeline.stop()
        assert pipeline.status.state is PipelineState.STOPPED
    go_on.touch()
    (state,) = store.get_table_states().values()
    assert state.state is State.DATA_SYNC
    change(connection)
    destination = DurableDestination(path)
    with piped(config, store, destination, spark) as running:
        running.until_ready()
        change(connection)
        wait_equal(running, connection, destination, A)
    assert_no_change_twice(destination)
