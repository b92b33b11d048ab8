"""The SQL that this package installs, as text."""

from __future__ import annotations

from functools import cache
from importlib import resources

__all__ = ["LOCK", "VERSION", "describe_query", "install_sql", "uninstall_sql"]

VERSION = 3
"""Of what is installed. Raise it with every change of the SQL: a source with a lower one is brought up to date."""

LOCK = 0x48445243
"""The advisory lock of who changes the schema `headrace`, which may also be a store's: "HDRC" as a number."""


def describe_query() -> str:
    """The query of `describe.sql`; its parameter is `$1`, an array of OIDs."""
    return _file("describe.sql")


def install_sql() -> str:
    """A script that installs, or brings an earlier version up to date: for psql, by who may create event triggers."""
    filled = {
        "describe": describe_query(),
        "describe_affected": describe_query().replace("$1", "ARRAY[affected]"),
        "version": str(VERSION),
        "lock": str(LOCK),
    }
    script = _file("install.sql")
    for name, text in filled.items():
        script = script.replace(f"@{name}@", text)
    return f"BEGIN;\n\n{script}\nCOMMIT;\n"


def uninstall_sql() -> str:
    """A script that removes it."""
    script = _file("uninstall.sql").replace("@lock@", str(LOCK))
    return f"BEGIN;\n\n{script}\nCOMMIT;\n"


@cache
def _file(name: str) -> str:
    return (resources.files(__package__) / name).read_text(encoding="utf-8")
