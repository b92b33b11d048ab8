from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from headrace.errors import SourceInRecovery, SourceWentBack
from headrace.lsn import INVALID_LSN, Lsn
from headrace.postgres.slots import SlotState
from headrace.replication.source_history import (
    ServerPosition,
    SourceHistory,
    SourceRecord,
    Timeline,
    read_record,
    write_record,
)
from headrace.spool.place import LocalPlace

FIRST = Timeline(1)
SECOND = Timeline(2, ((1, Lsn(1000)),))
THIRD = Timeline(3, ((1, Lsn(1000)), (2, Lsn(2000))))
READER = 77

SLOT = SlotState("s", "pgoutput", "d", True, READER, "reserved", Lsn(10), Lsn(100), None, None, None, None)


def server(timeline: Timeline, flushed: int = 5000, *, in_recovery: bool = False) -> ServerPosition:
    return ServerPosition(timeline, Lsn(flushed), in_recovery)


def test_a_history_file_is_read() -> None:
    text = "1\t0/3E8\tno recovery target specified\n\n# comment\n2\t0/7D0\tbefore 2026-11-18\n"
    assert Timeline.parse(3, text) == THIRD


@pytest.mark.parametrize(
    ("known", "now", "end"),
    [
        (FIRST, FIRST, 5000),
        (FIRST, SECOND, 1000),
        (FIRST, THIRD, 1000),
        (SECOND, THIRD, 2000),
        (SECOND, Timeline(2), 5000),
        (Timeline(2), SECOND, 5000),
        (Timeline(2), THIRD, 2000),
    ],
)
def test_a_server_that_continues(tmp_path: Path, known: Timeline, now: Timeline, end: int) -> None:
    place = LocalPlace(tmp_path)
    write_record(place, SourceRecord(known))
    SourceHistory(place).continue_from(server(now), Lsn(100), Lsn(end), READER)
    record = read_record(place)
    assert record is not None
    assert record.timeline.is_same(now)


@pytest.mark.parametrize(
    ("known", "now", "end"),
    [
        (FIRST, FIRST, 5001),
        (FIRST, SECOND, 1001),
        (FIRST, THIRD, 1001),
        (SECOND, THIRD, 2001),
        (SECOND, FIRST, 900),
        (SECOND, Timeline(2, ((1, Lsn(500)),)), 900),
        (SECOND, Timeline(3, ((1, Lsn(1000)),)), 900),
        (SECOND, Timeline(3), 900),
    ],
)
def test_a_server_that_went_back(tmp_path: Path, known: Timeline, now: Timeline, end: int) -> None:
    place = LocalPlace(tmp_path)
    write_record(place, SourceRecord(known))
    with pytest.raises(SourceWentBack):
        SourceHistory(place).continue_from(server(now), Lsn(100), Lsn(end), READER)
    assert read_record(place) == SourceRecord(known)


def test_a_standby_that_replays_again_is_waited_for(tmp_path: Path) -> None:
    history = SourceHistory(LocalPlace(tmp_path))
    with pytest.raises(SourceInRecovery):
        history.continue_from(server(FIRST, 4000, in_recovery=True), Lsn(100), Lsn(4500), READER)
    history.continue_from(server(FIRST, 4500, in_recovery=True), Lsn(100), Lsn(4500), READER)


def test_a_confirmed_position_counts_once_the_server_has_stored_it(tmp_path: Path) -> None:
    place = LocalPlace(tmp_path)
    history = SourceHistory(place)
    history.continue_from(server(FIRST), Lsn(100), Lsn(100), READER)
    for confirmed in (100, 200, 300):
        history.observe(replace(SLOT, confirmed_flush_lsn=Lsn(confirmed)))
    # A crash may take all of this back.
    assert read_record(place) == SourceRecord(FIRST, INVALID_LSN)
    history.continue_from(server(FIRST), Lsn(100), Lsn(300), READER)
    history.observe(replace(SLOT, confirmed_flush_lsn=Lsn(300)))
    history.observe(replace(SLOT, confirmed_flush_lsn=Lsn(400), restart_lsn=Lsn(20)))
    assert read_record(place) == SourceRecord(FIRST, Lsn(300))
    history.continue_from(server(FIRST), Lsn(300), Lsn(400), READER)
    with pytest.raises(SourceWentBack):
        history.continue_from(server(FIRST), Lsn(299), Lsn(400), READER)
    # A standby's copy of the slot is behind.
    history.continue_from(server(SECOND), Lsn(250), Lsn(400), READER)
    assert read_record(place) == SourceRecord(SECOND, INVALID_LSN)


def test_the_slot_of_another_reader_says_nothing(tmp_path: Path) -> None:
    """The watch may still be connected to a server that was failed over from."""
    place = LocalPlace(tmp_path)
    history = SourceHistory(place)
    history.continue_from(server(FIRST), Lsn(100), Lsn(100), READER)
    other = replace(SLOT, active_pid=78)
    history.observe(other)
    history.observe(replace(other, restart_lsn=Lsn(20)))
    history.observe(None)
    history.observe(replace(SLOT, restart_lsn=Lsn(30)))
    assert read_record(place) == SourceRecord(FIRST, INVALID_LSN)
