"""postgres.source.script: what a DBA reads, and that its version tells it apart from the last one."""

from __future__ import annotations

import hashlib
import re

from headrace.postgres.source.script import DDL_SCHEMA, VERSION, install_sql, uninstall_sql


def test_the_version_is_raised_with_the_script() -> None:
    """When this fails, raise VERSION in script.py, or sources keep what they have; then note both here."""
    installed = (VERSION, hashlib.sha256(install_sql().encode()).hexdigest()[:16])
    assert installed == (6, "7c5c6a263ac8020b")


def test_the_scripts_are_one_transaction_with_nothing_left_to_fill_in() -> None:
    for script in (install_sql(), uninstall_sql()):
        assert script.startswith("BEGIN;\n")
        assert script.endswith("\nCOMMIT;\n")
        assert re.findall(r"@\w+@", script) == []
    assert f"'SELECT {VERSION}'" in install_sql()


def test_everything_that_is_made_is_removed() -> None:
    made = re.findall(rf"CREATE (FUNCTION|EVENT TRIGGER) (?:{DDL_SCHEMA}\.)?(\w+)", install_sql())
    removed = re.findall(rf"DROP (FUNCTION|EVENT TRIGGER) IF EXISTS (?:{DDL_SCHEMA}\.)?(\w+)[;(]", uninstall_sql())
    assert len(made) > 6
    assert sorted(made) == sorted(removed)
    assert f"CREATE SCHEMA {DDL_SCHEMA}" in install_sql()
    assert f"DROP SCHEMA IF EXISTS {DDL_SCHEMA}" in uninstall_sql()
    assert "CREATE TABLE" not in install_sql()


def test_nothing_of_another_role_is_kept() -> None:
    """OR REPLACE keeps the owner, who can replace the function again."""
    assert "CREATE OR REPLACE" not in install_sql()


def test_what_runs_with_the_installers_rights_pins_its_search_path() -> None:
    parts = re.split(r"\bCREATE FUNCTION ", install_sql())
    triggers = [part for part in parts if "SECURITY DEFINER" in part]
    assert [part.split("(")[0] for part in triggers] == [
        f"{DDL_SCHEMA}.{name}" for name in ("message_key", "ddl_command_end", "sql_drop", "table_rewrite")
    ]
    for part in triggers:
        assert "SET search_path = pg_catalog, pg_temp" in part.split("$headrace$")[0]
