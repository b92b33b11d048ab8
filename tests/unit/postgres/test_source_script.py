"""postgres.source.script: what a DBA reads, and that its version tells it apart from the last one."""

from __future__ import annotations

import hashlib
import re

from headrace.postgres.source import VERSION, install_sql, uninstall_sql
from headrace.schema import OWN_SCHEMA


def test_the_version_is_raised_with_the_script() -> None:
    """When this fails, raise VERSION in script.py, or sources keep what they have; then note both here."""
    installed = (VERSION, hashlib.sha256(install_sql().encode()).hexdigest()[:16])
    assert installed == (3, "6a12e3a2126f0f87")


def test_the_scripts_are_one_transaction_with_nothing_left_to_fill_in() -> None:
    for script in (install_sql(), uninstall_sql()):
        assert script.startswith("BEGIN;\n")
        assert script.endswith("\nCOMMIT;\n")
        assert re.findall(r"@\w+@", script) == []
    assert f"'SELECT {VERSION}'" in install_sql()


def test_everything_that_is_made_is_removed() -> None:
    made = re.findall(r"CREATE (?:OR REPLACE )?(FUNCTION|EVENT TRIGGER|SCHEMA) (?:\w+\.)?(\w+)", install_sql())
    removed = re.findall(r"DROP (FUNCTION|EVENT TRIGGER|SCHEMA) IF EXISTS (?:\w+\.)?(\w+)", uninstall_sql())
    assert len(made) > 7
    assert sorted(made) == sorted(removed)
    assert ("SCHEMA", OWN_SCHEMA) in made
    assert "CREATE TABLE" not in install_sql()


def test_what_runs_with_the_installers_rights_calls_nothing_that_the_schemas_owner_could_replace() -> None:
    parts = re.split(r"\nCREATE OR REPLACE FUNCTION ", install_sql())
    triggers = [part for part in parts if "SECURITY DEFINER" in part]
    assert [part.split("(")[0] for part in triggers] == [
        "headrace.ddl_command_end", "headrace.sql_drop", "headrace.table_rewrite",
    ]  # fmt: skip
    for part in triggers:
        header, body = part.split("$headrace$")[:2]
        assert "SET search_path = pg_catalog, pg_temp\n" in header
        assert re.findall(r"headrace\.\w+\s*\(", body) == []
