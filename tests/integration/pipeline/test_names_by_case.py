"""Tables whose names differ in case only: one is left out, with its remedy, and the rest goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest

from delta_tables import DeltaLake, delta_settings
from duckdb_reading import DuckDBFile, duckdb_settings
from headrace.destinations.contract import Destination
from headrace.destinations.delta import DeltaDestination
from headrace.destinations.duckdb import DuckDBDestination
from headrace.errors import RetryPolicy
from headrace.stores import MemoryStore
from headrace.table_state import State
from pipelining import Piped, assert_equal_tables, destination_rows, piped, pipeline_config, source_rows

Connection = psycopg.Connection[Any]

ORDERS, TWIN, OTHER = "public.orders", "public.Orders", "public.other"


def opened(kind: str, root: Path) -> tuple[Destination, Any]:
    if kind == "duckdb":
        return DuckDBDestination(duckdb_settings(root)), DuckDBFile(root)
    return DeltaDestination(delta_settings(root)), DeltaLake(root)


def until_same(running: Piped, connection: Connection, reader: Any) -> None:
    tables = ORDERS, OTHER
    running.until(lambda: all(destination_rows(reader, name) == source_rows(connection, name) for name in tables))


@pytest.mark.parametrize("kind", ["duckdb", "delta"])
def test_the_next_start_leaves_out_the_one_table(
    conninfo: str, connection: Connection, spark: Any, tmp_path: Path, kind: str
) -> None:
    for name in ("orders", "other"):
        connection.execute(f"CREATE TABLE {name} (id int PRIMARY KEY); INSERT INTO {name} VALUES (1)")
    connection.execute("CREATE PUBLICATION pub FOR TABLE orders, other")
    config, store = pipeline_config(conninfo, tmp_path), MemoryStore()
    with piped(config, store, opened(kind, tmp_path / "there")[0], spark) as running:
        running.until_ready()
    # Sorted before the other: not the first of the two is kept, but the one that is there.
    connection.execute('CREATE TABLE "Orders" (id int PRIMARY KEY); ALTER PUBLICATION pub ADD TABLE "Orders"')
    for _ in range(2):
        destination, reader = opened(kind, tmp_path / "there")
        with piped(config, store, destination, spark) as running:
            running.until(lambda: running.states().get(TWIN) is State.ERRORED)
            running.until_ready(ORDERS, OTHER)
            connection.execute("INSERT INTO orders SELECT max(id) + 1 FROM orders")
            connection.execute("INSERT INTO other SELECT max(id) + 1 FROM other")
            until_same(running, connection, reader)
            state = running.status.tables[TWIN].state
        assert state.retry_policy is RetryPolicy.MANUAL
        assert "have the same name at the destination" in str(state.reason)
        assert str(state.solution).startswith("give one another name, for example destination.tables.")
        assert_equal_tables(connection, reader, ORDERS, OTHER)
