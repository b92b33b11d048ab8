"""Checks of the way to the server and of what the role may do there."""

from __future__ import annotations

import ipaddress
from typing import Any

import psycopg

from ...config.connection import PgConnectionConfig, TlsMode
from ...errors import SourceError, SourcePermissionDenied
from ...schema import quote_identifier
from ..catalog import rows_hidden_from
from ..connection import connect_replication
from ..publications import published_tables
from .contract import Finding, Severity, Target, named

__all__ = ["encryption", "is_loopback", "pooler", "replication_privilege", "row_security", "select_privilege"]


@named("replication privilege")
def replication_privilege(connection: psycopg.Connection[Any], target: Target) -> list[Finding]:
    query = "SELECT rolname, rolreplication OR rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user"
    row = connection.execute(query).fetchone()
    # Managed services grant replication through a role of theirs: a walsender that answers settles it.
    if row is None or row[1] or _walsender_answers(target.config):
        return []
    role = quote_identifier(row[0])
    message = f"role {role} does not have the REPLICATION attribute"
    remedy = f"ALTER ROLE {role} REPLICATION"
    return [Finding("replication privilege", Severity.ERROR, message, remedy)]


@named("direct connection")
def pooler(connection: psycopg.Connection[Any], target: Target) -> list[Finding]:
    """A pooler passes SQL on, but no walsender connections; its sessions change their backend between statements."""
    first, second = (_backend(connection) for _ in range(2))
    findings = []
    if len({first, second, connection.info.backend_pid}) > 1:
        findings.append(_pooled("the session's backend process changes: a connection pooler stands in between"))
    refusal = _walsender_refusal(target.config)
    if refusal is not None:
        findings.append(_pooled(refusal))
    return findings


@named("encryption")
def encryption(_: psycopg.Connection[Any], target: Target) -> list[Finding]:
    """Anything less than verify-full lets whoever stands in between read and change what is sent."""
    config = target.config
    if is_loopback(config) or config.tls.mode is TlsMode.VERIFY_FULL:
        return []
    message = f"the TLS mode of the connection to {config.host} is {config.tls.mode.value}: who answers is not verified"
    remedy = (
        "set pg_connection.tls to mode: verify-full, with trusted_root_certs: system or your authority's certificate; "
        "in a connection string: sslmode=verify-full sslrootcert=system"
    )
    return [Finding("encryption", Severity.WARNING, message, remedy)]


def is_loopback(config: PgConnectionConfig) -> bool:
    """Tell whether the connection stays on this machine: a Unix socket, or a loopback address."""
    address = config.hostaddr or config.host
    if address.startswith(("/", "@")) or address == "localhost":
        return True
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def _walsender_answers(config: PgConnectionConfig) -> bool:
    try:
        with connect_replication(config, "check") as walsender:
            return walsender.execute("IDENTIFY_SYSTEM").fetchone() is not None
    except (SourceError, psycopg.Error):
        return False


def _walsender_refusal(config: PgConnectionConfig) -> str | None:
    try:
        with connect_replication(config, "check") as walsender:
            walsender.execute("IDENTIFY_SYSTEM")
    except SourcePermissionDenied:
        return None  # the server itself answered; replication_privilege reports what is missing
    except SourceError as error:
        return f"a replication connection is refused: {error.detail or error.message}"
    except psycopg.Error:
        return "IDENTIFY_SYSTEM is not understood: no walsender is at the other end"
    return None


def _backend(connection: psycopg.Connection[Any]) -> int:
    row = connection.execute("SELECT pg_catalog.pg_backend_pid()").fetchone()
    return int(row[0]) if row else 0


def _pooled(message: str) -> Finding:
    remedy = (
        "connect to the server's own host and port, not to a pooler (PgBouncer, pgcat, RDS Proxy, …), and allow "
        "replication connections to the database in pg_hba.conf"
    )
    return Finding("direct connection", Severity.ERROR, message, remedy)


@named("select privilege")
def select_privilege(connection: psycopg.Connection[Any], target: Target) -> list[Finding]:
    tables = {schema.table.id: schema for schema in published_tables(connection, target.publication)}
    query = """
        SELECT c.oid, current_user::text, pg_catalog.has_schema_privilege(c.relnamespace, 'USAGE'),
               pg_catalog.has_table_privilege(c.oid, 'SELECT')
        FROM pg_catalog.pg_class c WHERE c.oid = ANY(%s) ORDER BY c.oid
    """
    findings = []
    for oid, user, usage, select in connection.execute(query, (list(tables),)).fetchall():
        name, role = tables[oid].table.name, quote_identifier(user)
        if not usage:
            remedy = f"GRANT USAGE ON SCHEMA {quote_identifier(name.schema)} TO {role}"
            findings.append(
                Finding("select privilege", Severity.ERROR, f"role {role} may not use the schema of {name}", remedy)
            )
        # Privileges on columns are not enough: the copy locks the table, and reads it by ctid.
        if not select:
            remedy = f"GRANT SELECT ON {name.quoted} TO {role}"
            findings.append(Finding("select privilege", Severity.ERROR, f"role {role} may not read {name}", remedy))
    return findings


@named("row security")
def row_security(connection: psycopg.Connection[Any], target: Target) -> list[Finding]:
    """Policies hide rows from the copy, but not from the stream."""
    tables = [schema.table for schema in published_tables(connection, target.publication)]
    hidden = rows_hidden_from(connection, [oid for table in tables for oid in (table.id, *table.leaves)])
    return [
        Finding(
            "row security",
            Severity.ERROR,
            f"row-level security of {name} applies to role {role}: the table cannot be copied",
            f"ALTER ROLE {role} BYPASSRLS",
        )
        for name, role in hidden.items()
    ]
