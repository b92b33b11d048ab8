from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import numpy as np
import pytest
from structlog.testing import capture_logs

from headrace.errors import SpoolGap, SpoolIoError
from headrace.lsn import Lsn
from headrace.spool import SegmentIndex, SegmentName, Spool, SpoolPosition
from headrace.spool.name import IdleMark
from headrace.spool.place import LocalPlace


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(LocalPlace(tmp_path / "spool"))


def put(spool: Spool, start: int, end: int, part: int = 1, parts: int = 1, content: bytes = b"M") -> SegmentName:
    path, name = spool.stage(), SegmentName(Lsn(start), Lsn(end), part, parts)
    lengths = np.asarray([len(content)], dtype=np.int64)
    spool.write(path, np.asarray([start], dtype=np.uint64), lengths, [content], SegmentIndex({}))
    spool.publish(path, name)
    spool.sync()
    return name


def ranges(spool: Spool, after: int | None = None) -> list[tuple[int, int]]:
    return [(s.start, s.end) for s in spool.segments(None if after is None else Lsn(after))]


def test_segments_come_in_order_from_a_position(spool: Spool) -> None:
    for start, end in [(30, 40), (10, 20), (20, 30)]:
        put(spool, start, end)
    assert ranges(spool) == [(10, 20), (20, 30), (30, 40)]
    assert ranges(spool, 20) == [(20, 30), (30, 40)]
    assert ranges(spool, 25) == [(20, 30), (30, 40)]
    assert ranges(spool, 40) == []


def test_a_hole_is_an_error(spool: Spool) -> None:
    put(spool, 10, 20)
    put(spool, 21, 30)
    with pytest.raises(SpoolGap, match="0/14 and 0/15"):
        spool.segments()
    with pytest.raises(SpoolGap):
        spool.segments(Lsn(5))
    assert ranges(spool, 21) == [(21, 30)]


def test_what_lies_before_a_new_beginning_is_missing(spool: Spool) -> None:
    put(spool, 10, 20)
    spool.reset(Lsn(50))
    assert ranges(spool, 50) == []
    # Given a reader that had not read everything when the spool was lost
    with pytest.raises(SpoolGap, match="0/28 and 0/32"):
        spool.segments(Lsn(40))


def test_the_last_segment_is_missed_if_an_idle_mark_tells_of_it(spool: Spool) -> None:
    put(spool, 10, 20)
    last = put(spool, 20, 30)
    spool.mark_idle(IdleMark(Lsn(30), Lsn(60)))
    spool.place.delete(str(last))
    with pytest.raises(SpoolGap, match="0/14 and 0/1E"):
        spool.segments(Lsn(10))
    assert ranges(spool, 30) == []


def test_damaged_idle_marks(spool: Spool) -> None:
    put(spool, 10, 20)
    mark = IdleMark(Lsn(20), Lsn(60))
    spool.mark_idle(mark)
    root = Path(spool.place.location)
    # Only their names count.
    (root / str(mark)).write_bytes(b"garbage")
    assert spool.position() == SpoolPosition(Lsn(20), Lsn(60))
    # A name that is none is nobody's, and the spool ends where its last segment does.
    (root / str(mark)).rename(root / f"x{mark}")
    assert spool.position() == SpoolPosition(Lsn(20), Lsn(20))


def test_an_earlier_format_is_warned_of_once(spool: Spool) -> None:
    names = [put(spool, start, start + 10) for start in (10, 20)]
    with capture_logs() as logs:
        assert [spool.index(name).name for name in names] == [None, None]
    assert [entry["segment"] for entry in logs] == [str(names[0])]


def test_what_a_dying_receiver_published_late_does_no_harm(spool: Spool) -> None:
    put(spool, 10, 20)
    put(spool, 20, 25)  # the old receiver's last
    put(spool, 20, 30)  # its successor read the same changes again
    assert ranges(spool, 20) == [(20, 25), (20, 30)]
    assert ranges(spool, 25) == [(20, 30)]


def test_parts_count_once_all_are_there(spool: Spool) -> None:
    put(spool, 10, 20)
    first = put(spool, 20, 90, 1, 3)
    put(spool, 20, 90, 3, 3)
    assert ranges(spool) == [(10, 20)]
    assert spool.position() == SpoolPosition(Lsn(20), Lsn(20))
    put(spool, 20, 90, 2, 3)
    assert ranges(spool) == [(10, 20), (20, 90)]
    assert spool.segments()[1].names[0] == first
    assert [name.part for name in spool.segments()[1].names] == [1, 2, 3]


def test_cleaning_removes_what_a_crash_left(spool: Spool) -> None:
    put(spool, 10, 20)
    put(spool, 20, 90, 1, 2)
    spool.stage().write_bytes(b"half a segment")
    spool.clean(Lsn(20))
    assert [entry.name for entry in spool.place.entries()] == [str(SegmentName(Lsn(10), Lsn(20)))]
    assert list(spool.place.staging.iterdir()) == []


def test_cleaning_keeps_parts_of_a_segment_that_was_confirmed(spool: Spool) -> None:
    """A stale listing may lack a part that is there."""
    put(spool, 10, 20)
    part = put(spool, 20, 90, 1, 2)
    spool.clean(Lsn(90))
    assert str(part) in {entry.name for entry in spool.place.entries()}


def test_an_untouched_spool_has_no_position(spool: Spool) -> None:
    assert spool.position() is None


def test_the_position_survives_idleness_and_the_next_segment_continues_the_chain(spool: Spool) -> None:
    spool.reset(Lsn(10))
    assert spool.position() == SpoolPosition(Lsn(10), Lsn(10))
    put(spool, 10, 20)
    spool.mark_idle(IdleMark(Lsn(20), Lsn(50)))
    spool.mark_idle(IdleMark(Lsn(20), Lsn(70)), IdleMark(Lsn(20), Lsn(50)))
    assert spool.position() == SpoolPosition(Lsn(20), Lsn(70))
    put(spool, 20, 80)
    assert spool.position() == SpoolPosition(Lsn(80), Lsn(80))
    assert ranges(spool) == [(10, 20), (20, 80)]


def test_release_needs_position_and_age_and_keeps_the_newest(spool: Spool) -> None:
    for start in (10, 20, 30):
        put(spool, start, start + 10)
    assert spool.release(Lsn(25), keep_seconds=3600) == 0
    freed = spool.release(Lsn(25), keep_seconds=0)
    assert freed > 0
    assert ranges(spool) == [(20, 30), (30, 40)]
    spool.release(Lsn(1000), keep_seconds=0)
    assert ranges(spool) == [(30, 40)]
    assert spool.position() == SpoolPosition(Lsn(40), Lsn(40))


def test_reset_forgets_everything(spool: Spool) -> None:
    put(spool, 10, 20)
    spool.reset(Lsn(500))
    assert ranges(spool) == []
    assert spool.position() == SpoolPosition(Lsn(500), Lsn(500))


def test_size_counts_what_is_not_applied(spool: Spool) -> None:
    put(spool, 10, 20, content=bytes(1000))
    put(spool, 20, 30, content=bytes(5000))
    assert spool.size() > spool.size(Lsn(20)) > 5000
    assert spool.size(Lsn(30)) == 0


def test_a_failed_fsync_leaves_nothing_behind(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    # Given a disk that is found to be full only when the pages are written out
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    # When a segment is written
    with pytest.raises(SpoolIoError, match="No space left"):
        put(spool, 10, 20)
    # Then no half-written file can be taken for a whole one
    assert list(spool.place.staging.iterdir()) == []
    assert spool.segments() == []


def test_a_clock_set_back_does_not_keep_segments_for_ever(spool: Spool) -> None:
    names = [put(spool, start, start + 10) for start in (10, 20)]
    tomorrow = time.time() + 86_400
    os.utime(spool.place.root / str(names[0]), (tomorrow, tomorrow))  # type: ignore[attr-defined]
    assert spool.release(Lsn(1000), keep_seconds=60) > 0
    assert ranges(spool) == [(20, 30)]
