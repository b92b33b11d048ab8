"""A table that fails takes out itself only: the others go on, and it comes back, by itself or when it is told to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from failing import Failures
from headrace.errors import DestinationConnectionFailed, DestinationRejected, RetryPolicy, TableNotFound
from headrace.lsn import Lsn
from headrace.pipeline import apply
from headrace.pipeline.failpoint import set_hook
from headrace.stores import MemoryStore
from headrace.table_state import State, TableState
from headrace.testing.durable_destination import DurableDestination
from headrace.testing.faulty_destination import FaultyDestination
from pipelining import Piped, assert_equal_tables, destination_rows, piped, pipeline_config, source_rows, wait_equal

Connection = psycopg.Connection[Any]

A, B, C = "public.a", "public.b", "public.c"


@pytest.fixture(autouse=True)
def tables(connection: Connection) -> Iterator[None]:
    for name in "abc":
        connection.execute(f"CREATE TABLE {name} (id serial PRIMARY KEY, note text)")
        connection.execute(f"INSERT INTO {name} (note) SELECT 'copied' FROM generate_series(1, 20)")
    connection.execute("CREATE PUBLICATION pub FOR TABLE a, b, c")
    yield
    set_hook(None)


@pytest.fixture
def durable(tmp_path: Path) -> DurableDestination:
    return DurableDestination(tmp_path / "destination.db")


@dataclass(frozen=True)
class Faulty:
    """A destination that fails when told to, on a Spark."""

    spark: Any
    root: Path
    durable: DurableDestination
    failures: Failures
    destination: FaultyDestination


@pytest.fixture
def faulty(spark: Any, tmp_path: Path, durable: DurableDestination) -> Faulty:
    failures = Failures()
    return Faulty(spark, tmp_path, durable, failures, FaultyDestination(durable, failures))


def away() -> Exception:
    return DestinationConnectionFailed("the destination is away", hint="plug it in")


def rejected() -> Exception:
    return DestinationRejected("the destination has no such type", hint="give it one")


def insert(connection: Connection, *tables: str, note: str = "streamed") -> None:
    for table in tables:
        connection.execute(f"INSERT INTO {table} (note) VALUES (%s), (repeat('x', 2000))", (note,))


def state(running: Piped, table: str) -> TableState:
    return running.status.tables[table].state


def until_errored(running: Piped, table: str, policy: RetryPolicy) -> TableState:
    found: list[TableState] = []

    def errored() -> bool:
        tables = running.status.tables
        found[:] = [tables[table].state] if table in tables else []
        return bool(found) and found[0].retry_policy is policy

    running.until(errored)
    return found[0]


def until_equal(running: Piped, connection: Connection, durable: DurableDestination, *tables: str) -> None:
    """The destination has what the source has: for tables that apply while another one does not."""
    for table in tables:
        running.until(lambda table=table: source_rows(connection, table) == destination_rows(durable, table))


def slot_positions(connection: Connection) -> tuple[Lsn, int]:
    """Up to where the slot is confirmed, and how many bytes of WAL the server keeps for it."""
    # Decoding moves a slot's restart_lsn when it meets a record of the running transactions, as checkpoints write it.
    connection.execute("CHECKPOINT")
    row = connection.execute(
        "SELECT confirmed_flush_lsn::text, pg_current_wal_lsn() - restart_lsn FROM pg_replication_slots "
        "WHERE database = current_database()"
    ).fetchone()
    assert row is not None
    return Lsn.parse(row[0]), int(row[1])


def wal_end(connection: Connection) -> Lsn:
    row = connection.execute("SELECT pg_current_wal_lsn()::text").fetchone()
    assert row is not None
    return Lsn.parse(row[0])


def assert_no_change_twice(durable: DurableDestination, *tables: str) -> None:
    for table in tables:
        places = [(change.commit_lsn, change.tx_ordinal) for change in durable.change_log(table)]
        assert len(places) == len(set(places)) > 0, table


@pytest.mark.parametrize("kept_by_spool", [True, False], ids=["durable spool", "spool that is not durable"])
def test_a_destination_that_fails_for_one_table_for_a_while(
    conninfo: str, connection: Connection, faulty: Faulty, monkeypatch: pytest.MonkeyPatch, kept_by_spool: bool
) -> None:
    durable, failures, store = faulty.durable, faulty.failures, MemoryStore()
    # A minute would do: it is how long progress past batches of others may be left unstored.
    monkeypatch.setattr(apply, "_PROGRESS_INTERVAL_S", 0.2)
    config = pipeline_config(
        conninfo,
        faulty.root,
        spool={"segment_age_ms": 20, "durable": kept_by_spool},
        table_error_retry_max_attempts=100,
    )
    with piped(config, store, faulty.destination, faulty.spark) as running:
        running.until_ready()
        failures.begin("write_events", A, away)
        before = wal_end(connection)
        insert(connection, "a", "b")
        errored = until_errored(running, A, RetryPolicy.TIMED)
        assert (errored.reason, errored.solution) == ("the destination is away", "plug it in")
        for _ in range(3):
            connection.execute("INSERT INTO b (note) SELECT repeat('y', 1000) FROM generate_series(1, 500)")
            insert(connection, "a", "c")
            until_equal(running, connection, durable, B, C)
            assert state(running, A).state in (State.ERRORED, State.CATCHUP)
            assert len(durable.rows(A)) == 20
        written = wal_end(connection)
        assert written - before > 1_500_000
        if kept_by_spool:
            running.until(lambda: slot_positions(connection)[0] >= written)
            running.until(lambda: slot_positions(connection)[1] < 1_000_000)
        else:
            confirmed, retained = slot_positions(connection)
            assert confirmed <= written - 1_500_000
            assert retained >= 1_500_000
        assert running.status.tables[A].attempts > 0
        failures.end("write_events", A)
        running.until_ready()
        wait_equal(running, connection, durable, A, B, C)
        assert running.status.tables[A].attempts == 0
        running.until(lambda: slot_positions(connection)[1] < 1_000_000)
    assert_no_change_twice(durable, A, B, C)
    # It was not copied again.
    (history,) = [h for i in store.get_table_states() if len(h := store.get_table_state_history(i)) > 5]
    states = [entry.state.state for entry in history]
    assert states.count(State.DATA_SYNC) == 1
    assert states[-3:] == [State.ERRORED, State.SYNC_DONE, State.READY]


@pytest.mark.parametrize(("method", "failures_at_least"), [("write_events", 25), ("write_table_rows", 8)])
def test_an_outage_of_any_length_needs_no_operator(
    conninfo: str, connection: Connection, faulty: Faulty, method: str, failures_at_least: int
) -> None:
    """With the default settings but for the delay: more failures in a row than a small limit would allow."""
    durable, failures = faulty.durable, faulty.failures
    config = pipeline_config(conninfo, faulty.root, table_error_retry_delay_ms=1)
    with piped(config, MemoryStore(), faulty.destination, faulty.spark) as running:
        running.until_ready()
        failures.begin(method, A, away)
        insert(connection, "a", "b", "c")
        if method == "write_table_rows":
            running.pipeline.resync(A)
        # A write of events is tried three times in place before its table fails.
        running.until(
            lambda: (
                failures.count[method, A] >= failures_at_least or state(running, A).retry_policy is RetryPolicy.MANUAL
            )
        )
        assert state(running, A).retry_policy is not RetryPolicy.MANUAL
        failures.end(method, A)
        running.until_ready()
        wait_equal(running, connection, durable, A, B, C)


def test_tables_that_wait_for_an_operator(conninfo: str, connection: Connection, faulty: Faulty) -> None:
    durable, failures, store = faulty.durable, faulty.failures, MemoryStore()
    config = pipeline_config(conninfo, faulty.root, table_error_retry_max_attempts=2, table_error_retry_delay_ms=50)
    with piped(config, store, faulty.destination, faulty.spark) as running:
        running.until_ready()
        # Too many timed retries, and an error that no retry mends.
        failures.begin("write_events", A, away)
        failures.begin("write_events", B, rejected)
        insert(connection, "a", "b", "c")
        tired = until_errored(running, A, RetryPolicy.MANUAL)
        assert tired.reason == "the destination is away (tried 3 times)"
        no = until_errored(running, B, RetryPolicy.MANUAL)
        assert (no.reason, no.solution) == ("the destination has no such type", "give it one")
        assert failures.count["write_events", B] == 1
        failures.end("write_events", A)
        failures.end("write_events", B)
        insert(connection, "a", "b", "c")
        until_equal(running, connection, durable, C)
        assert (state(running, A), state(running, B)) == (tired, no)
        assert len(durable.rows(A)) == len(durable.rows(B)) == 20
        with pytest.raises(TableNotFound, match=r"no table public\.d"):
            running.pipeline.rollback("public.d")
        running.pipeline.rollback(A)
        running.until_ready(A)
        running.pipeline.rollback(B)
        running.until_ready(B)
        wait_equal(running, connection, durable, A, B, C)
        failures.begin("write_events", A, rejected)
        insert(connection, "a", "b", "c")
        until_errored(running, A, RetryPolicy.MANUAL)
        until_equal(running, connection, durable, B, C)
    failures.end("write_events", A)
    # While the pipeline is stopped, the store rolls back.
    (table_id,) = [i for i, known in store.get_table_states().items() if known.state is State.ERRORED]
    assert store.rollback_table_state(table_id).state is State.READY
    insert(connection, "a", "b", "c", note="while stopped")
    with piped(config, store, faulty.destination, faulty.spark) as running:
        running.until_ready()
        wait_equal(running, connection, durable, A, B, C)
    assert_no_change_twice(durable, A, B, C)
    assert len(durable.copied(A)) == len(durable.copied(B)) == 20


def test_a_copy_that_fails(conninfo: str, connection: Connection, faulty: Faulty) -> None:
    durable, failures, store = faulty.durable, faulty.failures, MemoryStore()
    config = pipeline_config(conninfo, faulty.root, table_error_retry_max_attempts=2, table_error_retry_delay_ms=50)
    failures.begin("write_table_rows", A, away)
    failures.begin("write_table_rows", B, rejected)
    failures.begin("write_table_rows", C, away, times=1)
    with piped(config, store, faulty.destination, faulty.spark) as running:
        no = until_errored(running, B, RetryPolicy.MANUAL)
        assert (no.reason, failures.count["write_table_rows", B]) == ("the destination has no such type", 1)
        tired = until_errored(running, A, RetryPolicy.MANUAL)
        assert tired.reason == "the destination is away (tried 3 times)"
        assert failures.count["write_table_rows", A] == 3
        # That one came back by itself.
        running.until_ready(C)
        assert failures.count["write_table_rows", C] == 1
        insert(connection, "a", "b", "c")
        until_equal(running, connection, durable, C)
        failures.end("write_table_rows", A)
        failures.end("write_table_rows", B)
        running.pipeline.rollback(A)
        running.pipeline.rollback(B, to_init=True)
        running.until_ready()
        wait_equal(running, connection, durable, A, B, C)
        assert running.status.tables[A].attempts == 0
    assert len(durable.copied(A)) == 22


def test_one_table_is_copied_again_while_the_rest_streams(
    conninfo: str, connection: Connection, spark: Any, tmp_path: Path, durable: DurableDestination
) -> None:
    with piped(pipeline_config(conninfo, tmp_path), MemoryStore(), durable, spark) as running:
        running.until_ready()
        insert(connection, "a", "b", "c")
        wait_equal(running, connection, durable, A, B, C)
        copying: list[str] = []

        def hook(point: str, table: str | None) -> None:
            if point == "copy.after_snapshot":
                # The copy does not go on before the others have applied what was committed after its snapshot.
                insert(connection, "a", "b", "c", note="while it is copied")
                until_equal(running, connection, durable, B, C)
                copying.append(str(table))

        set_hook(hook)
        with pytest.raises(TableNotFound, match="no table nobody"):
            running.pipeline.resync("nobody")
        running.pipeline.resync(A)
        running.until(lambda: copying == [A])
        running.until_ready()
        wait_equal(running, connection, durable, A, B, C)
        assert copying == [A]
        assert (len(durable.copied(A)), len(durable.copied(B))) == (22, 20)
        running.pipeline.rollback(A, to_init=True)
        running.until(lambda: copying == [A, A])
        running.until_ready()
        insert(connection, "a", "b", "c")
        wait_equal(running, connection, durable, A, B, C)
    assert_no_change_twice(durable, A, B, C)


def test_a_table_whose_change_is_refused_waits_for_a_resync(
    conninfo: str, connection: Connection, spark: Any, tmp_path: Path, durable: DurableDestination
) -> None:
    config = pipeline_config(conninfo, tmp_path, schema_changes={"policy": "error"})
    with piped(config, MemoryStore(), durable, spark) as running:
        running.until_ready()
        insert(connection, "a", "b", "c")
        connection.execute("ALTER TABLE a ADD COLUMN more int DEFAULT 7")
        insert(connection, "a", "b", "c")
        errored = until_errored(running, A, RetryPolicy.MANUAL)
        assert "table public.a changed: the policy refuses add_column" in str(errored.reason)
        assert "resync" in str(errored.solution)
        insert(connection, "a", "b", "c")
        until_equal(running, connection, durable, B, C)
        assert state(running, A) == errored
        running.pipeline.resync(A)
        running.until_ready()
        insert(connection, "a", "b", "c")
        wait_equal(running, connection, durable, A, B, C)
        assert durable.rows(A)[0]["more"] == 7
    assert_equal_tables(connection, durable, A, B, C)
