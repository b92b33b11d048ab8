"""Checks of each published table against what the publication sends of it."""

from __future__ import annotations

from typing import Any

import psycopg

from ...schema import ReplicaIdentity, ReplicatedTableSchema, quote_identifier
from ..publications import published_tables, read_publication
from ..version import ServerVersion
from .contract import Finding, Severity, Target, named

__all__ = ["generated_columns", "identity_finding", "keyless_tables", "omitted_key_columns", "replica_identity"]


@named("replica identity")
def replica_identity(connection: psycopg.Connection[Any], target: Target) -> list[Finding]:
    """Without an identity Postgres refuses the UPDATE or DELETE itself, on the source: the application breaks."""
    actions = read_publication(connection, target.publication).actions
    found = (identity_finding(schema, actions) for schema in published_tables(connection, target.publication))
    return [finding for finding in found if finding is not None]


def identity_finding(schema: ReplicatedTableSchema, actions: frozenset[str]) -> Finding | None:
    """What is to say of one table, where the publication sends these kinds of change; None: all is well."""
    if schema.table.identity_attnums:
        return None
    failing = " and ".join(kind.upper() for kind in ("update", "delete") if kind in actions)
    message = f"{schema.table.name} has no replica identity (it is {schema.table.replica_identity.name})"
    if failing:
        message += f": {failing} on it will fail once it is published"
    severity = Severity.ERROR if failing else Severity.WARNING
    return Finding("replica identity", severity, message, _identity_remedy(schema))


def _identity_remedy(schema: ReplicatedTableSchema) -> str:
    table = schema.table.name.quoted
    # A deferrable key is a key, but no identity.
    if schema.table.key and schema.table.replica_identity is not ReplicaIdentity.DEFAULT:
        return f"ALTER TABLE {table} REPLICA IDENTITY DEFAULT"
    return f"ALTER TABLE {table} ADD PRIMARY KEY (…); or ALTER TABLE {table} REPLICA IDENTITY FULL"


@named("primary key")
def keyless_tables(connection: psycopg.Connection[Any], target: Target) -> list[Finding]:
    return [
        Finding(
            "primary key",
            Severity.WARNING,
            f"{schema.table.name} has no primary key: unless an index is its replica identity, destinations find its "
            "rows by all of their columns, which takes longer",
            f"ALTER TABLE {schema.table.name.quoted} ADD PRIMARY KEY (…)",
        )
        for schema in published_tables(connection, target.publication)
        if not schema.table.key
    ]


@named("key columns")
def omitted_key_columns(connection: psycopg.Connection[Any], target: Target) -> list[Finding]:
    """A column list must hold the identity for UPDATE and DELETE, and the key for destinations that merge by it."""
    actions = read_publication(connection, target.publication).actions
    findings = []
    for schema in published_tables(connection, target.publication):
        key = {column.attnum for column in schema.table.key} | set(schema.table.identity_attnums)
        omitted = [c.name for c in schema.table.columns if c.attnum in key - schema.mask.attnums and not c.generated]
        if not omitted:
            continue
        breaks = bool(actions & {"update", "delete"})
        message = f"the column list of {schema.table.name} omits key columns: {', '.join(omitted)}"
        severity = Severity.ERROR if breaks else Severity.WARNING
        findings.append(Finding("key columns", severity, message, _list_remedy(schema, omitted, target.publication)))
    return findings


def _list_remedy(schema: ReplicatedTableSchema, omitted: list[str], publication: str) -> str:
    wanted = {column.name for column in schema.columns} | set(omitted)
    columns = ", ".join(quote_identifier(column.name) for column in schema.table.columns if column.name in wanted)
    name, where = quote_identifier(publication), f" WHERE ({schema.row_filter})" if schema.row_filter else ""
    # ADD after DROP: SET TABLE would replace every other table of the publication.
    table = schema.table.name.quoted
    return f"ALTER PUBLICATION {name} DROP TABLE {table}; ALTER PUBLICATION {name} ADD TABLE {table} ({columns}){where}"


@named("generated columns")
def generated_columns(connection: psycopg.Connection[Any], target: Target) -> list[Finding]:
    can = ServerVersion.of(connection).publish_generated_columns
    name = quote_identifier(target.publication)
    remedy = (
        f"ALTER PUBLICATION {name} SET (publish_generated_columns = stored)"
        if can
        else "compute them at the destination"
    )
    findings = []
    for schema in published_tables(connection, target.publication):
        missing = [column.name for column in schema.table.columns if column.generated and column not in schema.mask]
        if missing:
            message = f"generated columns of {schema.table.name} are not published: {', '.join(missing)}"
            findings.append(Finding("generated columns", Severity.WARNING, message, remedy))
    return findings
