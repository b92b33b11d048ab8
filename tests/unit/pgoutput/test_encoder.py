from __future__ import annotations

from headrace.lsn import Lsn
from headrace.pgoutput import messages as m
from headrace.pgoutput.decoder import decode
from headrace.pgoutput.encoder import begin_message, commit_message, encode


def test_begin_and_commit_of_a_streamed_transaction() -> None:
    assert decode(begin_message(10, -5, 742)) == m.Begin(Lsn(10), -5, 742)
    assert decode(commit_message(0, 10, 20, 7)) == m.Commit(Lsn(10), Lsn(20), 7)


def test_begin_and_commit_have_the_sizes_of_the_protocol() -> None:
    assert len(begin_message(2**64 - 1, 0, 2**32 - 1)) == 21
    assert len(commit_message(0, 2**64 - 1, 0, 0)) == 26


def test_an_xid_makes_a_change_a_streamed_one() -> None:
    insert = m.Insert(7, (None,), xid=9)
    assert decode(encode(insert), streamed=True) == insert
