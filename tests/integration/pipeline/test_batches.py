"""Batches as they are read from a spool: steps per table, and events of all tables in commit order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest

from headrace.destinations.batch import Changes
from headrace.events import UNCHANGED, Begin, Commit, Delete, Event, Insert, OldRowKind, Truncate, Update
from headrace.lsn import Lsn
from headrace.pipeline.batches import BatchReader
from headrace.pipeline.event_stream import read_events
from headrace.pipeline.schema_following import SchemaFollower, Version
from headrace.pipeline.spans import Span, TableRange
from headrace.postgres.catalog import table_schemas
from headrace.postgres.publications import published_tables
from headrace.postgres.source.message_key import MessageVerifier, read_message_key
from headrace.schema import ReplicatedTableSchema, TableSchema
from headrace.schema_policy import Target
from headrace.spool import Spool
from receiving import Source
from recvlogical import current_lsn

Connection = psycopg.Connection[Any]

TABLES = """
CREATE TABLE a (id int PRIMARY KEY, v text, big text);
ALTER TABLE a ALTER big SET STORAGE EXTERNAL;
CREATE TABLE b (id int PRIMARY KEY, v text);
ALTER PUBLICATION p ADD TABLE a, b;
"""


class Received:
    """What a receiver has put into a spool of the statements run before."""

    def __init__(self, source: Source, connection: Connection, **spool: Any) -> None:
        self.config = source.config(**spool)
        self.schemas = {s.table.name.name: s for s in published_tables(connection, "p")}
        end = current_lsn(connection)
        with source.receiving(self.config) as running:
            running.wait(lambda status: status.covered >= end)
        self.reader = BatchReader(None, self.config.spool, self.follower(connection))
        self.connection = connection
        self.segments = Spool.open(self.config.spool).segments()
        self.start = self.segments[0].start
        self.end = self.segments[-1].end

    def follower(self, connection: Connection) -> SchemaFollower:
        verifier = MessageVerifier(lambda: read_message_key(connection))
        return SchemaFollower(self.look_up, lambda _: True, verifier=verifier)

    def look_up(self, table_id: int) -> TableSchema | None:
        return table_schemas(self.connection, [table_id]).get(table_id)

    def range(self, table: str, start: Lsn | None = None, end: Lsn | None = None) -> TableRange:
        version = Version(self.schema(table), Target.same(self.schema(table)))
        return TableRange(version, start or self.start, end or self.end)

    def schema(self, table: str) -> ReplicatedTableSchema:
        return self.schemas[table]

    def steps(self, wanted: TableRange) -> list[Any]:
        """Changes as lists of (op, id), truncates as "T"."""
        return [
            [(c["op"], (c["row"] or c["old"])["id"]) for b in step.rows.batches() for c in b.to_pylist()]
            if isinstance(step, Changes)
            else "T"
            for step in self.reader.table_batch(wanted, self.spans(wanted), self.segments).steps
        ]

    def spans(self, wanted: TableRange) -> list[Span]:
        return self.reader.spans(wanted, self.segments)

    def events(self, *tables: str, start: Lsn | None = None) -> list[Event]:
        spans = [span for table in tables for span in self.spans(self.range(table, start))]
        return list(read_events(self.reader, self.config.spool, spans, self.segments))


@pytest.fixture
def source(conninfo: str, connection: Connection, tmp_path: Path) -> Source:
    made = Source(conninfo, connection, tmp_path)
    connection.execute(TABLES)
    return made


def test_changes_between_truncates_are_steps(source: Source, connection: Connection) -> None:
    connection.execute("INSERT INTO a VALUES (1), (2)")
    with connection.transaction():
        connection.execute("INSERT INTO a VALUES (3)")
        connection.execute("TRUNCATE a, b")
        connection.execute("INSERT INTO a VALUES (4)")
        connection.execute("TRUNCATE a")
    connection.execute("INSERT INTO a VALUES (5); UPDATE a SET v = 'x'; DELETE FROM a")
    received = Received(source, connection)
    assert received.steps(received.range("a")) == [
        [("I", 1), ("I", 2), ("I", 3)], "T", [("I", 4)], "T", [("I", 5), ("U", 5), ("D", 5)],
    ]  # fmt: skip
    assert received.steps(received.range("b")) == ["T"]
    assert received.steps(received.range("t")) == []


def test_a_table_gets_what_lies_between_its_position_and_the_end(source: Source, connection: Connection) -> None:
    connection.execute("INSERT INTO a VALUES (1)")
    first = current_lsn(connection)
    connection.execute("INSERT INTO a VALUES (2)")
    second = current_lsn(connection)
    connection.execute("TRUNCATE a")
    received = Received(source, connection)
    assert received.steps(received.range("a", start=first)) == [[("I", 2)], "T"]
    assert received.steps(received.range("a", start=first, end=second)) == [[("I", 2)]]
    assert received.steps(received.range("a", start=second)) == ["T"]
    assert received.steps(received.range("a", end=first)) == [[("I", 1)]]


def test_a_transaction_in_many_parts_is_one(source: Source, connection: Connection) -> None:
    with connection.transaction():
        connection.execute("INSERT INTO a SELECT n, repeat('x', 200) FROM generate_series(1, 12000) n")
        connection.execute("TRUNCATE a")
        connection.execute("INSERT INTO a SELECT n, repeat('y', 200) FROM generate_series(1, 12000) n")
    # One read brings a megabyte at most: these are several, each larger than a segment may be.
    received = Received(source, connection, segment_bytes=64 * 1024)
    assert max(len(segment.names) for segment in received.segments) > 1
    steps = received.steps(received.range("a"))
    assert [len(step) for step in steps] == [12000, 1, 12000]
    events = received.events("a")
    assert [type(event) for event in (events[0], events[-1])] == [Begin, Commit]
    assert len(events) == 24_003
    places = [event.tx_ordinal for event in events if isinstance(event, (Insert, Truncate))]
    assert places == list(range(24_001))


def test_events_of_all_tables_stand_in_commit_order(source: Source, connection: Connection) -> None:
    connection.execute("INSERT INTO a VALUES (1, 'one', repeat('b', 9000))")
    with connection.transaction():
        connection.execute("INSERT INTO b VALUES (1, 'b')")
        connection.execute("UPDATE a SET v = 'uno'")
        connection.execute("INSERT INTO t VALUES (7, 'elsewhere')")
        connection.execute("UPDATE b SET id = 2")
        connection.execute("DELETE FROM a")
        connection.execute("TRUNCATE a, b")
    connection.execute("INSERT INTO t VALUES (8, 'nothing of ours')")
    events = Received(source, connection).events("a", "b")
    assert [type(event) for event in events] == [
        Begin, Insert, Commit, Begin, Insert, Update, Update, Delete, Truncate, Commit,
    ]  # fmt: skip
    update, rekey, delete, truncate = events[5:9]
    assert isinstance(update, Update)
    assert update.row == {"id": 1, "v": "uno", "big": UNCHANGED}
    assert update.old is None
    assert isinstance(rekey, Update)
    assert (rekey.old, rekey.old_kind) == ({"id": 1}, OldRowKind.KEY)
    assert isinstance(delete, Delete)
    assert delete.old == {"id": 1}
    assert isinstance(truncate, Truncate)
    assert sorted(schema.table.name.name for schema in truncate.schemas) == ["a", "b"]
    begin, commit = events[3], events[9]
    assert isinstance(begin, Begin)
    assert isinstance(commit, Commit)
    assert begin.commit_lsn == commit.commit_lsn < commit.end_lsn
    assert {e.xid for e in events[3:10]} == {begin.xid}  # type: ignore[union-attr]


def test_events_before_the_position_are_left_out(source: Source, connection: Connection) -> None:
    connection.execute("INSERT INTO a VALUES (1)")
    first = current_lsn(connection)
    connection.execute("INSERT INTO a VALUES (2)")
    events = Received(source, connection).events("a", start=first)
    assert [event.row["id"] for event in events if isinstance(event, Insert)] == [2]
    assert len(events) == 3


def test_indexes_of_segments_that_were_released_are_forgotten(source: Source, connection: Connection) -> None:
    for number in range(3):
        connection.execute("INSERT INTO a VALUES (%s)", (number,))
        received = Received(source, connection)
    assert len(received.segments) == 3
    reader, table = received.reader, received.schema("a").table.id
    for segment in reader.segments(received.start):
        reader.has_changes(table, [segment])
    known = [name for segment in received.segments for name in segment.names]
    assert list(reader._indexes) == known

    Spool.open(received.config.spool).release(received.segments[-2].end, 0)
    (last,) = reader.segments(received.segments[-2].end)
    # The next index that is read shows that others are not needed any more.
    del reader._indexes[last.names[0]]
    reader.has_changes(table, [last])
    assert list(reader._indexes) == list(last.names)
