"""A Python worker of Spark's, or the daemon that forks them, is killed alone while a task runs: Spark repeats the task,
no table fails for good, and the destination equals the source.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

from awaiting import until
from delta_tables import DeltaLake, delta_settings
from duckdb_reading import DuckDBFile, duckdb_settings
from headrace.destinations.delta import DeltaDestination
from headrace.destinations.duckdb import DuckDBDestination
from headrace.destinations.iceberg import IcebergDestination
from headrace.errors import RetryPolicy
from headrace.pipeline import batches
from headrace.spark.jobs import run_tasks
from headrace.stores import MemoryStore
from lakehouse import Lake, iceberg_settings, lake
from pipelining import Piped, assert_equal_tables, piped, pipeline_config

Connection = psycopg.Connection[Any]

_LONG = [pytest.mark.long, pytest.mark.faults]
CASES = [
    ("iceberg", "worker"),
    pytest.param("iceberg", "daemon", marks=_LONG),
    *(pytest.param(kind, killed, marks=_LONG) for kind in ("delta", "duckdb") for killed in ("worker", "daemon")),
]
ROWS = 4_000


@pytest.fixture
def source(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> Connection:
    """Create two tables, of which one is too large to be copied by the driver; no batch is read by the driver."""
    monkeypatch.setattr(batches, "LOCAL_BYTES", 0)
    connection.execute("CREATE TABLE a (id int PRIMARY KEY, v text); CREATE TABLE b (id int PRIMARY KEY, v text)")
    connection.execute("CREATE PUBLICATION pub FOR TABLE a, b")
    connection.execute("INSERT INTO a SELECT n, repeat('x', 500) FROM generate_series(1, %s) n", (ROWS,))
    connection.execute("INSERT INTO b VALUES (1, 'copied')")
    return connection


@pytest.mark.parametrize(("kind", "killed"), CASES)
def test_the_process_of_a_task_is_killed(
    kind: str, killed: str, conninfo: str, source: Connection, spark: Any, tmp_path: Path
) -> None:
    destination, reader = _destination(kind, tmp_path)
    config, store = pipeline_config(conninfo, tmp_path / "data"), MemoryStore()
    # Given workers, of which the next task takes one
    run_tasks(spark, [0, 1], int, description="start workers")
    with _stopped(_workers(spark)) as stopped, piped(config, store, destination, spark) as running:
        # When one is killed while a task of the copy waits for it
        _kill_in_task(spark, running, killed, stopped)
        running.until_ready()
        running.until_applied(source)
        assert_equal_tables(source, reader, "public.a", "public.b")
        # And another while a task of a batch does
        with _stopped(_workers(spark)) as stopped_again:
            source.execute("UPDATE a SET v = repeat('y', 400) WHERE id % 2 = 0; DELETE FROM a WHERE id % 7 = 0")
            source.execute("INSERT INTO b VALUES (2, 'streamed')")
            _kill_in_task(spark, running, killed, stopped_again)
            running.until_applied(source)
        assert_equal_tables(source, reader, "public.a", "public.b")
        policies = {table.state.retry_policy for table in running.status.tables.values()}
    assert policies <= {None, RetryPolicy.TIMED}


def _destination(kind: str, root: Path) -> tuple[Any, Any]:
    """Return a destination, and what reads it without Headrace."""
    root.joinpath("warehouse").mkdir()
    if kind == "iceberg":
        return IcebergDestination(iceberg_settings(root / "warehouse")), _LateLake(root / "warehouse")
    if kind == "delta":
        return DeltaDestination(delta_settings(root / "warehouse")), DeltaLake(root / "warehouse")
    path = root / "warehouse" / "shop.duckdb"
    return DuckDBDestination(duckdb_settings(path)), DuckDBFile(path)


class _LateLake:
    """Opens the catalog when it is read: the destination creates it."""

    def __init__(self, warehouse: Path) -> None:
        self._warehouse = warehouse

    def rows(self, table: str) -> Any:
        catalog = lake(self._warehouse)
        try:
            return Lake(catalog).rows(table)
        finally:
            catalog.close()


def _daemon(spark: Any) -> psutil.Process:
    java = psutil.Process(int(spark._jvm.java.lang.ProcessHandle.current().pid()))
    living = (child for child in java.children() if child.status() != psutil.STATUS_ZOMBIE)
    return next(child for child in living if "headrace.spark.daemon" in child.cmdline())


def _workers(spark: Any) -> list[psutil.Process]:
    return _daemon(spark).children()


@contextmanager
def _stopped(workers: list[psutil.Process]) -> Iterator[list[psutil.Process]]:
    """Stop processes, so that a task that one of them is given does not end, and continue those that are left."""
    assert workers
    for worker in workers:
        worker.suspend()
    try:
        yield workers
    finally:
        _continue(workers)


def _continue(workers: list[psutil.Process]) -> None:
    for worker in workers:
        with suppress(psutil.NoSuchProcess):
            worker.resume()


def _kill_in_task(spark: Any, running: Piped, killed: str, stopped: list[psutil.Process]) -> None:
    """Kill one stopped worker that has a task, or the daemon while one has; then let the others go on."""
    tracker = spark.sparkContext.statusTracker()
    try:
        running.until(lambda: bool(tracker.getActiveStageIds()), timeout=60)
        if killed == "daemon":
            daemon = _daemon(spark)
            daemon.send_signal(signal.SIGKILL)
            daemon.wait(30)
        else:
            _kill_worker(tracker, stopped)
    finally:
        _continue(stopped)


def _kill_worker(tracker: Any, stopped: list[psutil.Process]) -> None:
    (stage, *_) = tracker.getActiveStageIds()
    for worker in stopped:
        worker.send_signal(signal.SIGKILL)
        try:
            until(lambda: _has_failed(tracker, stage), timeout=5)
        except AssertionError:
            continue
        return
    pytest.fail("no task was in a worker that was killed")


def _has_failed(tracker: Any, stage: int) -> bool:
    info = tracker.getStageInfo(stage)
    return info is not None and info.numFailedTasks > 0
