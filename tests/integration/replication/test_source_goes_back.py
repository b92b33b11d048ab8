"""A source that is restored, or that fails over: what has been read from it must still be part of its history."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from awaiting import until
from headrace.errors import SourceWentBack
from headrace.lsn import INVALID_LSN, Lsn
from headrace.replication import watch
from headrace.replication.source_history import read_record
from headrace.testing import PostgresServer, TcpProxy
from receiving import Running, Source
from recvlogical import current_lsn


@contextmanager
def source_of(server: PostgresServer, root: Path) -> Iterator[Source]:
    with psycopg.connect(server.conninfo(), autocommit=True) as connection:
        yield Source(server.conninfo(), connection, root)


def receive(source: Source, first: int, last: int) -> Lsn:
    """Rows that have reached the spool; where WAL ends afterwards."""
    with source.receiving() as running:
        end = source.insert(first, last)
        running.wait(lambda status: status.spooled >= end)
    return end


def write(server: PostgresServer, first: int, last: int) -> Lsn:
    with psycopg.connect(server.conninfo(), autocommit=True) as connection:
        rows = "SELECT n, 'new' FROM generate_series(%s::int, %s::int) n"
        connection.execute(f"INSERT INTO t {rows}", (first, last))
        return current_lsn(connection)


def until_stored(source: Source) -> None:
    """Until it is recorded that the server has a confirmed position on disk that is not older than this call."""
    before = source.confirmed()

    def stored() -> bool:
        # Each moves restart_lsn once it is confirmed, and the server then stores the slot.
        source.connection.execute("CHECKPOINT")
        record = read_record(source.spool().place)
        return record is not None and record.confirmed >= before

    until(stored)


def refusal(source: Source) -> SourceWentBack:
    error = Running(source.config()).ended()
    assert isinstance(error, SourceWentBack)
    assert "invalidated_slot_behavior" in error.hint
    return error


def test_a_data_directory_put_back_is_noticed(tmp_path: Path) -> None:
    with PostgresServer() as server:
        with source_of(server, tmp_path) as source:
            receive(source, 1, 10)
        saved = server.save_data()
        with psycopg.connect(server.conninfo(), autocommit=True) as source.connection:
            end = receive(source, 11, 2000)
        server.restore_data(saved)
        new_end = write(server, 11, 20)
        assert new_end < end
        error = refusal(source)
        assert "WAL ends at" in str(error)
        assert source.inserted() == list(range(1, 2001))


def test_a_data_directory_put_back_is_noticed_though_its_wal_has_passed_the_old_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "INTERVAL_S", 0.02)
    with PostgresServer() as server:
        with source_of(server, tmp_path) as source:
            receive(source, 1, 10)
        saved = server.save_data()
        with psycopg.connect(server.conninfo(), autocommit=True) as source.connection:
            with source.receiving() as running:
                end = source.insert(11, 100)
                running.wait(lambda status: status.spooled >= end)
                until_stored(source)
            end = current_lsn(source.connection)
        server.restore_data(saved)
        assert write(server, 11, 5000) > end
        assert "confirmed position" in str(refusal(source))


def test_a_point_in_time_recovery_is_noticed(tmp_path: Path) -> None:
    with PostgresServer() as server:
        with source_of(server, tmp_path) as source:
            receive(source, 1, 10)
        saved = server.save_data()
        with psycopg.connect(server.conninfo(), autocommit=True) as source.connection:
            end = receive(source, 11, 100)
        server.restore_data(saved, new_timeline=True)
        assert write(server, 11, 5000) > end
        assert "timeline 1 was left at" in str(refusal(source))


def test_a_crash_of_the_server_is_no_step_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The slot's confirmed position is then the one on disk, which may be older than what was confirmed."""
    monkeypatch.setattr(watch, "INTERVAL_S", 0.02)
    with PostgresServer() as server, source_of(server, tmp_path) as source:
        with source.receiving() as running:
            end = source.insert(1, 100)
            running.wait(lambda status: status.spooled >= end)
            until_stored(source)
            for first in (101, 151):
                end = source.insert(first, first + 49)
                until(lambda end=end: source.confirmed() >= end)
        server.restart(signal.SIGQUIT)
        with psycopg.connect(server.conninfo(), autocommit=True) as source.connection:
            receive(source, 201, 300)
        assert source.inserted() == list(range(1, 301))


def test_a_spool_without_a_record_gets_one(tmp_path: Path) -> None:
    with PostgresServer() as server, source_of(server, tmp_path) as source:
        receive(source, 1, 10)
        place = source.spool().place
        place.delete("source.json")
        receive(source, 11, 20)
        record = read_record(place)
        assert record is not None
        assert record.timeline.id == 1
        assert source.inserted() == list(range(1, 21))


# -- failover: from 17 on standbys keep copies of slots ----------------------------------------------------------


@contextmanager
def replicated(version: int, root: Path) -> Iterator[tuple[PostgresServer, PostgresServer, TcpProxy, Source]]:
    """A primary whose slot its standby has a copy of, a proxy that leads to the primary, and the source behind it."""
    with (
        PostgresServer(version) as primary,
        primary.standby(slot="standby", settings={"sync_replication_slots": "on"}) as standby,
        TcpProxy(primary.port) as proxy,
        psycopg.connect(primary.conninfo(), autocommit=True) as connection,
    ):
        source = Source(primary.conninfo(port=proxy.port), connection, root)
        connection.execute("SELECT pg_drop_replication_slot(%s)", (source.slot,))
        connection.execute(
            "SELECT pg_create_logical_replication_slot(%s, 'pgoutput', failover => true)", (source.slot,)
        )
        yield primary, standby, proxy, source


def synchronize(source: Source, standby: PostgresServer) -> None:
    """Wait until the standby has a copy of the slot. It keeps one once the slot has moved on at the primary."""
    query = "SELECT NOT temporary FROM pg_replication_slots WHERE slot_name = %s"
    with psycopg.connect(standby.conninfo(), autocommit=True) as connection:

        def kept() -> bool:
            source.connection.execute("SELECT pg_log_standby_snapshot()")
            source.connection.execute("UPDATE t SET v = v WHERE id = 1")
            return connection.execute(query, (source.slot,)).fetchone() == (True,)

        until(kept)


def wait_replayed(standby: psycopg.Connection[Any], end: Lsn) -> None:
    query = "SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn"
    until(lambda: standby.execute(query, (str(end),)).fetchone() == (True,))


@pytest.mark.parametrize("version", [17, 18])
def test_a_failover_to_a_standby_that_has_everything_loses_nothing(version: int, tmp_path: Path) -> None:
    with replicated(version, tmp_path) as (primary, standby, proxy, source), source.receiving() as running:
        end = source.insert(1, 100)
        running.wait(lambda status: status.spooled >= end)
        synchronize(source, standby)
        end = source.insert(101, 200)
        running.wait(lambda status: status.spooled >= end)
        with psycopg.connect(standby.conninfo(), autocommit=True) as connection:
            wait_replayed(connection, end)
        primary.stop()
        standby.promote()
        new_end = write(standby, 201, 300)
        proxy.retarget(standby.port)
        running.wait(lambda status: status.spooled >= new_end)
        record = read_record(source.spool().place)
        assert record is not None
        assert [parent for parent, _ in record.timeline.ancestors] == [1]
        assert record.confirmed == INVALID_LSN
        assert source.inserted() == list(range(1, 301))


@pytest.mark.parametrize("version", [17, 18])
def test_a_failover_to_a_standby_that_lags_is_noticed(version: int, tmp_path: Path) -> None:
    with replicated(version, tmp_path) as (primary, standby, proxy, source):
        with source.receiving() as running:
            end = source.insert(1, 100)
            running.wait(lambda status: status.spooled >= end)
            synchronize(source, standby)
            with psycopg.connect(standby.conninfo(), autocommit=True) as connection:
                connection.execute("ALTER SYSTEM SET primary_conninfo = ''")
                connection.execute("SELECT pg_reload_conf()")
                gone = "SELECT count(*) FROM pg_stat_wal_receiver"
                until(lambda: connection.execute(gone).fetchone() == (0,))
            end = source.insert(101, 200)
            running.wait(lambda status: status.spooled >= end)
        primary.stop()
        standby.promote()
        assert write(standby, 101, 5000) > end
        proxy.retarget(standby.port)
        assert "timeline 1 was left at" in str(refusal(source))
