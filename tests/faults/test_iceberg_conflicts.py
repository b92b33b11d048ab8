"""A user's own statements on a table come between a batch's planning and its commit: the batch is done again on what
they left, and the table ends equal to the source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headrace.destinations.iceberg import IcebergDestination
from headrace.destinations.iceberg.table import IcebergTable
from headrace.stores import MemoryStore
from headrace.table_state import State
from lake_oracle import Lakehouse
from lakehouse import iceberg_settings
from pipelining import piped, pipeline_config
from subscriber import canonical_table

Connection = psycopg.Connection[Any]

SOURCE = """
CREATE EXTENSION hstore;
CREATE TYPE mood AS ENUM ('sad', 'ok');
CREATE TABLE items (id bigint PRIMARY KEY, note text);
INSERT INTO items SELECT n, 'first' FROM generate_series(1, 100) n;
CREATE PUBLICATION pub FOR TABLE items;
"""
# Each leaves something for a compaction to do, and a file with rows of every one before.
BEFORE = (
    "UPDATE items SET note = 'second' WHERE id % 3 = 0",
    "DELETE FROM items WHERE id % 10 = 0",
    "INSERT INTO items SELECT n, 'new' FROM generate_series(101, 120) n",
)
# Met by the user's statement halfway: rows of old files, and of a row that the user deletes.
MEETING = "UPDATE items SET note = 'last', id = CASE WHEN id = 4 THEN 1000 ELSE id END WHERE id IN (1, 2, 4, 7, 101)"

STATEMENTS = {
    "compaction": "CALL headrace.system.rewrite_data_files(table => 'public.items', "
    "options => map('rewrite-all', 'true'))",
    "delete": "DELETE FROM headrace.public.items WHERE id IN (1, 4)",
    "update": "UPDATE headrace.public.items SET note = 'the user''s' WHERE id IN (2, 7)",
    "expiry": "CALL headrace.system.expire_snapshots(table => 'public.items', older_than => TIMESTAMP '2099-01-01', "
    "retain_last => 1)",
    "rewritten manifests": "CALL headrace.system.rewrite_manifests('public.items')",
}


Source = tuple[str, Connection]


@pytest.fixture
def source(conninfo: str, connection: Connection) -> Source:
    connection.execute(SOURCE)
    return conninfo, connection


@pytest.fixture
def user(spark: Any, tmp_path: Path) -> Callable[[str], list[Any]]:
    """Another session of Spark, with the same catalog: by the same name, which its tables are listed under."""
    session = spark.newSession()
    settings = {
        "": "org.apache.iceberg.spark.SparkCatalog",
        ".type": "jdbc",
        ".uri": f"jdbc:sqlite:{tmp_path}/warehouse/catalog.db?busy_timeout=30000",
        ".jdbc.schema-version": "V1",
        ".warehouse": f"file://{tmp_path}/warehouse",
        ".cache-enabled": "false",
    }
    for key, value in settings.items():
        session.conf.set(f"spark.sql.catalog.headrace{key}", value)
    return lambda statement: session.sql(statement).collect()


@pytest.fixture
def meet(user: Callable[[str], list[Any]], monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Have a statement of the user's run just before the next commit to a table."""
    due: list[str] = []
    plain = IcebergTable.commit

    def commit(self: IcebergTable, *arguments: Any) -> None:
        if due:
            user(due.pop())
        plain(self, *arguments)

    monkeypatch.setattr(IcebergTable, "commit", commit)
    yield due.append
    assert not due, "no commit was made"


@pytest.mark.parametrize("statement", list(STATEMENTS))
def test_a_statement_between_planning_and_commit(
    source: Source,
    spark: Any,
    tmp_path: Path,
    statement: str,
    user: Callable[[str], list[Any]],
    meet: Callable[[str], None],
) -> None:
    conninfo, connection = source
    house = Lakehouse(tmp_path / "warehouse", {})
    destination = IcebergDestination(iceberg_settings(house.warehouse))
    store = MemoryStore()
    with piped(pipeline_config(conninfo, tmp_path), store, destination, spark) as running:
        running.until_ready()
        for change in BEFORE:
            connection.execute(change)
            running.until_applied(connection)
        meet(STATEMENTS[statement])
        connection.execute(MEETING)
        running.until_applied(connection)
        # It was no error of the table's.
        (table_id,) = store.get_table_states()
        assert State.ERRORED not in [entry.state.state for entry in store.get_table_state_history(table_id)]
        house.assert_equal(lambda table: canonical_table(connection, table), "public.items")
        # What the attempt in vain wrote is gone.
        named = {Path(row.file_path).name for row in user("SELECT file_path FROM headrace.public.items.all_files")}
        assert {path.name for path in (house.warehouse / "public/items/data").rglob("[!.]*.*")} == named
        # And the table goes on.
        connection.execute("DELETE FROM items WHERE id < 50")
        connection.execute("INSERT INTO items VALUES (1, 'back')")
        running.until_applied(connection)
        house.assert_equal(lambda table: canonical_table(connection, table), "public.items")
