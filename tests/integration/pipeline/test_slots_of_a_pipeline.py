"""A slot that is gone or has lost its WAL: an error that says what to do, or a new slot and all tables copied again."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headrace.config.pipeline import PipelineConfig
from headrace.destinations.contract import Destination
from headrace.destinations.memory import MemoryDestination
from headrace.errors import DestinationRejected, SlotInvalidated, SlotNotFound, SlotUndecodable, SourceWentBack
from headrace.pipeline import Pipeline, PipelineState
from headrace.pipeline.failpoint import set_hook
from headrace.pipeline.source import Source
from headrace.postgres.slots import create_slot, drop_slot, slot_state
from headrace.postgres.version import ServerVersion
from headrace.stores import MemoryStore
from headrace.table_state import State
from headrace.testing import PostgresServer
from headrace.testing.durable_destination import DurableDestination
from headrace.testing.faulty_destination import FaultyDestination
from pipelining import piped, pipeline_config, wait_equal
from undecodable import until_undecodable

Connection = psycopg.Connection[Any]

A, B = "public.a", "public.b"
FILLER = "SELECT repeat('x', 1000) FROM generate_series(1, 10000)"


def create_tables(connection: Connection) -> None:
    for name in "ab":
        connection.execute(f"CREATE TABLE {name} (id serial PRIMARY KEY, note text)")
        connection.execute(f"INSERT INTO {name} (note) SELECT 'copied' FROM generate_series(1, 20)")
    connection.execute("CREATE PUBLICATION pub FOR TABLE a, b")


def insert(connection: Connection) -> None:
    for name in "ab":
        connection.execute(f"INSERT INTO {name} (note) VALUES ('streamed')")
        connection.execute(f"UPDATE {name} SET note = note || 'u' WHERE id < 5")


def ended(config: PipelineConfig, store: MemoryStore, destination: Destination, spark: Any) -> BaseException:
    """What a pipeline that does not get going ends with."""
    with Pipeline(config, store, destination, spark=spark) as pipeline:
        pipeline.start()
        with pytest.raises(Exception, match="slot") as caught:
            pipeline.wait(60)
        assert pipeline.status.state is PipelineState.FAILED
    return caught.value


def kept(store: MemoryStore) -> tuple[Any, ...]:
    states = store.get_table_states()
    return states, store.get_all_progress(), [store.get_table_state_history(table) for table in states]


def copies_of(store: MemoryStore) -> list[int]:
    """How often each table was copied."""
    histories = [store.get_table_state_history(table) for table in sorted(store.get_table_states())]
    return [[entry.state.state for entry in history].count(State.FINISHED_COPY) for history in histories]


def test_a_slot_that_is_missing_at_the_start(conninfo: str, connection: Connection, spark: Any, tmp_path: Path) -> None:
    create_tables(connection)
    store, destination = MemoryStore(), DurableDestination(tmp_path / "destination.db")
    config = pipeline_config(conninfo, tmp_path)
    with piped(config, store, destination, spark) as running:
        running.until_ready()
        insert(connection)
        wait_equal(running, connection, destination, A, B)
    drop_slot(connection, config.slot_name)
    insert(connection)
    before = kept(store)
    error = ended(config, store, destination, spark)
    assert isinstance(error, SlotNotFound)
    assert config.slot_name in str(error)
    assert "invalidated_slot_behavior" in error.hint
    assert kept(store) == before
    assert slot_state(connection, config.slot_name) is None
    recreate = pipeline_config(conninfo, tmp_path, invalidated_slot_behavior="recreate")
    with piped(recreate, store, destination, spark) as running:
        running.until_ready()
        wait_equal(running, connection, destination, A, B)
        insert(connection)
        wait_equal(running, connection, destination, A, B)
    assert copies_of(store) == [2, 2]


@pytest.mark.parametrize("asked", [True, False])
def test_standbys_keep_the_slot_if_asked(conninfo: str, connection: Connection, tmp_path: Path, asked: bool) -> None:
    create_tables(connection)
    config = pipeline_config(conninfo, tmp_path, **({} if asked else {"source": {"failover_slot": False}}))
    Source(config).prepare_slot([MemoryStore()])
    state = slot_state(connection, config.slot_name)
    assert state is not None
    assert state.failover is (asked if ServerVersion.of(connection).failover_slots else None)


def test_a_source_that_was_put_back(spark: Any, tmp_path: Path) -> None:
    store, destination = MemoryStore(), DurableDestination(tmp_path / "destination.db")
    with PostgresServer() as server:
        config = pipeline_config(server.conninfo(), tmp_path)

        def stream(config: PipelineConfig, copies: int) -> None:
            with (
                psycopg.connect(server.conninfo(), autocommit=True) as connection,
                piped(config, store, destination, spark) as running,
            ):
                running.until(lambda: copies_of(store) == [copies, copies])
                running.until_ready()
                insert(connection)
                wait_equal(running, connection, destination, A, B)

        with psycopg.connect(server.conninfo(), autocommit=True) as connection:
            create_tables(connection)
        stream(config, 1)
        saved = server.save_data()
        stream(config, 1)
        server.restore_data(saved)
        with Pipeline(config, store, destination, spark=spark) as pipeline:
            pipeline.start()
            with pytest.raises(SourceWentBack) as caught:
                pipeline.wait(60)
        assert "invalidated_slot_behavior" in caught.value.hint
        stream(pipeline_config(server.conninfo(), tmp_path, invalidated_slot_behavior="recreate"), 2)
        # What was copied again is not refused at the next start.
        stream(config, 2)


def test_a_transaction_that_the_server_can_never_decode(spark: Any, tmp_path: Path) -> None:
    store, destination = MemoryStore(), DurableDestination(tmp_path / "destination.db")
    with (
        PostgresServer() as server,
        server.database() as conninfo,
        psycopg.connect(conninfo, autocommit=True) as connection,
    ):
        create_tables(connection)
        config = pipeline_config(conninfo, tmp_path)
        # One that is there already is taken.
        create_slot(connection, config.slot_name)
        until_undecodable(conninfo, config.slot_name, "pub")
        before = slot_state(connection, config.slot_name)
        error = ended(config, store, destination, spark)
        assert isinstance(error, SlotUndecodable)
        assert config.slot_name in str(error)
        assert slot_state(connection, config.slot_name) == before
        recreate = pipeline_config(conninfo, tmp_path, invalidated_slot_behavior="recreate")
        with piped(recreate, store, destination, spark) as running:
            running.until_ready()
            insert(connection)
            wait_equal(running, connection, destination, *running.states())


def test_a_row_that_the_server_cannot_send(conninfo: str, connection: Connection, spark: Any, tmp_path: Path) -> None:
    create_tables(connection)
    connection.execute("ALTER PUBLICATION pub SET TABLE a WHERE (1000 / id > 0), b")
    store, destination = MemoryStore(), DurableDestination(tmp_path / "destination.db")
    config = pipeline_config(conninfo, tmp_path)
    with Pipeline(config, store, destination, spark=spark) as pipeline:
        pipeline.start()
        while not pipeline.status.receiver.covered:
            assert not pipeline.wait(0.05)
        connection.execute("INSERT INTO a VALUES (0, 'zero')")
        with pytest.raises(SlotUndecodable) as caught:
            pipeline.wait(60)
    assert "row filter" in str(caught.value)
    connection.execute("ALTER PUBLICATION pub SET TABLE a, b")
    recreate = pipeline_config(conninfo, tmp_path, invalidated_slot_behavior="recreate")
    with piped(recreate, store, destination, spark) as running:
        running.until(lambda: min(copies_of(store), default=0) > 0)
        running.until_ready()
        insert(connection)
        wait_equal(running, connection, destination, A, B)


def test_a_slot_that_is_dropped_while_it_is_read(
    conninfo: str, connection: Connection, spark: Any, tmp_path: Path
) -> None:
    create_tables(connection)
    store, destination = MemoryStore(), DurableDestination(tmp_path / "destination.db")
    recreate = pipeline_config(conninfo, tmp_path, invalidated_slot_behavior="recreate")
    with piped(recreate, store, destination, spark) as running:
        running.until_ready()
        insert(connection)
        drop_slot(connection, recreate.slot_name, terminate=True)
        insert(connection)
        running.until(lambda: copies_of(store) == [2, 2])
        running.until_ready()
        insert(connection)
        wait_equal(running, connection, destination, A, B)
    before = copies_of(store)
    with Pipeline(pipeline_config(conninfo, tmp_path), store, destination, spark=spark) as pipeline:
        pipeline.start()
        while not pipeline.status.receiver.covered:
            assert not pipeline.wait(0.05)
        drop_slot(connection, recreate.slot_name, terminate=True)
        with pytest.raises(SlotNotFound) as caught:
            pipeline.wait(60)
    assert recreate.slot_name in str(caught.value)
    assert "copies all tables again" in caught.value.hint
    assert copies_of(store) == before == [2, 2]


def invalidate(connection: Connection) -> None:
    """Write so much, and let a checkpoint remove so much, that a slot that is behind has lost its WAL."""
    for _ in range(5):
        connection.execute(f"INSERT INTO unpublished (filler) {FILLER}")
        connection.execute("SELECT pg_switch_wal()")
    connection.execute("CHECKPOINT")


@contextmanager
def writes_held() -> Iterator[None]:
    """Nothing is applied within the block."""
    go_on = threading.Event()

    def hook(point: str, _: str | None) -> None:
        if point == "apply.before_write":
            go_on.wait()

    set_hook(hook)
    try:
        yield
    finally:
        set_hook(None)
        go_on.set()


def test_a_slot_that_loses_its_wal(spark: Any, tmp_path: Path) -> None:
    settings = {"max_slot_wal_keep_size": "16MB", "max_wal_size": "32MB", "min_wal_size": "32MB"}
    with (
        PostgresServer(settings=settings) as server,
        server.database() as conninfo,
        psycopg.connect(conninfo, autocommit=True) as connection,
    ):
        create_tables(connection)
        connection.execute("CREATE TABLE unpublished (filler text)")
        store, destination = MemoryStore(), DurableDestination(tmp_path / "destination.db")
        # A spool so small that a write that takes long keeps the receiver from reading, and the slot falls behind.
        spool = {"segment_age_ms": 20, "segment_bytes": 64 << 10, "quota_bytes": 1 << 20}
        config = pipeline_config(conninfo, tmp_path, spool=spool)
        with piped(config, store, destination, spark) as running:
            running.until_ready()
        invalidate(connection)
        before = kept(store)
        error = ended(config, store, destination, spark)
        assert isinstance(error, SlotInvalidated)
        assert "invalidated_slot_behavior" in error.hint
        assert kept(store) == before
        recreate = pipeline_config(conninfo, tmp_path, spool=spool, invalidated_slot_behavior="recreate")
        with piped(recreate, store, destination, spark) as running:
            running.until_ready()
            insert(connection)
            wait_equal(running, connection, destination, A, B)
            assert copies_of(store) == [2, 2]
            with writes_held():
                for _ in range(40):
                    connection.execute("INSERT INTO a (note) SELECT repeat('y', 1000) FROM generate_series(1, 100)")
                running.until(lambda: running.status.receiver.state == "paused")
                invalidate(connection)
            running.until(lambda: copies_of(store) == [3, 3])
            running.until_ready()
            insert(connection)
            wait_equal(running, connection, destination, A, B)
        assert copies_of(store) == [3, 3]


def test_a_destination_that_does_not_open_leaves_no_slot_behind(
    conninfo: str, connection: Connection, spark: Any, tmp_path: Path
) -> None:
    def refuse(method: str, _table: str | None) -> None:
        if method == "startup":
            raise DestinationRejected("no such warehouse")

    connection.execute("CREATE TABLE lonely (id int PRIMARY KEY); CREATE PUBLICATION pub FOR TABLE lonely")
    config = pipeline_config(conninfo, tmp_path)
    pipeline = Pipeline(config, MemoryStore(), FaultyDestination(MemoryDestination(), refuse), spark=spark)
    with pipeline:
        pipeline.start()
        with pytest.raises(DestinationRejected, match="no such warehouse"):
            pipeline.wait(60)
    assert slot_state(connection, config.slot_name) is None
