"""The check of how schema changes will be seen, and of what cannot be known otherwise."""

from __future__ import annotations

from typing import Any

import psycopg

from ...config.source import SourceInstall
from ..source.install import foreign_owner, installed_version
from ..source.message_key import key_grant
from ..source.script import DDL_SCHEMA, SIGNED_SINCE, VERSION
from .contract import Finding, Severity, Target, named

__all__ = ["NOT_KNOWN", "schema_changes"]

NOT_KNOWN = (
    "labels of an enum that are renamed, or a composite type that is altered, while columns keep the type",
    "values that ALTER COLUMN … TYPE … USING, or SET EXPRESSION of a generated column that is published, changed while "
    "the column kept its type",
    "a primary key that is dropped and made again within seconds, of a table whose replica identity is not the key",
)
"""What nothing shows where no event trigger tells it; the documents have the same list."""
_UNSEEN = (
    "schema changes are seen when the next row of the table is changed, and a default or NOT NULL with the next change "
    f"of its columns; not known are {'; '.join(NOT_KNOWN)}: copy the table again after such a change"
)
_BY_ADMIN = "headrace source install PIPELINE.YAML, as a superuser; or have one run the output of: headrace source sql"
_WHO = "SELECT rolsuper AND NOT pg_catalog.pg_is_in_recovery() FROM pg_catalog.pg_roles WHERE rolname = current_user"


@named("schema changes")
def schema_changes(connection: psycopg.Connection[Any], target: Target) -> list[Finding]:
    """Whether the event triggers are there. Whether they could be is not tried: a check changes nothing."""
    foreign = foreign_owner(connection)
    if foreign is not None:
        message = f"{foreign[0]} belongs to role {foreign[1]}, who could replace what tells of schema changes: not used"
        remedy = f"DROP SCHEMA {DDL_SCHEMA} CASCADE" if DDL_SCHEMA in foreign[0] else _BY_ADMIN
        return [Finding("schema changes", Severity.WARNING, message, remedy)]
    version = installed_version(connection)
    if version is not None and version >= VERSION:
        grant = key_grant(connection)
        message = f"the role may not read the key that verifies what event triggers tell, so it is ignored: {_UNSEEN}"
        return [] if grant is None else [Finding("schema changes", Severity.WARNING, message, grant)]
    may = target.install is not SourceInstall.NEVER and connection.execute(_WHO).fetchone() == (True,)
    if version is not None:
        message = f"version {version} of what tells of schema changes is installed, {VERSION} is this program's"
        if version < SIGNED_SINCE:
            message += f"; what it tells is not signed, and is ignored: {_UNSEEN}"
        remedy = "start the pipeline, which brings it up to date" if may else _BY_ADMIN
        return [Finding("schema changes", Severity.INFO if may else Severity.WARNING, message, remedy)]
    if may:
        message = "nothing tells of schema changes yet: a start installs it, unless source.install is never"
        return [
            Finding("schema changes", Severity.INFO, message, "to have it now: headrace source install PIPELINE.YAML")
        ]
    return [Finding("schema changes", Severity.WARNING, f"no event triggers are installed: {_UNSEEN}", _BY_ADMIN)]
