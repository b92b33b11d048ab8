"""Two runs of one pipeline: the second waits for the slot and touches nothing; the first, once replaced, ends."""

from __future__ import annotations

import os
import socket
from contextlib import closing
from pathlib import Path
from threading import Lock
from typing import Any

import psycopg
import pytest
from structlog.testing import capture_logs

from headrace.destinations.contract import Destination, DestinationContext
from headrace.errors import DestinationFenced, PipelineStateError, SlotInUse, SpoolInUse, StoreFenced
from headrace.pipeline import Pipeline, PipelineState
from headrace.pipeline.status import DestinationState
from headrace.stores import MemoryStore, PostgresStore, SqliteStore
from headrace.table_state import State
from headrace.testing.durable_destination import DurableDestination
from headrace.testing.faulty_destination import FaultyDestination
from pipelining import PATIENCE_S, Piped, destination_rows, piped, pipeline_config, source_rows, wait_equal

Connection = psycopg.Connection[Any]
A, B = "public.a", "public.b"


def create_tables(connection: Connection) -> None:
    for name in "ab":
        connection.execute(f"CREATE TABLE {name} (id serial PRIMARY KEY, note text)")
        connection.execute(f"INSERT INTO {name} (note) SELECT 'copied' FROM generate_series(1, 50)")
    connection.execute("CREATE PUBLICATION pub FOR TABLE a, b")


def change(connection: Connection) -> None:
    for name in "ab":
        connection.execute(f"INSERT INTO {name} (note) SELECT 'streamed' FROM generate_series(1, 5)")
        connection.execute(f"UPDATE {name} SET note = note || 'u' WHERE id % 7 = 0")
        connection.execute(f"DELETE FROM {name} WHERE id = (SELECT min(id) FROM {name})")


class Watched:
    """A destination, and the methods of it that were called."""

    def __init__(self, path: Path) -> None:
        self.calls: list[str] = []
        self.inner = DurableDestination(path)
        self.destination: Destination = FaultyDestination(self.inner, lambda method, _: self.calls.append(method))


def claim_as_another_run(path: Path) -> None:
    other = DurableDestination(path)
    other.startup(DestinationContext(1, MemoryStore(), None, run_id="another"))
    other.claim()
    other.shutdown()


def test_a_run_with_another_data_directory_waits_and_takes_over(
    conninfo: str, connection: Connection, spark: Any, tmp_path: Path
) -> None:
    create_tables(connection)
    path = tmp_path / "destination.db"
    first_store, second_store = MemoryStore(), MemoryStore()
    first, second = DurableDestination(path), Watched(path)
    with piped(pipeline_config(conninfo, tmp_path / "one"), first_store, first, spark) as running:
        running.until_ready()
        with piped(pipeline_config(conninfo, tmp_path / "two"), second_store, second.destination, spark) as waiting:
            waiting.until(lambda: isinstance(waiting.status.receiver.problem, SlotInUse))
            assert "application headrace" in str(waiting.status.receiver.problem)
            for _ in range(5):
                change(connection)
            wait_equal(running, connection, first, A, B)
            assert second.calls == ["startup"]
            assert not second_store.get_table_states()
            running.pipeline.stop()
            # The new one goes on by itself.
            waiting.until_ready()
            change(connection)
            wait_equal(waiting, connection, second.inner, A, B)


def test_a_rolling_restart_in_one_data_directory(
    conninfo: str, connection: Connection, spark: Any, tmp_path: Path
) -> None:
    create_tables(connection)
    config, path = pipeline_config(conninfo, tmp_path), tmp_path / "destination.db"
    first, second = DurableDestination(path), Watched(path)
    with piped(config, SqliteStore(tmp_path / "store.db", 1), first, spark) as running:
        running.until_ready()
        with piped(config, SqliteStore(tmp_path / "store.db", 1), second.destination, spark) as waiting:
            waiting.until(lambda: isinstance(waiting.status.receiver.problem, SpoolInUse))
            change(connection)
            wait_equal(running, connection, first, A, B)
            log = first.change_log(A)
            assert second.calls == ["startup"]
            running.pipeline.stop()
            waiting.until_ready()
            change(connection)
            wait_equal(waiting, connection, second.inner, A, B)
            # It went on where the first had stopped: what was streamed before is there, once.
            assert second.inner.change_log(A)[: len(log)] == log
            assert "write_table_rows" not in second.calls


def test_a_run_that_waits_can_be_stopped(conninfo: str, connection: Connection, spark: Any, tmp_path: Path) -> None:
    create_tables(connection)
    path = tmp_path / "destination.db"
    second = Watched(path)
    first = DurableDestination(path)
    with piped(pipeline_config(conninfo, tmp_path / "one"), MemoryStore(), first, spark) as running:
        running.until_ready()
        with piped(pipeline_config(conninfo, tmp_path / "two"), MemoryStore(), second.destination, spark) as waiting:
            waiting.until(lambda: isinstance(waiting.status.receiver.problem, SlotInUse))
        assert second.calls == ["startup", "shutdown"]
        change(connection)
        wait_equal(running, connection, first, A, B)


def fenced(pipeline: Pipeline) -> DestinationFenced:
    with pytest.raises(DestinationFenced, match="another run of pipeline 1 has taken over") as caught:
        pipeline.wait(PATIENCE_S)
    assert pipeline.status.state is PipelineState.FAILED
    return caught.value


def test_a_run_that_was_replaced_ends_and_blames_no_table(
    conninfo: str, connection: Connection, spark: Any, tmp_path: Path
) -> None:
    create_tables(connection)
    path, store = tmp_path / "destination.db", MemoryStore()
    destination = DurableDestination(path)
    with Pipeline(pipeline_config(conninfo, tmp_path), store, destination, spark=spark) as pipeline:
        pipeline.start()
        Piped(pipeline).until_ready()
        change(connection)
        wait_equal(Piped(pipeline), connection, destination, A, B)
        claim_as_another_run(path)
        before = destination.rows(A), destination.rows(B)
        progress = store.get_all_progress()
        change(connection)
        fenced(pipeline)
    assert {state.state for state in store.get_table_states().values()} == {State.READY}
    assert store.get_all_progress() == progress
    assert (destination.rows(A), destination.rows(B)) == before


def test_a_run_that_is_replaced_while_it_copies_ends(
    conninfo: str, connection: Connection, spark: Any, tmp_path: Path
) -> None:
    create_tables(connection)
    path, store = tmp_path / "destination.db", MemoryStore()
    lock, claimed = Lock(), list[bool]()

    def replaced(method: str, _: str | None) -> None:
        # Both tables are copied at the same time: no rows are written before the other run has claimed the destination.
        if method == "write_table_rows":
            with lock:
                if not claimed:
                    claim_as_another_run(path)
                    claimed.append(True)

    destination = FaultyDestination(DurableDestination(path), replaced)
    with Pipeline(pipeline_config(conninfo, tmp_path), store, destination, spark=spark) as pipeline:
        pipeline.start()
        fenced(pipeline)
    assert State.ERRORED not in {state.state for state in store.get_table_states().values()}
    assert not DurableDestination(path).tables()


def test_a_run_waits_for_the_store_of_another(
    conninfo: str, connection: Connection, spark: Any, tmp_path: Path
) -> None:
    create_tables(connection)
    destination = Watched(tmp_path / "destination.db")
    with closing(PostgresStore(conninfo, 1)) as other, closing(PostgresStore(conninfo, 1)) as store:
        # Given a run that reads another slot, or lost its connection to the source
        other.take_lease(lambda _: None)
        with (
            capture_logs() as logs,
            piped(pipeline_config(conninfo, tmp_path), store, destination.destination, spark) as waiting,
        ):
            waiting.until(lambda: any(entry["event"] == "waiting for the store" for entry in logs))
            told = next(entry for entry in logs if entry["event"] == "waiting for the store")
            assert f"process {os.getpid()} on {socket.gethostname()}, since 20" in told["error"]
            assert destination.calls == ["startup"]
            # When that was killed, and its lease expires
            connection.execute("UPDATE headrace.lease SET expires_at = now()")
            waiting.until_ready()
            change(connection)
            wait_equal(waiting, connection, destination.inner, A, B)
        # Then an orderly stop leaves no lease.
        assert connection.execute("SELECT * FROM headrace.lease").fetchall() == []


def test_a_run_whose_store_was_taken_over_ends_and_blames_no_table(
    conninfo: str, connection: Connection, spark: Any, tmp_path: Path
) -> None:
    create_tables(connection)
    destination = DurableDestination(tmp_path / "destination.db")
    with closing(PostgresStore(conninfo, 1)) as store, closing(PostgresStore(conninfo, 1)) as other:
        with Pipeline(pipeline_config(conninfo, tmp_path), store, destination, spark=spark) as pipeline:
            pipeline.start()
            Piped(pipeline).until_ready()
            change(connection)
            wait_equal(Piped(pipeline), connection, destination, A, B)
            connection.execute("UPDATE headrace.lease SET expires_at = now() - interval '1 min'")
            other.take_lease(lambda _: None)
            progress, states = other.get_all_progress(), other.get_table_states()
            change(connection)
            with pytest.raises(StoreFenced, match=r"taken over the store: the lease is held by process \d+ on "):
                pipeline.wait(PATIENCE_S)
        assert (other.get_all_progress(), other.get_table_states()) == (progress, states)
        # The heartbeat of the one that ended does not hide the other's.
        heartbeat = other.get_heartbeat()
        assert heartbeat is None or heartbeat.state == "running"
        other.renew_lease()


def test_one_of_several_destinations_is_taken_over_and_the_other_goes_on(
    conninfo: str, connection: Connection, spark: Any, tmp_path: Path
) -> None:
    create_tables(connection)
    one, two = DurableDestination(tmp_path / "one.db"), DurableDestination(tmp_path / "two.db")
    stores = {"one": MemoryStore(), "two": MemoryStore()}
    config = pipeline_config(conninfo, tmp_path)
    with Pipeline(config, stores, {"one": one, "two": two}, spark=spark) as pipeline:
        pipeline.start()
        running = Piped(pipeline)
        running.until_ready()
        claim_as_another_run(tmp_path / "one.db")
        before = one.rows(A)
        change(connection)
        running.until(lambda: running.status.destinations["one"].state is DestinationState.FAILED)
        assert "another run of pipeline 1" in str(running.status.destinations["one"].error)
        running.until(lambda: destination_rows(two, A) == source_rows(connection, A))
        assert one.rows(A) == before
        assert State.ERRORED not in {state.state for state in stores["one"].get_table_states().values()}


def test_a_copy_is_refused_while_the_pipeline_runs(
    conninfo: str, connection: Connection, spark: Any, tmp_path: Path
) -> None:
    create_tables(connection)
    path = tmp_path / "destination.db"
    first, second = DurableDestination(path), Watched(path)
    with piped(pipeline_config(conninfo, tmp_path / "one"), MemoryStore(), first, spark) as running:
        running.until_ready()
        copying = pipeline_config(conninfo, tmp_path / "two", mode="copy_only")
        with Pipeline(copying, MemoryStore(), second.destination, spark=spark) as pipeline:
            pipeline.start()
            with pytest.raises(PipelineStateError, match=r"pipeline 1 is running.*process \d+, application headrace"):
                pipeline.wait(PATIENCE_S)
        assert second.calls == ["startup", "shutdown"]
        change(connection)
        wait_equal(running, connection, first, A, B)
