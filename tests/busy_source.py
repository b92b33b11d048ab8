"""A source that is never quiet: writers that move rows all over their tables, roll back and use savepoints."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Iterator
from typing import Any

import psycopg

TABLES = ("items", "marks", "docs", "bag")
WRITERS = 4

_SPREAD, _STRIDE = 1_000_003, 8
_SCHEMA = """
CREATE TABLE items (id bigint PRIMARY KEY, owner int, note text);
CREATE TABLE marks (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), owner int, value numeric(12, 3));
CREATE TABLE docs (id int PRIMARY KEY, owner int, n int, body text);
ALTER TABLE docs ALTER body SET STORAGE EXTERNAL;
CREATE TABLE bag (owner int, what text);
ALTER TABLE bag REPLICA IDENTITY FULL;
"""


class _RolledBack(Exception):
    pass


def create_tables(connection: psycopg.Connection[Any], rows: int, publication: str = "pub") -> None:
    """The four tables, filled and published: keyed by bigint and by uuid, with TOASTed values, without a key."""
    connection.execute(_SCHEMA)
    connection.execute(
        f"INSERT INTO items SELECT n * 99991 %% {_SPREAD} * {_STRIDE} + {WRITERS}, n %% {WRITERS}, repeat('p', 30) "
        "FROM generate_series(1, %s) n",
        (rows,),
    )
    connection.execute(
        f"INSERT INTO marks (owner, value) SELECT n %% {WRITERS}, n / 3.0 FROM generate_series(1, %s) n", (rows,)
    )
    connection.execute(
        f"INSERT INTO docs SELECT n * 1000 + {WRITERS}, n %% {WRITERS}, 0, repeat(md5(n::text), 80) "
        "FROM generate_series(1, %s) n",
        (rows // 20,),
    )
    connection.execute(f"INSERT INTO bag SELECT n %% {WRITERS}, 'same' FROM generate_series(1, %s) n", (rows // 4,))
    connection.execute("ANALYZE")
    connection.execute(f"CREATE PUBLICATION {publication} FOR TABLE {', '.join(TABLES)}")


class Writer(threading.Thread):
    """One client. Its rows are its own, so that writers never wait for each other."""

    def __init__(self, conninfo: str, number: int, seed: int, stop: threading.Event) -> None:
        super().__init__(name=f"writer-{number}", daemon=True)
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
                    # Clients think between transactions; writers that did not would leave no CPU to anyone else.
                    self._stop_asked.wait(self._random.uniform(0, 0.02))
        except BaseException as error:
            self.error = error
            raise

    def _transaction(self, connection: psycopg.Connection[Any]) -> None:
        for _ in range(self._random.choice([1, 1, 2, 6])):
            with contextlib.suppress(_RolledBack), connection.transaction():
                self._change(connection)
                if self._random.random() < 0.2:
                    raise _RolledBack
        if self._random.random() < 0.1:
            raise _RolledBack

    def _new_key(self) -> int:
        self._made += 1
        return self._made * 7919 % _SPREAD * _STRIDE + self._number

    def _change(self, connection: psycopg.Connection[Any]) -> None:
        table = self._random.choices([self._items, self._marks, self._docs, self._bag], [5, 3, 2, 1])[0]
        kind = self._random.choices(["insert", "update", "rekey", "delete"], [4, 3, 3, 2])[0]
        table(connection, kind)

    def _items(self, connection: psycopg.Connection[Any], kind: str) -> None:
        some = "(SELECT id FROM items WHERE owner = %s AND id >= %s ORDER BY id LIMIT {})"
        at = (self._number, self._random.randrange(_SPREAD * _STRIDE))
        if kind == "insert":
            connection.execute("INSERT INTO items VALUES (%s, %s, 'new')", (self._new_key(), self._number))
        elif kind == "update":
            connection.execute(f"UPDATE items SET note = left(note || 'u', 60) WHERE id IN {some.format(5)}", at)
        elif kind == "rekey":
            connection.execute(f"UPDATE items SET id = %s WHERE id IN {some.format(1)}", (self._new_key(), *at))
        else:
            connection.execute(f"DELETE FROM items WHERE id IN {some.format(2)}", at)

    def _marks(self, connection: psycopg.Connection[Any], kind: str) -> None:
        some = "(SELECT id FROM marks WHERE owner = %s ORDER BY md5(id::text || %s) LIMIT 1)"
        at = (self._number, str(self._random.random()))
        if kind == "insert":
            connection.execute("INSERT INTO marks (owner, value) VALUES (%s, 1)", (self._number,))
        elif kind == "update":
            connection.execute(f"UPDATE marks SET value = value + 1 WHERE id IN {some}", at)
        elif kind == "rekey":
            connection.execute(f"UPDATE marks SET id = gen_random_uuid() WHERE id IN {some}", at)
        else:
            connection.execute(f"DELETE FROM marks WHERE id IN {some}", at)

    def _docs(self, connection: psycopg.Connection[Any], kind: str) -> None:
        some = "(SELECT id FROM docs WHERE owner = %s ORDER BY md5(id::text || %s) LIMIT 1)"
        at = (self._number, str(self._random.random()))
        if kind == "insert":
            body = "repeat(md5(random()::text), 80)"
            connection.execute(f"INSERT INTO docs VALUES (%s, %s, 0, {body})", (self._new_key(), self._number))
        elif kind == "update":
            connection.execute(f"UPDATE docs SET n = n + 1 WHERE id IN {some}", at)
        elif kind == "rekey":
            connection.execute(f"UPDATE docs SET id = %s WHERE id IN {some}", (self._new_key(), *at))
        else:
            connection.execute(f"DELETE FROM docs WHERE id IN {some}", at)

    def _bag(self, connection: psycopg.Connection[Any], kind: str) -> None:
        one = "(SELECT ctid FROM bag WHERE owner = %s LIMIT 1)"
        if kind == "insert":
            connection.execute("INSERT INTO bag VALUES (%s, 'same'), (%s, 'same')", (self._number, self._number))
        elif kind == "delete":
            connection.execute(f"DELETE FROM bag WHERE ctid = {one}", (self._number,))
        else:
            connection.execute(f"UPDATE bag SET what = 'changed' WHERE ctid = {one}", (self._number,))


class Load:
    """Writers at work."""

    def __init__(self, writers: list[Writer], stop: threading.Event) -> None:
        self._writers, self._stop = writers, stop

    @property
    def transactions(self) -> int:
        return sum(writer.transactions for writer in self._writers)

    def wait_more(self, count: int) -> None:
        """Until they have made so many more transactions, each of them at least one; or were told to stop."""
        goals = [writer.transactions + 2 for writer in self._writers]
        goal = self.transactions + count
        while self.transactions < goal or any(w.transactions < g for w, g in zip(self._writers, goals, strict=True)):
            assert all(writer.error is None for writer in self._writers)
            if self._stop.wait(0.002):
                return


@contextlib.contextmanager
def busy(conninfo: str, seed: int = 0) -> Iterator[Load]:
    """Writers at work until the block ends; a writer that failed fails the test."""
    stop = threading.Event()
    writers = [Writer(conninfo, number, seed, stop) for number in range(WRITERS)]
    for writer in writers:
        writer.start()
    try:
        yield Load(writers, stop)
    finally:
        stop.set()
        for writer in writers:
            writer.join(60)
    assert [writer.error for writer in writers] == [None] * WRITERS
