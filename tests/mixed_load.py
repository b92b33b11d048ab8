"""Tables of every shape, and writers that do to them all that a source can."""

from __future__ import annotations

import contextlib
import math
import random
import threading
import time
from collections.abc import Iterator
from typing import Any

import psycopg
from psycopg import sql
from psycopg.errors import DeadlockDetected, LockNotAvailable, SerializationFailure

from every_type import TYPES_DDL, assignments, columns_ddl, row_of
from pipelining import PUBLICATION

__all__ = ["DDL", "TABLES", "WRITERS", "Load", "fill", "mixed_load", "publish"]

Connection = psycopg.Connection[Any]

WRITERS = 4
TABLES = (
    "public.kinds", "public.docs", "public.lines", "public.items", "public.fully", "public.marks", "public.bag",
    "public.journal", "public.parted", "public.quiet",
)  # fmt: skip
"""All types; TOASTed values; a key of several columns; a plain key; a key and whole old rows; an identity by index; no
key and whole old rows; inserts only; partitions; nothing at all."""

DDL = f"""
{TYPES_DDL}
CREATE TABLE kinds (id bigint PRIMARY KEY, {columns_ddl()});
CREATE TABLE docs (id int PRIMARY KEY, n int, big text, note text, more bytea);
ALTER TABLE docs ALTER big SET STORAGE EXTERNAL, ALTER more SET STORAGE EXTERNAL;
CREATE TABLE lines (number int, "order" text, sku uuid, amount numeric(12, 2), PRIMARY KEY ("order", sku, number));
CREATE TABLE items (id bigint PRIMARY KEY, owner int, note text, big text);
ALTER TABLE items ALTER big SET STORAGE EXTERNAL;
CREATE TABLE fully (id int PRIMARY KEY, n int, big text);
ALTER TABLE fully REPLICA IDENTITY FULL;
ALTER TABLE fully ALTER big SET STORAGE EXTERNAL;
CREATE TABLE marks (id int PRIMARY KEY, code text NOT NULL, day date NOT NULL, v int);
CREATE UNIQUE INDEX marks_code ON marks (code, day);
ALTER TABLE marks REPLICA IDENTITY USING INDEX marks_code;
CREATE TABLE bag (a int, b text, c int[]);
ALTER TABLE bag REPLICA IDENTITY FULL;
CREATE TABLE journal (what text, at timestamptz DEFAULT clock_timestamp(), data jsonb);
CREATE TABLE parted (id int, region text, at timestamp, v numeric(8, 2), PRIMARY KEY (id, region))
    PARTITION BY LIST (region);
CREATE TABLE parted_n PARTITION OF parted FOR VALUES IN ('n');
CREATE TABLE parted_s PARTITION OF parted FOR VALUES IN ('s', 'w');
CREATE TABLE quiet (id int PRIMARY KEY, note text);
"""

_BIG = "repeat(md5(({})::text), 80)"
"""Long enough to be stored out of line."""


class _RolledBack(Exception):
    pass


def publish(connection: Connection) -> None:
    """Make and publish the tables, and have transactions of more than 64 kB streamed before their commit."""
    connection.execute(DDL)
    tables = ", ".join(TABLES)
    connection.execute(f"CREATE PUBLICATION {PUBLICATION} FOR TABLE {tables} WITH (publish_via_partition_root = true)")
    connection.execute(f"ALTER DATABASE {connection.info.dbname} SET logical_decoding_work_mem = '64kB'")


def fill(connection: Connection, seed: int) -> None:
    """Rows to begin with: the smallest keys of every writer."""
    chance = random.Random(seed)
    for number in range(60):
        query = sql.SQL("INSERT INTO kinds VALUES ({}, {})").format(number, row_of(chance))
        connection.execute(query)
    big = _BIG.format("n")
    for statement in (
        f"INSERT INTO docs SELECT n, 0, {big}, 'first', convert_to({big}, 'UTF8') FROM generate_series(1, 200) n",
        "INSERT INTO lines SELECT n, 'order ' || n %% 20, md5((n %% 3)::text)::uuid, n FROM generate_series(1, 200) n",
        f"INSERT INTO items SELECT n, n %% {WRITERS}, 'first', {big} FROM generate_series(1, 200) n",
        f"INSERT INTO fully SELECT n, 0, {big} FROM generate_series(1, 100) n",
        "INSERT INTO marks SELECT n, 'code ' || n, date '2024-01-01' + n, n FROM generate_series(1, 100) n",
        "INSERT INTO bag SELECT n %% 7, 'same', ARRAY[n %% 2, NULL] FROM generate_series(1, 60) n",
        "INSERT INTO journal (what) SELECT 'w' || n FROM generate_series(1, 50) n",
        "INSERT INTO parted SELECT n, (ARRAY['n','s','w'])[n %% 3 + 1], timestamp '2024-01-01' + n * interval '6 h', n "
        "FROM generate_series(1, 120) n",
    ):
        connection.execute(statement.replace("%%", "%"))
    connection.execute("ANALYZE")


# The last of a row that another writer has moved to another partition.
_GIVEN_UP = (_RolledBack, DeadlockDetected, LockNotAvailable, SerializationFailure)


class Writer(threading.Thread):
    """One client. New keys are its own; rows that it changes are everybody's."""

    def __init__(self, conninfo: str, number: int, seed: int, thinking_s: float) -> None:
        super().__init__(name=f"writer-{number}", daemon=True)
        self._conninfo, self._number, self._thinking_s = conninfo, number, thinking_s
        self._random = random.Random(seed * 1000 + number)
        self._next = (number + 1) * 10_000_000
        self.stop_asked = threading.Event()
        self.made = 0
        self.quota: float = math.inf
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            with psycopg.connect(self._conninfo, autocommit=True) as connection:
                while not self.stop_asked.wait(self._random.uniform(0, self._thinking_s)):
                    if self.made >= self.quota:
                        continue
                    # Writers that meet in rows or in TRUNCATE's locks are rolled back by the server now and then.
                    with contextlib.suppress(*_GIVEN_UP), connection.transaction():
                        self._transaction(connection)
                    self.made += 1
        except BaseException as error:
            self.error = error
            raise

    def _transaction(self, connection: Connection) -> None:
        for _ in range(self._random.choice([1, 1, 2, 6])):
            with contextlib.suppress(_RolledBack), connection.transaction():
                self._change(connection)
                if self._random.random() < 0.15:
                    raise _RolledBack
        if self._random.random() < 0.08:
            raise _RolledBack

    def _change(self, connection: Connection) -> None:
        kinds = {"kinds": 5, "docs": 5, "lines": 4, "items": 4, "fully": 3, "marks": 3, "bag": 4, "journal": 2,
                 "parted": 4, "bulk": 0.5, "truncate": 0.4}  # fmt: skip
        (kind,) = self._random.choices(list(kinds), list(kinds.values()))
        getattr(self, f"do_{kind}")(connection)

    def _new(self) -> int:
        self._next += 1
        return self._next if self._random.random() < 0.5 else -self._next

    def _what(self) -> str:
        return self._random.choices(["insert", "update", "rekey", "delete"], [4, 5, 3, 2])[0]

    def _some(self, table: str, count: int) -> str:
        """Keys of rows that are next to each other, somewhere in the table."""
        key = self._random.choice([self._random.randint(-100, 300), self._random.randint(-(10**8), 10**8)])
        return f"(SELECT id FROM {table} WHERE id >= {key} ORDER BY id LIMIT {count})"

    def do_kinds(self, connection: Connection) -> None:
        what, some = self._what(), sql.SQL(self._some("kinds", 3))
        if what == "insert":
            query = sql.SQL("INSERT INTO kinds VALUES ({}, {})").format(self._new(), row_of(self._random))
        elif what == "update":
            values = assignments(self._random, self._random.choice([1, 4, 20]))
            query = sql.SQL("UPDATE kinds SET {} WHERE id IN {}").format(values, some)
        elif what == "rekey":
            one = sql.SQL(self._some("kinds", 1))
            query = sql.SQL("UPDATE kinds SET id = {} WHERE id IN {}").format(self._new(), one)
        else:
            query = sql.SQL("DELETE FROM kinds WHERE id IN {}").format(some)
        connection.execute(query)

    def do_docs(self, connection: Connection) -> None:
        what, new = self._what(), self._new()
        if what == "insert":
            big = _BIG.format(new)
            connection.execute(f"INSERT INTO docs VALUES ({new}, 0, {big}, 'new', convert_to({big}, 'UTF8'))")
        elif what == "update":
            # Mostly with the long values left as they were, and so not sent.
            changed = self._random.choice(
                [
                    "n = n + 1",
                    "n = n + 1",
                    "note = left(note || 'u', 40)",
                    "big = 'short'",
                    "more = NULL",
                    "big = big || 'x'",
                ]
            )
            connection.execute(f"UPDATE docs SET {changed} WHERE id IN {self._some('docs', 4)}")
        elif what == "rekey":
            connection.execute(f"UPDATE docs SET id = {new} WHERE id IN {self._some('docs', 1)}")
        else:
            connection.execute(f"DELETE FROM docs WHERE id IN {self._some('docs', 2)}")

    def do_lines(self, connection: Connection) -> None:
        what = self._what()
        one = f"(SELECT ctid FROM lines WHERE number >= {self._random.randint(0, 200)} ORDER BY number LIMIT 1)"
        if what == "insert":
            values = (self._new(), f"order {self._random.randrange(20)}", str(self._random.randrange(3)))
            connection.execute("INSERT INTO lines VALUES (%s, %s, md5(%s)::uuid, 1.5)", values)
        elif what == "update":
            order = f"order {self._random.randrange(20)}"
            connection.execute('UPDATE lines SET amount = amount + 1 WHERE "order" = %s', (order,))
        elif what == "rekey":
            connection.execute(f"UPDATE lines SET number = {self._new()} WHERE ctid = {one}")
        else:
            connection.execute(f"DELETE FROM lines WHERE ctid = {one}")

    def do_items(self, connection: Connection) -> None:
        what, new, some = self._what(), self._new(), self._some("items", 5)
        if what == "insert":
            connection.execute(f"INSERT INTO items VALUES ({new}, {self._number}, 'new', {_BIG.format(new)})")
        elif what == "update":
            connection.execute(f"UPDATE items SET note = left(note || 'é', 40) WHERE id IN {some}")
        elif what == "rekey":
            connection.execute(f"UPDATE items SET id = {new} WHERE id IN {self._some('items', 1)}")
        else:
            # And comes back, in the same transaction.
            connection.execute(f"WITH gone AS (DELETE FROM items WHERE id IN {some} RETURNING id) SELECT id FROM gone")
            connection.execute(f"INSERT INTO items VALUES ({new}, {self._number}, NULL, NULL)")
            connection.execute(f"UPDATE items SET note = 'back' WHERE id = {new}")

    def do_fully(self, connection: Connection) -> None:
        what, new = self._what(), self._new()
        if what == "insert":
            connection.execute(f"INSERT INTO fully VALUES ({new}, 0, {_BIG.format(new)})")
        elif what == "update":
            connection.execute(f"UPDATE fully SET n = n + 1 WHERE id IN {self._some('fully', 3)}")
        elif what == "rekey":
            connection.execute(f"UPDATE fully SET id = {new} WHERE id IN {self._some('fully', 1)}")
        else:
            connection.execute(f"DELETE FROM fully WHERE id IN {self._some('fully', 2)}")

    def do_marks(self, connection: Connection) -> None:
        what, new = self._what(), self._new()
        if what == "insert":
            connection.execute(f"INSERT INTO marks VALUES ({new}, 'code {new}', '2024-02-29', 1)")
        elif what == "update":
            # The primary key may change; the index that names rows is another.
            connection.execute(f"UPDATE marks SET v = v + 1, id = {new} WHERE id IN {self._some('marks', 1)}")
        elif what == "rekey":
            connection.execute(
                f"UPDATE marks SET code = 'code {new}', day = day + 1 WHERE id IN {self._some('marks', 1)}"
            )
        else:
            connection.execute(f"DELETE FROM marks WHERE id IN {self._some('marks', 2)}")

    def do_bag(self, connection: Connection) -> None:
        number = self._random.randrange(7)
        connection.execute("INSERT INTO bag SELECT %s, 'same', '{1,NULL}' FROM generate_series(1, 2)", (number,))
        one = "SELECT min(ctid) FROM bag WHERE a = %s"
        connection.execute(f"DELETE FROM bag WHERE ctid = ({one})", (number,))
        other = self._random.randrange(7)
        connection.execute(
            f"UPDATE bag SET a = (a + 1) % 7, b = NULL WHERE ctid = ({one})".replace("% 7", "%% 7"), (other,)
        )

    def do_journal(self, connection: Connection) -> None:
        connection.execute(
            "INSERT INTO journal (what, data) SELECT 'j' || n, '{\"b\": 1}' FROM generate_series(1, 3) n"
        )

    def do_parted(self, connection: Connection) -> None:
        what, new = self._what(), abs(self._new())
        region, other = self._random.choices("nsw", k=2)
        if what == "insert":
            connection.execute(f"INSERT INTO parted VALUES ({new}, '{region}', '2024-02-29 12:00', 1)")
        elif what == "update":
            day = "at = at + interval '1 day'" if self._random.random() < 0.5 else "v = v + 1"
            connection.execute(f"UPDATE parted SET {day} WHERE (id, region) IN {self._some_parted(region, 4)}")
        elif what == "rekey":
            # From partition to partition, where they differ.
            key = f"region = '{other}', id = {new}"
            connection.execute(f"UPDATE parted SET {key} WHERE (id, region) IN {self._some_parted(region, 1)}")
        else:
            connection.execute(f"DELETE FROM parted WHERE (id, region) IN {self._some_parted(region, 2)}")

    def _some_parted(self, region: str, count: int) -> str:
        some = f"region = '{region}' AND id >= {self._random.choice([self._random.randint(1, 120), 10**7])}"
        return f"(SELECT id, region FROM parted WHERE {some} ORDER BY id LIMIT {count})"

    def do_bulk(self, connection: Connection) -> None:
        """Many times what decoding holds in memory, and what a segment has."""
        note, count = f"bulk {self._number}", 1500
        connection.execute("DELETE FROM docs WHERE note = %s", (note,))
        rows = "SELECT %s + n, %s, repeat('x', 60), %s, NULL FROM generate_series(1, %s) n"
        connection.execute(f"INSERT INTO docs {rows}", (self._next, self._number, note, count))
        connection.execute("UPDATE docs SET n = n + 1 WHERE note = %s AND id %% 3 = 0", (note,))
        with contextlib.suppress(_RolledBack), connection.transaction():
            connection.execute("UPDATE docs SET n = n - 1 WHERE note = %s", (note,))
            raise _RolledBack
        connection.execute("UPDATE docs SET id = -id WHERE note = %s AND id %% 7 = 0", (note,))
        self._next += count

    def do_truncate(self, connection: Connection) -> None:
        several = ["lines", "items, fully", "bag, journal", "parted, quiet", "docs, marks, kinds", "quiet"]
        tables = self._random.choices(several, [1, 2, 2, 2, 1, 1])[0]
        # A copy under way has locked the table; who waits for it stops everybody, the copy's own sessions too.
        connection.execute("SET LOCAL lock_timeout = '300ms'")
        connection.execute(f"TRUNCATE {tables}")
        connection.execute("SET LOCAL lock_timeout = 0")
        if self._random.random() < 0.5:
            self._change(connection)
            connection.execute(
                "INSERT INTO items SELECT n, 0, 'again' FROM generate_series(1, 30) n ON CONFLICT DO NOTHING"
            )
            connection.execute(
                "INSERT INTO docs SELECT n, 0, 'again' FROM generate_series(1, 30) n ON CONFLICT DO NOTHING"
            )


class Load:
    """Writers at work."""

    def __init__(self, writers: list[Writer]) -> None:
        self._writers = writers

    @property
    def made(self) -> int:
        return sum(writer.made for writer in self._writers)

    def go_on(self, transactions: int) -> None:
        """Have each make so many more, and no more."""
        for writer in self._writers:
            writer.quota = writer.made + transactions

    def wait(self, timeout: float = 300) -> None:
        """Until they have made what they were told to."""
        deadline = time.monotonic() + timeout
        while any(writer.made < writer.quota for writer in self._writers):
            assert all(writer.error is None for writer in self._writers)
            assert time.monotonic() < deadline, f"{self.made} transactions were made"
            time.sleep(0.02)


@contextlib.contextmanager
def mixed_load(conninfo: str, seed: int, *, thinking_s: float = 0.05) -> Iterator[Load]:
    """Writers at work until the block ends; one that failed fails the test."""
    writers = [Writer(conninfo, number, seed, thinking_s) for number in range(WRITERS)]
    for writer in writers:
        writer.start()
    try:
        yield Load(writers)
    finally:
        for writer in writers:
            writer.stop_asked.set()
        for writer in writers:
            writer.join(60)
    assert [writer.error for writer in writers] == [None] * WRITERS
