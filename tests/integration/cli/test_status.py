"""`headrace status`: before the first start, while the pipeline runs, after it stopped, and when things are away."""

from __future__ import annotations

import json
import os
import socket
import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from click.testing import Result

from awaiting import until
from commanding import HEAVY, invoke, run_and_list_modules, write_config
from failing import Failures
from headrace.config.load import load_pipeline_config
from headrace.config.receiver import StreamConfig
from headrace.destinations import NullDestination
from headrace.errors import DestinationRejected
from headrace.lsn import Lsn
from headrace.pipeline.build import build_store
from headrace.postgres.slots import create_slot
from headrace.replication.wire import Wire
from headrace.spool import Spool
from headrace.stores.migrations import migrations_of
from headrace.stores.records import Heartbeat
from headrace.table_state import State
from headrace.testing.faulty_destination import FaultyDestination
from headrace.testing.postgres import PASSWORD
from pipelining import piped

Connection = psycopg.Connection[Any]

QUICK = {
    "batch": {"max_fill_ms": 50},
    "spool": {"segment_age_ms": 20, "keep_seconds": 0},
    "receiver": {"status_interval_ms": 50},
}


@pytest.fixture
def file(conninfo: str, connection: Connection, tmp_path: Path) -> Path:
    connection.execute(
        'CREATE TABLE orders (id serial PRIMARY KEY, note text); CREATE TABLE "Line Items" (id int PRIMARY KEY)'
    )
    connection.execute("INSERT INTO orders (note) SELECT 'n' FROM generate_series(1, 50)")
    connection.execute('ANALYZE; CREATE PUBLICATION pub FOR TABLE orders, "Line Items"')
    return write_config(tmp_path / "pipeline.yaml", conninfo, **QUICK)


def parsed(result: Result) -> dict[str, Any]:
    found = json.loads(result.stdout)
    assert isinstance(found, dict)
    return found


def tables(found: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {table["name"]: table for table in found["tables"]}


def test_before_the_first_start_nothing_is_made(file: Path) -> None:
    result = invoke("status", file)
    assert result.exit_code == 0, result.stderr
    assert "not running" in result.stdout
    assert "not made yet" in result.stdout
    assert result.stdout.count("not seen yet") == 2
    assert not (file.parent / "data").exists()


def test_a_pipeline_at_work_and_after_it_stopped(file: Path, connection: Connection, spark: Any) -> None:
    config = load_pipeline_config(file, {"HEADRACE__PG_CONNECTION__PASSWORD": PASSWORD})
    failures = Failures()
    with piped(config, build_store(config), FaultyDestination(NullDestination(), failures), spark) as running:
        running.until_ready(timeout=240)
        connection.execute("INSERT INTO orders (note) VALUES ('streamed')")
        running.until_applied(connection, timeout=240)
        # When all is well
        result = invoke("status", file, "--json")
        found = parsed(result)
        orders = tables(found)["orders"]
        assert (result.exit_code, found["running"], found["slot"]["active"]) == (0, True, True)
        assert (orders["state"], orders["copied_rows"], orders["estimated_rows"]) == ("ready", 50, 50)
        assert orders["position"] is not None
        assert orders["lag_bytes"] is not None
        assert orders["lag_seconds"] is not None
        assert (found["errors"], found["problems"]) == ({}, [])
        report = found["heartbeats"][""]
        assert (report["state"], report["receiver"], report["pid"]) == ("running", "streaming", os.getpid())
        # When a table has failed
        failures.begin("write_events", "public.orders", lambda: DestinationRejected("no such type", hint="give it one"))
        connection.execute("INSERT INTO orders (note) VALUES ('rejected')")
        running.until(lambda: running.states()["public.orders"] is State.ERRORED)
        result = invoke("status", file)
        assert result.exit_code == 1
        assert "error public.orders failed: no such type" in result.stdout
        assert "what to do give it one; then: headrace rollback" in result.stdout
        behind = tables(parsed(invoke("status", file, "--json")))["orders"]
        assert behind["lag_seconds"] > 0
        assert behind["lag_bytes"] > 0
    # Then, after it stopped, the store still knows
    active = "SELECT count(*) FROM pg_replication_slots WHERE active AND database = current_database()"
    until(lambda: connection.execute(active).fetchone() == (0,))
    result = invoke("status", file)
    assert result.exit_code == 1
    assert "not running" in result.stdout
    assert "nobody reads it" in result.stdout
    # And when the slot is dropped
    connection.execute("SELECT pg_drop_replication_slot(%s)", (config.slot_name,))
    result = invoke("status", file)
    assert result.exit_code == 1
    assert "does not exist any more" in result.stdout
    # And when the source is away, what the store knows is shown all the same
    result = invoke("status", file, HEADRACE__PG_CONNECTION__PORT="1")
    assert result.exit_code == 3
    assert "running?" in result.stdout
    assert "public.orders" in result.stdout
    assert "error the source cannot be read: cannot connect to Postgres" in result.stdout


def test_a_wrong_password_is_told_and_exits_3(file: Path) -> None:
    result = invoke("status", file, PGPASSWORD=f"not-{PASSWORD[:4]}")
    assert result.exit_code == 3
    assert "password authentication failed" in result.stdout
    assert "pg_hba.conf" in result.stdout


def test_a_missing_publication_is_told(file: Path) -> None:
    result = invoke("status", file, HEADRACE__PUBLICATION_NAME="nopub")
    assert 'publication "nopub" does not exist' in result.stdout
    assert "CREATE PUBLICATION" in result.stdout
    assert result.exit_code == 1


def heartbeat(seconds_ago: float = 0.0, **changed: Any) -> Heartbeat:
    written_at = datetime.now(UTC) - timedelta(seconds=seconds_ago)
    return replace(Heartbeat(written_at, "db-1", 4711, "running", "streaming", 0.5, Lsn(0x10)), **changed)


@pytest.mark.parametrize(
    ("seconds_ago", "changed", "code", "said"),
    [
        (0, {}, 0, "running"),
        (0, {"state": "stopped"}, 0, "not running"),
        (3600, {"state": "stopped"}, 0, "not running"),
        (0, {"state": "failed"}, 1, "ended by an error"),
        (
            0,
            {"state": "failed", "problem": "the spool has a gap", "hint": "copy again"},
            1,
            "error: the spool has a gap",
        ),
        (3600, {}, 1, "(process 4711 on db-1) ended 36"),
        (3600, {"host": socket.gethostname(), "pid": os.getpid()}, 1, "it is stopped, or hangs"),
        (0, {"receiver_silent_s": 75.0}, 1, "receiver of the pipeline (process 4711 on db-1) has not reported for 75"),
        (0, {"receiver_silent_s": 75.0, "receiver_pid": 4712}, 1, "look at process 4712; if it does not go on, end it"),
        (0, {"problem": "the spool cannot be written: No space left", "hint": "make room"}, 1, "make room"),
    ],
)
def test_what_a_pipeline_reported_decides_the_exit_code(
    file: Path, seconds_ago: int, changed: dict[str, Any], code: int, said: str
) -> None:
    config, report = load_pipeline_config(file), heartbeat(seconds_ago, **changed)
    with closing(build_store(config)) as store:
        store.store_heartbeat(report)
    result = invoke("status", file)
    assert (result.exit_code, said in result.stdout) == (code, True), result.stdout
    found = parsed(invoke("status", file, "--json"))
    assert len(found["problems"]) == code
    assert found["running"] is (report.state == "running" and not seconds_ago)


def test_a_process_that_holds_the_slot_and_does_not_report_hangs(file: Path, connection: Connection) -> None:
    config = load_pipeline_config(file, {"HEADRACE__PG_CONNECTION__PASSWORD": PASSWORD})
    with closing(build_store(config)) as store:
        store.store_heartbeat(heartbeat(40))
    start = create_slot(connection, config.slot_name)
    stream = StreamConfig(
        pg_connection=config.pg_connection, publication_name=config.publication_name, slot_name=config.slot_name
    )
    with Wire.connect(stream, "receiver") as wire:
        wire.start(start)
        active = "SELECT active FROM pg_replication_slots WHERE slot_name = %s"
        until(lambda: connection.execute(active, (config.slot_name,)).fetchone() == (True,))
        result = invoke("status", file)
    assert result.exit_code == 1
    assert "(process 4711 on db-1) has not reported for 4" in result.stdout
    assert "it is stopped, or hangs" in result.stdout


def test_a_slot_that_is_not_of_this_pipeline(file: Path, connection: Connection) -> None:
    config = load_pipeline_config(file)
    connection.execute("SELECT pg_create_physical_replication_slot(%s)", (config.slot_name,))
    try:
        result = invoke("status", file)
    finally:
        connection.execute("SELECT pg_drop_replication_slot(%s)", (config.slot_name,))
    assert result.exit_code == 1
    assert f"replication slot {config.slot_name} is a physical slot" in " ".join(result.stdout.split())
    assert "choose another id or slot_name" in " ".join(result.stdout.split())


@pytest.mark.parametrize("options", [(), ("--json",)])
@pytest.mark.parametrize("spool", [False, True], ids=["before the first start", "with a spool"])
def test_a_look_loads_neither_spark_nor_arrow(file: Path, options: tuple[str, ...], spool: bool) -> None:
    if spool:
        Spool.open(load_pipeline_config(file).spool_config()).reset(Lsn(8))
    output, loaded = run_and_list_modules("status", str(file), *options, PGPASSWORD=PASSWORD)
    assert ("covers up to 0/8" in output) == (spool and not options)
    assert "orders" in output
    assert {"psycopg", "headrace.spool.spool"} < loaded
    assert loaded & HEAVY == set()


@pytest.mark.parametrize("kind", ["postgres", "memory"])
def test_stores_that_are_no_file(file: Path, connection: Connection, kind: str) -> None:
    result = invoke("status", file, HEADRACE__STORE__KIND=kind)
    assert result.exit_code == 0
    assert result.stdout.count("not known" if kind == "memory" else "not seen yet") == 2
    assert ("the store is in memory" in result.stdout) == (kind == "memory")
    # A look creates no schema.
    assert connection.execute("SELECT to_regnamespace('headrace')").fetchone() == (None,)


def test_a_store_that_is_none_exits_3_and_the_rest_is_shown(file: Path) -> None:
    place = file.parent / "data" / "pipeline-1"
    place.mkdir(parents=True)
    (place / "store.db").write_text("no store at all")
    result = invoke("status", file)
    assert result.exit_code == 3
    assert "error the store cannot be read" in result.stdout
    assert "public.orders      not known" in result.stdout
    assert "not made yet" not in result.stdout


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_store_of_an_older_version_is_left_as_it_is(
    file: Path, connection: Connection, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    # Given the store of a pipeline that an older program may be running
    environment = {"HEADRACE__PG_CONNECTION__PASSWORD": PASSWORD, "HEADRACE__STORE__KIND": kind}
    config = load_pipeline_config(file, environment)
    config.store_path.parent.mkdir(parents=True)
    with monkeypatch.context() as past:
        past.setattr(f"headrace.stores.{kind}.database.migrations_of", lambda package: migrations_of(package)[:1])
        build_store(config).close()

    def version() -> int:
        if kind == "sqlite":
            with closing(sqlite3.connect(config.store_path)) as store:
                return int(store.execute("PRAGMA user_version").fetchone()[0])
        row = connection.execute("SELECT max(version) FROM headrace.migration").fetchone()
        assert row is not None
        return int(row[0])

    latest = len(migrations_of(f"headrace.stores.{kind}"))
    # When this program looks at it, or asks something of it
    for command in (("status", file), ("resync", file, "orders")):
        result = invoke(*command, HEADRACE__STORE__KIND=kind)
        # Then it says why it does not, and leaves it to the pipeline's start
        assert result.exit_code == 3
        said = result.stdout + result.stderr
        assert f"has version 1, this program's is {latest}" in said
        assert "run the version of headrace that wrote it" in said
        assert version() == 1
    build_store(config).close()
    assert invoke("status", file, HEADRACE__STORE__KIND=kind).exit_code == 0


def test_a_typo_in_the_file_is_wrong_usage(file: Path) -> None:
    file.write_text(file.read_text().replace("username", "usrname"))
    result = invoke("status", file)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "did you mean pg_connection.username?" in result.stderr
    assert f"{file}:" in result.stderr
    assert invoke("status", file.parent / "nosuch.yaml").exit_code == 2
