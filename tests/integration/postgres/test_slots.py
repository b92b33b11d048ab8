"""postgres.slots: create, look, drop, and know a lost one."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest

from awaiting import until
from headrace.config.connection import PgConnectionConfig
from headrace.errors import (
    SlotAlreadyExists,
    SlotDropTimeout,
    SlotInvalidated,
    SlotNotFound,
    SourceCanceled,
    SourceUnsupported,
)
from headrace.lsn import Lsn
from headrace.postgres.connection import connect, connect_replication, parse_conninfo
from headrace.postgres.slots import create_slot, drop_slot, require_usable, slot_state
from headrace.postgres.version import ServerVersion
from headrace.testing import PostgresServer

pytestmark = pytest.mark.matrix

Connection = psycopg.Connection[tuple[object, ...]]


@pytest.fixture
def config(conninfo: str) -> PgConnectionConfig:
    return parse_conninfo(conninfo)


@pytest.fixture
def name(conninfo: str) -> str:
    assert conninfo
    return f"slot_{uuid.uuid4().hex[:12]}"


@pytest.fixture
def reader(config: PgConnectionConfig, connection: Connection, name: str) -> Iterator[Connection]:
    """A walsender that reads the slot."""
    connection.execute("CREATE TABLE t (id int PRIMARY KEY); CREATE PUBLICATION p FOR TABLE t")
    create_slot(connection, name)
    # closing, not the connection's own context: that would COMMIT, which COPY BOTH does not take.
    with closing(connect_replication(config, "receiver")) as walsender:
        options = "(proto_version '1', publication_names 'p')"
        result = walsender.pgconn.exec_(f"START_REPLICATION SLOT {name} LOGICAL 0/0 {options}".encode())
        assert result.status == psycopg.pq.ExecStatus.COPY_BOTH
        yield walsender


def test_created_slot_and_its_state(connection: Connection, config: PgConnectionConfig, name: str) -> None:
    lsn = create_slot(connection, name)
    state = require_usable(connection, name)
    assert (state.name, state.plugin, state.database) == (name, "pgoutput", config.name)
    assert (state.active, state.active_pid, state.wal_status, state.lost) == (False, None, "reserved", False)
    assert state.confirmed_flush_lsn == lsn
    assert state.restart_lsn is not None
    assert Lsn(0) < state.restart_lsn <= lsn
    assert state.failover is (False if ServerVersion.of(connection).failover_slots else None)


def test_a_taken_name_is_refused(connection: Connection, name: str) -> None:
    create_slot(connection, name)
    with pytest.raises(SlotAlreadyExists, match=name):
        create_slot(connection, name)


def test_a_failover_slot_needs_17(connection: Connection, name: str) -> None:
    if ServerVersion.of(connection).failover_slots:
        create_slot(connection, name, failover=True)
        assert require_usable(connection, name).failover is True
    else:
        with pytest.raises(SourceUnsupported, match="needs Postgres 17"):
            create_slot(connection, name, failover=True)
        assert slot_state(connection, name) is None


def test_creation_waits_for_running_transactions_and_says_so(connection: Connection, conninfo: str, name: str) -> None:
    with psycopg.connect(conninfo) as busy:
        busy.execute("SELECT pg_current_xact_id()")
        with pytest.raises(SourceCanceled, match=r"within 0\.3 s") as caught:
            create_slot(connection, name, timeout_s=0.3)
    assert "pg_stat_activity" in caught.value.hint
    assert slot_state(connection, name) is None
    row = connection.execute("SHOW statement_timeout").fetchone()
    create_slot(connection, name)
    assert connection.execute("SHOW statement_timeout").fetchone() == row


def test_dropped_and_missing(connection: Connection, name: str) -> None:
    create_slot(connection, name)
    drop_slot(connection, name)
    assert slot_state(connection, name) is None
    with pytest.raises(SlotNotFound, match=name):
        drop_slot(connection, name)
    with pytest.raises(SlotNotFound, match=name):
        require_usable(connection, name)


def test_drop_of_a_slot_in_use_times_out_naming_the_reader(
    connection: Connection, reader: Connection, name: str
) -> None:
    pid = reader.info.backend_pid
    state = require_usable(connection, name)
    assert (state.active, state.active_pid) == (True, pid)
    with pytest.raises(SlotDropTimeout, match=f"process {pid}"):
        drop_slot(connection, name, timeout_s=0.3)
    assert slot_state(connection, name) is not None


def test_drop_waits_until_the_reader_has_gone(connection: Connection, reader: Connection, name: str) -> None:
    leave = threading.Timer(0.3, reader.close)
    leave.start()
    drop_slot(connection, name, timeout_s=30)
    leave.join()
    assert slot_state(connection, name) is None


def test_drop_may_end_the_reader(connection: Connection, reader: Connection, name: str) -> None:
    drop_slot(connection, name, timeout_s=30, terminate=True)
    assert slot_state(connection, name) is None
    query, pid = "SELECT count(*) FROM pg_stat_activity WHERE pid = %s", reader.info.backend_pid
    until(lambda: connection.execute(query, (pid,)).fetchone() == (0,))


def test_a_slot_that_lost_its_wal_is_recognised() -> None:
    tight = {"max_slot_wal_keep_size": "1MB", "min_wal_size": "32MB", "max_wal_size": "32MB"}
    with PostgresServer(settings=tight) as server, connect(parse_conninfo(server.conninfo()), "test") as session:
        create_slot(session, "lost_one")
        assert require_usable(session, "lost_one").safe_wal_size is not None
        for _ in range(4):
            session.execute("SELECT pg_logical_emit_message(false, 'x', 'x')")
            session.execute("SELECT pg_switch_wal()")
        session.execute("CHECKPOINT")
        state = slot_state(session, "lost_one")
        assert state is not None
        assert (state.lost, state.wal_status) == (True, "lost")
        with pytest.raises(SlotInvalidated, match="lost_one is invalidated") as caught:
            require_usable(session, "lost_one")
        expected = "wal_removed" if server.version >= 17 else "wal_status is lost"
        assert caught.value.detail == expected
