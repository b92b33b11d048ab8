"""Row-level security: a table whose rows are hidden from the role fails, it is never copied with fewer rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from copying import published
from headrace.config.connection import PgConnectionConfig
from headrace.errors import RetryPolicy, SourcePermissionDenied, StoreIoError
from headrace.initial_copy.plan import plan_copy
from headrace.initial_copy.reader import copy_columns, read_range
from headrace.lsn import Lsn
from headrace.postgres.connection import connect, parse_conninfo
from headrace.postgres.preflight import Finding, Severity, Target, run_checks
from headrace.stores import MemoryStore, PostgresStore
from headrace.stores.records import APPLY
from headrace.testing import PostgresServer
from headrace.testing.durable_destination import DurableDestination
from pipelining import assert_equal_tables, destination_rows, piped, pipeline_config, source_rows

Connection = psycopg.Connection[Any]

PASSWORD = parse_conninfo("host=h user=u password=x").password


@pytest.fixture
def role(connection: Connection) -> Iterator[str]:
    name = f'Rep "{connection.info.dbname}"'
    quoted = '"' + name.replace('"', '""') + '"'
    connection.execute(f"CREATE ROLE {quoted} LOGIN REPLICATION PASSWORD 'x'")
    yield name
    connection.execute(f"REASSIGN OWNED BY {quoted} TO CURRENT_USER; DROP OWNED BY {quoted}; DROP ROLE {quoted}")


@pytest.fixture
def quoted(role: str) -> str:
    return '"' + role.replace('"', '""') + '"'


@pytest.fixture
def config(conninfo: str, connection: Connection, role: str, quoted: str) -> PgConnectionConfig:
    """The replicating role's connection to a database with two tables, of which `r` has row-level security."""
    for table in "or":
        connection.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, v text)")
        connection.execute(f"INSERT INTO {table} SELECT n, 'v' FROM generate_series(1, 10) n")
    connection.execute("ALTER TABLE r ENABLE ROW LEVEL SECURITY")
    connection.execute("CREATE POLICY half ON r USING (id % 2 = 0)")
    connection.execute("CREATE PUBLICATION pub FOR TABLE o, r")
    connection.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA public TO {quoted}")
    return parse_conninfo(conninfo).model_copy(update={"username": role, "password": PASSWORD})


def findings(config: PgConnectionConfig) -> list[Finding]:
    with connect(config, "check") as session:
        found = run_checks(session, Target(config, "pub"))
    return [finding for finding in found if finding.check == "row security"]


def test_the_check_names_table_role_and_remedy(connection: Connection, config: PgConnectionConfig, quoted: str) -> None:
    (finding,) = findings(config)
    assert finding.severity is Severity.ERROR
    assert "public.r" in finding.message
    assert finding.remedy == f"ALTER ROLE {quoted} BYPASSRLS"
    connection.execute(finding.remedy)
    assert findings(config) == []


def test_an_owner_is_exempt_unless_security_is_forced(
    connection: Connection, config: PgConnectionConfig, quoted: str
) -> None:
    connection.execute(f"GRANT CREATE ON SCHEMA public TO {quoted}; ALTER TABLE r OWNER TO {quoted}")
    assert findings(config) == []
    connection.execute("ALTER TABLE r FORCE ROW LEVEL SECURITY")
    assert [finding.remedy for finding in findings(config)] == [f"ALTER ROLE {quoted} BYPASSRLS"]


def test_a_policy_of_a_partition_is_found(connection: Connection, config: PgConnectionConfig, quoted: str) -> None:
    connection.execute("DROP TABLE r; CREATE TABLE r (id int PRIMARY KEY) PARTITION BY RANGE (id)")
    connection.execute("CREATE TABLE r_1 PARTITION OF r FOR VALUES FROM (0) TO (100)")
    connection.execute("ALTER TABLE r_1 ENABLE ROW LEVEL SECURITY")
    connection.execute("ALTER PUBLICATION pub SET (publish_via_partition_root); ALTER PUBLICATION pub ADD TABLE r")
    connection.execute(f"GRANT SELECT ON r, r_1 TO {quoted}")
    assert ["public.r_1" in finding.message for finding in findings(config)] == [True]


def test_a_copy_connection_refuses_to_filter(connection: Connection, config: PgConnectionConfig) -> None:
    plan = plan_copy(connection, published(connection, "r"))
    with pytest.raises(SourcePermissionDenied, match="row-level security"):
        list(read_range(config, plan.ranges[0], copy_columns(plan.schema)))


def test_a_store_does_not_take_hidden_rows_for_missing_ones(conninfo: str, connection: Connection, quoted: str) -> None:
    store = PostgresStore(conninfo, 1)
    store.update_progress(APPLY, Lsn(7))
    store.close()
    connection.execute(f"GRANT USAGE ON SCHEMA headrace TO {quoted}")
    connection.execute(f"GRANT ALL ON ALL TABLES IN SCHEMA headrace TO {quoted}")
    connection.execute("ALTER TABLE headrace.progress ENABLE ROW LEVEL SECURITY")
    plain = PostgresStore(lambda: psycopg.connect(conninfo, user=_unquoted(quoted), password="x"), 1)
    try:
        with pytest.raises(StoreIoError, match="row-level security"):
            plain.get_progress(APPLY)
    finally:
        plain.close()


def _unquoted(name: str) -> str:
    return name[1:-1].replace('""', '"')


@pytest.mark.parametrize("version", [14, 17])
def test_a_filtered_table_fails_alone_and_comes_back_after_the_remedy(
    servers: Callable[[int], PostgresServer], version: int, spark: Any, tmp_path: Path
) -> None:
    with servers(version).database() as conninfo, psycopg.connect(conninfo, autocommit=True) as connection:
        name = f"rep_{connection.info.dbname}"
        connection.execute(f"CREATE ROLE {name} LOGIN REPLICATION PASSWORD 'x'")
        try:
            _copy_around_row_security(conninfo, connection, name, (spark, tmp_path))
        finally:
            connection.execute(f"DROP OWNED BY {name}; DROP ROLE {name}")


def _copy_around_row_security(conninfo: str, connection: Connection, role: str, where: tuple[Any, Path]) -> None:
    spark, root = where
    connection.execute("CREATE TABLE o (id int PRIMARY KEY, v text); CREATE TABLE r (id int PRIMARY KEY, v text)")
    connection.execute("INSERT INTO o VALUES (1, 'o'); INSERT INTO r VALUES (1, 'hidden'), (2, 'shown')")
    connection.execute("ALTER TABLE r ENABLE ROW LEVEL SECURITY; CREATE POLICY half ON r USING (id = 2)")
    connection.execute(f"CREATE PUBLICATION pub FOR TABLE o, r; GRANT SELECT ON o, r TO {role}")
    own = parse_conninfo(conninfo).model_copy(update={"username": role, "password": PASSWORD})
    destination = DurableDestination(root / "destination.db")
    config = pipeline_config(conninfo, root, pg_connection=own)
    with piped(config, MemoryStore(), destination, spark) as running:
        running.until_ready("public.o")
        running.until(lambda: running.status.tables["public.r"].state.retry_policy is RetryPolicy.MANUAL)
        errored = running.status.tables["public.r"].state
        assert errored.solution == f'ALTER ROLE "{role}" BYPASSRLS'
        assert "row-level security" in (errored.reason or "")
        connection.execute("INSERT INTO o VALUES (2, 'streamed'); INSERT INTO r VALUES (3, 'streamed')")
        running.until(lambda: source_rows(connection, "o") == destination_rows(destination, "public.o"))
        connection.execute(errored.solution)
        running.pipeline.rollback("public.r")
        running.until_ready()
        running.until_applied(connection)
        assert_equal_tables(connection, destination, "public.o", "public.r")
