"""Destinations that take events: whole batches in commit order, and those that accept first and are durable later."""

from __future__ import annotations

import io
import json
import threading
from pathlib import Path
from typing import Any

import psycopg
import pytest

from failing import Failures
from headrace.destinations.batch import EventBatch
from headrace.destinations.contract import Durability
from headrace.destinations.memory import MemoryDestination
from headrace.destinations.stdout import StdoutDestination
from headrace.errors import DestinationConnectionFailed, DestinationRejected
from headrace.events import Insert
from headrace.lsn import Lsn
from headrace.pipeline import Pipeline
from headrace.stores import MemoryStore
from headrace.stores.records import APPLY
from headrace.table_state import State
from headrace.testing.faulty_destination import FaultyDestination
from pipelining import Piped, piped, pipeline_config

Connection = psycopg.Connection[Any]

A, B = "public.a", "public.b"


@pytest.fixture(autouse=True)
def tables(connection: Connection) -> None:
    connection.execute("CREATE TABLE a (id int PRIMARY KEY, note text); CREATE TABLE b (id int PRIMARY KEY, note text)")
    connection.execute("INSERT INTO a VALUES (1, 'copied')")
    connection.execute("CREATE PUBLICATION pub FOR TABLE a, b")


def lines(stream: io.StringIO, *kinds: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in stream.getvalue().splitlines()]
    return [line for line in found if not kinds or line["kind"] in kinds]


def test_standard_output_has_whole_transactions_in_commit_order(
    conninfo: str, connection: Connection, spark: Any, tmp_path: Path
) -> None:
    stream, failures = io.StringIO(), Failures()
    destination = FaultyDestination(StdoutDestination(stream), failures)
    with piped(pipeline_config(conninfo, tmp_path), MemoryStore(), destination, spark) as running:
        running.until_ready()
        assert {line["table"] for line in lines(stream, "copy")} == {A, B}
        assert lines(stream, "row") == [{"kind": "row", "table": A, "row": {"id": 1, "note": "copied"}}]
        copied = len(lines(stream))
        # Nobody's in particular: no table is taken out, the batch is tried again.
        failures.begin("write_events", A, lambda: DestinationConnectionFailed("away"))
        with connection.transaction():
            connection.execute("INSERT INTO a VALUES (2, 'x'); INSERT INTO b VALUES (1, NULL)")
            connection.execute("UPDATE a SET note = 'y' WHERE id = 1")
        connection.execute("INSERT INTO b VALUES (2, 'later')")
        with connection.transaction():
            connection.execute("DELETE FROM b WHERE id = 1; UPDATE a SET id = 3 WHERE id = 2")
            connection.execute("TRUNCATE a")
        running.until(lambda: failures.count["write_events", A] > 3)
        assert set(running.states().values()) == {State.READY}
        assert len(lines(stream)) == copied
        failures.end("write_events", A)
        running.until(lambda: len(lines(stream, "commit")) == 3)
    events = [(line["kind"], line.get("table"), line.get("row")) for line in lines(stream)[copied:]]
    assert events == [
        ("begin", None, None),
        ("insert", A, {"id": 2, "note": "x"}),
        ("insert", B, {"id": 1, "note": None}),
        ("update", A, {"id": 1, "note": "y"}),
        ("commit", None, None),
        ("begin", None, None),
        ("insert", B, {"id": 2, "note": "later"}),
        ("commit", None, None),
        ("begin", None, None),
        ("delete", B, None),
        ("update", A, {"id": 3, "note": "x"}),
        ("truncate", None, None),
        ("commit", None, None),
    ]
    (truncate,) = lines(stream, "truncate")
    assert truncate["tables"] == [A]
    placed = [(Lsn.parse(line["commit_lsn"]), line.get("tx_ordinal", -1)) for line in lines(stream)[copied:]]
    ordered = [place for place in placed if place[1] >= 0]
    assert ordered == sorted(set(ordered))


def test_a_whole_batch_that_is_rejected_ends_the_pipeline(
    conninfo: str, connection: Connection, spark: Any, tmp_path: Path
) -> None:
    stream, failures, store = io.StringIO(), Failures(), MemoryStore()
    destination = FaultyDestination(StdoutDestination(stream), failures)
    config = pipeline_config(conninfo, tmp_path)
    with Pipeline(config, store, destination, spark=spark) as pipeline:
        pipeline.start()
        Piped(pipeline).until_ready()
        failures.begin("write_events", B, lambda: DestinationRejected("not this"))
        connection.execute("INSERT INTO b VALUES (7, 'kept')")
        with pytest.raises(DestinationRejected, match="not this"):
            pipeline.wait(60)
    failures.end("write_events", B)
    with piped(config, store, destination, spark) as running:
        running.until(lambda: len(lines(stream, "commit")) == 1)
    assert [line["row"]["id"] for line in lines(stream, "insert")] == [7]


class Buffered(MemoryDestination):
    """Accepts; what it accepted is lost with it unless `flush` comes first, and `flush` waits until it may."""

    def __init__(self) -> None:
        super().__init__()
        self.may_flush = threading.Event()
        self.flushed = 0

    @property
    def accepted(self) -> int:
        return sum(isinstance(event, Insert) for event in self.events())

    def applied_lsn(self, schema: Any) -> Lsn | None:
        return None

    def write_events(self, batch: EventBatch) -> Durability:
        super().write_events(batch)
        return Durability.ACCEPTED

    def flush(self) -> None:
        self.may_flush.wait()
        # Two flushes may overlap: that of the apply loop and that of a catch-up.
        self.flushed = max(self.flushed, self.accepted)


def test_progress_moves_only_after_a_flush(conninfo: str, connection: Connection, spark: Any, tmp_path: Path) -> None:
    store, destination = MemoryStore(), Buffered()
    config = pipeline_config(conninfo, tmp_path, spool={"segment_age_ms": 20, "durable": False})
    with piped(config, store, destination, spark) as running:
        destination.may_flush.set()
        running.until_ready()
        connection.execute("INSERT INTO a VALUES (10, 'first')")
        running.until_applied(connection)
        destination.may_flush.clear()
        row = connection.execute("SELECT pg_current_wal_lsn()::text").fetchone()
        assert row is not None
        before = Lsn.parse(row[0])
        try:
            for number in range(11, 15):
                connection.execute("INSERT INTO a VALUES (%s, 'more')", (number,))
                connection.execute("INSERT INTO b VALUES (%s, 'more')", (number,))
            running.until(lambda: destination.accepted > 1)
            assert destination.flushed == 1
            assert (store.get_progress(APPLY) or Lsn(0)) <= before
            assert running.status.applied <= before
            assert all(table.position <= before for table in running.status.tables.values())
            slot = connection.execute(
                "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = %s", (config.slot_name,)
            ).fetchone()
            assert slot is not None
            assert Lsn.parse(slot[0]) <= before
        finally:
            destination.may_flush.set()
        running.until_applied(connection)
        running.until(lambda: destination.flushed == 9)
        running.until(lambda: (store.get_progress(APPLY) or Lsn(0)) > before)
    assert len(destination.rows(B)) == 4
