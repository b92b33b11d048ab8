"""Logs of changes whose tables are copied again under a running pipeline: nothing that they had is lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from duckdb_reading import DuckDBFile, duckdb_settings
from headrace.destinations.duckdb import DuckDBDestination
from headrace.pipeline import discovery
from headrace.stores import MemoryStore
from headrace.testing.postgres import DEFAULT_VERSION, PostgresServer
from pipelining import Piped, piped, pipeline_config

Connection = psycopg.Connection[Any]
Row = dict[str, Any]

SELECTIVE = max(DEFAULT_VERSION, 15)
"""With column lists and row filters."""
SOURCE = """
CREATE TABLE cut (id int PRIMARY KEY, a int, s text);
CREATE TABLE picked (id int PRIMARY KEY, a int, s text);
CREATE TABLE parted (id int PRIMARY KEY, a int, s text) PARTITION BY RANGE (id);
CREATE TABLE low PARTITION OF parted FOR VALUES FROM (0) TO (10);
CREATE TABLE high PARTITION OF parted FOR VALUES FROM (10) TO (1000);
CREATE PUBLICATION pub FOR TABLE cut, picked, parted WITH (publish_via_partition_root = true);
"""
TABLES = ("cut", "picked", "parted")


def replayed(rows: list[Row]) -> list[Row]:
    """What the log says the table is now."""
    state: dict[Any, Row] = {}
    for row in sorted(rows, key=lambda row: (row["_headrace_commit_lsn"] or 0, row["_headrace_tx_ordinal"] or 0)):
        op, before = row["_headrace_op"], row["_headrace_before"]
        if op == "T":
            state.clear()
            continue
        if op in "UD":
            del state[(before or row)["id"]]
        if op != "D":
            state[row["id"]] = {name: value for name, value in row.items() if not name.startswith("_headrace")}
    return sorted(state.values(), key=lambda row: row["id"])


class Logs:
    """The logs of a running pipeline, and what they were before."""

    def __init__(self, connection: Connection, running: Piped, file: DuckDBFile) -> None:
        self._connection, self._running, self._file = connection, running, file
        self.before: dict[str, list[Row]] = {}

    def rows(self, table: str) -> list[Row]:
        return self._file.table(("public", table)).to_pylist()

    def change(self, *tables: str) -> None:
        for table in tables:
            self._connection.execute(f"INSERT INTO {table} SELECT max(id) + 1, 7, 'streamed' FROM {table}")
            self._connection.execute(f"UPDATE {table} SET a = a + 1 WHERE id IN (2, 12)")
            self._connection.execute(f"DELETE FROM {table} WHERE id = 3")
        self._running.until_applied(self._connection)
        self.before = {table: self.rows(table) for table in TABLES}

    def until_copied_again(self, table: str, wanted: str) -> list[Row]:
        """Its new rows, once it was: what it had is there, and in order it comes to what `wanted` selects."""
        known = len([row for row in self.before[table] if row["_headrace_op"] == "T"])
        self._running.until(lambda: len([r for r in self.rows(table) if r["_headrace_op"] == "T"]) == known + 1)
        self._running.until_ready()
        self._connection.execute(f"UPDATE {table} SET a = a + 1 WHERE id = 12")
        self._running.until_applied(self._connection)
        rows, before = self.rows(table), self.before[table]
        had = [{name: row[name] for name in before[0]} for row in rows]
        assert all(row in had for row in before)
        names = [name for name in rows[0] if not name.startswith("_headrace")]
        found = self._connection.execute(wanted)
        shown = [column.name for column in found.description or ()]
        expected = [dict.fromkeys(names) | dict(zip(shown, row, strict=True)) for row in found.fetchall()]
        assert replayed(rows) == sorted(expected, key=lambda row: row["id"])
        return [row for row, without in zip(rows, had, strict=True) if without not in before]


@pytest.mark.parametrize("install", ["auto", "never"])
def test_logs_go_on(
    install: str,
    servers: Callable[[int], PostgresServer],
    spark: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(discovery, "INTERVAL_S", 0.5)
    file = tmp_path / "logs.duckdb"
    destination = DuckDBDestination(duckdb_settings(file, mode="changelog"))
    with servers(SELECTIVE).database() as conninfo, psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute(SOURCE)
        for table in TABLES:
            connection.execute(f"INSERT INTO {table} SELECT n, n, 's' || n FROM generate_series(1, 20) n")
        config = pipeline_config(conninfo, tmp_path, source={"install": install})
        with piped(config, MemoryStore(), destination, spark) as running:
            running.until_ready()
            logs = Logs(connection, running, DuckDBFile(file))
            logs.change(*TABLES)
            connection.execute("ALTER PUBLICATION pub SET TABLE cut (id, a), picked WHERE (id > 5), parted")
            new = logs.until_copied_again("cut", "SELECT id, a FROM cut")
            # The column stays, and has no values any more.
            assert {row["s"] for row in new} == {None}
            logs.until_copied_again("picked", "SELECT * FROM picked WHERE id > 5")
            logs.change("cut", "picked")
            connection.execute("TRUNCATE low")
            logs.until_copied_again("parted", "SELECT * FROM parted")
            logs.change("parted")
            running.pipeline.resync("public.picked")
            logs.until_copied_again("picked", "SELECT * FROM picked WHERE id > 5")
