"""`headrace source install|sql|uninstall`: puts it there, prints it, takes it away, and says who may."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from commanding import invoke, write_config
from headrace.postgres.source.install import installed_version
from headrace.postgres.source.script import VERSION, install_sql, uninstall_sql
from headrace.testing.postgres import PASSWORD

Connection = psycopg.Connection[Any]


@pytest.fixture
def file(conninfo: str, tmp_path: Path) -> Path:
    return write_config(tmp_path / "pipeline.yaml", conninfo)


@pytest.fixture
def place(connection: Connection) -> str:
    return f"database {connection.info.dbname} at {connection.info.host}:{connection.info.port}"


@pytest.fixture
def nobody(connection: Connection) -> Iterator[str]:
    """How a role with no rights connects."""
    role = f"nobody_{connection.info.dbname}"
    connection.execute(f"CREATE ROLE {role} LOGIN PASSWORD '{PASSWORD}'")
    yield f"host=127.0.0.1 port={connection.info.port} dbname={connection.info.dbname} user={role}"
    connection.execute(f"DROP ROLE {role}")


def test_install_and_uninstall(file: Path, connection: Connection, place: str) -> None:
    result = invoke("source", "install", file)
    assert (result.exit_code, result.stdout) == (0, f"installed version {VERSION} in {place}\n")
    assert installed_version(connection) == VERSION
    result = invoke("source", "install", file)
    assert (result.exit_code, result.stdout) == (0, f"version {VERSION} is already installed in {place}\n")
    result = invoke("source", "uninstall", file, "--yes")
    assert (result.exit_code, result.stdout) == (0, f"removed from {place}\n")
    assert installed_version(connection) is None
    result = invoke("source", "uninstall", file, "--yes")
    assert (result.exit_code, result.stdout) == (0, f"nothing to remove from {place}\n")


def test_an_update_and_a_later_version_say_so(file: Path, connection: Connection, place: str) -> None:
    invoke("source", "install", file)
    version = "CREATE OR REPLACE FUNCTION headrace_ddl.version() RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT %s'"
    connection.execute(version.replace("%s", "0"))
    result = invoke("source", "install", file)
    assert (result.exit_code, result.stdout) == (
        0, f"brought up to date, from version 0 to {VERSION}, in {place}\n",
    )  # fmt: skip
    connection.execute(version.replace("%s", "99"))
    result = invoke("source", "install", file)
    assert (result.exit_code, result.stdout) == (
        0, f"version 99 is already installed, which is later than this program's {VERSION}, in {place}\n",
    )  # fmt: skip


def test_the_source_can_be_named(connection: Connection, conninfo: str, tmp_path: Path) -> None:
    where = conninfo.replace(f"password={PASSWORD}", "")
    assert invoke("source", "install", "--source", where).exit_code == 0
    assert installed_version(connection) == VERSION
    secret = tmp_path / "password"
    secret.write_text(PASSWORD)
    result = invoke("source", "uninstall", "--source", where, "--password-file", secret, "--yes", PGPASSWORD="")
    assert result.exit_code == 0, result.stderr
    assert installed_version(connection) is None


def test_another_role_than_the_pipelines_can_install(
    connection: Connection, conninfo: str, nobody: str, tmp_path: Path
) -> None:
    file = write_config(tmp_path / "pipeline.yaml", nobody)
    assert invoke("source", "install", file).exit_code == 1
    assert invoke("source", "install", file, "--source", conninfo.replace(f"password={PASSWORD}", "")).exit_code == 0
    assert installed_version(connection) == VERSION


def test_who_may_not_is_told_what_to_do(connection: Connection, nobody: str) -> None:
    result = invoke("source", "install", "--source", nobody)
    assert result.exit_code == 1
    assert "may not install at the source what tells of DDL, not being a superuser" in result.stderr
    assert "headrace source sql | psql" in result.stderr
    assert installed_version(connection) is None


def test_the_sql_is_printed_without_a_connection() -> None:
    assert invoke("source", "sql").stdout == install_sql()
    assert invoke("source", "sql", "--uninstall").stdout == uninstall_sql()


def test_uninstalling_must_be_confirmed(
    file: Path, connection: Connection, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    invoke("source", "install", file)
    result = invoke("source", "uninstall", file, answers="y\n")
    assert (result.exit_code, "give --yes" in result.stderr) == (2, True)
    monkeypatch.setattr("headrace.cli.source.on_terminal", lambda: True)
    result = invoke("source", "uninstall", file, answers="n\n")
    assert (result.exit_code, f"Remove from {place}" in result.stdout) == (1, True)
    assert installed_version(connection) == VERSION
    assert invoke("source", "uninstall", file, answers="y\n").exit_code == 0
    assert installed_version(connection) is None


@pytest.mark.parametrize("command", ["install", "uninstall"])
def test_a_wrong_call_says_what_is_wrong(command: str, file: Path, tmp_path: Path) -> None:
    result = invoke("source", command)
    assert (result.exit_code, "give a PIPELINE.YAML, or --source" in result.stderr) == (2, True)
    result = invoke("source", command, "--source", "nonsense=1")
    assert (result.exit_code, "--source" in result.stderr) == (2, True)
    secret = tmp_path / "password"
    secret.write_text("x")
    result = invoke("source", command, file, "--password-file", secret)
    assert (result.exit_code, "leave the option out" in result.stderr) == (2, True)
    result = invoke("source", command, "--source", "host=127.0.0.1 port=1 dbname=x user=y", "--password-file", secret)
    assert result.exit_code == 3
