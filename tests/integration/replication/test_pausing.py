"""A receiver that is told to pause reads nothing, answers the server, loses nothing, and goes on when told to."""

from __future__ import annotations

import threading
from datetime import datetime

import pytest

from awaiting import until
from headrace.errors import SlotNotFound
from headrace.lsn import INVALID_LSN, Lsn
from headrace.replication import Receiver, ReceiverProcess, ReceiverStatus, receiver
from receiving import Running, Source


def paused(status: ReceiverStatus) -> bool:
    return status.state == "paused"


def sent_and_answered(source: Source, end: Lsn) -> None:
    """Wait until the server has sent everything up to `end`, and then heard from the receiver again."""
    query = "SELECT reply_time, sent_lsn >= %s::pg_lsn FROM pg_stat_replication WHERE pid = %s"
    pid = source.connection.execute(
        "SELECT active_pid FROM pg_replication_slots WHERE slot_name = %s", (source.slot,)
    ).fetchone()
    assert pid is not None

    def ask() -> tuple[datetime, bool]:
        row = source.connection.execute(query, (str(end), pid[0])).fetchone()
        assert row is not None, "the receiver hung up"
        return row

    until(lambda: ask()[1])
    first = ask()[0]
    until(lambda: ask()[0] > first)


def test_it_reads_nothing_answers_and_goes_on(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiver, "HANG_UP_S", 600)
    with source.receiving() as running:
        end = source.insert(1, 10)
        running.wait(lambda status: status.spooled >= end)
        running.receiver.pause()
        running.receiver.pause()
        running.wait(paused)
        later = source.insert(11, 20)
        sent_and_answered(source, later)
        assert paused(running.status)
        assert running.status.received < later
        assert source.inserted() == list(range(1, 11))
        running.receiver.resume()
        running.wait(lambda status: status.spooled >= later)
        running.wait(lambda status: status.state == "streaming" and status.confirmed >= later)
    assert source.inserted() == list(range(1, 21))
    assert running.status.reconnects == 0


def test_a_long_pause_holds_no_connection(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiver, "HANG_UP_S", 0.05)
    with source.receiving() as running:
        end = source.insert(1, 10)
        running.wait(lambda status: status.spooled >= end)
        running.receiver.pause()
        until(lambda: not source.active())
        later = source.insert(11, 20)
        until(lambda: paused(running.status))
        running.receiver.resume()
        running.wait(lambda status: status.spooled >= later)
    assert source.inserted() == list(range(1, 21))
    assert running.status.reconnects == 1


@pytest.mark.parametrize("hang_up_s", [0.0, 600.0])
def test_pauses_amid_transactions_lose_and_double_nothing(
    source: Source, monkeypatch: pytest.MonkeyPatch, hang_up_s: float
) -> None:
    monkeypatch.setattr(receiver, "HANG_UP_S", hang_up_s)
    monkeypatch.setattr("headrace.replication.wire.READ_BYTES", 64 * 1024)
    with source.receiving() as running:
        running.wait(lambda status: status.state == "streaming")
        for first in range(1, 5001, 1000):
            # Read in pieces of 64 kB, so that the pause falls within the transaction.
            told = len(running.statuses)
            end = source.insert(first, first + 999, size=1000)
            running.receiver.pause()
            running.wait(paused, since=told)
            told = len(running.statuses)
            running.receiver.resume()
            # Else the next pause may come before this one has ended, and nothing new would be told.
            running.wait(lambda status: not paused(status), since=told)
        running.wait(lambda status: status.spooled >= end)
    assert source.inserted() == list(range(1, 5001))


def test_a_slot_lost_during_a_pause_is_noticed_though_tables_go_on_applying(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receiver, "HANG_UP_S", 0.05)
    monkeypatch.setattr(receiver, "SLOT_CHECK_INTERVAL_S", 0.3)
    done = threading.Event()

    def keep_applying(running: Running) -> None:
        while not done.wait(0.01):
            running.receiver.apply(INVALID_LSN)

    with source.receiving() as running:
        running.wait(lambda status: status.state == "streaming")
        running.receiver.pause()
        until(lambda: not source.active())
        applying = threading.Thread(target=keep_applying, args=(running,))
        applying.start()
        source.connection.execute("SELECT pg_drop_replication_slot(%s)", (source.slot,))
        try:
            assert isinstance(running.ended(), SlotNotFound)
        finally:
            done.set()
            applying.join()


def test_one_that_is_paused_before_it_runs_does_not_connect(source: Source) -> None:
    statuses: list[ReceiverStatus] = []
    waiting = threading.Event()

    def note(status: ReceiverStatus) -> None:
        statuses.append(status)
        if paused(status):
            waiting.set()

    held = Receiver(source.config(), note)
    held.pause()
    thread = threading.Thread(target=held.run)
    thread.start()
    assert waiting.wait(30)
    held.stop()
    thread.join(30)
    assert [status.state for status in statuses] == ["connecting", "paused", "stopped"]


def test_the_process_pauses_and_resumes(source: Source) -> None:
    with ReceiverProcess(source.config()) as process:
        end = source.insert(1, 10)
        process.wait(lambda status: status.spooled >= end, 90)
        process.pause()
        process.wait(paused, 90)
        later = source.insert(11, 20)
        process.apply(end)
        process.wait(lambda status: status.applied >= end, 90)
        assert process.status.received < later
        process.resume()
        process.wait(lambda status: status.spooled >= later, 90)
        process.pause()
        process.wait(paused, 90)
    assert process.status.state == "stopped"
    assert source.inserted() == list(range(1, 21))
