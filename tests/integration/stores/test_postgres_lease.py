"""The lease on a Postgres store: one run of a pipeline writes, and one that was replaced is refused."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from awaiting import until
from headrace.errors import StoreCorrupt, StoreFenced, StoreInUse
from headrace.lsn import Lsn
from headrace.stores import APPLY, Heartbeat, LeasedStore, PostgresStore, RequestKind, TableRequest
from headrace.stores.postgres.database import _LOCKS
from headrace.table_state import State, TableState

pytestmark = pytest.mark.matrix

Connection = psycopg.Connection[tuple[object, ...]]
OpenStore = Callable[..., PostgresStore]


@pytest.fixture
def opened(conninfo: str) -> Iterator[OpenStore]:
    """Open stores of pipeline 1, or of another."""
    with ExitStack() as stack:

        def open_store(pipeline_id: int = 1) -> PostgresStore:
            store = PostgresStore(conninfo, pipeline_id)
            stack.callback(store.close)
            return store

        yield open_store


def ignore(_: StoreFenced) -> None:
    """For tests that do not look at it."""


def expire(connection: Connection) -> None:
    """As if the holder had not renewed its lease for long."""
    connection.execute("UPDATE headrace.lease SET expires_at = now() - interval '1 s'")


def kept(connection: Connection) -> list[list[tuple[object, ...]]]:
    """Everything in the store but the lease."""
    tables = connection.execute(
        "SELECT tablename::text FROM pg_tables WHERE schemaname = 'headrace' AND tablename <> 'lease' ORDER BY 1"
    ).fetchall()
    return [connection.execute(f"SELECT t::text FROM headrace.{name} t ORDER BY 1").fetchall() for (name,) in tables]


HEARTBEAT = Heartbeat(datetime.now(UTC), "host", 1, "running", "streaming", 0.0, Lsn(5))
WRITES: dict[str, Callable[[PostgresStore], object]] = {
    "progress": lambda store: store.update_progress(APPLY, Lsn(99)),
    "forgotten progress": lambda store: store.delete_progress(APPLY),
    "state": lambda store: store.update_table_states({8: TableState(State.INIT)}),
    "acknowledged": lambda store: store.acknowledge({7: Lsn(1)}),
    "upgraded source": lambda store: store.store_first_system_id("2", "1"),
    "heartbeat": lambda store: store.store_heartbeat(HEARTBEAT),
    "reset": lambda store: store.reset_for_resync(),
    "forgotten table": lambda store: store.delete_table(7),
    "answered request": lambda store: store.withdraw_request(TableRequest(RequestKind.RESYNC, 7)),
}


def test_a_second_run_is_told_who_holds_the_store(opened: OpenStore) -> None:
    first, second = opened(), opened()
    assert isinstance(first, LeasedStore)
    first.take_lease(ignore)
    with pytest.raises(StoreInUse) as caught:
        second.take_lease(ignore)
    today = datetime.now(UTC).strftime("%Y-%m-")
    assert f"process {os.getpid()} on {socket.gethostname()}, since {today}" in str(caught.value)
    # One of another pipeline is not concerned.
    opened(2).take_lease(ignore)
    first.release_lease()
    second.take_lease(ignore)


def test_one_that_waits_for_the_lease_writes_nothing(opened: OpenStore, connection: Connection) -> None:
    first, second = opened(), opened()
    first.take_lease(ignore)
    first.update_progress(APPLY, Lsn(5))
    with pytest.raises(StoreInUse):
        second.take_lease(ignore)
    before = kept(connection)
    with pytest.raises(StoreFenced):
        second.reset_for_resync()
    assert kept(connection) == before


@pytest.mark.parametrize("write", WRITES.values(), ids=list(WRITES))
def test_a_run_that_was_replaced_writes_nothing(
    opened: OpenStore, connection: Connection, write: Callable[[PostgresStore], object]
) -> None:
    first, second, lost = opened(), opened(), list[StoreFenced]()
    first.take_lease(lost.append)
    first.update_table_states({7: TableState(State.INIT)})
    first.update_progress(APPLY, Lsn(5))
    first.ask(TableRequest(RequestKind.RESYNC, 7))
    expire(connection)
    second.take_lease(ignore)
    second.acknowledge({7: Lsn(10)})
    before = kept(connection)
    for _ in range(2):
        with pytest.raises(StoreFenced, match=rf"process {os.getpid()} on "):
            write(first)
    # Told once. Giving up a lease that is lost takes nothing from its holder, and opens nothing.
    assert [type(error) for error in lost] == [StoreFenced]
    first.release_lease()
    with pytest.raises(StoreFenced):
        write(first)
    assert kept(connection) == before
    second.renew_lease()
    assert first.get_progress(APPLY) == Lsn(5)


def test_an_expired_lease_that_nobody_took_is_still_held(opened: OpenStore, connection: Connection) -> None:
    first = opened()
    first.take_lease(ignore)
    expire(connection)
    first.update_progress(APPLY, Lsn(5))
    first.renew_lease()
    with pytest.raises(StoreInUse):
        opened().take_lease(ignore)


def test_of_several_that_wait_one_takes_an_expired_lease(opened: OpenStore, connection: Connection) -> None:
    opened().take_lease(ignore)
    expire(connection)

    def takes(store: PostgresStore) -> bool:
        try:
            store.take_lease(ignore)
        except StoreInUse:
            return False
        return True

    with ThreadPoolExecutor(5) as pool:
        assert sorted(pool.map(takes, [opened() for _ in range(5)])) == [False] * 4 + [True]


def test_a_write_that_waits_while_the_lease_is_taken_over(opened: OpenStore, connection: Connection) -> None:
    first = opened()
    first.take_lease(ignore)
    first.update_progress(APPLY, Lsn(5))
    waiting = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    with ThreadPoolExecutor(1) as pool:
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(%s, hashint8(1))", (_LOCKS,))
            late = pool.submit(first.update_progress, APPLY, Lsn(6))
            until(lambda: connection.execute(waiting).fetchall())
            connection.execute("UPDATE headrace.lease SET token = 'another'")
        with pytest.raises(StoreFenced):
            late.result()
    assert first.get_progress(APPLY) == Lsn(5)


def test_the_lease_does_not_depend_on_a_connection(opened: OpenStore, connection: Connection) -> None:
    first = opened()
    first.take_lease(ignore)
    ended = connection.execute(
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "
        "WHERE application_name = 'headrace_store' AND datname = current_database()"
    ).fetchall()
    assert ended == [(True,)]
    with pytest.raises(StoreInUse):
        opened().take_lease(ignore)
    first.update_progress(APPLY, Lsn(5))


def test_commands_leave_requests_without_the_lease(opened: OpenStore) -> None:
    first, asking = opened(), opened()
    first.take_lease(ignore)
    request = TableRequest(RequestKind.RESYNC, 7)
    asking.ask(request)
    assert first.get_requests() == [request]


def test_a_schema_that_another_role_made_is_refused(conninfo: str, connection: Connection) -> None:
    name = f"eve_{connection.info.dbname}"
    connection.execute(f"CREATE ROLE {name}")
    try:
        connection.execute(f"GRANT CREATE ON DATABASE {connection.info.dbname} TO {name}")
        # Given a store's schema with a trigger that would run with the rights of whoever stores something
        connection.execute(f"SET ROLE {name}")
        connection.execute(
            "CREATE SCHEMA headrace; CREATE TABLE headrace.migration (version int PRIMARY KEY, name text, "
            "applied_at timestamptz DEFAULT now())"
        )
        connection.execute(
            f"CREATE FUNCTION headrace.take() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN EXECUTE 'ALTER ROLE {name} CREATEDB'; RETURN NEW; END $$; "
            "CREATE TRIGGER take BEFORE INSERT ON headrace.migration FOR EACH ROW EXECUTE FUNCTION headrace.take()"
        )
        connection.execute("RESET ROLE")
        for migrate in (True, False):
            with pytest.raises(StoreCorrupt, match=f'schema headrace belongs to role "{name}"') as caught:
                PostgresStore(conninfo, 1, migrate=migrate)
            assert "DROP SCHEMA headrace CASCADE" in caught.value.hint
        # The same if only a table is the other's.
        connection.execute("ALTER SCHEMA headrace OWNER TO CURRENT_USER")
        with pytest.raises(StoreCorrupt, match=f'table headrace.migration belongs to role "{name}"'):
            PostgresStore(conninfo, 1)
        assert connection.execute("SELECT rolcreatedb FROM pg_roles WHERE rolname = %s", (name,)).fetchone() == (False,)
        connection.execute("DROP SCHEMA headrace CASCADE")
        PostgresStore(conninfo, 1).close()
    finally:
        connection.execute("RESET ROLE")
        connection.execute(f"DROP OWNED BY {name}; DROP ROLE {name}")


def test_a_schema_that_the_stores_own_role_made_is_used(conninfo: str, connection: Connection) -> None:
    name = f"storer_{connection.info.dbname}"
    connection.execute(f"CREATE ROLE {name} LOGIN PASSWORD 'p'")
    try:
        connection.execute(f"GRANT CREATE ON DATABASE {connection.info.dbname} TO {name}")
        for _ in range(2):
            store = PostgresStore(make_conninfo(conninfo, user=name, password="p"), 1)
            store.take_lease(ignore)
            store.release_lease()
            store.close()
    finally:
        connection.execute(f"DROP OWNED BY {name}; DROP ROLE {name}")
