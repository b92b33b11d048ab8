"""Policies of schema changes, under a running pipeline and after its restart."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headrace.destinations.iceberg import IcebergDestination
from headrace.pipeline import PipelineState
from headrace.stores import MemoryStore
from headrace.table_state import State
from headrace.testing.durable_destination import DurableDestination
from lakehouse import Lake, iceberg_settings, lake
from pipelining import Piped, assert_equal_tables, piped, pipeline_config

Connection = psycopg.Connection[Any]


def _rows(destination: Any, table: str, row_id: int) -> dict[str, Any]:
    (row,) = [row for row in destination.rows(f"public.{table}") if row["id"] == row_id]
    return row


def _until_applied(running: Piped, connection: Connection, *tables: str) -> None:
    end = connection.execute("SELECT pg_logical_emit_message(true, 'tests', 'marker') - '0/0'::pg_lsn").fetchone()
    assert end is not None

    def applied() -> bool:
        known = running.status.tables
        return all(f"public.{t}" in known and known[f"public.{t}"].position > int(end[0]) for t in tables)

    running.until(applied)


def test_each_policy_takes_the_same_change_its_own_way(
    conninfo: str, connection: Connection, spark: Any, tmp_path: Path
) -> None:
    tables = ("evolves", "is_lenient", "ignores", "stops", "denies")
    for table in tables:
        connection.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, a text, b text)")
        connection.execute(f"INSERT INTO {table} VALUES (1, 'a1', 'b1')")
    connection.execute("CREATE PUBLICATION pub FOR TABLE " + ", ".join(tables))
    policies = {
        "deny": ["drop_column"],
        "tables": {
            "public.evolves": {"deny": []},
            "public.is_lenient": {"policy": "lenient", "deny": []},
            "public.ignores": {"policy": "ignore", "deny": []},
            "public.stops": {"policy": "error"},
        },
    }
    config = pipeline_config(conninfo, tmp_path, schema_changes=policies)
    store, destination = MemoryStore(), DurableDestination(tmp_path / "destination.db")
    with piped(config, store, destination, spark) as running:
        running.until_ready()
        for table in tables:
            connection.execute(f"ALTER TABLE {table} RENAME a TO z")
            connection.execute(f"ALTER TABLE {table} ADD c int DEFAULT 7, DROP b")
            connection.execute(f"INSERT INTO {table} VALUES (2, 'z2', 8)")
        _until_applied(running, connection, "evolves", "is_lenient", "ignores")
        running.until(lambda: running.states()["public.stops"] is State.ERRORED)
        running.until(lambda: running.states()["public.denies"] is State.ERRORED)
        assert_equal_tables(connection, destination, "public.evolves")
        assert _rows(destination, "is_lenient", 1) == {"id": 1, "a": "a1", "b": "b1", "z": None, "c": 7}
        assert _rows(destination, "is_lenient", 2) == {"id": 2, "a": None, "b": None, "z": "z2", "c": 8}
        assert _rows(destination, "ignores", 1) == {"id": 1, "a": "a1", "b": "b1"}
        assert _rows(destination, "ignores", 2) == {"id": 2, "a": "z2", "b": None}
        reason = running.status.tables["public.stops"].state.reason
        assert reason is not None
        assert "rename_column" in reason
        assert "drop_column" in (running.status.tables["public.denies"].state.reason or "")
    # What the targets are is found again from the versions that are stored.
    connection.execute("INSERT INTO is_lenient VALUES (3, 'z3', 9)")
    connection.execute("INSERT INTO ignores VALUES (3, 'z3', 9)")
    with piped(config, store, destination, spark) as running:
        _until_applied(running, connection, "is_lenient", "ignores")
        assert _rows(destination, "is_lenient", 3) == {"id": 3, "a": None, "b": None, "z": "z3", "c": 9}
        assert _rows(destination, "ignores", 3) == {"id": 3, "a": "z3", "b": None}
    # Allowed, it goes on from where it stopped.
    allowed = pipeline_config(conninfo, tmp_path, schema_changes={"policy": "evolve"})
    with piped(allowed, store, destination, spark) as running:
        running.until(lambda: running.status.state is PipelineState.RUNNING)
        running.pipeline.rollback("public.stops")
        running.pipeline.rollback("public.denies")
        running.until_ready("public.stops", "public.denies")
        _until_applied(running, connection, "stops", "denies")
        assert_equal_tables(connection, destination, "public.stops", "public.denies")


def _durable(root: Path) -> tuple[Callable[[], Any], Any]:
    destination = DurableDestination(root / "destination.db")
    return lambda: destination, destination


def _iceberg(root: Path) -> tuple[Callable[[], Any], Any]:
    settings = iceberg_settings(root / "warehouse")
    # So that the file of the catalog can be made.
    (root / "warehouse").mkdir()
    return lambda: IcebergDestination(settings), Lake(lake(root / "warehouse"))


@pytest.mark.parametrize("site", [_durable, _iceberg])
def test_a_policy_that_changes_later(
    conninfo: str, connection: Connection, spark: Any, tmp_path: Path, site: Callable[..., Any]
) -> None:
    """A table that has columns of its own keeps them under another policy, unless it is to be what its source is."""
    make, reader = site(tmp_path)
    tables = ("was_lenient", "was_ignored", "evolved", "ignored_a_name")
    for table in tables:
        connection.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, a text, b text)")
        connection.execute(f"INSERT INTO {table} VALUES (1, 'a1', 'b1')")
    connection.execute("CREATE PUBLICATION pub FOR TABLE " + ", ".join(tables))
    ignored = {"policy": "ignore"}
    first = {
        "public.was_lenient": {"policy": "lenient"},
        "public.was_ignored": ignored,
        "public.ignored_a_name": ignored,
    }
    store = MemoryStore()
    with piped(pipeline_config(conninfo, tmp_path, schema_changes={"tables": first}), store, make(), spark) as running:
        running.until_ready()
        for table in tables:
            connection.execute(f"ALTER TABLE {table} RENAME a TO z")
        for table in tables[:3]:
            connection.execute(f"ALTER TABLE {table} ADD c int DEFAULT 7, DROP b")
        for table in tables:
            connection.execute(f"INSERT INTO {table} (id, z) VALUES (2, 'z2')")
        _until_applied(running, connection, *tables)
    lenient = {"policy": "lenient"}
    second = {"public.was_ignored": lenient, "public.evolved": lenient}
    later = pipeline_config(conninfo, tmp_path, schema_changes={"tables": second})
    with piped(later, store, make(), spark) as running:
        for table in tables:
            connection.execute(f"ALTER TABLE {table} ADD d int DEFAULT 4")
            connection.execute(f"INSERT INTO {table} (id, z) VALUES (3, 'z3')")
        connection.execute("ALTER TABLE evolved DROP c")
        connection.execute("INSERT INTO evolved (id, z) VALUES (4, 'z4')")
        for table in ("was_lenient", "ignored_a_name"):
            running.until(lambda t=table: running.states().get(f"public.{t}") is State.ERRORED)
            state = running.status.tables[f"public.{table}"].state
            assert "by another policy" in str(state.reason)
            assert "resync" in str(state.solution)
        _until_applied(running, connection, "was_ignored", "evolved")
        assert _rows(reader, "was_ignored", 2) == {"id": 2, "a": "z2", "b": None, "d": 4}
        assert _rows(reader, "was_ignored", 3) == {"id": 3, "a": "z3", "b": None, "d": 4}
        assert _rows(reader, "evolved", 1) == {"id": 1, "z": "a1", "c": 7, "d": 4}
        assert _rows(reader, "evolved", 4) == {"id": 4, "z": "z4", "c": None, "d": 4}
        # Nothing was written into columns that it was not for.
        assert _rows(reader, "was_lenient", 2) == {"id": 2, "a": None, "b": None, "z": "z2", "c": 7}
        assert sorted(row["id"] for row in reader.rows("public.ignored_a_name")) == [1, 2]
        for table in ("was_lenient", "ignored_a_name"):
            running.pipeline.resync(f"public.{table}")
        running.until_ready("public.was_lenient", "public.ignored_a_name")
        _until_applied(running, connection, *tables)
        assert_equal_tables(connection, reader, "public.was_lenient", "public.ignored_a_name")
