"""What ends or freezes a pipeline is in its last heartbeat, so that `headrace status` can report it."""

from __future__ import annotations

import os
import signal
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark import SparkContext

from awaiting import until
from headrace.errors import SlotNotFound
from headrace.lsn import Lsn
from headrace.pipeline import Pipeline, lag_watch
from headrace.spark import labels
from headrace.stores import MemoryStore
from headrace.stores.records import Heartbeat
from headrace.testing.durable_destination import DurableDestination
from pipelining import PATIENCE_S, piped, pipeline_config, wait_equal

Connection = psycopg.Connection[Any]
T = "public.t"


def create_table(connection: Connection) -> None:
    connection.execute("CREATE TABLE t (id serial PRIMARY KEY, note text)")
    connection.execute("INSERT INTO t (note) SELECT 'copied' FROM generate_series(1, 50)")
    connection.execute("CREATE PUBLICATION pub FOR TABLE t")


def test_a_start_that_fails_is_reported(conninfo: str, connection: Connection, spark: Any, tmp_path: Path) -> None:
    create_table(connection)
    config, store = pipeline_config(conninfo, tmp_path), MemoryStore()
    path = tmp_path / "destination.db"
    with piped(config, store, DurableDestination(path), spark) as running:
        running.until_ready()
        until(lambda: store.get_heartbeat() is not None)
    last = store.get_heartbeat()
    assert last is not None
    assert (last.state, last.problem) == ("stopped", None)
    active = "SELECT count(*) FROM pg_replication_slots WHERE active AND slot_name = %s"
    until(lambda: connection.execute(active, (config.slot_name,)).fetchone() == (0,))
    connection.execute("SELECT pg_drop_replication_slot(%s)", (config.slot_name,))

    fail_to_start(config, store, path, spark)
    report = store.get_heartbeat()
    assert report is not None
    assert (report.state, report.pid, report.applied) == ("failed", os.getpid(), last.applied)
    assert f"replication slot {config.slot_name} does not exist" in (report.problem or "")
    assert "invalidated_slot_behavior" in (report.hint or "")

    # A run that is at work elsewhere keeps its own report.
    other = Heartbeat(datetime.now(UTC), "elsewhere", 1, "running", "streaming", 0.0, Lsn(5))
    store.store_heartbeat(other)
    fail_to_start(config, store, path, spark)
    assert store.get_heartbeat() == other
    # One that has not reported for long does not.
    store.store_heartbeat(replace(other, written_at=datetime(2026, 1, 1, tzinfo=UTC)))
    fail_to_start(config, store, path, spark)
    report = store.get_heartbeat()
    assert report is not None
    assert (report.state, report.applied) == ("failed", Lsn(5))


def fail_to_start(config: Any, store: MemoryStore, path: Path, spark: Any) -> None:
    with Pipeline(config, store, DurableDestination(path), spark=spark) as pipeline:
        pipeline.start()
        with pytest.raises(SlotNotFound):
            pipeline.wait(PATIENCE_S)


def test_a_frozen_java_process_is_reported(
    conninfo: str, connection: Connection, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_table(connection)
    monkeypatch.setattr(lag_watch, "_HEARTBEAT_INTERVAL_S", 0.1)
    monkeypatch.setattr(lag_watch, "_JAVA_SILENT_AFTER_S", 2.0)
    monkeypatch.setattr(labels, "_PULSE_INTERVAL_S", 0.1)
    store, destination = MemoryStore(), DurableDestination(tmp_path / "destination.db")
    java = SparkContext._gateway.proc.pid  # type: ignore[union-attr]

    def problem() -> str:
        report = store.get_heartbeat()
        return "" if report is None else report.problem or ""

    with piped(pipeline_config(conninfo, tmp_path), store, destination, spark) as running:
        running.until_ready()
        until(lambda: store.get_heartbeat() is not None and not problem())
        os.kill(java, signal.SIGSTOP)
        try:
            until(lambda: f"Spark's Java process (process {java}) has not answered for" in problem())
        finally:
            os.kill(java, signal.SIGCONT)
        until(lambda: not problem())
        connection.execute("INSERT INTO t (note) VALUES ('streamed')")
        wait_equal(running, connection, destination, T)


def test_a_pulse_ends_beside_a_frozen_java_process(spark: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(labels, "_PULSE_INTERVAL_S", 0.05)
    java = SparkContext._gateway.proc.pid  # type: ignore[union-attr]
    pulse = labels.JavaPulse()
    with closing(pulse):
        pulse.start()
        os.kill(java, signal.SIGSTOP)
        try:
            until(lambda: pulse.silent_s > 0.5)
            # It returns, although Java never answers.
            pulse.close()
            assert pulse.silent_s > 0.5
        finally:
            os.kill(java, signal.SIGCONT)
    assert spark.range(3).count() == 3
