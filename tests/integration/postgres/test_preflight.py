"""postgres.preflight: each check sees what it is for, and nothing where all is well; its remedy mends it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from pydantic import SecretStr

from awaiting import until
from headrace.config.connection import PgConnectionConfig, TlsConfig, TlsMode
from headrace.config.source import SourceInstall
from headrace.postgres.connection import connect, parse_conninfo
from headrace.postgres.preflight import ALL_CHECKS, Finding, Severity, Target, run_checks
from headrace.postgres.preflight.access import encryption
from headrace.postgres.preflight.contract import SourceCheck
from headrace.postgres.preflight.schema_changes import schema_changes
from headrace.postgres.preflight.server import synchronized_standby_slots
from headrace.postgres.source.install import install
from headrace.postgres.version import ServerVersion
from headrace.testing import PostgresServer

pytestmark = pytest.mark.matrix

Connection = psycopg.Connection[Any]
UNLIMITED_WAL = "max_slot_wal_keep_size"  # Postgres's default, and a finding on every server that keeps it

NOT_INSTALLED = "schema changes"  # until a pipeline has been started


@pytest.fixture
def find(connection: Connection, conninfo: str) -> Callable[..., list[Finding]]:
    """The findings for publication p, without those that every default server and new database has."""

    def run(publication: str = "p") -> list[Finding]:
        found = run_checks(connection, Target(parse_conninfo(conninfo), publication))
        return [finding for finding in found if finding.check not in (UNLIMITED_WAL, NOT_INSTALLED)]

    return run


Find = Callable[..., list[Finding]]


def test_a_good_source_has_no_findings(connection: Connection, find: Find) -> None:
    connection.execute("CREATE TABLE t (id int PRIMARY KEY, v text); CREATE PUBLICATION p FOR TABLE t")
    assert find() == []


def test_a_database_without_encoding(postgres: PostgresServer, connection: Connection, conninfo: str) -> None:
    name = f"ascii_{connection.info.dbname}"
    connection.execute(f"CREATE DATABASE {name} ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0")
    config = parse_conninfo(postgres.conninfo(name))
    try:
        with connect(config, "test") as ascii_database:
            ascii_database.execute("CREATE TABLE public.t (id int PRIMARY KEY)")
            ascii_database.execute("CREATE PUBLICATION p FOR TABLE public.t")
            found = run_checks(ascii_database, Target(config, "p"))
    finally:
        connection.execute(f"DROP DATABASE {name}")
    assert "encoding" in [finding.check for finding in found if finding.severity is Severity.ERROR]


def test_a_missing_publication_is_reported_once(find: Find) -> None:
    (finding,) = find('no"such')
    assert (finding.check, finding.severity) == ("publication", Severity.ERROR)
    assert 'CREATE PUBLICATION "no""such"' in finding.remedy


def test_an_empty_publication(connection: Connection, find: Find) -> None:
    connection.execute("CREATE PUBLICATION p")
    (finding,) = find()
    assert (finding.check, finding.severity) == ("published tables", Severity.ERROR)


def test_a_table_without_identity_is_an_error_when_updates_are_published(connection: Connection, find: Find) -> None:
    connection.execute('CREATE TABLE "T 1" (id int); CREATE PUBLICATION p FOR TABLE "T 1"')
    identity, key = find()
    assert (identity.check, identity.severity) == ("replica identity", Severity.ERROR)
    assert "UPDATE and DELETE on it will fail" in identity.message
    assert (key.check, key.severity) == ("primary key", Severity.WARNING)
    connection.execute(identity.remedy.split("; or ")[1])
    assert find() == [key]
    connection.execute("ALTER PUBLICATION p SET (publish = 'insert')")
    connection.execute('ALTER TABLE "T 1" REPLICA IDENTITY NOTHING')
    assert [f.severity for f in find()] == [Severity.WARNING, Severity.WARNING]


def test_identity_nothing_on_a_keyed_table_has_an_exact_remedy(connection: Connection, find: Find) -> None:
    connection.execute("CREATE TABLE t (id int PRIMARY KEY); ALTER TABLE t REPLICA IDENTITY NOTHING")
    connection.execute("CREATE PUBLICATION p FOR TABLE t")
    (finding,) = find()
    assert finding.remedy == 'ALTER TABLE "public"."t" REPLICA IDENTITY DEFAULT'
    connection.execute(finding.remedy)
    assert find() == []


def test_key_columns_omitted_by_a_column_list(connection: Connection, find: Find) -> None:
    connection.execute(
        "CREATE TABLE t (a int, b int, v text, w text, PRIMARY KEY (a, b)); CREATE TABLE other (id int PRIMARY KEY)"
    )
    if not ServerVersion.of(connection).column_lists:
        connection.execute("CREATE PUBLICATION p FOR TABLE t, other")
        assert find() == []
        return
    connection.execute("CREATE PUBLICATION p FOR TABLE t (a, v) WHERE (a > 0), other")
    (finding,) = find()
    assert (finding.check, finding.severity) == ("key columns", Severity.ERROR)
    assert finding.message.endswith("omits key columns: b")
    connection.execute(finding.remedy)
    assert find() == []
    row = connection.execute(
        "SELECT attnames::text[], rowfilter FROM pg_publication_tables WHERE tablename = 't'"
    ).fetchone()
    assert row == (["a", "b", "v"], "(a > 0)")


def test_generated_columns_that_are_not_published(connection: Connection, find: Find) -> None:
    connection.execute("CREATE TABLE t (id int PRIMARY KEY, g int GENERATED ALWAYS AS (id * 2) STORED)")
    connection.execute("CREATE PUBLICATION p FOR TABLE t")
    (finding,) = find()
    assert (finding.check, finding.severity) == ("generated columns", Severity.WARNING)
    assert finding.message.endswith("not published: g")
    if ServerVersion.of(connection).publish_generated_columns:
        connection.execute(finding.remedy)
        assert find() == []


def test_tables_left_out_without_a_word(connection: Connection, find: Find) -> None:
    connection.execute("""
        CREATE TABLE t (id int PRIMARY KEY); CREATE UNLOGGED TABLE "U" (id int PRIMARY KEY);
        CREATE FOREIGN DATA WRAPPER w; CREATE SERVER s FOREIGN DATA WRAPPER w; CREATE FOREIGN TABLE f (id int) SERVER s;
        CREATE TEMPORARY TABLE tmp (id int); CREATE PUBLICATION p FOR ALL TABLES; CREATE PUBLICATION one FOR TABLE t;
    """)
    found = {(f.message.split()[0], f.severity) for f in find() if f.check == "tables left out"}
    assert found == {("unlogged", Severity.WARNING), ("foreign", Severity.INFO), ("temporary", Severity.INFO)}
    (unlogged,) = [f for f in find() if f.severity is Severity.WARNING]
    connection.execute(unlogged.remedy)
    assert {f.severity for f in find()} == {Severity.INFO}
    assert find("one") == []


def test_a_role_without_privileges(connection: Connection, conninfo: str) -> None:
    config = parse_conninfo(conninfo)
    role = f'Reader "{config.name}'
    quoted = '"' + role.replace('"', '""') + '"'
    connection.execute(f"""
        CREATE SCHEMA "S"; CREATE TABLE "S".t (id int PRIMARY KEY, v text); CREATE PUBLICATION p FOR TABLE "S".t;
        CREATE ROLE {quoted} LOGIN PASSWORD 'p';
    """)
    target = Target(config.model_copy(update={"username": role, "password": SecretStr("p")}), "p")
    try:
        with connect(target.config, "test") as plain:
            found = [f for f in run_checks(plain, target) if f.severity is Severity.ERROR]
            assert [f.check for f in found] == ["replication privilege", "select privilege", "select privilege"]
            for finding in found:
                connection.execute(finding.remedy)
            assert [f for f in run_checks(plain, target) if f.severity is Severity.ERROR] == []
            # Privileges on columns are not enough: the copy locks the table.
            connection.execute(f'REVOKE SELECT ON "S".t FROM {quoted}; GRANT SELECT (id, v) ON "S".t TO {quoted}')
            assert [f.check for f in run_checks(plain, target) if f.severity is Severity.ERROR] == ["select privilege"]
    finally:
        connection.execute(f"DROP OWNED BY {quoted}; DROP ROLE {quoted}")


def test_a_check_that_raises_stops_no_other(connection: Connection, conninfo: str) -> None:
    def broken(_: Connection, __: Target) -> list[Finding]:
        raise KeyError("row value")

    def failing(session: Connection, _: Target) -> list[Finding]:
        session.execute("SELECT * FROM nosuch")
        return []

    checks = (SourceCheck("broken", broken), SourceCheck("failing", failing), *ALL_CHECKS)
    first, second, *rest = run_checks(connection, Target(parse_conninfo(conninfo), "nosuch"), checks)
    assert (first.check, first.severity, first.message) == ("broken", Severity.ERROR, "could not run: KeyError")
    assert second.message.startswith("could not run: Postgres refused: relation")
    assert "publication" in {finding.check for finding in rest}


def test_every_check_has_a_name_of_its_own() -> None:
    names = [check.name for check in ALL_CHECKS]
    assert len(set(names)) == len(names) == 21


@pytest.fixture(scope="module")
def misfit() -> Iterator[PgConnectionConfig]:
    """A server on which everything is set wrong."""
    settings = {
        "wal_level": "replica",
        "max_replication_slots": "1",
        "max_wal_senders": "0",
        "max_slot_wal_keep_size": "64MB",
    }
    with PostgresServer(settings=settings) as server:
        with psycopg.connect(server.conninfo(), autocommit=True) as admin:
            admin.execute("CREATE TABLE t (id int PRIMARY KEY); CREATE PUBLICATION p FOR TABLE t")
            admin.execute("SELECT pg_create_physical_replication_slot('taken', true)")
            if server.version >= 18:
                admin.execute("ALTER SYSTEM SET idle_replication_slot_timeout = '2min'")
                admin.execute("SELECT pg_reload_conf()")
        yield parse_conninfo(server.conninfo())


def test_server_settings(misfit: PgConnectionConfig) -> None:
    with connect(misfit, "test") as session:
        major = ServerVersion.of(session).major
        found = {f.check: f for f in run_checks(session, Target(misfit, "p"))}
    expected = {"wal_level", "direct connection", "replication slots", "walsenders", UNLIMITED_WAL, NOT_INSTALLED}
    if major >= 17:
        expected.add("synchronized_standby_slots")
    if major >= 18:
        expected.add("idle_replication_slot_timeout")
        assert "120 s" in found["idle_replication_slot_timeout"].message
    assert found.keys() == expected
    assert found["wal_level"].remedy.startswith("ALTER SYSTEM SET wal_level = 'logical'")
    assert "all 1 replication slots are in use" in found["replication slots"].message
    assert "64 MB" in found["max_slot_wal_keep_size"].message
    assert found["max_slot_wal_keep_size"].severity is Severity.WARNING


@pytest.mark.parametrize(("major", "severity"), [(13, Severity.ERROR), (19, Severity.WARNING)])
def test_versions_outside_the_supported_ones(major: int, severity: Severity, conninfo: str) -> None:
    class Info:
        server_version = major * 10_000

    class Session:
        info = Info()

    (check,) = [check for check in ALL_CHECKS if check.name == "server version"]
    (finding,) = check.run(Session(), Target(parse_conninfo(conninfo), "p"))  # type: ignore[arg-type]
    assert finding.severity is severity
    assert "14 to 18" in finding.message


def test_how_schema_changes_will_be_seen(postgres: PostgresServer, connection: Connection, conninfo: str) -> None:
    connection.execute("CREATE TABLE t (id int PRIMARY KEY, v text); CREATE PUBLICATION p FOR TABLE t")
    role = f"reader_{connection.info.dbname}"
    connection.execute(f"CREATE ROLE {role} LOGIN REPLICATION PASSWORD 'x'; GRANT SELECT ON t TO {role}")
    target = Target(parse_conninfo(conninfo), "p")

    def found(session: Connection) -> list[Finding]:
        return [finding for finding in run_checks(session, target) if finding.check == NOT_INSTALLED]

    try:
        info = postgres.conninfo(connection.info.dbname, user=role, password="x")
        with psycopg.connect(info, autocommit=True) as reader:
            (superuser,), (other,) = found(connection), found(reader)
            assert (superuser.severity, other.severity) == (Severity.INFO, Severity.WARNING)
            assert "a start installs it" in superuser.message
            for unknown in (
                "labels of an enum that are renamed",
                "TYPE … USING",
                "a primary key that is dropped and made",
            ):
                assert unknown in other.message
            assert other.message.endswith("copy the table again after such a change")
            # With a right that is not to be used, it is as without it.
            never = replace(target, install=SourceInstall.NEVER)
            assert schema_changes.run(connection, never) == [other]
            assert other.remedy.endswith("have one run the output of: headrace source sql")
            install(connection)
            assert found(connection) == found(reader) == []
            connection.execute("ALTER EVENT TRIGGER headrace_sql_drop DISABLE")
            assert found(reader) == [other]
            install(connection)
            connection.execute(
                "CREATE OR REPLACE FUNCTION headrace_ddl.version() RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 0'"
            )
            (superuser,), (other,) = found(connection), found(reader)
            assert "version 0" in superuser.message
            assert "version 0" in other.message
            assert (superuser.severity, other.severity) == (Severity.INFO, Severity.WARNING)
    finally:
        connection.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


def test_standbys_that_the_slot_does_not_wait_for() -> None:
    def found(*, failover_slot: bool = True) -> list[Finding]:
        target = Target(parse_conninfo(server.conninfo()), "p", failover_slot=failover_slot)
        return run_checks(connection, target, [synchronized_standby_slots])

    with PostgresServer(17) as server, psycopg.connect(server.conninfo(), autocommit=True) as connection:
        assert found() == []
        with server.standby():
            until(lambda: "primary_slot_name" in "".join(finding.remedy for finding in found()))
        with server.standby(slot="standby_1"):
            (finding,) = found()
            assert finding.severity is Severity.WARNING
            assert found(failover_slot=False) == []
            for statement in finding.remedy.split(";"):
                connection.execute(statement)
            until(lambda: found() == [])
            connection.execute("ALTER SYSTEM RESET synchronized_standby_slots")
            connection.execute("SELECT pg_reload_conf()")


@pytest.mark.parametrize(
    ("host", "mode", "warned"),
    [
        ("db.example.com", TlsMode.PREFER, True),
        ("db.example.com", TlsMode.VERIFY_CA, True),
        ("db.example.com", TlsMode.VERIFY_FULL, False),
        ("10.0.0.7", TlsMode.REQUIRE, True),
        ("localhost", TlsMode.PREFER, False),
        ("127.0.0.2", TlsMode.DISABLE, False),
        ("::1", TlsMode.PREFER, False),
        ("/run/postgresql", TlsMode.PREFER, False),
    ],
)
def test_a_server_that_is_not_verified(connection: Connection, host: str, mode: TlsMode, warned: bool) -> None:
    config = PgConnectionConfig(host=host, name="shop", username="a", tls=TlsConfig(mode=mode))
    found = run_checks(connection, Target(config, "p"), [encryption])
    assert [finding.severity for finding in found] == [Severity.WARNING] * warned
    assert all(host in finding.message and "verify-full" in finding.remedy for finding in found)
