"""Small files of the spool, and segments, damaged: what is read is what was written, or an error."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from damaging import damaged
from headrace.errors import SpoolCorrupt
from headrace.lsn import Lsn
from headrace.replication.source_history import SourceRecord, Timeline, read_record, write_record
from headrace.spool import SegmentIndex, SegmentName, Spool, TableIndex
from headrace.spool.owner import SpoolOwner, claim, owner_of
from headrace.spool.place import LocalPlace

OWNER = SpoolOwner("7423516161277", "shop", "headrace_1")
RECORD = SourceRecord(Timeline(3, ((1, Lsn(0x3000150)), (2, Lsn(0x4000150)))), Lsn(0x5000150))
SEGMENT = SegmentName(Lsn(0x100), Lsn(0x200))


def assert_same_or_refused(path: Path, read: Callable[[], object], flips: int = 100_000) -> None:
    whole, content = read(), path.read_bytes()
    refused = 0
    for what, damage in damaged(content, 1, flips, 50):
        path.write_bytes(damage)
        try:
            assert read() == whole, what
        except SpoolCorrupt as error:
            refused += 1
            message = str(error)
        else:
            continue
        assert str(path) in message, what
    assert refused


def test_the_owner(tmp_path: Path) -> None:
    place = LocalPlace(tmp_path)
    claim(place, OWNER)
    assert owner_of(place) == OWNER
    assert_same_or_refused(tmp_path / "owner.json", lambda: owner_of(place))


def test_the_record_of_the_source(tmp_path: Path) -> None:
    place = LocalPlace(tmp_path)
    write_record(place, RECORD)
    assert read_record(place) == RECORD
    assert_same_or_refused(tmp_path / "source.json", lambda: read_record(place))


def test_segments(tmp_path: Path) -> None:
    spool = Spool(LocalPlace(tmp_path))
    staged = spool.stage()
    messages = [b"Ipay 1000", b"Ipay 2000"]
    index = SegmentIndex({5: TableIndex(2)}, name=SEGMENT)
    spool.write(staged, np.array([1, 2], np.uint64), np.array([9, 9], np.int64), messages, index)
    spool.publish(staged, SEGMENT)

    def read() -> tuple[bytes, list[int], SegmentIndex]:
        batch = spool.read(SEGMENT)
        return bytes(batch.data[: batch.offsets[-1]]), batch.lsns.tolist(), spool.index(SEGMENT)

    assert_same_or_refused(tmp_path / str(SEGMENT), read)


@pytest.mark.parametrize("reader", [owner_of, read_record])
def test_files_of_an_earlier_version_have_no_checksum(tmp_path: Path, reader: Callable[[LocalPlace], object]) -> None:
    place = LocalPlace(tmp_path)
    claim(place, OWNER)
    write_record(place, RECORD)
    expected = reader(place)
    for path in tmp_path.glob("*.json"):
        content = json.loads(path.read_bytes())
        del content["crc32"]
        path.write_text(json.dumps(content))
    assert reader(place) == expected
