from __future__ import annotations

import pytest
from wiretap import (
    begin,
    commit,
    insert,
    keepalive,
    logical_message,
    relation,
    stream_start,
    streamed,
    xlog,
)  # fmt: skip

from headrace.errors import ProtocolError
from headrace.replication.chunk import Chunk, Kind, Piece


def test_a_piece_is_the_payloads_one_after_the_other() -> None:
    payloads = [begin(90, 7), relation(16384), insert(16384, b"abc"), commit(90, 7)]
    piece = Chunk([xlog(payload, 100 + n) for n, payload in enumerate(payloads)]).piece(0, 4)
    assert bytes(piece.data) == b"".join(payloads)
    assert piece.lengths.tolist() == [len(payload) for payload in payloads]
    assert piece.lsns.tolist() == [100, 101, 102, 103]
    assert bytes(piece.kinds) == b"BRIC"
    assert piece.relations.tolist() == [0, 16384, 16384, 0]
    assert piece.change_count() == 1
    assert piece.messages(Kind.RELATION) == [relation(16384)]


def test_a_streamed_piece_loses_its_transaction_ids_and_keeps_them_apart() -> None:
    payloads = [relation(5), insert(5, b""), logical_message(3, transactional=True)]
    chunk = Chunk([xlog(streamed(payload, 70 + n)) for n, payload in enumerate(payloads)])
    piece = chunk.streamed_piece(0, 3)
    assert bytes(piece.data) == b"".join(payloads)
    assert piece.xids is not None
    assert piece.xids.tolist() == [70, 71, 72]


def test_controls_are_what_is_no_message_of_a_transaction() -> None:
    chunk = Chunk([xlog(begin(9, 1)), keepalive(5), xlog(stream_start(3, first=True)), xlog(commit(9, 1))])
    assert chunk.controls() == [1, 2]


def test_the_boundary_is_behind_the_last_commit() -> None:
    payloads = [begin(9, 1), commit(9, 1), begin(20, 2), insert(5, b"x")]
    chunk = Chunk([xlog(payload) for payload in payloads])
    assert chunk.boundary(0, 4) == 2
    assert chunk.boundary(2, 4) is None


def test_a_message_outside_transactions_is_a_boundary_and_one_inside_is_not() -> None:
    inside = [begin(9, 1), logical_message(5, transactional=True)]
    chunk = Chunk([xlog(payload) for payload in [logical_message(4, transactional=False), *inside]])
    assert chunk.boundary(0, 3) == 1


@pytest.mark.parametrize("content", [b"", b"x", b"w", b"w" + bytes(24), b"z" + bytes(40)])
def test_what_a_walsender_does_not_send_is_refused(content: bytes) -> None:
    with pytest.raises(ProtocolError):
        Chunk([xlog(begin(9, 1)), content])


def test_a_row_message_too_short_for_its_table_is_refused() -> None:
    with pytest.raises(ProtocolError):
        Piece.of_messages([b"I\0\0"], 1)


def test_empty_transactions_are_left_out() -> None:
    payloads = [begin(9, 1), commit(9, 1), begin(20, 2), insert(5, b"x"), commit(20, 2), begin(30, 3), commit(30, 3)]
    piece = Chunk([xlog(payload, n) for n, payload in enumerate(payloads)]).piece(0, 7)
    assert bytes(piece.kinds) == b"BIC"
    assert piece.lsns.tolist() == [2, 3, 4]
    assert bytes(piece.data) == b"".join(payloads[2:5])
