"""A pipeline slows down for want of memory and loses nothing; and it counts what it does."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.request import urlopen

import psycopg
import pytest

from headrace.destinations.memory import MemoryDestination
from headrace.pipeline import memory
from headrace.pipeline.memory import MemorySample
from headrace.stores import MemoryStore
from pipelining import Piped, assert_equal_tables, piped, pipeline_config, wait_equal

Connection = psycopg.Connection[Any]


class FakeMemory:
    """What the monitor measures, as the test says."""

    used = 0

    def __call__(self) -> MemorySample:
        return MemorySample(self.used, 100)


def samples(running: Piped) -> dict[tuple[str, str | None], float]:
    """By name and table; sums over other labels."""
    found: dict[tuple[str, str | None], float] = {}
    assert running.pipeline.metrics is not None
    for family in running.pipeline.metrics.registry.collect():
        for sample in family.samples:
            key = (sample.name, sample.labels.get("table"))
            found[key] = found.get(key, 0.0) + sample.value
    return found


def test_reading_pauses_while_memory_is_short(
    conninfo: str, connection: Connection, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = FakeMemory()
    monkeypatch.setattr(memory, "ProcessTree", lambda: fake)
    connection.execute("CREATE TABLE t (id int PRIMARY KEY, v text); CREATE PUBLICATION pub FOR TABLE t")
    destination = MemoryDestination()
    config = pipeline_config(conninfo, tmp_path, memory_refresh_interval_ms=5)
    with piped(config, MemoryStore(), destination, spark) as running:
        running.until_ready()
        fake.used = 85
        running.until(lambda: running.status.receiver.state == "paused")
        connection.execute("INSERT INTO t SELECT n, 'x' FROM generate_series(1, 500) n")
        fake.used = 80
        # Between the thresholds it stays as it is: nothing has come through.
        running.until(lambda: running.status.memory_used_ratio == 0.8)
        assert running.status.receiver.state == "paused"
        assert destination.rows("public.t").num_rows == 0
        fake.used = 74
        wait_equal(running, connection, destination, "public.t")
        assert running.status.receiver.state == "streaming"
        counted = samples(running)
    assert counted["headrace_memory_backpressure_transitions_total", None] == 2


def test_everything_is_counted(conninfo: str, connection: Connection, spark: Any, tmp_path: Path) -> None:
    connection.execute("CREATE TABLE t (id int PRIMARY KEY, at timestamp); CREATE PUBLICATION pub FOR TABLE t")
    connection.execute(
        "INSERT INTO t SELECT n, now() FROM generate_series(1, 40) n; INSERT INTO t VALUES (0, 'infinity')"
    )
    destination = MemoryDestination()
    config = pipeline_config(
        conninfo, tmp_path, metrics={"enabled": True, "port": 0}, replication_lag_refresh_interval_ms=100
    )
    with piped(config, MemoryStore(), destination, spark) as running:
        running.until_ready()
        connection.execute("INSERT INTO t SELECT n, now() FROM generate_series(100, 109) n")
        connection.execute("UPDATE t SET at = '-infinity' WHERE id = 100; DELETE FROM t WHERE id > 105")
        running.until_applied(connection)
        running.until(lambda: samples(running).get(("headrace_lag_seconds", None)) == 0)
        counted = samples(running)
        server = running.pipeline._life._server  # type: ignore[union-attr]
        assert server is not None
        page = urlopen(f"http://{server.host}:{server.port}/metrics").read().decode()
    table = "public.t"
    assert counted["headrace_copied_rows_total", table] == 41
    assert counted["headrace_streamed_rows_total", table] == 10 + 1 + 4
    assert counted["headrace_quarantined_values_total", table] == 2
    assert counted["headrace_batches_total", None] >= 1
    assert counted["headrace_slot_retained_bytes", None] > 0
    assert counted["headrace_tables", None] == 1
    assert 'headrace_streamed_rows_total{destination="memory",op="delete",pipeline_id="1",table="public.t"} 4.0' in page
    quarantined = destination.quarantine(table).to_pylist()
    assert [(row["key"], row["column"], row["text"]) for row in quarantined] == [
        ('{"id": "0"}', "at", "infinity"),
        ('{"id": "100"}', "at", "-infinity"),
    ]


def test_an_unrepresentable_value_can_be_an_error(
    conninfo: str, connection: Connection, spark: Any, tmp_path: Path
) -> None:
    connection.execute("CREATE TABLE t (id int PRIMARY KEY, at timestamp); INSERT INTO t VALUES (1, 'infinity')")
    connection.execute("CREATE TABLE fine (id int PRIMARY KEY); INSERT INTO fine VALUES (1)")
    connection.execute("CREATE PUBLICATION pub FOR TABLE t, fine")
    destination = MemoryDestination()
    config = pipeline_config(conninfo, tmp_path, on_unrepresentable="error")
    with piped(config, MemoryStore(), destination, spark) as running:
        running.until_ready("public.fine")
        running.until(lambda: running.states()["public.t"].value == "errored")
        state = running.status.tables["public.t"].state
        assert state.reason is not None
        assert "values in at" in state.reason
        assert_equal_tables(connection, destination, "public.fine")
