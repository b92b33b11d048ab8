"""Policies of schema changes, under a running pipeline and after its restart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg

from headrace.pipeline import PipelineState
from headrace.stores import MemoryStore
from headrace.table_state import State
from headrace.testing.durable_destination import DurableDestination
from pipelining import Piped, assert_equal_tables, piped, pipeline_config

Connection = psycopg.Connection[Any]


def _rows(destination: DurableDestination, table: str, row_id: int) -> dict[str, Any]:
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
