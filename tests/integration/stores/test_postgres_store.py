"""PostgresStore: migrations, lost connections, refused ones, and what several processes do at once."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from headrace.errors import RetryPolicy, StoreError, StoreIoError, StoreVersionError
from headrace.lsn import Lsn
from headrace.postgres.connection import connect, parse_conninfo
from headrace.stores import APPLY, PostgresStore
from headrace.stores.migrations import migrations_of
from headrace.stores.postgres import database
from headrace.table_state import State, TableState
from headrace.testing.copy_store_suite import example_copy
from headrace.testing.postgres import free_port
from headrace.testing.store_suite import A, fill

pytestmark = pytest.mark.matrix

Connection = psycopg.Connection[tuple[object, ...]]

# A trigger that ends its own session, so many times; a sequence counts, because it survives the rollback.
SUICIDE = """
CREATE SEQUENCE public.tries;
CREATE FUNCTION public.die() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF nextval('public.tries') <= %(times)s THEN
        PERFORM pg_terminate_backend(pg_backend_pid());
        PERFORM pg_sleep(10);
    END IF;
    RETURN NEW;
END $$;
"""
IN_WORK = "CREATE TRIGGER die BEFORE INSERT ON headrace.progress FOR EACH ROW EXECUTE FUNCTION public.die()"
IN_COMMIT = (
    "CREATE CONSTRAINT TRIGGER die AFTER INSERT ON headrace.progress DEFERRABLE INITIALLY DEFERRED "
    "FOR EACH ROW EXECUTE FUNCTION public.die()"
)


class Counting:
    """Opens connections and counts them."""

    def __init__(self, conninfo: str) -> None:
        self.conninfo = conninfo
        self.count = 0

    def __call__(self) -> psycopg.Connection[tuple[object, ...]]:
        self.count += 1
        return psycopg.connect(self.conninfo, application_name="counted")


@pytest.fixture
def counting(conninfo: str) -> Counting:
    return Counting(conninfo)


@pytest.fixture
def store(counting: Counting) -> Iterator[PostgresStore]:
    with closing(PostgresStore(counting, 1)) as opened:
        yield opened


def terminate(connection: Connection) -> None:
    """End the store's session, and wait until it is gone."""
    ended = connection.execute(
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = 'counted'"
    ).fetchall()
    assert ended == [(True,)]


def let_sessions_die(connection: Connection, trigger: str, times: int) -> None:
    connection.execute(SUICIDE.replace("%(times)s", str(times)))
    connection.execute(trigger)


def test_an_empty_database_gets_the_schema(store: PostgresStore, connection: Connection) -> None:
    tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'headrace' ORDER BY 1").fetchall()
    assert [name for (name,) in tables] == [
        "acknowledged", "copied_range", "destination_table", "heartbeat", "lease", "migration", "progress",
        "table_copy", "table_request", "table_schema", "table_state", "upgraded_source",
    ]  # fmt: skip
    applied = connection.execute("SELECT version, name FROM headrace.migration ORDER BY 1").fetchall()
    assert applied == [
        (1, "tables"),
        (2, "copies"),
        (3, "requests"),
        (4, "heartbeat"),
        (5, "acknowledged"),
        (6, "lease"),
        (7, "upgraded_source"),
    ]


def test_a_schema_of_the_first_layout_is_brought_up_to_date(
    conninfo: str, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a store made when there was one migration, with something of everything in it
    with monkeypatch.context() as past:
        past.setattr(database, "migrations_of", lambda package: migrations_of(package)[:1])
        with closing(PostgresStore(conninfo, 1)) as store:
            fill(store, A)
            before = kept(store)
    assert connection.execute("SELECT max(version) FROM headrace.migration").fetchone() == (1,)
    # When it is opened today, by several at once
    with ThreadPoolExecutor(3) as pool:
        stores = list(pool.map(lambda _: PostgresStore(conninfo, 1), range(3)))
    # Then all of it is there, and copies are kept too
    assert [kept(store) for store in stores] == [before] * 3
    assert stores[0].get_copy(A) is None
    stores[1].begin_copy(A, example_copy())
    assert stores[2].get_copy(A) == (example_copy(), [])
    for store in stores:
        store.close()


def kept(store: PostgresStore) -> list[object]:
    schemas, metadata = store.get_table_schemas(), store.get_all_destination_metadata()
    return [store.get_table_state_history(A), schemas, metadata, store.get_all_progress()]


def test_opening_again_needs_no_right_but_to_use(store: PostgresStore, conninfo: str, connection: Connection) -> None:
    store.update_progress(APPLY, Lsn(5))
    before = connection.execute("SELECT xmin::text, * FROM headrace.migration").fetchall()
    connection.execute("CREATE ROLE store_user LOGIN PASSWORD 'p'")
    try:
        connection.execute("GRANT USAGE ON SCHEMA headrace TO store_user")
        connection.execute("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA headrace TO store_user")
        with closing(PostgresStore(make_conninfo(conninfo, user="store_user", password="p"), 1)) as again:
            assert again.get_progress(APPLY) == 5
            assert again.update_progress(APPLY, Lsn(6)) == 6
    finally:
        connection.execute("DROP OWNED BY store_user")
        connection.execute("DROP ROLE store_user")
    assert connection.execute("SELECT xmin::text, * FROM headrace.migration").fetchall() == before


def test_several_may_open_an_empty_database_at_once(conninfo: str, connection: Connection) -> None:
    with ThreadPoolExecutor(4) as pool:
        stores = list(pool.map(lambda i: PostgresStore(conninfo, i), range(4)))
    for store in stores:
        store.close()
    assert connection.execute("SELECT count(*) FROM headrace.migration").fetchone() == (7,)


def test_a_later_version_is_refused(store: PostgresStore, conninfo: str, connection: Connection) -> None:
    connection.execute("INSERT INTO headrace.migration (version, name) VALUES (99, 'later')")
    with pytest.raises(StoreVersionError, match="version 99"):
        PostgresStore(conninfo, 1)


def test_what_operators_see_has_postgres_types(store: PostgresStore, connection: Connection) -> None:
    store.update_table_states({7: TableState(State.INIT)})
    failed = TableState(State.ERRORED, reason="no room", retry_policy=RetryPolicy.MANUAL)
    store.update_table_states({7: failed})
    store.update_progress(APPLY, Lsn.parse("16/B374D848"))
    query = "SELECT detail->>'reason', now() - entered_at < '1 min' FROM headrace.table_state WHERE state = 'errored'"
    assert connection.execute(query).fetchall() == [("no room", True)]
    query = "SELECT lsn - '16/B374D840'::pg_lsn FROM headrace.progress WHERE pipeline_id = 1 AND table_id = 0"
    assert connection.execute(query).fetchall() == [(8,)]


def test_a_lost_connection_is_made_again(store: PostgresStore, counting: Counting, connection: Connection) -> None:
    store.update_progress(APPLY, Lsn(5))
    terminate(connection)
    assert store.get_progress(APPLY) == 5
    terminate(connection)
    assert store.update_progress(APPLY, Lsn(6)) == 6
    assert counting.count == 3


def test_work_that_was_cut_off_is_done_again(store: PostgresStore, counting: Counting, connection: Connection) -> None:
    let_sessions_die(connection, IN_WORK, 1)
    assert store.update_progress(APPLY, Lsn(5)) == 5
    assert counting.count == 2


def test_it_is_tried_again_once_only(store: PostgresStore, counting: Counting, connection: Connection) -> None:
    let_sessions_die(connection, IN_WORK, 2)
    with pytest.raises(StoreIoError) as caught:
        store.update_progress(APPLY, Lsn(5))
    assert caught.value.retry is RetryPolicy.TIMED
    assert counting.count == 2
    assert store.get_progress(APPLY) is None


def test_a_commit_without_an_answer_is_not_repeated(
    store: PostgresStore, counting: Counting, connection: Connection
) -> None:
    let_sessions_die(connection, IN_COMMIT, 1)
    with pytest.raises(StoreIoError) as caught:
        store.update_progress(APPLY, Lsn(5))
    assert caught.value.retry is RetryPolicy.TIMED
    assert counting.count == 1
    assert store.update_progress(APPLY, Lsn(5)) == 5


def test_a_server_that_is_not_there(conninfo: str) -> None:
    nowhere = make_conninfo(conninfo, port=str(free_port()))
    with pytest.raises(StoreIoError) as caught:
        PostgresStore(nowhere, 1)
    assert caught.value.retry is RetryPolicy.TIMED


def test_a_refused_login_carries_the_sources_hint(conninfo: str) -> None:
    wrong = parse_conninfo(make_conninfo(conninfo, password="wrong"))
    with pytest.raises(StoreIoError) as caught:
        PostgresStore(lambda: connect(wrong, "store"), 1)
    assert caught.value.retry is RetryPolicy.MANUAL
    assert "pg_hba.conf" in caught.value.hint
    assert "wrong" not in str(caught.value)


def test_a_right_that_is_missing(conninfo: str, connection: Connection) -> None:
    connection.execute("CREATE ROLE store_reader LOGIN PASSWORD 'p'")
    try:
        with pytest.raises(StoreIoError, match="permission denied for database") as caught:
            PostgresStore(make_conninfo(conninfo, user="store_reader", password="p"), 1)
    finally:
        connection.execute("DROP ROLE store_reader")
    assert caught.value.retry is RetryPolicy.MANUAL
    assert connection.execute("SELECT to_regnamespace('headrace')").fetchone() == (None,)


def test_the_servers_date_style_does_not_matter(conninfo: str) -> None:
    with closing(PostgresStore(make_conninfo(conninfo, options="-c datestyle=German -c timezone=Asia/Tokyo"), 1)) as s:
        s.update_table_states({7: TableState(State.INIT)})
        assert str(s.get_table_state_history(7)[0].entered_at.tzinfo) == "UTC"


def test_a_closed_store_says_so(conninfo: str) -> None:
    store = PostgresStore(conninfo, 1)
    store.close()
    with pytest.raises(StoreError, match="closed"):
        store.get_table_states()
