"""A thousand tables created at once where all tables are published: picked up, and the busy table hardly notices.

The lag of a change is from its commit at the source to the end of the write that brought it.
"""

from __future__ import annotations

import bisect
import resource
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headrace.destinations.batch import EventBatch
from headrace.destinations.contract import Durability
from headrace.destinations.memory import MemoryDestination
from headrace.lsn import Lsn
from headrace.stores import SqliteStore
from headrace.table_state import State
from pipelining import Piped, assert_equal_tables, piped, pipeline_config, wait_equal

Connection = psycopg.Connection[Any]

BUSY = "public.busy"
NORMAL_S = 15.0
PAUSE_S = 0.02
SEEN_WITHIN_S = 10.0
"""Tables that join are known by then, with the looks as often as they are by default."""


class Timed(MemoryDestination):
    """Notes when what had been committed was written of the busy table."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[tuple[int, float]] = []

    def write_events(self, batch: EventBatch) -> Durability:
        done = super().write_events(batch)
        if any(str(table.schema.table.name) == BUSY for table in batch.tables):
            self.written.append((int(batch.end), time.monotonic()))
        return done


class Writer(threading.Thread):
    """Commits a row again and again, and notes when, and where in the WAL."""

    def __init__(self, conninfo: str) -> None:
        super().__init__(daemon=True)
        self._conninfo = conninfo
        self._ended = threading.Event()
        self.commits: list[tuple[int, float]] = []

    def run(self) -> None:
        with psycopg.connect(self._conninfo, autocommit=True) as connection:
            while not self._ended.wait(PAUSE_S):
                connection.execute("INSERT INTO busy (note) VALUES (repeat('x', 100))")
                at = time.monotonic()
                row = connection.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
                assert row is not None
                self.commits.append((int(Lsn.parse(row[0])), at))

    def stop(self) -> None:
        self._ended.set()
        self.join()


def lags(commits: Sequence[tuple[int, float]], written: Sequence[tuple[int, float]]) -> list[float]:
    """Of each commit, how long after it the write came that reached past it."""
    ends = [end for end, _ in written]
    found = [(at, bisect.bisect_left(ends, lsn)) for lsn, at in commits]
    return sorted(written[index][1] - at for at, index in found if index < len(written))


def p95(values: list[float]) -> float:
    return values[int(len(values) * 0.95)]


def figures(name: str, values: list[float]) -> str:
    median, worst = statistics.median(values), values[-1]
    return f"{name}: {len(values)} commits, median {median:.3f} s, p95 {p95(values):.3f} s, max {worst:.3f} s"


@pytest.mark.parametrize("count", [40, pytest.param(1000, marks=pytest.mark.long)])
def test_tables_that_join_at_once(
    conninfo: str, connection: Connection, spark: Any, tmp_path: Path, count: int
) -> None:
    connection.execute("CREATE TABLE busy (id bigserial PRIMARY KEY, note text)")
    connection.execute("CREATE PUBLICATION pub FOR ALL TABLES")
    names = [f"public.t{number}" for number in range(count)]
    destination, writer = Timed(), Writer(conninfo)
    config = pipeline_config(conninfo, tmp_path)
    with (
        closing(SqliteStore(tmp_path / "store.db", config.id)) as store,
        piped(config, store, destination, spark) as running,
    ):
        running.until_ready()
        writer.start()
        try:
            began = settle(writer, NORMAL_S if count > 100 else 1.0)
            with connection.transaction():
                for name in names:
                    connection.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, note text)")
                    connection.execute(f"INSERT INTO {name} SELECT n, %s FROM generate_series(1, 10) n", (name,))
            created = time.monotonic()
            until(running, lambda: len(running.status.tables) == count + 1)
            seen = time.monotonic()
            until(running, lambda: all(state is State.READY for state in running.states().values()))
            ready = time.monotonic()
        finally:
            writer.stop()
        wait_equal(running, connection, destination, BUSY)
        assert_equal_tables(connection, destination, *names)
        normal = lags([commit for commit in writer.commits if began <= commit[1] < created - 1], destination.written)
        during = lags([commit for commit in writer.commits if created <= commit[1] < ready], destination.written)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        print(f"\n{count} tables: seen after {seen - created:.1f} s, ready after {ready - created:.1f} s, {memory} MiB")
        assert any(created < at < ready for _, at in destination.written), "the busy table stood still"
        if count >= 1000:
            print(figures("before", normal), figures("during", during), sep="\n")
            assert seen - created < SEEN_WITHIN_S
            assert statistics.median(during) <= 2 * statistics.median(normal)


def until(running: Piped, condition: Callable[[], bool], timeout: float = 900) -> None:
    """As `Piped.until`, but looking twice a second: a look at a thousand tables is work too."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert not running.pipeline.wait(0.5), "the pipeline ended"
        assert time.monotonic() < deadline, f"the condition never came true: {running.status}"


def settle(writer: Writer, seconds: float) -> float:
    """Let it write for a while, and then for so many seconds more; since when those count."""
    time.sleep(1.0)
    began = time.monotonic()
    time.sleep(seconds)
    assert writer.is_alive()
    return began
