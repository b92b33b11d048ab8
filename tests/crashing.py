"""A pipeline that is crashed at a named point, and the source it is crashed over.

A crash in this process: from that moment on every point, every call of store and destination and every COMMIT raises,
and the receiver is killed. So nothing that the code does on its way out reaches a file, as after kill -9.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import psycopg
from psycopg.errors import DeadlockDetected

from exactly_once import Oracle
from headrace.config.pipeline import PipelineConfig
from headrace.destinations.around import Around
from headrace.errors import DestinationError
from headrace.pipeline import Pipeline
from headrace.pipeline.failpoint import set_hook
from headrace.schema import TableName
from headrace.stores import SqliteStore
from headrace.testing.durable_destination import DurableDestination
from headrace.testing.faulty_destination import FaultyDestination
from pipelining import PATIENCE_S, Piped, pipeline_config, wait_equal

__all__ = ["SOURCE", "TABLES", "Changes", "Crash", "CrashedLife", "Scene"]

Connection = psycopg.Connection[Any]
_Result = TypeVar("_Result")

TABLES = ("public.keyed", "public.bag", "public.journal", "public.parted", "public.quiet")
SOURCE = """
CREATE TABLE keyed (id bigint PRIMARY KEY, note text, big text);
ALTER TABLE keyed ALTER big SET STORAGE EXTERNAL;
INSERT INTO keyed SELECT n, 'n' || n, repeat(md5(n::text), 80) FROM generate_series(1, 300) n;
CREATE TABLE bag (a int, b text);
ALTER TABLE bag REPLICA IDENTITY FULL;
INSERT INTO bag SELECT n % 7, 'same' FROM generate_series(1, 50) n;
CREATE TABLE journal (what text, at timestamptz DEFAULT clock_timestamp());
INSERT INTO journal SELECT 'w' || n FROM generate_series(1, 50) n;
CREATE TABLE parted (id int, region text, v numeric(8, 2), PRIMARY KEY (id, region)) PARTITION BY LIST (region);
CREATE TABLE parted_n PARTITION OF parted FOR VALUES IN ('n');
CREATE TABLE parted_s PARTITION OF parted FOR VALUES IN ('s');
INSERT INTO parted SELECT n, CASE WHEN n % 2 = 0 THEN 'n' ELSE 's' END, n FROM generate_series(1, 60) n;
CREATE TABLE quiet (id int PRIMARY KEY);
ANALYZE;
CREATE PUBLICATION pub FOR TABLE keyed, bag, journal, parted, quiet WITH (publish_via_partition_root = true);
"""


class _RolledBack(Exception):
    pass


class Changes(threading.Thread):
    """A client that changes all tables but the quiet one in every way, until stopped; it may be paused."""

    def __init__(
        self, conninfo: str, seed: int, *, number: int | None = None, whole_rows: bool = False, thinking_s: float = 0.04
    ) -> None:
        """`whole_rows`: no truncate and no key change that leaves a TOASTed value out (a copy by key ranges that meets
        one is given up for a copy under one snapshot). `number` is of one of several clients, which make keys of
        their own, and large transactions too."""
        super().__init__(name=f"changes-{number}", daemon=True)
        self._conninfo, self._number, self._thinking_s = conninfo, number, thinking_s
        self._weights = (4, 4, 3, 2, 3, 2, 3, 0 if number is None else 0.2, 0 if whole_rows else 0.15)
        self._whole_rows = whole_rows
        self._random = random.Random(seed * 1000 + (number or 0))
        self._next = ((number or 0) + 1) * 10_000_000
        self._pace = threading.Lock()
        self._stop_asked = threading.Event()
        self.made = 0
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            with psycopg.connect(self._conninfo, autocommit=True) as connection:
                while not self._stop_asked.wait(self._random.uniform(0, self._thinking_s)):
                    # Clients that meet in rows or in locks of TRUNCATE are rolled back by the server now and then.
                    with self._pace, contextlib.suppress(_RolledBack, DeadlockDetected), connection.transaction():
                        self._transaction(connection)
        except BaseException as error:
            self.error = error
            raise

    @contextlib.contextmanager
    def paused(self) -> Any:
        with self._pace:
            yield

    def stop(self) -> None:
        self._stop_asked.set()
        self.join(PATIENCE_S)
        assert self.error is None

    def _transaction(self, connection: Connection) -> None:
        for _ in range(self._random.choice([1, 1, 2, 5])):
            with contextlib.suppress(_RolledBack), connection.transaction():
                self._change(connection)
                if self._random.random() < 0.1:
                    raise _RolledBack
        self.made += 1
        if self._random.random() < 0.05:
            raise _RolledBack

    def _change(self, connection: Connection) -> None:
        kinds = ("insert", "update", "rekey", "delete", "bag", "journal", "parted", "bulk", "truncate")
        getattr(self, f"do_{self._random.choices(kinds, self._weights)[0]}")(connection)

    def do_insert(self, connection: Connection) -> None:
        self._next += 1
        key = self._next if self._random.random() < 0.5 else -self._next
        connection.execute("INSERT INTO keyed VALUES (%s, 'new', repeat(md5(%s::text), 80))", (key, key))

    def do_update(self, connection: Connection) -> None:
        some = "SELECT id FROM keyed WHERE id >= %s ORDER BY id LIMIT 4"
        query = f"UPDATE keyed SET note = left(note || 'u', 40) WHERE id IN ({some})"
        connection.execute(query, (self._random.randint(-100, 300),))

    def do_rekey(self, connection: Connection) -> None:
        self._next += 1
        big = ", big = big || 'x'" if self._whole_rows else ""
        query = f"UPDATE keyed SET id = %s{big} WHERE id = (SELECT min(id) FROM keyed WHERE id >= %s)"
        connection.execute(query, (self._next, self._random.randint(-100, 300)))

    def do_delete(self, connection: Connection) -> None:
        query = "DELETE FROM keyed WHERE id IN (SELECT id FROM keyed WHERE id >= %s ORDER BY id LIMIT 2)"
        connection.execute(query, (self._random.randint(-10_000, 300),))

    def do_bag(self, connection: Connection) -> None:
        number = self._random.randrange(7)
        connection.execute("INSERT INTO bag SELECT %s, 'same' FROM generate_series(1, 2)", (number,))
        one = "SELECT min(ctid) FROM bag WHERE a = %s"
        connection.execute(f"DELETE FROM bag WHERE ctid = ({one})", (number,))
        connection.execute(f"UPDATE bag SET a = a + 1 WHERE ctid = ({one})", (self._random.randrange(7),))

    def do_journal(self, connection: Connection) -> None:
        connection.execute("INSERT INTO journal (what) SELECT 'j' || n FROM generate_series(1, 3) n")

    def do_parted(self, connection: Connection) -> None:
        self._next += 1
        connection.execute("INSERT INTO parted VALUES (%s, 'n', 1)", (self._next,))
        moved = "UPDATE parted SET region = 's' WHERE region = 'n' AND id >= %s AND id < %s"
        connection.execute(moved, (self._next - 20, self._next - 10))
        connection.execute("UPDATE parted SET v = v + 1 WHERE id = %s", (self._random.randint(1, 60),))

    def do_bulk(self, connection: Connection) -> None:
        """Enough for a transaction to be streamed before its commit, where decoding has 64 kB."""
        note, count = f"bulk {self._number}", 1500
        connection.execute("DELETE FROM keyed WHERE note = %s", (note,))
        rows = "SELECT %s + n, %s, repeat('x', 60) FROM generate_series(1, %s) n"
        connection.execute(f"INSERT INTO keyed {rows}", (self._next, note, count))
        self._next += count

    def do_truncate(self, connection: Connection) -> None:
        connection.execute(self._random.choice(["TRUNCATE keyed", "TRUNCATE bag, journal", "TRUNCATE parted, quiet"]))
        rows = "SELECT n, 'again', 'b' FROM generate_series(1, 50) n ON CONFLICT DO NOTHING"
        connection.execute(f"INSERT INTO keyed {rows}")


class Crash(BaseException):
    """The process is no more. No handler for errors may catch it."""


class _Guarded:
    """A store that is not reached after the crash."""

    def __init__(self, store: SqliteStore, check: Callable[[], None]) -> None:
        self._store, self._check = store, check

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)

        def call(*arguments: Any, **named: Any) -> Any:
            try:
                self._check()
            except Crash:
                # Sent by a thread of its own, which has no part in the crash: the heartbeats of a dead process end.
                if name == "store_heartbeat":
                    return None
                raise
            return method(*arguments, **named)

        return call


class CrashedLife:
    """One pipeline, from its start to its crash."""

    def __init__(self, config: PipelineConfig, root: Path, spark: Any, destination: Any = None) -> None:
        self.crashed = threading.Event()
        self.failing: str | None = None
        """A method of the destination that raises, once."""
        self._armed: tuple[str, int] | None = None
        self._lock = threading.Lock()
        self.store = SqliteStore(config.store_path, config.id)
        self.destination = destination or DurableDestination(root / "destination.db", lambda *_: self._check())
        guarded = Around(FaultyDestination(self.destination, self._fail), self._surround)
        store: Any = _Guarded(self.store, self._check)
        self.pipeline = Pipeline(config, store, guarded, spark=spark)

    def arm(self, point: str, count: int, failing: str | None = None) -> None:
        with self._lock:
            self._armed, self.failing = (point, count), failing

    def reached(self, point: str, table: str | None) -> None:
        del table
        with self._lock:
            self._check()
            if self._armed is None or self._armed[0] != point:
                return
            self._armed = (point, self._armed[1] - 1)
            if not self._armed[1]:
                self._crash()

    def _crash(self) -> None:
        self.crashed.set()
        life = self.pipeline._life
        assert life is not None
        pid = life.reception.pid
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
        # Only so that its threads end soon: they can do nothing any more.
        self.pipeline._stopping.set()
        raise Crash

    def _check(self) -> None:
        if self.crashed.is_set():
            raise Crash

    def _surround(self, method: str, table: TableName | None, call: Callable[[], _Result]) -> _Result:
        del table
        if method != "shutdown":
            self._check()
        return call()

    def _fail(self, method: str, table: str | None) -> None:
        with self._lock:
            if method != self.failing:
                return
            self.failing = None
        raise DestinationError(f"{method} of {table} fails once")


class Scene:
    """A source under change, and one life of the pipeline after the other on the same files."""

    def __init__(self, conninfo: str, connection: Connection, spark: Any, root: Path, **settings: Any) -> None:
        self._connection, self._spark, self._root = connection, spark, root
        quick = {"batch": {"max_fill_ms": 20}, "spool": {"segment_age_ms": 10}, "table_error_retry_delay_ms": 50}
        self._config = pipeline_config(conninfo, root, **{**quick, **settings})
        self._config.directory.mkdir(parents=True, exist_ok=True)
        connection.execute(SOURCE)
        self._oracle = Oracle(connection)
        self.changes = Changes(conninfo, 1, whole_rows="initial_copy" in settings)
        self.life: CrashedLife | None = None

    def __enter__(self) -> Scene:
        self.changes.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bury()
        self.changes.stop()

    def start(self) -> CrashedLife:
        """A new life; what the last one left is all it has."""
        assert self.life is None
        self.life = life = CrashedLife(self._config, self._root, self._spark)
        set_hook(life.reached)
        return life

    def crash(self, point: str) -> None:
        """Wait for the crash at a point that was armed, and take the dead pipeline away."""
        assert self.life is not None
        piped = Piped(self.life.pipeline)
        assert self.life.crashed.wait(PATIENCE_S), f"{point} was never reached: {piped.status}"
        self._bury()

    def converge(self) -> int:
        """The changes pause until everything has arrived; returns how many changes are in the logs."""
        life = self.life
        assert life is not None
        piped = Piped(life.pipeline)
        piped.until_ready()
        some = self.changes.made + 5
        piped.until(lambda: self.changes.made >= some)
        with self.changes.paused():
            piped.until_ready()
            wait_equal(piped, self._connection, life.destination, *TABLES)
            return self._oracle.check(life.store, life.destination, *TABLES)

    def _bury(self) -> None:
        life, self.life = self.life, None
        if life is not None:
            assert life.pipeline.stop(PATIENCE_S)
            set_hook(None)
            life.destination.shutdown()
            life.store.close()
