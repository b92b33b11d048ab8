"""The check of how schema changes will be seen, and of what cannot be known otherwise."""

from __future__ import annotations

from typing import Any

import psycopg

from ..source import VERSION, installed_version
from .contract import Finding, Severity, Target, named

__all__ = ["schema_changes"]

_UNSEEN = (
    "schema changes are seen only when the next row of the table is changed; new defaults, NOT NULL, renamed or added "
    "enum values, and rows that a change rewrote without an event are not seen: resync the table after such a change"
)
_BY_ADMIN = "headrace source install, or for a superuser to run: headrace source sql | psql"
_WHO = "SELECT rolsuper AND NOT pg_catalog.pg_is_in_recovery() FROM pg_catalog.pg_roles WHERE rolname = current_user"


@named("schema changes")
def schema_changes(connection: psycopg.Connection[Any], _: Target) -> list[Finding]:
    """Whether the event triggers are there. Whether they could be is not tried: a check changes nothing."""
    version = installed_version(connection)
    if version is not None and version >= VERSION:
        return []
    may = connection.execute(_WHO).fetchone() == (True,)
    if version is not None:
        message = f"version {version} of what tells of schema changes is installed, {VERSION} is this program's"
        remedy = "start the pipeline, which brings it up to date" if may else _BY_ADMIN
        return [Finding("schema changes", Severity.INFO if may else Severity.WARNING, message, remedy)]
    if may:
        message = "nothing tells of schema changes yet: a start installs it, unless source.install is never"
        return [Finding("schema changes", Severity.INFO, message, "headrace source install, to have it now")]
    return [Finding("schema changes", Severity.WARNING, f"no event triggers are installed: {_UNSEEN}", _BY_ADMIN)]
