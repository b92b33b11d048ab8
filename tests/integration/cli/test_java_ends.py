"""`headrace run` when Spark's Java process ends: alone, or because all processes were sent a signal."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
import yaml
from pyiceberg.catalog import load_catalog

from commanding import invoke
from headrace.errors import RetryPolicy
from headrace.postgres.connection import parse_conninfo
from headrace.stores import SqliteStore
from headrace.table_state import State
from headrace.testing.postgres import PASSWORD
from started import Started, commands

Connection = psycopg.Connection[tuple[object, ...]]

pytestmark = pytest.mark.spark

TABLES = ("a", "b", "c")


@pytest.fixture
def start() -> Iterator[Callable[..., Started]]:
    with commands() as begin:
        yield begin


@pytest.fixture
def source(connection: Connection) -> Connection:
    for name in TABLES:
        connection.execute(f"CREATE TABLE {name} (id serial PRIMARY KEY, note text)")
        connection.execute(f"INSERT INTO {name} (note) VALUES ('copied')")
    connection.execute("CREATE PUBLICATION pub FOR TABLE a, b, c")
    return connection


def settings(conninfo: str, root: Path, destination: dict[str, Any]) -> str:
    at = parse_conninfo(conninfo)
    values = {
        "id": 7,
        "publication_name": "pub",
        "slot_name": f"slot_{at.name}",
        "pg_connection": {
            "host": at.host,
            "port": at.port,
            "name": at.name,
            "username": at.username,
            "password": PASSWORD,
        },
        "data_dir": str(root / "data"),
        "destination": destination,
        "spark": {"master": "local[1]", "short_lived": True, "driver_memory": "512m"},
        "batch": {"max_fill_ms": 50},
        "spool": {"segment_age_ms": 20},
        "receiver": {"status_interval_ms": 50},
        "table_error_retry_delay_ms": 200,
    }
    path = root / "pipeline.yaml"
    path.write_text(yaml.safe_dump(values))
    return str(path)


def all_ready(run: Started) -> bool:
    return all(run.logged('"table moved"', f'"public.{name}"', '"state": "ready"') for name in TABLES)


def java_of(run: Started) -> psutil.Process:
    return next(child for child in run.children() if child.name() == "java")


def test_a_dead_java_ends_the_process_and_the_next_start_goes_on(
    source: Connection, conninfo: str, tmp_path: Path, start: Callable[..., Started]
) -> None:
    warehouse = tmp_path / "warehouse"
    path = settings(conninfo, tmp_path, {"kind": "iceberg", "warehouse": str(warehouse)})
    first = start("run", path)
    first.until(lambda: all_ready(first))

    # Given writers, so that every table meets the dead Java
    over = threading.Event()

    def write() -> None:
        with psycopg.connect(conninfo, autocommit=True) as writer:
            while not over.wait(0.02):
                for name in TABLES:
                    writer.execute(f"INSERT INTO {name} (note) VALUES ('streamed')")

    thread = threading.Thread(target=write)
    thread.start()
    try:
        java_of(first).kill()
        code = first.ended()
    finally:
        over.set()
        thread.join()

    # Then the process ends by the true reason
    assert code == 4, "".join(first.err)
    assert "error Spark's Java process has ended\n" in first.err
    assert "detail killed by SIGKILL\n" in first.err
    assert first.err[-1].startswith("what to do start the process again")
    # And no table is to blame
    store = SqliteStore(tmp_path / "data" / "pipeline-7" / "store.db", 7)
    assert {state.state for state in store.get_table_states().values()} == {State.READY}
    store.close()
    # And the status is that of a pipeline that failed
    status = invoke("status", path)
    assert status.exit_code == 1
    assert "ended by an error: Spark's Java process has ended" in " ".join(status.stdout.split())

    # When it is started again, all tables go on
    second = start("run", path)
    second.until(lambda: second.logged('"running"'))
    catalog = load_catalog("headrace", type="sql", uri=f"sqlite:///{warehouse}/catalog.db")

    def same() -> bool:
        return all(
            sorted(catalog.load_table(f"public.{name}").scan().to_arrow()["id"].to_pylist())
            == [row[0] for row in source.execute(f"SELECT id FROM {name} ORDER BY 1")]
            for name in TABLES
        )

    second.until(same)
    second.process.terminate()
    assert second.ended() == 0


@pytest.mark.parametrize("how", ["group", "each"])
def test_a_signal_to_all_processes_is_an_orderly_stop(
    source: Connection, conninfo: str, tmp_path: Path, start: Callable[..., Started], how: str
) -> None:
    """To the process group, as terminals and `timeout` send it; to each process, as systemd does by default."""
    run = start("run", settings(conninfo, tmp_path, {"kind": "iceberg", "warehouse": str(tmp_path / "warehouse")}))
    run.until(lambda: all_ready(run))
    source.execute("INSERT INTO a (note) VALUES ('streamed')")
    children = run.children()
    if how == "group":
        os.killpg(run.process.pid, signal.SIGTERM)
    else:
        # Java first: what the pipeline does meanwhile fails.
        java = java_of(run)
        java.terminate()
        for process in [*(child for child in children if child != java), psutil.Process(run.process.pid)]:
            process.terminate()
    assert run.ended() == 0, "".join(run.err)
    assert run.logged("stopped", "SIGTERM")
    if how == "group":
        assert not run.logged('"level": "error"'), "".join(run.err)
        assert not run.logged("table failed"), "".join(run.err)
    # A write may meet the end of a worker before this process gets its own signal: the next start repeats it by itself.
    store = SqliteStore(tmp_path / "data" / "pipeline-7" / "store.db", 7)
    states = store.get_table_states().values()
    store.close()
    assert {state.retry_policy for state in states} <= {None, RetryPolicy.TIMED}
    # Whose parent has ended, is reaped by another process, a moment later.
    assert psutil.wait_procs(children, timeout=60)[1] == []
