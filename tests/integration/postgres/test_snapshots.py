"""postgres.snapshots against a real server: what `visible` says is what the snapshot shows."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import psycopg
import pytest

from headrace.errors import SourceError
from headrace.lsn import Lsn
from headrace.postgres.connection import connect, parse_conninfo
from headrace.postgres.snapshots import current_snapshot, export_snapshot
from headrace.schema import TableName

pytestmark = pytest.mark.matrix

Connection = psycopg.Connection[tuple[object, ...]]


def test_an_exported_snapshot_is_shared_and_stands_still(connection: Connection, conninfo: str) -> None:
    connection.execute("CREATE TABLE t (id int); INSERT INTO public.t VALUES (1)")
    config = parse_conninfo(conninfo)
    with export_snapshot(config, pipeline=3) as exported, connect(config, "copy") as reader:
        connection.execute("INSERT INTO t VALUES (2)")
        reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        reader.execute(psycopg.sql.SQL("SET TRANSACTION SNAPSHOT {}").format(exported.name))
        assert reader.execute("SELECT id FROM public.t").fetchall() == [(1,)]
        assert current_snapshot(reader) == exported.snapshot
        assert exported.connection.execute("SELECT id FROM public.t").fetchall() == [(1,)]
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            exported.connection.execute("INSERT INTO public.t VALUES (3)")
    assert exported.connection.closed


def test_a_held_snapshot_has_no_time_limit(connection: Connection, conninfo: str) -> None:
    database = psycopg.sql.Identifier(parse_conninfo(conninfo).name)
    names = ["statement_timeout", "idle_in_transaction_session_timeout"]
    if connection.info.server_version >= 170000:
        names.append("transaction_timeout")
    for name in names:
        connection.execute(psycopg.sql.SQL("ALTER DATABASE {} SET {} = '5s'").format(database, psycopg.sql.SQL(name)))
    with export_snapshot(parse_conninfo(conninfo)) as exported:
        rows = [exported.connection.execute(f"SHOW {name}").fetchone() for name in names]
    assert rows == [("0",)] * len(names)


def test_visible_is_what_the_snapshot_shows_among_committed_running_and_later(
    connection: Connection, conninfo: str
) -> None:
    connection.execute("CREATE TABLE t (id serial, xid xid8 DEFAULT pg_current_xact_id())")
    insert = "INSERT INTO t DEFAULT VALUES"
    with psycopg.connect(conninfo) as first, psycopg.connect(conninfo) as second:
        connection.execute(insert)
        first.execute(insert)
        connection.execute(insert)
        second.execute("SAVEPOINT s")  # a subtransaction's id must not matter: pgoutput names the top-level one
        second.execute(insert)
        connection.execute(insert)
        with export_snapshot(parse_conninfo(conninfo)) as exported:
            connection.execute(insert)
            first.commit()
            second.commit()
            shown = {row[0] for row in exported.connection.execute("SELECT id FROM public.t").fetchall()}
    rows = connection.execute("SELECT id, (xid::text::numeric %% 4294967296)::int8 FROM t ORDER BY id", ()).fetchall()
    visible = exported.snapshot.visible(np.array([xid for _, xid in rows], dtype=np.uint32))
    # Of these two; the server may have others of its own, such as an autovacuum's.
    assert len(exported.snapshot.xip) >= 2
    assert {row[0] for row, seen in zip(rows, visible, strict=True) if seen} == shown
    assert 0 < len(shown) < len(rows)


# -- locks and rewrites -------------------------------------------------------------------------------------------

T = TableName("public", "T 1")
REWRITE = 'ALTER TABLE "T 1" ALTER COLUMN id TYPE bigint'


@pytest.fixture
def table(connection: Connection) -> None:
    connection.execute('CREATE TABLE "T 1" (id int); INSERT INTO "T 1" SELECT generate_series(1, 5)')


def waits_for_a_lock(connection: Connection, application: str) -> None:
    """Wait until a session queues for a relation's lock."""
    query = (
        "SELECT 1 FROM pg_locks JOIN pg_stat_activity USING (pid) "
        "WHERE NOT granted AND locktype = 'relation' AND application_name = %s AND datname = current_database()"
    )
    deadline = time.monotonic() + 30
    while connection.execute(query, (application,)).fetchone() is None:
        assert time.monotonic() < deadline, f"{application} never waited"
        time.sleep(0.02)


@contextmanager
def rewriting(conninfo: str) -> Iterator[threading.Thread]:
    """A session of its own that alters the table, and may have to wait."""

    def alter() -> None:
        with psycopg.connect(conninfo, autocommit=True, application_name="altering") as session:
            session.execute(REWRITE)

    thread = threading.Thread(target=alter)
    thread.start()
    yield thread
    thread.join(30)
    assert not thread.is_alive()


def column_type(connection: Connection) -> object:
    row = connection.execute(
        "SELECT atttypid::regtype::text FROM pg_attribute WHERE attname = 'id' AND attrelid = '\"T 1\"'::regclass"
    ).fetchone()
    assert row is not None
    return row[0]


@pytest.mark.usefixtures("table")
def test_a_rewrite_waits_for_the_end_of_the_snapshot(connection: Connection, conninfo: str) -> None:
    config = parse_conninfo(conninfo)
    with export_snapshot(config, lock=[T]) as exported, rewriting(conninfo) as altering:
        waits_for_a_lock(connection, "altering")
        assert exported.connection.execute('SELECT count(*) FROM public."T 1"').fetchone() == (5,)
        # Another reader queues behind the ALTER: with a timeout it says so.
        with connect(config, "copy") as reader:
            reader.execute("SET lock_timeout = '50ms'")
            with pytest.raises(psycopg.errors.LockNotAvailable):
                reader.execute('SELECT count(*) FROM public."T 1"')
        assert altering.is_alive()
        assert column_type(connection) == "integer"
        exported.connection.close()
    assert column_type(connection) == "bigint"


@pytest.mark.usefixtures("table")
def test_the_lock_comes_before_the_snapshot(connection: Connection, conninfo: str) -> None:
    seen: list[object] = []

    def export() -> None:
        with export_snapshot(parse_conninfo(conninfo), lock=[T], pipeline="late") as exported:
            seen.append(exported.connection.execute('SELECT count(*) FROM public."T 1"').fetchone())

    with psycopg.connect(conninfo) as altering:
        altering.execute(REWRITE)
        thread = threading.Thread(target=export)
        thread.start()
        waits_for_a_lock(connection, "headrace_snapshot_late")
        altering.commit()
    thread.join(30)
    # A snapshot from before the commit would show none of the rewritten rows.
    assert seen == [(5,)]


def test_partitions_are_locked_with_their_root(connection: Connection, conninfo: str) -> None:
    connection.execute("""
        CREATE TABLE m (id int) PARTITION BY RANGE (id);
        CREATE TABLE m1 PARTITION OF m FOR VALUES FROM (0) TO (10);
        CREATE TABLE m2 PARTITION OF m FOR VALUES FROM (10) TO (20) PARTITION BY RANGE (id);
        CREATE TABLE m2a PARTITION OF m2 FOR VALUES FROM (10) TO (20);
        CREATE TABLE other (id int); CREATE TABLE besides (id int);
    """)
    locked = "SELECT relation::regclass::text FROM pg_locks WHERE pid = %s AND mode = 'AccessShareLock' AND granted"
    lock = [TableName("public", "m"), TableName("public", "besides")]
    with export_snapshot(parse_conninfo(conninfo), lock=lock) as exported:
        rows = connection.execute(locked, (exported.connection.info.backend_pid,)).fetchall()
    assert {name for (name,) in rows if name} == {"m", "m1", "m2", "m2a", "besides"}


def test_a_table_that_is_gone_is_named(conninfo: str) -> None:
    missing = [TableName("public", "gone")]
    with pytest.raises(SourceError, match="gone"), export_snapshot(parse_conninfo(conninfo), lock=missing):
        pass


def test_the_lsn_lies_between_what_the_snapshot_shows_and_what_comes_later(
    connection: Connection, conninfo: str
) -> None:
    def wal_position() -> Lsn:
        row = connection.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
        assert row is not None
        return Lsn.parse(str(row[0]))

    connection.execute("CREATE TABLE t (id int)")
    before = wal_position()
    with export_snapshot(parse_conninfo(conninfo)) as exported:
        connection.execute("INSERT INTO t VALUES (1)")
        assert before <= exported.lsn < wal_position()
