"""pgoutput.schema_marks: the messages about one table among those about others."""

from __future__ import annotations

from headrace.lsn import Lsn
from headrace.pgoutput import messages as m
from headrace.pgoutput.batch import MessageBatch
from headrace.pgoutput.encoder import encode
from headrace.pgoutput.envelope import envelope
from headrace.pgoutput.schema_marks import emitted_for


def emitted(prefix: str, content: bytes, transactional: bool = True) -> bytes:
    return encode(m.LogicalMessage(transactional, Lsn(5), prefix, content))


def test_only_transactional_messages_of_exactly_this_prefix_are_found() -> None:
    begin, commit = m.Begin(Lsn(90), 0, 7), m.Commit(Lsn(90), Lsn(99), 0)
    batch = MessageBatch.of(
        [
            emitted("headrace.ddl.1", b"outside any transaction", False),
            encode(begin),
            emitted("headrace.ddl.1", b"one"),
            emitted("headrace.ddl.12", b"of another table"),
            emitted("headrace.ddl.", b"of none"),
            emitted("", b""),
            emitted("headrace.ddl.1", b"headrace.ddl.1"),
            encode(commit),
        ],
        [1, 2, 3, 4, 5, 6, 7, 8],
    )
    found = list(emitted_for(batch, envelope(batch), "headrace.ddl.1"))
    assert [(one.message.content, one.tx_ordinal, one.xid) for one in found] == [
        (b"one", 0, 7),
        (b"headrace.ddl.1", 4, 7),
    ]
    assert list(emitted_for(batch, envelope(batch), "headrace.ddl.2")) == []
