"""`headrace slot drop`: says what it means, asks, refuses what is in use, and drops."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest

from commanding import invoke, write_config
from headrace.config.load import load_pipeline_config
from headrace.postgres.connection import connect_replication, parse_conninfo
from headrace.postgres.slots import create_slot, slot_state
from headrace.stores import SqliteStore
from headrace.table_state import State, TableState

Connection = psycopg.Connection[Any]


@pytest.fixture
def file(conninfo: str, tmp_path: Path) -> Path:
    return write_config(tmp_path / "pipeline.yaml", conninfo)


@pytest.fixture
def slot(file: Path, connection: Connection) -> str:
    name = load_pipeline_config(file).slot_name
    create_slot(connection, name)
    return name


def test_a_slot_is_dropped_with_yes(file: Path, connection: Connection, slot: str) -> None:
    result = invoke("slot", "drop", file, "--yes")
    assert result.exit_code == 0, result.stderr
    assert "no table has been copied yet: the next start makes a new slot and begins" in result.stdout
    assert f"dropped replication slot {slot}" in result.stdout
    assert slot_state(connection, slot) is None
    again = invoke("slot", "drop", file, "--yes")
    assert (again.exit_code, again.stdout) == (0, f"there is no replication slot {slot}: nothing to drop\n")


def test_without_a_terminal_it_must_be_confirmed(file: Path, connection: Connection, slot: str) -> None:
    result = invoke("slot", "drop", file, answers="y\n")
    assert result.exit_code == 2
    assert "give --yes" in result.stderr
    assert slot_state(connection, slot) is not None


@pytest.mark.parametrize(("answer", "code"), [("n", 1), ("y", 0)])
def test_on_a_terminal_it_asks(
    file: Path, connection: Connection, slot: str, monkeypatch: pytest.MonkeyPatch, answer: str, code: int
) -> None:
    monkeypatch.setattr("headrace.cli.slot.on_terminal", lambda: True)
    result = invoke("slot", "drop", file, answers=f"{answer}\n")
    assert result.exit_code == code
    assert f"Drop {slot}?" in result.stdout
    assert (slot_state(connection, slot) is None) == (answer == "y")


@pytest.mark.parametrize(
    ("behavior", "told"),
    [("error", "the next start FAILS"), ("recreate", "makes a new slot and copies all tables again")],
)
@pytest.mark.usefixtures("slot")
def test_it_says_what_the_next_start_will_do(file: Path, behavior: str, told: str) -> None:
    path = load_pipeline_config(file).store_path
    path.parent.mkdir(parents=True)
    store = SqliteStore(path, 1)
    store.update_table_states({9: TableState(State.INIT)})
    store.update_table_states({9: TableState(State.DATA_SYNC)})
    result = invoke("slot", "drop", file, "--yes", HEADRACE__INVALIDATED_SLOT_BEHAVIOR=behavior)
    assert told in result.stdout


def test_a_slot_in_use_is_left_alone(file: Path, connection: Connection, conninfo: str, slot: str) -> None:
    connection.execute("CREATE PUBLICATION pub")
    with connect_replication(parse_conninfo(conninfo), "receiver", pipeline=1) as reader:
        start = f"START_REPLICATION SLOT {slot} LOGICAL 0/0 (proto_version '1', publication_names 'pub')"
        reader.pgconn.exec_(start.encode())
        result = invoke("slot", "drop", file, "--yes")
        assert result.exit_code == 1
        assert f"is being read by server process {reader.info.backend_pid} (headrace_receiver_1 from" in result.stderr
        assert "stop the pipeline first" in result.stderr
        reader.pgconn.finish()
    assert slot_state(connection, slot) is not None


def test_the_slot_of_another_plugin_is_left_alone(file: Path, connection: Connection) -> None:
    name = load_pipeline_config(file).slot_name
    connection.execute("SELECT pg_create_physical_replication_slot(%s)", (name,))
    try:
        result = invoke("slot", "drop", file, "--yes")
        assert result.exit_code == 2
        assert "is not this pipeline's: it is a physical one" in result.stderr
    finally:
        connection.execute("SELECT pg_drop_replication_slot(%s)", (name,))


def test_a_server_that_cannot_be_reached_exits_3(file: Path) -> None:
    result = invoke("slot", "drop", file, "--yes", HEADRACE__PG_CONNECTION__PORT="1")
    assert result.exit_code == 3
    assert "cannot connect to Postgres" in result.stderr
