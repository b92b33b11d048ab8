"""replication.segments: what the index of a segment says of the messages of our event trigger."""

from __future__ import annotations

from pathlib import Path

from headrace.lsn import Lsn
from headrace.pgoutput import messages as m
from headrace.pgoutput.encoder import encode
from headrace.replication.chunk import Piece
from headrace.replication.segments import SegmentWriter
from headrace.schema import NO_TABLE
from headrace.spool import Spool, SpoolPosition
from headrace.spool.place import LocalPlace


def test_tables_and_publications_that_are_told_of_are_counted(tmp_path: Path) -> None:
    prefixes = [
        "headrace.ddl.16384", "headrace.ddl.16384", "headrace.ddl.7", "headrace.publication", "headrac",
        "headrace.ddl.x", "headrace.publications", "",
    ]  # fmt: skip
    emitted = [encode(m.LogicalMessage(True, Lsn(15), prefix, b"headrace.ddl.9")) for prefix in prefixes]
    begin, commit = m.Begin(Lsn(18), 0, 7), m.Commit(Lsn(18), Lsn(20), 0)
    spool = Spool(LocalPlace(tmp_path))
    writer = SegmentWriter(spool, SpoolPosition(Lsn(10), Lsn(10)), 1 << 20)
    writer.append(Piece.of_messages([encode(begin), *emitted, encode(commit)], 15), {}, Lsn(20))
    writer.publish()
    (segment,) = spool.segments()
    index = spool.index(segment.names[0])
    assert {oid: table.ddl for oid, table in index.tables.items()} == {NO_TABLE: 1, 7: 1, 16384: 2}
    assert index.logical_messages == len(prefixes)
