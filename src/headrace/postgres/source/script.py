"""The SQL that this package installs, as text."""

from __future__ import annotations

from functools import cache
from importlib import resources

__all__ = [
    "DDL_SCHEMA",
    "FOREIGN",
    "KEY_COMMENT",
    "LOCK",
    "SIGNED_SINCE",
    "VERSION",
    "describe_query",
    "install_sql",
    "uninstall_sql",
]

VERSION = 6
"""Of what is installed. Raise it with every change of the SQL: a source with a lower one is brought up to date."""

SIGNED_SINCE = 6
"""First installed version whose messages are signed and say whether the table was locked; older ones are ignored."""

DDL_SCHEMA = "headrace_ddl"
"""The schema of what is installed. Not the store's: its owner could replace functions that run with others' rights."""

FOREIGN = "HR001"
"""The SQLSTATE of a refusal: what is there belongs to a role that could misuse it."""

KEY_COMMENT = "headrace: the key of messages about DDL"
"""By which the large object that holds the key is known again."""

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
        "remove": _file("remove.sql"),
        "describe": describe_query(),
        "describe_affected": describe_query().replace("$1", "ARRAY[affected]"),
        "version": str(VERSION),
        "lock": str(LOCK),
        "schema": DDL_SCHEMA,
        "foreign": FOREIGN,
        "key_comment": KEY_COMMENT,
    }
    script = _file(name)
    for part, text in parts.items():
        script = script.replace(f"@{part}@", text)
    return f"BEGIN;\n\n{script}\nCOMMIT;\n"


@cache
def _file(name: str) -> str:
    return (resources.files(__package__) / name).read_text(encoding="utf-8")
