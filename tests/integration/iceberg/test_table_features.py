"""Iceberg tables as a pipeline makes them: types, keys, comments, partitions, modes, restarts. pyiceberg, DuckDB and
Spark read them.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow.parquet as pq
import pytest
from psycopg import sql
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.table import Table

from every_type import TYPES_DDL, columns_ddl, row_of
from headrace.destinations.iceberg import IcebergDestination
from headrace.lsn import Lsn
from headrace.stores import MemoryStore
from headrace.table_state import State
from iceberg_duckdb import duckdb_with_iceberg, local_path
from lake_oracle import Lakehouse
from lakehouse import iceberg_settings, lake, read_table
from pipelining import Piped, piped, pipeline_config
from subscriber import canonical_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Connection = psycopg.Connection[tuple[Any, ...]]
# Machines under load are slow, and a wait ends when it may.
_PATIENCE = 180


class Lakeside:
    """A source, a warehouse, and pipelines between the two with one store."""

    def __init__(self, conninfo: str, connection: Connection, root: Path, spark: SparkSession) -> None:
        self.source, self.warehouse, self._spark = connection, root / "warehouse", spark
        self._config, self._store = pipeline_config(conninfo, root), MemoryStore()

    def pipeline(self, **settings: Any) -> Any:
        return piped(
            self._config, self._store, IcebergDestination(iceberg_settings(self.warehouse, **settings)), self._spark
        )

    def published(self, *statements: str) -> None:
        for statement in (TYPES_DDL, *statements, "CREATE PUBLICATION pub FOR ALL TABLES"):
            self.source.execute(statement)

    def wait(self, running: Piped) -> None:
        running.until_applied(self.source, _PATIENCE)

    def assert_equal(self, *tables: str) -> None:
        Lakehouse(self.warehouse, {}).assert_equal(lambda name: canonical_table(self.source, name), *tables)

    def table(self, name: str) -> Table:
        return lake(self.warehouse).load_table(name)

    def rows(self, name: str, *order: str) -> list[dict[str, Any]]:
        return read_table(self.warehouse, name).sort_by([(column, "ascending") for column in order]).to_pylist()

    def user(self) -> Callable[[str], Sequence[Any]]:
        """Another session of Spark, with the same catalog."""
        session = self._spark.newSession()
        settings = {
            "": "org.apache.iceberg.spark.SparkCatalog",
            ".type": "jdbc",
            ".uri": f"jdbc:sqlite:{self.warehouse}/catalog.db?busy_timeout=60000",
            ".jdbc.schema-version": "V1",
            ".warehouse": self.warehouse.as_uri(),
            ".cache-enabled": "false",
        }
        for key, value in settings.items():
            session.conf.set(f"spark.sql.catalog.headrace{key}", value)
        return lambda statement: session.sql(statement).collect()


@pytest.fixture
def lakeside(conninfo: str, connection: Connection, tmp_path: Path, spark: SparkSession) -> Lakeside:
    return Lakeside(conninfo, connection, tmp_path, spark)


def _delete_files(table: Table) -> list[Any]:
    snapshot = table.current_snapshot()
    assert snapshot is not None
    entries = [entry for file in snapshot.manifests(table.io) for entry in file.fetch_manifest_entry(table.io)]
    return [entry.data_file for entry in entries if entry.data_file.content is not DataFileContent.DATA]


def _by_duckdb(table: Table) -> list[tuple[Any, ...]]:
    """All rows, sorted, as DuckDB's own reader of Iceberg finds them."""
    with duckdb_with_iceberg() as connection:
        metadata = local_path(table.metadata_location)
        return connection.execute(f"SELECT id, region, zip FROM iceberg_scan('{metadata}') ORDER BY id").fetchall()


def test_every_type_key_and_comment(lakeside: Lakeside) -> None:
    chance = random.Random(5)
    insert = sql.SQL("INSERT INTO every VALUES ({}, {})")
    lakeside.published(
        f"CREATE TABLE every (id bigint PRIMARY KEY, {columns_ddl()})",
        "COMMENT ON TABLE every IS 'one of each'",
        "COMMENT ON COLUMN every.c1 IS 'a small ''number'', é'",
        'CREATE TABLE "order lines" (number int, "order" text, amount numeric(10, 2) NOT NULL, '
        'PRIMARY KEY ("order", number))',
        "CREATE TABLE nothing (id int PRIMARY KEY, words text[])",
        "CREATE TABLE heap (a int, b text)",
        "ALTER TABLE heap REPLICA IDENTITY FULL",
        "INSERT INTO heap VALUES (1, 'x'), (1, 'x'), (NULL, NULL)",
        """INSERT INTO "order lines" VALUES (1, 'a', 1.50), (2, 'a', 0)""",
    )
    for number in range(40):
        lakeside.source.execute(insert.format(number, row_of(chance)))
    with lakeside.pipeline() as running:
        running.until_ready(timeout=_PATIENCE)
        assert read_table(lakeside.warehouse, "public.nothing").num_rows == 0
        for number in range(40, 80):
            lakeside.source.execute(insert.format(number, row_of(chance)))
        lakeside.source.execute("DELETE FROM every WHERE id % 9 = 0")
        lakeside.source.execute("""UPDATE "order lines" SET "order" = 'b' WHERE number = 2""")
        lakeside.source.execute("DELETE FROM heap WHERE ctid = (SELECT min(ctid) FROM heap)")
        lakeside.wait(running)
        lakeside.assert_equal("public.every", "public.nothing", "public.heap")
    lines = lakeside.rows("public.order lines", "number")
    assert [(row["number"], row["order"], str(row["amount"])) for row in lines] == [(1, "a", "1.50"), (2, "b", "0.00")]

    every = lakeside.table("public.every")
    assert every.metadata.format_version == 3
    assert every.properties["comment"] == "one of each"
    assert every.schema().find_field("c1").doc == "a small 'number', é"
    assert every.schema().identifier_field_names() == {"id"}
    composite = lakeside.table("public.order lines").schema()
    assert composite.identifier_field_names() == {"number", "order"}
    assert {field.name: field.required for field in composite.fields} == {
        "number": True,
        "order": True,
        "amount": False,
    }
    heap = lakeside.table("public.heap").schema()
    assert heap.identifier_field_ids == []
    assert not any(field.required for field in heap.fields)
    for name in ("public.every", "public.order lines"):
        deletes = _delete_files(lakeside.table(name))
        assert deletes
        assert all(file.file_format is FileFormat.PUFFIN for file in deletes)


def test_partitions_and_order(lakeside: Lakeside) -> None:
    lakeside.published(
        "CREATE TABLE places (id bigint PRIMARY KEY, region text, zip text, at timestamptz, day date, amount int)",
        "INSERT INTO places SELECT n, (ARRAY['north', 'sou/th', '', NULL])[n % 4 + 1], lpad((n * 10)::text, 6, '0'), "
        "'2026-03-01 12:00+00'::timestamptz + n / 50 * interval '5 days', '1969-12-30'::date + n, n % 17 "
        "FROM generate_series(1, 200) n",
    )
    how = {
        "partition_by": ["days(at)", "bucket(3, id)", "truncate(3, zip)", "region"],
        "sort_by": ["-amount", "zip"],
    }
    with lakeside.pipeline(tables={"public.places": how}) as running:
        running.until_ready(timeout=_PATIENCE)
        lakeside.source.execute("UPDATE places SET at = at + interval '2 days', region = 'west' WHERE id % 5 = 0")
        lakeside.source.execute("UPDATE places SET id = id + 1000 WHERE id % 7 = 0")
        lakeside.source.execute("UPDATE places SET zip = NULL, at = NULL WHERE id % 11 = 0")
        lakeside.source.execute("DELETE FROM places WHERE id % 13 = 0")
        lakeside.wait(running)
        lakeside.assert_equal("public.places")
        table = lakeside.table("public.places")
        snapshot = table.current_snapshot()
        assert snapshot is not None
        assert snapshot.summary is not None
        lsn = Lsn.parse(str(snapshot.summary["headrace.lsn"]))
        assert lsn > 0
        assert snapshot.summary["headrace.pipeline-id"] == "1"
        source = lakeside.source.execute("SELECT id, region, zip FROM places ORDER BY id").fetchall()
        assert _delete_files(table)
        assert _by_duckdb(table) == source
        lakeside.source.execute("TRUNCATE places")
        lakeside.source.execute("INSERT INTO places (id, region) VALUES (1, 'north')")
        lakeside.wait(running)
        lakeside.assert_equal("public.places")
    names = {field.field_id: field.name for field in table.schema().fields}
    found = [(str(field.transform), names[field.source_id]) for field in table.spec().fields]
    assert found == [("day", "at"), ("bucket[3]", "id"), ("truncate[3]", "zip"), ("identity", "region")]
    order = [(names[field.source_id], field.direction.value) for field in table.sort_order().fields]
    assert order == [("amount", "desc"), ("zip", "asc")]
    paths = [task.file.file_path.removeprefix("file:") for task in table.scan().plan_files()]
    amounts = [pq.read_table(path, columns=["amount"], partitioning=None)["amount"].to_pylist() for path in paths]
    assert max(map(len, amounts)) > 5
    assert all(found == sorted(found, reverse=True) for found in amounts)
    # A reader skips what cannot match, and finds all that does.
    scan = table.scan(row_filter="region = 'west' and at >= '2026-03-10T00:00:00+00:00'")
    assert len(list(scan.plan_files())) < len(list(table.scan().plan_files()))


def test_modes(lakeside: Lakeside) -> None:
    lakeside.published(
        "CREATE TABLE log (id int PRIMARY KEY, note text, big text)",
        "ALTER TABLE log ALTER big SET STORAGE EXTERNAL",
        "CREATE TABLE whole (id int PRIMARY KEY, note text)",
        "ALTER TABLE whole REPLICA IDENTITY FULL",
        "CREATE TABLE kept (id int PRIMARY KEY, note text)",
        "INSERT INTO log VALUES (1, 'a', repeat('x', 9000))",
        "INSERT INTO kept VALUES (1, 'a'), (2, 'b'), (3, 'c')",
    )
    modes = {
        "public.log": {"mode": "changelog"},
        "public.whole": {"mode": "changelog"},
        "public.kept": {"mode": "soft_delete"},
    }
    with lakeside.pipeline(tables=modes) as running:
        running.until_ready(timeout=_PATIENCE)
        run = lakeside.source.execute
        with lakeside.source.transaction():
            run("INSERT INTO log VALUES (2, 'b', NULL)")
            run("UPDATE log SET note = 'c' WHERE id = 1")
            run("INSERT INTO whole VALUES (1, 'x')")
            xid = run("SELECT pg_current_xact_id()::text::bigint").fetchone()
        run("UPDATE log SET id = 3 WHERE id = 2")
        run("DELETE FROM log WHERE id = 3")
        run("TRUNCATE log")
        run("UPDATE whole SET note = 'y'")
        run("DELETE FROM kept WHERE id IN (1, 2)")
        run("INSERT INTO kept VALUES (1, 'again')")
        lakeside.wait(running)
        first = lakeside.rows("public.kept", "id")
        run("TRUNCATE kept")
        run("INSERT INTO kept VALUES (4, 'd'), (1, 'third')")
        lakeside.wait(running)
    assert xid is not None
    _check_logs(lakeside, xid[0])
    assert [(row["id"], row["note"], row["_headrace_deleted"]) for row in first] == [
        (1, "again", False),
        (2, "b", True),
        (3, "c", False),
    ]
    assert [row["_headrace_deleted_at"] is not None for row in first] == [False, True, False]
    last = [(row["id"], row["note"], row["_headrace_deleted"]) for row in lakeside.rows("public.kept", "id")]
    assert last == [(1, "third", False), (2, "b", True), (3, "c", True), (4, "d", False)]
    earlier = first[1]["_headrace_deleted_at"]
    assert lakeside.rows("public.kept", "id")[1]["_headrace_deleted_at"] == earlier


def _check_logs(lakeside: Lakeside, xid: int) -> None:
    own = ("op", "commit_lsn", "tx_ordinal", "xid", "commit_time")
    rows = lakeside.rows("public.log", "_headrace_commit_lsn", "_headrace_tx_ordinal")
    copied, rows = (
        [row for row in rows if row["_headrace_op"] == "R"],
        [row for row in rows if row["_headrace_op"] != "R"],
    )
    assert [(row["id"], row["note"], len(row["big"])) for row in copied] == [(1, "a", 9000)]
    assert all(copied[0][f"_headrace_{name}"] is None for name in own[1:])
    assert [(row["_headrace_op"], row["id"], row["note"]) for row in rows] == [
        ("I", 2, "b"),
        ("U", 1, "c"),
        ("U", 3, "b"),
        ("D", 3, None),
        ("T", None, None),
    ]
    assert [row["_headrace_xid"] for row in rows[:2]] == [xid, xid]
    assert rows[0]["_headrace_commit_lsn"] == rows[1]["_headrace_commit_lsn"] < rows[2]["_headrace_commit_lsn"]
    assert rows[0]["_headrace_tx_ordinal"] < rows[1]["_headrace_tx_ordinal"]
    times = [row["_headrace_commit_time"] for row in rows]
    assert None not in times
    assert times == sorted(times)
    # A value that was not sent is told apart from NULL.
    assert (rows[1]["big"], rows[1]["_headrace_unchanged"]) == (None, ["big"])
    assert rows[2]["_headrace_before"]["id"] == 2
    assert rows[1]["_headrace_before"] is None
    whole = lakeside.rows("public.whole", "_headrace_commit_lsn")
    assert [(row["_headrace_op"], row["note"]) for row in whole] == [("I", "x"), ("U", "y")]
    assert whole[1]["_headrace_before"] == {"id": 1, "note": "x"}


def test_a_restart_after_all_own_snapshots_expired(lakeside: Lakeside) -> None:
    lakeside.published(
        "CREATE TABLE amounts (id int PRIMARY KEY, amount numeric(10, 2), day date)",
        "INSERT INTO amounts SELECT n, n, '2026-01-01' FROM generate_series(1, 50) n",
        "INSERT INTO amounts VALUES (100, 'NaN', 'infinity')",
    )
    with lakeside.pipeline() as running:
        running.until_ready(timeout=_PATIENCE)
        lakeside.source.execute("INSERT INTO amounts VALUES (101, 1, '-infinity'), (102, 'NaN', NULL)")
        lakeside.source.execute("DELETE FROM amounts WHERE id % 10 = 0 AND id < 100")
        lakeside.wait(running)
    written = lakeside.table("public.amounts").properties["headrace.lsn"]
    user = lakeside.user()
    user("CALL headrace.system.rewrite_data_files(table => 'public.amounts', options => map('rewrite-all', 'true'))")
    user(
        "CALL headrace.system.expire_snapshots(table => 'public.amounts', older_than => TIMESTAMP '2099-01-01', "
        "retain_last => 1)"
    )
    (left,) = lakeside.table("public.amounts").snapshots()
    assert left.summary is not None
    assert "headrace.lsn" not in left.summary.additional_properties
    lakeside.source.execute("UPDATE amounts SET amount = 7 WHERE id = 3")
    with lakeside.pipeline() as running:
        running.until_ready(timeout=_PATIENCE)
        lakeside.source.execute("INSERT INTO amounts VALUES (103, 5, 'infinity')")
        lakeside.source.execute("UPDATE amounts SET id = 1000 WHERE id = 4")
        lakeside.wait(running)
    assert Lsn.parse(lakeside.table("public.amounts").properties["headrace.lsn"]) > Lsn.parse(written)
    representable = (
        "SELECT id, CASE WHEN amount <> 'NaN' THEN amount END, CASE WHEN isfinite(day) THEN day END "
        "FROM amounts ORDER BY id"
    )
    found = [tuple(row.values()) for row in lakeside.rows("public.amounts", "id")]
    assert found == lakeside.source.execute(representable).fetchall()
    quarantined = lakeside.rows("headrace.quarantine_1", "key", "column")
    assert [(json.loads(row["key"]), row["column"], row["text"]) for row in quarantined] == [
        ({"id": "100"}, "amount", "NaN"),
        ({"id": "100"}, "day", "infinity"),
        ({"id": "101"}, "day", "-infinity"),
        ({"id": "102"}, "amount", "NaN"),
        ({"id": "103"}, "day", "infinity"),
    ]
    assert [row["commit_lsn"] is None for row in quarantined] == [True, True, False, False, False]


def test_a_table_that_somebody_dropped_is_missed(lakeside: Lakeside) -> None:
    lakeside.published(
        *(f"CREATE TABLE {name} (id int PRIMARY KEY)" for name in ("early", "late", "still")),
        *(f"INSERT INTO {name} SELECT generate_series(1, 10)" for name in ("early", "late", "still")),
    )
    catalog = lake(lakeside.warehouse)

    def missed(running: Piped, table: str) -> bool:
        state = running.status.tables[table].state
        told = f"the table {table} is missing" in str(state.reason) and "resync" in str(state.solution)
        return state.state is State.ERRORED and told

    with lakeside.pipeline() as running:
        running.until_ready(timeout=_PATIENCE)
        catalog.drop_table("public.early")
        lakeside.source.execute("INSERT INTO early VALUES (11)")
        lakeside.source.execute("INSERT INTO still VALUES (11)")
        running.until(lambda: missed(running, "public.early"), _PATIENCE)
    catalog.drop_table("public.late")
    # A new table, of this row only, would look well and be wrong.
    lakeside.source.execute("INSERT INTO late VALUES (11)")
    with lakeside.pipeline() as running:
        # The next start misses both, and copies them again.
        running.until_ready(timeout=_PATIENCE)
        lakeside.wait(running)
        lakeside.assert_equal("public.early", "public.late", "public.still")


def test_json_as_variant_and_names(lakeside: Lakeside) -> None:
    lakeside.published(
        "CREATE SCHEMA shop",
        "CREATE TABLE shop.docs (id int PRIMARY KEY, doc jsonb, raw json)",
        """INSERT INTO shop.docs VALUES (1, '{"a": [1, 2.50, "é"], "b": null}', '{"z": 1, "a": 2}'), (2, NULL, '3')""",
        "CREATE TABLE shop.named (id int PRIMARY KEY)",
    )
    settings = {
        "json_as": "variant",
        "namespace": "raw.{schema}",
        "table_name": "pg_{table}",
        "tables": {"shop.named": {"name": "other.place"}},
    }
    with lakeside.pipeline(**settings) as running:
        running.until_ready(timeout=_PATIENCE)
        lakeside.source.execute("""INSERT INTO shop.docs VALUES (3, '{"a": [10]}', 'null')""")
        lakeside.source.execute("UPDATE shop.docs SET id = 4 WHERE id = 2")
        lakeside.source.execute("INSERT INTO shop.named VALUES (1)")
        lakeside.wait(running)
        running.pipeline.resync("shop.docs")
        running.until(lambda: running.states()["shop.docs"] is not State.READY, _PATIENCE)
        running.until_ready(timeout=_PATIENCE)
        lakeside.source.execute("INSERT INTO shop.docs VALUES (5, '[]', '[]')")
        lakeside.wait(running)
    rows = lakeside.user()(
        "SELECT id, variant_get(doc, '$.a[0]', 'int'), variant_get(doc, '$.a[2]', 'string'), to_json(raw), "
        "doc IS NULL FROM headrace.raw.shop.pg_docs ORDER BY id"
    )
    assert [tuple(row) for row in rows] == [
        (1, 1, "é", '{"a":2,"z":1}', False),
        (3, 10, None, "null", False),
        (4, None, None, "3", True),
        (5, None, None, "[]", False),
    ]
    assert lakeside.rows("other.place", "id") == [{"id": 1}]
