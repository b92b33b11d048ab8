"""The receiver against a real server: what it spools, what it confirms, and what it does when things break."""

from __future__ import annotations

import errno
import os
import signal
import threading
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest

from awaiting import until
from headrace.errors import (
    ConfigError,
    PublicationNotFound,
    SlotInUse,
    SlotInvalidated,
    SlotNotFound,
    SlotUndecodable,
    SpoolGap,
    SpoolIoError,
)
from headrace.lsn import Lsn
from headrace.pgoutput.decoder import decode
from headrace.pgoutput.envelope import envelope
from headrace.pgoutput.messages import Origin
from headrace.postgres.version import ServerVersion
from headrace.replication import receiver, watch
from headrace.replication.receiver import DECODING_TRIES
from headrace.spool.contract import Entry
from headrace.spool.place import LocalPlace
from headrace.testing import PostgresServer, TcpProxy
from receiving import Source
from undecodable import until_undecodable

pytestmark = pytest.mark.matrix

FILLER = "SELECT repeat('x', 1000) FROM generate_series(1, 2000) a"


def test_changes_reach_the_spool_and_are_confirmed(source: Source) -> None:
    with source.receiving() as running:
        end = source.insert(1, 100)
        running.wait(lambda status: status.spooled >= end)
        until(lambda: source.confirmed() >= end)
    assert source.inserted() == list(range(1, 101))


def test_stopping_publishes_and_confirms_what_is_complete(source: Source) -> None:
    # Given segments so old before they are published that only the stop can do it
    with source.receiving(source.config(segment_age_ms=60_000)) as running:
        end = source.insert(1, 10)
        running.wait(lambda status: status.received >= end)
        assert running.status.spooled < end
    assert source.inserted() == list(range(1, 11))
    # The server may still be reading the last report.
    until(lambda: source.confirmed() >= end)


def test_a_restart_continues_where_the_spool_ends(source: Source) -> None:
    for first in (1, 11, 21):
        with source.receiving() as running:
            end = source.insert(first, first + 9)
            running.wait(lambda status, end=end: status.spooled >= end)
    assert source.inserted() == list(range(1, 31))


@pytest.mark.parametrize("streaming", [True, False])
def test_a_transaction_larger_than_a_segment(source: Source, streaming: bool) -> None:
    source.connection.execute(f"ALTER DATABASE {source.connection.info.dbname} SET logical_decoding_work_mem = '64kB'")
    config = source.config(segment_bytes=64 * 1024).model_copy(update={"streaming": streaming})
    with source.receiving(config) as running:
        source.insert(1, 5)
        end = source.insert(6, 20_000, size=100)
        running.wait(lambda status: status.spooled >= end, 60)
    assert source.inserted() == list(range(1, 20_001))
    assert max(len(segment.names) for segment in source.spool().segments()) > 2
    assert list(source.spool().place.staging.iterdir()) == []


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("name", ["a", "elsewhere"])
def test_a_transaction_with_a_replication_origin(source: Source, name: str, streaming: bool) -> None:
    source.connection.execute(f"ALTER DATABASE {source.connection.info.dbname} SET logical_decoding_work_mem = '64kB'")
    source.connection.execute("SELECT pg_replication_origin_create(%s)", (name,))
    try:
        with source.receiving(source.config().model_copy(update={"streaming": streaming})) as running:
            source.connection.execute("SELECT pg_replication_origin_session_setup(%s)", (name,))
            end = source.insert(1, 5000, size=100)
            running.wait(lambda status: status.spooled >= end)
    finally:
        source.connection.execute("SELECT pg_replication_origin_session_reset()")
        source.connection.execute("SELECT pg_replication_origin_drop(%s)", (name,))
    spool = source.spool()
    batches = list(spool.batches(spool.segments()))
    messages = [batch.message(index) for batch in batches for index in range(len(batch))]
    assert {decode(message) for message in messages if message[:1] == b"O"} == {Origin(Lsn(0), name)}
    assert sum(int(np.count_nonzero(envelope(batch).kind == ord("I"))) for batch in batches) == 5000
    assert source.inserted() == list(range(1, 5001))


def test_a_transaction_that_the_server_cannot_stream(source: Source) -> None:
    """Tables altered in savepoints that are rolled back: decoded while it runs, the server ends with an error."""
    source.connection.execute(f"ALTER DATABASE {source.connection.info.dbname} SET logical_decoding_work_mem = '64kB'")
    rows = "INSERT INTO t (id, v) SELECT n, repeat('x', 500) FROM generate_series({}, {}) n"
    with source.receiving() as running:
        with source.connection.transaction():
            for statement in (
                "SAVEPOINT a", "ALTER TABLE t ADD m0 int", "SAVEPOINT b", "ALTER TABLE t ADD m1 int",
                rows.format(1, 2000), "ROLLBACK TO b", rows.format(1, 2000), "ALTER TABLE t ADD n int",
            ):  # fmt: skip
                source.connection.execute(statement)
        end = source.insert(2001, 2010)
        running.wait(lambda status: status.spooled >= end)
        assert running.status.reconnects == 1
        # The next connection streams again.
        source.connection.execute("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active")
        end = source.insert(2011, 9000, size=100)
        running.wait(lambda status: status.spooled >= end)
    assert source.inserted() == list(range(1, 9001))


def test_without_a_durable_spool_only_what_was_applied_is_confirmed(source: Source) -> None:
    with source.receiving(source.config(durable=False)) as running:
        middle = source.insert(1, 10)
        end = source.insert(11, 20)
        running.wait(lambda status: status.spooled >= end)
        first, last = (segment.end for segment in (source.spool().segments()[0], source.spool().segments()[-1]))
        running.receiver.apply(first)
        running.wait(lambda status: status.confirmed >= first)
        assert source.confirmed() < end or first == last
        running.receiver.apply(end)
        running.wait(lambda status: status.confirmed >= end)
        until(lambda: source.confirmed() >= end > middle)


def test_an_idle_slot_follows_a_busy_database(source: Source) -> None:
    # Given a published table without changes, next to one that is not published
    with source.receiving():
        for _ in range(3):
            source.connection.execute(
                "INSERT INTO unpublished (filler) SELECT repeat('x', 500) FROM generate_series(1, 2000)"
            )
            row = source.connection.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
            assert row is not None
            written = Lsn.parse(row[0])
            # Then the slot follows within seconds, and lets go of the WAL (a checkpoint tells it how far it may)
            until(lambda written=written: source.confirmed() >= written)
            source.connection.execute("CHECKPOINT")
            until(lambda: source.retained_bytes() < 1024 * 1024)
    # And the spool is as empty as it was
    assert source.spool().segments() == []
    # And after a restart the receiver goes on from there
    with source.receiving() as running:
        end = source.insert(1, 3)
        running.wait(lambda status: status.spooled >= end)
    assert source.inserted() == [1, 2, 3]


def test_applied_segments_are_released(source: Source) -> None:
    with source.receiving(source.config(keep_seconds=0)) as running:
        for first in range(1, 41, 10):
            end = source.insert(first, first + 9)
            running.wait(lambda status, end=end: status.spooled >= end)
        before = len(source.spool().segments())
        running.receiver.apply(end)
        until(lambda: len(source.spool().segments()) < before)
        # The newest stays: it says where the spool ends.
        assert source.spool().segments()[-1].end >= end or running.status.covered >= end
        assert running.wait(lambda status: status.unapplied_bytes == 0)


def test_a_full_quota_pauses_reading_and_applying_resumes_it(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiver, "HANG_UP_S", 600)
    with source.receiving(source.config(quota_bytes=1024 * 1024, segment_bytes=64 * 1024)) as running:
        for first in range(1, 101, 10):
            end = source.insert(first, first + 9, size=30_000)
        running.wait(lambda status: status.state == "paused")
        assert source.spool().size() < 3 * 1024 * 1024
        # The pipeline applies what is there, again and again, until the rest has come.
        while running.status.spooled < end:
            running.receiver.apply(running.status.spooled)
            running.wait(lambda status: status.spooled >= running.status.spooled)
    assert running.status.reconnects == 0


# -- broken connections -------------------------------------------------------------------------------------------


def test_a_terminated_walsender(source: Source) -> None:
    with source.receiving() as running:
        for times, first in enumerate(range(1, 51, 10), 1):
            running.wait(lambda status: status.state == "streaming")
            source.insert(first, first + 9)
            query = "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = %s AND active"
            source.connection.execute(query, (source.slot,))
            running.wait(lambda status, times=times: status.reconnects >= times)
        end = source.insert(51, 60)
        running.wait(lambda status: status.spooled >= end)
    assert source.inserted() == list(range(1, 61))


def test_a_network_that_goes_away_and_comes_back(postgres: PostgresServer, source: Source) -> None:
    with TcpProxy(postgres.port) as proxy:
        through = psycopg.conninfo.make_conninfo(source.conninfo, port=proxy.port)
        with source.receiving(source.config(through)) as running:
            end = source.insert(1, 10)
            running.wait(lambda status: status.spooled >= end)
            proxy.refuse()
            assert running.wait(lambda status: status.state == "retrying").problem is not None
            end = source.insert(11, 20)
            proxy.heal()
            running.wait(lambda status: status.spooled >= end)
    assert source.inserted() == list(range(1, 21))


def test_a_connection_that_is_open_but_leads_nowhere(
    postgres: PostgresServer, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "INTERVAL_S", 0.02)
    with TcpProxy(postgres.port) as proxy:
        conninfo = psycopg.conninfo.make_conninfo(source.conninfo, port=proxy.port)
        config = source.config(conninfo).model_copy(update={"probe_after_ms": 300, "silence_timeout_ms": 3000})
        with source.receiving(config) as running:
            end = source.insert(1, 10)
            running.wait(lambda status: status.spooled >= end)
            # Far longer than the server is silent by itself: it replies when asked, and the connection stays.
            threading.Event().wait(4)
            assert running.status.reconnects == 0
            proxy.stall()
            end = source.insert(11, 20)
            status = running.wait(lambda status: status.state == "retrying")
            assert "silent" in str(status.problem)
            proxy.heal()
            running.wait(lambda status: status.spooled >= end)
            # The connection that watches the publication was as dead.
            if ServerVersion.of(source.connection).major >= 18:
                source.connection.execute("DROP PUBLICATION p")
                assert isinstance(running.ended(), PublicationNotFound)
    assert source.inserted() == list(range(1, 21))


def test_keepalives_are_answered_while_the_disk_is_slow(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    # Given a server that hangs up after three seconds without an answer, and a disk that takes six
    monkeypatch.setattr(receiver, "HANG_UP_S", 600)
    source.connection.execute(f"ALTER DATABASE {source.connection.info.dbname} SET wal_sender_timeout = '3s'")
    slow = threading.Event()
    publish = LocalPlace.publish

    def slowly(place: LocalPlace, staged: Path, name: str) -> None:
        if name.endswith(".arrow") and not slow.is_set():
            slow.wait(6)
            slow.set()
        publish(place, staged, name)

    monkeypatch.setattr(LocalPlace, "publish", slowly)
    config = source.config(segment_bytes=64 * 1024).model_copy(update={"backlog_bytes": 64 * 1024})
    with source.receiving(config) as running:
        end = source.insert(1, 20_000, size=100)
        running.wait(lambda status: status.spooled >= end)
    # Then the connection survived, though reading had to pause
    assert slow.is_set()
    assert running.status.reconnects == 0
    assert source.inserted() == list(range(1, 20_001))


def test_a_full_disk_pauses_and_nothing_is_lost(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    full = threading.Event()
    fsync = os.fsync

    def refuse(descriptor: int) -> None:
        if full.is_set():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", refuse)
    with source.receiving() as running:
        end = source.insert(1, 10)
        running.wait(lambda status: status.spooled >= end)
        full.set()
        end = source.insert(11, 5_000, size=100)
        told = running.wait(lambda status: status.problem is not None)
        assert "No space left" in str(told.problem)
        assert source.confirmed() < end
        full.clear()
        running.wait(lambda status: status.spooled >= end)
    assert running.status.problem is None
    assert source.inserted() == list(range(1, 5_001))


def lose_newest_names(segments: list[Path]) -> None:
    segments[-2].unlink()


def zero_newest(segments: list[Path]) -> None:
    for path in segments[-2:]:
        path.write_bytes(bytes(path.stat().st_size))


def empty_newest(segments: list[Path]) -> None:
    segments[-1].write_bytes(b"")


@pytest.mark.parametrize("damage", [zero_newest, empty_newest, lose_newest_names])
def test_a_spool_that_is_not_durable_after_a_power_cut(source: Source, damage: Callable[[list[Path]], None]) -> None:
    config = source.config(durable=False)
    with source.receiving(config) as running:
        for first in range(1, 400, 100):
            end = source.insert(first, first + 99)
            running.wait(lambda status, end=end: status.spooled >= end)
        running.receiver.apply(source.spool().segments()[0].end)
    # The server may still be reading the last report.
    until(lambda: not source.active())
    confirmed = source.confirmed()
    damage(sorted((source.root / "spool").glob("*.arrow")))
    with source.receiving(config) as running:
        end = source.insert(401, 500)
        running.wait(lambda status: status.spooled >= end)
        # Nothing was confirmed that was not applied: the server has it all.
        assert source.confirmed() == confirmed
    spooled = [name for segment in source.spool().segments(confirmed) for name in segment.names]
    assert spooled
    assert source.inserted()[-400:] == list(range(101, 501))


# -- things an operator must mend ---------------------------------------------------------------------------------


def test_a_slot_read_by_someone_else_is_named_with_its_pid_and_waited_for(source: Source) -> None:
    with source.receiving() as first:
        first.wait(lambda status: status.state == "streaming")
        other = source.config(uri=str(source.root / "other"))
        with source.receiving(other) as second:
            told = second.wait(lambda status: status.problem is not None)
            assert isinstance(told.problem, SlotInUse)
            query = "SELECT active_pid FROM pg_replication_slots WHERE slot_name = %s"
            row = source.connection.execute(query, (source.slot,)).fetchone()
            assert row is not None
            assert str(row[0]) in str(told.problem)


def test_a_missing_slot(source: Source) -> None:
    source.connection.execute("SELECT pg_drop_replication_slot(%s)", (source.slot,))
    with source.receiving() as running:
        assert isinstance(running.ended(), SlotNotFound)
    assert source.spool().position() is None


def test_a_slot_of_another_database_ends_it_at_once(postgres: PostgresServer, source: Source) -> None:
    with postgres.database() as elsewhere, psycopg.connect(elsewhere, autocommit=True) as connection:
        connection.execute("SELECT pg_create_logical_replication_slot('elsewhere', 'pgoutput')")
        config = source.config().model_copy(update={"slot_name": "elsewhere"})
        with source.receiving(config) as running:
            error = running.ended()
        assert isinstance(error, ConfigError)
        assert connection.info.dbname in str(error)
        assert source.connection.info.dbname in str(error)


def test_a_spool_behind_its_slot_is_a_gap(source: Source) -> None:
    with source.receiving() as running:
        end = source.insert(1, 10)
        running.wait(lambda status: status.spooled >= end)
    # Given someone else has moved the slot
    end = source.insert(11, 20)
    until(lambda: not source.active())
    source.connection.execute("SELECT pg_replication_slot_advance(%s, %s)", (source.slot, str(end)))
    with source.receiving() as running:
        error = running.ended()
    assert isinstance(error, SpoolGap)
    assert source.slot in str(error)
    assert source.inserted() == list(range(1, 11))


def test_a_slot_moved_by_someone_else_while_we_were_away_is_a_gap(postgres: PostgresServer, source: Source) -> None:
    # Given a receiver that lost its connection
    with TcpProxy(postgres.port) as proxy:
        through = psycopg.conninfo.make_conninfo(source.conninfo, port=proxy.port)
        with source.receiving(source.config(through)) as running:
            end = source.insert(1, 1)
            running.wait(lambda status: status.spooled >= end)
            proxy.refuse()
            # When another reader takes what it did not get
            end = source.insert(2, 2)
            until(lambda: not source.active())
            source.connection.execute("SELECT pg_replication_slot_advance(%s, %s)", (source.slot, str(end)))
            proxy.heal()
            # Then it says so, instead of going on behind the hole
            assert isinstance(running.ended(), SpoolGap)
    assert source.inserted() == [1]


def test_a_place_that_fails_for_a_moment_is_tried_again(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    failing = threading.Event()
    entries = LocalPlace.entries

    def sometimes(place: LocalPlace) -> list[Entry]:
        if failing.is_set():
            failing.clear()
            raise SpoolIoError("cannot list the spool", detail="injected")
        return entries(place)

    monkeypatch.setattr(LocalPlace, "entries", sometimes)
    with source.receiving() as running:
        running.wait(lambda status: status.state == "streaming")
        failing.set()
        query = "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = %s AND active"
        source.connection.execute(query, (source.slot,))
        running.wait(lambda status: status.reconnects >= 1)
        end = source.insert(1, 5)
        running.wait(lambda status: status.spooled >= end)
    assert not failing.is_set()
    assert source.inserted() == [1, 2, 3, 4, 5]


def test_a_spool_of_another_slot_is_refused(source: Source) -> None:
    with source.receiving() as running:
        end = source.insert(1, 10)
        running.wait(lambda status: status.spooled >= end)
    other = f"other_{source.slot}"
    source.connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (other,))
    with source.receiving(source.config().model_copy(update={"slot_name": other})) as running:
        error = running.ended()
    assert isinstance(error, ConfigError)
    assert source.slot in str(error)


def test_what_a_crash_left_in_the_spool_is_cleaned(source: Source) -> None:
    with source.receiving() as running:
        end = source.insert(1, 10)
        running.wait(lambda status: status.spooled >= end)
    root = Path(source.config().spool.uri)
    (root / "staging" / "half").write_bytes(b"half a segment")
    last = source.spool().segments()[-1]
    (root / f"{int(last.end):016X}-{int(last.end) + 999:016X}.0001-0002.arrow").write_bytes(b"a part without its other")
    with source.receiving() as running:
        end = source.insert(11, 20)
        running.wait(lambda status: status.spooled >= end)
    assert source.inserted() == list(range(1, 21))
    assert list((root / "staging").iterdir()) == []


@pytest.mark.parametrize("when", ["before", "while streaming"])
def test_a_publication_that_is_not_there(source: Source, when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "INTERVAL_S", 0.2)
    if when == "before":
        source.connection.execute("DROP PUBLICATION p")
    with source.receiving() as running:
        if when == "while streaming":
            running.wait(lambda status: status.state == "streaming")
            source.connection.execute("DROP PUBLICATION p")
        source.insert(1, 10)
        error = running.ended()
    assert isinstance(error, PublicationNotFound)
    assert "publication p " in str(error)


def _invalidate(connection: psycopg.Connection[Any]) -> None:
    for _ in range(5):
        connection.execute(f"INSERT INTO unpublished (filler) {FILLER} CROSS JOIN generate_series(1, 10)")
        connection.execute("SELECT pg_switch_wal()")
    connection.execute("CHECKPOINT")


def test_a_slot_whose_wal_is_gone(tmp_path: Path) -> None:
    settings = {"max_slot_wal_keep_size": "16MB", "max_wal_size": "32MB", "min_wal_size": "32MB"}
    with (
        PostgresServer(settings=settings) as server,
        server.database() as conninfo,
        psycopg.connect(conninfo, autocommit=True) as connection,
    ):
        source = Source(conninfo, connection, tmp_path)
        # A quota so small that the receiver stops reading, and the slot falls behind while it is connected
        with source.receiving(source.config(quota_bytes=1024 * 1024, segment_bytes=64 * 1024)) as running:
            source.insert(1, 60, size=100_000)
            running.wait(lambda status: status.state == "paused")
            source.insert(61, 160, size=100_000)
            _invalidate(connection)
            error = running.ended()
    assert isinstance(error, SlotInvalidated)


def test_a_transaction_that_the_server_can_never_decode(tmp_path: Path) -> None:
    with (
        PostgresServer() as server,
        server.database() as conninfo,
        psycopg.connect(conninfo, autocommit=True) as connection,
    ):
        source = Source(conninfo, connection, tmp_path)
        said = until_undecodable(conninfo, source.slot, "p")
        confirmed = source.confirmed()
        with source.receiving() as running:
            error = running.ended()
            assert isinstance(error, SlotUndecodable)
            assert running.status.reconnects == DECODING_TRIES - 1
        assert said in str(error.detail)
        assert source.slot in str(error)
        assert "invalidated_slot_behavior" in str(error.hint)
        assert source.confirmed() == confirmed


def test_a_row_filter_that_fails_for_a_row(source: Source) -> None:
    if not ServerVersion.of(source.connection).row_filters:
        return
    source.connection.execute("ALTER PUBLICATION p SET TABLE t WHERE (1000 / id > 0)")
    with source.receiving() as running:
        end = source.insert(1, 10)
        running.wait(lambda status: status.spooled >= end)
        source.insert(0, 0)
        # None of it helps: WAL is read with the filter of its time.
        source.connection.execute("ALTER PUBLICATION p SET TABLE t")
        error = running.ended()
    assert isinstance(error, SlotUndecodable)
    assert error.sqlstate == "22012"
    assert "row filter" in str(error)
    assert "invalidated_slot_behavior" in error.hint
    assert source.inserted() == list(range(1, 11))


def test_a_text_that_the_server_cannot_convert(postgres: PostgresServer, tmp_path: Path) -> None:
    name = f"ascii_{tmp_path.parent.name.replace('-', '_')}"
    with psycopg.connect(postgres.conninfo(), autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name} ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0")
        try:
            with psycopg.connect(postgres.conninfo(name), autocommit=True) as connection:
                source = Source(postgres.conninfo(name), connection, tmp_path)
                with source.receiving() as running:
                    connection.execute(r"INSERT INTO t VALUES (1, E'secret \xe9')")
                    error = running.ended()
                connection.execute("SELECT pg_drop_replication_slot(%s)", (source.slot,))
        finally:
            admin.execute(f"DROP DATABASE {name} WITH (FORCE)")
    assert isinstance(error, SlotUndecodable)
    assert error.sqlstate == "22021"
    assert "SQL_ASCII" in str(error)
    assert "0xe9" not in str(error)


def test_a_server_that_crashes_and_one_that_is_restarted(tmp_path: Path) -> None:
    with ExitStack() as stack:
        server = stack.enter_context(PostgresServer())
        conninfo = stack.enter_context(server.database())
        connect = partial(psycopg.connect, conninfo, autocommit=True)
        source = Source(conninfo, stack.enter_context(connect()), tmp_path)
        with source.receiving() as running:
            end = source.insert(1, 10)
            running.wait(lambda status: status.spooled >= end)
            for first, how in ((11, signal.SIGQUIT), (21, signal.SIGINT)):
                source.connection.close()
                server.restart(how)
                source.connection = stack.enter_context(connect())
                end = source.insert(first, first + 9)
                running.wait(lambda status, end=end: status.spooled >= end, 60)
        assert source.inserted() == list(range(1, 31))
