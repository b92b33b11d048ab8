"""Wherever the network cuts the stream: the same events come out, in commit order."""

from __future__ import annotations

from dataclasses import replace

import pytest
from wiretap import begin, commit, keepalive, logical_message, xlog

from headrace.events import Begin, Commit, Delete, Event, Insert, Relation, Truncate, Update
from headrace.pgoutput import messages as m
from headrace.pgoutput.encoder import encode
from headrace.replication.live import LiveEvents
from headrace.schema import OWN_SCHEMA, ReplicaIdentity, ReplicatedTableSchema, TableName
from headrace.testing.example_tables import ORDERS, VISITS, altered_table, example_column


def relation(schema: ReplicatedTableSchema) -> bytes:
    identity = {column.name for column in schema.identity}
    columns = tuple(m.RelationColumn(c.name in identity, c.name, c.type.oid, c.typmod) for c in schema.columns)
    name = schema.table.name
    kind = schema.table.replica_identity
    return encode(m.Relation(schema.table.id, name.schema, name.name, kind, columns))


def insert(schema: ReplicatedTableSchema, *values: bytes | None) -> bytes:
    return encode(m.Insert(schema.table.id, row(*values)))


def row(*values: bytes | None) -> m.TupleData:
    return tuple(None if value is None else m.Text(value) for value in values)


ALTERED = altered_table(ORDERS, *ORDERS.table.columns, example_column("extra", 4))
OWN = replace(VISITS, table=replace(VISITS.table, id=99, name=TableName(OWN_SCHEMA, "store")))
STREAM = [
    xlog(begin(100, 1), 90),
    xlog(relation(ORDERS), 90),
    xlog(insert(ORDERS, b"1", b"a", None), 91),
    xlog(relation(VISITS), 92),
    xlog(insert(VISITS, b"p", b"3"), 92),
    keepalive(95),
    xlog(logical_message(93, transactional=True), 93),
    xlog(encode(m.Update(ORDERS.table.id, None, row(b"1", b"b", None))), 94),
    xlog(encode(m.Truncate((ORDERS.table.id, VISITS.table.id), False, False)), 95),
    xlog(commit(100, 1), 100),
    xlog(begin(200, 2), 190),
    xlog(commit(200, 2), 200),
    xlog(begin(300, 3), 290),
    xlog(relation(OWN), 291),
    xlog(insert(OWN, b"p", b"3"), 291),
    xlog(relation(ALTERED), 292),
    xlog(encode(m.Delete(ORDERS.table.id, m.OldTuple("K", row(b"1", None, None, None)))), 292),
    xlog(insert(ALTERED, b"2", b"c", None, b"x"), 293),
    xlog(commit(300, 3), 300),
]


def live() -> LiveEvents:
    return LiveEvents([ORDERS, VISITS], {ORDERS.table.id: ALTERED.table}.get)


def fed(live: LiveEvents, *parts: list[bytes]) -> list[Event]:
    return [event for part in parts for event in live.feed([memoryview(content) for content in part])]


def test_what_happened_comes_out_in_commit_order() -> None:
    events = fed(live(), STREAM)
    kinds = [Begin, Insert, Insert, Update, Truncate, Commit, Begin, Relation, Delete, Insert, Commit]
    assert [type(event) for event in events] == kinds
    ordinals = [event.tx_ordinal for event in events if isinstance(event, Insert | Update | Truncate | Delete)]
    # A logical message counts, and so does what is not shown.
    assert ordinals == [0, 1, 3, 4, 1, 2]
    truncate, altered, deleted = events[4], events[7], events[8]
    assert isinstance(truncate, Truncate)
    assert [schema.table.id for schema in truncate.schemas] == [ORDERS.table.id, VISITS.table.id]
    assert isinstance(altered, Relation)
    assert (altered.old, [column.name for column in altered.new.columns][-1]) == (ORDERS, "extra")
    assert isinstance(deleted, Delete)
    assert (deleted.old, deleted.commit_lsn, deleted.xid) == ({"id": 1}, 300, 3)
    assert isinstance(events[-1], Commit)
    assert events[-1].end_lsn == 308


@pytest.mark.parametrize("first", range(len(STREAM)))
@pytest.mark.parametrize("size", [1, 5])
def test_wherever_it_is_cut(first: int, size: int) -> None:
    parts = [STREAM[:first], STREAM[first : first + size], STREAM[first + size :]]
    assert fed(live(), *parts) == fed(live(), STREAM)


def test_message_by_message() -> None:
    assert fed(live(), *([content] for content in STREAM)) == fed(live(), STREAM)


def test_only_the_tables_that_are_asked_for() -> None:
    only = LiveEvents([ORDERS, VISITS], lambda _: None, frozenset({VISITS.table.id}))
    events = fed(only, STREAM)
    assert [type(event) for event in events] == [Begin, Insert, Truncate, Commit]
    assert isinstance(events[2], Truncate)
    assert [schema.table.id for schema in events[2].schemas] == [VISITS.table.id]


def test_a_table_nobody_knows_any_more_is_shown_by_what_the_stream_says() -> None:
    gone = replace(ORDERS.table, replica_identity=ReplicaIdentity.DEFAULT)
    events = fed(LiveEvents([], lambda _: None), STREAM[:3])
    assert [type(event) for event in events] == [Begin, Relation, Insert]
    assert isinstance(events[1], Relation)
    assert events[1].old is None
    assert [column.name for column in events[1].new.columns] == [column.name for column in gone.columns]
    assert isinstance(events[2], Insert)
    assert events[2].row == {"id": 1, "name": "a", "note": None}
