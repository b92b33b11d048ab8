from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from headrace.errors import ProtocolError
from headrace.lsn import Lsn
from headrace.pgoutput import messages as m
from headrace.pgoutput.batch import MessageBatch
from headrace.pgoutput.encoder import encode
from headrace.pgoutput.envelope import envelope
from headrace.schema import ReplicaIdentity

EPOCH = 946_684_800_000_000
RELATION = m.Relation(7, "public", "t", ReplicaIdentity.DEFAULT, ())


def begin(lsn: int, time: int = 1, xid: int = 3) -> m.Begin:
    return m.Begin(Lsn(lsn), time, xid)


def commit(lsn: int) -> m.Commit:
    return m.Commit(Lsn(lsn), Lsn(lsn + 1), 1)


def insert(table: int = 7) -> m.Insert:
    return m.Insert(table, ())


def emitted(*, transactional: bool) -> m.LogicalMessage:
    return m.LogicalMessage(transactional, Lsn(1), "p", b"")


def batch(*messages: m.Message, first_ordinal: int = 0) -> MessageBatch:
    return MessageBatch.of([encode(message) for message in messages], first_ordinal=first_ordinal)


def test_transactions_and_ordinals() -> None:
    found = envelope(
        batch(
            RELATION, begin(10, xid=5), m.Origin(Lsn(1), "o"), insert(), RELATION, m.Type(9, "public", "mood"),
            insert(8), commit(10), emitted(transactional=False), begin(20, xid=6), emitted(transactional=True),
            emitted(transactional=False), m.Truncate((7,), False, False), insert(), commit(20),
        )
    )  # fmt: skip
    assert found.kind.tobytes() == b"RBOIRYICMBMMTIC"
    assert found.relation_id.tolist() == [7, 0, 0, 7, 7, 0, 8, 0, 0, 0, 0, 0, 0, 7, 0]
    assert found.transaction.tolist() == [-1, 0, 0, 0, 0, 0, 0, 0, -1, 1, 1, 1, 1, 1, 1]
    assert found.ordinal.tolist() == [-1, -1, -1, 0, -1, -1, 1, -1, -1, -1, 0, -1, 1, 2, -1]
    assert found.commit_lsns.tolist() == [10, 20]
    assert found.xids.tolist() == [5, 6]


def test_numbers_use_their_whole_range() -> None:
    found = envelope(batch(begin(2**63 - 1, time=-(2**63), xid=2**32 - 1), insert(2**32 - 1)))
    assert found.commit_lsns.tolist() == [2**63 - 1]
    assert found.commit_times.tolist() == [-(2**63) + EPOCH]
    assert found.xids.tolist() == [2**32 - 1]
    assert found.relation_id.tolist() == [0, 2**32 - 1]


def test_a_continued_transaction_counts_on_and_the_next_begins_anew() -> None:
    found = envelope(batch(begin(10), insert(), insert(), commit(10), begin(20), insert(), first_ordinal=1000))
    assert found.ordinal.tolist() == [-1, 1000, 1001, -1, -1, 0]


def test_a_transaction_may_lack_its_commit_only_at_the_end() -> None:
    assert envelope(batch(begin(10), insert())).ordinal.tolist() == [-1, 0]
    with pytest.raises(ProtocolError, match="alternate"):
        envelope(batch(begin(10), insert(), begin(20), commit(20)))


def test_nothing_at_all() -> None:
    found = envelope(MessageBatch.of([]))
    assert len(found.kind) == len(found.commit_lsns) == 0


@pytest.mark.parametrize(
    ("messages", "match"),
    [
        ((commit(1),), "alternate"),
        ((begin(1), commit(1), commit(1)), "alternate"),
        ((insert(),), "outside"),
        ((begin(1), commit(1), insert()), "outside"),
        ((m.Truncate((1,), False, False),), "outside"),
        ((emitted(transactional=True),), "outside"),
        ((m.StreamStop(),), "protocol 1"),
        ((begin(2**63),), "kind 'B'"),
        ((begin(1, time=2**63 - 1),), "kind 'B'"),
    ],
)
def test_malformed(messages: tuple[m.Message, ...], match: str) -> None:
    with pytest.raises(ProtocolError, match=match):
        envelope(batch(*messages))


def test_messages_that_are_cut_short() -> None:
    for message in (begin(1), commit(1), insert(), RELATION, emitted(transactional=True)):
        whole = encode(message)
        for size in range(1, len(whole)):
            if message in (RELATION, emitted(transactional=True)) and size >= 10:
                continue  # their tails are read when the message itself is decoded
            with pytest.raises(ProtocolError):
                envelope(MessageBatch.of([whole[:size]]))


def test_offsets_that_do_not_fit() -> None:
    good = batch(begin(1), insert())
    for offsets in ([0, 21, 21], [-1, 21, 29], [0, 30, 29], [0, 21, 30_000]):
        with pytest.raises(ProtocolError, match="offsets"):
            envelope(replace(good, offsets=np.array(offsets, dtype=np.int64)))
    with pytest.raises(ProtocolError, match="offsets"):
        envelope(replace(good, data=good.data[:-40]))
