"""Policies of schema changes, under a running pipeline and after its restart."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headrace.destinations.iceberg import IcebergDestination
from headrace.errors import DestinationError
from headrace.pipeline import PipelineState, discovery
from headrace.stores import MemoryStore
from headrace.table_state import State
from headrace.testing.durable_destination import DurableDestination
from lakehouse import Lake, iceberg_settings, lake
from pipelining import Piped, assert_equal_tables, piped, pipeline_config
from reaching import once_at

Connection = psycopg.Connection[Any]


def _rows(destination: Any, table: str, row_id: int) -> dict[str, Any]:
    (row,) = [row for row in destination.rows(f"public.{table}") if row["id"] == row_id]
    return row


def _until_applied(running: Piped, connection: Connection, *tables: str) -> None:
    end = connection.execute("SELECT pg_logical_emit_message(true, 'tests', 'marker') - '0/0'::pg_lsn").fetchone()
    assert end is not None

    def applied() -> bool:
        known = running.status.tables
        some = [known.get(f"public.{table}") for table in tables]
        # A table that is being copied again has a position already, and no rows yet.
        return all(t is not None and t.state.state is State.READY and t.position > int(end[0]) for t in some)

    running.until(applied)


@pytest.mark.parametrize("install", ["always", "never"])
def test_each_policy_takes_the_same_change_its_own_way(
    conninfo: str, connection: Connection, spark: Any, tmp_path: Path, install: str
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
    source = {"install": install}
    config = pipeline_config(conninfo, tmp_path, schema_changes=policies, source=source)
    store, destination = MemoryStore(), DurableDestination(tmp_path / "destination.db")
    with piped(config, store, destination, spark) as running:
        running.until_ready()
        for number, change in enumerate(("RENAME a TO z", "ADD c int DEFAULT 7", "DROP b"), start=-2):
            for table in tables:
                connection.execute(f"ALTER TABLE {table} {change}")
                # Without the trigger a row shows what changed, and one change at a time leaves nothing open.
                connection.execute(f"INSERT INTO {table} (id) VALUES ({number})")
            if install == "never":
                _until_applied(running, connection, "evolves", "is_lenient", "ignores")
        for table in tables:
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
    allowed = pipeline_config(conninfo, tmp_path, schema_changes={"policy": "evolve"}, source=source)
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


def _fail() -> None:
    raise DestinationError("cut short")


@pytest.mark.parametrize(("site", "install"), [(_durable, "always"), (_durable, "never"), (_iceberg, "always")])
def test_a_tables_own_policy_outlives_its_name(
    conninfo: str, connection: Connection, spark: Any, tmp_path: Path, site: Callable[..., Any], install: str
) -> None:
    """Also where the process ends after all that a former copy was has been removed."""
    make, reader = site(tmp_path)
    tables = ("is_lenient", "ignores", "denies")
    for table in tables:
        connection.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, a text, b text, c text)")
        connection.execute(f"INSERT INTO {table} VALUES (1, 'a1', 'b1', 'c1')")
    connection.execute("CREATE PUBLICATION pub FOR TABLE " + ", ".join(tables))
    own = {
        "public.is_lenient": {"policy": "lenient"},
        "public.ignores": {"policy": "ignore"},
        "public.denies": {"deny": ["rename_table"]},
    }
    config = pipeline_config(
        conninfo, tmp_path, schema_changes={"tables": own}, source={"install": install},
        # What has failed stays so until the next start.
        table_error_retry_delay_ms=600_000,
    )  # fmt: skip
    store = MemoryStore()

    def altered(row_id: int, command: str, *names: str) -> None:
        for table in names:
            connection.execute(f"ALTER TABLE {table} {command}")
        for table in names:
            connection.execute(f"INSERT INTO {table} (id) VALUES ({row_id})")
        _until_applied(running, connection, *names)

    with piped(config, store, make(), spark) as running:
        running.until_ready()
        altered(2, "DROP a", "is_lenient", "ignores")
        for table in tables:
            connection.execute(f"ALTER TABLE {table} RENAME TO moved_{table}")
            connection.execute(f"INSERT INTO moved_{table} (id) VALUES (3)")
        _until_applied(running, connection, "moved_is_lenient", "moved_ignores")
        running.until(lambda: running.states()["public.denies"] is State.ERRORED)
        assert "rename_table" in str(running.status.tables["public.denies"].state.reason)
        kept = {"id": 1, "a": "a1", "b": "b1", "c": "c1"}
        assert _rows(reader, "moved_is_lenient", 1) == kept
        assert _rows(reader, "ignores", 1) == kept
        with once_at("copy.after_data_sync", _fail):
            running.pipeline.resync("public.moved_is_lenient")
            running.until(lambda: running.states()["public.moved_is_lenient"] is State.ERRORED)
    with piped(config, store, make(), spark) as running:
        # A copy is made of what the source is by then, and the policy holds on.
        running.until_ready("public.moved_is_lenient")
        altered(4, "DROP b", "moved_is_lenient", "moved_ignores")
        assert _rows(reader, "moved_is_lenient", 1) == {"id": 1, "b": "b1", "c": "c1"}
        assert _rows(reader, "ignores", 1) == kept
        assert _rows(reader, "ignores", 4) == dict.fromkeys(kept) | {"id": 4}


def test_rows_that_were_rewritten_and_what_is_allowed(
    conninfo: str, connection: Connection, spark: Any, tmp_path: Path
) -> None:
    """`error` refuses rows of the same types and other values; what is allowed is copied as under evolve."""
    connection.execute("CREATE TYPE pair AS (x int, y text)")
    tables = ("same_type", "composite", "denied", "retyped", "filled")
    for table in tables:
        connection.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, n text, p pair)")
        connection.execute(f"INSERT INTO {table} VALUES (1, '7', '(1,one)')")
    connection.execute("ALTER TABLE denied DROP p; ALTER TABLE retyped DROP p; ALTER TABLE filled DROP p")
    connection.execute("CREATE PUBLICATION pub FOR TABLE " + ", ".join(tables))
    own = {
        "public.same_type": {"policy": "error"},
        "public.composite": {"policy": "error"},
        "public.denied": {"deny": ["change_type"]},
        "public.retyped": {"policy": "lenient", "allow": ["change_type"]},
        "public.filled": {"policy": "ignore", "allow": ["add_column"]},
    }
    config = pipeline_config(conninfo, tmp_path, schema_changes={"tables": own}, source={"install": "always"})
    store, destination = MemoryStore(), DurableDestination(tmp_path / "destination.db")
    with piped(config, store, destination, spark) as running:
        running.until_ready()
        # Printed as before, and another attribute.
        connection.execute("ALTER TYPE pair DROP ATTRIBUTE y; ALTER TYPE pair ADD ATTRIBUTE y text")
        connection.execute("ALTER TABLE same_type ALTER n TYPE text USING n || '!'")
        connection.execute("ALTER TABLE denied ALTER n TYPE text USING n || '!'")
        connection.execute("ALTER TABLE retyped ALTER n TYPE int USING n::int")
        connection.execute("ALTER TABLE filled ADD r float8 DEFAULT random()")
        for table in ("same_type", "composite", "denied"):
            running.until(lambda t=table: running.states()[f"public.{t}"] is State.ERRORED)
            assert "change_type" in str(running.status.tables[f"public.{table}"].state.reason)
        connection.execute("INSERT INTO retyped VALUES (2, 8)")
        connection.execute("INSERT INTO filled VALUES (2, '8')")
        for table in ("retyped", "filled"):
            running.until_ready(f"public.{table}")
            _until_applied(running, connection, table)
            assert_equal_tables(connection, destination, f"public.{table}")


def test_what_the_catalog_alone_tells_is_judged_by_the_policy(
    conninfo: str, connection: Connection, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery, "INTERVAL_S", 0.5)
    for table in ("added_again", "rekeyed"):
        connection.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, v text, n int NOT NULL DEFAULT 1)")
    connection.execute("ALTER TABLE rekeyed REPLICA IDENTITY FULL")
    roots = ("denied_root", "left_root")
    for root in roots:
        connection.execute(f"CREATE TABLE {root} (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)")
        connection.execute(f"CREATE TABLE {root}_1 PARTITION OF {root} FOR VALUES FROM (0) TO (10)")
        connection.execute(f"CREATE TABLE {root}_2 (id int PRIMARY KEY, v text)")
        connection.execute(f"INSERT INTO {root}_2 VALUES (11, 'attached')")
    tables = ("added_again", "rekeyed", *roots)
    connection.execute(f"CREATE PUBLICATION pub FOR TABLE {', '.join(tables)} WITH (publish_via_partition_root = true)")
    own = {
        "public.added_again": {"policy": "error"},
        "public.rekeyed": {"deny": ["change_key"]},
        "public.denied_root": {"deny": ["change_partitions"]},
        "public.left_root": {"policy": "ignore"},
    }
    config = pipeline_config(conninfo, tmp_path, schema_changes={"tables": own}, source={"install": "never"})
    store, destination = MemoryStore(), DurableDestination(tmp_path / "destination.db")
    with piped(config, store, destination, spark) as running:
        running.until_ready()
        for root in roots:
            connection.execute(f"ALTER TABLE {root} ATTACH PARTITION {root}_2 FOR VALUES FROM (10) TO (20)")
        connection.execute("ALTER TABLE left_root RENAME TO moved_root")
        connection.execute("ALTER TABLE added_again DROP v; ALTER TABLE added_again ADD v text")
        connection.execute("ALTER TABLE rekeyed DROP CONSTRAINT rekeyed_pkey, ADD PRIMARY KEY (n)")
        refused = {"added_again": "drop_column", "rekeyed": "change_key", "denied_root": "change_partitions"}
        for table, kind in refused.items():
            running.until(lambda t=table: running.states()[f"public.{t}"] is State.ERRORED)
            assert kind in str(running.status.tables[f"public.{table}"].state.reason)
        # What it is to leave as it is was seen by then.
        connection.execute("INSERT INTO moved_root VALUES (1, 'one'), (12, 'twelve')")
        _until_applied(running, connection, "left_root")
        assert sorted(row["id"] for row in destination.rows("public.left_root")) == [1, 12]
        assert running.states()["public.left_root"] is State.READY
