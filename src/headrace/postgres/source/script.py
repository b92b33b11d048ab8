"""The SQL that this package installs, as text."""

from __future__ import annotations

from functools import cache
from importlib import resources

__all__ = ["DDL_SCHEMA", "FOREIGN", "LOCK", "VERSION", "describe_query", "install_sql", "uninstall_sql"]

VERSION = 4
"""Of what is installed. Raise it with every change of the SQL: a source with a lower one is brought up to date."""

DDL_SCHEMA = "headrace_ddl"
"""The schema of what is installed. Not the store's: its owner could replace functions that run with others' rights."""

FOREIGN = "HR001"
"""The SQLSTATE of a refusal: what is there belongs to a role that could misuse it."""

LOCK = 0x48445243
"""The advisory lock of who installs, or makes a store: "HDRC" as a number."""


def describe_query() -> str:
    """The query of `describe.sql`; its parameter is `$1`, an array of OIDs."""
    return _file("describe.sql")


def install_sql() -> str:
    """A script that installs, or brings an earlier version up to date: for psql, by who may create event triggers."""
    return _filled("install.sql")


def uninstall_sql() -> str:
    """A script that removes it."""
    return _filled("uninstall.sql")


def _filled(name: str) -> str:
    parts = {
        "remove_earlier": _file("remove_earlier.sql"),
        "describe": describe_query(),
        "describe_affected": describe_query().replace("$1", "ARRAY[affected]"),
        "version": str(VERSION),
        "lock": str(LOCK),
        "schema": DDL_SCHEMA,
        "foreign": FOREIGN,
    }
    script = _file(name)
    for part, text in parts.items():
        script = script.replace(f"@{part}@", text)
    return f"BEGIN;\n\n{script}\nCOMMIT;\n"


@cache
def _file(name: str) -> str:
    return (resources.files(__package__) / name).read_text(encoding="utf-8")
