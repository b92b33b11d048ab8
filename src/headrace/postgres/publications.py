"""What a publication sends: its tables, and of each the columns, the row filter and the kinds of change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.rows import dict_row

from ..errors import PublicationNotFound
from ..schema import OWN_SCHEMA, ReplicatedTableSchema, ReplicationMask, TableSchema, quote_identifier
from .catalog import table_schemas
from .translation import translated_errors
from .version import ServerVersion

__all__ = ["Publication", "publication_exists", "published_tables", "read_publication"]

_SCHEMAS = """ARRAY(
    SELECT n.nspname::text FROM pg_catalog.pg_publication_namespace pn
    JOIN pg_catalog.pg_namespace n ON n.oid = pn.pnnspid WHERE pn.pnpubid = p.oid ORDER BY 1)"""

# The view resolves FOR ALL TABLES, IN SCHEMA, and partitions: leaves, or the root under publish_via_partition_root.
_TABLES = """
SELECT c.oid, {attnames}, {rowfilter}
FROM pg_catalog.pg_publication_tables pt
JOIN pg_catalog.pg_namespace n ON n.nspname = pt.schemaname
JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = pt.tablename
WHERE pt.pubname = %s AND pt.schemaname <> %s ORDER BY pt.schemaname, pt.tablename
"""


@dataclass(frozen=True, slots=True)
class Publication:
    """A row of pg_publication. `schemas` are those published as a whole (IN SCHEMA), our own left out."""

    name: str
    all_tables: bool
    schemas: tuple[str, ...]
    via_partition_root: bool
    actions: frozenset[str]
    """Of insert, update, delete and truncate, those that are sent."""
    generated_columns: bool
    """Stored generated columns are sent (Postgres 18, `publish_generated_columns = stored`)."""


def publication_exists(connection: psycopg.Connection[Any], name: str) -> bool:
    with translated_errors("cannot read publications"):
        row = connection.execute("SELECT 1 FROM pg_catalog.pg_publication WHERE pubname = %s", (name,)).fetchone()
    return row is not None


def read_publication(connection: psycopg.Connection[Any], name: str) -> Publication:
    """The publication's own settings. Raises PublicationNotFound."""
    schemas = _SCHEMAS if ServerVersion.of(connection).tables_in_schema else "ARRAY[]::text[]"
    query = f"SELECT to_jsonb(p) AS settings, {schemas} AS schemas FROM pg_catalog.pg_publication p WHERE pubname = %s"
    with translated_errors("cannot read publications"), connection.cursor(row_factory=dict_row) as cursor:
        row = cursor.execute(query, (name,)).fetchone()
    if row is None:
        msg = f"publication {quote_identifier(name)} does not exist in this database"
        raise PublicationNotFound(msg, hint=f"create it: CREATE PUBLICATION {quote_identifier(name)} FOR TABLE …")
    settings = row["settings"]
    return Publication(
        name,
        settings["puballtables"],
        tuple(schema for schema in row["schemas"] if schema != OWN_SCHEMA),
        settings["pubviaroot"],
        frozenset(kind for kind in ("insert", "update", "delete", "truncate") if settings[f"pub{kind}"]),
        settings.get("pubgencols") == "s",
    )


def published_tables(connection: psycopg.Connection[Any], name: str) -> tuple[ReplicatedTableSchema, ...]:
    """The tables as the publication shows them, by name. Raises PublicationNotFound; may be empty.

    What lies in our own schema is left out: a store there writes after every batch, and would be fed its own writes.
    """
    version = ServerVersion.of(connection)
    query = _TABLES.format(
        attnames="pt.attnames::text[]" if version.column_lists else "NULL::text[]",
        rowfilter="pt.rowfilter" if version.row_filters else "NULL::text",
    )
    with translated_errors("cannot read the publication's tables"):
        rows = connection.execute(query, (name, OWN_SCHEMA)).fetchall()
    if not rows:
        read_publication(connection, name)
    schemas = table_schemas(connection, [oid for oid, _, _ in rows])
    # A table dropped between the two queries is no longer published.
    return tuple(
        ReplicatedTableSchema(schemas[oid], _mask(schemas[oid], attnames, version), row_filter)
        for oid, attnames, row_filter in rows
        if oid in schemas
    )


def _mask(schema: TableSchema, attnames: list[str] | None, version: ServerVersion) -> ReplicationMask:
    listed = None if attnames is None else frozenset(attnames)
    return ReplicationMask(
        frozenset(
            column.attnum
            for column in schema.columns
            # Some minor versions list generated columns that they do not send.
            if (version.publish_generated_columns or not column.generated) and (listed is None or column.name in listed)
        )
    )
