"""Copy and stream meet without a gap or a double: every range has its own snapshot, writers never stop, and a change is
applied iff the range that its key falls into did not show its transaction.
"""

from __future__ import annotations

import contextlib
import random
import threading
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import psycopg
import pytest

from copying import published
from headrace.initial_copy.plan import plan_copy
from headrace.initial_copy.ranges import CopyOptions, CopyPlan, KeyBounds
from headrace.initial_copy.reader import copy_columns, read_range
from headrace.pgoutput.decoder import decode
from headrace.pgoutput.messages import Begin, Delete, Insert, Text, TupleData, Update
from headrace.postgres.connection import parse_conninfo
from headrace.postgres.snapshots import Snapshot

pytestmark = pytest.mark.matrix

Connection = psycopg.Connection[Any]
BY_KEY = CopyOptions(rows_per_range=300, bytes_per_range=16 << 10, key_ranges_over_bytes=0)
WRITERS, SPREAD, STRIDE = 4, 1_000_003, 8
OPTIONS = ["proto_version", "1", "publication_names", "copied"]


class _RolledBack(Exception):
    pass


class Writer(threading.Thread):
    """Rows of its own, with keys all over the table: a key change nearly always moves a row to another range."""

    def __init__(self, conninfo: str, number: int, seed: int, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self._conninfo, self._number, self._stop_asked = conninfo, number, stop
        self._random = random.Random(seed * 10 + number)
        self._made = 0
        self.transactions = 0
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            with psycopg.connect(self._conninfo, autocommit=True) as connection:
                while not self._stop_asked.is_set():
                    with contextlib.suppress(_RolledBack), connection.transaction():
                        self._transaction(connection)
                    self.transactions += 1
        except BaseException as error:
            self.error = error
            raise

    def _transaction(self, connection: Connection) -> None:
        for _ in range(self._random.choice([1, 1, 2, 6])):
            with contextlib.suppress(_RolledBack), connection.transaction():
                self._change(connection)
                if self._random.random() < 0.2:
                    raise _RolledBack
        if self._random.random() < 0.1:
            raise _RolledBack

    def _new_key(self) -> int:
        self._made += 1
        return self._made * 7919 % SPREAD * STRIDE + self._number

    def _change(self, connection: Connection) -> None:
        some = "(SELECT id FROM items WHERE owner = %s AND id >= %s ORDER BY id LIMIT {})"
        at = (self._number, self._random.randrange(SPREAD * STRIDE))
        kind = self._random.choices(["insert", "update", "rekey", "delete"], [4, 3, 3, 2])[0]
        if kind == "insert":
            connection.execute("INSERT INTO items VALUES (%s, %s, 'new')", (self._new_key(), self._number))
        elif kind == "update":
            connection.execute(f"UPDATE items SET note = left(note || 'u', 60) WHERE id IN {some.format(5)}", at)
        elif kind == "rekey":
            connection.execute(f"UPDATE items SET id = %s WHERE id IN {some.format(1)}", (self._new_key(), *at))
        else:
            connection.execute(f"DELETE FROM items WHERE id IN {some.format(2)}", at)


@contextlib.contextmanager
def running(conninfo: str, seed: int) -> Iterator[list[Writer]]:
    stop = threading.Event()
    writers = [Writer(conninfo, number, seed, stop) for number in range(WRITERS)]
    for writer in writers:
        writer.start()
    try:
        yield writers
    finally:
        stop.set()
        for writer in writers:
            writer.join(60)
    assert [writer.error for writer in writers] == [None] * WRITERS


class Replica:
    """The destination: rows by key, and the rule."""

    def __init__(self, plan: CopyPlan) -> None:
        bounds = [part.bounds for part in plan.ranges]
        self.lower = [int(b.lower) for b in bounds if isinstance(b, KeyBounds) and b.lower is not None]
        assert self.lower == sorted(self.lower)
        self.snapshots: list[Snapshot] = []
        self.rows: dict[int, tuple[Any, ...]] = {}
        self.counts: Counter[str] = Counter()

    def range_of(self, key: int) -> int:
        return bisect_right(self.lower, key)

    def due(self, key: int, xid: int) -> bool:
        seen = bool(self.snapshots[self.range_of(key)].visible(np.array([xid], dtype=np.uint32))[0])
        self.counts["seen" if seen else "due"] += 1
        return not seen

    def remove(self, key: int, xid: int) -> None:
        if self.due(key, xid):
            del self.rows[key]

    def put(self, row: tuple[Any, ...], xid: int, *, new: bool) -> None:
        if self.due(row[0], xid):
            assert (row[0] in self.rows) is not new
            self.rows[row[0]] = row

    def apply(self, payload: bytes, xid: int) -> int:
        """Returns the transaction that the next message belongs to."""
        message = decode(payload)
        if isinstance(message, Begin):
            return message.xid
        if isinstance(message, Insert):
            self.put(values(message.new), xid, new=True)
        elif isinstance(message, Delete):
            self.remove(values(message.old.values)[0], xid)
        elif isinstance(message, Update):
            moved = message.old is not None
            if message.old is not None:
                old = values(message.old.values)[0]
                self.counts["moved to another range"] += self.range_of(old) != self.range_of(values(message.new)[0])
                self.remove(old, xid)
            self.put(values(message.new), xid, new=moved)
        return xid


def values(row: TupleData) -> tuple[Any, ...]:
    texts = [value.data.decode() if isinstance(value, Text) else None for value in row]
    return (int(texts[0] or 0), None if texts[1] is None else int(texts[1]), texts[2])


def waited(connection: Connection, writers: list[Writer], more: int) -> None:
    goal = sum(writer.transactions for writer in writers) + more
    while sum(writer.transactions for writer in writers) < goal:
        connection.execute("SELECT pg_sleep(0.005)")
        assert all(writer.error is None for writer in writers)


@pytest.mark.parametrize("seed", range(4))
def test_key_ranges_and_stream_give_the_source_table(conninfo: str, connection: Connection, seed: int) -> None:
    connection.execute("CREATE TABLE items (id bigint PRIMARY KEY, owner int, note text)")
    connection.execute(
        f"INSERT INTO items SELECT n * 99991 % {SPREAD} * {STRIDE} + {WRITERS}, n % {WRITERS}, repeat('p', 30) "
        "FROM generate_series(1, 3000) n"
    )
    schema = published(connection, "items")
    slot = f"handoff_{connection.info.dbname}"
    connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (slot,))
    config, columns = parse_conninfo(conninfo), copy_columns(schema)
    with running(conninfo, seed) as writers:
        waited(connection, writers, 100)
        plan = plan_copy(connection, schema, BY_KEY)
        replica = Replica(plan)
        snapshots: dict[int, Snapshot] = {}
        # In any order, as tasks run.
        for index in random.Random(seed).sample(range(len(plan.ranges)), len(plan.ranges)):
            for batch in read_range(config, plan.ranges[index], columns):
                assert batch.snapshot is not None
                snapshots[index] = batch.snapshot
                replica.rows.update({row["id"]: tuple(row.values()) for row in batch.rows.to_pylist()})
            waited(connection, writers, 20)
    replica.snapshots = [snapshots[index] for index in range(len(plan.ranges))]
    changes = connection.execute(
        "SELECT data FROM pg_logical_slot_get_binary_changes(%s, NULL, NULL, VARIADIC %s::text[])", (slot, OPTIONS)
    ).fetchall()
    xid = 0
    for (payload,) in changes:
        xid = replica.apply(bytes(payload), xid)
    source = {row[0]: row for row in connection.execute("SELECT * FROM items").fetchall()}
    assert replica.rows == source
    assert len(plan.ranges) > 8
    assert len(set(replica.snapshots)) > 8
    assert min(replica.counts[what] for what in ("seen", "due", "moved to another range")) > 20
