"""The plain path: tables are copied, then streamed, on a real Spark, and equal the source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest

from headrace.destinations.memory import MemoryDestination
from headrace.errors import DestinationError, PipelineStateError
from headrace.pipeline import Pipeline, PipelineState
from headrace.stores import MemoryStore
from headrace.table_state import State
from headrace.testing.durable_destination import DurableDestination
from pipelining import assert_equal_tables, piped, pipeline_config, wait_equal
from reaching import once_at

Connection = psycopg.Connection[Any]

pytestmark = pytest.mark.matrix


def test_tables_are_copied_then_streamed(conninfo: str, connection: Connection, spark: Any, tmp_path: Path) -> None:
    connection.execute("CREATE TABLE items (id bigint PRIMARY KEY, note text, price numeric(10, 2))")
    connection.execute("INSERT INTO items SELECT n, 'n' || n, n / 7.0 FROM generate_series(1, 5000) n")
    connection.execute("CREATE TABLE nothing_yet (id int PRIMARY KEY, v text)")
    connection.execute("CREATE TABLE bag (a int, b text); ALTER TABLE bag REPLICA IDENTITY FULL")
    connection.execute("INSERT INTO bag SELECT 1, 'same' FROM generate_series(1, 5)")
    connection.execute("CREATE PUBLICATION pub FOR TABLE items, nothing_yet, bag")
    destination = DurableDestination(tmp_path / "destination.db")
    with piped(pipeline_config(conninfo, tmp_path), MemoryStore(), destination, spark) as running:
        running.until_ready()
        assert_equal_tables(connection, destination, "public.items", "public.nothing_yet", "public.bag")
        connection.execute("UPDATE items SET note = 'changed' WHERE id % 10 = 0")
        connection.execute("UPDATE items SET id = -id WHERE id BETWEEN 20 AND 30")
        connection.execute("DELETE FROM items WHERE id > 4990")
        connection.execute("INSERT INTO nothing_yet VALUES (1, NULL), (2, 'x')")
        connection.execute("DELETE FROM bag WHERE ctid = (SELECT min(ctid) FROM bag)")
        wait_equal(running, connection, destination, "public.items", "public.nothing_yet", "public.bag")
        connection.execute("TRUNCATE items, nothing_yet")
        connection.execute("INSERT INTO items VALUES (1, 'after', 1)")
        wait_equal(running, connection, destination, "public.items", "public.nothing_yet", "public.bag")
    assert running.status.state is PipelineState.STOPPED


def test_a_restart_goes_on_where_it_stopped(conninfo: str, connection: Connection, spark: Any, tmp_path: Path) -> None:
    connection.execute("CREATE TABLE items (id bigint PRIMARY KEY, note text)")
    connection.execute("INSERT INTO items SELECT n, 'n' FROM generate_series(1, 100) n")
    connection.execute("CREATE PUBLICATION pub FOR TABLE items")
    store, destination = MemoryStore(), DurableDestination(tmp_path / "destination.db")
    config = pipeline_config(conninfo, tmp_path)
    for life in range(3):
        with piped(config, store, destination, spark) as running:
            running.until_ready()
            connection.execute(
                "INSERT INTO items SELECT %s + n, 'm' FROM generate_series(1, 50) n", (1000 * (life + 1),)
            )
            wait_equal(running, connection, destination, "public.items")
        # While nobody looks.
        connection.execute("UPDATE items SET note = note || 'x' WHERE mod(id, 5) = %s", (life,))
    with piped(config, store, destination, spark) as running:
        wait_equal(running, connection, destination, "public.items")
    changes = [(change.commit_lsn, change.tx_ordinal) for change in destination.change_log("public.items")]
    assert len(changes) == len(set(changes)) > 0


def test_a_pipeline_is_started_once(conninfo: str, connection: Connection, spark: Any, tmp_path: Path) -> None:
    connection.execute("CREATE TABLE t (id int PRIMARY KEY); CREATE PUBLICATION pub FOR TABLE t")
    pipeline = Pipeline(pipeline_config(conninfo, tmp_path), MemoryStore(), MemoryDestination(), spark=spark)
    with pytest.raises(PipelineStateError, match="not started"):
        pipeline.wait(0)
    with pipeline:
        pipeline.start()
        with pytest.raises(PipelineStateError, match="started before"):
            pipeline.start()
    assert pipeline.wait(30)


def test_a_copy_that_takes_the_place_of_another_is_whole_also_after_a_restart(
    conninfo: str, connection: Connection, spark: Any, tmp_path: Path
) -> None:
    """A first range in place of all rows would be what readers see."""
    connection.execute("CREATE TABLE items (id bigint PRIMARY KEY, note text)")
    connection.execute("INSERT INTO items SELECT n, 'n' FROM generate_series(1, 100) n; ANALYZE items")
    connection.execute("CREATE PUBLICATION pub FOR TABLE items")
    (oid,) = connection.execute("SELECT 'items'::regclass::oid::int8").fetchone() or ()
    store, destination = MemoryStore(), DurableDestination(tmp_path / "destination.db")
    by_key = {"key_ranges_over_bytes": 0, "rows_per_range": 10}
    # Only the next pipeline tries again.
    config = pipeline_config(conninfo, tmp_path, initial_copy=by_key, table_error_retry_delay_ms=600_000)

    def one_snapshot() -> bool:
        copy = store.get_copy(oid)
        assert copy is not None
        return copy[0].one_snapshot

    def fail() -> None:
        raise DestinationError("cut short")

    with piped(config, store, destination, spark) as running:
        running.until_ready()
        assert not one_snapshot()
        with once_at("copy.after_data_sync", fail):
            running.pipeline.resync("public.items")
            running.until(lambda: running.states() == {"public.items": State.ERRORED})
    with piped(config, store, destination, spark) as running:
        running.until_ready()
        assert one_snapshot()
        wait_equal(running, connection, destination, "public.items")
