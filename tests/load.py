"""Writers that change three tables in every way a source does: tiny and huge transactions, savepoints, rollbacks."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Iterator

import psycopg

SCHEMA = """
CREATE TABLE items (id bigint PRIMARY KEY, owner int, note text);
CREATE TABLE journal (id bigserial, what text, at timestamptz DEFAULT now());
ALTER TABLE journal REPLICA IDENTITY FULL;
CREATE TABLE scratch (id int PRIMARY KEY, big text);
ALTER TABLE scratch ALTER big SET STORAGE EXTERNAL;
"""


class _RolledBack(Exception):
    pass


class Writer(threading.Thread):
    """One client. Keys are its own, so that writers never wait for each other for long."""

    def __init__(self, conninfo: str, number: int, seed: int, stop: threading.Event) -> None:
        super().__init__(name=f"writer-{number}", daemon=True)
        self._conninfo = conninfo
        self._number = number
        self._random = random.Random(seed * 1000 + number)
        self._stop_asked = stop
        self._next = number * 10_000_000
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
                    self._stop_asked.wait(self._random.uniform(0, 0.15))
        except BaseException as error:
            self.error = error
            raise

    def _transaction(self, connection: psycopg.Connection[object]) -> None:
        for _ in range(self._random.choice([1, 1, 2, 5])):
            if self._random.random() < 0.3:
                with contextlib.suppress(_RolledBack), connection.transaction():
                    self._change(connection)
                    if self._random.random() < 0.5:
                        raise _RolledBack
            else:
                self._change(connection)
        if self._random.random() < 0.15:
            raise _RolledBack

    def _change(self, connection: psycopg.Connection[object]) -> None:
        mine = (self._number * 10_000_000, self._next)
        kind = self._random.choices(["insert", "many", "update", "rekey", "delete", "truncate"], [6, 1, 4, 1, 2, 0.2])[
            0
        ]
        if kind == "insert":
            self._next += 1
            connection.execute("INSERT INTO items VALUES (%s, %s, %s)", (self._next, self._number, "é\n\t" * 5))
            connection.execute("INSERT INTO journal (what) VALUES (%s)", (f"writer {self._number}",))
        elif kind == "many":
            count = self._random.choice([100, 1000, 3000])
            rows = "SELECT %s + n, %s, repeat('x', 60) FROM generate_series(1, %s) n"
            connection.execute(f"INSERT INTO items {rows}", (self._next, self._number, count))
            self._next += count
        elif kind == "update":
            few = "SELECT id FROM items WHERE id BETWEEN %s AND %s LIMIT 20"
            connection.execute(f"UPDATE items SET note = note || 'u' WHERE id IN ({few})", mine)
        elif kind == "rekey":
            self._next += 1
            query = "UPDATE items SET id = %s WHERE id = (SELECT max(id) FROM items WHERE id BETWEEN %s AND %s)"
            connection.execute(query, (self._next, *mine))
        elif kind == "delete":
            query = "DELETE FROM items WHERE id IN (SELECT id FROM items WHERE id BETWEEN %s AND %s LIMIT 50)"
            connection.execute(query, mine)
        elif self._number == 0:
            connection.execute("TRUNCATE scratch")
            connection.execute("INSERT INTO scratch SELECT n, repeat(md5(n::text), 100) FROM generate_series(1, 5) n")
            connection.execute("UPDATE scratch SET id = -id")


@contextlib.contextmanager
def running(conninfo: str, writers: int = 4, seed: int = 0) -> Iterator[list[Writer]]:
    """Writers at work until the block ends; a writer that failed fails the test."""
    stop = threading.Event()
    threads = [Writer(conninfo, number, seed, stop) for number in range(writers)]
    for thread in threads:
        thread.start()
    try:
        yield threads
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)
    for thread in threads:
        assert thread.error is None
        assert thread.transactions > 0
