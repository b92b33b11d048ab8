"""The source side on a standby (Postgres 16 and newer): slots, snapshots, lag, catalog, checks."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psycopg
import pytest

from headrace.config.receiver import ReceiverConfig
from headrace.config.spool import SpoolConfig
from headrace.errors import SourceError, SourceUnsupported
from headrace.postgres.connection import connect, parse_conninfo
from headrace.postgres.lag import slot_lag, wal_end
from headrace.postgres.preflight import Severity, Target, run_checks
from headrace.postgres.publications import published_tables
from headrace.postgres.slots import create_slot, drop_slot, require_usable
from headrace.postgres.snapshots import current_snapshot, export_snapshot
from headrace.replication import ReceiverProcess
from headrace.schema import TableName
from headrace.spool import Spool
from headrace.testing import PostgresServer
from recvlogical import transactions_in_spool

pytestmark = pytest.mark.matrix

Connection = psycopg.Connection[tuple[object, ...]]


@pytest.fixture(scope="module")
def primary() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        with psycopg.connect(server.conninfo(), autocommit=True) as admin:
            admin.execute("CREATE TABLE t (id serial PRIMARY KEY, xid xid8 DEFAULT pg_current_xact_id())")
            admin.execute("CREATE PUBLICATION p FOR TABLE t")
        yield server


@pytest.fixture(scope="module")
def standby(primary: PostgresServer) -> Iterator[PostgresServer]:
    with primary.standby() as server:
        yield server


@contextmanager
def activity(server: PostgresServer) -> Iterator[None]:
    """Overlapping short transactions, and a running-transactions record now and then (16+), until the block ends."""
    done = threading.Event()

    def work(number: int) -> None:
        with psycopg.connect(server.conninfo()) as session:
            while not done.wait(0.002):
                session.execute("INSERT INTO t DEFAULT VALUES")
                if number == 0 and server.version >= 16:
                    session.execute("SELECT pg_log_standby_snapshot()")
                session.commit()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        done.set()
        for thread in threads:
            thread.join()


def caught_up(primary: PostgresServer, standby: Connection) -> None:
    with psycopg.connect(primary.conninfo(), autocommit=True) as admin:
        row = admin.execute("SELECT pg_current_wal_lsn()::text").fetchone()
    deadline = time.monotonic() + 60
    while standby.execute("SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", row).fetchone() != (True,):
        assert time.monotonic() < deadline, "the standby does not follow"
        time.sleep(0.05)


def test_catalog_and_lag_position(primary: PostgresServer, standby: PostgresServer) -> None:
    with connect(parse_conninfo(standby.conninfo()), "test") as session:
        caught_up(primary, session)
        (table,) = published_tables(session, "p")
        assert [c.name for c in table.columns] == ["id", "xid"]
        assert wal_end(session) > 0


def test_slots_and_lag(primary: PostgresServer, standby: PostgresServer) -> None:
    with connect(parse_conninfo(standby.conninfo()), "test") as session:
        if standby.version < 16:
            errors = run_checks(session, Target(parse_conninfo(standby.conninfo()), "p"))
            assert any(f.check == "server version" and f.severity is Severity.ERROR for f in errors)
            return
        with activity(primary):
            create_slot(session, "on_standby", timeout_s=60)
        state = require_usable(session, "on_standby")
        assert (state.plugin, state.lost) == ("pgoutput", False)
        caught_up(primary, session)
        lag = slot_lag(session, "on_standby")
        assert lag.unconfirmed_bytes is not None
        assert lag.unconfirmed_bytes > 0
        drop_slot(session, "on_standby")


def test_a_receiver_on_a_standby(primary: PostgresServer, standby: PostgresServer, tmp_path: Path) -> None:
    """Changes made on the primary reach the spool of a receiver that reads the standby, which is confirmed there."""
    config = parse_conninfo(standby.conninfo())
    if standby.version < 16:
        with connect(config, "test") as session, pytest.raises(SourceError, match="recovery"):
            create_slot(session, "receiver_standby")
        return
    spool = SpoolConfig(uri=str(tmp_path / "spool"), segment_age_ms=20)
    receiving = ReceiverConfig(pg_connection=config, publication_name="p", slot_name="receiver_standby", spool=spool)
    with connect(config, "test") as session, psycopg.connect(primary.conninfo(), autocommit=True) as admin:
        with activity(primary):
            create_slot(session, "receiver_standby", timeout_s=60)
        with ReceiverProcess(receiving) as receiver:
            row = admin.execute("INSERT INTO t DEFAULT VALUES RETURNING id::text").fetchone()
            assert row is not None
            end = wal_end(admin)
            receiver.wait(lambda status: status.spooled >= end or status.covered >= end, 60)
            receiver.wait(lambda status: status.confirmed >= end, 30)
        messages = [m for group in transactions_in_spool(Spool.open(spool)).values() for m in group]
        assert any(message[:1] == b"I" and row[0].encode() in message for message in messages)
        drop_slot(session, "receiver_standby")


def test_snapshot_handoff(primary: PostgresServer, standby: PostgresServer) -> None:
    """Among transactions that overlap the snapshot, those it shows are those that `visible` names."""
    config = parse_conninfo(standby.conninfo())
    if standby.version < 16:
        with pytest.raises(SourceUnsupported, match="needs Postgres 16"), export_snapshot(config):
            pass
        return
    with psycopg.connect(standby.conninfo()) as session:
        before = wal_end(session)
    with activity(primary), export_snapshot(config, lock=[TableName("public", "t")]) as exported:
        assert _locks(standby, exported.connection.info.backend_pid) == {"t"}
        shown = {row[0] for row in exported.connection.execute("SELECT id FROM public.t").fetchall()}
        # Enough transactions after the snapshot for it to have something not to show.
        newest = max(shown, default=0)
        with psycopg.connect(primary.conninfo(), autocommit=True) as admin:
            deadline = time.monotonic() + 30
            while admin.execute("SELECT max(id) > %s FROM t", (newest + 20,)).fetchone() != (True,):
                assert time.monotonic() < deadline
                time.sleep(0.02)
    with psycopg.connect(primary.conninfo(), autocommit=True) as admin:
        rows = admin.execute("SELECT id, (xid::text::numeric %% 4294967296)::int8 FROM t", ()).fetchall()
    visible = exported.snapshot.visible(np.array([xid for _, xid in rows], dtype=np.uint32))
    assert {row[0] for row, seen in zip(rows, visible, strict=True) if seen} == shown
    assert len(shown) < len(rows)
    with psycopg.connect(standby.conninfo()) as session:
        assert exported.lsn <= wal_end(session)
    assert exported.lsn >= before


def _locks(server: PostgresServer, pid: int) -> set[object]:
    query = "SELECT relation::regclass::text FROM pg_locks WHERE pid = %s AND mode = 'AccessShareLock' AND granted"
    with psycopg.connect(server.conninfo()) as session:
        return {name for (name,) in session.execute(query, (pid,)).fetchall() if not name.startswith("pg_")}


def test_a_standbys_own_snapshot_is_refused(standby: PostgresServer) -> None:
    with (
        connect(parse_conninfo(standby.conninfo()), "test") as session,
        pytest.raises(SourceUnsupported, match="running transactions") as caught,
    ):
        current_snapshot(session)
    assert "export_snapshot" in caught.value.hint
