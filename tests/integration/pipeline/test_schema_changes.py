"""Schema changes under a running pipeline: each kind in a table of its own, with the event trigger and without it.

All tables share one pipeline per mode. After the statements of every case have run, in one go, a row of each table is
touched (without the trigger only a row shows what changed), and the destination must show the source's columns and
rows. With the trigger it is also known which tables had to be copied again.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headrace.destinations.contract import Durability
from headrace.destinations.memory import MemoryDestination
from headrace.destinations.rows import Rows
from headrace.errors import TableNotFound
from headrace.schema import ReplicatedTableSchema, quote_identifier
from headrace.stores import MemoryStore
from headrace.testing.postgres import PostgresServer
from pipelining import PATIENCE_S, Piped, destination_rows, piped, pipeline_config, source_rows

Connection = psycopg.Connection[Any]

pytestmark = pytest.mark.matrix


@dataclass(frozen=True)
class Case:
    """`{t}` stands for the table's quoted name. A case's table has id and v, and rows 1 to 20."""

    statements: tuple[str, ...]
    copied_again: bool = False
    """With the trigger; without it more is."""
    table: str = "CREATE TABLE {t} (id int PRIMARY KEY, v text)"
    touch: str = "INSERT INTO {t} (id) VALUES (1000)"
    final: str | None = None
    """The table's name afterwards, if it is another."""
    only: frozenset[str] = field(default_factory=lambda: frozenset({"trigger", "relations"}))


def case(*statements: str, **options: Any) -> Case:
    return Case(statements, **options)


TRIGGER = frozenset({"trigger"})

WITH_TYPE = "CREATE TABLE {t} (id int PRIMARY KEY, v text, e {type}"
WITH_ENUM = f"CREATE TYPE {{type}} AS ENUM ('a', 'b'); {WITH_TYPE} DEFAULT 'a')"

# What is rolled back before the server reads it is never sent.
UNTIL_SENT = """
DO $$
DECLARE
    here pg_lsn := pg_current_wal_insert_lsn();
BEGIN
    -- Nothing is sent that is not flushed, and a running transaction need not be.
    PERFORM pg_switch_wal();
    FOR turn IN 1 .. 3000 LOOP
        EXIT WHEN EXISTS (
            SELECT FROM pg_stat_get_wal_senders() w JOIN pg_replication_slots s ON s.active_pid = w.pid
            WHERE s.database = current_database() AND w.sent_lsn >= here);
        ASSERT turn < 3000;
        PERFORM pg_sleep(0.01);
    END LOOP;
END
$$
"""

CASES = {
    "add_column": case("ALTER TABLE {t} ADD b int", "UPDATE {t} SET b = id WHERE id < 5"),
    "add_column_with_a_constant_default": case("ALTER TABLE {t} ADD b text DEFAULT 'it''s' NOT NULL"),
    "add_column_with_a_stable_default": case("ALTER TABLE {t} ADD b timestamptz DEFAULT now()"),
    "add_an_array_with_a_default": case("ALTER TABLE {t} ADD b int[] DEFAULT '{1,NULL,3}'"),
    "add_column_with_a_volatile_default": case("ALTER TABLE {t} ADD b float8 DEFAULT random()", copied_again=True),
    "add_column_with_a_volatile_default_that_is_dropped": case(
        "ALTER TABLE {t} ADD b float8 DEFAULT random()", "ALTER TABLE {t} ALTER b DROP DEFAULT", copied_again=True
    ),
    "drop_column": case("ALTER TABLE {t} DROP v"),
    "drop_and_add_the_same_name": case(
        "ALTER TABLE {t} DROP v", "ALTER TABLE {t} ADD v text", "UPDATE {t} SET v = 'new' WHERE id = 3"
    ),
    "rename_column": case("ALTER TABLE {t} RENAME v TO w", "UPDATE {t} SET w = 'renamed' WHERE id = 2"),
    "rename_two_columns_crosswise": case(
        "BEGIN",
        "ALTER TABLE {t} RENAME v TO tmp",
        "ALTER TABLE {t} RENAME b TO v",
        "ALTER TABLE {t} RENAME tmp TO b",
        "COMMIT",
        table="CREATE TABLE {t} (id int PRIMARY KEY, v text, b text DEFAULT 'b')",
    ),
    "quoted_names": case(
        'ALTER TABLE {t} RENAME v TO "Grüße, ""Welt"" select"', 'ALTER TABLE {t} ADD "ORDER" int DEFAULT 7'
    ),
    "widen_an_integer": case(
        "ALTER TABLE {t} ALTER n TYPE bigint",
        "UPDATE {t} SET n = 5000000000 WHERE id = 1",
        table="CREATE TABLE {t} (id int PRIMARY KEY, v text, n int DEFAULT 3)",
    ),
    "widen_the_key": case("ALTER TABLE {t} ALTER id TYPE bigint", "DELETE FROM {t} WHERE id = 4"),
    "type_with_using": case(
        "ALTER TABLE {t} ALTER n TYPE bigint USING n * 2",
        copied_again=True,
        table="CREATE TABLE {t} (id int PRIMARY KEY, v text, n int DEFAULT 3)",
    ),
    "the_same_type_with_using": case(
        "ALTER TABLE {t} ALTER n TYPE int USING n + 1",
        copied_again=True,
        only=TRIGGER,
        table="CREATE TABLE {t} (id int PRIMARY KEY, v text, n int DEFAULT 3)",
    ),
    "text_to_integer": case(
        "ALTER TABLE {t} ALTER n DROP DEFAULT, ALTER n TYPE int USING n::int",
        copied_again=True,
        table="CREATE TABLE {t} (id int PRIMARY KEY, v text, n text DEFAULT '3')",
    ),
    "varchar_to_text": case(
        "ALTER TABLE {t} ALTER n TYPE text",
        table="CREATE TABLE {t} (id int PRIMARY KEY, v text, n varchar(10) DEFAULT 'x')",
    ),
    "numeric_precision": case(
        "ALTER TABLE {t} ALTER n TYPE numeric(20, 2)",
        "UPDATE {t} SET n = 1e15 WHERE id = 1",
        table="CREATE TABLE {t} (id int PRIMARY KEY, v text, n numeric(10, 2) DEFAULT 3.5)",
    ),
    "nullability_and_default": case(
        "UPDATE {t} SET v = '' WHERE v IS NULL", "ALTER TABLE {t} ALTER v SET NOT NULL, ALTER v SET DEFAULT 'd'"
    ),
    "a_generated_column": case("ALTER TABLE {t} ADD g int GENERATED ALWAYS AS (id * 2) STORED"),
    "several_in_one_statement": case(
        "ALTER TABLE {t} DROP v, ADD b int DEFAULT 4, ADD c text, ALTER v2 TYPE text",
        table="CREATE TABLE {t} (id int PRIMARY KEY, v text, v2 varchar(9) DEFAULT 'w')",
    ),
    "several_in_one_statement_with_a_rewrite": case(
        "ALTER TABLE {t} DROP v, ADD b int DEFAULT 4, ADD c text, ALTER id TYPE bigint", copied_again=True
    ),
    "altered_in_a_savepoint": case(
        "BEGIN",
        "SAVEPOINT s",
        "ALTER TABLE {t} ADD b int DEFAULT 1",
        "RELEASE s",
        "INSERT INTO {t} VALUES (101, 'x', 5)",
        "COMMIT",
    ),
    "several_statements_and_rows_in_one_transaction": case(
        "BEGIN",
        "INSERT INTO {t} VALUES (101, 'before')",
        "ALTER TABLE {t} ADD b int DEFAULT 1",
        "INSERT INTO {t} VALUES (102, 'between', 2)",
        "ALTER TABLE {t} RENAME v TO w",
        "UPDATE {t} SET w = 'after' WHERE id IN (1, 101)",
        "ALTER TABLE {t} DROP b",
        "DELETE FROM {t} WHERE id = 7",
        "COMMIT",
    ),
    "rolled_back": case(
        "BEGIN", "ALTER TABLE {t} ADD b int DEFAULT 1", "INSERT INTO {t} VALUES (101, 'x', 5)", "ROLLBACK"
    ),
    "rolled_back_to_a_savepoint": case(
        "BEGIN",
        "INSERT INTO {t} VALUES (101, 'x')",
        "SAVEPOINT s",
        "ALTER TABLE {t} ADD b int DEFAULT 1",
        "INSERT INTO {t} VALUES (102, 'x', 5)",
        "ROLLBACK TO s",
        "ALTER TABLE {t} ADD c int DEFAULT 9",
        "COMMIT",
    ),
    # Large enough to be sent while it runs: then the server does not say which savepoint a message belongs to.
    "rolled_back_to_a_savepoint_of_a_streamed_transaction": case(
        "BEGIN",
        "SAVEPOINT s",
        "ALTER TABLE {t} ADD b int DEFAULT 1",
        "RELEASE s",
        "SAVEPOINT s",
        "SAVEPOINT inner_one",
        "ALTER TABLE {t} DROP b",
        "RELEASE inner_one",
        "INSERT INTO {t} SELECT n, repeat('x', 500) FROM generate_series(101, 1000) n",
        UNTIL_SENT,
        "ROLLBACK TO s",
        "INSERT INTO {t} SELECT n, repeat('x', 500), n FROM generate_series(101, 999) n",
        "COMMIT",
    ),
    "the_key_moves_to_another_column": case(
        "ALTER TABLE {t} DROP CONSTRAINT {pkey}",
        "ALTER TABLE {t} ADD PRIMARY KEY (n)",
        "DELETE FROM {t} WHERE n = 5",
        "UPDATE {t} SET id = 0 WHERE n = 6",
        table="CREATE TABLE {t} (id int CONSTRAINT {pkey} PRIMARY KEY, v text, n serial)",
    ),
    "replica_identity_full": case(
        "ALTER TABLE {t} REPLICA IDENTITY FULL",
        "UPDATE {t} SET id = id + 500 WHERE id < 3",
        "DELETE FROM {t} WHERE id = 5",
    ),
    "drop_the_key_for_replica_identity_full": case(
        "ALTER TABLE {t} REPLICA IDENTITY FULL",
        "ALTER TABLE {t} DROP CONSTRAINT {pkey}",
        "INSERT INTO {t} VALUES (2, 'v2')",
        "DELETE FROM {t} WHERE id = 3",
        table="CREATE TABLE {t} (id int CONSTRAINT {pkey} PRIMARY KEY, v text)",
    ),
    "rename_an_enum_value": case(
        "ALTER TYPE {type} RENAME VALUE 'a' TO 'z'",
        copied_again=True,
        only=TRIGGER,
        table=WITH_ENUM,
    ),
    "add_an_enum_value": case(
        "ALTER TYPE {type} ADD VALUE 'c'",
        "UPDATE {t} SET e = 'c' WHERE id = 1",
        table=WITH_ENUM,
    ),
    "add_an_attribute_to_a_composite": case(
        "ALTER TYPE {type} ADD ATTRIBUTE z int",
        copied_again=True,
        only=TRIGGER,
        table=f"CREATE TYPE {{type}} AS (x int, y int); {WITH_TYPE} DEFAULT '(1,2)')",
    ),
    "rename_table": case(
        "ALTER TABLE {t} RENAME TO renamed_table",
        touch="INSERT INTO renamed_table VALUES (1000)",
        final="public.renamed_table",
    ),
    "rename_table_and_no_row_follows": case(
        "INSERT INTO {t} VALUES (101, 'x')",
        "ALTER TABLE {t} RENAME TO renamed_quietly",
        touch="SELECT 1",
        final="public.renamed_quietly",
        only=TRIGGER,
    ),
    "rename_table_while_it_is_copied_again": case(
        "ALTER TABLE {t} ADD b float8 DEFAULT random()",
        "ALTER TABLE {t} RENAME TO renamed_in_its_copy",
        copied_again=True,
        touch="INSERT INTO renamed_in_its_copy VALUES (1000)",
        final="public.renamed_in_its_copy",
    ),
    "set_schema": case(
        "CREATE SCHEMA attic",
        "ALTER TABLE {t} SET SCHEMA attic",
        touch="INSERT INTO attic.{t} VALUES (1000)",
        final="attic.set_schema",
    ),
    "alter_schema_rename": case(
        "ALTER TABLE {t} SET SCHEMA cellar",
        "ALTER SCHEMA cellar RENAME TO vault",
        touch="INSERT INTO vault.{t} VALUES (1000)",
        final="vault.alter_schema_rename",
        table="CREATE SCHEMA cellar; CREATE TABLE {t} (id int PRIMARY KEY, v text)",
    ),
    "drop_and_create_the_table": case(
        "DROP TABLE {t}",
        "CREATE TABLE {t} (id int PRIMARY KEY, other int)",
        "INSERT INTO {t} SELECT n, n FROM generate_series(1, 30) n",
        "ALTER PUBLICATION pub ADD TABLE {t}",
        copied_again=True,
    ),
    "no_row_follows": case("ALTER TABLE {t} ADD b int DEFAULT 6, DROP v", touch="SELECT 1", only=TRIGGER),
    "truncated_in_between": case(
        "BEGIN",
        "ALTER TABLE {t} ADD b int DEFAULT 1",
        "TRUNCATE {t}",
        "INSERT INTO {t} VALUES (1, 'x', 2)",
        "ALTER TABLE {t} RENAME b TO c",
        "COMMIT",
    ),
}


class CountingDestination(MemoryDestination):
    """Counts the copies of each table."""

    def __init__(self) -> None:
        super().__init__()
        self.copies: Counter[str] = Counter()

    def write_table_rows(self, schema: ReplicatedTableSchema, rows: Rows, part: int) -> Durability:
        self.copies[schema.table.name.name] += 1
        return super().write_table_rows(schema, rows, part)


class Walked:
    """One pipeline in which every case has happened."""

    def __init__(self, mode: str, connection: Connection, destination: CountingDestination, running: Piped) -> None:
        self.mode = mode
        self.connection = connection
        self.destination = destination
        self.running = running

    def until(self, condition: Callable[[], bool]) -> None:
        self.running.until(condition)

    def same(self, table: str) -> bool:
        try:
            columns = self.destination.rows(table).column_names
            found = destination_rows(self.destination, table)
        except (TableNotFound, KeyError):
            return False
        quoted = ".".join(map(quote_identifier, table.split(".", 1)))
        with self.connection.cursor() as cursor:
            cursor.execute(f"SELECT * FROM {quoted} LIMIT 0")
            names = [column.name for column in cursor.description or ()]
        generated = {"g"}
        if set(names) - set(columns) <= generated:
            names = [name for name in names if name in columns]
        wanted = source_rows(self.connection, f"(SELECT {', '.join(map(quote_identifier, names))} FROM {quoted}) AS t")
        return columns == names and wanted == found


def _named(name: str, text: str) -> str:
    return text.replace("{t}", f'"{name}"').replace("{pkey}", f"{name[:50]}_key").replace("{type}", f"{name[:50]}_type")


@contextmanager
def _walking(mode: str, postgres: PostgresServer, spark: Any, root: Path) -> Iterator[Walked]:
    with postgres.database() as conninfo, psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute("SET timezone = 'UTC'")
        connection.execute(f"ALTER DATABASE {connection.info.dbname} SET logical_decoding_work_mem = '64kB'")
        for name in _names(mode):
            connection.execute(_named(name, CASES[name].table))
            connection.execute(_named(name, "INSERT INTO {t} (id, v) SELECT n, 'v' || n FROM generate_series(1, 20) n"))
        connection.execute("CREATE PUBLICATION pub FOR TABLE " + ", ".join(f'"{name}"' for name in _names(mode)))
        install = "always" if mode == "trigger" else "never"
        config = pipeline_config(conninfo, root, source={"install": install})
        destination = CountingDestination()
        with piped(config, MemoryStore(), destination, spark) as running:
            running.until_ready()
            walk = Walked(mode, connection, destination, running)
            _run_all(walk, _names(mode))
            yield walk


@pytest.fixture(scope="module")
def told(postgres: PostgresServer, spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Walked]:
    with _walking("trigger", postgres, spark, tmp_path_factory.mktemp("told")) as walk:
        yield walk


@pytest.fixture(scope="module")
def untold(postgres: PostgresServer, spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Walked]:
    with _walking("relations", postgres, spark, tmp_path_factory.mktemp("untold")) as walk:
        yield walk


def _names(mode: str) -> list[str]:
    return [name for name, one in CASES.items() if mode in one.only]


def _run_all(walk: Walked, names: list[str]) -> None:
    for name in names:
        for statement in CASES[name].statements:
            walk.connection.execute(_named(name, statement))
    for name in names:
        walk.connection.execute(_named(name, CASES[name].touch))


def _until_same(walk: Walked, name: str) -> str:
    table = CASES[name].final or f"public.{name}"
    deadline = time.monotonic() + PATIENCE_S
    while not walk.same(table):
        assert time.monotonic() < deadline, f"{name}: {walk.running.status.tables.get(table)}"
        walk.running.pipeline.wait(0.05)
    return table


@pytest.mark.parametrize("name", _names("trigger"))
def test_with_the_trigger(told: Walked, name: str) -> None:
    table = _until_same(told, name)
    # A copy bears the name that the table has by then.
    copies = sum(told.destination.copies[known] for known in {name, table.partition(".")[2]})
    assert copies == 1 + CASES[name].copied_again


@pytest.mark.parametrize("name", _names("relations"))
def test_without_the_trigger(untold: Walked, name: str) -> None:
    _until_same(untold, name)
