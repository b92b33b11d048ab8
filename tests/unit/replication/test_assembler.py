"""Whatever the interleaving, the chunking and the size of segments: what commits is in the spool, once, in order."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from wiretap import (
    STREAM_STOP,
    begin,
    commit,
    contents,
    insert,
    keepalive,
    logical_message,
    relation,
    spooled,
    stream_abort,
    stream_commit,
    stream_start,
    streamed,
    truncate,
    xlog,
)  # fmt: skip

from headrace.errors import ProtocolError
from headrace.lsn import Lsn
from headrace.replication import assembler as assembler_module
from headrace.replication import segments as segments_module
from headrace.replication.assembler import Assembler
from headrace.replication.segments import SegmentWriter
from headrace.spool import Spool, SpoolPosition
from headrace.spool.place import LocalPlace


class Rig:
    def __init__(self, root: Path, segment_bytes: int = 64 * 1024) -> None:
        self.spool = Spool(LocalPlace(root), durable=False)
        self.writer = SegmentWriter(self.spool, SpoolPosition(Lsn(0), Lsn(0)), segment_bytes)
        self.assembler = Assembler(self.spool, self.writer)

    def feed(self, payloads: list[bytes], chunk: int = 1000) -> None:
        arrived = contents(payloads)
        for first in range(0, len(arrived), chunk):
            self.assembler.feed(arrived[first : first + chunk])  # type: ignore[arg-type]

    def transactions(self) -> list[list[bytes]]:
        self.writer.publish()
        return spooled(self.spool).transactions


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


def test_only_whole_transactions_are_published(rig: Rig) -> None:
    whole = [begin(90, 1), relation(5), insert(5, b"a"), commit(90, 1)]
    rig.feed([*whole, begin(200, 2), insert(5, b"b")])
    assert rig.transactions() == [[m for m in whole if m[:1] != b"R"]]
    assert rig.writer.end == 98
    assert rig.spool.segments()[0].end == 98


def test_a_reconnect_forgets_the_open_transaction_and_reads_it_again_whole(rig: Rig) -> None:
    first = [begin(90, 1), relation(5), insert(5, b"a"), commit(90, 1)]
    second = [begin(200, 2), insert(5, b"b"), insert(5, b"c"), commit(200, 2)]
    rig.feed([*first, *second[:2]])
    rig.assembler.reset()
    rig.feed([second[0], relation(5), *second[1:]])
    assert rig.transactions() == [[m for m in first if m[:1] != b"R"], second]


def test_a_streamed_transaction_looks_like_any_other(rig: Rig) -> None:
    body = [insert(5, b"a"), truncate(5), logical_message(7, transactional=True), insert(5, b"b")]
    rig.feed([stream_start(3, first=True), streamed(relation(5), 3), *(streamed(m, 3) for m in body[:2]), STREAM_STOP])
    rig.feed([begin(50, 9), relation(6), insert(6, b"other"), commit(50, 9)])
    rig.feed([stream_start(3, first=False), *(streamed(m, 3) for m in body[2:]), STREAM_STOP, stream_commit(80, 3)])
    assert rig.transactions() == [
        [begin(50, 9), insert(6, b"other"), commit(50, 9)],
        [begin(80, 3), *body, commit(80, 3)],
    ]


def test_a_rolled_back_savepoint_vanishes_but_what_it_announced_stays(rig: Rig) -> None:
    # The server announces a table once per streamed transaction; here within the savepoint that is rolled back.
    rig.feed([stream_start(3, first=True), streamed(relation(5), 4), streamed(insert(5, b"gone"), 4)])
    rig.feed([STREAM_STOP, stream_abort(3, 4)])
    rig.feed([stream_start(3, first=False), streamed(insert(5, b"kept"), 3), STREAM_STOP, stream_commit(80, 3)])
    assert rig.transactions() == [[begin(80, 3), insert(5, b"kept"), commit(80, 3)]]


@pytest.mark.parametrize("spilled", [False, True])
def test_what_a_rolled_back_savepoint_told_of_ddl_vanishes(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, spilled: bool
) -> None:
    # The server gives messages the id of the transaction, 3, whichever savepoint they are of.
    if spilled:
        monkeypatch.setattr(assembler_module, "STREAMED_BUFFER_BYTES", 10)
    ddl = [
        logical_message(lsn, transactional=True, prefix=b"headrace.ddl.5", content=b'{"version": 1, "xid": %d}' % xid)
        for lsn, xid in [(7, 3), (8, 4), (9, 5)]
    ]
    foreign = [
        logical_message(10, transactional=True, prefix=prefix, content=content)
        for prefix in (b"headrace.ddl.5", b"p")
        for content in (b'{"version": 1, "xid": "4"}', b'{"xid": 4}', b"4", b"\xff", b"")
    ]
    rig.feed([stream_start(3, first=True), *(streamed(m, 3) for m in [*ddl, *foreign]), STREAM_STOP])
    rig.feed([stream_abort(3, 4), stream_commit(80, 3)])
    assert rig.transactions() == [[begin(80, 3), ddl[0], ddl[2], *foreign, commit(80, 3)]]


def test_what_only_keeps_messages_apart_is_left_out(rig: Rig) -> None:
    fence = logical_message(7, transactional=True, prefix=b"headrace", content=b"")
    others = [
        logical_message(8, transactional=True, prefix=p, content=b"") for p in (b"headrace.ddl.5", b"headrac", b"")
    ]
    rig.feed([begin(90, 1), relation(5), insert(5, b"a"), fence, *others, fence])
    rig.feed([fence])
    rig.feed([insert(5, b"b"), commit(90, 1)])
    assert rig.transactions() == [[begin(90, 1), insert(5, b"a"), *others, insert(5, b"b"), commit(90, 1)]]
    # Streamed, and nothing but these: then there was no transaction.
    rig.feed([stream_start(3, first=True), streamed(fence, 3), streamed(fence, 4), STREAM_STOP, stream_commit(200, 3)])
    assert len(rig.transactions()) == 1


def test_an_aborted_transaction_leaves_no_trace(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assembler_module, "STREAMED_BUFFER_BYTES", 10)
    rig.feed([stream_start(3, first=True), streamed(relation(5), 3), streamed(insert(5, b"gone"), 3), STREAM_STOP])
    assert list(rig.spool.place.staging.iterdir()) != []
    rig.feed([stream_abort(3, 3)])
    assert rig.transactions() == []
    assert list(rig.spool.place.staging.iterdir()) == []


def test_savepoints_of_a_transaction_that_never_started_may_be_rolled_back(rig: Rig) -> None:
    # Postgres 18 leaves out what it finds aborted before it was sent, not the news of it.
    whole = [begin(90, 1), relation(5), insert(5, b"a"), commit(90, 1)]
    rig.feed([stream_abort(3, 4), stream_abort(3, 5), *whole])
    rig.feed([stream_start(3, first=True), streamed(insert(5, b"b"), 3), STREAM_STOP, stream_commit(200, 3)])
    assert rig.transactions() == [
        [begin(90, 1), insert(5, b"a"), commit(90, 1)],
        [begin(200, 3), insert(5, b"b"), commit(200, 3)],
    ]


def test_an_announcement_of_a_committed_stream_holds_for_later_transactions(rig: Rig) -> None:
    new = relation(5, columns=2)
    rig.feed([begin(10, 1), relation(5), insert(5, b"a"), commit(10, 1)])
    rig.feed([stream_start(3, first=True), streamed(new, 3), streamed(insert(5, b"b"), 3), STREAM_STOP])
    rig.feed([stream_commit(80, 3)])
    rig.writer.publish()
    rig.feed([begin(90, 4), insert(5, b"c"), commit(90, 4)])
    rig.writer.publish()
    assert spooled(rig.spool).schema_of[-1] == (insert(5, b"c"), new)


def test_a_newer_announcement_is_not_undone_by_an_older_stream(rig: Rig) -> None:
    new = relation(5, columns=2)
    rig.feed([stream_start(3, first=True), streamed(relation(5), 3), streamed(insert(5, b"a"), 3), STREAM_STOP])
    rig.feed([begin(10, 1), new, insert(5, b"b"), commit(10, 1), stream_commit(80, 3)])
    rig.feed([begin(90, 4), insert(5, b"c"), commit(90, 4)])
    rig.writer.publish()
    assert spooled(rig.spool).schema_of == [
        (insert(5, b"b"), new),
        (insert(5, b"a"), relation(5)),
        (insert(5, b"c"), new),
    ]


def test_a_large_transaction_is_published_in_parts_at_its_commit(tmp_path: Path) -> None:
    rig = Rig(tmp_path, segment_bytes=1000)
    rows = [insert(5, b"%0100d" % n) for n in range(50)]
    rig.feed([begin(90, 1), relation(5), *rows], chunk=5)
    assert rig.spool.segments() == []
    rig.feed([commit(90, 1)])
    assert rig.transactions() == [[begin(90, 1), *rows, commit(90, 1)]]
    (segment,) = rig.spool.segments()
    assert len(segment.names) > 3
    assert list(rig.spool.place.staging.iterdir()) == []


def test_no_segment_outgrows_the_offsets_of_its_messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments_module, "LARGEST_SEGMENT", 1000)
    rig = Rig(tmp_path, segment_bytes=900)
    # Given messages that each fit, and that together with what is held do not
    rows = [insert(5, bytes(800)) for _ in range(6)]
    rig.feed([begin(90, 1), relation(5), *rows[:3], commit(90, 1), begin(200, 2), *rows[3:], commit(200, 2)], chunk=1)
    assert rig.transactions() == [[begin(90, 1), *rows[:3], commit(90, 1)], [begin(200, 2), *rows[3:], commit(200, 2)]]
    names = [name for segment in rig.spool.segments() for name in segment.names]
    in_front = len(relation(5)) + len(begin(90, 1))
    assert max(int(rig.spool.read(name).offsets[-1]) for name in names) <= 1000 + in_front


def test_parts_of_a_transaction_that_never_came_to_its_commit_are_removed(tmp_path: Path) -> None:
    rig = Rig(tmp_path, segment_bytes=1000)
    rig.feed([begin(90, 1), relation(5), *(insert(5, bytes(200)) for _ in range(20))], chunk=5)
    assert list(rig.spool.place.staging.iterdir()) != []
    rig.assembler.reset()
    assert list(rig.spool.place.staging.iterdir()) == []


def test_messages_outside_transactions_move_the_position(rig: Rig) -> None:
    rig.feed([logical_message(40, transactional=False)])
    rig.writer.publish()
    assert spooled(rig.spool).outside == [logical_message(40, transactional=False)]
    assert rig.spool.segments()[0].end == 40


def test_a_keepalive_covers_what_lies_before_it_once_all_is_published(rig: Rig) -> None:
    rig.feed([begin(90, 1), relation(5), insert(5, b"a"), commit(90, 1)])
    rig.assembler.feed([keepalive(500)])  # type: ignore[list-item]
    rig.writer.cover(rig.assembler.server_position)
    assert rig.writer.covered == 0
    rig.writer.publish()
    rig.writer.cover(rig.assembler.server_position)
    assert rig.spool.position() == SpoolPosition(Lsn(98), Lsn(500))
    # The next segment continues where the last one ended.
    rig.feed([begin(600, 2), insert(5, b"b"), commit(600, 2)])
    rig.writer.publish()
    assert [(s.start, s.end) for s in rig.spool.segments()] == [(0, 98), (98, 608)]


@pytest.mark.parametrize("chunk", [1, 2, 3, 10])
def test_empty_transactions_move_the_position_and_fill_no_segment(rig: Rig, chunk: int) -> None:
    rig.feed([begin(90, 1), commit(90, 1), begin(200, 2), commit(200, 2)], chunk)
    rig.writer.publish()
    assert rig.spool.segments() == []
    rig.writer.cover(rig.assembler.server_position)
    assert rig.spool.position() == SpoolPosition(Lsn(0), Lsn(208))


@pytest.mark.parametrize("message", [stream_commit(5, 3), stream_start(3, first=False)])
def test_a_stream_that_never_started_is_refused(rig: Rig, message: bytes) -> None:
    with pytest.raises(ProtocolError, match="streamed transaction 3"):
        rig.assembler.feed([xlog(message)])  # type: ignore[list-item]


# -- any interleaving ---------------------------------------------------------------------------------------------

TABLES = (5, 6, 7)
changes = st.tuples(st.sampled_from(TABLES), st.binary(max_size=40), st.integers(0, 2))
transactions = st.lists(
    st.tuples(
        st.lists(changes, max_size=12), st.sampled_from(["plain", "streamed", "aborted"]), st.sets(st.integers(1, 2))
    ),
    max_size=8,
)


@settings(max_examples=60, deadline=None)
@given(transactions, st.integers(1, 30), st.integers(1, 4), st.sampled_from([100, 400, 64 * 1024]))
def test_every_committed_change_once_and_in_order(
    plans: list[tuple[list[tuple[int, bytes, int]], str, set[int]]], chunk: int, block: int, segment_bytes: int
) -> None:
    """Streams run beside each other and beside plain transactions; some savepoints (xid + 1, + 2) are rolled back."""
    wire, expected = _interleave(plans, block)
    with tempfile.TemporaryDirectory() as root, pytest.MonkeyPatch.context() as patch:
        patch.setattr(assembler_module, "STREAMED_BUFFER_BYTES", 60)
        rig = Rig(Path(root), segment_bytes)
        rig.feed(wire, chunk)
        assert rig.transactions() == expected
        assert list(rig.spool.place.staging.iterdir()) == []


def _interleave(
    plans: list[tuple[list[tuple[int, bytes, int]], str, set[int]]], block: int
) -> tuple[list[bytes], list[list[bytes]]]:
    wire: list[bytes] = []
    expected: list[list[bytes]] = []
    announced: set[int] = set()
    open_streams: list[tuple[int, list[bytes], list[bytes], str, set[int]]] = []
    for n, (rows, how, rolled_back) in enumerate(plans):
        xid, at = 100 + 10 * n, 1000 + 100 * n
        inserts = [(insert(oid, value), xid + sub) for oid, value, sub in rows]
        if how == "plain":
            body = []
            for oid, value, _ in rows:
                body += [relation(oid)] * (oid not in announced) + [insert(oid, value)]
                announced.add(oid)
            wire += [begin(at, xid), *body, commit(at, xid)]
            if inserts:
                expected.append([begin(at, xid), *(m for m, _ in inserts), commit(at, xid)])
            continue
        seen: set[int] = set()
        tagged = []
        for (oid, _, _), (message, subxid) in zip(rows, inserts, strict=True):
            if oid not in seen:
                tagged.append(streamed(relation(oid), subxid))
                seen.add(oid)
            tagged.append(streamed(message, subxid))
        kept = [m for m, subxid in inserts if subxid - xid not in rolled_back or subxid == xid]
        open_streams.append((xid, tagged, kept, how, rolled_back))
    # Blocks of all streams in turn, then their ends, in the order of their commit positions.
    turn = 0
    while any(turn * block < max(len(tagged), 1) for _, tagged, _, _, _ in open_streams):
        for xid, tagged, _, _, _ in open_streams:
            part = tagged[turn * block : (turn + 1) * block]
            if part or turn == 0:
                wire += [stream_start(xid, first=turn == 0), *part, STREAM_STOP]
        turn += 1
    for n, (xid, _, kept, how, rolled_back) in enumerate(open_streams):
        wire += [stream_abort(xid, xid + sub) for sub in sorted(rolled_back)]
        at = 100_000 + 100 * n
        if how == "aborted":
            wire.append(stream_abort(xid, xid))
        else:
            wire.append(stream_commit(at, xid))
            if kept:  # a streamed transaction of which nothing is left is none at all
                expected.append([begin(at, xid), *kept, commit(at, xid)])
    return wire, expected
