"""Installs what `script` has at the source, brings it up to date, and takes it away."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import psycopg
import structlog

from ...config.source import SourceInstall
from ...errors import SourceError, SourceInRecovery, SourcePermissionDenied
from ...schema import OWN_SCHEMA, quote_identifier
from ..translation import translated_errors
from .script import DDL_SCHEMA, FOREIGN, LOCK, SIGNED_SINCE, VERSION, install_sql, uninstall_sql

__all__ = [
    "InstallResult",
    "foreign_owner",
    "install",
    "installed_version",
    "may_install",
    "prepare_source",
    "uninstall",
]

Connection = psycopg.Connection[Any]

_log = structlog.get_logger(__name__)

# Read from the catalog, not by calling it: that takes no right to use the schema, and runs nobody's code. Whoever owns
# a function or its schema can replace it: that must be one who may do anything anyway.
_INSTALLED = f"""
SELECT pg_catalog."substring"(v.prosrc, '[0-9]+')::int
FROM pg_catalog.pg_proc v JOIN pg_catalog.pg_namespace n ON n.oid = v.pronamespace
WHERE n.nspname IN ('{DDL_SCHEMA}', '{OWN_SCHEMA}') AND v.proname = 'version' AND v.pronargs = 0
  AND 3 = (SELECT pg_catalog.count(*) FROM pg_catalog.pg_event_trigger e JOIN pg_catalog.pg_proc f ON f.oid = e.evtfoid
           WHERE f.pronamespace = n.oid AND e.evtenabled = 'A'
             AND e.evtname IN ('headrace_ddl_command_end', 'headrace_sql_drop', 'headrace_table_rewrite')
             AND NOT EXISTS (SELECT FROM pg_catalog.pg_roles r
                             WHERE r.oid <> e.evtowner AND NOT r.rolsuper AND (r.oid = n.nspowner OR r.oid IN (
                                 SELECT p.proowner FROM pg_catalog.pg_proc p WHERE p.pronamespace = n.oid))))
  AND (n.nspname = '{OWN_SCHEMA}' OR EXISTS (
      SELECT FROM pg_catalog.pg_proc k JOIN pg_catalog.pg_largeobject_metadata m
      ON m.oid = pg_catalog."substring"(k.prosrc, '[0-9]+')::pg_catalog.oid
      WHERE k.pronamespace = n.oid AND k.proname = 'message_key' AND k.pronargs = 0))
ORDER BY 1 DESC LIMIT 1
"""
_FOREIGN = f"""
SELECT o.object, r.rolname::text
FROM (
    SELECT pg_catalog.format('schema %%I', n.nspname) AS object, n.nspowner AS owner
    FROM pg_catalog.pg_namespace n
    WHERE n.nspname = '{DDL_SCHEMA}' OR n.oid IN (
        SELECT p.pronamespace FROM pg_catalog.pg_event_trigger e JOIN pg_catalog.pg_proc p ON p.oid = e.evtfoid
        WHERE e.evtname LIKE 'headrace\\_%%')
    UNION ALL
    SELECT pg_catalog.format('function %%s', p.oid::pg_catalog.regprocedure), p.proowner
    FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
    WHERE n.nspname = '{DDL_SCHEMA}' OR p.oid IN (
        SELECT e.evtfoid FROM pg_catalog.pg_event_trigger e WHERE e.evtname LIKE 'headrace\\_%%')
) AS o
JOIN pg_catalog.pg_roles r ON r.oid = o.owner
WHERE NOT r.rolsuper AND r.rolname <> current_user AND r.oid NOT IN (
    SELECT e.evtowner FROM pg_catalog.pg_event_trigger e WHERE e.evtname LIKE 'headrace\\_%%')
ORDER BY 1 LIMIT 1
"""
_WHO = """
SELECT rolname::text, rolsuper, pg_catalog.pg_is_in_recovery() FROM pg_catalog.pg_roles WHERE rolname = current_user
"""
_TAKE_TURNS = f"SELECT pg_catalog.pg_advisory_xact_lock({LOCK})"
_WITHOUT = "schema changes are seen when the next row of their table is changed, and not all of them"
_EARLIER = "an earlier version at the source tells of schema changes"
_BY_HAND = "have one who may run it: headrace source sql | psql; or set source.install to never and go without"


@dataclass(frozen=True, slots=True)
class InstallResult:
    """What is at the source now (None: nothing), and what was there before."""

    version: int | None
    before: int | None

    @property
    def changed(self) -> bool:
        return self.version != self.before


class _Undone(Exception):
    """Rolls a trial back."""


def installed_version(connection: Connection) -> int | None:
    """The version at the source; None if there is none, or a part of it is missing, switched off or another role's."""
    with translated_errors("cannot see whether headrace is installed at the source"):
        row = connection.execute(_INSTALLED).fetchone()
    return None if row is None else int(row[0])


def foreign_owner(connection: Connection) -> tuple[str, str] | None:
    """Find an object that belongs to a role who could replace what is installed: the object and the role."""
    with translated_errors("cannot see who owns what is installed at the source"):
        row = connection.execute(_FOREIGN, ()).fetchone()
    return None if row is None else (row[0], row[1])


def install(connection: Connection) -> InstallResult:
    """Install, mend or bring up to date; what is there in this version or a later one is left alone.

    In one transaction. Raises SourcePermissionDenied if the role may not, or if what is there belongs to another role
    that is no superuser; SourceInRecovery on a standby.
    """
    before = installed_version(connection)
    if before is not None and before >= VERSION:
        return InstallResult(before, before)
    with _explained(connection, "install at the source what tells of DDL"), connection.transaction():
        connection.execute(_TAKE_TURNS)
        # Asked again: another process may have installed it meanwhile.
        before = installed_version(connection)
        if before is not None and before >= VERSION:
            return InstallResult(before, before)
        _run(connection, install_sql())
    return InstallResult(VERSION, before)


def may_install(connection: Connection) -> bool:
    """Whether `install` would work now: tried, and rolled back, because managed services have rules of their own."""
    try:
        with _explained(connection, "install"), connection.transaction():
            _run(connection, install_sql())
            raise _Undone
    except _Undone:
        return True
    except (SourcePermissionDenied, SourceInRecovery):
        return False


def uninstall(connection: Connection) -> bool:
    """Remove everything `install` made, of any version; False if there was nothing. A store beside it is kept."""
    with _explained(connection, "uninstall what tells of DDL"), connection.transaction():
        before = _objects(connection)
        _run(connection, uninstall_sql())
        return before > _objects(connection)


def prepare_source(connection: Connection, how: SourceInstall) -> InstallResult:
    """What a pipeline does at its start. Raises only with `always`; else says in the log what cannot be had."""
    if how is SourceInstall.ALWAYS:
        return install(connection)
    version = installed_version(connection)
    if how is SourceInstall.AUTO and (version is None or version < VERSION):
        try:
            return install(connection)
        except SourceError as error:
            if connection.closed:
                raise
            _log.warning(_EARLIER if (version or 0) >= SIGNED_SINCE else _WITHOUT, reason=str(error), hint=error.hint)
    return InstallResult(version, version)


def _run(connection: Connection, script: str) -> None:
    # The transaction is the caller's, who may roll it back.
    connection.execute(script.removeprefix("BEGIN;").rstrip().removesuffix("COMMIT;").encode())


def _objects(connection: Connection) -> int:
    query = f"""
        SELECT pg_catalog.count(*) FROM (
            SELECT 1 FROM pg_catalog.pg_event_trigger WHERE evtname LIKE 'headrace\\_%'
            UNION ALL SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname IN ('{OWN_SCHEMA}', '{DDL_SCHEMA}')
            UNION ALL SELECT 1 FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
                WHERE n.nspname IN ('{OWN_SCHEMA}', '{DDL_SCHEMA}')) AS found
    """
    row = connection.execute(query).fetchone()
    return 0 if row is None else int(row[0])


@contextmanager
def _explained(connection: Connection, doing: str) -> Iterator[None]:
    """Within the block, a refusal says who was refused what, and who could do it."""
    with translated_errors(f"cannot {doing}"):
        row = connection.execute(_WHO).fetchone()
    role, is_super, in_recovery = row if row is not None else ("", False, False)
    if in_recovery:
        msg = f"cannot {doing}: this server is a standby"
        raise SourceInRecovery(msg, hint="do the same at the primary, once: the standby receives it from there")
    try:
        with translated_errors(f"cannot {doing}"):
            yield
    except SourceError as error:
        if error.sqlstate == FOREIGN:
            hint = f"look at what is in it, then DROP SCHEMA {DDL_SCHEMA} CASCADE and do this again"
            raise SourcePermissionDenied(error.message, sqlstate=FOREIGN, detail=error.detail, hint=hint) from error
        if not isinstance(error, SourcePermissionDenied):
            raise
        why = "" if is_super else ", not being a superuser"
        msg = f"role {quote_identifier(role)} may not {doing}{why}"
        raise SourcePermissionDenied(msg, sqlstate=error.sqlstate, detail=error.detail, hint=_BY_HAND) from error
