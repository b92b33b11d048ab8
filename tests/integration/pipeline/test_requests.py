"""What is asked in the store by another process is done by the running pipeline, or by the next one that starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest

from failing import Failures
from headrace.errors import DestinationRejected
from headrace.stores import PipelineStore, RequestKind, SqliteStore, TableRequest
from headrace.table_state import State
from headrace.testing.durable_destination import DurableDestination
from headrace.testing.faulty_destination import FaultyDestination
from pipelining import assert_equal_tables, piped, pipeline_config, wait_equal

Connection = psycopg.Connection[Any]

A, B = "public.a", "public.b"


@pytest.fixture(autouse=True)
def tables(connection: Connection) -> None:
    for name in "ab":
        connection.execute(f"CREATE TABLE {name} (id serial PRIMARY KEY, note text)")
        connection.execute(f"INSERT INTO {name} (note) SELECT 'copied' FROM generate_series(1, 20)")
    connection.execute("CREATE PUBLICATION pub FOR TABLE a, b")


@pytest.fixture
def operator(tmp_path: Path) -> PipelineStore:
    """The store as another process has it."""
    return SqliteStore(tmp_path / "store.db", 1)


def oid(connection: Connection, table: str) -> int:
    row = connection.execute("SELECT %s::regclass::oid::int8", (table,)).fetchone()
    assert row is not None
    return int(row[0])


def init_count(store: PipelineStore, table_id: int) -> int:
    return [entry.state.state for entry in store.get_table_state_history(table_id)].count(State.INIT)


def test_a_running_pipeline_copies_a_table_again(
    conninfo: str, connection: Connection, tmp_path: Path, spark: Any, operator: PipelineStore
) -> None:
    destination = DurableDestination(tmp_path / "destination.db")
    store = SqliteStore(tmp_path / "store.db", 1)
    with piped(pipeline_config(conninfo, tmp_path), store, destination, spark) as running:
        running.until_ready(A, B, timeout=240)
        operator.ask(TableRequest(RequestKind.RESYNC, oid(connection, "a")))
        running.until(lambda: not operator.get_requests())
        running.until_ready(A, B, timeout=240)
        connection.execute("UPDATE a SET note = 'streamed' WHERE id = 1")
        wait_equal(running, connection, destination, A, B)
    assert init_count(operator, oid(connection, "a")) == 2
    assert init_count(operator, oid(connection, "b")) == 1


def test_what_was_asked_while_it_did_not_run_is_done_at_the_next_start(
    conninfo: str, connection: Connection, tmp_path: Path, spark: Any, operator: PipelineStore
) -> None:
    destination = DurableDestination(tmp_path / "destination.db")
    config = pipeline_config(conninfo, tmp_path)
    with piped(config, SqliteStore(tmp_path / "store.db", 1), destination, spark) as running:
        running.until_ready(A, B, timeout=240)
    operator.ask(TableRequest(RequestKind.ROLLBACK_TO_INIT, oid(connection, "b")))
    operator.ask(TableRequest(RequestKind.RESYNC, 1))
    connection.execute("INSERT INTO b (note) VALUES ('while it was down')")
    with piped(config, SqliteStore(tmp_path / "store.db", 1), destination, spark) as running:
        running.until(lambda: not operator.get_requests())
        running.until_ready(A, B, timeout=240)
        wait_equal(running, connection, destination, A, B)
    assert [init_count(operator, oid(connection, name)) for name in "ab"] == [1, 2]


def test_a_failed_table_is_rolled_back_and_goes_on(
    conninfo: str, connection: Connection, tmp_path: Path, spark: Any, operator: PipelineStore
) -> None:
    durable, failures = DurableDestination(tmp_path / "destination.db"), Failures()
    store, destination = SqliteStore(tmp_path / "store.db", 1), FaultyDestination(durable, failures)
    with piped(pipeline_config(conninfo, tmp_path), store, destination, spark) as running:
        running.until_ready(A, B, timeout=240)
        failures.begin("write_events", A, lambda: DestinationRejected("no such type", hint="give it one"))
        connection.execute("INSERT INTO a (note) VALUES ('rejected at first')")
        running.until(lambda: running.states()[A] is State.ERRORED)
        failures.end("write_events", A)
        operator.ask(TableRequest(RequestKind.ROLLBACK, oid(connection, "a")))
        running.until_ready(A, B, timeout=240)
        wait_equal(running, connection, durable, A, B)
        assert not operator.get_requests()
    assert_equal_tables(connection, durable, A, B)
    assert init_count(operator, oid(connection, "a")) == 1
