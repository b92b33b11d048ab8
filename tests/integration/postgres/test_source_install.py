"""postgres.source: installing, bringing up to date, mending and removing it, with and without the right to."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest
from structlog.testing import capture_logs

from ddl_reading import listening
from headrace.config.source import SourceInstall, SourceSection
from headrace.errors import SourceInRecovery, SourcePermissionDenied
from headrace.postgres.source.install import (
    InstallResult,
    install,
    installed_version,
    may_install,
    prepare_source,
    uninstall,
)
from headrace.postgres.source.script import VERSION, install_sql, uninstall_sql
from headrace.stores import PostgresStore
from headrace.table_state import State, TableState
from headrace.testing import PostgresServer

pytestmark = pytest.mark.matrix

Connection = psycopg.Connection[Any]

INSTALLED = InstallResult(VERSION, None)
VERSION_3 = (Path(__file__).parent / "source_version_3.sql").read_text()
_EVERYTHING = """
SELECT 'namespace', nspname::text, nspacl::text FROM pg_namespace
UNION ALL SELECT 'function', oid::regprocedure::text, proacl::text FROM pg_proc
UNION ALL SELECT 'class', oid::regclass::text, relacl::text FROM pg_class WHERE relkind <> 't'
UNION ALL SELECT 'type', oid::regtype::text, typacl::text FROM pg_type
UNION ALL SELECT 'event trigger', evtname::text, evtenabled::text FROM pg_event_trigger
UNION ALL SELECT 'setting', setdatabase::text, setconfig::text FROM pg_db_role_setting
UNION ALL SELECT 'extension', extname::text, extversion FROM pg_extension
UNION ALL SELECT 'description', count(*)::text, '' FROM pg_description
UNION ALL SELECT 'shared description', count(*)::text, '' FROM pg_shdescription
UNION ALL SELECT 'dependency', count(*)::text, '' FROM pg_depend
UNION ALL SELECT 'default acl', count(*)::text, '' FROM pg_default_acl
ORDER BY 1, 2, 3
"""


def everything(connection: Connection) -> list[tuple[str, ...]]:
    return connection.execute(_EVERYTHING).fetchall()


@pytest.fixture
def nobody(postgres: PostgresServer, connection: Connection) -> Iterator[Connection]:
    """A session of a role with no rights but to log in."""
    role = f"nobody_{connection.info.dbname}"
    connection.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'x'")
    info = postgres.conninfo(connection.info.dbname, user=role, password="x")
    with psycopg.connect(info, autocommit=True) as session:
        yield session
    connection.execute(f"DROP OWNED BY {role}; DROP ROLE {role}")


def test_installing_twice_changes_nothing_the_second_time(connection: Connection) -> None:
    assert installed_version(connection) is None
    result = install(connection)
    assert (result, result.changed, installed_version(connection)) == (INSTALLED, True, VERSION)
    before = everything(connection)
    again = install(connection)
    assert (again, again.changed) == (InstallResult(VERSION, VERSION), False)
    assert everything(connection) == before


def test_uninstalling_leaves_no_trace(connection: Connection) -> None:
    connection.execute("CREATE TABLE t (id int)")
    before = everything(connection)
    install(connection)
    assert everything(connection) != before
    assert uninstall(connection)
    assert everything(connection) == before
    assert installed_version(connection) is None
    assert not uninstall(connection)


def test_the_scripts_do_the_same_by_psql(postgres: PostgresServer, connection: Connection) -> None:
    before = everything(connection)
    where = postgres.conninfo(connection.info.dbname)
    for script, version in ((install_sql(), VERSION), (install_sql(), VERSION), (uninstall_sql(), None)):
        done = postgres.run("psql", "-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", where, "-o", "/dev/null", "-c", script)
        assert (done.stderr, installed_version(connection)) == ("", version)
    assert everything(connection) == before


@pytest.mark.parametrize("earlier", [0, 3])
def test_an_earlier_version_is_brought_up_to_date_in_place(connection: Connection, earlier: int) -> None:
    install(connection)
    connection.execute(f"""
        CREATE OR REPLACE FUNCTION headrace_ddl.version() RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT {earlier}';
        CREATE OR REPLACE FUNCTION headrace_ddl.ddl_command_end() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN END';
    """)
    with listening(connection) as source:
        assert source.told("CREATE TABLE a (id int)").raw == []
        assert install(connection) == InstallResult(VERSION, earlier)
        assert source.told("CREATE TABLE b (id int)").names == ["public.b"]
    assert installed_version(connection) == VERSION


@pytest.mark.parametrize("with_store", [False, True])
def test_version_3_is_replaced_and_its_schema_left_to_the_store(
    connection: Connection, conninfo: str, with_store: bool
) -> None:
    if with_store:
        PostgresStore(conninfo, 1).close()
    before = everything(connection)
    for replace in (install, None):
        connection.execute(VERSION_3.encode())
        assert installed_version(connection) == 3
        if replace is not None:
            assert replace(connection) == InstallResult(VERSION, 3)
            left = (
                "SELECT count(*) FROM pg_proc p JOIN pg_namespace n ON n.oid = pronamespace WHERE nspname = 'headrace'"
            )
            assert connection.execute(left).fetchone() == (0,)
        assert uninstall(connection)
        assert everything(connection) == before


def test_a_later_version_is_left_alone(connection: Connection) -> None:
    install(connection)
    connection.execute(
        "CREATE OR REPLACE FUNCTION headrace_ddl.version() RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT 99'"
    )
    assert install(connection) == InstallResult(99, 99)
    assert installed_version(connection) == 99


@pytest.mark.parametrize(
    "damage",
    [
        "DROP EVENT TRIGGER headrace_sql_drop",
        "ALTER EVENT TRIGGER headrace_ddl_command_end DISABLE",
        "ALTER EVENT TRIGGER headrace_table_rewrite ENABLE REPLICA",
        "DROP FUNCTION headrace_ddl.table_rewrite() CASCADE",
        "DROP FUNCTION headrace_ddl.version()",
    ],
)
def test_what_is_broken_is_mended(connection: Connection, damage: str) -> None:
    install(connection)
    before = everything(connection)
    connection.execute(damage)
    assert installed_version(connection) is None
    assert install(connection) == INSTALLED
    assert everything(connection) == before


def test_a_store_beside_it_is_kept(connection: Connection, conninfo: str) -> None:
    store = PostgresStore(conninfo, 1)
    store.update_table_states({9: TableState(State.INIT)})
    before = everything(connection)
    install(connection)
    assert uninstall(connection)
    assert everything(connection) == before
    assert set(store.get_table_states()) == {9}
    store.close()


def test_a_store_made_later_is_kept(connection: Connection, conninfo: str) -> None:
    install(connection)
    with listening(connection) as source:
        store = PostgresStore(conninfo, 1)
        assert source.read().raw == []
        assert uninstall(connection)
        store.update_table_states({9: TableState(State.INIT)})
    assert set(store.get_table_states()) == {9}
    store.close()


def test_many_may_install_at_once(conninfo: str, connection: Connection) -> None:
    def one(number: int) -> None:
        if number % 2:
            PostgresStore(conninfo, number).close()
            return
        with psycopg.connect(conninfo, autocommit=True) as session:
            install(session)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(one, range(6)))
    assert installed_version(connection) == VERSION


def test_no_table_is_made_that_would_be_published(connection: Connection) -> None:
    connection.execute("CREATE PUBLICATION p FOR ALL TABLES")
    install(connection)
    assert connection.execute("SELECT count(*) FROM pg_publication_tables").fetchone() == (0,)


def test_who_may_install_is_tried_without_a_trace(connection: Connection, nobody: Connection) -> None:
    before = everything(connection)
    assert (may_install(connection), may_install(nobody)) == (True, False)
    with connection.transaction():
        assert may_install(connection)
    assert everything(connection) == before


def test_a_role_without_the_right_is_told_what_to_do(connection: Connection, nobody: Connection) -> None:
    with pytest.raises(
        SourcePermissionDenied, match=r'role "nobody_.*" may not install .*, not being a superuser'
    ) as told:
        install(nobody)
    assert "headrace source sql | psql" in told.value.hint
    # With a schema of its own, it is refused the trigger.
    connection.execute(f"CREATE SCHEMA headrace_ddl AUTHORIZATION {nobody.info.user}")
    with pytest.raises(SourcePermissionDenied, match="permission denied to create event trigger"):
        install(nobody)
    assert connection.execute(
        "SELECT count(*) FROM pg_proc WHERE pronamespace = 'headrace_ddl'::regnamespace"
    ).fetchone() == (0,)


def test_a_role_without_rights_sees_what_is_installed(connection: Connection, nobody: Connection) -> None:
    install(connection)
    assert installed_version(nobody) == VERSION
    assert install(nobody) == InstallResult(VERSION, VERSION)
    with pytest.raises(SourcePermissionDenied, match="may not uninstall"):
        uninstall(nobody)
    assert installed_version(nobody) == VERSION


def test_a_standby_says_that_the_primary_is_the_place(postgres: PostgresServer) -> None:
    with postgres.standby() as standby, psycopg.connect(standby.conninfo(), autocommit=True) as connection:
        assert (installed_version(connection), may_install(connection)) == (None, False)
        with pytest.raises(SourceInRecovery, match="this server is a standby") as told:
            install(connection)
        assert prepare_source(connection, SourceInstall.AUTO) == InstallResult(None, None)
    assert "at the primary" in told.value.hint


def test_what_a_start_does(connection: Connection, nobody: Connection) -> None:
    assert SourceSection().install is SourceInstall.AUTO
    assert prepare_source(connection, SourceInstall.NEVER) == InstallResult(None, None)
    with pytest.raises(SourcePermissionDenied):
        prepare_source(nobody, SourceInstall.ALWAYS)
    with capture_logs() as logs:
        assert prepare_source(nobody, SourceInstall.AUTO) == InstallResult(None, None)
    (line,) = logs
    assert (line["log_level"], "may not install" in line["reason"]) == ("warning", True)
    assert prepare_source(connection, SourceInstall.AUTO) == INSTALLED
    with capture_logs() as logs:
        for how in SourceInstall:
            assert prepare_source(nobody, how) == InstallResult(VERSION, VERSION)
    assert logs == []


def test_a_database_of_another_encoding_tells_in_utf8(postgres: PostgresServer, connection: Connection) -> None:
    name = f"latin_{connection.info.dbname}"
    connection.execute(f"CREATE DATABASE {name} ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    try:
        with psycopg.connect(postgres.conninfo(name), autocommit=True) as latin:
            install(latin)
            with listening(latin) as source:
                assert source.told('CREATE TABLE "Größe" (id int)').names == ["public.Größe"]
    finally:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
