"""Installing event triggers where another role has made the schema or the functions before: refused, never kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from structlog.testing import capture_logs

from headrace.config.source import SourceInstall
from headrace.errors import SourcePermissionDenied
from headrace.postgres.connection import parse_conninfo
from headrace.postgres.preflight import Severity, Target, run_checks
from headrace.postgres.preflight.schema_changes import schema_changes
from headrace.postgres.source.install import install, installed_version, may_install, prepare_source
from headrace.postgres.source.script import VERSION, install_sql
from headrace.stores import PostgresStore
from headrace.testing import PostgresServer

Connection = psycopg.Connection[Any]


class Attacked:
    """A database in which another role, mallory, may create schemas."""

    def __init__(self, conninfo: str, admin: Connection, role: str, server: PostgresServer) -> None:
        self.conninfo, self.admin, self.role, self.server = conninfo, admin, role, server

    def run(self, *statements: str) -> None:
        with psycopg.connect(self.conninfo, user=self.role, password="x", autocommit=True) as session:
            for statement in statements:
                session.execute(statement)

    def function(self, name: str) -> str:
        """A statement that creates a trigger function which makes mallory a superuser if a superuser fires it."""
        body = f"BEGIN ALTER ROLE {self.role} SUPERUSER; END"
        return f"CREATE OR REPLACE FUNCTION {name} RETURNS event_trigger LANGUAGE plpgsql AS $${body}$$"

    @property
    def has_won(self) -> bool:
        return self.admin.execute("SELECT rolsuper FROM pg_roles WHERE rolname = %s", (self.role,)).fetchone() == (
            True,
        )


@pytest.fixture(params=[14, 17])
def attacked(servers: Callable[[int], PostgresServer], request: pytest.FixtureRequest) -> Iterator[Attacked]:
    server = servers(request.param)
    with server.database() as conninfo, psycopg.connect(conninfo, autocommit=True) as admin:
        role = f"mallory_{admin.info.dbname}"
        admin.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'x'; GRANT CREATE ON DATABASE {admin.info.dbname} TO {role}")
        try:
            yield Attacked(conninfo, admin, role, server)
        finally:
            admin.execute(f"DROP OWNED BY {role} CASCADE; DROP ROLE {role}")


def refused(attacked: Attacked) -> None:
    """Every way to install refuses, says who owns what, and the check does so too."""
    with pytest.raises(SourcePermissionDenied, match=attacked.role) as told:
        install(attacked.admin)
    assert "DROP SCHEMA headrace_ddl CASCADE" in told.value.hint
    assert not may_install(attacked.admin)
    with capture_logs() as logs:
        assert prepare_source(attacked.admin, SourceInstall.AUTO).version is None
    assert attacked.role in logs[0]["reason"]
    where = attacked.server.conninfo(attacked.admin.info.dbname)
    script = ("-X", "-q", "-v", "ON_ERROR_STOP=1", "-d", where, "-o", "/dev/null", "-c", install_sql())
    done = attacked.server.run("psql", *script, check=False)
    assert (done.returncode != 0, attacked.role in done.stderr) == (True, True)
    target = Target(parse_conninfo(attacked.conninfo), "p")
    (finding,) = run_checks(attacked.admin, target, [schema_changes])
    assert (finding.severity, attacked.role in finding.message) == (Severity.WARNING, True)
    assert installed_version(attacked.admin) is None
    attacked.admin.execute("CREATE TABLE fires (id int)")
    assert not attacked.has_won
    attacked.admin.execute(finding.remedy)
    install(attacked.admin)
    assert installed_version(attacked.admin) == VERSION


def test_a_schema_that_another_role_made_is_refused(attacked: Attacked) -> None:
    attacked.run("CREATE SCHEMA headrace_ddl")
    refused(attacked)


def test_functions_that_another_role_made_are_refused(attacked: Attacked) -> None:
    attacked.run("CREATE SCHEMA headrace_ddl", attacked.function("headrace_ddl.ddl_command_end()"))
    attacked.admin.execute("ALTER SCHEMA headrace_ddl OWNER TO CURRENT_USER")
    refused(attacked)


def test_the_schema_of_earlier_versions_gives_nothing_away(attacked: Attacked) -> None:
    """Where version 3 had its functions, and where a store may be, another role's function is never fired."""
    names = ("ddl_command_end", "sql_drop", "table_rewrite")
    attacked.run("CREATE SCHEMA headrace; CREATE TABLE headrace.kept (id int)")
    attacked.run(*(attacked.function(f"headrace.{name}()") for name in names))
    install(attacked.admin)
    attacked.run(*(attacked.function(f"headrace.{name}()") for name in names))
    attacked.admin.execute("CREATE TABLE t (id int); ALTER TABLE t ADD COLUMN v int; DROP TABLE t")
    assert not attacked.has_won
    assert installed_version(attacked.admin) == VERSION


def test_a_trigger_whose_function_is_another_roles_does_not_count(attacked: Attacked) -> None:
    install(attacked.admin)
    attacked.admin.execute(f"ALTER FUNCTION headrace_ddl.sql_drop() OWNER TO {attacked.role}")
    assert installed_version(attacked.admin) is None
    (finding,) = run_checks(attacked.admin, Target(parse_conninfo(attacked.conninfo), "p"), [schema_changes])
    assert attacked.role in finding.message
    attacked.admin.execute("ALTER FUNCTION headrace_ddl.sql_drop() OWNER TO CURRENT_USER")
    assert installed_version(attacked.admin) == VERSION
    attacked.admin.execute(f"ALTER SCHEMA headrace_ddl OWNER TO {attacked.role}")
    assert installed_version(attacked.admin) is None


def test_a_store_of_a_plain_role_is_no_obstacle(attacked: Attacked) -> None:
    store = PostgresStore(lambda: psycopg.connect(attacked.conninfo, user=attacked.role, password="x"), 1)
    store.close()
    install(attacked.admin)
    assert installed_version(attacked.admin) == VERSION
