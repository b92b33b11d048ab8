"""Keys of every type with every special value, through a pipeline into each destination: copied, inserted, updated,
moved to another key and deleted. Whole tables are compared with the source.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from psycopg import sql
from roundtrip_cases import ARRAY_CASES, CASES, SETUP, Case

from duckdb_reading import DuckDBFile, duckdb_settings
from headrace.destinations.duckdb import DuckDBDestination
from headrace.errors import RetryPolicy
from headrace.pgtypes.registry import TypeOptions, conversion_for
from headrace.pipeline import batches, copying
from headrace.postgres.publications import published_tables
from headrace.schema import Column
from headrace.stores import MemoryStore
from headrace.table_state import State
from headrace.testing.canonical import canonical_column, canonical_text
from pipelining import Piped, piped, pipeline_config
from sites import KINDS, Site, site

Connection = psycopg.Connection[Any]

QUICK = ("date", "timestamptz", "numeric(10,2)", "instant", "double precision", "date[]")
NO_ORDER = {"json", "jsonpath", "xml", "xid", "cid"}
"""Types that Postgres has no index for."""


@pytest.fixture(params=KINDS)
def where(request: pytest.FixtureRequest, tmp_path: Path) -> Site:
    return site(request.param, tmp_path)


def usable(cases: Sequence[Case], connection: Connection) -> list[Case]:
    """One case per type that may be a key and that the server knows."""
    version = connection.info.server_version // 10_000
    found = {
        case.type: case
        for case in cases
        if case.since <= version
        and case.type.removesuffix("[]") not in NO_ORDER
        and case.options == TypeOptions()
        and len(case.special) > 1
    }
    return list(found.values())


def execute(connection: Connection, statement: str, *values: str) -> None:
    connection.execute(sql.SQL(statement).format(*map(sql.Literal, values)))


def texts(connection: Connection, table: str) -> list[list[str | None]]:
    """The columns of all rows, as the server prints them to Headrace."""
    connection.execute(
        "SET intervalstyle = postgres; SET datestyle = ISO; SET bytea_output = hex; SET timezone = 'UTC'"
    )
    result = connection.pgconn.exec_params(f'SELECT * FROM "{table}"'.encode(), [], result_format=0)
    assert result.status == psycopg.pq.ExecStatus.TUPLES_OK, result.error_message
    return [
        [None if (v := result.get_value(row, column)) is None else v.decode() for row in range(result.ntuples)]
        for column in range(result.nfields)
    ]


def expected(connection: Connection, table: str, found: pa.Table) -> list[str]:
    """The source's rows, of the types that the destination has."""
    columns: Sequence[Column] = next(
        schema.columns for schema in published_tables(connection, "pub") if schema.table.name.name == table
    )
    typed = []
    for column, values in zip(columns, texts(connection, table), strict=True):
        array = pa.array(values, pa.string())
        kept = is_text(found, column.name)
        typed.append(array if kept else conversion_for(column.type, column.typmod).from_text(array).values)
    return rows(pa.table(typed, names=[column.name for column in columns]))


def is_text(table: pa.Table, column: str) -> bool:
    kind = table.schema.field(column).type
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def rows(table: pa.Table) -> list[str]:
    values = zip(*(canonical_column(column) for column in table.columns), strict=True)
    return sorted(canonical_text(list(row)) for row in values)


@dataclass(frozen=True)
class Scene:
    connection: Connection
    running: Piped
    where: Site

    def settle(self) -> None:
        """Wait until everything is applied; a table that is copied again meanwhile has a position, but is not ready."""
        self.running.until_ready()
        self.running.until_applied(self.connection)
        self.running.until_ready()

    def wait_equal(self, *tables: str) -> None:
        self.settle()
        for table in tables:
            found = self.where.read(table)
            assert rows(found) == expected(self.connection, table, found), table

    def is_text(self, table: str, column: str) -> bool:
        return is_text(self.where.read(table), column)


@contextmanager
def scene(
    conninfo: str, connection: Connection, where: Site, spark: Any, root: Path, **settings: Any
) -> Iterator[Scene]:
    connection.execute("CREATE PUBLICATION pub FOR ALL TABLES")
    config = pipeline_config(conninfo, root, **settings)
    with piped(config, MemoryStore(), where.destination, spark) as running:
        yield Scene(connection, running, where)


def walk(scene: Scene, cases: dict[str, Case]) -> None:
    """Insert all special keys, update and delete by them, and move rows from one to another."""
    for table, case in cases.items():
        for index, key in enumerate(case.special):
            insert = f'INSERT INTO "{table}" VALUES ({{}}::text::{case.type}, {{}}) ON CONFLICT DO NOTHING'
            execute(scene.connection, insert, key, f"v{index}")
    scene.wait_equal(*cases)
    for table in cases:
        scene.connection.execute(f"UPDATE \"{table}\" SET v = v || '!'")
    scene.wait_equal(*cases)
    for table, case in cases.items():
        # Several in one batch: no two keys may be taken for one.
        last = case.special[-1]
        execute(scene.connection, f'DELETE FROM "{table}" WHERE k = {{}}::text::{case.type}', last)
        move = f'UPDATE "{table}" SET k = {{}}::text::{case.type}, v = v || {{}} WHERE k = {{}}::text::{case.type}'
        execute(scene.connection, move, last, " moved", case.special[0])
        execute(scene.connection, move, case.special[0], " back", case.special[len(case.special) // 2])
    scene.wait_equal(*cases)
    for table, case in cases.items():
        for key in case.special[::2]:
            execute(scene.connection, f'DELETE FROM "{table}" WHERE k = {{}}::text::{case.type}', key)
    scene.wait_equal(*cases)


def make_tables(connection: Connection, cases: Sequence[Case]) -> dict[str, Case]:
    for statement in SETUP:
        connection.execute(statement)
    tables = {f"k{number}": case for number, case in enumerate(cases)}
    for table, case in tables.items():
        connection.execute(f'CREATE TABLE "{table}" (k {case.type} PRIMARY KEY, v text)')
        ordinary = next(key for key in case.special if key not in case.rejected)
        execute(connection, f'INSERT INTO "{table}" VALUES ({{}}::text::{case.type}, {{}})', ordinary, "copied")
    return tables


def check_keys(
    conninfo: str, connection: Connection, cases: Sequence[Case], where: Site, spark: Any, root: Path
) -> None:
    tables = make_tables(connection, usable(cases, connection))
    with scene(conninfo, connection, where, spark, root) as it:
        it.wait_equal(*tables)
        walk(it, tables)
        for table, case in tables.items():
            assert not case.rejected or it.is_text(table, "k"), case.id


def test_special_values_of_keys(conninfo: str, connection: Connection, where: Site, spark: Any, tmp_path: Path) -> None:
    cases = [case for case in (*CASES, *ARRAY_CASES) if case.type in QUICK]
    check_keys(conninfo, connection, cases, where, spark, tmp_path)


def test_a_log_goes_on_with_the_key_as_text(conninfo: str, connection: Connection, spark: Any, tmp_path: Path) -> None:
    connection.execute("CREATE TABLE periods (id int, valid_to date, v text, PRIMARY KEY (id, valid_to))")
    connection.execute("INSERT INTO periods VALUES (1, '2024-01-01', 'copied')")
    path = tmp_path / "shop.duckdb"
    destination = DuckDBDestination(duckdb_settings(path, mode="changelog"))
    where = Site(destination, lambda name: DuckDBFile(path).table(("public", name)))
    with scene(conninfo, connection, where, spark, tmp_path) as it:
        it.running.until_ready()
        connection.execute("INSERT INTO periods VALUES (2, 'infinity', 'new')")
        it.settle()
        connection.execute("DELETE FROM periods WHERE valid_to = 'infinity'")
        it.settle()
        assert it.is_text("periods", "valid_to")
        (last,) = (row for row in where.read("periods").to_pylist() if row["_headrace_op"] == "D")
        assert last["_headrace_before"]["valid_to"] == "infinity"


@pytest.mark.parametrize("kind", ["duckdb", "iceberg"])
def test_tasks_meet_special_keys(
    kind: str, conninfo: str, connection: Connection, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in large copies and batches, which the driver does not read itself."""
    monkeypatch.setattr(copying, "SMALL_BYTES", -1)
    monkeypatch.setattr(batches, "LOCAL_BYTES", -1)
    for table in ("copied", "streamed"):
        connection.execute(f"CREATE TABLE {table} (day date, valid_to date, v text, PRIMARY KEY (day, valid_to))")
        connection.execute(f"INSERT INTO {table} VALUES ('2024-01-01', '2024-01-01', 'x')")
    connection.execute("INSERT INTO copied VALUES ('2024-01-01', 'infinity', 'x')")
    with scene(conninfo, connection, site(kind, tmp_path), spark, tmp_path) as it:
        it.wait_equal("copied", "streamed")
        for table in ("copied", "streamed"):
            connection.execute(
                f"INSERT INTO {table} VALUES ('2024-01-02', 'infinity', 'y'), ('2024-01-02', '-infinity', 'z')"
            )
        it.settle()
        for table in ("copied", "streamed"):
            connection.execute(f"UPDATE {table} SET v = 'changed' WHERE valid_to = 'infinity'")
            connection.execute(f"DELETE FROM {table} WHERE valid_to = '-infinity'")
        it.wait_equal("copied", "streamed")
        # Only the column that needs it.
        assert [it.is_text(table, "valid_to") for table in ("copied", "streamed")] == [True, True]
        assert not any(it.is_text(table, "day") for table in ("copied", "streamed"))


def test_a_policy_stops_the_table(conninfo: str, connection: Connection, spark: Any, tmp_path: Path) -> None:
    connection.execute("CREATE TABLE periods (id int, valid_to date, v text, PRIMARY KEY (id, valid_to))")
    connection.execute("INSERT INTO periods VALUES (1, '2024-01-01', 'copied')")
    where = site("duckdb", tmp_path)
    with scene(conninfo, connection, where, spark, tmp_path, schema_changes={"policy": "error"}) as it:
        it.running.until_ready()
        connection.execute("INSERT INTO periods VALUES (2, 'infinity', 'secret')")
        it.running.until(lambda: it.running.states()["public.periods"] is State.ERRORED)
        state = it.running.status.tables["public.periods"].state
        assert state.reason is not None
        assert "table public.periods has a value in valid_to" in state.reason
        assert "infinity, or a year before 1 or after 9999" in state.reason
        assert "secret" not in state.reason
        assert state.retry_policy is RetryPolicy.MANUAL
        assert state.solution is not None
        assert "headrace resync PIPELINE.YAML public.periods" in state.solution
        assert where.read("periods").num_rows == 1
        it.running.pipeline.resync("public.periods")
        it.running.until(lambda: it.running.states()["public.periods"] is not State.ERRORED)
        it.wait_equal("periods")
        assert it.is_text("periods", "valid_to")


def test_arrays_in_keys(conninfo: str, connection: Connection, where: Site, spark: Any, tmp_path: Path) -> None:
    """Lists and maps stay what they are: rows are found by their values."""
    types = ("integer[]", "text[]", "double precision[]", "timestamptz[]", "hstore")
    found = usable([case for case in (*CASES, *ARRAY_CASES) if case.type in types], connection)
    cases = [replace(case, special=[key for key in case.special if key not in case.rejected]) for case in found]
    assert len(cases) == len(types)
    tables = make_tables(connection, cases)
    connection.execute("CREATE TABLE pairs (id int, k text[], v text, PRIMARY KEY (id, k))")
    connection.execute("INSERT INTO pairs VALUES (1, '{a}', 'x'), (1, '{a,b}', 'y'), (2, '{a}', 'z'), (2, '{}', NULL)")
    connection.execute("CREATE TABLE by_index (k int[] NOT NULL UNIQUE, v text)")
    connection.execute("ALTER TABLE by_index REPLICA IDENTITY USING INDEX by_index_k_key")
    connection.execute("INSERT INTO by_index VALUES ('{1,2}', 'x'), ('{1}', 'y'), ('{1,NULL}', 'z')")
    with scene(conninfo, connection, where, spark, tmp_path) as it:
        it.wait_equal(*tables, "pairs", "by_index")
        connection.execute("UPDATE pairs SET v = 'changed' WHERE k = '{a}'")
        connection.execute("UPDATE pairs SET k = '{a,b,NULL}' WHERE k = '{a,b}'")
        connection.execute("DELETE FROM pairs WHERE k = '{}'")
        connection.execute("UPDATE by_index SET v = 'changed' WHERE k = '{1}'")
        connection.execute("UPDATE by_index SET k = '{2}' WHERE k = '{1,NULL}'")
        connection.execute("DELETE FROM by_index WHERE k = '{1,2}'")
        walk(it, tables)
        it.wait_equal("pairs", "by_index")
        assert not any(it.is_text(table, "k") for table in (*tables, "pairs", "by_index"))


def test_signs_of_zeros_in_whole_rows(
    conninfo: str, connection: Connection, where: Site, spark: Any, tmp_path: Path
) -> None:
    """0 and -0 are equal to Postgres, and yet two values."""
    connection.execute("CREATE TABLE zeros (a float8[], b float4[], c float8)")
    connection.execute("ALTER TABLE zeros REPLICA IDENTITY FULL")
    connection.execute("INSERT INTO zeros VALUES ('{0}', '{0}', 0), ('{-0}', '{0}', 0), ('{0}', '{-0}', 0)")
    connection.execute("INSERT INTO zeros VALUES ('{0}', '{0}', -0.0), ('{0,-0,NULL}', NULL, NULL), (NULL, '{NaN}', 1)")
    with scene(conninfo, connection, where, spark, tmp_path) as it:
        it.wait_equal("zeros")
        connection.execute("DELETE FROM zeros WHERE a::text = '{-0}'")
        connection.execute("UPDATE zeros SET c = 5 WHERE b::text = '{-0}'")
        connection.execute("UPDATE zeros SET a = '{-0,0,NULL}' WHERE a::text = '{0,-0,NULL}'")
        it.wait_equal("zeros")


@pytest.mark.long
def test_keys_of_every_type(conninfo: str, connection: Connection, where: Site, spark: Any, tmp_path: Path) -> None:
    check_keys(conninfo, connection, [*CASES, *ARRAY_CASES], where, spark, tmp_path)


def test_temporal_keys_of_all_identities(
    conninfo: str, connection: Connection, where: Site, spark: Any, tmp_path: Path
) -> None:
    """Copied with special values in them, by a key of two columns, an identity index, and the whole row."""
    one = "(id int NOT NULL, valid_to date NOT NULL, at timestamptz, v text"
    connection.execute(f"CREATE TABLE periods {one}, PRIMARY KEY (id, valid_to))")
    connection.execute(f"CREATE TABLE by_full {one}, PRIMARY KEY (id, valid_to))")
    connection.execute("ALTER TABLE by_full REPLICA IDENTITY FULL")
    connection.execute(f"CREATE TABLE by_index {one}, UNIQUE (id, valid_to))")
    connection.execute("ALTER TABLE by_index REPLICA IDENTITY USING INDEX by_index_id_valid_to_key")
    connection.execute(f"CREATE TABLE bag {one})")
    connection.execute("ALTER TABLE bag REPLICA IDENTITY FULL")
    tables = ("periods", "by_full", "by_index", "bag")
    for table in tables:
        connection.execute(
            f"INSERT INTO {table} VALUES (1, '2024-01-01', 'infinity', 'past'), "
            "(1, 'infinity', '-infinity', 'current'), "
            "(2, '-infinity', NULL, 'ever'), (2, '0044-03-15 BC', now(), 'old'), (2, '10000-01-01', NULL, 'far')"
        )
    with scene(conninfo, connection, where, spark, tmp_path) as it:
        it.wait_equal(*tables)
        for table in tables:
            connection.execute(f"UPDATE {table} SET v = 'changed' WHERE valid_to = 'infinity'")
            connection.execute(
                f"UPDATE {table} SET valid_to = 'infinity', at = '-infinity' WHERE valid_to = '-infinity'"
            )
            connection.execute(f"DELETE FROM {table} WHERE valid_to < '0001-01-01'")
            connection.execute(f"INSERT INTO {table} VALUES (3, '-infinity', 'infinity', 'new')")
        it.wait_equal(*tables)
        for table in tables:
            connection.execute(f"DELETE FROM {table} WHERE id = 1")
            connection.execute(f"UPDATE {table} SET v = 'last' WHERE id = 3")
        it.wait_equal(*tables)
        # A new version leaves the key as it is.
        connection.execute("ALTER TABLE periods ADD COLUMN more int DEFAULT 7")
        connection.execute(
            "INSERT INTO periods VALUES (9, 'infinity', NULL, 'nine', 9), (9, '2024-01-01', NULL, 'x', 1)"
        )
        connection.execute("UPDATE periods SET more = 8 WHERE valid_to IN ('infinity', '-infinity')")
        it.wait_equal("periods")
        assert [it.is_text(table, "valid_to") for table in tables] == [True, True, True, False]
        assert not it.is_text("periods", "at")
        assert set(it.running.states().values()) == {State.READY}
